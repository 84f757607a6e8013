//! Sockets that end: cut by either side, too old, or closed by a server that stops. Their requests then follow the rules of streams.

use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_tests::{EventStream, FakeModel, Frame, McpServer, Mode, Scene, Server, Socket, StreamEvent, responses::check_events, until};

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

fn data(events: &[StreamEvent]) -> Vec<Value> {
    events.iter().map(|event| event.data.clone()).collect()
}

/// Reads until an event of this type. Returns everything read.
async fn read_until(socket: &mut Socket, kind: &str) -> Vec<StreamEvent> {
    let mut events = vec![socket.event().await];
    while events.last().is_some_and(|event| event.kind() != kind) {
        events.push(socket.event().await);
    }
    events
}

fn id_of(events: &[StreamEvent]) -> String {
    events[0].data["response"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_kill_in_the_middle_continues_with_the_next_number() {
    let scenes = vec![Scene::SayAndCall("See.", vec![("sleep_ms", json!({ "ms": 1500 }))]), Scene::Say("done")];
    let (mut server, _model, tools) = server_with_model(scenes).await;
    let mut socket = server.socket().await;
    socket.ask(ask_with("go", &[mcp()])).await;
    let mut events = read_until(&mut socket, "response.mcp_call_arguments.done").await;
    tools.runs("sleep_ms", 1).await;
    let id = id_of(&events);
    server.kill();
    // Events in flight still arrive; then the connection breaks without a close frame.
    loop {
        match socket.next().await {
            Frame::Event(data) => events.push(StreamEvent { at: std::time::Instant::now(), data }),
            Frame::Broken => break,
            other @ (Frame::Error(_) | Frame::Pong(_) | Frame::Closed(_)) => panic!("{other:?} from a server that is dead"),
        }
    }
    let server = server.restart(&[]).await;
    let last = events.last().expect("an event").data["sequence_number"].as_u64();
    let (rest, is_whole) = server.follow(&id, last).await.rest().await;
    assert!(is_whole, "the stream ends properly");
    events.extend(rest);
    check_events(&events);
    assert_eq!(data(&server.replay(&id).await), data(&events), "the same events from the beginning");
    assert_eq!(server.response(&id).await["status"], "completed");
    let mut socket = server.socket().await;
    let follow_up = json!({ "model": "m", "previous_response_id": id, "input": "and?" });
    assert_eq!(socket.respond(follow_up).await.status(), "completed", "and it can be continued on a new socket");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_what_is_not_stored_and_nothing_else() {
    let nap = || Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]);
    let (server, _model, tools) = server_with_model_and_config(vec![nap()], "responses: { join_s: 1 }").await;
    for (count, store) in [(1, true), (2, false)] {
        let mut socket = server.socket().await;
        socket.ask(with(ask_with("go", &[mcp()]), json!({ "store": store }))).await;
        read_until(&mut socket, "response.mcp_call_arguments.done").await;
        tools.runs("sleep_ms", count).await;
    }
    until("the one that is not stored is stopped", || async { (tools.running("sleep_ms") == 1).then_some(()) }).await;
    let ended = "SELECT count(*) FROM runs WHERE status = 'ended'";
    until("and is over", || async { (server.number(ended) == 1).then_some(()) }).await;
    assert_eq!(runs(&server), 2);
}

const TURN: &str = r#"{"session_id":"s","turn_id":"turn-1"}"#;
const OTHER_TURN: &str = r#"{"session_id":"s","turn_id":"turn-2"}"#;

/// A request as a part of a turn, in the form of Codex on a socket.
fn in_turn(turn: &str, body: Value) -> Value {
    with(unstored(body), json!({ "stream": true, "client_metadata": { "x-codex-turn-metadata": turn, "x": "y" } }))
}

#[tokio::test]
async fn a_cut_request_of_a_turn_joins_its_run_from_another_socket() {
    for is_killed in [false, true] {
        let scenes = vec![Scene::SayAndCall("See.", vec![("sleep_ms", json!({ "ms": 700 }))]), Scene::Say("done")];
        let (mut server, model, tools) = server_with_model(scenes).await;
        let body = in_turn(TURN, ask_with("go", &[mcp()]));
        let mut socket = server.socket().await;
        socket.ask(body.clone()).await;
        let seen = read_until(&mut socket, "response.mcp_call_arguments.done").await;
        tools.runs("sleep_ms", 1).await;
        drop(socket);
        if is_killed {
            server.kill();
            server = server.restart(&[]).await;
        }
        let mut socket = server.socket().await;
        let again = socket.respond(body.clone()).await;
        assert_eq!(again.id(), id_of(&seen), "killed: {is_killed}");
        assert_eq!(data(&again.events)[..seen.len()], data(&seen), "the same events with the same numbers");
        assert_eq!((again.text().as_str(), runs(&server), model.asked().len()), ("See.|done", 1, 2));
        let other = socket.respond(in_turn(OTHER_TURN, ask_with("go", &[mcp()]))).await;
        assert_ne!(other.id(), again.id(), "another turn is another request");
        // The client that joined can continue from it.
        let next = with(in_turn(TURN, after(&again, json!("and?"), &[])), json!({}));
        assert_eq!(socket.respond(next).await.status(), "completed");
    }
}

#[tokio::test]
async fn a_cut_request_of_a_turn_joins_its_run_over_http() {
    let scenes = vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 700 }))]), Scene::Say("done")];
    let (server, _model, tools) = server_with_model(scenes).await;
    let body = in_turn(TURN, ask_with("go", &[mcp()]));
    let mut socket = server.socket().await;
    socket.ask(body.clone()).await;
    let seen = read_until(&mut socket, "response.mcp_call_arguments.done").await;
    tools.runs("sleep_ms", 1).await;
    drop(socket);
    let request = server.authorized(reqwest::Method::POST, "/v1/responses").header("x-codex-turn-metadata", TURN).json(&body);
    let (events, is_whole) = EventStream::new(request.send().await.expect("the server answers")).rest().await;
    assert!(is_whole, "the stream ends properly");
    check_events(&events);
    assert_eq!((id_of(&events), runs(&server)), (id_of(&seen), 1));
}

#[tokio::test]
async fn a_request_after_a_warm_up_is_recognised_by_its_whole_content() {
    let (model, tools) = (FakeModel::held_back(vec![Scene::Say("done")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, "").await;
    let user = |text: &str| json!({ "role": "user", "content": text });
    let asks = |input: Value| in_turn(TURN, with(ask(""), json!({ "input": input })));
    let mut socket = server.socket().await;
    let warm = socket.respond(with(asks(json!([user("first")])), json!({ "generate": false }))).await;
    socket.ask(with(asks(json!([user("second")])), json!({ "previous_response_id": warm.id() }))).await;
    let seen = read_until(&mut socket, "response.in_progress").await;
    model.asked_times(1).await;
    drop(socket);
    model.let_answer();
    // The server has forgotten the warm-up, so the client sends everything again.
    let again = server.socket().await.respond(asks(json!([user("first"), user("second")]))).await;
    assert_eq!((again.id(), again.text().as_str(), runs(&server)), (id_of(&seen).as_str(), "done", 1));
    assert_eq!(messages_sent(&model.asked()[0]), ["user: first", "user: second"]);
}

#[tokio::test]
async fn an_iteration_after_a_response_of_its_socket_is_recognised_by_its_whole_content() {
    let scenes = vec![Scene::SayAndCall("See.", vec![("mine", json!({ "n": 1 }))]), Scene::Say("done")];
    let (model, tools) = (FakeModel::held_back(scenes).await, McpServer::start().await);
    let mut server = server_for_model(&model, &tools, "").await;
    let user = json!({ "role": "user", "content": "go" });
    let asks = |input: Value| in_turn(TURN, with(ask_with("", &[function("mine")]), json!({ "input": input })));
    let mut socket = server.socket().await;
    model.let_answer();
    let first = socket.respond(asks(json!([user]))).await;
    let (message, call) = (&first.items("message")[0], &first.items("function_call")[0]);
    let brought = output(call, "one");
    socket.ask(with(asks(json!([brought])), json!({ "previous_response_id": first.id() }))).await;
    let seen = read_until(&mut socket, "response.in_progress").await;
    model.asked_times(2).await;
    server.kill();
    let server = server.restart(&[]).await;
    (0..2).for_each(|_| model.let_answer());
    // Codex keeps them without the fields that it does not know.
    let mut kept = [message.clone(), call.clone()];
    kept.iter_mut().for_each(|item| drop(item.as_object_mut().expect("an object").remove("status")));
    kept[0]["content"] = json!([{ "type": "output_text", "text": "See." }]);
    let again = server.socket().await.respond(asks(json!([user, kept[0], kept[1], brought]))).await;
    assert_eq!((again.id(), again.text().as_str(), runs(&server)), (id_of(&seen).as_str(), "done", 2));
    // The same with another result of the last call is another request.
    let other = json!([user, kept[0], kept[1], output(call, "two")]);
    model.let_answer();
    assert_ne!(server.socket().await.respond(asks(other)).await.id(), again.id());
}

#[tokio::test]
async fn a_socket_that_is_too_old_is_closed_after_its_response() {
    let (model, tools) = (FakeModel::held_back(vec![Scene::Say("done")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, "responses: { socket_limit: 3s }").await;
    let mut busy = server.socket().await;
    busy.ask(ask("first")).await;
    busy.ask(ask("second")).await;
    model.asked_times(1).await;
    let mut idle = server.socket().await;
    let (status, error) = idle.error().await;
    assert_eq!((status, &error["code"]), (400, &json!("websocket_connection_limit_reached")));
    assert_eq!(idle.next().await, Frame::Closed(1000));
    // The other socket is older, and has a response in flight.
    model.let_answer();
    assert_eq!(busy.response().await.text(), "done", "which is streamed to its end");
    assert_eq!(busy.error_code().await, "websocket_connection_limit_reached");
    assert_eq!(busy.next().await, Frame::Closed(1000));
    assert_eq!(runs(&server), 1, "nothing more is begun on it");
    model.let_answer();
    assert_eq!(server.socket().await.respond(ask("again")).await.text(), "done");
}

#[tokio::test]
async fn a_server_that_stops_closes_its_sockets() {
    let (mut server, model, _tools) = server_with_model_and_config(vec![Scene::Hang], "server: { drain_s: 1 }").await;
    let (mut idle, mut busy) = (server.socket().await, server.socket().await);
    busy.ask(unstored(ask("go"))).await;
    read_until(&mut busy, "response.in_progress").await;
    model.asked_times(1).await;
    server.signal(Signal::TERM);
    let (status, error) = idle.error().await;
    assert_eq!((status, &error["code"]), (503, &json!("draining")));
    assert_eq!(idle.next().await, Frame::Closed(1001));
    assert!(server.gone().await.success());
    assert_eq!(busy.next().await, Frame::Broken, "a response that is not over is not closed properly");
    let server = server.restart(&[]).await;
    assert_eq!(server.socket().await.refused(json!({ "model": "nobody", "input": "x" })).await, "model_not_found");
}

/// The number of runs of which only the skeleton is left.
fn erased(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM runs WHERE note IS NULL")
}

#[tokio::test]
async fn what_is_not_stored_is_kept_for_its_socket_and_erased_after_it() {
    let config = "responses: { erase_s: 0 }\n";
    let (server, _tools) = scripted_with("laps: [ { text: fine } ]", config).await;
    let mut socket = server.socket().await;
    let first = socket.respond(unstored(ask("first"))).await;
    server.respond(Mode::Plain, unstored(ask("elsewhere"))).await;
    until("what no socket keeps is erased", || async { (erased(&server) == 1).then_some(()) }).await;
    let second = socket.respond(unstored(after(&first, json!("second"), &[]))).await;
    assert_eq!(second.status(), "completed");
    // A failed follow-up releases the response.
    socket.refused(unstored(with(after(&first, json!("x"), &[]), json!({ "temperature": "hot" })))).await;
    until("what is forgotten is erased", || async { (erased(&server) == 2).then_some(()) }).await;
    let third = socket.respond(unstored(after(&second, json!("third"), &[]))).await;
    assert_eq!((third.status(), erased(&server)), ("completed", 2), "and nothing else");
    drop(socket);
    until("the rest goes with the socket", || async { (erased(&server) == 4).then_some(()) }).await;
    assert_eq!(runs(&server), 4);
}

/// A client that names the previous response, which sockets allow.
#[tokio::test]
async fn calls_handed_back_over_a_socket_wait_for_their_follow_up_and_not_for_an_hour() {
    let calls = || Scene::Call(vec![("mine", json!({}))]);
    let scenes = vec![calls(), calls(), Scene::Say("done"), calls()];
    let (server, _model, _tools) = server_with_model_and_config(scenes, "responses: { erase_s: 0 }").await;
    let mut socket = server.socket().await;
    let offered = [function("mine")];
    let mut made = socket.respond(unstored(ask_with("go", &offered))).await;
    for _ in 0..2 {
        let seen = json!([output(&made.items("function_call")[0], "seen")]);
        made = socket.respond(unstored(after(&made, seen, &offered))).await;
    }
    assert_eq!(made.text(), "done");
    let unanswered = socket.respond(unstored(ask_with("go", &offered))).await;
    assert_eq!((unanswered.items("function_call").len(), erased(&server)), (1, 0), "the socket may go on from each of them");
    drop(socket);
    until("nothing waits any more but the call without an answer", || async { (erased(&server) == 3).then_some(()) }).await;
}

#[tokio::test]
async fn what_two_sockets_keep_stays_until_both_are_gone() {
    let (server, _tools) = scripted_with("laps: [ { text: fine } ]", "responses: { erase_s: 0 }\n").await;
    let (mut one, mut two) = (server.socket().await, server.socket().await);
    let body = in_turn(TURN, ask_with("go", &[function("mine")]));
    let first = one.respond(body.clone()).await;
    assert_eq!(two.respond(body).await.id(), first.id(), "a client that missed the end gets the same");
    let other = one.respond(unstored(ask("other"))).await;
    drop(one);
    until("what the first alone had is erased", || async { (erased(&server) == 1).then_some(()) }).await;
    assert_eq!(two.respond(unstored(after(&first, json!("on"), &[]))).await.status(), "completed");
    assert_eq!(two.refused(unstored(after(&other, json!("on"), &[]))).await, "previous_response_not_found");
}

#[tokio::test]
async fn a_socket_can_be_closed_by_its_client() {
    use windlass_tests::tungstenite::{Message, protocol::CloseFrame};
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let mut socket = server.socket().await;
    assert_eq!(socket.respond(ask("go")).await.text(), "fine");
    socket.send(Message::Close(Some(CloseFrame { code: 1000.into(), reason: "bye".into() }))).await;
    assert_eq!(socket.next().await, Frame::Closed(1000), "the goodbye is answered");
    assert_eq!(socket.next().await, Frame::Broken, "and that was all");
}
