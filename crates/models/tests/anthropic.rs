//! The Messages protocol: servers that work, with the variations between them.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use serde_json::{Value, json};
use support::{Ending, Play, Protocol, call, collect, config, reasoning_event, request, serve, text};
use windlass_kernel::{Finish, Usage};
use windlass_ports::{ModelError, ModelEvent, Retry};

/// A stream as it is on the wire, where the type of an event also precedes it.
fn stream(events: &[Value]) -> Play {
    let spelled = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    Play::pieces(events.iter().map(spelled))
}

async fn outcome(events: &[Value]) -> (Vec<ModelEvent>, Option<ModelError>) {
    Protocol::Messages.outcome(stream(events)).await
}

fn begun() -> Value {
    let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude", "stop_reason": null,
        "stop_sequence": null, "usage": usage});
    json!({"type": "message_start", "message": message})
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text_delta(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn ended(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}), json!({"type": "message_stop"})]
}

fn used() -> ModelEvent {
    ModelEvent::Usage(Usage { tokens_in: 20, tokens_out: 15, cached: 5, cache_written: 3, reasoning: 0 })
}

#[tokio::test]
async fn reasoning_text_and_calls_come_in_order() {
    let piece = |index: u64, json: &str| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let mut events = vec![
        begun(),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "It is "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "heavy."})),
        delta(0, json!({"type": "signature_delta", "signature": "EqQB"})),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "EmwK"})),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        text_delta(2, "Hel"),
        text_delta(2, "lo"),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_a", "name": "f", "input": {}})),
        start(4, json!({"type": "tool_use", "id": "toolu_b", "name": "g", "input": {}})),
        piece(4, ""),
        piece(3, "{\"x\":"),
        piece(4, "{broken"),
        piece(3, " 1}"),
        stop(4),
        stop(3),
    ];
    events.extend(ended("tool_use"));
    let expected = vec![
        reasoning_event("anthropic", &["It is heavy."], "", Some("EqQB")),
        reasoning_event("anthropic", &[], "", Some("redacted:EmwK")),
        text("Hel"),
        text("lo"),
        used(),
        call("toolu_a", "f", r#"{"x": 1}"#),
        call("toolu_b", "g", "{broken"),
    ];
    assert_eq!(outcome(&events).await, (expected, None));
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_understood() {
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "name": "g", "input": {}},
    ]);
    let usage = json!({"input_tokens": 20, "output_tokens": 15, "cache_read_input_tokens": null});
    let body = json!({"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": usage});
    let expected = vec![
        reasoning_event("anthropic", &["hm"], "", Some("s")),
        text("Hello"),
        ModelEvent::Usage(Usage { tokens_in: 20, tokens_out: 15, ..Usage::default() }),
        call("toolu_a", "f", r#"{"x":1}"#),
        call("call_3_1", "g", "{}"),
    ];
    assert_eq!(Protocol::Messages.outcome(Play::json(200, body.to_string())).await, (expected, None));
}

#[tokio::test]
async fn an_answer_that_stops_short_says_why() {
    let short = Finish::OutOfTokens;
    for (reason, why) in [("max_tokens", short), ("model_context_window_exceeded", short), ("refusal", Finish::Filtered)] {
        let mut events = vec![begun(), start(0, json!({"type": "text", "text": ""})), text_delta(0, "a"), stop(0)];
        events.extend(ended(reason));
        assert_eq!(outcome(&events).await, (vec![text("a"), ModelEvent::Finish(why), used()], None), "{reason}");
    }
    for reason in ["end_turn", "stop_sequence", "pause_turn"] {
        let mut events = vec![begun(), text_delta(0, "a")];
        events.extend(ended(reason));
        assert_eq!(outcome(&events).await, (vec![text("a"), used()], None), "{reason}");
    }
}

#[tokio::test]
async fn an_error_in_the_middle_keeps_its_meaning() {
    for (kind, code, retry) in [
        ("overloaded_error", "overloaded", Retry::Backoff),
        ("rate_limit_error", "rate_limited", Retry::Backoff),
        ("api_error", "upstream_error", Retry::Backoff),
        ("invalid_request_error", "refused", Retry::Never),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": "no"}});
        let (events, error) = outcome(&[begun(), text_delta(0, "a"), error]).await;
        let error = error.unwrap();
        let read = ModelEvent::Usage(Usage { tokens_in: 20, tokens_out: 1, cached: 5, cache_written: 3, reasoning: 0 });
        assert_eq!((events, error.code.as_str(), error.retry), (vec![read, text("a")], code, retry), "{kind}");
    }
}

#[tokio::test]
async fn a_refused_request_keeps_its_meaning() {
    let body = |kind: &str, text: &str| json!({"type": "error", "error": {"type": kind, "message": text}}).to_string();
    let too_long = Play::json(400, body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"));
    let busy = Play::json(429, body("rate_limit_error", "slow down")).header("retry-after", "2");
    let full = Play::json(529, body("overloaded_error", "Overloaded"));
    for (play, code, retry) in [
        (too_long, "context_length_exceeded", Retry::Never),
        (busy, "rate_limited", Retry::AfterMs(2000)),
        (full, "overloaded", Retry::Backoff),
    ] {
        let error = Protocol::Messages.outcome(play).await.1.unwrap();
        assert_eq!((error.code.as_str(), error.retry), (code, retry), "{error:?}");
    }
}

#[tokio::test]
async fn a_stop_reason_without_an_end_mark_is_enough() {
    let [last, _] = ended("end_turn");
    for ending in [Ending::Clean, Ending::Broken] {
        let play = stream(&[begun(), text_delta(0, "a"), last.clone()]).ending(ending);
        assert_eq!(Protocol::Messages.outcome(play).await, (vec![text("a"), used()], None));
    }
}

#[tokio::test]
async fn the_request_goes_where_it_should() {
    let mut server = serve(stream(&ended("end_turn"))).await;
    let mut config = config(&server);
    config.api_key = Some("sk-1".to_owned());
    collect(&*Protocol::Messages.model(config), request("hi")).await;
    server.gone.recv().await;
    let got = server.got.lock().unwrap();
    let header = |name: &str| got[0].headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!((got[0].path.as_str(), header("x-api-key"), header("authorization")), ("/v1/messages", Some("sk-1"), None));
    assert_eq!((header("anthropic-version"), &got[0].body["model"]), (Some("2023-06-01"), &json!("asked-for")));
    assert!(got[0].body["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0));
}
