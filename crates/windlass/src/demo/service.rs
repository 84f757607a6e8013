//! The demo's tool service: claims calls of the two tools, runs them and reports. It counts the calls that it ran, and outlives the server.

use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use serde_json::{Value, json};

use super::{api::Api, setup};

/// How long a claim waits for a call, and the length of the lease.
const CLAIM_WAIT_S: u64 = 10;
const LEASE_S: u64 = 60;
/// The pause before a retry while the server is down.
const RETRY: Duration = Duration::from_millis(50);

/// The service. It counts in this process, independently of the server.
pub(super) struct Service<'a> {
    api: &'a Api,
    ran: Mutex<Vec<String>>,
}

impl<'a> Service<'a> {
    /// A service that has not run a call yet.
    pub fn new(api: &'a Api) -> Self {
        Service { api, ran: Mutex::default() }
    }

    /// Serves both tools while it is polled.
    pub async fn run(&self) -> Infallible {
        tokio::select! {
            never = self.serve(setup::READ) => never,
            never = self.serve(setup::WRITE) => never,
        }
    }

    /// The number of calls of a tool that ran.
    pub fn runs_of(&self, tool: &str) -> usize {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|ran| *ran == tool).count()
    }

    /// The tools that have open calls on the server.
    pub async fn open_calls(&self) -> anyhow::Result<Vec<String>> {
        let mut open = Vec::new();
        for tool in [setup::READ, setup::WRITE] {
            open.extend(self.claim(tool, 0).await?.map(|_| tool.to_owned()));
        }
        Ok(open)
    }

    async fn serve(&self, tool: &str) -> Infallible {
        loop {
            match self.claim(tool, CLAIM_WAIT_S).await {
                Ok(Some(call)) => {
                    self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(tool.to_owned());
                    // The report is repeated until the server accepts it; a duplicate changes nothing.
                    while self.report(&call, setup::result_of(tool)).await.is_err() {
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
