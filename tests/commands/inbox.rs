//! `inbox`, `approve`, `reject`, `raise` and `end` against a running server that is killed in between.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    dev::Dev,
    verbs::{json_of, post, run},
};

const CONFIG: &str = "tools:
  external:
    - { name: pay, description: pays, parameters: { type: object }, effect: write }
    - { name: note, description: notes, parameters: { type: object }, effect: read }
approvals: [ { tool: pay } ]
agents:
  clerk: { tools: [pay] }
  thrifty: { tools: [note], budgets: { iterations: 1, parks: true } }
limits: { sweep_interval: 50ms, lease: 1s }";

/// The parameters of a tool that pays whole sums.
const SUMS: &str = "{ type: object, properties: { sum: { type: integer } } }, effect: write";

/// The open interrupts, once there is one.
async fn waiting(folder: &Path) -> Value {
    for _ in 0..100 {
        let listed = json_of(folder, &["inbox", "--json"]);
        if listed["interrupts"].get(0).is_some() {
            return listed["interrupts"][0].clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing waits");
}

async fn ended(folder: &Path, run: &str) -> Value {
    for _ in 0..200 {
        let shown = json_of(folder, &["show", run, "--json"]);
        if shown["state"] == "ended" {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{run} never ends");
}

async fn claim(dev: &Dev, tool: &str) -> Value {
    post(dev, &format!("/v1/tools/{tool}/claim"), json!({ "worker": "w", "wait_s": 10 })).await["calls"][0].clone()
}

async fn report(dev: &Dev, agent: &str, call: &Value) {
    let body = json!({ "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
    post(dev, &format!("/v1/agents/{agent}/report"), body).await;
}

/// A run that gets the result of its only iteration and would need another.
async fn passes_its_budget(dev: &Dev) -> String {
    let taken = post(dev, "/v1/agents/thrifty/enqueue", json!({ "input": "call note" })).await;
    let call = claim(dev, "note").await;
    report(dev, "thrifty", &call).await;
    taken["run_id"].as_str().expect("a run").to_owned()
}

#[tokio::test]
async fn s_11_an_approval_is_given_between_two_kills_and_the_call_starts_once() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("windlass.yaml"), CONFIG).expect("a configuration");
    let dev = Dev::start(folder);
    let (empty, _, code) = run(folder, &["inbox"]);
    assert_eq!((empty.as_str(), code), ("nothing waits for a person\n", Some(0)));
    let taken = post(&dev, "/v1/agents/clerk/enqueue", json!({ "input": "call pay {\"sum\": 5}" })).await;
    let id = taken["run_id"].as_str().expect("a run").to_owned();
    waiting(folder).await;
    drop(dev);

    let dev = Dev::start(folder);
    let (listed, _, code) = run(folder, &["inbox"]);
    assert!(code == Some(3) && listed.contains("approval") && listed.contains(r#"{"sum":5}"#), "{listed}");
    assert!(run(folder, &["show", &id]).0.contains("pay: needs approval"), "{}", run(folder, &["show", &id]).0);
    let none = post(&dev, "/v1/tools/pay/claim", json!({ "worker": "w" })).await;
    assert_eq!(none["calls"], json!([]), "it cannot be claimed yet");
    let (out, err, code) = run(folder, &["approve", "1"]);
    assert!(code == Some(0) && out.starts_with("approve int_"), "{out}{err}");
    drop(dev);

    let dev = Dev::start(folder);
    let (_, err, code) = run(folder, &["reject", "1", "--comment", "too late"]);
    assert!(code == Some(10) && err.contains("approve by"), "{err}");
    let call = claim(&dev, "pay").await;
    assert_eq!(call["arguments"], json!({ "sum": 5 }));
    report(&dev, "clerk", &call).await;
    assert_eq!(ended(folder, &id).await["task_status"], "success");
    let calls = post(&dev, "/v1/tools/pay/claim", json!({ "worker": "w" })).await;
    assert_eq!(calls["calls"], json!([]), "it was started once");
}

#[tokio::test]
async fn s_11_a_call_is_approved_with_other_arguments_from_a_file() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("windlass.yaml"), CONFIG.replace("{ type: object }, effect: write", SUMS)).expect("a configuration");
    let dev = Dev::start(folder);
    post(&dev, "/v1/agents/clerk/enqueue", json!({ "input": "call pay {\"sum\": 5}" })).await;
    waiting(folder).await;
    for (text, message) in [("{", "no JSON object"), ("[]", "must be a JSON object"), (r#"{"sum":"all"}"#, "/sum")] {
        std::fs::write(folder.join("edit.json"), text).expect("a file");
        let (out, err, code) = run(folder, &["approve", "1", "--edit", "edit.json"]);
        assert!(code != Some(0) && err.contains(message), "{text}: {out}{err}");
    }
    std::fs::write(folder.join("edit.json"), r#"{"sum": 3}"#).expect("a file");
    let (out, err, code) = run(folder, &["approve", "1", "--edit", "edit.json"]);
    assert!(code == Some(0) && out.starts_with("edit int_"), "{out}{err}");
    drop(dev);

    let dev = Dev::start(folder);
    assert_eq!(claim(&dev, "pay").await["arguments"], json!({ "sum": 3 }));
}

#[tokio::test]
async fn a_used_up_budget_is_raised_and_the_run_continues() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("windlass.yaml"), CONFIG).expect("a configuration");
    let dev = Dev::start(folder);
    let id = passes_its_budget(&dev).await;
    let budget = waiting(folder).await["budget"].clone();
    assert_eq!(budget, json!({ "kind": "iterations", "limit": 1, "used": 2, "limit_min": 2 }));
    drop(dev);

    let _dev = Dev::start(folder);
    let (listed, _, _) = run(folder, &["inbox"]);
    assert!(listed.contains("iterations: 2 of 1"), "{listed}");
    let (_, err, code) = run(folder, &["raise", "1", "1"]);
    assert!(code == Some(1) && err.contains("must be at least 2"), "{err}");
    let (_, err, code) = run(folder, &["approve", "1"]);
    assert!(code == Some(1) && err.contains("raise, end"), "{err}");
    assert_eq!(run(folder, &["raise", "1", "3"]).2, Some(0));
    let run = ended(folder, &id).await;
    assert_eq!((&run["task_status"], &run["iteration"]), (&json!("success"), &json!(2)));
}

#[tokio::test]
async fn a_run_that_waits_for_a_budget_ends_as_it_would_have_ended() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("windlass.yaml"), CONFIG).expect("a configuration");
    let dev = Dev::start(folder);
    let id = passes_its_budget(&dev).await;
    waiting(folder).await;
    assert_eq!(run(folder, &["end", "1"]).2, Some(0));
    let run = ended(folder, &id).await;
    assert_eq!((&run["task_status"], &run["end_reason"]), (&json!("partial"), &json!({ "budget": "iterations" })));
}
