//! Repeated requests: the server recognises them before it prepares anything, even if something that the first one needed is gone.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, Mode, Scene, Server, until};

use crate::support::{after, ask, ask_with, mcp, server_with_model, server_with_model_and_config, with};

const KEY: [(&str, &str); 1] = [("idempotency-key", "k")];
const TURN: [(&str, &str); 1] = [("x-codex-turn-metadata", r#"{"turn_id":"t"}"#)];

/// Sends a request with the key that must not be answered with a response.
async fn refused(server: &Server, body: &Value) -> Answer {
    server.send(server.authorized(Method::POST, "/v1/responses").header(KEY[0].0, KEY[0].1).json(body)).await
}

#[tokio::test]
async fn a_request_that_comes_again_does_not_need_its_tool_server() {
    for headers in [&KEY, &TURN] {
        let (server, model, tools) = server_with_model(vec![Scene::Say("done")]).await;
        let body = ask_with("go", &[mcp()]);
        let first = server.ask_with(Mode::Streamed, body.clone(), headers).made(&server).await;
        tools.behave(|manners| manners.authorization = Some("nobody has it".into()));
        // The cache of MCP servers' tools is empty after a restart.
        let server = server.restart(&[]).await;
        assert_eq!(server.refusal(Mode::Plain, body.clone()).await.status, 424, "its tools cannot be listed");
        let before = model.asked().len();
        let again = server.ask_with(Mode::Streamed, body, headers).made(&server).await;
        assert_eq!((again.id(), model.asked().len()), (first.id(), before), "{headers:?}");
    }
}

#[tokio::test]
async fn a_request_that_comes_again_does_not_need_the_response_before_it() {
    for headers in [&KEY, &TURN] {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
        let first = server.respond(Mode::Plain, ask("go")).await;
        let body = after(&first, json!("on"), &[]);
        let second = server.ask_with(Mode::Plain, body.clone(), headers).made(&server).await;
        server.send(server.authorized(Method::DELETE, &format!("/v1/responses/{}", first.id()))).await.ok();
        assert_eq!(server.refusal(Mode::Plain, body.clone()).await.code(), "previous_response_not_found", "without its key");
        let again = server.ask_with(Mode::Plain, body.clone(), headers).made(&server).await;
        assert_eq!((again.id(), model.asked().len()), (second.id(), 2), "{headers:?}");
    }
    let (server, _model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
    server.ask_with(Mode::Plain, ask("go"), &KEY).made(&server).await;
    let other = with(ask("on"), json!({ "previous_response_id": "resp_nope" }));
    assert_eq!(refused(&server, &other).await.code(), "idempotency_key_reused", "another request is recognised first");
}

#[tokio::test]
async fn a_key_whose_response_is_gone_runs_nothing_a_second_time() {
    let (server, model, _tools) = server_with_model_and_config(vec![Scene::Say("done")], "responses: { erase_s: 0 }").await;
    let deleted = server.ask_with(Mode::Plain, ask("go"), &KEY).made(&server).await;
    server.send(server.authorized(Method::DELETE, &format!("/v1/responses/{}", deleted.id()))).await.ok();
    for body in [ask("go"), Mode::Streamed.asks(ask("go")), ask("something else")] {
        let answer = refused(&server, &body).await;
        assert_eq!(
            (answer.status, answer.code(), &answer.body["error"]["param"]),
            (409, "idempotency_key_spent", &json!("Idempotency-Key"))
        );
    }
    let fleeting = with(ask("go"), json!({ "store": false }));
    let key = [("idempotency-key", "fleeting")];
    server.ask_with(Mode::Plain, fleeting.clone(), &key).made(&server).await;
    until("the key is spent", || async {
        let request = server.authorized(Method::POST, "/v1/responses").header(key[0].0, key[0].1).json(&fleeting);
        let answer = server.send(request).await;
        assert!(answer.status == 200 || answer.code() == "idempotency_key_spent", "{}", answer.body);
        (answer.status == 409).then_some(())
    })
    .await;
    assert_eq!(model.asked().len(), 2, "each was run once");
}
