//! Failed model calls on the Responses API: an HTTP error if nothing was produced, else a response that failed.

use std::sync::Arc;

use axum::body::Body;
use serde_json::{Value, json};
use windlass_engine::Settings;
use windlass_models::{Entry, Scripted};

use crate::support::{Answer, World, report, request};

/// A model that answers the input `status 422` with that HTTP status, at every attempt.
fn refusing() -> Entry {
    let rules: String = [400, 401, 402, 403, 404, 408, 413, 422, 500, 503]
        .map(|status| format!("  - {{ when: {{ input: status {status} }}, reply: {{ fail: {{ code: {status}, message: no }} }} }}\n"))
        .concat();
    let limited = "  - { when: { input: status 429 }, reply: { fail: { code: 429, message: slow down, retry_after_ms: 1200 } } }\n";
    let late = "  - { when: { result: '' }, reply: { fail: { code: 400, message: too late } } }\n";
    let call = "  - { when: { input: use echo }, reply: { calls: [{ tool: echo }] } }\n";
    let cut = "  - { when: { input: break off }, reply: { text: one two three, chunk: 4, cut_after: 1 } }\n";
    let yaml = format!("rules:\n{late}{rules}{limited}{call}{cut}  - {{ reply: {{ text: fine }} }}\n");
    Entry::new("m", Arc::new(Scripted::from_yaml("m", &yaml).unwrap()))
}

fn world(attempts_max: u32) -> World {
    let settings = Settings { sweep_ms: 20, attempts_max, backoff_ms: 1, ..Settings::default() };
    World::with_models(settings, vec![refusing()])
}

async fn respond(world: &World, body: Value) -> Answer {
    world.post("/v1/responses", body.to_string()).await
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_foreground_request_whose_first_model_call_is_refused_is_an_http_error() {
    let world = world(1);
    for (status, expected, code) in [
        (400, 400, "upstream_refused"),
        (404, 404, "upstream_refused"),
        (413, 413, "upstream_refused"),
        (422, 422, "upstream_refused"),
        (401, 502, "upstream_auth"),
        (403, 502, "upstream_auth"),
        (402, 502, "upstream_refused"),
        (500, 502, "upstream_error"),
        (503, 502, "server_is_overloaded"),
        (408, 504, "upstream_timeout"),
        (429, 429, "rate_limit_exceeded"),
    ] {
        let answer = respond(&world, json!({ "model": "m", "input": format!("status {status}") })).await;
        assert_eq!(answer.refusal(), (expected, code.to_owned()), "{answer:?}");
        assert_eq!(header(&answer, "x-should-retry"), Some("false"), "{answer:?}");
        assert_eq!(header(&answer, "retry-after"), (status == 429).then_some("2"), "{answer:?}");
        let id = answer.json()["error"]["response_id"].as_str().unwrap().to_owned();
        assert_eq!(header(&answer, "windlass-response-id"), Some(id.as_str()));
        let failed = world.get(&format!("/v1/responses/{id}")).await.expect(200);
        assert_eq!((&failed["status"], &failed["error"]["message"]), (&json!("failed"), &answer.json()["error"]["message"]));
    }
}

#[tokio::test]
async fn the_message_counts_the_attempts() {
    for (attempts_max, ending) in [(1, "(1 attempt)"), (3, "(3 attempts)")] {
        let answer = respond(&world(attempts_max), json!({ "model": "m", "input": "status 500" })).await;
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message, format!("the model could not be called: no {ending}"));
    }
}

#[tokio::test]
async fn a_stream_keeps_response_failed_and_a_background_response_its_status() {
    let world = world(1);
    let streamed = respond(&world, json!({ "model": "m", "input": "status 400", "stream": true })).await;
    assert_eq!(streamed.status, 200);
    assert!(streamed.text.contains("event: response.failed"), "{}", streamed.text);
    let queued = respond(&world, json!({ "model": "m", "input": "status 400", "background": true })).await.expect(200);
    let id = queued["id"].as_str().unwrap();
    // A stream of the same response ends with the failure.
    let events = world.get(&format!("/v1/responses/{id}?stream=true")).await;
    assert!(events.text.contains("event: response.failed"), "{}", events.text);
    assert_eq!(world.get(&format!("/v1/responses/{id}")).await.expect(200)["status"], "failed");
}

#[tokio::test]
async fn a_failure_after_something_was_produced_is_a_response() {
    let world = world(1);
    let both = async {
        let call = world.claim("echo").await;
        world.post("/v1/agents/alice/report", report(&call, "{}")).await.expect(202);
    };
    let body = json!({ "model": "agent/alice", "input": "use echo" });
    let (answer, ()) = tokio::join!(respond(&world, body), both);
    let failed = answer.expect(200);
    assert_eq!((&failed["status"], failed["output"].as_array().map(Vec::len)), (&json!("failed"), Some(1)), "{failed:#}");
}

#[tokio::test]
async fn the_key_of_a_request_that_failed_with_nothing_produced_is_free_again() {
    let world = world(1);
    let keyed = |input: &str| {
        let request = request("POST", "all", "/v1/responses").header("idempotency-key", "k");
        world.send(request.body(Body::from(json!({ "model": "m", "input": input }).to_string())).unwrap())
    };
    let mut failed: Vec<String> = Vec::new();
    for _ in 0..2 {
        let answer = keyed("status 400").await;
        assert_eq!(answer.status, 400, "{answer:?}");
        failed.push(answer.json()["error"]["response_id"].as_str().unwrap().to_owned());
    }
    assert_ne!(failed[0], failed[1], "each is a run of its own");
    // A later request under the key may differ, and from then on the key belongs to it.
    let done = keyed("hello").await.expect(200);
    assert!(!failed.contains(&done["id"].as_str().unwrap().to_owned()));
    assert_eq!(keyed("hello").await.expect(200)["id"], done["id"]);
    assert_eq!(keyed("something else").await.refusal(), (409, "idempotency_key_reused".to_owned()));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_bad_gateway() {
    let answer = respond(&world(1), json!({ "model": "m", "input": "break off" })).await;
    assert_eq!(answer.refusal(), (502, "upstream_bad_answer".to_owned()), "{answer:?}");
}
