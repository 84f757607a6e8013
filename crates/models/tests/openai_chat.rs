//! The Chat Completions protocol: servers that work, with the variations between them.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use futures_util::StreamExt;
use serde_json::{Value, json};
use support::{Ending, Play, call, collect, config, outcome, reasoning_event, request, serve, text, usage};
use windlass_kernel::{Finish, ToolChoice};
use windlass_models::{OpenAiChat, RemoteConfig};
use windlass_ports::{Model, ModelEvent, ModelTool};

fn delta(delta: Value) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null}).to_string()
}

fn content_chunk(text: &str) -> String {
    delta(json!({ "content": text }))
}

fn piece(piece: Value) -> String {
    delta(json!({ "tool_calls": [piece] }))
}

fn finish(reason: &str) -> String {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string()
}

fn tokens(tokens_in: u64, tokens_out: u64) -> String {
    json!({"choices": [], "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}}).to_string()
}

#[tokio::test]
async fn text_comes_in_pieces_and_usage_last() {
    let start = delta(json!({"role": "assistant", "content": ""}));
    let events = [start, content_chunk("Hel"), content_chunk("lo"), finish("stop"), tokens(7, 2), "[DONE]".to_owned()];
    let (events, error) = outcome(Play::events(&events)).await;
    assert_eq!((events, error), (vec![text("Hel"), text("lo"), usage(7, 2)], None));
}

#[tokio::test]
async fn the_request_carries_everything() {
    let mut server = serve(Play::events(&[content_chunk("x"), finish("stop")])).await;
    let mut config = config(&server);
    config.api_key = Some("sk-1".to_owned());
    config.model = Some("upstream-name".to_owned());
    config.concurrency = 5;
    config.headers.insert("x-team".to_owned(), "blue".to_owned());
    let model = OpenAiChat::new(config).unwrap();
    assert_eq!((model.provider(), model.concurrency()), ("test", 5));
    let mut request = request("hi");
    request.instructions = Some("be brief".to_owned());
    request.tools = [ModelTool { name: "f".into(), description: "d".into(), parameters: json!({}), strict: None }].into();
    collect(&model, request).await;
    server.gone.recv().await;
    let got = server.got.lock().unwrap();
    let [got] = got.as_slice() else { panic!("one request is sent") };
    assert_eq!(got.path, "/v1/chat/completions");
    assert_eq!(got.headers["authorization"], "Bearer sk-1");
    assert_eq!(got.headers["x-team"], "blue");
    assert_eq!(got.body["model"], "upstream-name");
    assert_eq!(got.body["stream"], true);
    assert_eq!(got.body["stream_options"], json!({"include_usage": true}));
    assert_eq!(got.body["messages"], json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]));
    assert_eq!(got.body["tools"][0]["function"]["name"], "f");
}

#[tokio::test]
async fn parameters_are_translated() {
    let mut server = serve(Play::events(&[content_chunk("x"), finish("stop")])).await;
    let model = OpenAiChat::new(config(&server)).unwrap();
    let mut request = request("hi");
    request.tools = [ModelTool { name: "f".into(), description: "d".into(), parameters: json!({}), strict: None }].into();
    request.choice = ToolChoice::Tool("f".into());
    request.one_call = true;
    let schema = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true});
    let parameters = json!({"temperature": 0.5, "max_output_tokens": 99, "reasoning": {"effort": "low"}, "text": {"format": schema}});
    request.parameters = serde_json::from_value(parameters).map(std::sync::Arc::new).ok();
    collect(&model, request).await;
    server.gone.recv().await;
    let got = server.got.lock().unwrap();
    let body = &got[0].body;
    assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    assert_eq!((&body["parallel_tool_calls"], &body["temperature"]), (&json!(false), &json!(0.5)));
    assert_eq!((&body["max_tokens"], &body["reasoning_effort"]), (&json!(99), &json!("low")));
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}});
    assert_eq!(body["response_format"], format);
}

#[tokio::test]
async fn an_answer_that_stops_short_says_why() {
    for (reason, why) in [("length", Finish::OutOfTokens), ("content_filter", Finish::Filtered)] {
        let (events, error) = outcome(Play::events(&[content_chunk("a"), finish(reason)])).await;
        assert_eq!((events, error), (vec![text("a"), ModelEvent::Finish(why)], None));
    }
}

#[tokio::test]
async fn without_a_configured_model_the_asked_name_is_passed_on() {
    let server = serve(Play::events(&[finish("stop")])).await;
    collect(&OpenAiChat::new(config(&server)).unwrap(), request("hi")).await;
    let got = server.got.lock().unwrap();
    assert_eq!(got[0].body["model"], "asked-for");
    assert!(!got[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn interleaved_pieces_of_calls_are_put_together_by_index() {
    let events = [
        content_chunk("Let me see."),
        piece(json!({"index": 1, "id": "b", "type": "function", "function": {"name": "second", "arguments": ""}})),
        piece(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "first", "arguments": "{\"x\""}})),
        piece(json!({"index": 1, "function": {"arguments": "{\"y\":"}})),
        piece(json!({"index": 0, "function": {"arguments": ":1}"}})),
        piece(json!({"index": 1, "id": null, "function": {"name": null, "arguments": "2}"}})),
        finish("tool_calls"),
        "[DONE]".to_owned(),
    ];
    let expected = vec![text("Let me see."), call("a", "first", r#"{"x":1}"#), call("b", "second", r#"{"y":2}"#)];
    assert_eq!(outcome(Play::events(&events)).await, (expected, None));
}

#[tokio::test]
async fn a_call_may_be_whole_in_one_piece_and_lack_an_id() {
    let both = json!({"tool_calls": [
        {"index": 0, "function": {"name": "f", "arguments": "{}"}},
        {"index": 1, "id": "", "function": {"name": "g"}},
    ]});
    let (events, error) = outcome(Play::events(&[delta(both), finish("tool_calls")])).await;
    assert_eq!((events, error), (vec![call("call_3_0", "f", "{}"), call("call_3_1", "g", "{}")], None));
}

#[tokio::test]
async fn servers_that_misuse_the_index_are_understood() {
    let whole = |index: Value, id: &str| piece(json!({"index": index, "id": id, "function": {"name": "f", "arguments": {"n": 1}}}));
    let expected = vec![call("a", "f", r#"{"n":1}"#), call("b", "f", r#"{"n":1}"#)];
    for index in [json!(0), Value::Null] {
        let events = [whole(index.clone(), "a"), whole(index.clone(), "b"), finish("tool_calls")];
        assert_eq!(outcome(Play::events(&events)).await, (expected.clone(), None), "index {index}");
    }
    // The same id and name in every chunk, or another id each time, is still one call.
    let part =
        |id: &str, name: Value, arguments: &str| piece(json!({"index": 0, "id": id, "function": {"name": name, "arguments": arguments}}));
    let repeated = [part("a", json!("f"), "{"), part("a", json!("f"), "}"), part("z", Value::Null, ""), finish("tool_calls")];
    assert_eq!(outcome(Play::events(&repeated)).await, (vec![call("a", "f", "{}")], None));
}

#[tokio::test]
async fn bytes_may_be_split_anywhere() {
    let events = [content_chunk("Grüße 🦀"), finish("stop"), tokens(1, 2), "[DONE]".to_owned()];
    for end in ["\n\n", "\r\n\r\n"] {
        let all: String = events.iter().map(|event| format!(": a comment{}data: {event}{end}", &end[..end.len() / 2])).collect();
        let pieces = all.into_bytes().into_iter().map(|byte| vec![byte]);
        let expected = (vec![text("Grüße 🦀"), usage(1, 2)], None);
        assert_eq!(outcome(Play::pieces(pieces)).await, expected, "{end:?}");
    }
}

#[tokio::test]
async fn a_finish_reason_without_an_end_mark_is_enough() {
    let expected = (vec![text("a")], None);
    for ending in [Ending::Clean, Ending::Broken, Ending::Silent] {
        let server = serve(Play::events(&[content_chunk("a"), finish("stop")]).ending(ending)).await;
        let config = RemoteConfig { idle_timeout_ms: 500, ..config(&server) };
        assert_eq!(collect(&OpenAiChat::new(config).unwrap(), request("hi")).await, expected);
    }
}

#[tokio::test]
async fn an_end_mark_without_a_finish_reason_is_enough() {
    assert_eq!(outcome(Play::events(&[content_chunk("a"), "[DONE]".to_owned()])).await, (vec![text("a")], None));
}

#[tokio::test]
async fn usage_that_grows_with_every_chunk_ends_with_the_last() {
    let with_usage = |text: &str, out: u64| {
        json!({"choices": [{"delta": {"content": text}}], "usage": {"prompt_tokens": 4, "completion_tokens": out}}).to_string()
    };
    let events = [with_usage("a", 1), with_usage("b", 2), with_usage("", 2), finish("stop")];
    let expected = vec![text("a"), text("b"), usage(4, 2)];
    assert_eq!(outcome(Play::events(&events)).await, (expected, None));
}

#[tokio::test]
async fn other_choices_and_unknown_fields_are_left_alone() {
    let other = json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}).to_string();
    let unknown = delta(json!({"mood": "good", "reasoning": {"effort": "low"}, "refusal": null}));
    let refusal = delta(json!({"refusal": "I will not."}));
    let (events, error) = outcome(Play::events(&[other, unknown, refusal, finish("stop")])).await;
    assert_eq!((events, error), (vec![text("I will not.")], None));
}

#[tokio::test]
async fn reasoning_is_complete_before_the_text_after_it() {
    for name in ["reasoning_content", "reasoning"] {
        let thinking = |text: &str| delta(json!({ name: text, "content": null }));
        let events = [thinking("h"), thinking("m"), content_chunk("Hel"), content_chunk("lo"), finish("stop")];
        let expected = vec![reasoning_event("", &[], "hm", None), text("Hel"), text("lo")];
        assert_eq!(outcome(Play::events(&events)).await, (expected, None), "{name}");
        let before_a_call = [thinking("hm"), piece(json!({"index": 0, "id": "a", "function": {"name": "f"}})), finish("tool_calls")];
        assert_eq!(outcome(Play::events(&before_a_call)).await, (vec![reasoning_event("", &[], "hm", None), call("a", "f", "{}")], None));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_understood() {
    let calls = json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let message = json!({"role": "assistant", "content": "Hello", "tool_calls": calls});
    let usage_of = json!({"prompt_tokens": 3, "completion_tokens": 4});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage_of});
    let (events, error) = outcome(Play::json(200, body.to_string())).await;
    assert_eq!((events, error), (vec![text("Hello"), usage(3, 4), call("a", "f", "{}")], None));
}

#[tokio::test]
async fn text_is_passed_on_before_the_answer_ends() {
    let server = serve(Play::events(&[content_chunk("early")]).ending(Ending::Silent)).await;
    let mut stream = OpenAiChat::new(config(&server)).unwrap().call(request("hi"));
    assert_eq!(stream.next().await, Some(Ok(text("early"))));
}

#[tokio::test]
async fn dropping_the_stream_calls_the_request_off() {
    // The server notices only by sending that its peer is gone, so it keeps sending.
    let mut server = serve(Play::events(&[content_chunk("x")]).ending(Ending::Endless)).await;
    let mut stream = OpenAiChat::new(config(&server)).unwrap().call(request("hi"));
    assert_eq!(stream.next().await, Some(Ok(text("x"))));
    assert!(server.gone.try_recv().is_err());
    drop(stream);
    assert_eq!(server.gone.recv().await, Some(()));
}

#[tokio::test]
async fn nothing_is_sent_before_the_stream_is_polled() {
    let server = serve(Play::events(&[finish("stop")])).await;
    drop(OpenAiChat::new(config(&server)).unwrap().call(request("hi")));
    assert!(server.got.lock().unwrap().is_empty());
}
