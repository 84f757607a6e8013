//! The core invariants: one active turn; one enqueue, one turn, one delivery; nothing acts on anything but the inbox.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, bytes, until};

use crate::support::{
    claim_all, each_ran_once, hammer, head, most_active, moves, row_status, serve, server_with_model, spy, stop, tasks, turn_server,
    turn_server_with_config,
};

#[tokio::test]
async fn c_001_of_many_leases_at_once_exactly_one_wins() {
    let server = turn_server().await;
    let act = |number: usize| {
        let body = json!({ "action_id": format!("click {number}"), "tool": "echo", "args": {} });
        server.post("/v1/agents/ada/actions", body)
    };
    let answers = join_all((0..64).map(act)).await;
    let taken: Vec<&Value> = answers.iter().filter(|answer| answer.status == 202).map(|answer| &answer.body).collect();
    assert_eq!(taken.len(), 1, "exactly one lease wins");
    assert!(answers.iter().filter(|answer| answer.status != 202).all(|answer| (answer.status, answer.code()) == (409, "busy")));
    assert_eq!(head(&server, "ada").await["active_agent_turn_id"], taken[0]["agent_turn_id"]);
    assert_eq!(server.inbox("ada").await.len(), 1, "the losers left nothing behind");
    assert_eq!(server.number("SELECT count(*) FROM runs"), 1);
}

#[tokio::test]
async fn c_001_many_enqueues_and_actions_at_once_never_make_two_turns_active() {
    let server = turn_server().await;
    spy(&server);
    let acts = (0..40).map(|number| server.post("/v1/agents/ada/actions", json!({ "action_id": format!("{number}"), "tool": "brief" })));
    let (runs, answers) = join(hammer(&server, "ada", 60), join_all(acts)).await;
    server.all_ended(&runs).await;
    let acted: Vec<&str> = answers.iter().filter_map(|answer| answer.body["agent_turn_id"].as_str()).collect();
    server.all_ended(&acted).await;
    assert_eq!(most_active(&server, "ada"), 1, "never two active turns");
    let epochs: Vec<i64> = moves(&server, "ada").iter().filter(|seen| !seen.is_same_run()).map(|seen| seen.new_epoch).collect();
    assert!(epochs.windows(2).all(|pair| pair[0] <= pair[1]), "the epoch never falls: {epochs:?}");
    assert_eq!(head(&server, "ada").await["status"], "idle");
}

#[tokio::test]
async fn c_002_an_owner_with_a_stale_epoch_writes_nothing() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "wait 1000 and answer").await;
    server.agent_is("ada", "running").await;
    let bumped: i64 = server.number("UPDATE heads SET epoch = epoch + 7 WHERE agent = 'ada' AND status = 'running' RETURNING epoch");
    server.ended(&run).await;
    // The answer of the fenced call was dropped, and the model was asked again with the current epoch.
    let replied: Vec<Value> = server.journal(&run).await.into_iter().filter(|entry| entry["event"]["kind"] == "replied").collect();
    assert_eq!(replied.len(), 1);
    assert_eq!(replied[0]["turn_epoch"], bumped);
    assert!(server.number("SELECT max(at) - min(at) FROM journal") >= 2000, "the model was waited for twice");
}

#[tokio::test]
async fn c_002_while_another_turn_is_active_nothing_of_this_one_moves() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let other = server.enqueue("ada", "the next").await;
    let set_active = |id: &str, pending: u32| {
        let sql = format!("UPDATE heads SET run = {}, pending = {pending}, wake_at = 1 WHERE agent = 'ada'", bytes(id));
        assert_eq!(server.database().execute(&sql), Ok(1));
    };
    set_active(&other, 0);
    let before = server.journal(&run).await;
    server.report(&call, json!("done")).await.ok();
    assert_eq!(server.journal(&run).await, before, "a result for a turn that is not active changes nothing");
    assert_eq!(server.run(&run).await["status"], "active");
    set_active(&run, 1);
    server.ended(&run).await;
    server.ended(&other).await;
}

#[tokio::test]
async fn c_002_a_stop_and_many_results_at_once_end_the_turn_exactly_once() {
    let server = turn_server().await;
    for _ in 0..10 {
        let run = server.enqueue("ada", "call echo call echo call echo call echo").await;
        let next = server.enqueue("ada", "and then this").await;
        let calls = claim_all(&server, "echo", 4).await;
        let reports = join_all(calls.iter().map(|call| server.report(call, json!("done"))));
        let (stopped, reported) = join(stop(&server, "ada", &run), reports).await;
        assert!(stopped["status"] == "stopped" || stopped["status"] == "ended");
        reported.into_iter().for_each(|answer| assert_eq!(answer.status, 202, "{}", answer.body));
        server.ended(&next).await;
        let kinds = server.kinds(&run).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "ended").count(), 1, "{kinds:?}");
        assert_eq!(kinds.last().map(String::as_str), Some("ended"));
        assert_eq!(server.kinds(&next).await, ["accepted", "leased", "lap_started", "replied", "ended"], "the next turn got nothing of it");
    }
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status NOT IN ('consumed', 'skipped')"), 0);
}

/// Plays one turn for each way to end: answered, failed, stopped, stopped while queued, out of time, out of budget, terminated, acted.
async fn every_ending(server: &Server) -> Vec<(String, &'static str)> {
    let answered = server.enqueue("ada", "good day").await;
    let failed = server.enqueue_body("ada", json!({ "input": "x", "model": "broken" })).await;
    let timed_out = server.enqueue("ada", "call brief").await;
    let budget = server.enqueue("poor", "call echo").await;
    serve(server, "echo", 1).await;
    let terminated = server.enqueue("eve", "call last").await;
    serve(server, "last", 1).await;
    let acted = server.post("/v1/agents/clicker/actions", json!({ "action_id": "a", "tool": "send" })).await.ok();
    serve(server, "send", 1).await;
    let stopped = server.enqueue("bob", "call echo").await;
    let withdrawn = server.enqueue("bob", "never begun").await;
    server.claim("echo").await;
    stop(server, "bob", &withdrawn).await;
    stop(server, "bob", &stopped).await;
    let acted = acted["agent_turn_id"].as_str().expect("an action has a turn").to_owned();
    vec![
        (answered, "success"),
        (failed, "failed"),
        (timed_out, "success"),
        (budget, "partial"),
        (terminated, "success"),
        (acted, "success"),
        (stopped, "canceled"),
        (withdrawn, "canceled"),
    ]
}

async fn server_of_endings() -> Server {
    let config = "
models: [ { name: offline, provider: scripted }, { name: broken, provider: scripted, script: broken.yaml } ]
tools:
  external:
    - { name: echo, effect: read }
    - { name: send, effect: read }
    - { name: brief, effect: read, deadline: 300ms }
    - { name: last, effect: read, after_execution: terminate }
agents:
  ada: { tools: [echo, brief] }
  bob: { tools: [echo] }
  eve: { tools: [last] }
  poor: { tools: [echo], budgets: { iterations: 1 } }
limits: { sweep_interval: 50ms }
";
    ServerBuilder::new(config).file("broken.yaml", "laps: [ { fail: { code: 400, message: no } } ]").start().await
}

#[tokio::test]
async fn c_003_every_terminal_turn_has_a_deliverable() {
    let server = server_of_endings().await;
    for (run, status) in every_ending(&server).await {
        let view = server.ended(&run).await;
        assert_eq!(view["task_status"], status, "{view}");
        let item = view["deliverable_item_id"].as_str().unwrap_or_else(|| panic!("it delivers: {view}"));
        assert_eq!(server.get(&format!("/v1/windlass/items/{item}")).await.ok()["kind"], "task.deliverable");
        let cards = server.cards(&view["output_box_id"]).await;
        assert_eq!(cards.last().expect("a card")["item_id"], item, "the deliverable is the last card of the output box");
    }
    assert_eq!(server.number("SELECT count(*) FROM runs WHERE deliverable IS NULL OR status <> 'ended'"), 0);
}

#[tokio::test]
async fn c_004_every_task_event_names_the_deliverable() {
    let server = server_of_endings().await;
    for (run, status) in every_ending(&server).await {
        let view = server.ended(&run).await;
        let agent = view["agent_id"].as_str().expect("a run has an agent");
        let events = server.events_until_end(agent, &run).await;
        let task = tasks(&events).into_iter().find(|task| task.data["agent_turn_id"] == run).expect("a task event");
        assert_eq!(task.event, format!("evt.agent.{agent}.task"));
        assert_eq!(task.data["deliverable_card_id"], view["deliverable_item_id"]);
        assert!(task.data["deliverable_card_id"].is_string());
        assert_eq!(task.data["status"], status);
    }
}

#[tokio::test]
async fn c_005_requests_without_a_doorbell_are_processed_from_the_inbox() {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Say("done")]).await;
    let mut server = ServerBuilder::new(&model.config()).start().await;
    let runs = hammer(&server, "ada", 20).await;
    model.asked_times(1).await;
    // No message exists beside the inbox. The process that knew of the work loses everything that it had in memory.
    server.kill();
    let server = server.restart(&[]).await;
    let turns = server.inbox_of("ada", "turn").await;
    assert_eq!(turns.iter().map(|row| row["agent_turn_id"].as_str().expect("a turn")).collect::<BTreeSet<_>>().len(), runs.len());
    each_ran_once(&server, "ada", &runs).await;
}

#[tokio::test]
async fn c_005_receipts_are_in_the_inbox_before_they_are_acknowledged() {
    let mut server = turn_server().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let receipt = server.report(&call, json!("kept")).await.ok();
    server.kill();
    let server = server.restart(&[]).await;
    let rows = server.inbox_of("ada", "tool_result").await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["inbox_id"], &rows[0]["tool_call_id"]), (&receipt["inbox_id"], &call["tool_call_id"]));
    let view = server.ended(&run).await;
    assert!(server.content(&view["deliverable_item_id"]).await.to_string().contains("kept"));
}

#[tokio::test]
async fn c_006_one_enqueue_is_one_turn_with_its_own_epoch_and_delivery() {
    let server = turn_server().await;
    let runs = hammer(&server, "ada", 100).await;
    assert_eq!(runs.iter().collect::<BTreeSet<_>>().len(), 100, "every enqueue has its own turn");
    each_ran_once(&server, "ada", &runs).await;
    let views = join_all(runs.iter().map(|run| server.run(run))).await;
    let distinct = |name: &str| views.iter().map(|view| view[name].to_string()).collect::<BTreeSet<_>>().len();
    assert_eq!((distinct("turn_epoch"), distinct("deliverable_item_id"), distinct("output_box_id")), (100, 100, 100));
    let last = views.iter().max_by_key(|view| view["ordinal"].as_u64()).expect("a run")["run_id"].as_str().expect("an id");
    let events = server.events_until_end("ada", last).await;
    let delivered: Vec<&str> = tasks(&events).iter().filter_map(|task| task.data["agent_turn_id"].as_str()).collect();
    assert_eq!(delivered.len(), 100, "one delivery each");
    assert_eq!(delivered.iter().collect::<BTreeSet<_>>().len(), 100);
}

#[tokio::test]
async fn c_006_a_repeated_idempotency_key_is_no_second_enqueue() {
    let server = turn_server().await;
    let enqueue = || server.post("/v1/agents/ada/enqueue", json!({ "input": "once", "idempotency_key": "k" }));
    let answers = join_all((0..30).map(|_| enqueue())).await;
    let runs: BTreeSet<String> = answers.into_iter().map(|answer| answer.ok()["run_id"].to_string()).collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(server.inbox("ada").await.len(), 1);
    assert_eq!(server.number("SELECT count(*) FROM runs"), 1);
}

#[tokio::test]
async fn c_007_the_epoch_is_absent_while_queued_and_set_by_the_lease() {
    let server = turn_server().await;
    let first = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let queued = server.post("/v1/agents/ada/enqueue", json!({ "input": "call send" })).await.ok();
    assert_eq!((&queued["status"], &queued["turn_epoch"]), (&json!("queued"), &Value::Null));
    let second = queued["run_id"].as_str().expect("a run");
    assert_eq!(server.run(second).await["turn_epoch"], Value::Null);
    let row = |rows: Vec<Value>| rows.into_iter().find(|row| row["agent_turn_id"] == second).expect("its row");
    let waiting = row(server.inbox("ada").await);
    assert_eq!((&waiting["status"], &waiting["turn_epoch"]), (&json!("queued"), &Value::Null));
    server.report(&call, json!("done")).await.ok();
    server.ended(&first).await;
    server.suspended("ada", second).await;
    let epoch = head(&server, "ada").await["turn_epoch"].clone();
    assert!(epoch.as_u64() > server.run(&first).await["turn_epoch"].as_u64());
    assert_eq!(server.run(second).await["turn_epoch"], epoch);
    assert_eq!(row(server.inbox("ada").await)["turn_epoch"], epoch);
}

#[tokio::test]
async fn c_008_each_turn_emits_one_task_event_across_crashes_and_retries() {
    for point in [
        "commit.enqueue.after",
        "effect.model_call.after",
        "commit.suspend.after",
        "commit.resume.after",
        "commit.end.before",
        "commit.end.after",
    ] {
        let server = ServerBuilder::new("tools: { external: [ { name: echo, effect: read } ] }\nagents: { ada: { tools: [echo] } }\n");
        let mut server = server.env("WINDLASS_CRASH_AT", point).start().await;
        let body = json!({ "input": "call echo", "idempotency_key": "the one" });
        let answered = server.try_post("/v1/agents/ada/enqueue", body.clone()).await;
        if answered.is_some() {
            let claim = json!({ "worker": "w", "wait_s": 5, "lease_s": 60 });
            let claimed = server.try_post("/v1/tools/echo/claim", claim).await;
            if let Some(call) = claimed.and_then(|answer| answer.body["calls"].get(0).cloned()) {
                let report = json!({ "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
                server.try_post("/v1/agents/ada/report", report).await;
            }
        }
        server.gone().await;
        let server = server.restart(&[]).await;
        // Both the client and the tool service retry.
        let run = server.enqueue_body("ada", body).await;
        until("the call is answered", || async {
            let claim = server.post("/v1/tools/echo/claim", json!({ "worker": "w", "lease_s": 60 })).await.ok();
            if let Some(call) = claim["calls"].get(0) {
                server.report(call, json!(1)).await;
            }
            if let Some(call) = server.calls(&run).await.into_iter().find(|call| call["status"] == "claimed") {
                let report = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
                server.post("/v1/agents/ada/report", report).await.ok();
            }
            (server.run(&run).await["status"] == "ended").then_some(())
        })
        .await;
        let events = server.events_until_end("ada", &run).await;
        assert_eq!(tasks(&events).len(), 1, "{point}");
        assert_eq!(server.kinds(&run).await.iter().filter(|kind| *kind == "ended").count(), 1, "{point}");
    }
}

#[tokio::test]
async fn c_008_stops_and_reports_after_the_end_emit_no_second_task_event() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    server.report(&call, json!("done")).await.ok();
    server.ended(&run).await;
    let before = server.events_until_end("ada", &run).await;
    assert_eq!(stop(&server, "ada", &run).await["status"], "ended");
    assert_eq!(server.report(&call, json!("again")).await.ok()["duplicate"], true);
    let next = server.enqueue("ada", "bye").await;
    let after = server.events_until_end("ada", &next).await;
    assert_eq!(after[..before.len()], before[..], "earlier events stay unchanged");
    assert_eq!(tasks(&after).iter().filter(|task| task.data["agent_turn_id"] == run).count(), 1);
}

#[tokio::test]
async fn c_009_rows_that_make_no_sense_change_nothing() {
    let server = turn_server().await;
    let foreign = server.enqueue("bob", "call send").await;
    server.suspended("bob", &foreign).await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let before = (server.journal(&run).await, server.journal(&foreign).await, head(&server, "ada").await, head(&server, "bob").await);
    let of_another = server.database().slip_in("ada", "stop", Some(&foreign), None);
    let of_no_run = server.database().slip_in("ada", "stop", None, None);
    let of_no_call = server.database().slip_in("ada", "tool_result", Some(&run), Some(99));
    until("the agent was looked at", || async { (row_status(&server, of_no_run) == "error").then_some(()) }).await;
    let after = (server.journal(&run).await, server.journal(&foreign).await, head(&server, "ada").await, head(&server, "bob").await);
    assert_eq!(before, after);
    server.report(&call, json!("done")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert_ne!(row_status(&server, of_another), "consumed");
    assert_ne!(row_status(&server, of_no_call), "consumed");
}

#[tokio::test]
async fn c_009_requests_that_contradict_the_inbox_are_refused_and_leave_nothing() {
    let server = turn_server().await;
    let foreign = server.enqueue("bob", "call send").await;
    server.suspended("bob", &foreign).await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await["tool_call_id"].clone();
    let theirs = format!("call_{}_1", foreign.trim_start_matches("run_"));
    let made_up = "run_00000000000000000000000000000007";
    let before = (server.row_counts(), head(&server, "ada").await);
    let report = |body: Value| server.post("/v1/agents/ada/report", body);
    for (body, status) in [
        (json!({ "agent_turn_id": foreign, "tool_call_id": theirs, "status": "success", "result": 1 }), 404),
        (json!({ "agent_turn_id": foreign, "tool_call_id": call, "status": "success", "result": 1 }), 404),
        (
            json!({ "agent_turn_id": run, "tool_call_id": format!("call_{}_2", run.trim_start_matches("run_")), "status": "success", "result": 1 }),
            404,
        ),
        (
            json!({ "agent_turn_id": made_up, "tool_call_id": "call_00000000000000000000000000000007_1", "status": "success", "result": 1 }),
            404,
        ),
        (json!({ "agent_turn_id": run, "tool_call_id": call, "status": "success", "result": 1, "turn_epoch": -1 }), 400),
        (json!({ "agent_turn_id": run, "tool_call_id": call, "status": "splendid", "result": 1 }), 400),
        (json!({ "tool_call_id": call, "status": "success", "result": 1 }), 400),
    ] {
        assert_eq!(report(body.clone()).await.status, status, "{body}");
    }
    for (body, status) in [
        (json!({ "agent_turn_id": foreign, "reason": "x" }), 404),
        (json!({ "agent_turn_id": made_up, "reason": "x" }), 404),
        (json!({ "agent_turn_id": run, "reason": "x", "turn_epoch": 99 }), 409),
    ] {
        assert_eq!(server.post("/v1/agents/ada/stop", body.clone()).await.status, status, "{body}");
    }
    assert_eq!((server.row_counts(), head(&server, "ada").await), before);
    assert_eq!(head(&server, "bob").await["active_agent_turn_id"], foreign);
}

#[tokio::test]
async fn f_001_sixteen_and_two_hundred_agents_at_once_complete_with_default_settings() {
    let server = turn_server_with_config("").await;
    for count in [16, 200] {
        let agents: Vec<String> = (0..count).map(|number| format!("agent-{count}-{number}")).collect();
        let body = json!({ "input": "call echo", "tools": ["echo"] });
        let enqueued = join_all(agents.iter().map(|agent| server.enqueue_body(agent, body.clone())));
        let (runs, served) = join(enqueued, serve(&server, "echo", count)).await;
        assert_eq!(served.iter().map(|call| call["agent_id"].to_string()).collect::<BTreeSet<_>>().len(), count);
        for view in server.all_ended(&runs).await {
            assert_eq!(view["task_status"], "success");
        }
    }
    assert_eq!(server.number("SELECT count(*) FROM heads WHERE status <> 'idle'"), 0);
}

#[tokio::test]
async fn f_001_more_agents_than_workers_complete_all_the_same() {
    let (server, _model) = server_with_model(vec![Scene::Say("done")], ", workers: 4").await;
    let agents: Vec<String> = (0..60).map(|number| format!("agent-{number}")).collect();
    let runs = join_all(agents.iter().map(|agent| server.enqueue(agent, "go"))).await;
    for view in server.all_ended(&runs).await {
        assert_eq!(view["task_status"], "success");
    }
}
