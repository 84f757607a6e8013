//! Chat Completions servers that fail or flood: every case ends with one clear error.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use serde_json::json;
use support::{Ending, Play, collect, config, outcome, request, serve, text, without_address};
use windlass_kernel::FailureCode;
use windlass_models::{
    OpenAiChat, RemoteConfig,
    limits::{ANSWER_BYTES_MAX, CALLS_MAX, CONTENT_BYTES_MAX, EVENT_BYTES_MAX, MESSAGE_CHARS_MAX},
};
use windlass_ports::{ModelError, ModelEvent, Retry};

fn content_chunk(text: &str) -> String {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string()
}

async fn failure(play: Play) -> ModelError {
    outcome(play).await.1.expect("the call fails")
}

async fn code_and_retry(play: Play) -> (FailureCode, Retry) {
    let error = failure(play).await;
    (error.code, error.retry)
}

fn expected(code: &str, retry: Retry) -> (FailureCode, Retry) {
    (code.into(), retry)
}

/// An error answer in the protocol's own shape.
fn error(status: u16, message: &str) -> Play {
    Play::json(status, json!({"error": {"message": message, "type": "some_type"}}).to_string())
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_may_be_retried() {
    for ending in [Ending::Clean, Ending::Broken] {
        let (events, error) = outcome(Play::events(&[content_chunk("half an")]).ending(ending)).await;
        let error = error.unwrap();
        assert_eq!((events, error.code.as_str(), error.retry), (vec![text("half an")], "stream_cut", Retry::Backoff));
    }
    let inside_an_event = Play::pieces(["data: {\"choices\": [{\"del"]);
    assert_eq!(code_and_retry(inside_an_event).await, expected("stream_cut", Retry::Backoff));
    assert_eq!(code_and_retry(Play::pieces([""])).await, expected("stream_cut", Retry::Backoff));
    assert_eq!(code_and_retry(Play::events(&["[DONE]"])).await, expected("stream_cut", Retry::Backoff));
}

#[tokio::test]
async fn a_call_that_is_cut_is_never_passed_on() {
    let half = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x"}}]}}]});
    let (events, error) = outcome(Play::events(&[half.to_string()])).await;
    assert_eq!((events, error.unwrap().code.as_str()), (Vec::new(), "stream_cut"));
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let comments = Play::pieces([": still here\n\n"]);
    let in_the_middle = ("stream_stalled", "test sent nothing for 100 ms in the middle of its answer; idle_timeout is the limit");
    let before = ("model_timeout", "test sent nothing for 90 ms; limits.first_byte is the limit");
    for (play, (code, message)) in
        [(Play::events(&[content_chunk("a")]), in_the_middle), (Play::pieces([""; 0]), before), (comments, before)]
    {
        let server = serve(play.ending(Ending::Silent)).await;
        // Less than what a loaded machine needs, in the case where no answer is expected.
        let first_byte_timeout_ms = if code == "model_timeout" { 90 } else { 30_000 };
        let config = RemoteConfig { idle_timeout_ms: 100, first_byte_timeout_ms, ..config(&server) };
        let error = collect(&OpenAiChat::new(config).unwrap(), request("hi")).await.1.unwrap();
        assert_eq!((error.code.as_str(), error.retry), (code, Retry::Backoff));
        assert_eq!(without_address(&error.message), message);
    }
}

#[tokio::test]
async fn comments_alone_do_not_keep_a_stream_alive() {
    let server = serve(Play::pieces([": still here\n\n"]).ending(Ending::Endless)).await;
    let config = RemoteConfig { first_byte_timeout_ms: 50, ..config(&server) };
    let error = collect(&OpenAiChat::new(config).unwrap(), request("hi")).await.1.unwrap();
    // A fast machine reaches the size limit first.
    assert!(["model_timeout", "answer_too_large"].contains(&error.code.as_str()), "{error:?}");
}

#[tokio::test]
async fn a_rate_limit_says_when_to_come_back() {
    let limited = || error(429, "slow down");
    assert_eq!(code_and_retry(limited()).await, expected("rate_limited", Retry::Backoff));
    assert_eq!(code_and_retry(limited().header("retry-after", "2")).await, expected("rate_limited", Retry::AfterMs(2_000)));
    assert_eq!(code_and_retry(limited().header("retry-after-ms", "150")).await, expected("rate_limited", Retry::AfterMs(150)));
    let dated = limited().header("date", "Sun, 06 Nov 1994 08:49:37 GMT").header("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT");
    assert_eq!(code_and_retry(dated).await, expected("rate_limited", Retry::AfterMs(3_000)));
}

#[tokio::test]
async fn a_server_in_trouble_may_be_retried() {
    for (status, code) in [(500, "upstream_error"), (502, "upstream_error"), (408, "upstream_error"), (503, "overloaded")] {
        let error = failure(error(status, "oh no")).await;
        assert_eq!((error.code.as_str(), error.retry), (code, Retry::Backoff));
        assert_eq!(without_address(&error.message), format!("test answered {status}: oh no"));
    }
    assert_eq!(code_and_retry(error(503, "").header("retry-after", "1")).await, expected("overloaded", Retry::AfterMs(1_000)));
}

#[tokio::test]
async fn a_refusal_is_final_and_quotes_the_providers_message() {
    let refused = failure(error(400, "context too long")).await;
    assert_eq!((refused.code.as_str(), refused.retry), ("refused", Retry::Never));
    assert_eq!(without_address(&refused.message), "test answered 400: context too long");
    assert_eq!(code_and_retry(error(401, "")).await, expected("upstream_unauthorized", Retry::Never));
    assert_eq!(code_and_retry(error(403, "")).await, expected("upstream_unauthorized", Retry::Never));
    let redirect = Play::json(302, "").header("location", "http://127.0.0.1:1/");
    assert_eq!(code_and_retry(redirect).await, expected("refused", Retry::Never));
}

#[tokio::test]
async fn error_bodies_of_any_shape_are_quoted() {
    for (body, text) in [
        (r#"{"error": "plain"}"#, ": plain"),
        (r#"{"detail": "nested", "x": 1}"#, ": nested"),
        (r#"{"message": "flat"}"#, ": flat"),
        ("<html>\nbusy</html>", ": <html> busy</html>"),
        ("", ""),
    ] {
        assert_eq!(without_address(&failure(Play::json(400, body)).await.message), format!("test answered 400{text}"));
    }
    let long = failure(error(400, &"ä".repeat(9_000))).await;
    assert!(without_address(&long.message).chars().count() <= MESSAGE_CHARS_MAX + "test answered 400: ".len());
    let endless = Play::json(500, vec![b'x'; 1 << 16]).ending(Ending::Endless);
    assert_eq!(code_and_retry(endless).await, expected("upstream_error", Retry::Backoff));
}

#[tokio::test]
async fn a_key_that_the_upstream_repeats_is_hidden() {
    let server = serve(error(401, "the key sk-secret-1 is wrong")).await;
    let config = RemoteConfig { api_key: Some("sk-secret-1".to_owned()), ..config(&server) };
    let model = OpenAiChat::new(config).unwrap();
    let error = collect(&model, request("hi")).await.1.unwrap();
    assert_eq!(without_address(&error.message), "test answered 401: the key [hidden] is wrong; check api_key");
    assert!(!format!("{model:?}").contains("sk-secret-1"));
}

#[tokio::test]
async fn garbage_may_be_retried() {
    for data in ["{not json", "7", "[]", r#"{"choices": 7}"#, r#"{"choices": [{"delta": {"content": 7}}]}"#] {
        assert_eq!(
            code_and_retry(Play::events(&[content_chunk("a").as_str(), data])).await,
            expected("upstream_garbage", Retry::Backoff),
            "{data}"
        );
    }
    let not_text = Play::pieces([&b"data: \xff\xfe\n\n"[..]]);
    assert_eq!(code_and_retry(not_text).await, expected("upstream_garbage", Retry::Backoff));
    for body in ["{}", "not json", r#"{"choices": []}"#] {
        assert_eq!(code_and_retry(Play::json(200, body)).await, expected("upstream_garbage", Retry::Backoff), "{body}");
    }
    let nameless = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a"}]}, "finish_reason": "tool_calls"}]});
    assert_eq!(code_and_retry(Play::events(&[nameless.to_string()])).await, expected("upstream_garbage", Retry::Backoff));
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_mapped_like_any_other() {
    let broken_off = |error: serde_json::Value| Play::events(&[content_chunk("a"), json!({ "error": error }).to_string()]);
    let plain = failure(broken_off(json!({"message": "gone"}))).await;
    assert_eq!((plain.code.as_str(), plain.retry), ("upstream_error", Retry::Backoff));
    assert_eq!(without_address(&plain.message), "test broke off: gone");
    assert_eq!(code_and_retry(broken_off(json!({"code": 429}))).await, expected("rate_limited", Retry::Backoff));
    assert_eq!(code_and_retry(broken_off(json!({"code": "400"}))).await, expected("refused", Retry::Never));
}

#[tokio::test]
async fn a_huge_event_is_not_collected() {
    let play = Play::pieces(["data: ".to_owned(), "x".repeat(1 << 16)]).ending(Ending::Endless);
    let error = failure(play).await;
    assert_eq!((error.code.as_str(), error.retry), ("answer_too_large", Retry::Never));
    assert_eq!(without_address(&error.message), format!("test: one event has more than {EVENT_BYTES_MAX} bytes"));
}

#[tokio::test]
async fn an_endless_answer_is_stopped() {
    let play = Play::events(&[content_chunk(&"x".repeat(1 << 16))]).ending(Ending::Endless);
    let (events, error) = outcome(play).await;
    assert_eq!(error.map(|error| (error.code, error.retry)), Some(expected("answer_too_large", Retry::Never)));
    let length = |event: &ModelEvent| match event {
        ModelEvent::Text(text) => text.len(),
        ModelEvent::Taken
        | ModelEvent::Model(_)
        | ModelEvent::Reasoning(_)
        | ModelEvent::Call(_)
        | ModelEvent::Usage(_)
        | ModelEvent::Finish(_) => 0,
    };
    assert_eq!(events.iter().map(length).sum::<usize>(), CONTENT_BYTES_MAX);
    let empty = Play::events(&[format!("{}{}", content_chunk(""), " ".repeat(1 << 16))]).ending(Ending::Endless);
    assert_eq!(without_address(&failure(empty).await.message), format!("test: the answer has more than {ANSWER_BYTES_MAX} bytes"));
}

#[tokio::test]
async fn an_endless_answer_that_is_not_streamed_is_stopped() {
    let play = Play::json(200, vec![b' '; 1 << 16]).ending(Ending::Endless);
    assert_eq!(code_and_retry(play).await, expected("answer_too_large", Retry::Never));
}

#[tokio::test]
async fn too_many_calls_are_refused() {
    let call = |index: usize| json!({"index": index, "function": {"name": "f", "arguments": "{}"}});
    let calls: Vec<_> = (0..=CALLS_MAX).map(call).collect();
    let play = Play::events(&[json!({"choices": [{"delta": {"tool_calls": calls}}]}).to_string()]);
    assert_eq!(code_and_retry(play).await, expected("answer_too_large", Retry::Never));
}

#[tokio::test]
async fn a_missing_server_may_be_retried() {
    let server = serve(Play::pieces([""])).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = RemoteConfig { base_url: base_url.clone(), ..config(&server) };
    let error = collect(&OpenAiChat::new(config).unwrap(), request("hi")).await.1.unwrap();
    assert_eq!((error.code.as_str(), error.retry), ("upstream_unreachable", Retry::Backoff));
    assert!(error.message.starts_with(&format!("cannot reach test at {base_url}/chat/completions: ")), "{error:?}");
}
