//! The agents API, and lists and runs below `/v1/windlass`.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Server, ServerBuilder};

use crate::transcript::Transcript;

pub const CONFIG: &str = "
limits: { sweep_interval: 50ms }
tools:
  external:
    - { name: echo, effect: read, description: repeats }
    - { name: pay, effect: write }
    - { name: last, effect: read, after_execution: terminate }
agents:
  ada: { tools: [echo, pay, last], instructions: Be brief. }
";

/// Reads everything that the API shows of a run and of its agent.
async fn read_all(t: &mut Transcript, server: &Server, run: &str) {
    let shown = t.get(server, &format!("/v1/windlass/runs/{run}")).await;
    t.get(server, &format!("/v1/windlass/runs/{run}/journal")).await;
    t.get(server, &format!("/v1/windlass/runs/{run}/calls")).await;
    let output = shown["output_box_id"].as_str().expect("a run has an output box").to_owned();
    let items = t.get(server, &format!("/v1/windlass/boxes/{output}")).await;
    for item in items["items"].as_array().expect("a box has items") {
        let id = item["item_id"].as_str().expect("an item has an id");
        t.get(server, &format!("/v1/windlass/items/{id}")).await;
    }
}

async fn enqueue(t: &mut Transcript, server: &Server, body: Value) -> String {
    let taken = t.post(server, "/v1/agents/ada/enqueue", body).await;
    taken["agent_turn_id"].as_str().expect("an accepted turn has an id").to_owned()
}

async fn claim(t: &mut Transcript, server: &Server, tool: &str) -> Value {
    server.agent_is("ada", "suspended").await;
    t.post(server, &format!("/v1/tools/{tool}/claim"), json!({ "worker": "w1", "wait_s": 5 })).await["calls"][0].clone()
}

#[tokio::test]
async fn a_turn_with_a_tool() {
    let server = ServerBuilder::new(CONFIG).start().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    let run = enqueue(t, &server, json!({ "input": "call echo" })).await;
    let call = claim(t, &server, "echo").await;
    t.get(&server, "/v1/agents/ada").await;
    let report = json!({
        "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "turn_epoch": call["turn_epoch"], "status": "success", "result": { "said": "hi" },
    });
    t.post(&server, "/v1/agents/ada/report", report.clone()).await;
    server.ended(&run).await;
    server.agent_is("ada", "idle").await;
    t.post(&server, "/v1/agents/ada/report", report).await;
    read_all(t, &server, &run).await;
    t.get(&server, "/v1/agents/ada/inbox").await;
    t.get(&server, "/v1/agents/ada/edges").await;
    for event in server.events_until_end("ada", &run).await {
        t.line(&format!("id: {} event: {} data: {}", event.id, event.event, event.data));
    }
    transcript.check("agents_turn");
}

#[tokio::test]
async fn stops_actions_and_a_parked_write() {
    let server = ServerBuilder::new(CONFIG).start().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    let stopped = enqueue(t, &server, json!({ "input": "call echo" })).await;
    claim(t, &server, "echo").await;
    t.post(&server, "/v1/agents/ada/stop", json!({ "agent_turn_id": stopped, "reason": "enough" })).await;
    server.ended(&stopped).await;
    read_all(t, &server, &stopped).await;
    server.agent_is("ada", "idle").await;
    let action = json!({ "action_id": "a1", "tool": "last", "args": { "x": 1 } });
    t.post(&server, "/v1/agents/ada/actions", action).await;
    let call = claim(t, &server, "last").await;
    server.report(&call, json!("done")).await.ok();
    server.agent_is("ada", "idle").await;
    let parked = enqueue(t, &server, json!({ "input": "call pay" })).await;
    server.agent_is("ada", "suspended").await;
    t.post(&server, "/v1/tools/pay/claim", json!({ "worker": "w1", "wait_s": 5, "lease_s": 1 })).await;
    windlass_tests::until("the write is parked", || async { (server.calls(&parked).await[0]["status"] == "parked").then_some(()) }).await;
    read_all(t, &server, &parked).await;
    t.get(&server, "/v1/windlass/runs").await;
    t.get(&server, "/v1/windlass/agents").await;
    t.get(&server, "/v1/windlass/tools").await;
    let call = t.get(&server, &format!("/v1/windlass/runs/{parked}/calls")).await["calls"][0]["tool_call_id"].clone();
    let decision = json!({ "run_id": parked, "tool_call_id": call, "action": "record", "status": "success", "result": "paid" });
    t.post(&server, "/v1/windlass/reconcile", decision).await;
    server.ended(&parked).await;
    read_all(t, &server, &parked).await;
    transcript.check("agents_decisions");
}

#[tokio::test]
async fn refused_requests_of_agents() {
    let server = ServerBuilder::new(CONFIG).start().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    let requests = [
        ("/v1/agents/ada/enqueue", json!({})),
        ("/v1/agents/ada/enqueue", json!({ "input": "x", "inputs": "y" })),
        ("/v1/agents/nobody/enqueue", json!({ "input": "x" })),
        ("/v1/agents/ada/report", json!({ "agent_turn_id": "run_1" })),
        ("/v1/agents/ada/stop", json!({ "agent_turn_id": "run_00000000000000000000000000000000" })),
        ("/v1/agents/ada/actions", json!({ "action_id": "1", "tool": "unknown", "args": {} })),
        ("/v1/tools/unknown/claim", json!({ "worker": "w" })),
        ("/v1/windlass/reconcile", json!({ "action": "record" })),
        ("/v1/windlass/boxes", json!({ "boxes": [] })),
    ];
    for (path, body) in requests {
        t.post(&server, path, body).await;
    }
    t.get(&server, "/v1/windlass/runs/run_00000000000000000000000000000000").await;
    t.send(&server, Method::DELETE, "/v1/windlass/runs", None).await;
    transcript.check("agents_refused");
}
