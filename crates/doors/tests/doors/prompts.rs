//! The limit on the size of a prompt, through every API that can name a history.

use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_engine::Settings;

use crate::support::{Answer, World};

const LIMIT: u64 = 5_000;
const ENQUEUE: &str = "/v1/agents/alice/enqueue";

fn world() -> World {
    World::with(Settings { sweep_ms: 20, prompt_bytes_max: LIMIT, ..Settings::default() })
}

fn kilobyte() -> String {
    "x".repeat(1_000)
}

/// Checks a refusal in the shape of the Responses API.
fn check_refused(answer: &Answer, param: &str) {
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("prompt_too_large")), "{answer:?}");
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!(param)));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("limits.prompt_bytes allows 5000") && message.contains("fewer or smaller items"), "{message}");
}

/// Sends requests with an ever longer history until one is refused. Returns the id of the last accepted response and the refusal.
async fn grow(world: &World, body: impl Fn(&Value) -> Value) -> (Value, Answer) {
    let mut before = Value::Null;
    for _ in 0..10 {
        let answer = world.post("/v1/responses", body(&before).to_string()).await;
        if answer.status != StatusCode::OK {
            return (before, answer);
        }
        before = answer.json()["id"].clone();
    }
    panic!("a prompt of ten thousand bytes was taken");
}

#[tokio::test]
async fn tm_04_a_chain_of_responses_is_one_prompt() {
    let world = world();
    let follow_up = |before: &Value| json!({ "model": "offline", "previous_response_id": before, "input": kilobyte() });
    let (last, refused) = grow(&world, follow_up).await;
    check_refused(&refused, "input");
    let runs = || async { world.get("/v1/windlass/runs").await.expect(200)["runs"].as_array().unwrap().len() };
    let before = runs().await;
    for path in ["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"] {
        check_refused(&world.post(path, follow_up(&last).to_string()).await, "input");
    }
    assert_eq!(runs().await, before, "a refused request records nothing");
    let first = world.post("/v1/responses", follow_up(&Value::Null).to_string()).await.expect(200);
    world.post("/v1/responses", follow_up(&first["id"]).to_string()).await.expect(200);
}

#[tokio::test]
async fn tm_04_a_conversation_is_one_prompt() {
    let world = world();
    let id = world.post("/v1/conversations", "{}").await.expect(200)["id"].clone();
    let (_, refused) = grow(&world, |_| json!({ "conversation": id, "input": kilobyte() })).await;
    check_refused(&refused, "input");
    // Items can still be added. For an item that may be the output of an earlier call, the server looks for that call in the history.
    let items = format!("/v1/conversations/{}/items", id.as_str().unwrap());
    let message = json!({ "type": "message", "role": "user", "content": kilobyte() });
    world.post(&items, json!({ "items": [message, message] }).to_string()).await.expect(200);
    let output = json!({ "type": "function_call_output", "call_id": "c", "output": "1" });
    check_refused(&world.post(&items, json!({ "items": [output] }).to_string()).await, "items");
}

#[tokio::test]
async fn tm_04_a_context_box_and_an_input_are_one_prompt() {
    let world = world();
    let pack = json!({ "items": [kilobyte(), kilobyte(), kilobyte()] });
    let packed = world.post("/v1/windlass/boxes", pack.to_string()).await.expect(201)["box_id"].clone();
    let enqueue = |input: Value| world.post(ENQUEUE, json!({ "input": input, "context_box_id": packed }).to_string());
    enqueue(json!("short")).await.expect(202);
    let refused = enqueue(json!([kilobyte(), kilobyte()])).await;
    assert_eq!(refused.refusal(), (413, "prompt_too_large".into()));
    assert!(refused.text.contains("limits.prompt_bytes allows 5000"), "{}", refused.text);
    let whole = json!({ "boxes": [packed], "items": [kilobyte(), kilobyte()] });
    let whole = world.post("/v1/windlass/boxes", whole.to_string()).await.expect(201)["box_id"].clone();
    let refused = world.post(ENQUEUE, json!({ "input": [], "context_box_id": whole }).to_string()).await;
    assert_eq!(refused.refusal(), (413, "prompt_too_large".into()), "a box that is too large by itself");
}

#[tokio::test]
async fn tm_04_many_short_items_are_a_large_prompt() {
    let world = world();
    let items = |count: usize| json!({ "input": vec![json!({ "role": "user", "content": "x" }); count] }).to_string();
    world.post("/v1/responses", items(10)).await.expect(200);
    check_refused(&world.post("/v1/responses", items(20)).await, "input");
}
