//! Servers of every protocol that break off, send garbage, or never end: a call always ends, and its error says whether to retry.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Ending, Play, Protocol, Server, collect, config, request, serve};
use windlass_kernel::{FailureCause, FailureCode};
use windlass_models::limits::{CALLS_MAX, CONTENT_BYTES_MAX, EVENT_BYTES_MAX};
use windlass_ports::{ModelError, ModelEvent, Retry};

const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];

/// A whole answer with reasoning, text and a call, event by event. The last ones, of the returned number, may be missing.
fn answer(protocol: Protocol) -> (Vec<Value>, usize) {
    match protocol {
        Protocol::Chat => {
            let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let call = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
            let events = vec![
                chunk(json!({"role": "assistant", "reasoning_content": "hm"}), Value::Null),
                chunk(json!({"content": "words"}), Value::Null),
                chunk(json!({"tool_calls": [call]}), Value::Null),
                chunk(json!({}), json!("tool_calls")),
                json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}}),
            ];
            (events, 1)
        }
        Protocol::Responses => {
            let usage = json!({"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}});
            let reasoning = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "s"});
            let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
            let message = json!({"type": "message", "content": [{"type": "output_text", "text": "words"}]});
            let done = |place: u64, item: &Value| json!({"type": "response.output_item.done", "output_index": place, "item": item});
            let response = json!({"status": "completed", "output": [reasoning, message, call], "usage": usage});
            let events = vec![
                json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
                done(0, &reasoning),
                json!({"type": "response.output_text.delta", "output_index": 1, "delta": "words"}),
                done(1, &message),
                done(2, &call),
                json!({"type": "response.completed", "response": response}),
            ];
            (events, 0)
        }
        Protocol::Messages => {
            let event = |kind: &str, more: Value| {
                let mut event = more;
                event["type"] = kind.into();
                event
            };
            let start = |index: u64, block: Value| event("content_block_start", json!({"index": index, "content_block": block}));
            let delta = |index: u64, delta: Value| event("content_block_delta", json!({"index": index, "delta": delta}));
            let stop = |index: u64| event("content_block_stop", json!({ "index": index }));
            let events = vec![
                event("message_start", json!({"message": {"usage": {"input_tokens": 1, "output_tokens": 1}}})),
                start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
                delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
                delta(0, json!({"type": "signature_delta", "signature": "s"})),
                stop(0),
                start(1, json!({"type": "text", "text": ""})),
                delta(1, json!({"type": "text_delta", "text": "words"})),
                stop(1),
                start(2, json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
                delta(2, json!({"type": "input_json_delta", "partial_json": "{}"})),
                stop(2),
                event("message_delta", json!({"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}})),
                event("message_stop", json!({})),
            ];
            (events, 1)
        }
    }
}

fn spelled(events: &[Value]) -> Vec<String> {
    events.iter().map(Value::to_string).collect()
}

fn is_call(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Call(_))
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_event_is_no_answer() {
    for protocol in PROTOCOLS {
        let (events, dispensable) = answer(protocol);
        for ending in [Ending::Clean, Ending::Broken] {
            for count in 0..=events.len() {
                let (received, error) = protocol.outcome(Play::events(&spelled(&events[..count])).ending(ending)).await;
                let is_whole = count + dispensable >= events.len();
                let code = error.as_ref().map(|error| (error.code.as_str(), error.retry));
                let expected = (!is_whole).then_some(("stream_cut", Retry::Backoff));
                assert_eq!(code, expected, "{protocol:?}, {count} events");
                assert_eq!(received.iter().any(is_call), is_whole, "{protocol:?}, {count} events: half a call is none");
            }
        }
    }
}

/// The event with each of its values replaced by each of `others`.
fn mutated(event: &Value, others: &[Value]) -> Vec<Value> {
    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), all)),
            Value::Array(elements) => {
                elements.iter().enumerate().for_each(|(index, value)| places(value, &format!("{at}/{index}"), all));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut all = Vec::new();
    places(event, "", &mut all);
    let mutate = |place: &String, other: &Value| {
        let mut event = event.clone();
        *event.pointer_mut(place).unwrap() = other.clone();
        event
    };
    all.iter().flat_map(|place| others.iter().map(move |other| mutate(place, other))).collect()
}

#[tokio::test]
async fn any_value_of_a_wrong_type_gives_an_answer_or_an_error_and_nothing_else() {
    let others = [json!(null), json!(7), json!(-1), json!("x"), json!([]), json!({}), json!(true), json!([[1]])];
    for protocol in PROTOCOLS {
        let (events, _) = answer(protocol);
        let server = serve(Play::pieces([""])).await;
        let model = protocol.model(config(&server));
        for (index, event) in events.iter().enumerate() {
            for mutated in mutated(event, &others) {
                let mut events = events.clone();
                events[index] = mutated.clone();
                server.play(Play::events(&spelled(&events)));
                let (_, error) = collect(&*model, request("hi")).await;
                let known = ["stream_cut", "upstream_garbage", "upstream_error", "refused"];
                assert!(error.as_ref().is_none_or(|error| known.contains(&error.code.as_str())), "{protocol:?}: {mutated}: {error:?}");
            }
        }
    }
}

async fn failure(protocol: Protocol, play: Play) -> ModelError {
    protocol.outcome(play).await.1.unwrap_or_else(|| panic!("{protocol:?}: no error"))
}

#[tokio::test]
async fn nonsense_may_be_tried_again() {
    for protocol in PROTOCOLS {
        for data in ["{not json", "7", "[]", "\"words\""] {
            let error = failure(protocol, Play::events(&[data])).await;
            assert_eq!((error.code.as_str(), error.retry), ("upstream_garbage", Retry::Backoff), "{protocol:?}: {data}");
        }
        let not_text = failure(protocol, Play::pieces([&b"data: \xff\xfe\n\n"[..]])).await;
        assert_eq!((not_text.code.as_str(), not_text.retry), ("upstream_garbage", Retry::Backoff), "{protocol:?}");
        for body in ["{}", "not json", "[]"] {
            let error = failure(protocol, Play::json(200, body)).await;
            assert_eq!((error.code.as_str(), error.retry), ("upstream_garbage", Retry::Backoff), "{protocol:?}: {body}");
        }
    }
}

/// Events with a large amount of content: as text, as reasoning, as arguments.
fn endless(protocol: Protocol, letters: &str) -> Vec<Vec<Value>> {
    match protocol {
        Protocol::Chat => {
            let delta = |delta: Value| vec![json!({"choices": [{"delta": delta}]})];
            let call = json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": letters}}]);
            vec![delta(json!({ "content": letters })), delta(json!({ "reasoning": letters })), delta(json!({ "tool_calls": call }))]
        }
        Protocol::Responses => vec![vec![json!({"type": "response.output_text.delta", "output_index": 0, "delta": letters})]],
        Protocol::Messages => {
            let block = |block: Value, delta: Value| {
                let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
                vec![start, json!({"type": "content_block_delta", "index": 0, "delta": delta})]
            };
            vec![
                block(json!({"type": "text"}), json!({"type": "text_delta", "text": letters})),
                block(json!({"type": "thinking"}), json!({"type": "thinking_delta", "thinking": letters})),
                block(json!({"type": "thinking"}), json!({"type": "signature_delta", "signature": letters})),
                block(json!({"type": "tool_use", "name": "f"}), json!({"type": "input_json_delta", "partial_json": letters})),
            ]
        }
    }
}

#[tokio::test]
async fn an_endless_answer_is_stopped_whatever_it_consists_of() {
    for protocol in PROTOCOLS {
        for events in endless(protocol, &"x".repeat(1 << 16)) {
            let error = failure(protocol, Play::events(&spelled(&events)).ending(Ending::Endless)).await;
            assert_eq!((error.code.as_str(), error.retry), ("answer_too_large", Retry::Never), "{protocol:?}");
            assert_eq!(error.message, format!("the answer amounts to more than {CONTENT_BYTES_MAX} bytes"));
        }
        let huge = Play::pieces(["data: ".to_owned(), "x".repeat(1 << 16)]).ending(Ending::Endless);
        let error = failure(protocol, huge).await;
        assert!(error.message.ends_with(&format!(": one event has more than {EVENT_BYTES_MAX} bytes")), "{protocol:?}: {}", error.message);
    }
}

#[tokio::test]
async fn too_many_calls_are_refused() {
    for protocol in PROTOCOLS {
        let call = |index: usize| match protocol {
            Protocol::Chat => json!({"choices": [{"delta": {"tool_calls": [{"index": index, "function": {"name": "f"}}]}}]}),
            Protocol::Responses => {
                json!({"type": "response.output_item.done", "output_index": index, "item": {"type": "function_call", "name": "f"}})
            }
            Protocol::Messages => {
                json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "name": "f"}})
            }
        };
        let events: Vec<Value> = (0..=CALLS_MAX).map(call).collect();
        let error = failure(protocol, Play::events(&spelled(&events))).await;
        assert_eq!((error.code.as_str(), error.retry), ("answer_too_large", Retry::Never), "{protocol:?}");
    }
}

#[tokio::test]
async fn silence_is_not_waited_out() {
    for protocol in PROTOCOLS {
        let (events, _) = answer(protocol);
        let server = serve(Play::events(&spelled(&events[..2])).ending(Ending::Silent)).await;
        let mut config = config(&server);
        config.idle_timeout_ms = 200;
        let (_, error) = collect(&*protocol.model(config), request("hi")).await;
        assert_eq!(error.map(|error| error.code), Some(FailureCode::StreamStalled), "{protocol:?}");
    }
}

/// The address that the only request of this server was posted to.
fn posted_to(server: &Server) -> String {
    format!("{}{}", server.base_url.trim_end_matches("/v1"), server.got.lock().unwrap()[0].path)
}

#[tokio::test]
async fn status_404_and_an_address_without_a_server_name_the_base_url() {
    for protocol in PROTOCOLS {
        let server = serve(Play::json(404, "{}")).await;
        let mut config = config(&server);
        config.setting = Some("models[2]".to_owned());
        let error = collect(&*protocol.model(config.clone()), request("hi")).await.1.unwrap();
        let advice = "check models[2].base_url, which usually ends in /v1, and the name of the model";
        assert_eq!(error.message, format!("test at {} answered 404: {{}}; {advice}", posted_to(&server)), "{protocol:?}");
        // A listener that was closed: nothing answers at its address.
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        config.base_url = format!("http://user:password@{gone}/v1?key=secret");
        let error = collect(&*protocol.model(config), request("hi")).await.1.unwrap();
        assert_eq!((error.code.as_str(), error.cause), ("upstream_unreachable", FailureCause::Unreachable), "{protocol:?}");
        assert!(error.message.starts_with(&format!("cannot reach test at http://{gone}/v1/")), "{}", error.message);
        assert!(error.message.ends_with("; check models[2].base_url"), "{}", error.message);
        assert!(!error.message.contains("password") && !error.message.contains("secret"), "{}", error.message);
    }
}

#[tokio::test]
async fn the_limit_before_the_first_byte_is_not_the_idle_limit() {
    for protocol in PROTOCOLS {
        let (events, _) = answer(protocol);
        let in_one_piece: String = spelled(&events).iter().map(|event| format!("data: {event}\n\n")).collect();
        // The idle limit is shorter than the time until the answer begins.
        let server = serve(Play::pieces([in_one_piece]).late(Duration::from_millis(300))).await;
        let mut config = config(&server);
        config.idle_timeout_ms = 100;
        let (_, error) = collect(&*protocol.model(config.clone()), request("hi")).await;
        assert_eq!(error, None, "{protocol:?}");
        let server = serve(Play::events(&[] as &[&str]).ending(Ending::Silent)).await;
        config.base_url.clone_from(&server.base_url);
        config.idle_timeout_ms = 30_000;
        config.first_byte_timeout_ms = 100;
        let error = collect(&*protocol.model(config), request("hi")).await.1.unwrap();
        assert_eq!((error.code.as_str(), error.cause), ("model_timeout", FailureCause::TimedOut), "{protocol:?}");
        assert!(error.message.ends_with("sent nothing for 100 ms; limits.first_byte is the limit"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_status_keeps_its_meaning_and_messages_have_no_secrets() {
    for protocol in PROTOCOLS {
        for (status, code) in
            [(400, "refused"), (401, "upstream_unauthorized"), (429, "rate_limited"), (500, "upstream_error"), (503, "overloaded")]
        {
            let server = serve(Play::json(status, json!({"error": {"message": "bad key sk-secret"}}).to_string())).await;
            let mut config = config(&server);
            config.api_key = Some("sk-secret".to_owned());
            config.setting = Some("models[0]".to_owned());
            let error = collect(&*protocol.model(config), request("hi")).await.1.unwrap();
            let url = posted_to(&server);
            let advice = if status == 401 { "; check models[0].api_key" } else { "" };
            assert_eq!(error.message, format!("test at {url} answered {status}: bad key [hidden]{advice}"), "{protocol:?}");
            assert_eq!((error.code.as_str(), error.cause), (code, FailureCause::Status(status)), "{protocol:?}");
        }
        let quota = json!({"error": {"code": "insufficient_quota", "message": "no money"}}).to_string();
        assert_eq!(failure(protocol, Play::json(429, quota)).await.code, FailureCode::InsufficientQuota);
    }
}
