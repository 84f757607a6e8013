//! Requests for features that this server does not have: the refusal says why, and what to use instead.

use std::sync::Arc;

use axum::body::Body;
use serde_json::{Value, json};
use windlass_engine::Settings;
use windlass_models::{Entry, Scripted};

use crate::support::{Answer, World, request};

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_path_without_the_version_gets_a_hint() {
    let world = World::start();
    for path in ["/responses", "/responses/resp_1/input_items", "/conversations", "/models", "/chat/completions"] {
        let answer = world.post(path, "{}").await;
        assert_eq!(answer.refusal(), (404, "not_found".into()), "{path}");
        let expected = format!("there is nothing at {path}; did you mean /v1{path}? The base URL of this API ends in /v1");
        assert_eq!(message(&answer), expected);
        assert!(answer.json()["error"].get("param").is_some(), "in the shape of the Responses API: {answer:?}");
    }
    let answer = world.post("/agents/alice/enqueue", "{}").await;
    assert!(message(&answer).contains("did you mean /v1/agents/alice/enqueue?"), "{answer:?}");
    assert_eq!(message(&world.get("/elsewhere").await), "there is nothing at /elsewhere");
}

#[tokio::test]
async fn chat_completions_says_where_to_go() {
    let world = World::start();
    let answer = world.post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await;
    assert_eq!(answer.refusal(), (404, "chat_completions_not_served".into()));
    assert!(message(&answer).contains("POST /v1/responses"), "{answer:?}");
}

/// A server whose only model is a pass-through.
fn passing_on() -> World {
    let model = Arc::new(Scripted::by_words("any"));
    let entry = Entry::new("*", model);
    World::with_models(Settings { sweep_ms: 20, ..Settings::default() }, vec![entry])
}

#[tokio::test]
async fn a_request_without_a_model_is_refused_where_there_is_no_default() {
    let world = passing_on();
    let answer = world.post("/v1/responses", json!({ "input": "hi" }).to_string()).await;
    assert_eq!(answer.refusal(), (400, "missing_required_parameter".into()));
    assert!(message(&answer).contains(r#"The only configured model is "*""#), "{answer:?}");
    assert_eq!(answer.json()["error"]["param"], "model");
    let answer = world.post("/v1/responses", json!({ "model": "*", "input": "hi" }).to_string()).await;
    assert_eq!(answer.refusal(), (400, "model_not_found".into()));
    let answer = world.post("/v1/responses", json!({ "model": "agent/alice", "input": "hi" }).to_string()).await;
    assert_eq!(answer.refusal(), (400, "missing_required_parameter".into()));
    let answer = world.post("/v1/agents/alice/enqueue", json!({ "input": "hi" }).to_string()).await;
    assert_eq!(answer.refusal(), (400, "missing_model".into()));
    world.post("/v1/responses", json!({ "model": "any", "input": "hi" }).to_string()).await.expect(200);
}

fn with_tools(kinds: &[&str]) -> Value {
    let tools: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    json!({ "model": "offline", "input": "hi", "tools": tools })
}

#[tokio::test]
async fn a_tool_that_only_openai_runs_is_refused() {
    let world = World::start();
    for kind in [
        "file_search",
        "code_interpreter",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
        "image_generation",
        "computer_use_preview",
        "local_shell",
    ] {
        let answer = world.post("/v1/responses", with_tools(&["next_year", kind]).to_string()).await;
        assert_eq!(answer.refusal(), (400, "unsupported_tool".into()), "{kind}");
        assert_eq!(answer.json()["error"]["param"], "tools[1].type");
        assert!(message(&answer).contains(&format!("'{kind}' runs on OpenAI's servers only")), "{answer:?}");
    }
    // A type that is unknown to OpenAI too is left alone.
    let done = world.post("/v1/responses", with_tools(&["next_year", "web_searcher"]).to_string()).await.expect(200);
    assert_eq!(done["windlass"].get("ignored_tools"), None);
}

#[tokio::test]
async fn codex_goes_without_such_tools_and_the_response_lists_them() {
    let world = World::start();
    let body = with_tools(&["web_search", "image_generation", "web_search", "next_year"]).to_string();
    for (name, value) in [("originator", "codex_cli_rs"), ("x-codex-turn-metadata", r#"{"turn_id":"t"}"#)] {
        let codex = request("POST", "all", "/v1/responses").header(name, value).body(Body::from(body.clone())).unwrap();
        let done = world.send(codex).await.expect(200);
        assert_eq!(done["windlass"]["ignored_tools"], json!(["image_generation", "web_search"]), "{name}");
        let again = world.get(&format!("/v1/responses/{}", done["id"].as_str().unwrap())).await.expect(200);
        assert_eq!(again["windlass"], done["windlass"]);
    }
}

#[tokio::test]
async fn an_agent_that_is_not_configured_is_refused_with_the_nearest_name() {
    let world = World::closed();
    let hint = |answer: &Answer| answer.json()["error"]["hint"].as_str().unwrap().to_owned();
    for (path, body) in [
        ("/v1/agents/alcie/enqueue", json!({ "input": "hi" })),
        ("/v1/agents/alcie/actions", json!({ "action_id": "a", "tool": "echo", "args": {} })),
    ] {
        let answer = world.post(path, body.to_string()).await;
        assert_eq!(answer.refusal(), (404, "unknown_agent".into()), "{answer:?}");
        assert!(message(&answer).contains(r#""alcie""#), "{answer:?}");
        assert!(hint(&answer).starts_with(r#"did you mean "alice"? "#) && hint(&answer).contains("agents_open: true"), "{answer:?}");
    }
    let answer = world.post("/v1/agents/bob/enqueue", json!({ "input": "hi" }).to_string()).await;
    assert!(!hint(&answer).contains("did you mean"), "{answer:?}");
    world.enqueue("alice", "hi").await;
}

#[tokio::test]
async fn a_cost_budget_with_a_model_without_a_price_is_refused_in_each_shape() {
    let world = World::start();
    let turn = world.post("/v1/agents/dear/enqueue", json!({ "input": "hi" }).to_string()).await;
    assert_eq!(turn.refusal(), (400, "unpriced_model".to_owned()));
    let response = world.post("/v1/responses", json!({ "model": "agent/dear", "input": "hi" }).to_string()).await;
    assert_eq!(response.refusal(), (400, "unpriced_model".to_owned()));
    assert!(response.text.contains("add it to `prices` of the configuration"), "{response:?}");
}
