//! Tool calls: stored before they can be seen, awaited as a set, and what a result may decide.

use std::collections::BTreeSet;

use futures_util::future::join;
use serde_json::{Value, json};
use windlass_tests::{Scene, Server};

use crate::support::{claim_all, edges_taken, head, moves, serve, server_with_model, spy, turn_server};

#[tokio::test]
async fn c_040_a_call_is_stored_before_any_service_can_claim_it() {
    let server = turn_server().await;
    // A row of `calls` is the command: its card must be stored before the row is visible.
    let database = server.database();
    database.batch("CREATE TABLE spy_calls (card text, boxed bigint, status text)");
    let note = "INSERT INTO spy_calls VALUES ((SELECT kind FROM items WHERE item = NEW.item),
                                              (SELECT count(*) FROM box_rows WHERE item = NEW.item), NEW.status)";
    database.spy_at_commit("spy_call", "INSERT", "calls", note);
    let claim = json!({ "worker": "w", "wait_s": 10, "lease_s": 60 });
    let (run, claimed) = join(server.enqueue("ada", r#"call echo {"text": "hi"}"#), server.post("/v1/tools/echo/claim", claim)).await;
    let call = &claimed.ok()["calls"][0];
    assert_eq!(server.number("SELECT count(*) FROM spy_calls WHERE card = 'tool.call' AND boxed = 1 AND status = 'waiting'"), 1);
    let row = &server.calls(&run).await[0];
    let card = server.get(&format!("/v1/windlass/items/{}", row["item_id"].as_str().expect("a card"))).await.ok();
    assert_eq!(card["kind"], "tool.call");
    assert_eq!((&card["content"]["tool"], &card["content"]["arguments"]), (&json!("echo"), &json!(r#"{"text": "hi"}"#)));
    assert_eq!(call["arguments"], json!({ "text": "hi" }));
    let output = server.run(&run).await["output_box_id"].clone();
    assert_eq!(server.cards(&output).await[0]["item_id"], row["item_id"]);
}

#[tokio::test]
async fn c_042_suspending_sets_the_waiting_count_and_the_deadline() {
    let server = turn_server().await;
    spy(&server);
    let run = server.enqueue("ada", "call echo call send call echo").await;
    server.suspended("ada", &run).await;
    let waits = head(&server, "ada").await;
    assert_eq!(waits["waiting_tool_count"], 3);
    let calls = server.calls(&run).await;
    let nearest = calls.iter().filter_map(|call| call["deadline"].as_str()).min();
    assert_eq!(waits["resume_deadline"].as_str(), nearest);
    assert!(nearest.is_some());
    let suspended = moves(&server, "ada").pop().expect("a move");
    assert_eq!((suspended.waiting, suspended.deadline.is_some()), (3, true), "both in the very change that suspends");
}

#[tokio::test]
async fn c_043_suspending_records_call_and_step_of_each_awaited_call() {
    let (server, _model) = server_with_model(
        vec![Scene::Call(vec![("echo", json!({})), ("send", json!({}))]), Scene::Call(vec![("echo", json!({}))]), Scene::Say("done")],
        "",
    )
    .await;
    let run = server.enqueue("ada", "go").await;
    server.suspended("ada", &run).await;
    let id = run.trim_start_matches("run_");
    let (call, step) = (|number: u32| json!(format!("call_{id}_{number}")), |iteration: u32| json!(format!("step_{id}_{iteration}")));
    let awaited = server.calls(&run).await;
    let recorded: Vec<(&Value, &Value)> = awaited.iter().map(|row| (&row["tool_call_id"], &row["iteration"])).collect();
    assert_eq!(recorded, [(&call(1), &json!(1)), (&call(2), &json!(1))]);
    let first = server.claim("echo").await;
    let second = server.claim("send").await;
    assert_eq!((&first["tool_call_id"], &first["step_id"]), (&call(1), &step(1)));
    assert_eq!((&second["tool_call_id"], &second["step_id"]), (&call(2), &step(1)));
    server.report(&first, json!(1)).await.ok();
    server.report(&second, json!(2)).await.ok();
    let third = server.claim("echo").await;
    assert_eq!((&third["tool_call_id"], &third["step_id"]), (&call(3), &step(2)));
    let open = server.run(&run).await["calls"]["open"].clone();
    assert_eq!(open.as_array().map(Vec::len), Some(1), "only the current iteration is in the waiting set: {open}");
    assert_eq!(open[0]["tool_call_id"], call(3));
}

#[tokio::test]
async fn c_044_suspending_leaves_no_expected_correlation() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call send").await;
    server.suspended("ada", &run).await;
    let waits = head(&server, "ada").await;
    assert_eq!(waits.get("expecting_correlation_id"), Some(&Value::Null));
    serve(&server, "send", 1).await;
    assert_eq!(head(&server, "ada").await.get("expecting_correlation_id"), Some(&Value::Null));
    for (table, known) in [("heads", "deadline"), ("runs", "state")] {
        let columns = server.database().columns(table);
        assert!(columns.contains(&known.to_owned()) && !columns.iter().any(|name| name.contains("correlation")), "{columns:?}");
    }
    let stored = server.journal(&run).await;
    assert!(stored.iter().all(|entry| !entry["event"].to_string().contains("correlation")), "{stored:?}");
}

#[tokio::test]
async fn c_045_suspending_moves_running_to_suspended() {
    let (server, _model) =
        server_with_model(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Call(vec![("echo", json!({}))]), Scene::Say("done")], "")
            .await;
    spy(&server);
    let run = server.enqueue("ada", "two iterations").await;
    serve(&server, "echo", 2).await;
    server.ended(&run).await;
    let taken = edges_taken(&server, "ada");
    let suspends: Vec<&(String, String)> = taken.iter().filter(|(_, to)| to == "suspended").collect();
    assert_eq!(suspends.len(), 2, "one suspend per iteration with calls: {taken:?}");
    assert!(suspends.iter().all(|(from, _)| from == "running"));
}

#[tokio::test]
async fn c_046_a_terminating_tool_delivers_and_returns_to_idle() {
    let (server, model) = server_with_model(vec![Scene::Call(vec![("last", json!({}))]), Scene::Say("never asked for")], "").await;
    spy(&server);
    let run = server.enqueue("ada", "go").await;
    let call = server.claim("last").await;
    server.report(&call, json!({ "final": true })).await.ok();
    let view = server.ended(&run).await;
    assert_eq!((&view["task_status"], &view["end_reason"]), (&json!("success"), &json!("terminated")));
    let deliverable = server.content(&view["deliverable_item_id"]).await;
    assert_eq!(deliverable["fields"][0]["name"], "last");
    let result = server.content(&deliverable["fields"][0]["item_id"]).await;
    assert_eq!(result["result"], json!({ "final": true }));
    assert_eq!(server.agent_is("ada", "idle").await["active_agent_turn_id"], Value::Null);
    assert_eq!(model.asked().len(), 1, "the model is not asked again");
    assert_eq!(edges_taken(&server, "ada").pop(), Some(("suspended".to_owned(), "idle".to_owned())));
}

#[tokio::test]
async fn c_046_a_report_may_say_terminate_and_any_terminate_wins() {
    let server = turn_server().await;
    let run = server.enqueue("ada", "call echo call send").await;
    let echo = server.claim("echo").await;
    let send = server.claim("send").await;
    let body = json!({ "agent_turn_id": run, "tool_call_id": echo["tool_call_id"], "status": "failed", "result": 1, "after_execution": "terminate" });
    server.post("/v1/agents/ada/report", body).await.ok();
    assert_eq!(head(&server, "ada").await["status"], "suspended", "the other result is waited for");
    server.report(&send, json!(2)).await.ok();
    let view = server.ended(&run).await;
    assert_eq!((&view["task_status"], &view["end_reason"]), (&json!("failed"), &json!("terminated")));
}

/// Plays a turn with one call with this result and report. Returns how the turn ended.
async fn end_with(server: &Server, tool: &str, result: Value, after: Option<&str>) -> String {
    let run = server.enqueue("ada", &format!("call {tool}")).await;
    let call = server.claim(tool).await;
    let mut body = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": result });
    if let Some(after) = after {
        body["after_execution"] = json!(after);
    }
    server.post("/v1/agents/ada/report", body).await.ok();
    server.ended(&run).await["end_reason"].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn c_047_a_valid_control_in_the_result_overrides() {
    let server = turn_server().await;
    let control = |after: &str| json!({ "value": 1, "__cg_control": { "after_execution": after } });
    assert_eq!(end_with(&server, "echo", control("terminate"), None).await, "terminated");
    assert_eq!(end_with(&server, "last", control("suspend"), None).await, "answered");
    assert_eq!(end_with(&server, "echo", control("terminate"), Some("suspend")).await, "terminated");
    assert_eq!(end_with(&server, "last", control("suspend"), Some("terminate")).await, "answered");
    assert_eq!(end_with(&server, "echo", control("suspend"), Some("terminate")).await, "answered");
}

#[tokio::test]
async fn c_047_an_invalid_control_in_the_result_is_ignored() {
    let server = turn_server().await;
    for control in [
        json!({ "after_execution": "explode" }),
        json!({ "after_execution": "TERMINATE" }),
        json!({ "after_execution": 7 }),
        json!({ "after_execution": null }),
        json!({ "after_execution": ["terminate"] }),
        json!({ "after": "terminate" }),
        json!("terminate"),
        json!(["terminate"]),
        json!(null),
    ] {
        let result = json!({ "__cg_control": control });
        assert_eq!(end_with(&server, "echo", result.clone(), None).await, "answered", "{result}");
        assert_eq!(end_with(&server, "last", result.clone(), None).await, "terminated", "{result}");
        assert_eq!(end_with(&server, "echo", result.clone(), Some("terminate")).await, "terminated", "{result}");
    }
    for result in [
        json!([{ "__cg_control": { "after_execution": "terminate" } }]),
        json!({ "deep": { "__cg_control": { "after_execution": "terminate" } } }),
    ] {
        assert_eq!(end_with(&server, "echo", result.clone(), None).await, "answered", "{result}");
    }
}

#[tokio::test]
async fn f_014_models_that_reuse_call_ids_never_collide() {
    // Every reply of this model numbers its calls c0, c1: in every iteration, in every run, for every agent.
    let both = || Scene::Call(vec![("echo", json!({})), ("echo", json!({}))]);
    let turn = || vec![both(), both(), Scene::Say("done")];
    let (server, model) = server_with_model([turn(), turn(), turn()].concat(), "").await;
    let mut ids = BTreeSet::new();
    for agent in ["ada", "ada", "bob"] {
        let run = server.enqueue(agent, "go").await;
        for iteration in 1..=2 {
            for call in claim_all(&server, "echo", 2).await {
                let result = json!({ "lap": iteration, "of": call["tool_call_id"] });
                assert!(ids.insert(call["tool_call_id"].to_string()), "{call} is new");
                assert_eq!(server.report(&call, result).await.ok()["duplicate"], false);
            }
        }
        assert_eq!(server.ended(&run).await["task_status"], "success");
        for row in server.calls(&run).await {
            assert_eq!(server.content(&row["result_item_id"]).await["result"]["of"], row["tool_call_id"], "each call has its own result");
        }
    }
    assert_eq!(ids.len(), 12);
    // The model's messages in the second iteration of the last turn: its own call ids, and with each the result of that call.
    let messages = model.asked().pop().expect("it was asked")["messages"].clone();
    let results: Vec<&Value> = messages.as_array().expect("messages").iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results.iter().map(|result| result["tool_call_id"].as_str().expect("an id")).collect::<Vec<_>>(), ["c0", "c1", "c0", "c1"]);
    let numbers: Vec<bool> =
        results.iter().zip(1..).map(|(result, number)| result["content"].to_string().contains(&format!("_{number}\\\""))).collect();
    assert_eq!(numbers, [true; 4], "{results:?}");
}
