//! Claiming, renewing and releasing calls.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use crate::support::{World, report, request};

#[tokio::test]
async fn a_claimed_call_has_all_a_service_needs() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo {\"a\": 1}").await;
    let call = world.claim("echo").await;
    assert_eq!(call["agent_id"], "alice");
    assert_eq!(call["agent_turn_id"], run);
    assert_eq!(call["turn_epoch"], 1);
    assert_eq!(call["tool"], "echo");
    assert_eq!(call["arguments"], json!({ "a": 1 }));
    assert_eq!(call["idempotency_key"], call["tool_call_id"]);
    assert_eq!(call["attempt"], 1);
    assert_eq!(call["tool_call_id"], format!("call_{}_1", &run["run_".len()..]));
    assert_eq!(call["step_id"], format!("step_{}_1", &run["run_".len()..]));
    let deadline = call["deadline"].as_str().unwrap();
    assert!(deadline.ends_with('Z') && deadline.len() == "2024-01-01T00:00:00.000Z".len(), "{deadline}");
    let none = world.post("/v1/tools/echo/claim", r#"{"worker": "w2", "max": 100}"#).await.expect(200);
    assert_eq!(none, json!({ "calls": [] }));
}

#[tokio::test]
async fn a_waiting_claim_wakes_when_a_call_is_made() {
    let world = World::start();
    let (claimed, _) = tokio::join!(world.claim("echo"), world.enqueue("alice", "call echo"));
    assert_eq!(claimed["tool"], "echo");
}

#[tokio::test]
async fn a_waiting_claim_gives_up_in_time() {
    let world = World::start();
    let waiting = world.post("/v1/tools/echo/claim", r#"{"worker": "w", "wait_s": 1}"#);
    let answer = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap();
    assert_eq!(answer.expect(200), json!({ "calls": [] }));
}

#[tokio::test]
async fn a_repeated_claim_gives_the_same_calls() {
    let world = World::start();
    world.enqueue("alice", "call echo").await;
    world.until_status("alice", "suspended").await;
    let claim = |key: &'static str| {
        let body = Body::from(r#"{"worker": "w", "max": 5}"#);
        world.send(request("POST", "toolman", "/v1/tools/echo/claim").header("idempotency-key", key).body(body).unwrap())
    };
    let first = claim("k").await.expect(200);
    assert_eq!(first["calls"].as_array().unwrap().len(), 1);
    assert_eq!(claim("k").await.expect(200), first);
    assert_eq!(claim("l").await.expect(200), json!({ "calls": [] }));
}

#[tokio::test]
async fn a_hold_is_prolonged_and_given_back() {
    let world = World::start();
    world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let claimed = json!({ "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"] });
    let strange = json!({ "agent_turn_id": "run_x", "tool_call_id": "nonsense" });
    let body = |worker: &str| json!({ "worker": worker, "lease_s": 100, "calls": [strange, claimed] }).to_string();
    assert_eq!(world.post("/v1/tools/echo/renew", body("w1")).await.expect(200), json!({ "lost": [strange] }));
    assert_eq!(world.post("/v1/tools/echo/renew", body("w2")).await.expect(200), json!({ "lost": [strange, claimed] }));
    let release = json!({ "worker": "w1", "calls": [claimed] }).to_string();
    let foreign = world.post_as("echoer", "/v1/tools/echo/release", release.clone()).await.expect(200);
    assert_eq!(foreign, json!({ "lost": [claimed] }), "another token's worker of that name");
    assert_eq!(world.post("/v1/tools/echo/release", release.clone()).await.expect(200), json!({ "lost": [] }));
    assert_eq!(world.post("/v1/tools/echo/release", release).await.expect(200), json!({ "lost": [claimed] }));
    assert_eq!(world.claim("echo").await["attempt"], 2);
}

#[tokio::test]
async fn a_claim_is_not_needed_to_report() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    world.until_status("alice", "suspended").await;
    let call = json!({ "agent_turn_id": run, "tool_call_id": format!("call_{}_1", &run["run_".len()..]), "turn_epoch": 0 });
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    world.ended("alice", &run).await;
}

#[tokio::test]
async fn there_are_no_calls_of_an_unknown_tool() {
    let world = World::start();
    for verb in ["claim", "renew", "release"] {
        let body = if verb == "claim" { r#"{"worker": "w"}"# } else { r#"{"worker": "w", "calls": []}"# };
        let answer = world.post(&format!("/v1/tools/hammer/{verb}"), body).await;
        assert_eq!(answer.refusal(), (404, "unknown_tool".into()));
    }
}
