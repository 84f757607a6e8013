//! The offline model: every feature of a script, and the same answer every time.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails the test, which is what it is for")]

mod support;

use std::time::Duration;

use futures_util::StreamExt;
use support::{call, collect, request, text, usage};
use windlass_kernel::{FailureCause, FailureCode};
use windlass_models::{ScriptError, Scripted, limits::SCRIPTED_CONCURRENCY};
use windlass_ports::{Model, ModelError, ModelEvent, ModelMessage, ModelRequest, ModelTool, Retry};

fn scripted(yaml: &str) -> Scripted {
    Scripted::from_yaml("offline", yaml).unwrap()
}

fn at(input: &str, iteration: u32, attempt: u32) -> ModelRequest {
    ModelRequest { iteration, attempt, ..request(input) }
}

async fn text_of_reply(model: &Scripted, request: ModelRequest) -> String {
    let (events, error) = collect(model, request).await;
    assert_eq!(error, None);
    let text = |event| match event {
        ModelEvent::Text(text) => text,
        ModelEvent::Taken
        | ModelEvent::Model(_)
        | ModelEvent::Reasoning(_)
        | ModelEvent::Call(_)
        | ModelEvent::Usage(_)
        | ModelEvent::Finish(_) => String::new(),
    };
    events.into_iter().map(text).collect()
}

async fn failure(model: &Scripted, request: ModelRequest) -> Option<ModelError> {
    collect(model, request).await.1
}

#[tokio::test]
async fn the_first_rule_that_fits_answers() {
    let model = scripted(
        "
rules:
  - when: { input: weather, iteration: 2, result: sunny }
    reply: { text: It is sunny. }
  - when: { input: weather }
    reply: { text: I will look. }
  - when: { iteration: 7 }
    reply: { text: seven }
  - when: { any: true }
    reply: { text: What? }
  - reply: { text: never }
",
    );
    assert_eq!(text_of_reply(&model, at("the weather", 1, 1)).await, "I will look.");
    assert_eq!(text_of_reply(&model, at("hello", 7, 1)).await, "seven");
    assert_eq!(text_of_reply(&model, at("hello", 1, 1)).await, "What?");
    let mut with_result = at("the weather", 2, 1);
    let result = ModelMessage::ToolResult { provider_id: "c".into(), tool: "look".into(), output: "it is sunny here".into() };
    with_result.messages.push(result);
    assert_eq!(text_of_reply(&model, with_result.clone()).await, "It is sunny.");
    // The results of an earlier turn do not count in this one.
    with_result.messages.push(ModelMessage::User("more weather".into()));
    assert_eq!(text_of_reply(&model, with_result).await, "I will look.");
}

#[tokio::test]
async fn replies_by_iteration_answer_in_order_and_then_end() {
    let model = scripted("laps:\n  - text: one\n  - text: two\n");
    assert_eq!(text_of_reply(&model, at("x", 1, 1)).await, "one");
    assert_eq!(text_of_reply(&model, at("x", 2, 1)).await, "two");
    let error = failure(&model, at("x", 3, 1)).await.unwrap();
    assert_eq!((error.code.as_str(), error.retry), ("script_ended", Retry::Never));
    assert_eq!(error.message, "the script has no reply for iteration 3 of this input");
}

#[tokio::test]
async fn rules_come_before_replies_by_iteration() {
    let model = scripted("rules: [{ when: { input: b }, reply: { text: rule } }]\nlaps: [{ text: lap }]");
    assert_eq!(text_of_reply(&model, at("a", 1, 1)).await, "lap");
    assert_eq!(text_of_reply(&model, at("b", 1, 1)).await, "rule");
}

#[tokio::test]
async fn a_reply_has_text_in_pieces_then_calls_then_usage() {
    let model = scripted(
        r#"
laps:
  - text: "Grüße an alle"
    chunk: 4
    usage: { in: 12, out: 5 }
    calls:
      - { tool: f, arguments: { b: [1, two, null], a: true } }
      - { tool: g, arguments: "{not json" }
      - { tool: h }
"#,
    );
    let (events, error) = collect(&model, at("x", 1, 1)).await;
    let pieces = ["Grü", "ße ", "an a", "lle"].map(text);
    let calls =
        [call("call_1_0", "f", r#"{"a":true,"b":[1,"two",null]}"#), call("call_1_1", "g", "{not json"), call("call_1_2", "h", "{}")];
    assert_eq!(events, [&pieces[..], &calls[..], &[usage(12, 5)]].concat());
    assert_eq!(error, None);
}

#[tokio::test]
async fn usage_is_counted_where_the_script_gives_none() {
    let (events, _) = collect(&scripted("laps: [{ text: twelve bytes }]"), at("12345678", 1, 1)).await;
    assert_eq!(events.last(), Some(&usage(3, 4)));
}

#[tokio::test]
async fn a_failure_affects_the_first_attempts_only() {
    let model =
        scripted("laps: [{ text: ok, fail: { code: 429, message: slow down, retry_after_ms: 50, times: 2 } }, { fail: { code: 400 } }]");
    for attempt in [1, 2, 1] {
        let error = ModelError {
            code: "rate_limited".into(),
            cause: FailureCause::Status(429),
            message: "slow down".into(),
            retry: Retry::AfterMs(50),
        };
        assert_eq!(collect(&model, at("x", 1, attempt)).await, (Vec::new(), Some(error)));
    }
    assert_eq!(text_of_reply(&model, at("x", 1, 3)).await, "ok");
    // Without `times` no attempt succeeds.
    let error =
        ModelError { code: "refused".into(), cause: FailureCause::Status(400), message: "the script says so".into(), retry: Retry::Never };
    assert_eq!(failure(&model, at("x", 2, 99)).await, Some(error));
}

#[tokio::test]
async fn a_cut_comes_in_the_middle_and_no_call_follows_it() {
    let yaml = "laps: [{ text: abcdef, chunk: 2, calls: [{ tool: f }], cut_after: CUT }]";
    let cut = |cut: &str| scripted(&yaml.replace("CUT", cut));
    for (spelled, expected) in [("0", vec![]), ("2", vec![text("ab"), text("cd")]), ("9", vec![text("ab"), text("cd"), text("ef")])] {
        let (events, error) = collect(&cut(spelled), at("x", 1, 50)).await;
        let error = error.unwrap();
        assert_eq!((events, error.code.as_str(), error.retry), (expected, "stream_cut", Retry::Backoff));
    }
    let once = cut("{ chunks: 1, times: 1 }");
    assert_eq!(collect(&once, at("x", 1, 1)).await.0, [text("ab")]);
    assert_eq!(text_of_reply(&once, at("x", 1, 2)).await, "abcdef");
    // The first attempt fails, the next is cut, and the last answers.
    let both = scripted("laps: [{ text: abc, chunk: 1, fail: { code: 500, times: 1 }, cut_after: { chunks: 2, times: 2 } }]");
    let codes = [failure(&both, at("x", 1, 1)).await, failure(&both, at("x", 1, 2)).await].map(|error| error.unwrap().code);
    assert_eq!(codes, [FailureCode::UpstreamError, FailureCode::StreamCut]);
    assert_eq!(text_of_reply(&both, at("x", 1, 3)).await, "abc");
}

#[tokio::test]
async fn delays_are_kept() {
    let model = scripted("laps: [{ text: abc, chunk: 1, chunk_delay_ms: 20, delay_ms: 30 }]");
    let mut stream = model.call(at("x", 1, 1));
    let start = tokio::time::Instant::now();
    assert_eq!(stream.next().await, Some(Ok(text("a"))));
    assert!(start.elapsed() >= Duration::from_millis(30));
    stream.by_ref().collect::<Vec<_>>().await;
    assert!(start.elapsed() >= Duration::from_millis(70));
}

#[tokio::test]
async fn the_same_request_is_always_answered_the_same() {
    let yaml = "
rules:
  - when: { iteration: 1 }
    reply: { text: Some longer text in pieces, chunk: 5, calls: [{ tool: f, arguments: { b: 1, a: 2 } }], cut_after: { chunks: 2, times: 1 } }
  - reply: { text: the rest }
";
    let tool = ModelTool { name: "f".into(), description: String::new(), parameters: serde_json::json!({}), strict: None };
    for (iteration, attempt) in [(1, 1), (1, 2), (2, 1)] {
        let request = ModelRequest { tools: [tool.clone()].into(), ..at("call f {\"x\": 1} and call f", iteration, attempt) };
        let mut answers = Vec::new();
        // The answer depends neither on earlier answers nor on the instance.
        let (one, other) = (scripted(yaml), scripted(yaml));
        for model in [&one, &other, &one, &one] {
            answers.push(collect(model, request.clone()).await);
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        let by_words = Scripted::by_words("offline");
        assert_eq!(collect(&by_words, request.clone()).await, collect(&by_words.clone(), request).await);
    }
}

#[tokio::test]
async fn keywords_call_tools_and_the_results_are_repeated() {
    let model = Scripted::by_words("offline");
    assert_eq!((model.provider(), model.concurrency()), ("offline", SCRIPTED_CONCURRENCY));
    let tool = ModelTool { name: "echo".into(), description: String::new(), parameters: serde_json::json!({}), strict: None };
    let mut request = ModelRequest { tools: [tool].into(), ..at(r#"call echo {"text": "hi"} and call echo"#, 1, 1) };
    let (events, error) = collect(&model, request.clone()).await;
    assert_eq!(error, None);
    assert_eq!(events[..2], [call("call_1_0", "echo", r#"{"text": "hi"}"#), call("call_1_1", "echo", "{}")]);
    let result = |id: &str, output: &str| ModelMessage::ToolResult { provider_id: id.into(), tool: "echo".into(), output: output.into() };
    request.messages.extend([result("call_1_0", "hi"), result("call_1_1", "nothing")]);
    request.iteration = 2;
    assert_eq!(text_of_reply(&model, request).await, "The results are: echo gave hi; echo gave nothing");
}

#[tokio::test]
async fn keywords_ask_for_faults() {
    let model = Scripted::by_words("offline").with_concurrency(2);
    assert_eq!(model.concurrency(), 2);
    let input = "fail 503, please";
    assert_eq!(failure(&model, at(input, 1, 1)).await.unwrap().code, FailureCode::Overloaded);
    assert_eq!(text_of_reply(&model, at(input, 1, 2)).await, "You said: fail 503, please");
    let (events, error) = collect(&model, at("a sentence of some length: cut after 1", 1, 1)).await;
    assert_eq!((events.len(), error.unwrap().code.as_str()), (1, "stream_cut"));
}

fn error_of(yaml: &str) -> (u64, String) {
    match Scripted::from_yaml("offline", yaml) {
        Err(ScriptError::Format { line, message }) => (line, message),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("accepted: {yaml}"),
    }
}

#[test]
fn an_error_names_its_line() {
    for (yaml, line, part) in [
        ("rules: []\nlabs: []\n", 2, "labs"),
        ("laps:\n  - text: a\n  - txet: b\n", 3, "txet"),
        ("laps:\n  - text: a\n    calls:\n      - tool: f\n        argument: {}\n", 5, "argument"),
        ("laps:\n  - usage: { in: 1,\n      tokens: 2 }\n", 3, "tokens"),
        ("laps:\n  - text: a\n    fail: { code: 500, time: 1 }\n", 3, "time"),
        ("laps:\n  - text: a\n    fail:\n      code: 200\n", 4, "HTTP status from 400 to 599"),
        ("laps:\n  - text: a\n    cut_after: { chunks: 1,\n      time: 2 }\n", 4, "time"),
        ("laps:\n  - text: a\n    cut_after: soon\n", 3, "number of pieces"),
        ("laps:\n  - text: a\n    cut_after: -1\n", 3, ""),
        ("laps:\n  - text: a\n    chunk: 0\n", 3, "nonzero"),
        ("laps:\n  - text: a\n    text: b\n", 3, "text"),
        ("rules:\n  - when: { inputs: a }\n    reply: {}\n", 2, "inputs"),
        ("rules:\n  - when: { iteration: 0 }\n    reply: {}\n", 2, "nonzero"),
        ("rules:\n  - when: { any: false }\n    reply: {}\n", 2, "`any` can only be true"),
        ("rules:\n  - reply: {}\n  - when: { any: true, input: x }\n    reply: {}\n", 3, "`any` stands alone"),
        ("rules:\n  - when: { input: x }\n", 2, "reply"),
        ("{}\n", 1, "`rules` or `laps`"),
        ("", 1, ""),
        ("laps:\n  - text: [unclosed\n", 2, ""),
    ] {
        let (at, message) = error_of(yaml);
        assert!(message.contains(part), "{yaml}\n{message}");
        assert_eq!(at, line, "{yaml}\n{message}");
    }
    let error = Scripted::from_yaml("offline", "laps:\n  - usage: { on: 1 }\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2 of the script: unknown field `on`, expected one of in, out, cached, cache_written, reasoning");
}

#[tokio::test]
async fn a_script_is_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.yaml");
    std::fs::write(&path, "laps: [{ text: from the file }]").unwrap();
    assert_eq!(text_of_reply(&Scripted::from_file("offline", &path).unwrap(), at("x", 1, 1)).await, "from the file");
    let missing = Scripted::from_file("offline", &folder.path().join("none.yaml"));
    assert!(matches!(missing, Err(ScriptError::Read { .. })));
    std::fs::write(&path, "# ".repeat(3 << 20)).unwrap();
    assert!(matches!(Scripted::from_file("offline", &path), Err(ScriptError::TooLarge { .. })));
}
