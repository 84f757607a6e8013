//! Waking up: waiting results are taken first, in order, once; only the inbox and the guard decide.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, hex, until};

use crate::support::{
    claim_all, crowded, each_ran_once, edges_taken, hammer, head, most_active, moves, row_status, serve, server_with_model, spy, stop,
    turn_server, turn_server_with_config,
};

/// Ada waits for this number of calls of `echo`, and another agent occupies the only worker, so reports stay in the inbox.
async fn waiting_unattended(calls: usize) -> (Server, FakeModel, String, Vec<Value>, String) {
    let asks = Scene::Call(vec![("echo", json!({})); calls]);
    let (server, model) = server_with_model(vec![asks, Scene::Hang, Scene::Say("done")], ", workers: 1").await;
    let run = server.enqueue("ada", "go").await;
    let calls = claim_all(&server, "echo", calls).await;
    let holder = server.enqueue("holder", "keep the only worker").await;
    until("the holder thinks", || async { (model.hanging() == 1).then_some(()) }).await;
    spy(&server);
    (server, model, run, calls, holder)
}

/// The numbers of the calls whose results a run took, in that order.
async fn taken(server: &Server, run: &str) -> Vec<u64> {
    let history = server.history(run).await;
    history.iter().filter(|event| event["kind"] == "reported").filter_map(|event| event["call"].as_u64()).collect()
}

#[tokio::test]
async fn c_031_what_waits_is_taken_oldest_first_and_each_row_once() {
    let (server, _model, run, calls, holder) = waiting_unattended(6).await;
    let order = [3, 0, 5, 1, 4, 2];
    for index in order {
        server.report(&calls[index], json!(index)).await.ok();
    }
    let rows = server.inbox_of("ada", "tool_result").await;
    assert!(rows.iter().all(|row| row["status"] == "pending"), "no server was there to take them");
    assert_eq!(taken(&server, &run).await, [0_u64; 0]);
    stop(&server, "holder", &holder).await;
    server.ended(&run).await;
    assert_eq!(taken(&server, &run).await, order.map(|index| index as u64 + 1), "in the order they came");
    let rows = server.inbox_of("ada", "tool_result").await;
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row["status"] == "consumed" && row["processed_at"].is_string()));
}

#[tokio::test]
async fn c_031_many_reports_of_the_same_calls_at_once_are_taken_once_each() {
    let server = turn_server().await;
    for _ in 0..5 {
        let run = server.enqueue("ada", "call echo call echo call echo call echo").await;
        let calls = claim_all(&server, "echo", 4).await;
        let reports = calls.iter().flat_map(|call| (0..10).map(|number| server.report(call, json!(number))));
        let answers = join_all(reports).await;
        let first = answers.into_iter().map(|answer| answer.ok()).filter(|answer| answer["duplicate"] == false).count();
        assert_eq!(first, 4, "each call has one first report");
        server.ended(&run).await;
        let taken = taken(&server, &run).await;
        assert_eq!(taken.len(), 4, "{taken:?}");
        assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(server.kinds(&run).await.iter().filter(|kind| *kind == "lap_started").count(), 2);
    }
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE kind = 'tool_result'"), 20);
}

#[tokio::test]
async fn c_032_readers_of_the_head_block_no_writer() {
    let server = turn_server().await;
    let database = server.database();
    database.hold_still();
    database.batch("SELECT * FROM heads; SELECT * FROM runs;");
    let run = server.enqueue("ada", "call echo").await;
    serve(&server, "echo", 1).await;
    server.ended(&run).await;
    assert_eq!(database.number("SELECT count(*) FROM heads"), 0, "the look was open all the time");
    database.batch("ROLLBACK");
}

#[tokio::test]
async fn c_032_a_write_that_lost_the_race_for_the_head_is_made_again() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "wait 1000 and answer").await;
    server.agent_is("ada", "running").await;
    let moved = server.database().execute("UPDATE heads SET seq = seq + 1 WHERE agent = 'ada' AND status = 'running'");
    assert_eq!(moved, Ok(1), "another owner moved the head");
    let view = server.ended(&run).await;
    assert_eq!(view["task_status"], "success");
    assert_eq!(server.kinds(&run).await, ["accepted", "leased", "lap_started", "replied", "ended"], "nothing was written twice");
    assert!(server.number("SELECT max(at) - min(at) FROM journal") >= 2000, "the model was waited for twice: the first answer was void");
}

#[tokio::test]
async fn c_033_a_row_without_a_turn_becomes_an_error_and_nothing_else_changes() {
    let server = turn_server().await;
    let other = server.enqueue("bob", "call send").await;
    server.suspended("bob", &other).await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let queued = server.enqueue("ada", "the next").await;
    let picture =
        async || (head(&server, "ada").await, head(&server, "bob").await, server.journal(&run).await, server.journal(&queued).await);
    let before = picture().await;
    let runs = server.number("SELECT count(*) FROM runs");
    for kind in ["tool_result", "timeout", "stop", "answer", "turn", "ui_action"] {
        let row = server.database().slip_in("ada", kind, None, None);
        until(&format!("a {kind} of no turn is refused"), || async { (row_status(&server, row) == "error").then_some(()) }).await;
        assert_eq!(picture().await, before, "{kind}");
    }
    assert_eq!(server.number("SELECT count(*) FROM runs"), runs, "no turn was made up for them");
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status = 'error' AND run IS NULL AND epoch IS NULL"), 6);
    server.report(&call, json!("done")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert_eq!(server.ended(&queued).await["task_status"], "success");
}

#[tokio::test]
async fn c_033_a_refused_row_holds_up_nothing_behind_it() {
    let (server, _model, run, calls, holder) = waiting_unattended(2).await;
    server.report(&calls[0], json!(1)).await.ok();
    let bad = server.database().slip_in("ada", "stop", None, None);
    server.report(&calls[1], json!(2)).await.ok();
    stop(&server, "holder", &holder).await;
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert_eq!(taken(&server, &run).await, [1, 2]);
    assert_eq!(row_status(&server, bad), "error");
}

#[tokio::test]
async fn c_033_a_row_without_an_epoch_is_taken_under_the_one_its_turn_was_leased_with() {
    let (server, _model, run, calls, holder) = waiting_unattended(2).await;
    let leased = head(&server, "ada").await["turn_epoch"].clone();
    server.report(&calls[0], json!(1)).await.ok();
    let mut body = json!({ "agent_turn_id": run, "tool_call_id": calls[1]["tool_call_id"], "status": "success", "result": 2 });
    body["turn_epoch"] = json!(0);
    server.post("/v1/agents/ada/report", body).await.ok();
    let waiting = server.inbox_of("ada", "tool_result").await;
    assert!(waiting.iter().all(|row| row["status"] == "pending" && row["turn_epoch"] == Value::Null), "{waiting:?}");
    stop(&server, "holder", &holder).await;
    assert_eq!(server.ended(&run).await["turn_epoch"], leased, "no epoch was made up for them");
    let taken = server.inbox_of("ada", "tool_result").await;
    assert!(taken.iter().all(|row| row["status"] == "consumed" && row["turn_epoch"] == leased), "{taken:?}");
}

#[tokio::test]
async fn c_034_a_lease_raises_the_epoch_and_shows_where_the_turn_comes_from() {
    let server = turn_server().await;
    for number in 1..=3_u64 {
        let trace = format!("{number:032x}");
        let request = server
            .request(Method::POST, "/v1/agents/ada/enqueue")
            .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
            .json(&json!({ "input": "call echo", "parent_step_id": format!("step {number}") }));
        let answer = server.send(request).await.ok();
        let run = answer["run_id"].as_str().expect("a run");
        server.suspended("ada", run).await;
        let leased = head(&server, "ada").await;
        assert_eq!((&leased["turn_epoch"], &answer["turn_epoch"]), (&json!(number), &json!(number)), "one more than before");
        assert_eq!((&leased["trace_id"], &leased["parent_step_id"]), (&json!(trace), &json!(format!("step {number}"))));
        serve(&server, "echo", 1).await;
        server.ended(run).await;
        let idle = head(&server, "ada").await;
        assert_eq!((&idle["trace_id"], &idle["turn_epoch"]), (&Value::Null, &json!(number)));
    }
}

#[tokio::test]
async fn c_035_a_queued_turn_is_promoted_when_its_agent_gets_free() {
    // No sweep comes in time, so only the end of a turn can start the next.
    let server = turn_server_with_config("limits: { sweep_interval: 1h }\n").await;
    let runs = [
        server.enqueue("ada", "call echo").await,
        server.enqueue("ada", "call send").await,
        server.enqueue("ada", "call last").await,
        server.enqueue("ada", "hello").await,
    ];
    server.suspended("ada", &runs[0]).await;
    serve(&server, "echo", 1).await;
    server.suspended("ada", &runs[1]).await;
    assert_eq!(head(&server, "ada").await["queued"], 2);
    stop(&server, "ada", &runs[1]).await;
    server.suspended("ada", &runs[2]).await;
    serve(&server, "last", 1).await;
    each_ran_once(&server, "ada", &runs).await;
}

#[tokio::test]
async fn c_036_entering_moves_dispatched_to_running() {
    let (server, model, holder) = crowded(vec![Scene::Hang]).await;
    spy(&server);
    let run = server.enqueue("ada", "hello").await;
    assert_eq!((head(&server, "ada").await["status"].clone(), server.kinds(&run).await.len()), (json!("dispatched"), 1));
    stop(&server, "holder", &holder).await;
    model.asked_times(2).await;
    assert_eq!(head(&server, "ada").await["status"], "running");
    assert_eq!(server.kinds(&run).await, ["accepted", "leased", "lap_started"]);
    let edges: Vec<(String, String)> = edges_taken(&server, "ada");
    assert_eq!(edges[1..], [("dispatched".to_owned(), "running".to_owned())]);
    assert_eq!(server.inbox("ada").await[0]["status"], "consumed");
}

#[tokio::test]
async fn c_037_what_waits_is_drained_in_one_batch_in_time_order() {
    let (server, _model, run, calls, holder) = waiting_unattended(5).await;
    for call in calls.iter().rev() {
        server.report(call, json!("done")).await.ok();
    }
    stop(&server, "holder", &holder).await;
    server.ended(&run).await;
    assert_eq!(taken(&server, &run).await, [5, 4, 3, 2, 1]);
    let seen: Vec<(String, i64)> = moves(&server, "ada").into_iter().map(|seen| (seen.to, seen.waiting)).collect();
    let counts: BTreeSet<i64> = seen.iter().map(|(_, waiting)| *waiting).collect();
    assert_eq!(counts, BTreeSet::from([0, 5]), "all five in one step, not one after the other: {seen:?}");
}

#[tokio::test]
async fn c_037_a_stop_among_results_takes_effect_at_its_place() {
    let (server, _model, run, calls, holder) = waiting_unattended(3).await;
    server.report(&calls[0], json!(1)).await.ok();
    server.database().slip_in("ada", "stop", Some(&run), None);
    server.report(&calls[1], json!(2)).await.ok();
    server.report(&calls[2], json!(3)).await.ok();
    stop(&server, "holder", &holder).await;
    let view = server.ended(&run).await;
    assert_eq!((&view["task_status"], &view["end_reason"]), (&json!("canceled"), &json!("stopped")));
    assert_eq!(taken(&server, &run).await, [1], "what came before the stop is taken, what came after it is not");
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status = 'pending'"), 0);
    let next = server.enqueue("ada", "and on").await;
    server.ended(&next).await;
}

#[tokio::test]
async fn c_038_a_suspended_turn_takes_results_timeouts_and_stops_by_their_type() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call brief call send").await;
    let send = server.claim("send").await;
    // The result is for neither the first call nor a particular one that the run waits for.
    server.report(&send, json!("the last call first")).await.ok();
    until("the timeout is taken", || async { (taken(&server, &run).await == [3, 2]).then_some(()) }).await;
    let waits = head(&server, "ada").await;
    assert_eq!((&waits["status"], &waits["waiting_tool_count"]), (&json!("suspended"), &json!(1)));
    let row = server.database().slip_in("ada", "stop", Some(&run), None);
    let view = server.ended(&run).await;
    assert_eq!((&view["task_status"], &view["end_reason"]), (&json!("canceled"), &json!("stopped")));
    assert_eq!(row_status(&server, row), "consumed");
    let types: Vec<Value> = server.inbox("ada").await.iter().map(|row| row["message_type"].clone()).collect();
    assert_eq!(types, ["turn", "tool_result", "timeout", "stop"]);
    let statuses: Vec<Value> = server.calls(&run).await.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, ["dropped", "expired", "applied"]);
}

#[tokio::test]
async fn c_038_reports_of_many_kinds_in_any_order_lead_to_the_same_end() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let server = turn_server().await;
        let run = server.enqueue("ada", "call echo call echo call echo call echo").await;
        let calls = claim_all(&server, "echo", 4).await;
        let report = |index: usize| {
            let status = ["success", "failed", "canceled", "partial"][index];
            let body = json!({ "agent_turn_id": run, "tool_call_id": calls[index]["tool_call_id"], "status": status, "result": status });
            server.post("/v1/agents/ada/report", body)
        };
        for index in order {
            report(index).await.ok();
        }
        let view = server.ended(&run).await;
        let text = server.content(&view["deliverable_item_id"]).await["text"].as_str().expect("words").to_owned();
        let places: Vec<Option<usize>> = ["success", "failed", "canceled", "partial"].iter().map(|word| text.find(word)).collect();
        assert!(places.windows(2).all(|pair| pair[0].is_some() && pair[0] < pair[1]), "{text}");
    }
}

#[tokio::test]
async fn c_039_enqueues_are_never_merged_into_one_turn() {
    let server = turn_server().await;
    spy(&server);
    // The first turn is in the middle of its work while the others arrive.
    let first = server.enqueue("ada", "call echo").await;
    let (more, _) = join(hammer(&server, "ada", 40), serve(&server, "echo", 1)).await;
    let runs = [vec![first], more].concat();
    each_ran_once(&server, "ada", &runs).await;
    assert_eq!(most_active(&server, "ada"), 1);
    for (number, run) in runs.iter().skip(1).enumerate() {
        let view = server.run(run).await;
        let deliverable = server.content(&view["deliverable_item_id"]).await;
        assert_eq!(deliverable["text"], format!("You said: number {number};"), "each turn got its own input, and no other");
        assert_eq!(server.cards(&view["context_box_id"]).await.len(), 1);
    }
    let leases = moves(&server, "ada").into_iter().filter(|seen| !seen.is_same_run() && seen.new_run.is_some());
    let leased: Vec<String> = leases.filter_map(|seen| seen.new_run).collect();
    assert_eq!(leased.len(), runs.len());
    assert_eq!(leased.into_iter().collect::<BTreeSet<_>>(), runs.iter().map(|run| hex(run).to_owned()).collect());
}
