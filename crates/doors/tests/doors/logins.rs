//! Tokens that are guessed, expired or replaced.

use std::time::{Duration, Instant};

use axum::{body::Body, http::Request};
use windlass_doors::{Peer, Tokens};

use crate::support::{Answer, World, request, token};

const NEAR: &str = "192.0.2.7:5000";
const FAR: &str = "198.51.100.1:5000";
/// A duration between a prompt answer and one that is delayed by a second.
const PROMPT: Duration = Duration::from_millis(700);

fn from(peer: &str, token: &str, forwarded: Option<&str>) -> Request<Body> {
    let mut request = request("GET", token, "/v1/models").extension(Peer(peer.parse().unwrap()));
    if let Some(forwarded) = forwarded {
        request = request.header("x-forwarded-for", forwarded);
    }
    request.body(Body::empty()).unwrap()
}

async fn timed(world: &World, request: Request<Body>) -> (Answer, Duration) {
    let began = Instant::now();
    (world.send(request).await, began.elapsed())
}

/// Sends wrong tokens until their answers are delayed.
async fn exhaust(world: &World, peer: &str, forwarded: Option<&str>) {
    for _ in 0..20 {
        assert_eq!(world.send(from(peer, "guess", forwarded)).await.status, 401);
    }
}

#[tokio::test]
async fn tm_14_wrong_tokens_of_one_peer_are_answered_late() {
    let world = World::start();
    exhaust(&world, NEAR, None).await;
    let (refused, took) = timed(&world, from(NEAR, "guess", None)).await;
    assert!(refused.status == 401 && took > PROMPT, "{took:?} {refused:?}");
    let (served, took) = timed(&world, from(NEAR, "all", None)).await;
    assert!(served.status == 200 && took < PROMPT, "a right token is served at once: {took:?} {served:?}");
    let (refused, took) = timed(&world, from(FAR, "guess", None)).await;
    assert!(refused.status == 401 && took < PROMPT, "others are not slowed: {took:?}");
    let bare = Request::get("/v1/models").extension(Peer(NEAR.parse().unwrap())).body(Body::empty()).unwrap();
    let (refused, took) = timed(&world, bare).await;
    assert!(refused.status == 401 && took < PROMPT, "no token is no guess: {took:?}");
}

#[tokio::test]
async fn tm_14_behind_a_proxy_the_client_is_slowed_and_not_the_proxy() {
    let world = World::start().behind_proxies(&["192.0.2.7"]);
    exhaust(&world, NEAR, Some("203.0.113.9")).await;
    let (_, took) = timed(&world, from(NEAR, "guess", Some("1.1.1.1, 203.0.113.9"))).await;
    assert!(took > PROMPT, "the client cannot choose its address: {took:?}");
    let (_, took) = timed(&world, from(NEAR, "guess", Some("203.0.113.10"))).await;
    assert!(took < PROMPT, "another client of the proxy: {took:?}");

    let world = world.behind_proxy();
    exhaust(&world, NEAR, Some("203.0.113.9")).await;
    let (_, took) = timed(&world, from(NEAR, "guess", Some("203.0.113.9"))).await;
    assert!(took < PROMPT, "without a list of proxies the rule is off: {took:?}");
}

#[tokio::test]
async fn tm_14_an_expired_token_is_refused() {
    let world = World::start();
    assert_eq!(world.get_as("brief", "/v1/models").await.status, 200);
    world.pass_s(3601);
    let refused = world.get_as("brief", "/v1/agents/alice").await;
    assert_eq!(refused.refusal(), (401, "unauthorized".into()));
    assert!(refused.json()["error"]["message"].as_str().unwrap().starts_with("this token expired at 20"), "{refused:?}");
    assert_eq!(world.get_as("brief", "/v1/models").await.status, 401);
}

#[tokio::test]
async fn tm_14_tokens_can_be_replaced_while_the_server_runs() {
    let world = World::start();
    world.state.tokens().replace(Tokens::new(vec![token("fresh", "t", &["*"])]));
    assert_eq!(world.get_as("fresh", "/v1/models").await.status, 200);
    assert_eq!(world.get_as("all", "/v1/models").await.status, 401);
}
