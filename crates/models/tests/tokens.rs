//! The usage of a call is known before its end, so that an answer that breaks off is still billed.
#![expect(clippy::unwrap_used, reason = "these are tests: a panic is how they fail")]

mod support;

use serde_json::{Value, json};
use support::{Play, Protocol, collect_all, config, request, serve, text, usage};
use windlass_ports::ModelEvent;

/// All model events of a stream that is cut after these events.
async fn events_before_cut(protocol: Protocol, events: &[Value]) -> Vec<ModelEvent> {
    let server = serve(Play::events(&events.iter().map(Value::to_string).collect::<Vec<_>>())).await;
    let (events, error) = collect_all(&*protocol.model(config(&server)), request("hi")).await;
    assert!(error.is_some(), "{events:?}");
    events
}

#[tokio::test]
async fn the_tokens_read_are_reported_at_the_beginning() {
    let begun = json!({"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}});
    assert_eq!(events_before_cut(Protocol::Messages, &[begun]).await, [usage(12, 1)]);
}

#[tokio::test]
async fn the_usage_in_chunks_is_reported_before_the_stream_breaks() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 12, "completion_tokens": 1}});
    assert_eq!(events_before_cut(Protocol::Chat, &[chunk]).await, [text("a"), usage(12, 1)]);
}

#[tokio::test]
async fn the_usage_of_a_failed_response_is_reported_before_its_error() {
    let response = json!({"error": {"code": "server_error", "message": "no"}, "usage": {"input_tokens": 12, "output_tokens": 3}});
    let failed = json!({"type": "response.failed", "response": response});
    assert_eq!(events_before_cut(Protocol::Responses, std::slice::from_ref(&failed)).await, [usage(12, 3)]);
}

/// A provider that accepts a request has read it, whatever it answers; one that refuses it has not.
#[tokio::test]
async fn an_accepted_request_is_distinguished_from_a_refused_one() {
    let created = json!({"type": "response.created", "response": {"id": "resp_1"}});
    assert_eq!(events_before_cut(Protocol::Responses, &[created]).await, [ModelEvent::Taken]);
    let role = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]});
    assert_eq!(events_before_cut(Protocol::Chat, &[role.clone(), role]).await, [ModelEvent::Taken], "once");
    for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Messages] {
        assert_eq!(events_before_cut(protocol, &[]).await, []);
        assert_eq!(events_before_cut(protocol, &[json!({"type": "error", "error": {"message": "overloaded"}})]).await, []);
    }
}

#[tokio::test]
async fn the_providers_name_of_the_model_is_reported_once() {
    let model_event = |name: &str| ModelEvent::Model(name.to_owned());
    let begun = json!({"type": "message_start", "message": {"model": "claude-x-1", "usage": {"input_tokens": 12, "output_tokens": 1}}});
    assert_eq!(events_before_cut(Protocol::Messages, &[begun]).await, [model_event("claude-x-1"), usage(12, 1)]);
    let chunk = json!({"model": "gpt-x-1", "choices": [{"index": 0, "delta": {"content": "a"}}]});
    assert_eq!(events_before_cut(Protocol::Chat, &[chunk.clone(), chunk]).await, [model_event("gpt-x-1"), text("a"), text("a")]);
    let created = json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-y-1"}});
    assert_eq!(events_before_cut(Protocol::Responses, &[created.clone(), created]).await, [model_event("gpt-y-1")]);
}

#[tokio::test]
async fn a_name_that_is_no_name_breaks_no_answer() {
    let chunk = json!({"model": 7, "choices": [{"index": 0, "delta": {"content": "a"}}]});
    assert_eq!(events_before_cut(Protocol::Chat, &[chunk]).await, [text("a")]);
}
