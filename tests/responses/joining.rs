//! An interrupted request of Codex that is sent again: it joins its run, recognised by the id of its turn and its whole content.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_tests::{EventStream, FakeModel, McpServer, Mode, Next, Scene, Server, StreamEvent, responses::check_events, until};

use crate::support::{ask_with, function, mcp, output, server_for_model, server_with_model, server_with_model_and_config, with};

const TURN: &str = r#"{"session_id":"s","turn_id":"turn-1","request_kind":"turn"}"#;
const OTHER_TURN: &str = r#"{"session_id":"s","turn_id":"turn-2","request_kind":"turn"}"#;

fn request(input: Value, store: bool) -> Value {
    with(ask_with("", &[mcp(), function("mine")]), json!({ "input": input, "store": store, "client_metadata": { "a": 1, "b": 2 } }))
}

fn message_input(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// Requests a stream as a part of a turn.
async fn ask(server: &Server, turn: &str, body: &str) -> EventStream {
    let request = server.authorized(reqwest::Method::POST, "/v1/responses").header("content-type", "application/json");
    EventStream::new(request.header("x-codex-turn-metadata", turn).body(body.to_owned()).send().await.expect("the server answers"))
}

fn streamed(body: Value) -> String {
    Mode::Streamed.asks(body).to_string()
}

/// An open stream and its events so far.
struct Begun {
    id: String,
    events: Vec<StreamEvent>,
    stream: EventStream,
}

impl Begun {
    async fn new(server: &Server, turn: &str, body: &str) -> Self {
        let mut stream = ask(server, turn, body).await;
        let Next::Event(first) = stream.next().await else { panic!("a stream begins with an event") };
        assert_eq!((first.kind(), &first.data["sequence_number"]), ("response.created", &json!(0)));
        let id = first.data["response"]["id"].as_str().expect("an id").to_owned();
        Begun { id, events: vec![first], stream }
    }

    /// Reads until an event satisfies the condition. Returns its data.
    async fn until(&mut self, is_it: impl Fn(&StreamEvent) -> bool) -> Value {
        loop {
            match self.stream.next().await {
                Next::Event(event) => self.events.push(event),
                Next::Comment => continue,
                end @ (Next::Done | Next::Closed | Next::Broken) => panic!("{end:?} after {:?}", self.events),
            }
            if let Some(event) = self.events.last().filter(|event| is_it(event)) {
                return event.data.clone();
            }
        }
    }

    /// Reads to the end. Returns the last object, and every event.
    async fn ends(mut self) -> (Value, Vec<StreamEvent>) {
        let (rest, is_whole) = self.stream.rest().await;
        assert!(is_whole, "the stream ends properly");
        self.events.extend(rest);
        let last = self.events.last().expect("an end").data["response"].clone();
        assert_eq!(last["id"], self.id);
        (last, self.events)
    }
}

fn runs(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM runs")
}

fn data(events: &[StreamEvent]) -> Vec<Value> {
    events.iter().map(|event| event.data.clone()).collect()
}

#[tokio::test]
async fn a_cut_request_of_a_turn_joins_its_run_from_the_first_event() {
    for store in [false, true] {
        let (server, model, tools) =
            server_with_model(vec![Scene::SayAndCall("See.", vec![("sleep_ms", json!({ "ms": 700 }))]), Scene::Say("done")]).await;
        let body = streamed(request(message_input("go"), store));
        let mut first = Begun::new(&server, TURN, &body).await;
        tools.runs("sleep_ms", 1).await;
        first.until(|event| event.kind() == "response.mcp_call_arguments.done").await;
        let (id, seen) = (first.id, first.events);
        drop(first.stream);
        // Codex sends the same request with some keys in another order.
        let turned = body.replace(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#);
        assert_ne!(turned, body);
        let again = Begun::new(&server, TURN, &turned).await;
        assert_eq!(again.id, id);
        let (last, events) = again.ends().await;
        check_events(&events);
        assert_eq!(data(&events)[..seen.len()], data(&seen), "the same events with the same numbers");
        assert_eq!((&last["status"], &last["output"][3]["content"][0]["text"]), (&json!("completed"), &json!("done")));
        assert_eq!((runs(&server), model.asked().len(), tools.starts("sleep_ms").len()), (1, 2, 1));
    }
}

#[tokio::test]
async fn a_request_of_a_turn_that_a_kill_cut_joins_its_run() {
    let (mut server, model, _tools) = server_with_model(vec![Scene::Hang, Scene::Say("done")]).await;
    let body = streamed(request(message_input("go"), false));
    let first = Begun::new(&server, TURN, &body).await;
    model.asked_times(1).await;
    server.kill();
    let server = server.restart(&[]).await;
    let again = Begun::new(&server, TURN, &body).await;
    assert_eq!(again.id, first.id);
    let (last, events) = again.ends().await;
    check_events(&events);
    assert_eq!((&last["status"], runs(&server)), (&json!("completed"), 1));
}

#[tokio::test]
async fn a_turn_that_missed_the_end_gets_the_same_response() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
    let body = streamed(request(message_input("go"), false));
    let (_, first) = Begun::new(&server, TURN, &body).await.ends().await;
    for _ in 0..2 {
        let (_, again) = Begun::new(&server, TURN, &body).await.ends().await;
        assert_eq!(data(&again), data(&first));
    }
    let server = server.restart(&[]).await;
    let (_, again) = Begun::new(&server, TURN, &body).await.ends().await;
    assert_eq!(data(&again), data(&first), "also from another process");
    assert_eq!((runs(&server), model.asked().len()), (1, 1));
}

#[tokio::test]
async fn neither_the_turn_nor_the_body_alone_is_enough() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
    let body = streamed(request(message_input("go"), false));
    let (first, _) = Begun::new(&server, TURN, &body).await.ends().await;
    let mut ids = BTreeSet::from([first["id"].to_string()]);
    let others = [
        (OTHER_TURN, body.clone()),
        (TURN, streamed(request(message_input("go on"), false))),
        ("nonsense", body.clone()),
        ("{}", body.clone()),
    ];
    for (turn, body) in others {
        let (other, _) = Begun::new(&server, turn, &body).await.ends().await;
        assert!(ids.insert(other["id"].to_string()), "a run of its own: {turn} {body}");
    }
}

#[tokio::test]
async fn after_a_failure_a_turn_gets_another_attempt() {
    let (server, _model, _tools) =
        server_with_model(vec![Scene::Fail(400, Vec::new()), Scene::Fail(400, Vec::new()), Scene::Say("done")]).await;
    let body = streamed(request(message_input("go"), false));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let (made, _) = Begun::new(&server, TURN, &body).await.ends().await;
        statuses.push(made["status"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(statuses, ["failed", "failed", "completed", "completed"]);
    assert_eq!(runs(&server), 3, "and joins the one that did not fail");
}

#[tokio::test]
async fn a_run_that_is_read_is_not_joined() {
    let (model, tools) = (FakeModel::held_back(vec![Scene::Say("done")]).await, McpServer::start().await);
    let mut server = server_for_model(&model, &tools, "").await;
    let body = streamed(request(message_input("go"), false));
    let (one, two) = tokio::join!(Begun::new(&server, TURN, &body), Begun::new(&server, TURN, &body));
    assert_ne!(one.id, two.id, "two at once are two");
    model.asked_times(2).await;
    server.kill();
    let server = server.restart(&[]).await;
    let (again, more) = tokio::join!(Begun::new(&server, TURN, &body), Begun::new(&server, TURN, &body));
    let ids = |one: &Begun, two: &Begun| BTreeSet::from([one.id.clone(), two.id.clone()]);
    assert_eq!(ids(&again, &more), ids(&one, &two), "and after a kill each finds one of them");
    (0..2).for_each(|_| model.let_answer());
    for begun in [again, more] {
        assert_eq!(begun.ends().await.0["status"], "completed");
    }
    assert_eq!(runs(&server), 2);
}

#[tokio::test]
async fn a_run_whose_reader_stays_away_is_stopped_and_a_request_that_comes_too_late_starts_again() {
    let (server, _model, tools) =
        server_with_model_and_config(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))])], "responses: { join_s: 1 }").await;
    let body = streamed(request(message_input("go"), false));
    let first = Begun::new(&server, TURN, &body).await;
    let id = first.id.clone();
    tools.runs("sleep_ms", 1).await;
    drop(first);
    until("it is stopped", || async { (tools.running("sleep_ms") == 0).then_some(()) }).await;
    let late = Begun::new(&server, TURN, &body).await;
    assert_ne!(late.id, id, "a request that comes too late starts again");
}

fn is_message_done(event: &StreamEvent) -> bool {
    event.kind() == "response.output_item.done" && event.data["item"]["type"] == "message"
}

/// The input of a request with further items.
fn extended(text: &str, more: &[&Value]) -> Value {
    let mut input = message_input(text);
    input.as_array_mut().expect("a list").extend(more.iter().map(|item| (*item).clone()));
    input
}

#[tokio::test]
async fn a_turn_that_has_items_already_gets_only_what_is_missing() {
    for is_killed in [false, true] {
        let (mut server, model, tools) =
            server_with_model(vec![Scene::SayAndCall("See.", vec![("sleep_ms", json!({ "ms": 700 }))]), Scene::Say("done")]).await;
        let mut first = Begun::new(&server, TURN, &streamed(request(message_input("go"), false))).await;
        let got = first.until(is_message_done).await;
        tools.runs("sleep_ms", 1).await;
        let (id, index) = (first.id, got["output_index"].clone());
        drop(first.stream);
        if is_killed {
            server.kill();
            server = server.restart(&[]).await;
        }
        let body = streamed(request(extended("go", &[&got["item"]]), false));
        let again = Begun::new(&server, TURN, &body).await;
        assert_eq!(again.id, id, "killed: {is_killed}");
        let (last, events) = again.ends().await;
        assert!(events.iter().all(|event| event.data["output_index"] != index), "nothing about what it has: {events:?}");
        let numbers: Vec<u64> = events.iter().filter_map(|event| event.data["sequence_number"].as_u64()).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next) && numbers.len() == events.len(), "{numbers:?}");
        let done: Vec<&Value> =
            events.iter().filter(|event| event.kind() == "response.output_item.done").map(|event| &event.data["item"]).collect();
        assert_eq!(done.iter().map(|item| item["type"].clone()).collect::<Vec<_>>(), ["mcp_list_tools", "mcp_call", "message"]);
        assert_eq!((done[2], &last["output"][1]), (&last["output"][3], &got["item"]), "the object has everything");
        assert_eq!((&last["status"], runs(&server), model.asked().len()), (&json!("completed"), 1, 2));
        // Interrupted again after all items: only the end is missing.
        let whole = streamed(request(extended("go", &[&got["item"], done[2]]), false));
        let (end, events) = Begun::new(&server, TURN, &whole).await.ends().await;
        assert_eq!((end, runs(&server)), (last.clone(), 1));
        assert!(!events.iter().any(|event| event.data["item"]["type"] == "message"), "{events:?}");
    }
}

#[tokio::test]
async fn the_next_request_of_a_turn_is_the_next_iteration() {
    let (server, _model, _tools) =
        server_with_model(vec![Scene::SayAndCall("Yours.", vec![("mine", json!({}))]), Scene::Say("done")]).await;
    let (first, _) = Begun::new(&server, TURN, &streamed(request(message_input("go"), false))).await.ends().await;
    let (message, call) = (&first["output"][1], &first["output"][2]);
    let next = streamed(request(extended("go", &[message, call, &output(call, "one")]), false));
    let (second, _) = Begun::new(&server, TURN, &next).await.ends().await;
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["output"][1]["content"][0]["text"], "done");
    let mut altered = message.clone();
    altered["content"][0]["text"] = "Mine.".into();
    let other_words = request(extended("go", &[&altered]), false);
    let other_turn = request(extended("go", &[message]), false);
    let other_request = request(extended("stop", &[message]), false);
    for (turn, body) in [(TURN, other_words), (OTHER_TURN, other_turn), (TURN, other_request)] {
        let (other, _) = Begun::new(&server, turn, &streamed(body)).await.ends().await;
        assert_ne!(other["id"], first["id"], "what is not the same request is another");
    }
    let (same, _) = Begun::new(&server, TURN, &streamed(request(extended("go", &[message]), false))).await.ends().await;
    assert_eq!(same, first, "and what is the same gets the rest");
}
