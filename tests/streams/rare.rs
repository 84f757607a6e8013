//! Death at the rarer commits of a response: a heartbeat, text that the model does not continue, and content that is erased.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{EventStream, FakeModel, Next, Scene, Server, ServerBuilder, StreamEvent, responses::Grammar, until};

const BOTH: [&str; 2] = ["before", "after"];

/// Reads until the connection breaks, the response ends or there is enough. Returns which.
async fn read(stream: &mut EventStream, events: &mut Vec<StreamEvent>, enough: impl Fn(&[StreamEvent]) -> bool) -> Option<bool> {
    while !enough(events) {
        match stream.next().await {
            Next::Event(event) => events.push(event),
            Next::Comment => {}
            Next::Done => return Some(true),
            Next::Broken => return Some(false),
            Next::Closed => panic!("a stream that was not over was closed as if it were"),
        }
    }
    None
}

async fn ask(server: &Server, body: Value) -> EventStream {
    EventStream::new(server.authorized(Method::POST, "/v1/responses").json(&body).send().await.expect("the stream opens"))
}

fn id(events: &[StreamEvent]) -> String {
    events[0].data["response"]["id"].as_str().expect("a response has an id").to_owned()
}

fn heartbeats(events: &[StreamEvent]) -> usize {
    events.iter().filter(|event| event.kind() == "response.in_progress").count() - 1
}

fn check(events: &[StreamEvent]) {
    let mut grammar = Grammar::default();
    events.iter().for_each(|event| grammar.take(&event.data));
    assert!(grammar.ended().is_some(), "the response is over");
}

async fn restarted(mut server: Server) -> Server {
    server.gone().await;
    server.restart(&[]).await
}

async fn resumed(server: &Server, events: &[StreamEvent]) -> EventStream {
    server.follow(&id(events), events.last().and_then(|event| event.data["sequence_number"].as_u64())).await
}

pub async fn with_heartbeats() {
    for when in BOTH {
        let config = "tools: { external: [ { name: look, effect: read } ] }\nresponses: { heartbeat: 50ms }";
        let server = ServerBuilder::new(config).env("WINDLASS_CRASH_AT", &format!("commit.quiet.{when}:2")).start().await;
        let body = json!({ "model": "offline", "input": "call look", "stream": true, "windlass": { "tools": ["look"] } });
        let mut events = Vec::new();
        let mut stream = ask(&server, body).await;
        assert_eq!(read(&mut stream, &mut events, |_| false).await, Some(false), "the server dies");
        let server = restarted(server).await;
        let mut stream = resumed(&server, &events).await;
        assert_eq!(read(&mut stream, &mut events, |events| heartbeats(events) >= 4).await, None);
        let call = server.claim("look").await;
        server.report(&call, json!("seen")).await.ok();
        assert_eq!(read(&mut stream, &mut events, |_| false).await, Some(true));
        check(&events);
    }
}

pub async fn text_that_is_not_continued() {
    for when in BOTH {
        let scenes = vec![Scene::Cut("The answer is"), Scene::Say("Another beginning"), Scene::Say("forty-two.")];
        let model = FakeModel::start(scenes).await;
        let config = format!("{}\nlimits: {{ backoff: 10ms, sweep_interval: 50ms }}", model.config());
        let server = ServerBuilder::new(&config).env("WINDLASS_CRASH_AT", &format!("commit.cut.{when}:1")).start().await;
        let mut events = Vec::new();
        let mut stream = ask(&server, json!({ "model": "fake", "input": "go", "stream": true })).await;
        assert_eq!(read(&mut stream, &mut events, |_| false).await, Some(false), "the server dies");
        let server = restarted(server).await;
        let mut stream = resumed(&server, &events).await;
        assert_eq!(read(&mut stream, &mut events, |_| false).await, Some(true));
        check(&events);
        let output = &events.last().expect("there are events").data["response"]["output"];
        let text_at = |index: usize| output[index]["content"][0]["text"].clone();
        assert_eq!((text_at(0), text_at(1)), (json!("The answer is"), json!("forty-two.")), "{output:#}");
        let messages = model.asked().last().expect("the model was asked")["messages"].to_string();
        assert!(messages.contains("The answer is") && messages.contains("cut off"), "{messages}");
    }
}

pub async fn what_is_not_kept_is_erased() {
    for when in BOTH {
        let config = "responses: { erase_s: 0 }\nlimits: { sweep_interval: 20ms }";
        let server = ServerBuilder::new(config).env("WINDLASS_CRASH_AT", &format!("commit.erase.{when}:1")).start().await;
        let body = json!({ "model": "offline", "input": "a secret", "store": false });
        // The server may die before it has sent the answer.
        drop(server.try_post("/v1/responses", body).await);
        let server = restarted(server).await;
        until("nothing of it is left", || async { (server.database().number("SELECT count(*) FROM items") == 0).then_some(()) }).await;
    }
}

/// Half a JSON object is not a message that a model could continue.
pub async fn half_an_object_fails() {
    let model = FakeModel::start(vec![Scene::Cut("{\"answer\": 4"), Scene::Say("{\"other\": 1}")]).await;
    let config = format!("{}\nlimits: {{ backoff: 10ms }}", model.config());
    let server = ServerBuilder::new(&config).start().await;
    let format = json!({ "type": "json_schema", "name": "answer", "schema": { "type": "object" } });
    let mut events = Vec::new();
    let body = json!({ "model": "fake", "input": "go", "stream": true, "text": { "format": format } });
    let mut stream = ask(&server, body).await;
    assert_eq!(read(&mut stream, &mut events, |_| false).await, Some(true));
    check(&events);
    let last = events.last().expect("there are events");
    assert_eq!(last.kind(), "response.failed");
    assert_eq!(last.data["response"]["error"]["code"], "stream_cut");
    assert_eq!(last.data["response"]["output"][0]["content"][0]["text"], "{\"answer\": 4");
}
