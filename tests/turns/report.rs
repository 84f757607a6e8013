//! Reports: the effect of a result, a deadline, and a late or repeated result on a turn.

use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Scene, Server, ServerBuilder, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: quick, effect: read, deadline: 300ms }
    - { name: slow, effect: read, deadline: 900ms }
    - { name: last, effect: read, after_execution: terminate }
agents:
  a: { tools: [echo, quick, slow, last] }
limits: { sweep_interval: 20ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

async fn server_with(model: &FakeModel) -> Server {
    ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await
}

/// Claims this number of calls of a tool.
async fn claim_all(server: &Server, tool: &str, count: usize) -> Vec<Value> {
    let mut calls = Vec::new();
    while calls.len() < count {
        calls.push(server.claim(tool).await);
    }
    calls
}

#[tokio::test]
async fn c_048_a_report_is_an_inbox_row_of_its_type_correlated_by_the_call() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    let taken = server.report(&call, json!("hi")).await;
    assert_eq!(taken.status, 202);
    let taken = taken.ok();
    assert_eq!(taken["duplicate"], false);
    let row = server.inbox("a").await.into_iter().find(|row| row["inbox_id"] == taken["inbox_id"]).expect("the report's row");
    assert_eq!(row["message_type"], "tool_result");
    assert_eq!(row["correlation_id"], call["tool_call_id"]);
    assert_eq!(row["agent_turn_id"], run);
    server.ended(&run).await;
    let edge = server.edges("a").await.into_iter().find(|edge| edge["primitive"] == "report").expect("the report's edge");
    assert_eq!((&edge["edge_phase"], &edge["correlation_id"]), (&json!("response"), &call["tool_call_id"]));
}

#[tokio::test]
async fn c_049_a_report_for_a_call_that_is_not_awaited_resumes_nothing() {
    let model = FakeModel::start(vec![Scene::Call(vec![("slow", json!({}))]), Scene::Hang]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("slow").await;
    // The timeout replaces the result, and the second iteration asks the model.
    model.asked_times(2).await;
    let before = server.agent_is("a", "running").await;
    let late = server.report(&call, json!("too late")).await;
    assert_eq!((late.status, &late.body["duplicate"]), (202, &json!(false)));
    let ignored =
        until("the late result is on record", || async { server.history(&run).await.into_iter().find(|event| event["kind"] == "ignored") });
    let ignored = ignored.await;
    assert_eq!((&ignored["input"], &ignored["reason"]), (&json!("tool_result"), &json!("not_waiting")));
    let after = server.get("/v1/agents/a").await.ok();
    assert_eq!((&after["status"], &after["turn_epoch"]), (&before["status"], &before["turn_epoch"]));
    assert_eq!(server.run(&run).await["iteration"], 2);
    assert_eq!(model.asked().len(), 2, "nothing was asked again");
    assert_eq!(model.hanging(), 1, "the call in flight continues");
}

#[tokio::test]
async fn c_050_a_matched_result_updates_its_item_of_the_waiting_set() {
    let server = server().await;
    let run = server.enqueue("a", "call echo and call echo").await;
    let calls = claim_all(&server, "echo", 2).await;
    server.report(&calls[0], json!("first")).await.ok();
    let rows = server.calls(&run).await;
    let row = |call: &Value| rows.iter().find(|row| row["tool_call_id"] == call["tool_call_id"]).expect("the call's row").clone();
    assert_eq!(row(&calls[0])["status"], "received");
    assert_eq!(server.content(&row(&calls[0])["result_item_id"]).await["result"], "first");
    assert_eq!(row(&calls[1])["status"], "claimed");
    assert_eq!(row(&calls[1])["result_item_id"], Value::Null);
    server.report(&calls[1], json!("second")).await.ok();
    server.ended(&run).await;
    assert!(server.calls(&run).await.iter().all(|row| row["status"] == "applied"));
}

#[tokio::test]
async fn c_051_while_results_are_missing_the_turn_stays_suspended_with_a_deadline() {
    let server = server().await;
    let run = server.enqueue("a", "call echo and call last").await;
    let first = server.claim("echo").await;
    assert_eq!(server.suspended("a", &run).await["iteration"], 1);
    server.report(&first, json!(1)).await.ok();
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!((&head["status"], &head["waiting_tool_count"]), (&json!("suspended"), &json!(1)));
    let rows = server.calls(&run).await;
    assert_eq!(head["resume_deadline"], rows[1]["deadline"], "the deadline of the call that is left");
    assert_eq!(server.run(&run).await["iteration"], 1);
    assert_eq!(server.kinds(&run).await.last().map(String::as_str), Some("reported"));
}

#[tokio::test]
async fn c_052_the_last_result_leads_to_running_or_with_terminate_to_idle() {
    let model = FakeModel::start(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Hang]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!((&head["status"], &head["active_agent_turn_id"]), (&json!("running"), &json!(run)));
    assert_eq!(server.run(&run).await["iteration"], 2);

    let model = FakeModel::start(vec![Scene::Call(vec![("last", json!({}))]), Scene::Hang]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("last").await;
    server.report(&call, json!(1)).await.ok();
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!((&head["status"], &head["active_agent_turn_id"]), (&json!("idle"), &Value::Null));
    let ended = server.run(&run).await;
    assert_eq!((&ended["status"], &ended["task_status"], &ended["end_reason"]), (&json!("ended"), &json!("success"), &json!("terminated")));
    assert_eq!(model.asked().len(), 1, "no second iteration");
}

#[tokio::test]
async fn c_053_the_correlation_field_is_never_set_and_any_awaited_result_matches() {
    let server = server().await;
    let run = server.enqueue("a", "call echo and call echo and call echo").await;
    let calls = claim_all(&server, "echo", 3).await;
    for call in [&calls[2], &calls[0], &calls[1]] {
        // A report that names the correlation that it answers is refused, and the same report without it is accepted.
        let mut named = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
        named["expecting_correlation_id"] = call["tool_call_id"].clone();
        let refused = server.post("/v1/agents/a/report", named).await;
        assert_eq!((refused.status, refused.code()), (400, "unknown_field"), "{}", refused.body);
        let head = server.get("/v1/agents/a").await.ok();
        assert_eq!((&head["expecting_correlation_id"], &head["status"]), (&Value::Null, &json!("suspended")));
        server.report(call, call["tool_call_id"].clone()).await.ok();
    }
    assert_eq!(server.ended(&run).await["task_status"], "success");
}

#[tokio::test]
async fn c_057_past_the_deadline_there_is_one_timeout_report_for_each_waiting_call() {
    let server = server().await;
    let run = server.enqueue("a", "call quick and call echo and call quick").await;
    let answered = server.claim("echo").await;
    server.report(&answered, json!("in time")).await.ok();
    server.ended(&run).await;
    let calls = server.calls(&run).await;
    let timeouts = server.inbox_of("a", "timeout").await;
    let correlations: Vec<&Value> = timeouts.iter().map(|row| &row["correlation_id"]).collect();
    assert_eq!(correlations, [&calls[0]["tool_call_id"], &calls[2]["tool_call_id"]]);
    for row in &timeouts {
        assert_eq!((&row["status"], &row["result_status"], &row["agent_turn_id"]), (&json!("consumed"), &json!("timeout"), &json!(run)));
        assert_eq!(server.content(&row["tool_result_card_id"]).await["result"]["error"]["code"], "timeout");
    }
    let statuses: Vec<&Value> = calls.iter().map(|call| &call["status"]).collect();
    assert_eq!(statuses[1], "applied");
    let edges = server.edges("a").await;
    for row in &timeouts {
        let about = edges.iter().filter(|edge| edge["correlation_id"] == row["correlation_id"]);
        let about: Vec<_> = about.map(|edge| (edge["primitive"].as_str(), edge["edge_phase"].as_str())).collect();
        assert_eq!(about, [(Some("tool_call"), Some("request")), (Some("report"), Some("response"))]);
    }
}

#[tokio::test]
async fn c_057_each_call_times_out_at_its_own_deadline() {
    let server = server().await;
    let run = server.enqueue("a", "call slow and call quick").await;
    server.ended(&run).await;
    let reports: Vec<Value> = server.journal(&run).await.into_iter().filter(|entry| entry["event"]["kind"] == "reported").collect();
    let order: Vec<&Value> = reports.iter().map(|entry| &entry["event"]["call"]).collect();
    assert_eq!(order, [&json!(2), &json!(1)], "the quick one first: {reports:?}");
    let calls = server.calls(&run).await;
    for (report, call) in reports.iter().zip([&calls[1], &calls[0]]) {
        let (at, deadline) = (report["at"].as_str().expect("a time"), call["deadline"].as_str().expect("a time"));
        assert!(at >= deadline, "not before its deadline: {at} {deadline}");
    }
}

#[tokio::test]
async fn c_057_the_deadline_also_ends_a_write_that_a_worker_has_claimed() {
    let tools = "tools: { external: [ { name: pay, effect: write, deadline: 300ms } ] }\nagents: { a: { tools: [pay] } }\n";
    let server = ServerBuilder::new(tools).start().await;
    let run = server.enqueue("a", "call pay").await;
    server.claim("pay").await;
    let view = server.ended(&run).await;
    assert_eq!(view["task_status"], "success");
    assert_eq!(server.inbox_of("a", "timeout").await.len(), 1);
    assert_eq!(server.calls(&run).await[0]["status"], "expired", "a deadline gives up on a call for good, and parks nothing");
}

#[tokio::test]
async fn c_058_after_a_timeout_the_deadline_is_gone_and_the_turn_continues_normally() {
    let model = FakeModel::start(vec![Scene::Call(vec![("quick", json!({}))]), Scene::Hang]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let asked = model.asked_times(2).await;
    let head = server.agent_is("a", "running").await;
    assert_eq!((&head["resume_deadline"], &head["waiting_tool_count"]), (&Value::Null, &json!(0)));
    let messages = asked[1]["messages"].as_array().expect("messages");
    let last_message = messages.last().expect("a last message");
    assert_eq!((&last_message["role"], &last_message["tool_call_id"]), (&json!("tool"), &json!("c0")));
    assert!(last_message["content"].as_str().is_some_and(|text| text.contains("deadline")), "{last_message}");
    let history = server.history(&run).await;
    let kinds: Vec<&Value> = history.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["accepted", "leased", "lap_started", "replied", "reported", "lap_started"]);
    assert_eq!(history[4]["status"], "timeout");
}

#[tokio::test]
async fn c_058_a_timeout_that_passed_while_no_server_ran_fires_after_the_start() {
    let mut server = server().await;
    let run = server.enqueue("a", "call slow").await;
    server.suspended("a", &run).await;
    server.kill();
    let server = server.restart(&[]).await;
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert_eq!(server.inbox_of("a", "timeout").await.len(), 1);
    assert_eq!(server.run(&run).await["iteration"], 2);
}

#[tokio::test]
async fn c_058_a_late_result_after_a_timeout_is_kept_and_changes_nothing() {
    let server = server().await;
    let run = server.enqueue("a", "call slow").await;
    let call = server.claim("slow").await;
    let ended = server.ended(&run).await;
    let cards = server.cards(&ended["output_box_id"]).await;
    let late = server.report(&call, json!("I was slow")).await;
    assert_eq!(late.status, 202);
    let again = server.report(&call, json!("I was slow")).await.ok();
    assert_eq!((&again["duplicate"], &again["inbox_id"]), (&json!(true), &late.body["inbox_id"]));
    assert_eq!(server.run(&run).await, ended);
    assert_eq!(server.cards(&ended["output_box_id"]).await, cards);
    let row = server.inbox_of("a", "tool_result").await.pop().expect("the late result's row");
    assert_eq!(row["status"], "skipped");
    assert_eq!(server.content(&row["tool_result_card_id"]).await["result"], "I was slow");
    assert_eq!(server.get("/v1/agents/a").await.ok()["status"], "idle");
}

#[tokio::test]
async fn c_081_a_tool_result_row_carries_turn_agent_epoch_call_status_wish_and_card() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    let body = json!({
        "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "partial", "result": {"n": 1},
        "after_execution": "terminate", "turn_epoch": call["turn_epoch"],
    });
    server.post("/v1/agents/a/report", body).await.ok();
    let rows = server.inbox_of("a", "tool_result").await;
    let [row] = rows.as_slice() else { panic!("one row: {rows:?}") };
    assert_eq!(row["agent_turn_id"], run);
    assert_eq!(row["turn_epoch"], call["turn_epoch"]);
    assert_eq!(row["tool_call_id"], call["tool_call_id"]);
    assert_eq!(row["result_status"], "partial");
    assert_eq!(row["after_execution"], "terminate");
    assert_eq!(server.content(&row["tool_result_card_id"]).await["result"], json!({"n": 1}));
    assert_eq!(server.database().text("SELECT agent FROM inbox WHERE kind = 'tool_result'"), "a");
    assert_eq!(server.ended(&run).await["task_status"], "partial", "the row's wish and status decided the end");
}

/// The items of an output box without the fields that differ in every run.
async fn shape(server: &Server, run: &str) -> Vec<(Value, Value)> {
    let ended = server.ended(run).await;
    let cards = server.cards(&ended["output_box_id"]).await;
    cards.into_iter().map(|card| (card["kind"].clone(), card["content"].clone())).collect()
}

#[tokio::test]
async fn c_086_every_order_of_results_with_repetitions_gives_the_same_end_state() {
    let server = server().await;
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut shapes = Vec::new();
    for order in orders {
        let run = server.enqueue("a", r#"call echo {"n":1} call echo {"n":2} call echo {"n":3}"#).await;
        let calls = claim_all(&server, "echo", 3).await;
        for index in order {
            let call = &calls[index];
            let first = server.report(call, call["arguments"].clone()).await.ok();
            let again = server.report(call, json!("something else")).await.ok();
            assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
            assert_eq!(first["inbox_id"], again["inbox_id"]);
        }
        shapes.push(shape(&server, &run).await);
        for call in &calls {
            assert_eq!(server.report(call, json!("after the end")).await.ok()["duplicate"], true);
        }
        assert_eq!(server.run(&run).await["iteration"], 2);
    }
    assert_eq!(shapes[0].len(), 7, "three calls, three results, the deliverable: {:?}", shapes[0]);
    assert!(shapes.iter().all(|shape| *shape == shapes[0]), "{shapes:#?}");
    assert_eq!(server.inbox_of("a", "tool_result").await.len(), 3 * orders.len());
}

#[tokio::test]
async fn c_086_results_reported_at_the_same_time_are_taken_once_each() {
    let server = server().await;
    let run = server.enqueue("a", "call echo and call echo and call echo and call echo").await;
    let calls = claim_all(&server, "echo", 4).await;
    let twice = calls.iter().chain(calls.iter().rev());
    let answers = futures_util::future::join_all(twice.map(|call| server.report(call, call["tool_call_id"].clone()))).await;
    let fresh = answers.iter().filter(|answer| answer.body["duplicate"] == false).count();
    assert_eq!(fresh, 4, "{answers:?}");
    server.ended(&run).await;
    assert_eq!(server.inbox_of("a", "tool_result").await.len(), 4);
    let reported = server.kinds(&run).await.iter().filter(|kind| *kind == "reported").count();
    assert_eq!(reported, 4);
}

#[tokio::test]
async fn f_010_no_result_is_ever_deferred() {
    const AGENTS: usize = 16;
    // Only the sweep would find a result that was left for later, and it does not run within this test.
    let server = ServerBuilder::new(&CONFIG.replace("sweep_interval: 20ms", "sweep_interval: 1h")).start().await;
    let mut runs = Vec::new();
    for agent in 0..AGENTS {
        let body = json!({ "input": "call echo and call echo and call echo", "tools": ["echo"] });
        runs.push(server.enqueue_body(&format!("crowd{agent}"), body).await);
    }
    for _ in 0..3 * AGENTS {
        let call = server.claim("echo").await;
        let taken = server.report(&call, json!(1)).await.ok();
        assert_eq!(taken["duplicate"], false);
    }
    for run in &runs {
        assert_eq!(server.ended(run).await["task_status"], "success");
    }
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE kind = 'tool_result' AND status = 'consumed'"), 3 * AGENTS as i64);
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE status = 'deferred'"), 0);
}

#[tokio::test]
async fn a_call_that_the_server_runs_itself_is_not_settled_by_a_report() {
    let tools = McpServer::start().await;
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]), Scene::Say("done")]).await;
    let mcp = format!("tools: {{ mcp: [ {{ label: tools, url: '{}', effects: {{ sleep_ms: write }} }} ] }}\n", tools.url);
    let config = format!("{mcp}{}agents: {{ a: {{ tools: [tools] }} }}\nlimits: {{ sweep_interval: 20ms, lease: 2s }}\n", model.config());
    let mut server = ServerBuilder::new(&config).start().await;
    let run = server.enqueue("a", "go").await;
    tools.runs("sleep_ms", 1).await;
    let call = server.calls(&run).await.remove(0);
    assert_eq!((&call["route"], &call["effect"]), (&json!("in_process"), &json!("write")));
    let body = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": "made up" });
    let refused = async |server: &Server| {
        let before = server.journal(&run).await;
        let answer = server.post("/v1/agents/a/report", body.clone()).await;
        assert_eq!((answer.status, answer.code()), (409, "not_external"), "{}", answer.body);
        assert_eq!(server.journal(&run).await, before, "nothing has changed");
        assert_eq!(server.number("SELECT count(*) FROM inbox WHERE kind = 'tool_result'"), 0);
    };
    refused(&server).await;
    assert_eq!(tools.running("sleep_ms"), 1, "it runs on");
    server.kill();
    let server = server.restart(&[]).await;
    until("the cut write is parked", || async { (server.calls(&run).await[0]["status"] == "parked").then_some(()) }).await;
    refused(&server).await;
    let record = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": "record", "status": "success", "result": "a person looked" });
    server.post("/v1/windlass/reconcile", record).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert_eq!(tools.starts("sleep_ms").len(), 1);
}
