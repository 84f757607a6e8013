//! `responses.store_false: memory`: a response that is not to be stored is never on disk, and is deleted after its time.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Mode, ResponseRecord, Scene, Server, ServerBuilder, until};

use crate::support::{ask, ask_with, function, mcp, output, server_for_model, server_with_model_and_config, with};

const MEMORY: &str = "responses: { store_false: memory }";

fn unstored(body: Value) -> Value {
    with(body, json!({ "store": false }))
}

/// The number of rows that a run could have.
fn rows(server: &Server) -> i64 {
    ["runs", "items", "boxes", "journal", "inbox"].iter().map(|table| server.number(&format!("SELECT count(*) FROM {table}"))).sum()
}

fn looks() -> Scene {
    Scene::Call(vec![("echo", json!({ "text": "a secret" }))])
}

#[tokio::test]
async fn what_is_not_to_be_stored_leaves_no_row() {
    for (way, is_stored) in [("journal", true), ("memory", false)] {
        for mode in [Mode::Plain, Mode::Streamed] {
            let (server, _model, _tools) =
                server_with_model_and_config(vec![looks(), Scene::Say("done")], &format!("responses: {{ store_false: {way} }}")).await;
            let made = server.respond(mode, unstored(ask_with("a secret", &[mcp()]))).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
            assert_eq!(made.items("mcp_call")[0]["status"], "completed");
            assert_eq!(rows(&server) > 0, is_stored, "{way}");
        }
    }
}

#[tokio::test]
async fn what_is_stored_is_stored_beside_it() {
    let (mut server, _model, _tools) = server_with_model_and_config(vec![Scene::Say("done")], MEMORY).await;
    let fleeting = server.respond(Mode::Streamed, unstored(ask("hi"))).await;
    let stored = server.respond(Mode::Streamed, ask("hi")).await;
    let run = |made: &ResponseRecord| format!("/v1/windlass/runs/{}", made.object["windlass"]["run_id"].as_str().expect("a run"));
    assert_eq!((server.get(&run(&fleeting)).await.status, server.get(&run(&stored)).await.status), (404, 200));
    server.kill();
    let server = server.restart(&[]).await;
    assert_eq!((server.get(&run(&fleeting)).await.status, server.get(&run(&stored)).await.status), (404, 200));
    let after = server.respond(Mode::Streamed, with(unstored(ask("more")), json!({ "previous_response_id": stored.id() }))).await;
    assert_eq!(after.status(), "completed", "a follow-up of a stored response works");
}

#[tokio::test]
async fn after_its_time_nothing_is_left() {
    let scenes = std::iter::repeat_with(|| Scene::Say("done")).take(100).collect();
    let (server, _model, _tools) = server_with_model_and_config(scenes, "responses: { store_false: memory, erase_s: 1 }").await;
    // A repeated request is answered by its run for as long as the run exists.
    let repeat = || async {
        let request = server.request(Method::POST, "/v1/responses").header("Idempotency-Key", "again").json(&unstored(ask("a secret")));
        server.send(request).await.ok()["id"].clone()
    };
    let first = repeat().await;
    assert_eq!(repeat().await, first);
    until("a repeated request finds no run", || async { (repeat().await != first).then_some(()) }).await;
}

#[tokio::test]
async fn a_client_answers_its_calls_and_the_rest_of_the_iteration_runs_once() {
    let calls = vec![("echo", json!({ "text": "theirs" })), ("mine", json!({}))];
    let (server, model, tools) = server_with_model_and_config(vec![Scene::Call(calls), Scene::Say("done")], MEMORY).await;
    let offered = [mcp(), function("mine")];
    let paused = server.respond(Mode::Streamed, unstored(ask_with("go", &offered))).await;
    let call = paused.items("function_call")[0].clone();
    let input = json!([{ "role": "user", "content": "go" }, call, output(&call, "ours")]);
    let made = server.respond(Mode::Streamed, unstored(with(ask_with("", &offered), json!({ "input": input })))).await;
    assert_eq!((made.status(), made.text().as_str(), tools.starts("echo").len()), ("completed", "done", 1));
    let messages = model.asked().last().expect("the model was asked")["messages"].to_string();
    assert!(messages.contains("theirs") && messages.contains("ours"), "{messages}");
    assert_eq!(rows(&server), 0);
}

#[tokio::test]
async fn services_take_calls_from_memory_too() {
    let config = format!("tools: {{ external: [ {{ name: look_up, effect: read }} ] }}\n{MEMORY}");
    let server = ServerBuilder::new(&config).start().await;
    let body = json!({ "model": "offline", "input": "call look_up", "store": false, "windlass": { "tools": ["look_up"] } });
    let asked = server.ask(Mode::Streamed, body);
    let call = server.claim("look_up").await;
    server.report(&call, json!("seen")).await.ok();
    assert_eq!(asked.made(&server).await.status(), "completed");
    assert_eq!(rows(&server), 0);
}

#[tokio::test]
async fn full_memory_is_an_error_and_loses_nothing() {
    let (model, tools) = (FakeModel::held_back(vec![Scene::Say("done")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, "responses: { store_false: memory, memory_bytes: 4000 }").await;
    let first = server.ask(Mode::Streamed, unstored(ask(&"x".repeat(3_000))));
    model.asked_times(1).await;
    for mode in [Mode::Plain, Mode::Streamed] {
        let answer = server.refusal(mode, unstored(ask(&"x".repeat(3_000)))).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, &error["code"]), (429, &json!("rate_limit_exceeded")));
        assert!(error["message"].as_str().is_some_and(|message| message.contains("no memory is left")), "{error}");
    }
    (0..2).for_each(|_| model.let_answer());
    assert_eq!(server.respond(Mode::Streamed, ask(&"x".repeat(3_000))).await.status(), "completed", "what is stored needs none");
    assert_eq!(first.made(&server).await.status(), "completed");
    model.let_answer();
    assert_eq!(server.respond(Mode::Streamed, unstored(ask(&"x".repeat(3_000)))).await.status(), "completed", "what is over makes room");
}

/// A client that sends the whole conversation again with every iteration and names no earlier response, as Codex does.
#[tokio::test]
async fn calls_handed_back_wait_for_their_follow_up_and_not_for_an_hour() {
    let calls = || Scene::Call(vec![("mine", json!({}))]);
    let scenes = vec![calls(), calls(), Scene::Say("done")];
    let (server, _model, _tools) = server_with_model_and_config(scenes, "responses: { erase_s: 0 }").await;
    let erased = || server.number("SELECT count(*) FROM runs WHERE note IS NULL");
    let offered = [function("mine")];
    let mut input = vec![json!({ "role": "user", "content": "go" })];
    for _ in 0..2 {
        let made = server.respond(Mode::Streamed, unstored(with(ask_with("", &offered), json!({ "input": input })))).await;
        let call = made.items("function_call")[0].clone();
        let result = output(&call, "seen");
        input.extend([call, result]);
    }
    let made = server.respond(Mode::Streamed, unstored(with(ask_with("", &offered), json!({ "input": input })))).await;
    assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
    until("nothing waits any more", || async { (erased() == 3).then_some(()) }).await;
}
