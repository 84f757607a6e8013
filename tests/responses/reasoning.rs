//! Reasoning of models: streamed before the output that follows from it, and given back to the provider that made it.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_tests::{
    Dialect, FakeModel, McpServer, Mode, Next, ResponseRecord, Scene, Server, ServerBuilder, Speech, StreamEvent, in_every_mode,
    responses::check_events, until,
};

use crate::support::{after, ask, ask_with, function, mcp, output, with};

/// Providers that accept their reasoning back.
const REASONING_DIALECTS: [Dialect; 2] = [Dialect::Responses, Dialect::Messages];

fn speech(reasoning: &'static str, chunks: &[&str], calls: &[(&'static str, Value)]) -> Speech {
    let calls = calls.iter().map(|(tool, arguments)| (*tool, arguments.to_string())).collect();
    let chunks = chunks.iter().map(|chunk| (*chunk).to_owned()).collect();
    // The events arrive one by one, so the reasoning is complete before the text that follows from it.
    Speech { reasoning: Some(reasoning), chunks, calls, pause: Duration::from_millis(20), ..Speech::default() }
}

fn think(reasoning: &'static str, chunks: &[&str], calls: &[(&'static str, Value)]) -> Scene {
    Scene::Speak(speech(reasoning, chunks, calls))
}

async fn start(model: &FakeModel, dialect: Dialect, tools: &McpServer, more: &str) -> Server {
    let limits = "limits: { sweep_interval: 50ms, backoff: 10ms }\n";
    let config = format!("{}{}{limits}{more}", model.config_in(dialect).replace("name: fake", "name: m"), tools.config("tools"));
    ServerBuilder::new(&config).start().await
}

fn thinking(body: Value) -> Value {
    with(body, json!({ "reasoning": { "effort": "low", "summary": "auto" } }))
}

fn sealed(body: Value) -> Value {
    with(body, json!({ "include": ["reasoning.encrypted_content"] }))
}

/// The kinds of the messages in a request to the model, reasoning with its signature.
fn message_types(request: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let blocks = list(&request["messages"]).iter().flat_map(|message| list(&message["content"])).collect::<Vec<_>>();
    let all = if blocks.is_empty() { list(&request["input"]) } else { blocks };
    let seal = |item: &Value| [&item["encrypted_content"], &item["signature"]].map(text).concat();
    all.iter().map(|item| format!("{} {}", text(&item["type"]), seal(item)).trim().to_owned()).collect()
}

fn data(events: &[StreamEvent]) -> Vec<Value> {
    events.iter().map(|event| event.data.clone()).collect()
}

/// Asserts that a replay has the same events as the stream had.
async fn is_replayed(server: &Server, made: &ResponseRecord) {
    let replayed = server.replay(made.id()).await;
    check_events(&replayed);
    if made.mode.streams() {
        assert_eq!(data(&made.events), data(&replayed), "{:?}", made.mode);
    }
}

fn summaries(made: &ResponseRecord) -> Vec<String> {
    let items = made.items("reasoning");
    items.iter().map(|item| item["summary"][0]["text"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn reasoning_comes_before_its_output_and_goes_back_to_its_provider() {
    let tools = McpServer::start().await;
    for dialect in REASONING_DIALECTS {
        let scenes = [
            think("I should look.", &["Let me ", "see."], &[("echo", json!({ "text": "hi" }))]),
            think("Once more.", &[], &[("echo", json!({ "text": "ho" }))]),
            think("Now I know.", &["It is ", "hi."], &[]),
        ];
        let model = FakeModel::start(Mode::every().iter().flat_map(|_| scenes.clone()).collect()).await;
        let server = start(&model, dialect, &tools, "").await;
        in_every_mode(async |mode| {
            let before = model.asked().len();
            let made = server.respond(mode, thinking(ask_with("go", &[mcp()]))).await;
            let shape = ["reasoning", "message", "mcp_call", "reasoning", "mcp_call", "reasoning", "message"];
            assert_eq!((made.status(), made.shape()), ("completed", shape.map(str::to_owned).to_vec()), "{dialect:?}");
            assert_eq!(summaries(&made), ["I should look.", "Once more.", "Now I know."]);
            assert!(made.items("reasoning").iter().all(|item| item.get("encrypted_content").is_none() && item["status"] == "completed"));
            is_replayed(&server, &made).await;
            let asked = &model.asked()[before..];
            let messages = message_types(&asked[2]);
            let (reasoning_type, message_type, call) = match dialect {
                Dialect::Messages => ("thinking", "text", "tool_use"),
                Dialect::Chat | Dialect::Responses => ("reasoning", "message", "function_call"),
            };
            let result = if call == "tool_use" { "tool_result" } else { "function_call_output" };
            let first = format!("{reasoning_type} sealed I should look.");
            let second = format!("{reasoning_type} sealed Once more.");
            assert_eq!(messages, [message_type, &first, message_type, call, result, &second, call, result], "{dialect:?}");
        })
        .await;
        let made = server.respond(Mode::Plain, sealed(thinking(ask_with("go", &[mcp()])))).await;
        let seals: Vec<Value> = made.items("reasoning").iter().map(|item| item["encrypted_content"].clone()).collect();
        assert!(seals.iter().all(|seal| seal.as_str().is_some_and(|seal| seal.contains(":sealed "))), "{seals:?}");
    }
}

#[tokio::test]
async fn reasoning_in_a_conversation_goes_back_and_its_signature_is_shown_on_request() {
    let tools = McpServer::start().await;
    for dialect in REASONING_DIALECTS {
        let model = FakeModel::start(vec![think("So it is.", &["Yes."], &[]), Scene::Say("Still.")]).await;
        let server = start(&model, dialect, &tools, "").await;
        let id = server.post("/v1/conversations", json!({})).await.ok()["id"].clone();
        let message = |text: &str| with(thinking(ask(text)), json!({ "conversation": id }));
        let made = server.respond(Mode::Streamed, message("go")).await;
        assert_eq!(made.shape(), ["reasoning", "message"]);
        server.respond(Mode::Plain, message("sure?")).await;
        assert!(message_types(&model.asked()[1]).iter().any(|message| message.ends_with(" sealed So it is.")), "{dialect:?}");
        let path = format!("/v1/conversations/{}/items?order=asc", id.as_str().expect("an id"));
        let listed = server.get(&path).await.ok();
        assert_eq!(listed["data"].as_array().expect("data")[1..3], made.output());
        let sealed = server.get(&format!("{path}&include[]=reasoning.encrypted_content")).await.ok();
        assert!(sealed["data"][1]["encrypted_content"].as_str().is_some_and(|seal| seal.contains(":sealed ")), "{sealed}");
        let read = server.get(&format!("/v1/responses/{}?include[]=reasoning.encrypted_content", made.id())).await.ok();
        assert_eq!(read["output"][0], sealed["data"][1], "and so is a response that is read");
    }
}

#[tokio::test]
async fn a_chain_keeps_reasoning_for_its_provider_and_for_no_other() {
    let tools = McpServer::start().await;
    let function_call = think("It is the client's.", &[], &[("mine", json!({}))]);
    let thinker = FakeModel::start(vec![function_call.clone(), Scene::Say("done")]).await;
    let other = FakeModel::start(vec![Scene::Say("done")]).await;
    let entry = |name: &str, model: &FakeModel, dialect: Dialect| {
        format!("  - {{ name: {name}, provider: {}, base_url: '{}' }}\n", dialect.provider(), model.base_url)
    };
    let models = entry("m", &thinker, Dialect::Responses) + &entry("other", &other, Dialect::Messages);
    let server = ServerBuilder::new(&format!("models:\n{models}{}", tools.config("tools"))).start().await;
    let first = server.respond(Mode::Streamed, thinking(ask_with("go", &[function("mine")]))).await;
    assert_eq!(first.shape(), ["reasoning", "function_call"]);
    let follow_up = thinking(after(&first, json!([output(&first.items("function_call")[0], "ok")]), &[function("mine")]));
    server.respond(Mode::Streamed, follow_up.clone()).await;
    let messages = message_types(&thinker.asked()[1]);
    assert_eq!(messages, ["message", "reasoning sealed It is the client's.", "function_call", "function_call_output"]);
    let made = server.respond(Mode::Streamed, with(follow_up, json!({ "model": "other" }))).await;
    assert_eq!(made.text(), "done");
    assert_eq!(message_types(&other.asked()[0]), ["text", "tool_use", "tool_result"], "another model's reasoning is left out");
}

#[tokio::test]
async fn a_client_that_sends_everything_again_sends_reasoning_too() {
    let tools = McpServer::start().await;
    for dialect in REASONING_DIALECTS {
        let model = FakeModel::start(vec![think("It is the client's.", &["Yours."], &[("mine", json!({}))]), Scene::Say("done")]).await;
        let server = start(&model, dialect, &tools, "").await;
        let body = sealed(thinking(with(ask_with("go", &[function("mine")]), json!({ "store": false }))));
        let first = server.respond(Mode::Streamed, body.clone()).await;
        let mut input = vec![json!({ "role": "user", "content": "go" })];
        input.extend(first.output());
        input.push(output(&first.items("function_call")[0], "ok"));
        let made = server.respond(Mode::Streamed, with(body, json!({ "input": input }))).await;
        assert_eq!(made.text(), "done");
        let messages = message_types(&model.asked()[1]);
        let reasoning = messages.iter().position(|item| item.ends_with("sealed It is the client's."));
        assert_eq!((reasoning, messages.len()), (Some(1), 5), "{dialect:?}: {messages:?}");
    }
}

#[tokio::test]
async fn reasoning_of_a_chat_server_is_shown_only_on_request() {
    let tools = McpServer::start().await;
    let model = FakeModel::start(vec![think("Hm, hm.", &["Yes."], &[])]).await;
    let server = start(&model, Dialect::Chat, &tools, "").await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask("go")).await;
        assert_eq!(made.shape(), ["reasoning", "message"]);
        assert!(!made.object.to_string().contains("Hm, hm."), "{:#}", made.object);
        let raw = server.respond(mode, with(ask("go"), json!({ "include": ["windlass:raw_reasoning"] }))).await;
        assert_eq!(raw.items("reasoning")[0]["content"], json!([{ "type": "reasoning_text", "text": "Hm, hm." }]));
    })
    .await;
}

#[tokio::test]
async fn a_cut_after_reasoning_streams_it_once() {
    let tools = McpServer::start().await;
    for dialect in REASONING_DIALECTS {
        let scenes = vec![Scene::CutSpeech(speech("First.", &["It was"], &[])), think("Second.", &["It was", " late."], &[])];
        let model = FakeModel::start(scenes).await;
        let server = start(&model, dialect, &tools, "").await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.text().as_str(), summaries(&made)), ("It was late.", vec!["First.".to_owned()]), "{dialect:?}");
        is_replayed(&server, &made).await;
        // Text that does not continue the streamed part becomes another message, after the reasoning that it came from.
        let scenes = vec![Scene::CutSpeech(speech("First.", &["It was"], &[])), think("Second.", &["Quite", " different."], &[])];
        let model = FakeModel::start(scenes).await;
        let server = start(&model, dialect, &tools, "").await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.text().as_str(), summaries(&made)), ("It was|Quite different.", vec!["First.".into(), "Second.".into()]));
        assert_eq!(made.shape(), ["reasoning", "message", "reasoning", "message"]);
        is_replayed(&server, &made).await;
    }
}

#[tokio::test]
async fn heartbeats_before_reasoning_keep_their_numbers() {
    let tools = McpServer::start().await;
    for scene in [think("At last.", &["Words, ", "slowly."], &[]), think("At last.", &[], &[("mine", json!({}))])] {
        let model = FakeModel::held_back(vec![scene]).await;
        let server = start(&model, Dialect::Responses, &tools, "responses: { heartbeat: 100ms }\n").await;
        let asked = server.ask(Mode::Streamed, ask_with("go", &[function("mine")]));
        let id = asked.id().await;
        let mut stream = server.follow(&id, None).await;
        let mut heartbeats = 0;
        while heartbeats < 3 {
            let Next::Event(event) = stream.next().await else { panic!("a stream of events") };
            heartbeats += usize::from(event.kind() == "response.in_progress");
        }
        model.let_answer();
        let made = asked.made(&server).await;
        assert_eq!(summaries(&made), ["At last."]);
        is_replayed(&server, &made).await;
    }
}

#[tokio::test]
async fn a_kill_after_streamed_reasoning_takes_nothing_back() {
    let tools = McpServer::start().await;
    let scene = think("Thought of.", &["One ", "two ", "three."], &[]);
    for point in ["commit.announce.before:1", "commit.announce.after:1", "commit.announce.before:2", "commit.announce.after:2"] {
        let model = FakeModel::held_back(vec![scene.clone()]).await;
        let config = format!("{}{}", model.config_in(Dialect::Messages).replace("name: fake", "name: m"), tools.config("tools"));
        let mut server = ServerBuilder::new(&config).env("WINDLASS_CRASH_AT", point).start().await;
        let asked = server.ask(Mode::Background, ask("go"));
        let id = asked.id().await;
        asked.hang_up();
        model.let_answer();
        model.let_answer();
        until("it kills itself", || {
            let is_gone = !server.is_running();
            async move { is_gone.then_some(()) }
        })
        .await;
        let server = server.restart(&[]).await;
        let response = server.over(&id).await;
        assert_eq!(response["status"], "completed", "{point}");
        let kinds: Vec<&Value> = response["output"].as_array().expect("an output").iter().map(|item| &item["type"]).collect();
        assert!(
            kinds.first().is_some_and(|kind| **kind == "reasoning") && kinds.last().is_some_and(|kind| **kind == "message"),
            "{kinds:?}"
        );
        check_events(&server.replay(&id).await);
    }
}
