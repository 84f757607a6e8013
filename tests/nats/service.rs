//! A tool service that uses NATS: it gets commands there, claims the calls over HTTP, and reports.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures_util::StreamExt;
use serde_json::{Value, json};
use windlass_tests::{NatsServer, Server, ServerBuilder, until};

use crate::CONFIG;

/// The number of starts of each call.
type Started = Arc<Mutex<BTreeMap<String, u32>>>;

/// Subscribes to a tool's commands. A command is only a doorbell: the service starts what the claim returns.
async fn service(nats: &NatsServer, server: &Server, tool: &'static str, worker: String) -> Started {
    let mut commands = nats.client().await.subscribe(format!("windlass.default.cmd.tool.{tool}")).await.expect("a subscription");
    let started = Started::default();
    let ledger = started.clone();
    let (client, base) = (reqwest::Client::builder().no_proxy().build().expect("a client"), server.base().to_owned());
    tokio::spawn(async move {
        while let Some(_command) = commands.next().await {
            let post = |path: String, body: Value| {
                client.post(format!("{base}{path}")).bearer_auth("test-token-of-22-characters").json(&body).send()
            };
            let claim = json!({ "worker": worker, "max": 10, "lease_s": 60 });
            let Ok(answer) = post(format!("/v1/tools/{tool}/claim"), claim).await else { return };
            let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap_or_default()).unwrap_or_default();
            for call in answer["calls"].as_array().into_iter().flatten() {
                let id = call["tool_call_id"].as_str().expect("a call has an id").to_owned();
                *ledger.lock().expect("the lock is not poisoned").entry(id).or_default() += 1;
                let report = json!({
                    "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "success", "result": "served",
                });
                let agent = call["agent_id"].as_str().expect("a call has an agent");
                let _ = post(format!("/v1/agents/{agent}/report"), report).await;
            }
        }
    });
    started
}

#[tokio::test]
async fn a_service_on_nats_answers_by_report() {
    let nats = NatsServer::start().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let started = service(&nats, &server, "pay", "w1".into()).await;
    let other = service(&nats, &server, "pay", "w2".into()).await;
    let mut runs = Vec::new();
    for n in 0..20 {
        runs.push(server.enqueue_body(&format!("agent-{n}"), json!({ "input": "call pay", "tools": ["pay"] })).await);
    }
    for run in &runs {
        let ended = server.ended(run).await;
        assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "The results are: pay gave served");
    }
    let mut all = started.lock().expect("the lock is not poisoned").clone();
    all.extend(other.lock().expect("the lock is not poisoned").clone());
    assert_eq!((all.len(), all.values().sum::<u32>()), (20, 20), "each call was started once, by one of the two");
}

#[tokio::test]
async fn a_doubled_command_starts_nothing_twice() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let started = service(&nats, &server, "pay", "w1".into()).await;
    let run = server.enqueue("a", "call pay").await;
    server.ended(&run).await;
    let commands = listener.wait_for("windlass.default.cmd.tool.pay", 1).await;
    let again = nats.client().await;
    for _ in 0..10 {
        again.publish(commands[0].subject.clone(), commands[0].body.to_string().into()).await.expect("a command is doubled");
    }
    // The service handles the next call after all of the duplicated commands.
    again.flush().await.expect("they are sent");
    let run = server.enqueue("a", "call pay").await;
    server.ended(&run).await;
    let started = started.lock().expect("the lock is not poisoned").clone();
    assert_eq!(started.values().copied().collect::<Vec<_>>(), [1, 1], "{started:?}");
}

/// A service that missed every command finds its calls by claiming.
#[tokio::test]
async fn a_service_that_missed_every_command_finds_its_calls() {
    let nats = NatsServer::start().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let run = server.enqueue("a", "call pay").await;
    server.suspended("a", &run).await;
    let call = until("the call is there", || async {
        let answer = server.post("/v1/tools/pay/claim", json!({ "worker": "late", "max": 1, "lease_s": 60 })).await.ok();
        answer["calls"].as_array().and_then(|calls| calls.first().cloned())
    })
    .await;
    server.report(&call, json!("late")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
}
