//! A chat-completions provider through the whole server: its failures are retried, and its answers arrive complete.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: other, effect: read }
agents:
  a: { tools: [echo, other], instructions: Be brief. }
";

async fn start(model: &FakeModel, limits: &str) -> Server {
    ServerBuilder::new(&format!("{CONFIG}limits: {{ {limits} }}\n{}", model.config())).start().await
}

fn attempts(history: &[Value]) -> Vec<&Value> {
    history.iter().filter(|event| event["kind"] == "attempt_failed").map(|event| &event["code"]).collect()
}

#[tokio::test]
async fn status_429_is_retried_in_the_same_iteration_and_occupies_no_worker() {
    let model = FakeModel::start(vec![Scene::Fail(429, vec![("retry-after", "1")]), Scene::Say("done")]).await;
    let server = start(&model, "workers: 1, sweep_interval: 20ms").await;
    let began = Instant::now();
    let limited = server.enqueue("a", "first").await;
    until("the failed attempt is on record", || async {
        let kinds = server.kinds(&limited).await;
        kinds.contains(&"attempt_failed".to_owned()).then_some(())
    })
    .await;
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!((&head["status"], &head["active_run_id"]), (&json!("running"), &json!(limited)));
    // The only worker is free for another agent meanwhile.
    let other = server.enqueue("other", "second").await;
    assert_eq!(server.ended(&other).await["task_status"], "success");
    assert_eq!(server.run(&limited).await["status"], "active", "the first still waits");
    let ended = server.ended(&limited).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "not before the provider allows it");
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(1)));
    let history = server.history(&limited).await;
    assert_eq!(attempts(&history), ["rate_limited"]);
    assert!(history.iter().any(|event| !event["retry_at"].is_null()), "{history:?}");
    let asked = model.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0], asked[2], "the same request again");
}

#[tokio::test]
async fn a_pause_for_the_provider_survives_a_kill() {
    let model = FakeModel::start(vec![Scene::Fail(429, vec![("retry-after", "1")]), Scene::Say("done")]).await;
    let server = start(&model, "sweep_interval: 20ms").await;
    let run = server.enqueue("a", "first").await;
    let failed = until("the failed attempt is on record", || async {
        server.history(&run).await.into_iter().find(|event| event["kind"] == "attempt_failed")
    });
    let failed = failed.await;
    let server = server.restart(&[]).await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(1)));
    let replied = server.journal(&run).await.into_iter().find(|entry| entry["event"]["kind"] == "replied").expect("an answer");
    let replied: String = replied["at"].as_str().expect("a time").to_owned();
    let allowed = failed["retry_at"].as_i64().expect("a time in milliseconds");
    let at = server.number("SELECT at FROM journal WHERE kind = 'replied'");
    assert!(at >= allowed, "the new owner waits as long as the old one had to: {replied}");
    assert_eq!(model.asked().len(), 2);
}

#[tokio::test]
async fn server_errors_are_tried_until_the_attempts_are_used_up() {
    let model = FakeModel::start(vec![Scene::Fail(500, vec![])]).await;
    let server = start(&model, "attempts: 3, backoff: 10ms").await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["end_reason"]), (&json!("failed"), &json!({ "model_failed": "upstream_error" })));
    assert_eq!(ended["iteration"], 1);
    assert_eq!(model.asked().len(), 3);
    assert_eq!(attempts(&server.history(&run).await), ["upstream_error"; 3]);
    let text = server.content(&ended["deliverable_item_id"]).await["text"].to_string();
    assert!(text.contains("as the test wants it"), "the deliverable has the reason: {text}");
    assert_eq!(server.get("/v1/agents/a").await.ok()["status"], "idle");
}

#[tokio::test]
async fn an_overloaded_provider_that_recovers_is_no_failure() {
    let model = FakeModel::start(vec![Scene::Fail(503, vec![]), Scene::Fail(500, vec![]), Scene::Say("at last")]).await;
    let server = start(&model, "attempts: 5, backoff: 10ms").await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await, json!({ "text": "at last" }));
    assert_eq!(attempts(&server.history(&run).await), ["overloaded", "upstream_error"]);
}

#[tokio::test]
async fn a_cut_stream_is_retried_and_half_an_answer_is_never_kept() {
    let model = FakeModel::start(vec![Scene::Cut("half an ans"), Scene::Say("a whole answer")]).await;
    let server = start(&model, "backoff: 10ms").await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await, json!({ "text": "a whole answer" }));
    assert_eq!(attempts(&server.history(&run).await), ["stream_cut"]);
    assert_eq!(server.cards(&ended["output_box_id"]).await.len(), 1);
    assert_eq!(server.number("SELECT count(*) FROM items WHERE hex(content) LIKE '%' || hex('half an ans') || '%'"), 0);
}

#[tokio::test]
async fn a_request_the_provider_refuses_fails_at_once() {
    for (status, code) in [(400, "refused"), (401, "upstream_unauthorized")] {
        let model = FakeModel::start(vec![Scene::Fail(status, vec![]), Scene::Say("never said")]).await;
        let server = start(&model, "backoff: 10ms").await;
        let run = server.enqueue("a", "hello").await;
        let ended = server.ended(&run).await;
        assert_eq!((&ended["task_status"], &ended["end_reason"]), (&json!("failed"), &json!({ "model_failed": code })));
        assert_eq!(model.asked().len(), 1, "there is no second attempt");
        assert_eq!(server.cards(&ended["output_box_id"]).await.len(), 1, "there is a deliverable");
    }
}

#[tokio::test]
async fn an_unreachable_provider_fails_the_turn_and_not_the_server() {
    let config = format!(
        "{CONFIG}limits: {{ attempts: 2, backoff: 10ms }}\nmodels: [ {{ name: gone, provider: openai-chat, base_url: 'http://127.0.0.1:9/v1' }} ]\n"
    );
    let server = ServerBuilder::new(&config).start().await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["task_status"], "failed");
    assert_eq!(attempts(&server.history(&run).await), ["upstream_unreachable"; 2]);
    assert_eq!(server.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn tool_messages_are_sent_complete_and_in_the_order_of_the_calls() {
    let first = Scene::Call(vec![("echo", json!({ "n": 1 })), ("other", json!({})), ("echo", json!({ "n": 2 }))]);
    let model = FakeModel::start(vec![first, Scene::Say("done")]).await;
    let server = start(&model, "sweep_interval: 20ms").await;
    let run = server.enqueue("a", "go").await;
    let mut calls = vec![server.claim("other").await, server.claim("echo").await, server.claim("echo").await];
    calls.reverse();
    for call in &calls {
        let result = json!({ "tool": call["tool"], "got": call["arguments"] });
        server.report(call, result).await.ok();
    }
    server.ended(&run).await;
    let asked = model.asked();
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let calls = [call("c0", "echo", r#"{"n":1}"#), call("c1", "other", "{}"), call("c2", "echo", r#"{"n":2}"#)];
    let messages = asked[1]["messages"].as_array().expect("messages");
    assert_eq!(messages[0], json!({ "role": "system", "content": "Be brief." }));
    assert_eq!(messages[1], json!({ "role": "user", "content": "go" }));
    assert_eq!(messages[2], json!({ "role": "assistant", "content": null, "tool_calls": calls }));
    let results: Vec<(&Value, Value)> = messages[3..]
        .iter()
        .map(|message| (&message["tool_call_id"], serde_json::from_str(message["content"].as_str().expect("text")).expect("JSON")))
        .collect();
    let expected = [
        (&json!("c0"), json!({ "tool": "echo", "got": { "n": 1 } })),
        (&json!("c1"), json!({ "tool": "other", "got": {} })),
        (&json!("c2"), json!({ "tool": "echo", "got": { "n": 2 } })),
    ];
    assert_eq!(results, expected);
    assert_eq!((&asked[1]["model"], &asked[1]["stream"]), (&json!("fake"), &json!(true)));
}

#[tokio::test]
async fn a_call_of_an_unknown_tool_is_answered_to_the_model_and_never_made() {
    let model = FakeModel::start(vec![Scene::Call(vec![("nobody", json!({}))]), Scene::Say("sorry")]).await;
    let server = start(&model, "sweep_interval: 20ms").await;
    let run = server.enqueue("a", "go").await;
    assert_eq!(server.ended(&run).await["task_status"], "success");
    let asked = model.asked();
    let last_message = asked[1]["messages"].as_array().and_then(|messages| messages.last()).expect("a message").clone();
    assert_eq!(last_message["role"], "tool");
    assert!(last_message["content"].as_str().is_some_and(|text| text.contains("unknown_tool")), "{last_message}");
}

#[tokio::test]
async fn a_model_that_takes_too_long_is_given_up_and_tried_again() {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Say("quick this time")]).await;
    let server = start(&model, "model_deadline: 300ms, backoff: 10ms").await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(1)));
    assert_eq!(attempts(&server.history(&run).await), ["model_timeout"]);
    until("the connection is dropped", || async { (model.hanging() == 0).then_some(()) }).await;
}

#[tokio::test]
async fn a_model_that_always_takes_too_long_fails_the_turn() {
    let model = FakeModel::start(vec![Scene::Hang]).await;
    let server = start(&model, "model_deadline: 100ms, attempts: 2, backoff: 10ms").await;
    let run = server.enqueue("a", "hello").await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["end_reason"]), (&json!("failed"), &json!({ "model_failed": "model_timeout" })));
    assert_eq!(model.asked().len(), 2);
}
