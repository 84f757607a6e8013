//! Responses over a socket: one after the other, with the events of a stream, each able to continue from the earlier ones.

use serde_json::{Value, json};
use windlass_tests::{
    FakeModel, Frame, McpServer, Mode, ResponseRecord, Scene, Server, ServerBuilder, Socket,
    tungstenite::{self, Message},
    until,
};

use crate::support::{
    after, ask, ask_with, function, mcp, messages_sent, output, scripted, scripted_with, server_for_model, server_with_model,
    server_with_model_and_config, with,
};

fn unstored(body: Value) -> Value {
    with(body, json!({ "store": false }))
}

fn runs(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM runs")
}

/// A server with this limit of a body, and its model.
async fn limited(bytes: usize) -> (Server, FakeModel) {
    let model = FakeModel::start(vec![Scene::Say("fine")]).await;
    let config = model.config().replace("name: fake", "name: m") + &format!("limits: {{ body_bytes: {bytes} }}\n");
    (ServerBuilder::new(&config).start().await, model)
}

/// A follow-up that is not stored either.
fn unstored_after(made: &ResponseRecord, input: &str) -> Value {
    unstored(after(made, json!(input), &[]))
}

/// The part that two streams of the same script have in common: everything but ids and times.
fn essence(made: &ResponseRecord) -> Vec<(String, Value)> {
    let run = made.id().trim_start_matches("resp_").to_owned();
    let mut essence = Vec::new();
    for event in &made.events {
        let mut data: Value = serde_json::from_str(&event.data.to_string().replace(&run, "RUN")).expect("it is still JSON");
        for time in ["created_at", "completed_at"] {
            if let Some(response) = data.get_mut("response") {
                response[time] = Value::Null;
            }
        }
        if let Some(own) = data["response"].get_mut("windlass") {
            own["run_id"] = Value::Null;
        }
        essence.push((event.kind().to_owned(), data));
    }
    essence
}

#[tokio::test]
async fn one_request_is_answered_with_the_events_of_a_stream() {
    let script = "laps: [ { text: Let me see., calls: [{ tool: echo, arguments: { text: alpha } }] }, { text: It is alpha. } ]";
    let (server, _tools) = scripted(script).await;
    let streamed = server.respond(Mode::Streamed, ask_with("go", &[mcp()])).await;
    let mut socket = server.socket().await;
    // Fields that only concern HTTP are ignored, whatever their values.
    let ways = [
        json!({}),
        json!({ "stream": true }),
        json!({ "stream": "no", "stream_options": 7, "background": true }),
        json!({ "background": true, "store": false }),
    ];
    for way in ways {
        let made = socket.respond(with(ask_with("go", &[mcp()]), way.clone())).await;
        assert_eq!((made.status(), &made.object["background"]), ("completed", &json!(false)), "{way}");
        assert_eq!(made.essence(), streamed.essence(), "{way}");
        if way.get("store").is_none() {
            assert_eq!(essence(&made), essence(&streamed), "{way}");
            assert_eq!(server.response(made.id()).await, made.object, "and it can be read over HTTP");
        }
    }
}

#[tokio::test]
async fn two_requests_on_one_socket_are_answered_in_their_order() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("one"), Scene::Say("two")]).await;
    let mut socket = server.socket().await;
    let first = socket.respond(unstored(ask("first"))).await;
    let second = socket.respond(unstored(ask("second"))).await;
    assert_eq!([first.text(), second.text()], ["one", "two"]);
    assert_eq!([first.status(), second.status()], ["completed", "completed"]);
    assert_eq!(messages_sent(&model.asked()[1]), ["user: second"], "no request continues from the first");
}

#[tokio::test]
async fn a_response_that_is_not_stored_can_be_continued_on_its_own_socket_and_nowhere_else() {
    let (server, model, _tools) =
        server_with_model(vec![Scene::Say("one"), Scene::Say("two"), Scene::Say("three"), Scene::Say("fresh")]).await;
    let mut socket = server.socket().await;
    let first = socket.respond(unstored(ask("first"))).await;
    let second = socket.respond(unstored_after(&first, "second")).await;
    assert_eq!((second.text().as_str(), &second.object["previous_response_id"]), ("two", &json!(first.id())));
    let third = socket.respond(after(&second, json!("third"), &[])).await;
    let all = ["user: first", "assistant: one", "user: second", "assistant: two", "user: third"];
    assert_eq!(messages_sent(&model.asked()[2]), all, "a stored one can go on from them too");
    assert_eq!(server.get(&format!("/v1/responses/{}", second.id())).await.status, 404);
    let refused = server.refusal(Mode::Plain, unstored_after(&second, "more")).await;
    assert_eq!(refused.code(), "previous_response_not_found", "not over HTTP");
    let mut other = server.socket().await;
    for _ in 0..2 {
        assert_eq!(other.refused(unstored_after(&second, "more")).await, "previous_response_not_found", "not on another socket");
    }
    let fresh = other.respond(unstored(ask("fresh"))).await;
    assert_eq!((fresh.status(), fresh.text().as_str()), ("completed", "fresh"), "which stays open");
    assert_eq!(other.respond(after(&third, json!("go on"), &[])).await.status(), "completed", "what is stored is everybody's");
}

#[tokio::test]
async fn a_response_in_memory_alone_can_be_continued_too() {
    let scenes = vec![Scene::Say("one"), Scene::Say("two"), Scene::Say("three")];
    let (server, model, _tools) = server_with_model_and_config(scenes, "responses: { store_false: memory }").await;
    let mut socket = server.socket().await;
    let first = socket.respond(unstored(ask("first"))).await;
    let second = socket.respond(unstored_after(&first, "second")).await;
    assert_eq!(runs(&server), 0, "nothing of it is on disk");
    let third = socket.respond(after(&second, json!("third"), &[])).await;
    let all = ["user: first", "assistant: one", "user: second", "assistant: two", "user: third"];
    assert_eq!((messages_sent(&model.asked()[2]), third.text().as_str(), runs(&server)), (all.map(str::to_owned).to_vec(), "three", 1));
    assert_eq!(server.socket().await.refused(unstored_after(&second, "more")).await, "previous_response_not_found");
}

#[tokio::test]
async fn an_unknown_response_cannot_be_continued() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let mut socket = server.socket().await;
    for id in ["resp_0", "resp_00000000000000000000000000000000", "nonsense"] {
        socket.ask(unstored(with(ask("go"), json!({ "previous_response_id": id })))).await;
        let (status, error) = socket.error().await;
        let error_fields = (status, &error["code"], &error["param"], &error["type"]);
        let expected = (400, &json!("previous_response_not_found"), &json!("previous_response_id"), &json!("invalid_request_error"));
        assert_eq!(error_fields, expected, "{error}");
    }
    assert_eq!(socket.respond(ask("go")).await.text(), "fine");
}

#[tokio::test]
async fn a_client_whose_follow_up_fails_has_to_start_again() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Call(vec![("mine", json!({}))]), Scene::Say("done")]).await;
    let stray = json!([{ "type": "function_call_output", "call_id": "call_nope", "output": "x" }]);
    let mut socket = server.socket().await;
    for wrong in [json!({ "input": stray }), json!({ "temperature": "hot" }), json!({ "model": "nobody" })] {
        let first = socket.respond(unstored(ask_with("go", &[function("mine")]))).await;
        let call = first.items("function_call").first().cloned();
        let follow_up = unstored(after(&first, call.map_or_else(|| json!("go on"), |call| json!([output(&call, "one")])), &[]));
        let code = socket.refused(with(follow_up.clone(), wrong.clone())).await;
        assert_ne!(code, "previous_response_not_found", "{wrong}");
        assert_eq!(socket.refused(follow_up).await, "previous_response_not_found", "{wrong}");
    }
    let stored = socket.respond(ask("go")).await;
    socket.refused(after(&stored, stray, &[])).await;
    assert_eq!(socket.respond(after(&stored, json!("go on"), &[])).await.status(), "completed", "what is stored stays");
}

#[tokio::test]
async fn a_socket_remembers_a_few_responses() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let mut socket = server.socket().await;
    let mut made = Vec::new();
    for _ in 0..9 {
        made.push(socket.respond(unstored(ask("go"))).await);
    }
    assert_eq!(socket.respond(unstored_after(&made[1], "on")).await.status(), "completed");
    assert_eq!(socket.refused(unstored_after(&made[0], "on")).await, "previous_response_not_found", "the oldest is forgotten");
}

#[tokio::test]
async fn a_call_of_the_clients_is_answered_on_the_socket() {
    let scenes = vec![Scene::Call(vec![("mine", json!({ "n": 1 })), ("echo", json!({ "text": "alpha" }))]), Scene::Say("done")];
    let (server, model, tools) = server_with_model(scenes).await;
    let mut socket = server.socket().await;
    let first = socket.respond(unstored(ask_with("go", &[mcp(), function("mine")]))).await;
    assert_eq!(first.status(), "requires_action");
    let call = &first.items("function_call")[0];
    let second = socket.respond(unstored(after(&first, json!([output(call, "one")]), &[mcp(), function("mine")]))).await;
    assert_eq!(second.text(), "done");
    assert_eq!(tools.starts("echo").len(), 1, "the server's own call is made by the follow-up");
    assert_eq!(messages_sent(&model.asked()[1])[..2], ["user: go", "assistant:  +mine +echo"]);
}

#[tokio::test]
async fn a_request_during_a_response_waits_for_its_turn() {
    let (model, tools) =
        (FakeModel::held_back(vec![Scene::Say("one"), Scene::Say("two"), Scene::Say("three")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, "").await;
    let mut socket = server.socket().await;
    socket.ask(ask("first")).await;
    socket.ask(with(ask("wrong"), json!({ "temperature": "hot" }))).await;
    socket.ask(ask("second")).await;
    socket.send(Message::text("nonsense")).await;
    socket.ask(ask("third")).await;
    model.asked_times(1).await;
    socket.until("response.in_progress").await;
    // The server still reads the socket, but starts no second request.
    socket.send(Message::Ping(b"there?".as_slice().into())).await;
    assert_eq!((socket.next().await, runs(&server)), (Frame::Pong(b"there?".to_vec()), 1));
    (0..3).for_each(|_| model.let_answer());
    let first = socket.until("response.completed").await;
    assert_eq!(first.data["response"]["output"][0]["content"][0]["text"], "one");
    assert_eq!(socket.error_code().await, "invalid_type");
    assert_eq!(socket.response().await.text(), "two");
    assert_eq!(socket.error_code().await, "invalid_json");
    assert_eq!(socket.response().await.text(), "three");
    assert_eq!(
        model.asked().iter().map(|asked| messages_sent(asked)[0].clone()).collect::<Vec<_>>(),
        ["user: first", "user: second", "user: third"]
    );
}

#[tokio::test]
async fn more_than_may_wait_is_refused_and_the_socket_stays() {
    let (model, tools) = (FakeModel::held_back(vec![Scene::Say("fine")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, "").await;
    let mut socket = server.socket().await;
    socket.ask(ask("first")).await;
    model.asked_times(1).await;
    for number in 0..35 {
        socket.ask(ask(&format!("number {number}"))).await;
    }
    // When this ping is answered, the server has read all requests.
    socket.send(Message::Ping(b"read?".as_slice().into())).await;
    while !matches!(socket.next().await, Frame::Pong(_)) {}
    (0..40).for_each(|_| model.let_answer());
    socket.until("response.completed").await;
    for _ in 0..32 {
        assert_eq!(socket.response().await.text(), "fine");
    }
    for _ in 0..3 {
        let (status, error) = socket.error().await;
        assert_eq!((status, &error["code"], &error["type"]), (429, &json!("too_many_queued"), &json!("too_many_requests")));
    }
    assert_eq!(socket.respond(ask("again")).await.text(), "fine");
    assert_eq!(runs(&server), 34);
}

#[tokio::test]
async fn a_warm_up_calls_no_model_and_can_be_continued() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("one"), Scene::Say("two")]).await;
    let mut socket = server.socket().await;
    let body = unstored(with(ask_with("beforehand", &[function("mine")]), json!({ "generate": false, "instructions": "Be brief." })));
    let warm = socket.respond(body).await;
    assert_eq!(warm.kinds(), ["response.created", "response.completed"]);
    assert_eq!((warm.status(), &warm.object["output"], &warm.object["usage"]["total_tokens"]), ("completed", &json!([]), &json!(0)));
    assert_eq!((runs(&server), model.asked().len()), (0, 0));
    let first = socket.respond(unstored_after(&warm, "now")).await;
    assert_eq!(first.object["previous_response_id"], warm.id());
    assert_eq!(messages_sent(&model.asked()[0]), ["user: beforehand", "user: now"]);
    // A warm-up after a warm-up, and one after a real response.
    let over = socket.respond(with(unstored_after(&first, "and"), json!({ "generate": false }))).await;
    let over = socket.respond(with(unstored_after(&over, "then"), json!({ "generate": false }))).await;
    let second = socket.respond(with(unstored_after(&over, ""), json!({ "input": [] }))).await;
    assert_eq!(second.text(), "two");
    let all = ["user: beforehand", "user: now", "assistant: one", "user: and", "user: then"];
    assert_eq!(messages_sent(&model.asked()[1]), all);
    assert_eq!(server.get(&format!("/v1/responses/{}", over.id())).await.status, 404);
    let code = server.socket().await.refused(unstored_after(&over, "more")).await;
    assert_eq!(code, "previous_response_not_found", "it is its socket's own");
}

#[tokio::test]
async fn a_warm_up_is_checked_like_any_request() {
    let (server, model) = limited(4000).await;
    let mut socket = server.socket().await;
    let warm = |more: Value| with(json!({ "model": "m", "generate": false, "store": false }), more);
    let empty = socket.respond(warm(json!({}))).await;
    assert_eq!(socket.refused(unstored(with(after(&empty, json!([]), &[]), json!({})))).await, "missing_required_parameter");
    let empty = socket.respond(warm(json!({ "input": [] }))).await;
    assert_eq!(socket.respond(unstored_after(&empty, "hi")).await.text(), "fine");
    assert_eq!(socket.refused(warm(json!({ "model": "nobody" }))).await, "model_not_found");
    assert_eq!(socket.refused(warm(json!({ "generate": "no" }))).await, "invalid_type");
    let half = "x".repeat(2500);
    let large = socket.respond(warm(json!({ "input": half }))).await;
    assert_eq!(socket.refused(unstored_after(&large, &half)).await, "request_too_large", "both halves count");
    assert_eq!(socket.refused(unstored_after(&large, "hi")).await, "previous_response_not_found");
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn frames_that_are_no_requests_are_refused_and_the_socket_stays() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let mut socket = server.socket().await;
    let texts = [
        ("", "invalid_json"),
        ("nonsense", "invalid_json"),
        ("{", "invalid_json"),
        ("[]", "invalid_type"),
        ("null", "invalid_type"),
        (r#"{"type":"response.create","input":"hi","input":"ho"}"#, "invalid_json"),
        (r#"{"model":"m","input":"hi"}"#, "missing_required_parameter"),
        (r#"{"type":"response.cancel","input":"hi"}"#, "invalid_value"),
        (r#"{"type":7,"input":"hi"}"#, "invalid_type"),
        (r#"{"type":"response.create","model":"m"}"#, "missing_required_parameter"),
        (r#"{"type":"response.create","model":"m","input":"\ud800"}"#, "invalid_json"),
    ];
    for (text, code) in texts {
        socket.send(Message::text(text)).await;
        let (status, error) = socket.error().await;
        assert_eq!((status, &error["code"]), (400, &json!(code)), "{text}: {error}");
    }
    socket.send(Message::Binary(br#"{"type":"response.create","input":"hi"}"#.as_slice().into())).await;
    assert_eq!(socket.error_code().await, "invalid_frame");
    socket.send(Message::Ping(b"there?".as_slice().into())).await;
    assert_eq!(socket.next().await, Frame::Pong(b"there?".to_vec()));
    assert_eq!(runs(&server), 0);
    assert_eq!(socket.respond(ask("go")).await.text(), "fine");
    assert!(!server.log().contains("by our own fault"), "{}", server.log());
}

#[tokio::test]
async fn a_frame_that_is_too_long_is_refused_and_one_that_is_much_too_long_ends_the_socket() {
    let (server, _model) = limited(100_000).await;
    let mut socket = server.socket().await;
    socket.ask(ask(&"x".repeat(100_000))).await;
    let (status, error) = socket.error().await;
    assert_eq!((status, &error["code"]), (413, &json!("request_too_large")));
    assert_eq!(socket.respond(ask("go")).await.text(), "fine");
    let is_sent = socket.try_send(Message::text("x".repeat(250_000))).await;
    let mut end = socket.next().await;
    if let Frame::Error(error) = &end {
        assert_eq!(error["error"]["code"], "invalid_frame");
        end = socket.next().await;
    }
    assert!(matches!(end, Frame::Closed(1002) | Frame::Broken), "sent: {is_sent}: {end:?}");
    assert_eq!(server.respond(Mode::Socket, ask("go")).await.text(), "fine", "others do not notice");
}

#[tokio::test]
async fn tm_14_a_socket_needs_a_token_that_is_still_accepted() {
    let (server, _tools) = scripted_with("laps: [ { text: fine } ]", "").await;
    let mut socket = server.socket().await;
    assert_eq!(socket.respond(ask("go")).await.text(), "fine");
    let path = server.folder().join("windlass.yaml");
    let config = std::fs::read_to_string(&path).expect("the configuration");
    std::fs::write(&path, config.replace(server.token(), "fresh-token-of-22-characters")).expect("it can be written");
    server.signal(rustix::process::Signal::HUP);
    until("the tokens are reloaded", || async { server.log().contains("auth.tokens was reloaded").then_some(()) }).await;
    let refused = socket.refusal(ask("go")).await;
    assert_eq!((refused.status, refused.code()), (401, "invalid_api_key"), "{}", refused.body);
}

#[tokio::test]
async fn only_an_authorized_client_opens_a_socket() {
    let auth = "auth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: worker-token-of-22-characters, scopes: ['tools:look_up'] } ] }";
    let (server, _tools) = scripted_with("laps: [ { text: fine } ]", auth).await;
    let status = |opened: Result<Socket, tungstenite::Error>| match opened {
        Err(tungstenite::Error::Http(answer)) => {
            let body: Value = serde_json::from_slice(answer.body().as_deref().unwrap_or_default()).unwrap_or_default();
            (answer.status().as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
        }
        Err(error) => panic!("it is refused with a status: {error}"),
        Ok(_) => (101, String::new()),
    };
    assert_eq!(status(server.try_socket(&[]).await).0, 101);
    assert_eq!(status(server.try_socket(&[("authorization", "Bearer nobody")]).await), (401, "invalid_api_key".to_owned()));
    assert_eq!(
        status(server.try_socket(&[("authorization", "Bearer worker-token-of-22-characters")]).await),
        (403, "insufficient_permissions".to_owned())
    );
    assert_eq!(status(server.try_socket(&[("sec-websocket-version", "7")]).await), (400, "invalid_upgrade".to_owned()));
    let plain = server.get("/v1/responses").await;
    assert_eq!((plain.status, plain.code()), (405, "method_not_allowed"), "{}", plain.body);
    let without = server.send(server.request(reqwest::Method::GET, "/v1/responses").header("authorization", "")).await;
    assert_eq!((without.status, without.code()), (401, "invalid_api_key"));
}

#[tokio::test]
async fn what_the_handshake_asks_for_holds_for_every_response() {
    let script = "laps: [ { calls: [{ tool: echo, arguments: { text: a } }, { tool: mine, arguments: {} }] } ]";
    let (server, _tools) = scripted(script).await;
    let mut socket = server.socket_with(&[("windlass-status", "standard"), ("windlass-events", "lifecycle")]).await;
    for _ in 0..2 {
        let made = socket.respond(ask_with("go", &[mcp(), function("mine")])).await;
        assert_eq!((made.status(), made.kinds().last().copied()), ("completed", Some("response.requires_action")));
    }
    let made = server.socket().await.respond(ask_with("go", &[mcp(), function("mine")])).await;
    assert_eq!((made.status(), made.kinds().last().copied()), ("requires_action", Some("response.completed")));
}

#[tokio::test]
async fn a_silence_on_a_socket_is_filled_with_heartbeats() {
    let script = "laps: [ { text: Let me ask., calls: [{ tool: look_up, arguments: {} }] }, { text: done } ]";
    let (server, _tools) = scripted_with(script, "responses: { heartbeat: 300ms }").await;
    let mut socket = server.socket().await;
    socket.ask(with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } }))).await;
    let call = server.claim("look_up").await;
    let shown = async |socket: &mut Socket| socket.until("response.in_progress").await.data["response"]["output"].clone();
    assert_eq!(shown(&mut socket).await, json!([]), "the first is the opening");
    for _ in 0..2 {
        let shown = shown(&mut socket).await;
        assert_eq!((&shown[0]["content"][0]["text"], &shown[1]["status"]), (&json!("Let me ask."), &json!("in_progress")));
    }
    server.report(&call, json!("found")).await.ok();
    let last = socket.until("response.completed").await;
    assert_eq!(last.data["response"]["output"][2]["content"][0]["text"], "done");
    until("it is over for everybody", || async { (server.number("SELECT count(*) FROM runs WHERE status = 'ended'") == 1).then_some(()) })
        .await;
}
