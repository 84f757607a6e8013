//! A tool service of the test's own, and the ledger of what it started.
//!
//! It does what a careful service does. It hears of a call (here by looking at the run, where NATS would ring), claims it under
//! a key, and claims again under the same key if no answer came: while its lease lasts, it gets the same call. What it starts it
//! writes into its ledger *before* it does anything else. It reports until the report is acknowledged. A worker that dies does
//! none of this any more: its calls are left to the end of their lease.

use serde_json::{Value, json};

use crate::{scenarios, world::World};
use reqwest::Method;

/// One start of a call.
#[derive(Clone, Debug)]
pub struct Start {
    /// The call.
    pub call: String,
    /// The key the service was given for it.
    pub key: String,
    /// What the tool does to the world.
    pub effect: &'static str,
}

/// A call that a worker holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// What the claim handed out.
    pub command: Value,
    worker: String,
}

impl Held {
    fn text(&self, field: &str) -> &str {
        self.command[field].as_str().unwrap_or_else(|| panic!("a claimed call has {field}: {}", self.command))
    }

    /// The call.
    pub fn call(&self) -> &str {
        self.text("tool_call_id")
    }
}

impl World {
    /// Waits until a call of the tool stands in the run with one of these statuses. Returns the call and its status.
    pub async fn call_is(&mut self, run: &str, tool: &str, statuses: &[&str]) -> (String, String) {
        let path = format!("/v1/windlass/runs/{run}/calls?limit=1000");
        self.wait(&format!("{tool} of {run} is {statuses:?}"), &path, |view| {
            let calls = view["calls"].as_array()?;
            let found = calls.iter().find(|call| call["tool"] == tool && statuses.iter().any(|status| call["status"] == *status))?;
            Some((found["tool_call_id"].as_str()?.to_owned(), found["status"].as_str()?.to_owned()))
        })
        .await
    }

    /// Claims the run's waiting call of a tool. `None` if the call was lost before the service heard of it.
    pub async fn claim(&mut self, run: &str, tool: &str, worker: &str, lease_s: u64) -> Option<Held> {
        let (_, status) = self.call_is(run, tool, &["waiting", "parked", "expired"]).await;
        if status != "waiting" {
            return None;
        }
        self.claim_any(tool, worker, lease_s).await
    }

    /// Claims the oldest waiting call of a tool. Without an answer the claim is made again under its key.
    pub async fn claim_any(&mut self, tool: &str, worker: &str, lease_s: u64) -> Option<Held> {
        self.claims += 1;
        let key = format!("{worker}-{}", self.claims);
        let body = json!({ "worker": worker, "max": 1, "lease_s": lease_s });
        let path = format!("/v1/tools/{tool}/claim");
        let (answer, _) = self.send(Method::POST, &path, Some(&body), Some(&key)).await;
        let command = answer.ok()["calls"].get(0).cloned()?;
        Some(Held { command, worker: worker.to_owned() })
    }

    /// Starts a held call: on record first.
    pub fn start_call(&mut self, held: &Held) {
        let tool = held.text("tool");
        let start = Start { call: held.call().to_owned(), key: held.text("idempotency_key").to_owned(), effect: scenarios::effect(tool) };
        self.ledger.push(start);
    }

    /// Reports a call's result until that is acknowledged. Says whether it was there already.
    pub async fn report(&mut self, held: &Held) -> bool {
        let body = json!({
            "agent_turn_id": held.text("agent_turn_id"), "tool_call_id": held.call(), "status": "success",
            "result": { "tool": held.text("tool"), "did": held.command["arguments"] }, "turn_epoch": held.command["turn_epoch"],
        });
        let answer = self.post(&format!("/v1/agents/{}/report", held.text("agent_id")), body).await;
        answer["duplicate"].as_bool().expect("a report's answer says whether it is a duplicate")
    }

    /// Claims, starts and reports a call.
    pub async fn serve(&mut self, run: &str, tool: &str) {
        let held = self.claim(run, tool, "w1", 60).await.unwrap_or_else(|| panic!("{tool} of {run} can be claimed"));
        self.start_call(&held);
        self.report(&held).await;
    }

    /// Prolongs or gives back a hold. Without an answer that is done again under its key.
    pub async fn change_hold(&mut self, verb: &str, held: &Held) {
        let calls = json!([{ "agent_turn_id": held.text("agent_turn_id"), "tool_call_id": held.call() }]);
        let mut body = json!({ "worker": held.worker, "calls": calls });
        if verb == "renew" {
            body["lease_s"] = json!(60);
        }
        let path = format!("/v1/tools/{}/{verb}", held.text("tool"));
        self.claims += 1;
        let key = format!("{verb}-{}", self.claims);
        let (answer, _) = self.send(Method::POST, &path, Some(&body), Some(&key)).await;
        let lost = answer.ok()["lost"].as_array().map_or(0, Vec::len);
        assert_eq!(lost, 0, "{verb}: a hold is lost that nobody took");
    }
}
