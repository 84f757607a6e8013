//! Models, clients and MCP servers that send too much, too long or too slowly: every response ends clearly, and memory is bounded.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_tests::{FakeModel, McpServer, Mode, Proxy, Scene, Server, ServerBuilder, tungstenite::Message, until};

use crate::support::{after, ask, ask_with, function, mcp, messages_sent, output, server_with_model, with};

const MEGABYTE: usize = 1 << 20;
/// The limit of a model's answer in bytes.
const ANSWER: u64 = 4 << 20;

fn check_unharmed(server: &Server) {
    let log = server.log();
    assert!(!log.contains("panic") && !log.contains("by our own fault"), "{log}");
}

#[tokio::test]
async fn ten_thousand_items_reach_the_model_in_their_order() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("counted")]).await;
    let items =
        |count: usize| -> Vec<Value> { (0..count).map(|number| json!({ "role": "user", "content": format!("n{number}") })).collect() };
    let (began, before) = (Instant::now(), server.peak_bytes());
    let made = server.respond(Mode::Streamed, json!({ "model": "m", "input": items(10_000) })).await;
    assert_eq!(made.text(), "counted");
    let grown = server.grown_since(before);
    // A few copies of every item: as it came, as it is stored, and as the model gets it.
    assert!(grown < 64 * MEGABYTE as u64, "{grown}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let messages = messages_sent(&model.asked()[0]);
    assert_eq!(messages, (0..10_000).map(|number| format!("user: n{number}")).collect::<Vec<_>>());
    let last = server.get(&format!("/v1/responses/{}/input_items?limit=1", made.id())).await.ok();
    assert_eq!((&last["data"][0]["content"][0]["text"], &last["has_more"]), (&json!("n9999"), &json!(true)));
    let refused = server.refusal(Mode::Streamed, json!({ "model": "m", "input": items(10_001) })).await;
    assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("input")), "{}", refused.body);
    assert_eq!(refused.code(), "array_above_max_length");
    check_unharmed(&server);
}

#[tokio::test]
async fn a_megabyte_of_arguments_and_of_output_goes_through_whole() {
    let large = "1 MB of text ".repeat(MEGABYTE / 13);
    let arguments = json!({ "text": large }).to_string();
    let scenes =
        vec![Scene::CallAsWritten("echo", arguments.clone()), Scene::CallAsWritten("f", arguments.clone()), Scene::Say("all of it")];
    let (server, model, tools) = server_with_model(scenes).await;
    let offers = [mcp(), function("f")];
    let before = server.peak_bytes();
    let first = server.respond(Mode::Streamed, ask_with("go", &offers)).await;
    assert_eq!(first.status(), "requires_action", "{}", first.object["error"]);
    assert_eq!(tools.starts("echo")[0].arguments["text"], large);
    let (ours, theirs) = (&first.items("mcp_call")[0], &first.items("function_call")[0]);
    assert_eq!((&ours["arguments"], &ours["output"], &theirs["arguments"]), (&json!(arguments), &json!(large), &json!(arguments)));
    let second = server.respond(Mode::Streamed, after(&first, json!([output(theirs, &large)]), &offers)).await;
    assert_eq!(second.text(), "all of it");
    assert_eq!(messages_sent(&model.asked()[2]).last(), Some(&format!("tool: {large}")));
    let grown = server.grown_since(before);
    // A few copies of four such texts.
    assert!(grown < 96 * MEGABYTE as u64, "{grown}");
    check_unharmed(&server);
}

#[tokio::test]
async fn broken_arguments_are_reported_to_the_model_and_start_nothing() {
    for broken in ["{\"text\":", "nonsense", "[1]", "\"x\"", "{} {}", "{\"text\":\"\\ud800\"}", "\u{0}"] {
        let (server, model, tools) = server_with_model(vec![Scene::CallAsWritten("echo", broken.to_owned()), Scene::Say("sorry")]).await;
        let made = server.respond(Mode::Streamed, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "sorry"), "{broken:?}");
        let call = &made.items("mcp_call")[0];
        assert_eq!((&call["status"], &call["arguments"]), (&json!("failed"), &json!(broken)));
        assert!(messages_sent(&model.asked()[1])[2].contains("error"), "{broken:?}: {:?}", messages_sent(&model.asked()[1]));
        assert_eq!(tools.starts("echo").len(), 0, "{broken:?}");
        check_unharmed(&server);
    }
}

/// A server whose model sends these bytes of a stream for ever.
async fn endless(bytes: String, pause: Duration, limits: &str) -> (Server, FakeModel) {
    let model = FakeModel::start(vec![Scene::Forever(bytes, pause)]).await;
    let config = model.config().replace("name: fake", "name: m") + limits;
    (ServerBuilder::new(&config).start().await, model)
}

#[tokio::test]
async fn a_model_that_never_stops_is_cut_off() {
    let text = "for ever and ever ".repeat(1_000);
    let call =
        |arguments: &str| json!([{ "index": 0, "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } }]);
    let streams = [
        ("text", Scene::event(json!({ "content": text }))),
        ("arguments", Scene::event(json!({ "tool_calls": call(&text) }))),
        ("a line", "x".repeat(10_000)),
        ("nothing", Scene::event(json!({})) + &": a comment to fill the wire\n\n".repeat(2_000)),
    ];
    for (what, bytes) in streams {
        let (server, model) = endless(bytes, Duration::ZERO, "").await;
        // Only text is streamed before the answer is complete.
        let modes: &[Mode] = if what == "text" { &[Mode::Streamed, Mode::Plain] } else { &[Mode::Plain] };
        for mode in modes {
            let before = server.peak_bytes();
            let made = server.respond(*mode, ask_with("go", &[function("f")])).await;
            let error = &made.object["error"];
            assert_eq!((made.status(), &error["code"]), ("failed", &json!("answer_too_large")), "{what}: {error}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("larger") || text.contains("more than")), "{error}");
            // The final text is in four events of a stream, which is read twice here. Without a limit all of memory would be used.
            let grown = server.grown_since(before);
            assert!(grown < 40 * ANSWER, "{what}: {grown}");
            until("the model is hung up on", || async { (model.hanging() == 0).then_some(()) }).await;
        }
        assert_eq!(model.asked().len(), modes.len(), "{what}: asking again would bring as much again");
        check_unharmed(&server);
    }
}

#[tokio::test]
async fn a_model_that_dawdles_is_given_up_by_its_deadline() {
    let word = Scene::event(json!({ "content": "well… " }));
    let (server, model) = endless(word, Duration::from_millis(100), "limits: { model_deadline: 1s, attempts: 1 }").await;
    for mode in [Mode::Streamed, Mode::Plain] {
        let began = Instant::now();
        let made = server.respond(mode, ask("go")).await;
        assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!("model_timeout")), "{}", made.object["error"]);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        until("the model is hung up on", || async { (model.hanging() == 0).then_some(()) }).await;
    }
}

#[tokio::test]
async fn a_model_that_dawdles_is_given_up_when_the_responses_time_is_over() {
    let word = Scene::event(json!({ "content": "well… " }));
    let (server, model) = endless(word, Duration::from_millis(100), "").await;
    for mode in [Mode::Streamed, Mode::Plain] {
        let began = Instant::now();
        let body = with(ask("go"), json!({ "windlass": { "budgets": { "wall_time_s": 0.5 } } }));
        let made = server.respond(mode, body).await;
        assert_eq!((made.status(), &made.object["incomplete_details"]["reason"]), ("incomplete", &json!("max_time")), "{}", made.object);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        until("the model is hung up on", || async { (model.hanging() == 0).then_some(()) }).await;
    }
}

/// Requests a stream and reads one byte of it per second.
async fn hardly_reads(server: &Server, what: &str, body: &str) -> tokio::task::JoinHandle<()> {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    // The client's receive buffer is small, so that the server has to wait.
    socket.set_recv_buffer_size(4096).expect("a small window");
    let address = server.base().trim_start_matches("http://").parse().expect("an address");
    let mut socket = socket.connect(address).await.expect("a connection");
    let head = format!("{what} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n", server.token());
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.expect("a request");
    tokio::spawn(async move {
        while socket.read_u8().await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

#[tokio::test]
async fn slow_readers_delay_no_other_client_and_use_little_memory() {
    // Each letter is an event of more than two hundred bytes, so the stream has more than twenty megabytes.
    const LETTERS: usize = 100_000;
    let scenes = vec![Scene::Say("quick"), Scene::SayLetters(LETTERS, 1), Scene::Say("quick")];
    let (server, _model, _tools) = server_with_model(scenes).await;
    assert_eq!(server.respond(Mode::Streamed, ask("hi")).await.text(), "quick");
    let before = server.peak_bytes();
    let body = Mode::Streamed.asks(ask("go")).to_string();
    let along = hardly_reads(&server, "POST /v1/responses", &body).await;
    let ended = || server.number("SELECT count(*) FROM runs WHERE status = 'ended'");
    until("the slow reader has all of it", || async { (ended() == 2).then_some(()) }).await;
    let id = format!("resp_{}", server.database().text("SELECT lower(hex(max(run))) FROM runs"));
    // A later reader has all of it waiting at once.
    let readers = [
        along,
        hardly_reads(&server, &format!("GET /v1/responses/{id}?stream=true"), "").await,
        hardly_reads(&server, &format!("GET /v1/responses/{id}?stream=true&starting_after=5"), "").await,
    ];
    assert_eq!(server.respond(Mode::Streamed, ask("hi")).await.text(), "quick", "others are served meanwhile");
    let response = server.response(&id).await;
    let text = response["output"][0]["content"][0]["text"].as_str();
    assert_eq!((&response["status"], text.map(str::len)), (&json!("completed"), Some(LETTERS)));
    assert!(readers.iter().all(|reader| !reader.is_finished()), "they still read");
    let grown = server.grown_since(before);
    // Most of it is the memory for building an answer of all these deltas. Buffered streams would take seventy megabytes, and their events as
    // objects three times as much.
    assert!(grown < 48 << 20, "{grown}");
    readers.into_iter().for_each(|reader| reader.abort());
    check_unharmed(&server);
}

#[tokio::test]
async fn an_unread_socket_delays_no_other_client_and_uses_little_memory() {
    const LETTERS: usize = 100_000;
    let scenes = vec![Scene::Say("quick"), Scene::SayLetters(LETTERS, 1), Scene::Say("quick")];
    let (server, _model, _tools) = server_with_model(scenes).await;
    assert_eq!(server.respond(Mode::Socket, ask("hi")).await.text(), "quick");
    let before = server.peak_bytes();
    let mut socket = server.narrow_socket().await;
    socket.ask(ask("go")).await;
    socket.event().await;
    let ended = || server.number("SELECT count(*) FROM runs WHERE status = 'ended'");
    until("the reader that did not read has all of it", || async { (ended() == 2).then_some(()) }).await;
    assert_eq!(server.respond(Mode::Socket, ask("hi")).await.text(), "quick", "others are served meanwhile");
    let grown = server.grown_since(before);
    assert!(grown < 48 << 20, "{grown}");
    // When the client reads at last, the stream is complete.
    let mut letters = 0;
    let last = loop {
        let event = socket.event().await;
        letters += event.data["delta"].as_str().map_or(0, str::len);
        if event.kind() == "response.completed" {
            break event;
        }
    };
    assert_eq!((letters, last.data["response"]["output"][0]["content"][0]["text"].as_str().map(str::len)), (LETTERS, Some(LETTERS)));
    check_unharmed(&server);
}

#[tokio::test]
async fn a_socket_that_is_flooded_and_never_read_holds_little_memory() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Say("quick")]).await;
    assert_eq!(server.respond(Mode::Socket, ask("hi")).await.text(), "quick");
    let before = server.peak_bytes();
    let payload = vec![b'x'; 125];
    let floods = [Message::Ping(payload.into()), Message::text("nonsense"), Message::Binary(vec![0; 1000].into())];
    let mut flooded = Vec::new();
    for frame in floods {
        let mut socket = server.narrow_socket().await;
        // Forty megabytes of pings, or as many as the server accepts before it waits for its answers to be read.
        let flood = async {
            for _ in 0..320_000 {
                socket.send(frame.clone()).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(5), flood).await;
        flooded.push(socket);
    }
    let grown = server.grown_since(before);
    assert!(grown < 24 << 20, "{grown}");
    assert_eq!(server.respond(Mode::Socket, ask("hi")).await.text(), "quick", "others are served meanwhile");
    check_unharmed(&server);
}

#[tokio::test]
async fn half_a_request_is_not_waited_for_for_ever_and_a_silent_answer_is() {
    let model = FakeModel::held_back(vec![Scene::Say("done")]).await;
    let config = format!("{}server: {{ head: 300ms }}\n", model.config());
    let server = ServerBuilder::new(&config).start().await;
    let waiting = server.ask(Mode::Streamed, json!({ "model": "fake", "input": "go" }));
    model.asked_times(1).await;
    let mut half = tokio::net::TcpStream::connect(server.base().trim_start_matches("http://")).await.expect("the server listens");
    half.write_all(b"POST /v1/responses HTTP/1.1\r\nHost: here\r\nContent-").await.expect("it takes what is sent");
    let mut received = Vec::new();
    half.read_to_end(&mut received).await.expect("the server hangs up");
    assert!(!String::from_utf8_lossy(&received).contains("200 OK"));
    model.let_answer();
    assert_eq!(waiting.made(&server).await.status(), "completed", "what was asked for is waited for");
}

#[tokio::test]
async fn a_tool_server_that_sends_a_hundred_megabytes_is_cut_off() {
    for (tool, arguments) in [("flood", json!({ "megabytes": 100 })), ("endless", json!({}))] {
        let (server, model, tools) = server_with_model(vec![Scene::Call(vec![(tool, arguments)]), Scene::Say("I see")]).await;
        let before = server.peak_bytes();
        let made = server.respond(Mode::Streamed, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "I see"));
        let call = &made.items("mcp_call")[0];
        assert!(
            call["status"] == "failed" && call["error"].as_str().is_some_and(|message| message.contains("larger than 4194304 bytes")),
            "{call}"
        );
        assert!(messages_sent(&model.asked()[1])[2].contains("larger than 4194304 bytes"), "the model gets the error");
        let grown = server.grown_since(before);
        // A few copies of the accepted part of an answer, but not everything that was sent.
        assert!(grown < 60 * MEGABYTE as u64, "{tool}: {grown}");
        tools.runs(tool, 0).await;
        check_unharmed(&server);
    }
}

/// A server that reaches its MCP server through a proxy.
async fn behind_a_wire(scenes: Vec<Scene>, limits: &str) -> (Server, FakeModel, McpServer, Proxy) {
    let (model, tools) = (FakeModel::held_back(scenes).await, McpServer::start().await);
    let wire = Proxy::start(tools.url.trim_start_matches("http://").trim_end_matches("/mcp")).await;
    let config = model.config().replace("name: fake", "name: m")
        + &format!("tools: {{ mcp: [ {{ label: tools, url: 'http://{}/mcp' }} ] }}\n", wire.address())
        + limits;
    (ServerBuilder::new(&config).start().await, model, tools, wire)
}

/// The server needs the list before it asks the model. The error names the MCP server, and the next request is served.
#[tokio::test]
async fn a_tool_server_that_cannot_list_its_tools_is_named() {
    let agent = "agents: { helper: { tools: [tools] } }";
    let (server, model, tools, wire) = behind_a_wire(vec![Scene::Say("fine")], agent).await;
    let before = server.peak_bytes();
    let check = async |expected: &str| {
        for body in [ask_with("go", &[mcp()]), json!({ "model": "agent/helper", "input": "go" })] {
            for mode in [Mode::Plain, Mode::Streamed] {
                let answer = server.refusal(mode, body.clone()).await;
                let message = answer.body["error"]["message"].as_str().unwrap_or_default();
                assert!(
                    answer.status == 424 && message.contains("tools") && message.contains(expected),
                    "{}: {}",
                    answer.status,
                    answer.body
                );
            }
        }
    };
    wire.refuse(true);
    check("").await;
    wire.refuse(false);
    tools.behave(|manners| manners.list_megabytes = 100);
    check("larger than 4194304 bytes").await;
    let grown = server.grown_since(before);
    assert!(grown < 60 * MEGABYTE as u64, "{grown}");
    assert_eq!(model.asked().len(), 0);
    tools.behave(|manners| manners.list_megabytes = 0);
    model.let_answer();
    assert_eq!(server.respond(Mode::Streamed, json!({ "model": "agent/helper", "input": "go" })).await.text(), "fine");
    check_unharmed(&server);
}

#[tokio::test]
async fn a_tool_server_that_goes_down_is_an_error_for_the_model() {
    let echo = || Scene::Call(vec![("echo", json!({ "text": "hi" }))]);
    let (server, model, tools, wire) = behind_a_wire(vec![echo(), Scene::Say("without it, then")], "").await;
    let asked = server.ask(Mode::Streamed, ask_with("go", &[mcp()]));
    model.asked_times(1).await;
    wire.refuse(true);
    wire.cut();
    model.let_answer();
    model.let_answer();
    let made = asked.made(&server).await;
    assert_eq!((made.status(), made.text().as_str()), ("completed", "without it, then"));
    let call = &made.items("mcp_call")[0];
    assert!(call["status"] == "failed" && call["error"].as_str().is_some_and(|message| message.contains("tools")), "{call}");
    assert!(messages_sent(&model.asked()[1])[2].contains("tools"), "the model gets the error");
    assert_eq!(tools.starts("echo").len(), 0);
    check_unharmed(&server);
}

#[tokio::test]
async fn a_tool_server_that_is_too_slow_is_an_error_for_the_model() {
    let nap = Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]);
    let (server, model, tools, _wire) = behind_a_wire(vec![nap, Scene::Say("too slow for me")], "limits: { call_deadline: 1s }").await;
    model.let_answer();
    model.let_answer();
    let began = Instant::now();
    let made = server.respond(Mode::Streamed, ask_with("go", &[mcp()])).await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!((made.status(), made.text().as_str()), ("completed", "too slow for me"));
    let call = &made.items("mcp_call")[0];
    assert!(call["status"] == "failed" && !call["error"].is_null(), "{call}");
    tools.runs("sleep_ms", 0).await;
    assert_eq!(tools.starts("sleep_ms").len(), 1);
    assert!(messages_sent(&model.asked()[1])[2].contains("error"), "the model gets the error: {:?}", messages_sent(&model.asked()[1]));
    check_unharmed(&server);
}
