//! Two servers on one database: a client can follow any run at either of them.

use serde_json::json;
use windlass_tests::{
    EventStream, FakeModel, McpServer, Next, Scene, Server, ServerBuilder, StreamEvent, postgres::Server as Postgres, responses::Grammar,
};

/// Two servers that share nothing but their database.
async fn two(config: &str, script: &str) -> (Server, Server) {
    let database = Postgres::shared().database().await;
    let config = format!("{config}\nlimits: {{ sweep_interval: 50ms, lease: 1s }}\nstore: {{ url: '{}' }}\n", database.url);
    let start = || ServerBuilder::new(&config).file("script.yaml", script).start();
    (start().await, start().await)
}

async fn ask(server: &Server, body: serde_json::Value) -> EventStream {
    let request = server.authorized(reqwest::Method::POST, "/v1/responses").json(&body);
    EventStream::new(request.send().await.expect("the stream opens"))
}

/// Reads until there is enough, or to the end mark. Fails at anything but an event.
async fn read(stream: &mut EventStream, events: &mut Vec<StreamEvent>, is_enough: impl Fn(&[StreamEvent]) -> bool) {
    while !is_enough(events) {
        match stream.next().await {
            Next::Event(event) => events.push(event),
            Next::Done => return,
            other @ (Next::Comment | Next::Broken | Next::Closed) => panic!("{other:?} after {} events", events.len()),
        }
    }
}

fn id(events: &[StreamEvent]) -> String {
    events[0].data["response"]["id"].as_str().expect("a response has an id").to_owned()
}

fn last(events: &[StreamEvent]) -> Option<u64> {
    events.last().and_then(|event| event.data["sequence_number"].as_u64())
}

fn of(events: &[StreamEvent], kind: &str) -> usize {
    events.iter().filter(|event| event.kind() == kind).count()
}

/// Each number appears once, from the first to the last, and a later reader gets the same events.
async fn check(server: &Server, events: &[StreamEvent]) {
    let mut grammar = Grammar::default();
    events.iter().for_each(|event| grammar.take(&event.data));
    assert!(grammar.ended().is_some(), "the response is over");
    let data = |events: &[StreamEvent]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!(data(&server.replay(&id(events)).await), data(events));
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_stream_is_followed_at_another_server_and_outlives_its_own() {
    let text = "Every word of this is told once, whichever of the servers tells it.";
    let script = json!({ "laps": [
        { "text": "First a look.", "chunk": 3, "chunk_delay_ms": 5, "calls": [{ "tool": "look", "arguments": {} }] },
        { "text": text, "chunk": 1, "chunk_delay_ms": 20 },
    ] });
    let config = "models: [ { name: m, provider: scripted, script: script.yaml } ]\ntools: { external: [ { name: look, effect: read } ] }";
    let (mut one, other) = two(config, &script.to_string()).await;
    let mut events = Vec::new();
    let mut at_one = ask(&one, json!({ "model": "m", "input": "go", "stream": true, "windlass": { "tools": ["look"] } })).await;
    read(&mut at_one, &mut events, |events| of(events, "response.output_text.delta") >= 2).await;
    // The same stream from its beginning, at the server that does not own the run.
    let mut from_start = Vec::new();
    let mut whole = other.follow(&id(&events), None).await;
    read(&mut whole, &mut from_start, |read| read.len() == events.len()).await;
    drop(at_one);
    let mut at_other = other.follow(&id(&events), last(&events)).await;
    let call = other.claim("look").await;
    other.report(&call, json!("seen")).await.ok();
    let begun = of(&events, "response.output_text.done") + 1;
    let speaks = |events: &[StreamEvent]| {
        of(events, "response.output_text.done") == begun && events.last().is_some_and(|event| event.kind() == "response.output_text.delta")
    };
    read(&mut at_other, &mut events, speaks).await;
    one.kill();
    read(&mut at_other, &mut events, |_| false).await;
    read(&mut whole, &mut from_start, |_| false).await;
    check(&other, &events).await;
    check(&other, &from_start).await;
    let response = &events.last().expect("there are events").data["response"];
    let texts: Vec<&str> =
        response["output"].as_array().expect("an output").iter().filter_map(|item| item["content"][0]["text"].as_str()).collect();
    assert_eq!((response["status"].as_str(), texts), (Some("completed"), vec!["First a look.", text]));
}

/// A model that streams nothing and a slow tool, both at the server that the reader is not connected to.
#[tokio::test(flavor = "multi_thread")]
async fn a_silence_at_another_server_is_filled_with_heartbeats() {
    let (model, tools) = (
        FakeModel::held_back(vec![Scene::Call(vec![("echo", json!({ "text": "x" }))]), Scene::Say("done")]).await,
        McpServer::start().await,
    );
    tools.behave(|manners| manners.holds = Some(("echo", 1)));
    let (one, other) = two(&format!("{}\n{}responses: {{ heartbeat: 100ms }}", model.config(), tools.config("tools")), "").await;
    let body = json!({ "model": "fake", "input": "go", "stream": true, "tools": [{ "type": "mcp", "server_label": "tools" }] });
    let mut events = Vec::new();
    let mut at_one = ask(&one, body).await;
    read(&mut at_one, &mut events, |events| !events.is_empty()).await;
    let mut at_other = other.follow(&id(&events), last(&events)).await;
    // No client reads at the server that owns the run, so no reader there requests heartbeats.
    drop(at_one);
    let heartbeats = |events: &[StreamEvent]| of(events, "response.in_progress");
    read(&mut at_other, &mut events, |events| heartbeats(events) >= 4).await;
    model.let_answer();
    read(&mut at_other, &mut events, |events| of(events, "response.mcp_call.in_progress") > 0).await;
    let before = heartbeats(&events);
    read(&mut at_other, &mut events, |events| heartbeats(events) >= before + 3).await;
    tools.behave(|manners| manners.holds = None);
    model.let_answer();
    read(&mut at_other, &mut events, |_| false).await;
    check(&other, &events).await;
    assert_eq!(tools.starts("echo").len(), 1);
}
