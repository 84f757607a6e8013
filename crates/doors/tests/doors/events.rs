//! The event stream: what it contains, and how a client resumes it.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{World, report, request};

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    id: String,
    subject: String,
    data: Value,
}

fn parse(chunk: &str) -> Seen {
    let mut lines = chunk.strip_suffix("\n\n").unwrap_or_else(|| panic!("half an event: {chunk:?}")).lines();
    let mut field =
        |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {chunk:?}")).to_owned();
    let (id, subject, data) = (field("id: "), field("event: "), field("data: "));
    Seen { id, subject, data: serde_json::from_str(&data).unwrap() }
}

async fn open(world: &World, path: &str, last: Option<&str>) -> Body {
    let mut builder = request("GET", "reader", path);
    if let Some(last) = last {
        builder = builder.header("last-event-id", last);
    }
    let response = world.router.clone().oneshot(builder.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    response.into_body()
}

async fn next(body: &mut Body) -> Option<Seen> {
    let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.expect("an event in time")?;
    let bytes = frame.unwrap().into_data().unwrap();
    Some(parse(std::str::from_utf8(&bytes).unwrap()))
}

/// Reads up to the end of `count` turns.
async fn turns(body: &mut Body, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut ended = 0;
    while ended < count {
        let event = next(body).await.expect("the stream continues");
        ended += usize::from(event.data["status"] == "idle");
        seen.push(event);
    }
    seen
}

#[tokio::test]
async fn every_turn_is_streamed_in_order_with_one_task_event() {
    let world = World::start();
    let first = world.enqueue("alice", "hello").await;
    let second = world.enqueue("alice", "again").await;
    world.ended("alice", &second).await;
    let seen = turns(&mut open(&world, "/v1/agents/alice/events?from=start", None).await, 2).await;
    let tasks: Vec<&Seen> = seen.iter().filter(|event| event.subject == "evt.agent.alice.task").collect();
    assert_eq!(tasks.iter().map(|task| task.data["agent_turn_id"].as_str().unwrap()).collect::<Vec<_>>(), [&first, &second]);
    for task in tasks {
        assert_eq!(task.data["status"], "success");
        assert!(task.data["deliverable_card_id"].is_string(), "{task:?}");
    }
    assert!(seen.iter().all(|event| event.subject.starts_with("evt.agent.alice.")), "{seen:?}");
    assert!(seen.iter().any(|event| event.subject == "evt.agent.alice.step" && event.data["phase"] == "started"));
    assert!(seen.iter().any(|event| event.subject == "evt.agent.alice.state" && event.data["metadata"]["activity"] == "thinking"));
}

#[tokio::test]
async fn tm_18_the_events_of_an_agent_leave_out_what_is_not_to_be_stored() {
    let world = World::start();
    let body = |store: bool| json!({ "model": "agent/one-at-a-time", "input": "hi", "store": store }).to_string();
    world.post("/v1/responses", body(false)).await.expect(200);
    let shown = world.post("/v1/responses", body(true)).await.expect(200)["id"].as_str().unwrap().replace("resp_", "run_");
    let seen = turns(&mut open(&world, "/v1/agents/one-at-a-time/events?from=start", None).await, 1).await;
    assert!(seen.iter().all(|event| event.data["agent_turn_id"] == shown || event.data["agent_turn_id"].is_null()), "{seen:?}");
}

#[tokio::test]
async fn a_stream_resumes_after_any_event() {
    let world = World::start();
    let run = world.enqueue("alice", "hello").await;
    world.ended("alice", &run).await;
    let last = world.enqueue("alice", "again").await;
    world.ended("alice", &last).await;
    let path = "/v1/agents/alice/events";
    let whole = turns(&mut open(&world, &format!("{path}?from=start"), None).await, 2).await;
    for (index, event) in whole.iter().enumerate().take(whole.len() - 1) {
        let left = whole[index + 1..].iter().filter(|event| event.data["status"] == "idle").count();
        // The header takes precedence over the query: a browser that resumes a stream sends both.
        let by_header = turns(&mut open(&world, &format!("{path}?from=start"), Some(&event.id)).await, left).await;
        assert_eq!(by_header, whole[index + 1..], "after {}", event.id);
        let by_query = turns(&mut open(&world, &format!("{path}?after={}", event.id), None).await, left).await;
        assert_eq!(by_query, whole[index + 1..], "after {}", event.id);
    }
}

#[tokio::test]
async fn a_reader_without_a_cursor_sees_what_is_not_over() {
    let world = World::start();
    let over = world.enqueue("alice", "hello").await;
    world.ended("alice", &over).await;
    let active = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let mut live = open(&world, "/v1/agents/alice/events", None).await;
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    let seen = turns(&mut live, 1).await;
    assert!(seen.iter().all(|event| event.data["agent_turn_id"] == active), "{seen:?}");
    assert_eq!(seen[0].data["phase"], "started");

    // No run is active now, so a new reader gets only later events.
    let mut fresh = open(&world, "/v1/agents/alice/events", None).await;
    let new = world.enqueue("alice", "new").await;
    for stream in [&mut live, &mut fresh] {
        let seen = turns(stream, 1).await;
        assert!(seen.iter().all(|event| event.data["agent_turn_id"] == new), "{seen:?}");
    }
}

#[tokio::test]
async fn an_agent_can_be_watched_before_it_is_used() {
    let world = World::start();
    let mut stream = open(&world, "/v1/agents/nobody/events", None).await;
    let run = world.enqueue("nobody", "hello").await;
    assert_eq!(turns(&mut stream, 1).await[0].data["agent_turn_id"], run);
}

#[tokio::test]
async fn the_stream_ends_when_the_server_drains() {
    let world = World::start();
    let mut stream = open(&world, "/v1/agents/alice/events", None).await;
    world.engine.drain().await;
    assert_eq!(next(&mut stream).await, None);
}
