//! The scopes that operations need.

use axum::{body::Body, http::Request};
use serde_json::json;

use crate::support::{World, report};

#[tokio::test]
async fn nothing_but_health_is_open() {
    let world = World::start();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(world.send(Request::get(path).body(Body::empty()).unwrap()).await.status, 200);
    }
    for path in ["/v1/agents/alice", "/v1/windlass/runs/x", "/nowhere", "/", "/healthz/", "/v1/agents/alice/events"] {
        let bare = world.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(bare.refusal(), (401, "unauthorized".into()), "{path}");
        assert_eq!(bare.headers["www-authenticate"], "Bearer");
        assert_eq!(world.get_as("stranger", path).await.refusal(), (401, "unauthorized".into()));
    }
    for header in ["all", "Basic all", "Bearer", "Bearer all x", "Bearer \u{7f}"] {
        let request = Request::get("/v1/agents/alice").header("authorization", header.as_bytes());
        let Ok(request) = request.body(Body::empty()) else { continue };
        assert_eq!(world.send(request).await.refusal(), (401, "unauthorized".into()), "{header}");
    }
}

#[tokio::test]
async fn a_missing_scope_is_named() {
    let world = World::start();
    let posts = [
        ("reader", "/v1/agents/alice/enqueue", "agents:write"),
        ("reader", "/v1/agents/alice/report", "tools:* or approvals:answer"),
        ("writer", "/v1/agents/alice/stop", "agents:stop"),
        ("reader", "/v1/agents/alice/actions", "agents:write"),
        ("stopper", "/v1/agents/alice/steer", "agents:write"),
        ("writer", "/v1/tools/echo/claim", "tools:echo"),
        ("echoer", "/v1/tools/pay/claim", "tools:pay"),
        ("echoer", "/v1/tools/pay/renew", "tools:pay"),
        ("echoer", "/v1/tools/pay/release", "tools:pay"),
        ("reader", "/v1/windlass/boxes", "agents:write"),
        ("writer", "/v1/windlass/reconcile", "approvals:answer or admin"),
        ("writer", "/v1/windlass/interrupts/x", "approvals:answer or admin"),
        ("judge", "/v1/windlass/erase", "admin"),
        ("judge", "/v1/windlass/gc", "admin"),
    ];
    for (token, path, scope) in posts {
        let answer = world.post_as(token, path, "{}").await;
        assert_eq!(answer.refusal(), (403, "forbidden".into()), "{token} {path}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().ends_with(scope), "{answer:?}");
    }
    let gets = ["", "/inbox", "/edges", "/events"].map(|rest| format!("/v1/agents/alice{rest}"));
    for path in gets.iter().map(String::as_str).chain([
        "/v1/windlass/runs/x",
        "/v1/windlass/items/x",
        "/v1/windlass/boxes/x",
        "/v1/windlass/interrupts",
        "/v1/windlass/interrupts/x",
    ]) {
        assert_eq!(world.get_as("writer", path).await.refusal(), (403, "forbidden".into()), "{path}");
    }
}

#[tokio::test]
async fn a_tool_service_reports_on_its_own_tools_only() {
    let world = World::start();
    world.enqueue("alice", "call pay").await;
    world.until_status("alice", "suspended").await;
    let taken = world.post_as("toolman", "/v1/tools/pay/claim", r#"{"worker": "w1"}"#.to_owned()).await.expect(200);
    let call = taken["calls"][0].clone();
    let path = "/v1/agents/alice/report";
    assert_eq!(world.post_as("echoer", path, report(&call, "1")).await.refusal(), (403, "forbidden".into()));
    let unmade = json!({ "agent_turn_id": call["agent_turn_id"], "tool_call_id": format!("{}9", call["tool_call_id"].as_str().unwrap()), "turn_epoch": 1 });
    assert_eq!(world.post_as("echoer", path, report(&unmade, "1")).await.refusal(), (404, "unknown_call".into()));
    assert_eq!(world.post_as("other", path, report(&call, "1")).await.refusal(), (404, "unknown_turn".into()));
    assert_eq!(world.post(path, report(&call, "1")).await.refusal(), (403, "not_the_claimant".into()));
    world.post_as("toolman", path, report(&call, "1")).await.expect(202);
}

#[tokio::test]
async fn objects_of_another_tenant_do_not_exist() {
    let world = World::start();
    let run = world.enqueue("alice", "hello").await;
    let ended = world.ended("alice", &run).await;
    let (item, output) = (ended["deliverable_item_id"].as_str().unwrap(), ended["output_box_id"].as_str().unwrap());
    for (path, code) in [
        (format!("/v1/windlass/runs/{run}"), "unknown_run"),
        (format!("/v1/windlass/runs/{run}/journal"), "unknown_run"),
        (format!("/v1/windlass/runs/{run}/calls"), "unknown_run"),
        (format!("/v1/windlass/items/{item}"), "unknown_item"),
        (format!("/v1/windlass/boxes/{output}"), "unknown_box"),
    ] {
        world.get_as("reader", &path).await.expect(200);
        assert_eq!(world.get_as("other", &path).await.refusal(), (404, code.into()), "{path}");
    }
    let stop = json!({ "agent_turn_id": run, "reason": "x" }).to_string();
    assert_eq!(world.post_as("other", "/v1/agents/alice/stop", stop).await.refusal(), (404, "unknown_turn".into()));
    let body = json!({ "input": "x", "context_box_id": output }).to_string();
    assert_eq!(world.post_as("other", "/v1/agents/alice/enqueue", body).await.refusal(), (400, "unknown_box".into()));
}
