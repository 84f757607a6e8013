//! The Responses protocol: servers that work, with the variations between them.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use serde_json::{Value, json};
use support::{Ending, Play, Protocol, call, collect, config, reasoning_event, request, serve, text, without_address};
use windlass_kernel::{Finish, Usage};
use windlass_ports::{ModelError, ModelEvent};

/// A stream as it is on the wire, where the type of an event also precedes it.
fn stream(events: &[Value]) -> Play {
    let spelled = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    Play::pieces(events.iter().map(spelled))
}

async fn outcome(events: &[Value]) -> (Vec<ModelEvent>, Option<ModelError>) {
    Protocol::Responses.outcome(stream(events)).await
}

fn begun() -> [Value; 2] {
    let response = json!({"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "usage": null, "error": null});
    let event = |kind: &str, number: u64| json!({"type": kind, "sequence_number": number, "response": response});
    [event("response.created", 0), event("response.in_progress", 1)]
}

fn ended(output: Value) -> Value {
    let usage = json!({
        "input_tokens": 36, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": 87,
        "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123,
    });
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "output": output, "usage": usage, "error": null,
        "incomplete_details": null});
    json!({"type": "response.completed", "sequence_number": 99, "response": response})
}

fn used() -> ModelEvent {
    ModelEvent::Usage(Usage { tokens_in: 36, tokens_out: 87, cached: 16, cache_written: 0, reasoning: 64 })
}

fn delta(place: u64, text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": place, "content_index": 0, "delta": text,
        "logprobs": [], "obfuscation": "Xy1"})
}

fn done(place: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": place, "item": item})
}

fn message(text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]})
}

fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": id, "name": name, "arguments": arguments})
}

fn reasoning() -> Value {
    json!({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "**Weighing**"}, {"type": "summary_text",
        "text": "It is heavy."}], "encrypted_content": "gAAAAAB"})
}

#[tokio::test]
async fn reasoning_text_and_calls_come_in_order() {
    let item = message("Hello");
    let calls = [function_call("call_a", "f", r#"{"x":1}"#), function_call("call_b", "g", "{broken")];
    let mut events = begun().to_vec();
    events.extend([
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "output_index": 0, "summary_index": 0,
            "part": {"type": "summary_text", "text": ""}}),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "**W"}),
        done(0, &reasoning()),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "msg_1", "type": "message", "content": []}}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1, "content_index": 0,
            "part": {"type": "output_text", "text": ""}}),
        delta(1, "Hel"),
        delta(1, "lo"),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 1, "content_index": 0, "text": "Hello"}),
        done(1, &item),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_call_b", "output_index": 3, "delta": "{br"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_call_a", "output_index": 2, "delta": "{\"x\""}),
        done(3, &calls[1]),
        done(2, &calls[0]),
        ended(json!([reasoning(), item, calls[0], calls[1]])),
    ]);
    let expected = vec![
        reasoning_event("openai", &["**Weighing**", "It is heavy."], "", Some("gAAAAAB")),
        text("Hel"),
        text("lo"),
        used(),
        call("call_a", "f", r#"{"x":1}"#),
        call("call_b", "g", "{broken"),
    ];
    assert_eq!(outcome(&events).await, (expected, None));
}

#[tokio::test]
async fn a_server_that_sends_everything_at_the_end_is_understood() {
    let call_without_id = json!({"type": "function_call", "name": "f", "arguments": ""});
    let output = json!([reasoning(), message("Hello"), call_without_id]);
    let expected = vec![
        reasoning_event("openai", &["**Weighing**", "It is heavy."], "", Some("gAAAAAB")),
        text("Hello"),
        used(),
        call("call_3_0", "f", "{}"),
    ];
    assert_eq!(outcome(&[ended(output.clone())]).await, (expected.clone(), None));
    let whole = Play::json(200, ended(output)["response"].to_string());
    assert_eq!(Protocol::Responses.outcome(whole).await, (expected, None));
}

#[tokio::test]
async fn raw_reasoning_is_separate_from_its_summary() {
    let open = json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]});
    let nothing = json!({"type": "reasoning", "summary": [], "encrypted_content": null});
    let (events, _) = outcome(&[done(0, &open), done(1, &nothing), ended(json!([]))]).await;
    assert_eq!(events, [reasoning_event("openai", &[], "hm", None), used()]);
}

#[tokio::test]
async fn a_refusal_is_text() {
    let refused = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "I will not."});
    let (events, error) = outcome(&[refused, ended(json!([]))]).await;
    assert_eq!((events, error), (vec![text("I will not."), used()], None));
}

#[tokio::test]
async fn an_answer_that_stops_short_says_why() {
    for (reason, why) in [("max_output_tokens", Finish::OutOfTokens), ("content_filter", Finish::Filtered)] {
        let response = json!({"status": "incomplete", "incomplete_details": {"reason": reason}, "output": []});
        let (events, error) = outcome(&[delta(0, "a"), json!({"type": "response.incomplete", "response": response})]).await;
        assert_eq!((events, error), (vec![text("a"), ModelEvent::Finish(why)], None));
    }
}

#[tokio::test]
async fn a_response_that_fails_keeps_its_meaning() {
    for (code, expected) in [("rate_limit_exceeded", "rate_limited"), ("server_error", "upstream_error"), ("invalid_prompt", "refused")] {
        let response = json!({"status": "failed", "error": {"code": code, "message": "no"}, "output": []});
        let failed = json!({"type": "response.failed", "response": response});
        let nested = json!({"type": "error", "error": {"type": "x", "code": code, "message": "no"}});
        let flat = json!({"type": "error", "code": code, "message": "no", "param": null, "sequence_number": 3});
        for last in [failed, nested, flat] {
            let (events, error) = outcome(&[delta(0, "a"), last.clone()]).await;
            let error = error.unwrap();
            let message = without_address(&error.message);
            assert_eq!((events, error.code.as_str(), message.as_str()), (vec![text("a")], expected, "test broke off: no"), "{last}");
        }
    }
}

#[tokio::test]
async fn the_end_mark_alone_is_no_end() {
    let play = Play::events(&[delta(0, "a").to_string(), "[DONE]".to_owned()]);
    let (events, error) = Protocol::Responses.outcome(play).await;
    assert_eq!((events, error.unwrap().code.as_str()), (vec![text("a")], "stream_cut"));
}

#[tokio::test]
async fn nothing_is_waited_for_after_the_last_event() {
    let play = stream(&[delta(0, "a"), ended(json!([]))]).ending(Ending::Silent);
    assert_eq!(Protocol::Responses.outcome(play).await, (vec![text("a"), used()], None));
}

#[tokio::test]
async fn the_request_goes_where_it_should() {
    let mut server = serve(stream(&[ended(json!([]))])).await;
    let mut config = config(&server);
    config.api_key = Some("sk-1".to_owned());
    config.model = Some("upstream-name".to_owned());
    collect(&*Protocol::Responses.model(config), request("hi")).await;
    server.gone.recv().await;
    let got = server.got.lock().unwrap();
    assert_eq!((got[0].path.as_str(), &got[0].headers["authorization"]), ("/v1/responses", &"Bearer sk-1".parse().unwrap()));
    assert_eq!(
        (&got[0].body["model"], &got[0].body["store"], &got[0].body["stream"]),
        (&json!("upstream-name"), &json!(false), &json!(true))
    );
}
