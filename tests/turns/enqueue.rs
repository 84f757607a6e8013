//! Enqueueing: the rows that are written, the reaction of an idle agent, and the refusal of a full queue.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, Scene, Server, hex, until};

use crate::support::{
    crowded, edges_taken, hammer, head, multiply, serve, server_with_model, spy, stop, turn_server, turn_server_with_config,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Enqueues with a trace.
async fn enqueue_traced(server: &Server, agent: &str, input: &str) -> Answer {
    let request = server
        .request(Method::POST, &format!("/v1/agents/{agent}/enqueue"))
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .json(&json!({ "input": input, "parent_step_id": "step_of_the_parent" }));
    server.send(request).await
}

#[tokio::test]
async fn c_022_the_inbox_row_holds_pointers_and_no_content() {
    let server = turn_server().await;
    let secret = "the words themselves, call echo";
    let enqueued = enqueue_traced(&server, "ada", secret).await.ok();
    let run = enqueued["run_id"].as_str().expect("a run");
    let call = server.claim("echo").await;
    server.report(&call, json!("the result itself")).await.ok();
    server.ended(run).await;
    let database = server.database();
    let rows = database.rows("SELECT * FROM inbox ORDER BY n");
    assert_eq!(rows.len(), 2);
    for (row, (kind, content)) in rows.iter().zip([("turn", secret), ("tool_result", "the result itself")]) {
        let as_bytes: String = content.bytes().map(|byte| format!("{byte:02x}")).collect();
        let row = format!("{row:?}");
        assert!(!row.contains(content) && !row.contains(&as_bytes), "{row}");
        let pointed = format!("SELECT i.content FROM inbox AS m JOIN items AS i ON i.item = m.item WHERE m.kind = '{kind}'");
        assert!(database.text(&pointed).contains(&as_bytes), "it points at an item");
    }
}

#[tokio::test]
async fn c_022_a_turn_carries_its_trace_and_lineage() {
    let server = turn_server().await;
    let run = enqueue_traced(&server, "ada", "hello").await.ok()["run_id"].as_str().expect("a run").to_owned();
    let view = server.ended(&run).await;
    assert_eq!((&view["trace_id"], &view["parent_step_id"]), (&json!(TRACE), &json!("step_of_the_parent")));
    let edge = &server.edges("ada").await[0];
    assert_eq!((&edge["trace_id"], &edge["parent_step_id"]), (&json!(TRACE), &json!("step_of_the_parent")));
    assert!(server.inbox("ada").await[0]["source"].is_string(), "the caller is recorded");
    // A request without a trace gets a new one.
    let other = server.enqueue("ada", "hello").await;
    let own = server.ended(&other).await["trace_id"].as_str().expect("a trace").to_owned();
    assert!(own.len() == 32 && own != TRACE);
}

#[tokio::test]
async fn c_023_an_enqueue_writes_its_edge() {
    let server = turn_server().await;
    let enqueued = server.post("/v1/agents/ada/enqueue", json!({ "input": "hello" })).await.ok();
    let edges = server.edges("ada").await;
    assert_eq!(edges.len(), 1);
    assert_eq!((&edges[0]["primitive"], &edges[0]["edge_phase"]), (&json!("enqueue"), &json!("request")));
    assert_eq!((&edges[0]["agent_turn_id"], &edges[0]["correlation_id"]), (&enqueued["agent_turn_id"], &enqueued["inbox_id"]));
}

#[tokio::test]
async fn c_025_a_turn_behind_another_starts_queued_without_epoch() {
    let server = turn_server().await;
    let first = server.enqueue("ada", "call echo").await;
    server.suspended("ada", &first).await;
    let second = server.post("/v1/agents/ada/enqueue", json!({ "input": "later" })).await.ok();
    assert_eq!((&second["status"], &second["turn_epoch"]), (&json!("queued"), &Value::Null));
    let run = second["run_id"].as_str().expect("a run");
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status = 'queued' AND epoch IS NULL AND processed_at IS NULL"), 1);
    assert_eq!(server.number("SELECT count(*) FROM runs WHERE status = 'queued' AND epoch IS NULL"), 1);
    assert_eq!(server.kinds(run).await, ["accepted"], "it is recorded and nothing more");
    let busy = head(&server, "ada").await;
    assert_eq!((&busy["queued"], &busy["active_agent_turn_id"]), (&json!(1), &json!(first)));
}

#[tokio::test]
async fn c_026_dispatch_on_an_idle_agent_leases_it_and_writes_the_epoch_back() {
    let (server, _model, holder) = crowded(vec![Scene::Say("done")]).await;
    spy(&server);
    let run = server.enqueue("ada", "hello").await;
    let leased = head(&server, "ada").await;
    assert_eq!(leased["status"], "dispatched");
    let row = &server.inbox("ada").await[0];
    assert_eq!((&row["status"], &row["turn_epoch"]), (&json!("pending"), &leased["turn_epoch"]));
    assert_eq!(server.run(&run).await["turn_epoch"], leased["turn_epoch"]);
    stop(&server, "holder", &holder).await;
    server.ended(&run).await;
    let row = &server.inbox("ada").await[0];
    assert_eq!((&row["status"], &row["turn_epoch"]), (&json!("consumed"), &leased["turn_epoch"]));
    assert_eq!(edges_taken(&server, "ada")[0], ("idle".to_owned(), "dispatched".to_owned()));
}

#[tokio::test]
async fn c_026_the_turn_that_leaves_promotes_the_next_with_its_epoch() {
    let (server, model) = server_with_model(vec![Scene::Hang], "").await;
    let database = server.database();
    database.batch("CREATE TABLE spy_rows (moved text, epoch bigint)");
    database.spy("spy_inbox", "UPDATE", "inbox", "INSERT INTO spy_rows VALUES (OLD.status || ' ' || NEW.status, NEW.epoch)");
    let runs = [server.enqueue("ada", "1").await, server.enqueue("ada", "2").await, server.enqueue("ada", "3").await];
    for active in &runs {
        until("the turn is active", || async { (head(&server, "ada").await["active_agent_turn_id"] == *active).then_some(()) }).await;
        let epoch = head(&server, "ada").await["turn_epoch"].clone();
        let rows = server.inbox("ada").await;
        let row = rows.iter().find(|row| row["agent_turn_id"] == *active).expect("its row");
        assert_eq!(row["turn_epoch"], epoch);
        assert_ne!(row["status"], "queued");
        stop(&server, "ada", active).await;
    }
    assert_eq!(server.agent_is("ada", "idle").await["queued"], 0);
    let promoted =
        "SELECT count(*) FROM spy_rows WHERE moved = 'queued pending' AND epoch IN (SELECT epoch FROM inbox WHERE kind = 'turn')";
    assert_eq!(server.number(promoted), 2, "each was made pending together with its epoch");
    assert_eq!(server.number("SELECT count(*) FROM spy_rows WHERE moved = 'queued consumed'"), 0);
    until("no call hangs any more", || async { (model.hanging() == 0).then_some(()) }).await;
}

#[tokio::test]
async fn c_027_an_action_leases_the_head_before_its_row_is_written() {
    let (server, _model, holder) = crowded(vec![Scene::Say("not asked")]).await;
    // Records the state of the head when the row is inserted.
    let database = server.database();
    database.batch("CREATE TABLE spy_rows (status text, epoch bigint, run text, row_status text)");
    let note = "INSERT INTO spy_rows SELECT status, epoch, lower(hex(run)), NEW.status FROM heads WHERE agent = NEW.agent";
    database.spy("spy_inbox", "INSERT", "inbox", note);
    let action = json!({ "action_id": "click", "tool": "echo", "args": { "x": 1 } });
    let taken = server.post("/v1/agents/ada/actions", action).await;
    assert_eq!((taken.status, &taken.body["status"]), (202, &json!("accepted")));
    let run = taken.body["agent_turn_id"].as_str().expect("a turn");
    let [row] = &database.rows("SELECT * FROM spy_rows")[..] else { panic!("one row came") };
    let seen: Vec<&str> = row.iter().flatten().map(String::as_str).collect();
    assert_eq!(seen, ["dispatched", &taken.body["turn_epoch"].to_string(), hex(run), "pending"]);
    let row = &server.inbox("ada").await[0];
    assert_eq!((&row["message_type"], &row["status"]), (&json!("ui_action"), &json!("pending")));
    stop(&server, "holder", &holder).await;
    let call = server.claim("echo").await;
    assert_eq!(call["arguments"], json!({ "x": 1 }));
    server.report(&call, json!("clicked")).await.ok();
    assert_eq!(server.ended(run).await["task_status"], "success");
}

#[tokio::test]
async fn c_027_an_action_for_a_busy_agent_is_refused_and_nothing_is_stored() {
    let (server, model) = server_with_model(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Hang], "").await;
    let run = server.enqueue("ada", "go").await;
    let refused = async |status: &str| {
        server.agent_is("ada", status).await;
        let before = server.row_counts();
        let answer = server.post("/v1/agents/ada/actions", json!({ "action_id": status, "tool": "echo" })).await;
        assert_eq!((answer.status, answer.code()), (409, "busy"), "{status}");
        assert_eq!(server.row_counts(), before, "{status}");
    };
    refused("suspended").await;
    serve(&server, "echo", 1).await;
    until("the model thinks", || async { (model.hanging() == 1).then_some(()) }).await;
    refused("running").await;
    stop(&server, "ada", &run).await;
    let taken = server.post("/v1/agents/ada/actions", json!({ "action_id": "running", "tool": "echo" })).await;
    assert_eq!(taken.status, 202, "a refused action may be tried again: {}", taken.body);
}

#[tokio::test]
async fn c_028_every_way_in_has_its_edge() {
    let server = turn_server().await;
    let entered = server.enqueue("ada", "call echo").await;
    server.suspended("ada", &entered).await;
    let queued = server.enqueue_body("ada", json!({ "input": "later", "idempotency_key": "k" })).await;
    assert_eq!(server.enqueue_body("ada", json!({ "input": "later", "idempotency_key": "k" })).await, queued);
    assert_eq!(server.post("/v1/agents/ada/actions", json!({ "action_id": "busy", "tool": "echo" })).await.status, 409);
    serve(&server, "echo", 1).await;
    server.ended(&queued).await;
    let acted = server.post("/v1/agents/ada/actions", json!({ "action_id": "idle", "tool": "echo" })).await.ok();
    let edges = server.edges("ada").await;
    let requests: Vec<&str> =
        edges.iter().filter(|edge| edge["primitive"] == "enqueue").filter_map(|edge| edge["agent_turn_id"].as_str()).collect();
    assert_eq!(requests, [&entered, &queued, acted["agent_turn_id"].as_str().expect("a turn")]);
    assert!(edges.iter().filter(|edge| edge["primitive"] == "enqueue").all(|edge| edge["edge_phase"] == "request"));
}

#[tokio::test]
async fn c_028_a_hundred_enqueues_at_once_have_a_hundred_edges() {
    let server = turn_server().await;
    let runs = hammer(&server, "ada", 100).await;
    let edges = server.edges("ada").await;
    let wanted: BTreeSet<&str> = runs.iter().map(String::as_str).collect();
    let found: Vec<&str> =
        edges.iter().filter(|edge| edge["primitive"] == "enqueue").filter_map(|edge| edge["agent_turn_id"].as_str()).collect();
    assert_eq!(found.len(), 100);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
}

#[tokio::test]
async fn c_029_results_and_timeouts_have_their_report_edges() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call brief call send").await;
    let echoed = server.claim("echo").await;
    server.report(&echoed, json!("in time")).await.ok();
    let timed_out = until("the timeout is in", || async { server.inbox_of("ada", "timeout").await.pop() }).await;
    let sent = server.claim("send").await;
    server.report(&sent, json!("the last")).await.ok();
    server.ended(&run).await;
    assert_eq!(server.report(&sent, json!("again")).await.ok()["duplicate"], true);
    // A result after the timeout is accepted as well, and changes nothing.
    let late = json!({ "agent_turn_id": run, "tool_call_id": timed_out["tool_call_id"], "status": "success", "result": "late" });
    assert_eq!(server.post("/v1/agents/ada/report", late).await.ok()["duplicate"], false);
    let edges = server.edges("ada").await;
    let reports: Vec<&Value> = edges.iter().filter(|edge| edge["primitive"] == "report").collect();
    assert!(reports.iter().all(|edge| edge["edge_phase"] == "response" && edge["agent_turn_id"] == run));
    let correlations: Vec<&Value> = reports.iter().map(|edge| &edge["correlation_id"]).collect();
    let timed_out = &timed_out["tool_call_id"];
    assert_eq!(correlations, [&echoed["tool_call_id"], timed_out, &sent["tool_call_id"], timed_out]);
    let ingested = server.inbox("ada").await.iter().filter(|row| row["tool_call_id"].is_string()).count();
    assert_eq!(reports.len(), ingested);
}

#[tokio::test]
async fn f_003_no_dispatch_is_lost_between_enqueueing_and_finishing() {
    // No sweep comes in time: a worker that ends a turn must see every turn that was enqueued before.
    let server = turn_server_with_config("limits: { sweep_interval: 1h }\n").await;
    let agents: Vec<String> = (0..10).map(|number| format!("agent-{number}")).collect();
    let client = async |agent: &str| {
        let mut runs = Vec::new();
        for number in 0..12 {
            let run = server.enqueue(agent, "short").await;
            // Some wait for the end and some do not, so that enqueues meet ends at every moment.
            if number % 3 == 0 {
                server.ended(&run).await;
            }
            runs.push(run);
        }
        runs
    };
    let clients = agents.iter().flat_map(|agent| [client(agent), client(agent), client(agent)]);
    let runs = join_all(clients).await;
    server.all_ended(&runs.concat()).await;
    assert_eq!(runs.iter().flatten().collect::<BTreeSet<_>>().len(), 360);
    assert_eq!(server.number("SELECT count(*) FROM heads WHERE status <> 'idle' OR queued > 0 OR pending > 0"), 0);
    assert_eq!(server.number("SELECT count(*) FROM runs WHERE status <> 'ended'"), 0);
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status <> 'consumed'"), 0);
}

#[tokio::test]
async fn f_018_a_full_queue_answers_429_and_loses_nothing() {
    let (server, model) = server_with_model(vec![Scene::Hang, Scene::Say("done")], ", queued_per_agent: 5").await;
    let first = server.enqueue("ada", "keeps the agent").await;
    model.asked_times(1).await;
    let answers = join_all((0..40).map(|_| server.post("/v1/agents/ada/enqueue", json!({ "input": "next" })))).await;
    let (taken, refused): (Vec<&Answer>, Vec<&Answer>) = answers.iter().partition(|answer| answer.status == 202);
    assert_eq!(taken.len(), 5);
    assert!(refused.iter().all(|answer| (answer.status, answer.code()) == (429, "queue_full")));
    assert_eq!(server.number("SELECT count(*) FROM inbox"), 6, "a refused enqueue leaves nothing");
    assert_eq!(server.number("SELECT count(*) FROM runs"), 6);
    let raw = reqwest::Client::new().post(format!("{}/v1/agents/ada/enqueue", server.base())).bearer_auth("test-token-of-22-characters");
    let again = raw.json(&json!({ "input": "next" })).send().await.expect("an answer");
    assert_eq!(again.status(), 429);
    let pause: u32 = again.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!(pause >= 1);
    stop(&server, "ada", &first).await;
    let runs: Vec<&str> = taken.iter().filter_map(|answer| answer.body["run_id"].as_str()).collect();
    for view in server.all_ended(&runs).await {
        assert_eq!(view["task_status"], "success");
    }
    let late = server.enqueue("ada", "there is room again").await;
    server.ended(&late).await;
}

#[tokio::test]
async fn f_018_a_full_tenant_answers_429_and_recovers() {
    let (server, _model) = server_with_model(vec![Scene::Hang], ", open_per_tenant: 3").await;
    let runs = [server.enqueue("ada", "1").await, server.enqueue("ada", "2").await, server.enqueue("bob", "3").await];
    let refused = server.post("/v1/agents/eve/enqueue", json!({ "input": "4" })).await;
    assert_eq!((refused.status, refused.code()), (429, "tenant_full"));
    assert_eq!(server.post("/v1/agents/eve/actions", json!({ "action_id": "a", "tool": "echo" })).await.status, 429);
    stop(&server, "ada", &runs[1]).await;
    server.enqueue("eve", "now").await;
}

#[tokio::test]
async fn f_016_ten_thousand_queued_turns_of_one_agent_slow_no_other_agent_down() {
    let (server, model) = server_with_model(vec![Scene::Hang, Scene::Say("done")], ", queued_per_agent: 20000").await;
    let first = server.enqueue("ada", "keeps the agent").await;
    model.asked_times(1).await;
    let queued = server.enqueue("ada", "one of many").await;
    multiply(&server, &queued, 9_999);
    assert_eq!(head(&server, "ada").await["queued"], 10_000);
    let last = server.enqueue("ada", "the very last").await;
    let other = server.enqueue("bob", "in between").await;
    server.ended(&other).await;
    // One end, one lease: however many turns are queued, the next one is found at once, and it is the oldest.
    stop(&server, "ada", &first).await;
    until("some hundreds are done", || async { (head(&server, "ada").await["queued"].as_i64() < Some(9_700)).then_some(()) }).await;
    let (most, left) =
        ("SELECT max(ordinal) FROM runs WHERE status = 'ended' AND agent = 'ada'", "SELECT min(ordinal) FROM runs WHERE status = 'queued'");
    let picture = format!("SELECT ({most}) < ({left})");
    assert_eq!(server.number(&picture), 1, "the oldest first");
    let counted = "SELECT count(*) = (SELECT queued FROM heads WHERE agent = 'ada') FROM runs WHERE status = 'queued'";
    assert_eq!(server.number(counted), 1, "and none is lost");
    // The last turn of the queue can be stopped before the first.
    assert_eq!(stop(&server, "ada", &last).await["status"], "stopped");
    assert_eq!(server.ended(&last).await["task_status"], "canceled");
}
