//! One script for every provider: each gives the same results, fails in the same ways, and can replace another one.

use serde_json::{Value, json};
use windlass_tests::{Dialect, FakeModel, McpServer, Mode, Scene, Server, ServerBuilder, Speech, in_every_mode, until};

use crate::support::{ask, ask_with, mcp, scripted, with};

const ITERATIONS: &str = r#"
laps:
  - { text: "Let me see.", chunk: 4, calls: [{ tool: echo, arguments: { text: alpha } }, { tool: fail, arguments: {} }], usage: { in: 11, out: 3, cached: 2 } }
  - { calls: [{ tool: add, arguments: { a: 2, b: 3 } }, { tool: echo, arguments: "{broken" }], usage: { in: 12, out: 4 } }
  - { text: "It is alpha, and five.", chunk: 5, finish: length, usage: { in: 13, out: 5, cached: 12 } }
"#;

fn pieces(text: &str, bytes: usize) -> Vec<String> {
    text.as_bytes().chunks(bytes).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
}

/// The same iterations as scenes.
fn iterations() -> Vec<Scene> {
    let first = vec![("echo", json!({ "text": "alpha" }).to_string()), ("fail", "{}".to_owned())];
    let second = vec![("add", json!({ "a": 2, "b": 3 }).to_string()), ("echo", "{broken".to_owned())];
    let speech = |text: &str, bytes, calls, usage, is_short| {
        Scene::Speak(Speech { reasoning: None, chunks: pieces(text, bytes), calls, usage: Some(usage), is_short, ..Speech::default() })
    };
    vec![
        speech("Let me see.", 4, first, [11, 3, 2], false),
        speech("", 1, second, [12, 4, 0], false),
        speech("It is alpha, and five.", 5, Vec::new(), [13, 5, 12], true),
    ]
}

/// A server whose model uses this protocol.
async fn server_with_dialect(dialect: Dialect, scenes: Vec<Scene>, tools: &McpServer) -> (Server, FakeModel) {
    let model = FakeModel::start(scenes).await;
    let config = format!(
        "{}{}limits: {{ sweep_interval: 50ms, backoff: 10ms, attempts: 3 }}\n",
        model.config_in(dialect).replace("name: fake", "name: m"),
        tools.config("tools")
    );
    (ServerBuilder::new(&config).start().await, model)
}

#[tokio::test]
async fn a_043_the_same_script_gives_the_same_over_every_provider_in_every_mode() {
    let (server, _tools) = scripted(ITERATIONS).await;
    let expected = server.respond(Mode::Plain, ask_with("go", &[mcp()])).await;
    assert_eq!((expected.status(), &expected.object["usage"]["total_tokens"]), ("incomplete", &json!(48)));
    assert_eq!(expected.shape(), ["message", "mcp_call", "mcp_call", "mcp_call", "mcp_call", "message"]);
    let tools = McpServer::start().await;
    for dialect in Dialect::EVERY {
        let modes = [Mode::Plain, Mode::Streamed, Mode::Background, Mode::Followed, Mode::Socket];
        let scenes = modes.iter().flat_map(|_| iterations()).collect();
        let (server, model) = server_with_dialect(dialect, scenes, &tools).await;
        for mode in modes {
            let made = server.respond(mode, ask_with("go", &[mcp()])).await;
            assert_eq!(made.essence(), expected.essence(), "{dialect:?}, {mode:?}");
        }
        assert_eq!(model.asked().len(), 3 * modes.len(), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_036_a_cut_stream_of_any_provider_is_continued_and_the_cut_is_invisible() {
    let tools = McpServer::start().await;
    for dialect in Dialect::EVERY {
        let scenes = vec![Scene::Cut("It was a dark"), Scene::Say("It was a dark and stormy night.")];
        let (server, model) = server_with_dialect(dialect, scenes, &tools).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "It was a dark and stormy night."), "{dialect:?}");
        assert_eq!((made.shape(), model.asked().len()), (vec!["message".to_owned()], 2), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_036_a_cut_stream_of_any_provider_that_continues_differently_continues_in_another_message() {
    let tools = McpServer::start().await;
    for dialect in Dialect::EVERY {
        let scenes = vec![Scene::Cut("It was a dark"), Scene::Say("Something else entirely.")];
        let (server, model) = server_with_dialect(dialect, scenes, &tools).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!(made.text(), "It was a dark|Something else entirely.", "{dialect:?}");
        let last = model.asked().pop().expect("it was asked").to_string();
        assert!(last.contains("It was a dark") && last.contains("was cut off"), "{dialect:?}: the model gets: {last}");
    }
}

/// A server whose model accepts the beginning of its answer in the prompt.
async fn prefilled(dialect: Dialect, scenes: Vec<Scene>) -> (Server, FakeModel) {
    let model = FakeModel::start(scenes).await;
    let models = model.config_in(dialect).replace("name: fake", "name: m, prefill: true");
    let config = format!("{models}limits: {{ sweep_interval: 50ms, backoff: 10ms, attempts: 3 }}\n");
    (ServerBuilder::new(&config).start().await, model)
}

const PREFILLED: [Dialect; 2] = [Dialect::Chat, Dialect::Messages];

#[tokio::test]
async fn a_036_a_model_that_continues_differently_gets_its_text_to_continue_from() {
    for dialect in PREFILLED {
        let scenes = vec![Scene::Cut("It was a dark"), Scene::Say("Something else entirely."), Scene::Say(" and stormy night.")];
        let (server, model) = prefilled(dialect, scenes).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "It was a dark and stormy night."), "{dialect:?}");
        let asked = model.asked();
        let last_message = |asked: &Value| asked["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
        let roles: Vec<Value> = asked.iter().map(|asked| last_message(asked)["role"].clone()).collect();
        assert_eq!(roles, ["user", "user", "assistant"], "{dialect:?}: the text is only sent to a model that does not repeat it");
        assert!(last_message(&asked[2]).to_string().contains("It was a dark"), "{dialect:?}: {}", asked[2]);
        assert!(dialect == Dialect::Messages || asked[2]["continue_final_message"] == true, "{}", asked[2]);
    }
}

#[tokio::test]
async fn a_036_half_an_object_is_continued_where_the_provider_accepts_a_prefix() {
    let format = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" } });
    for dialect in PREFILLED {
        let (server, _model) = prefilled(dialect, vec![Scene::Cut("{\"a\":"), Scene::Say("{\"b\": 2}"), Scene::Say(" 1}")]).await;
        let made = server.respond(Mode::Streamed, with(ask("go"), json!({ "text": { "format": format } }))).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "{\"a\": 1}"), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_036_a_model_that_refuses_its_text_continues_in_another_message() {
    for dialect in PREFILLED {
        let otherwise = || Scene::Say("Something else.");
        let refused = vec![Scene::Cut("It was a dark"), otherwise(), Scene::Fail(400, Vec::new()), otherwise()];
        let (server, model) = prefilled(dialect, refused).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "It was a dark|Something else."), "{dialect:?}");
        assert_eq!(model.asked().len(), 4, "{dialect:?}");
    }
    // Anthropic refuses a beginning that ends with a space, so the server does not send one.
    let (server, model) = prefilled(Dialect::Messages, vec![Scene::Cut("It was "), Scene::Say("Else."), Scene::Say("Else.")]).await;
    let made = server.respond(Mode::Streamed, ask("go")).await;
    assert_eq!((made.text().as_str(), model.asked().len()), ("It was |Else.", 3));
}

#[tokio::test]
async fn a_036_half_an_object_of_any_provider_fails_the_response() {
    let tools = McpServer::start().await;
    let format = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" } });
    for dialect in Dialect::EVERY {
        let (server, _model) = server_with_dialect(dialect, vec![Scene::Cut("{\"a\":"), Scene::Say("{\"b\": 2}")], &tools).await;
        let made = server.respond(Mode::Streamed, with(ask("go"), json!({ "text": { "format": format } }))).await;
        assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!("stream_cut")), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_036_a_provider_that_is_cut_or_fails_again_and_again_fails_the_response() {
    let tools = McpServer::start().await;
    for dialect in Dialect::EVERY {
        for (scene, code, asked) in [
            (Scene::Cut("never"), "stream_cut", 3),
            (Scene::Fail(429, Vec::new()), "rate_limit_exceeded", 3),
            (Scene::Fail(529, Vec::new()), "server_is_overloaded", 3),
            (Scene::Fail(400, Vec::new()), "server_error", 1),
        ] {
            let (server, model) = server_with_dialect(dialect, vec![scene], &tools).await;
            let made = server.respond(Mode::Streamed, ask("go")).await;
            assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!(code)), "{dialect:?}");
            assert_eq!(model.asked().len(), asked, "{dialect:?}, {code}");
        }
    }
}

#[tokio::test]
async fn images_and_files_reach_every_provider() {
    let tools = McpServer::start().await;
    let content = json!([
        { "type": "input_text", "text": "see" },
        { "type": "input_image", "image_url": "data:image/png;base64,aGk=" },
        { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk=" },
    ]);
    let body = with(ask(""), json!({ "input": [{ "role": "user", "content": content }] }));
    for dialect in Dialect::EVERY {
        let (server, model) = server_with_dialect(dialect, vec![Scene::Say("seen")], &tools).await;
        server.respond(Mode::Plain, body.clone()).await;
        let asked = &model.asked()[0];
        let (image, file) = match dialect {
            Dialect::Chat => {
                (&asked["messages"][0]["content"][1]["image_url"]["url"], &asked["messages"][0]["content"][2]["file"]["file_data"])
            }
            Dialect::Responses => (&asked["input"][0]["content"][1]["image_url"], &asked["input"][0]["content"][2]["file_data"]),
            Dialect::Messages => {
                let data = |index: usize| &asked["messages"][0]["content"][index]["source"]["data"];
                (data(1), data(2))
            }
        };
        let is_whole = |value: &Value| value.as_str().is_some_and(|text| text.ends_with("aGk="));
        assert!(is_whole(image) && is_whole(file), "{dialect:?}: {asked}");
    }
}

#[tokio::test]
async fn fields_about_a_request_are_echoed_and_reach_providers_that_know_them() {
    let tools = McpServer::start().await;
    let format =
        json!({ "type": "json_schema", "name": "n", "schema": { "type": "object", "additionalProperties": false }, "strict": true });
    let fields = json!({
        "prompt_cache_key": "cache", "safety_identifier": "person", "service_tier": "default", "metadata": { "k": "v" },
        "text": { "format": format },
    });
    for dialect in Dialect::EVERY {
        let (server, model) = server_with_dialect(dialect, vec![Scene::Say("{}")], &tools).await;
        let made = server.respond(Mode::Plain, with(ask("go"), fields.clone())).await;
        for key in ["prompt_cache_key", "safety_identifier", "service_tier", "metadata"] {
            assert_eq!(made.object[key], fields[key], "{dialect:?}: {key} is repeated");
        }
        assert_eq!(made.object["text"]["format"]["schema"], format["schema"], "{dialect:?}");
        let asked = &model.asked()[0];
        let (cache, person, schema) = match dialect {
            Dialect::Chat => (&asked["prompt_cache_key"], &asked["safety_identifier"], &asked["response_format"]["json_schema"]["schema"]),
            Dialect::Responses => (&asked["prompt_cache_key"], &asked["safety_identifier"], &asked["text"]["format"]["schema"]),
            Dialect::Messages => (&Value::Null, &asked["metadata"]["user_id"], &asked["output_config"]["format"]["schema"]),
        };
        let known = if dialect == Dialect::Messages { Value::Null } else { json!("cache") };
        assert_eq!((cache, person, schema), (&known, &json!("person"), &format["schema"]), "{dialect:?}: {asked}");
        let tier = if dialect == Dialect::Messages { "standard_only" } else { "default" };
        assert_eq!(asked["service_tier"], tier, "{dialect:?}");
        assert_eq!(asked["metadata"]["k"] == "v", dialect == Dialect::Responses, "{dialect:?}");
    }
}

/// A server with two models of the same name.
async fn two(first: (&FakeModel, Dialect), second: (&FakeModel, Dialect), tools: &McpServer) -> Server {
    let entry = |(model, dialect): (&FakeModel, Dialect)| {
        format!("  - {{ name: m, provider: {}, base_url: '{}' }}\n", dialect.provider(), model.base_url)
    };
    let limits = "limits: { sweep_interval: 50ms, backoff: 10ms, attempts: 2 }\n";
    let config = format!("models:\n{}{}{}{limits}", entry(first), entry(second), tools.config("tools"));
    ServerBuilder::new(&config).start().await
}

#[tokio::test]
async fn another_model_of_the_same_name_replaces_an_unavailable_one() {
    let tools = McpServer::start().await;
    in_every_mode(async |mode| {
        let call = Scene::Call(vec![("echo", json!({ "text": "hi" }))]);
        let first = FakeModel::start(vec![call, Scene::Fail(503, Vec::new())]).await;
        let second = FakeModel::start(vec![Scene::Say("done")]).await;
        let server = two((&first, Dialect::Chat), (&second, Dialect::Messages), &tools).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
        assert_eq!((first.asked().len(), second.asked().len()), (3, 1), "the first is retried within its own iteration");
        let messages = second.asked()[0]["messages"].to_string();
        assert!(messages.contains("tool_use") && messages.contains("tool_result"), "the second knows what happened: {messages}");
        let run = made.object["windlass"]["run_id"].as_str().expect("a run").to_owned();
        let history = server.history(&run).await;
        let failed: Vec<&Value> = history.iter().filter(|event| event["kind"] == "attempt_failed").collect();
        let fallbacks: Vec<&Value> = failed.iter().map(|event| &event["fallback"]).collect();
        assert_eq!(fallbacks, [&Value::Null, &json!("m#2")], "the journal names the replacing model");
        until("the log has the line", || async {
            server.log().lines().any(|line| line.contains("asks its fallback") && line.contains("m#2")).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn another_model_is_used_after_every_error_that_another_server_may_not_have() {
    let tools = McpServer::start().await;
    for scene in [Scene::Fail(429, Vec::new()), Scene::Fail(500, Vec::new()), Scene::CutSpeech(silent())] {
        let (first, second) = (FakeModel::start(vec![scene]).await, FakeModel::start(vec![Scene::Say("done")]).await);
        let server = two((&first, Dialect::Responses), (&second, Dialect::Responses), &tools).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), made.text().as_str(), first.asked().len()), ("completed", "done", 2));
    }
}

/// An answer that has begun and has no content.
fn silent() -> Speech {
    Speech { chunks: vec![String::new()], ..Speech::default() }
}

#[tokio::test]
async fn no_model_replaces_one_that_refuses_or_has_begun_to_stream() {
    let tools = McpServer::start().await;
    for scene in [Scene::Fail(400, Vec::new()), Scene::Fail(401, Vec::new()), Scene::Cut("It was a dark")] {
        let (first, second) = (FakeModel::start(vec![scene]).await, FakeModel::start(vec![Scene::Say("never")]).await);
        let server = two((&first, Dialect::Chat), (&second, Dialect::Chat), &tools).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), second.asked().len()), ("failed", 0), "{:#}", made.object);
    }
}

#[tokio::test]
async fn the_replacing_model_is_known_after_a_kill() {
    let tools = McpServer::start().await;
    let (first, second) =
        (FakeModel::start(vec![Scene::Fail(503, Vec::new())]).await, FakeModel::start(vec![Scene::Hang, Scene::Say("done")]).await);
    let server = two((&first, Dialect::Responses), (&second, Dialect::Chat), &tools).await;
    let asked = server.ask(Mode::Background, ask("go"));
    let id = asked.id().await;
    second.asked_times(1).await;
    asked.hang_up();
    let server = server.restart(&[]).await;
    assert_eq!(server.over(&id).await["output"][0]["content"][0]["text"], "done");
    assert_eq!((first.asked().len(), second.asked().len()), (2, 2), "the first is not asked again");
}
