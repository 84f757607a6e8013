//! The demo's tool service: takes calls of the two tools, runs them, reports. It counts what it ran, and outlives the server.

use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use serde_json::{Value, json};

use super::{api::Api, scene};

/// How long a claim waits for a call, and how long the service holds one.
const CLAIM_WAIT_S: u64 = 10;
const LEASE_S: u64 = 60;
/// How long it waits before it tries again while the server is away.
const RETRY: Duration = Duration::from_millis(50);

/// The service. What it ran is kept here, and nowhere near the server.
pub(super) struct Service<'a> {
    api: &'a Api,
    ran: Mutex<Vec<String>>,
}

impl<'a> Service<'a> {
    /// A service that has run nothing.
    pub fn new(api: &'a Api) -> Self {
        Service { api, ran: Mutex::default() }
    }

    /// Serves both tools, for as long as this is polled.
    pub async fn run(&self) -> Infallible {
        tokio::select! {
            never = self.serve(scene::READ) => never,
            never = self.serve(scene::WRITE) => never,
        }
    }

    /// How often a tool ran.
    pub fn runs_of(&self, tool: &str) -> usize {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|ran| *ran == tool).count()
    }

    /// The tools of which the server has calls to give out.
    pub async fn open_calls(&self) -> anyhow::Result<Vec<String>> {
        let mut open = Vec::new();
        for tool in [scene::READ, scene::WRITE] {
            open.extend(self.claim(tool, 0).await?.map(|_| tool.to_owned()));
        }
        Ok(open)
    }

    async fn serve(&self, tool: &str) -> Infallible {
        loop {
            match self.claim(tool, CLAIM_WAIT_S).await {
                Ok(Some(call)) => {
                    self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(tool.to_owned());
                    // A result is kept until it is taken: a report that came twice would change nothing.
                    while self.report(&call, scene::result_of(tool)).await.is_err() {
                        tokio::time::sleep(RETRY).await;
                    }
                }
                Ok(None) => {}
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn claim(&self, tool: &str, wait_s: u64) -> anyhow::Result<Option<Value>> {
        let body = json!({ "worker": "demo", "max": 1, "lease_s": LEASE_S, "wait_s": wait_s });
        let mut claimed: Value = self.api.post(&format!("/v1/tools/{tool}/claim"), &body).await?.json().await?;
        Ok(claimed["calls"].get_mut(0).map(Value::take))
    }

    async fn report(&self, call: &Value, result: &str) -> anyhow::Result<()> {
        let agent = call["agent_id"].as_str().context("a call names its agent")?;
        let body = json!({
            "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "success", "result": result,
        });
        self.api.post(&format!("/v1/agents/{agent}/report"), &body).await?;
        Ok(())
    }
}
