//! A tool service, and the ledger of the calls that it started.
//!
//! It does what a careful service does. It learns of a call (here by polling the run, where a real one would get a message from NATS),
//! claims it with an idempotency key, and repeats the claim with the same key if no answer came: while its lease lasts, it gets the same
//! call. It writes each start into its ledger *before* it does anything else. It repeats a report until the report is acknowledged. A
//! worker that dies does none of this any more, so its calls wait until their leases end.

use serde_json::{Value, json};

use crate::{scenarios, world::World};
use reqwest::Method;

/// One start of a call.
#[derive(Clone, Debug)]
pub struct Start {
    /// The id of the call.
    pub call: String,
    /// The idempotency key that the service got with the call.
    pub key: String,
    /// The tool's external effect.
    pub effect: &'static str,
}

/// A call that a worker has claimed.
#[derive(Clone, Debug)]
pub struct Held {
    /// The claimed call, as the claim returned it.
    pub command: Value,
    worker: String,
}

impl Held {
    fn text(&self, field: &str) -> &str {
        self.command[field].as_str().unwrap_or_else(|| panic!("a claimed call has {field}: {}", self.command))
    }

    /// The id of the call.
    pub fn call(&self) -> &str {
        self.text("tool_call_id")
    }
}

impl World {
    /// Waits until the run has a call of the tool with one of these statuses. Returns the call and its status.
    pub async fn call_is(&mut self, run: &str, tool: &str, statuses: &[&str]) -> (String, String) {
        let path = format!("/v1/windlass/runs/{run}/calls?limit=1000");
        self.wait(&format!("{tool} of {run} is {statuses:?}"), &path, |view| {
            let calls = view["calls"].as_array()?;
            let found = calls.iter().find(|call| call["tool"] == tool && statuses.iter().any(|status| call["status"] == *status))?;
            Some((found["tool_call_id"].as_str()?.to_owned(), found["status"].as_str()?.to_owned()))
        })
        .await
    }

    /// Claims the run's waiting call of a tool. `None` if the call was lost before the service learned of it.
    pub async fn claim(&mut self, run: &str, tool: &str, worker: &str, lease_s: u64) -> Option<Held> {
        let (_, status) = self.call_is(run, tool, &["waiting", "parked", "expired"]).await;
        if status != "waiting" {
            return None;
        }
        self.claim_any(tool, worker, lease_s).await
    }

    /// Claims the oldest waiting call of a tool. Without an answer it repeats the claim with the same key.
    pub async fn claim_any(&mut self, tool: &str, worker: &str, lease_s: u64) -> Option<Held> {
        self.claims += 1;
        let key = format!("{worker}-{}", self.claims);
        let body = json!({ "worker": worker, "max": 1, "lease_s": lease_s });
        let path = format!("/v1/tools/{tool}/claim");
        let (answer, _) = self.send(Method::POST, &path, Some(&body), Some(&key)).await;
        let command = answer.ok()["calls"].get(0).cloned()?;
        Some(Held { command, worker: worker.to_owned() })
    }

    /// Starts a claimed call, after writing the start into the ledger.
    pub fn start_call(&mut self, held: &Held) {
        let tool = held.text("tool");
        let start = Start { call: held.call().to_owned(), key: held.text("idempotency_key").to_owned(), effect: scenarios::effect(tool) };
        self.ledger.push(start);
    }

    /// Reports a call's result until the report is acknowledged. Returns whether the result was there already.
    pub async fn report(&mut self, held: &Held) -> bool {
        let body = json!({
            "agent_turn_id": held.text("agent_turn_id"), "tool_call_id": held.call(), "status": "success",
            "result": { "tool": held.text("tool"), "did": held.command["arguments"] }, "turn_epoch": held.command["turn_epoch"],
        });
        let answer = self.post(&format!("/v1/agents/{}/report", held.text("agent_id")), body).await;
        answer["duplicate"].as_bool().expect("a report's answer shows whether it is a duplicate")
    }

    /// Claims, starts and reports a call.
    pub async fn serve(&mut self, run: &str, tool: &str) {
        let held = self.claim(run, tool, "w1", 60).await.unwrap_or_else(|| panic!("{tool} of {run} can be claimed"));
        self.start_call(&held);
        self.report(&held).await;
    }

    /// Extends or releases a lease. Without an answer it repeats the request with the same key.
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
        assert_eq!(lost, 0, "{verb}: a lease is lost that no other worker took");
    }
}
