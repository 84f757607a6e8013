//! Calls that services outside run: claimed, prolonged, given back. The result comes as a report.

use windlass_kernel::{CallNumber, RunId, Tenant, ToolName};
use windlass_ports::{CallClaim, ClaimedCall, CommitKind, RequestKey};

use crate::{api::EngineError, engine::Engine, keys, watch::Watch};

/// A service's wish for calls.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Whose calls.
    pub tenant: Tenant,
    /// Of which tool.
    pub tool: ToolName,
    /// Which worker of the service.
    pub worker: String,
    /// How many at the most.
    pub max: usize,
    /// For how long.
    pub lease_ms: u64,
    /// The same key gives the same calls.
    pub key: Option<String>,
    /// What is asked under the key: another request under the same key is refused, and a release is answered as before.
    pub request: Option<RequestKey>,
}

impl Engine {
    /// Gives calls to a service. They are its own until the lease ends; a write it does not report on by then is parked.
    pub async fn claim(&self, mut request: ClaimRequest) -> Result<Vec<ClaimedCall>, EngineError> {
        self.known_tool(&request.tenant, &request.tool)?;
        request.request = keys::scoped_to_worker("claim", &request.tool, &request.worker, request.request);
        // The answer to a claim is its calls, which the store finds by their key. Only another request under the key is found here.
        self.inner().answered(&request.tenant, request.request.as_ref()).await?;
        let claim = self.hold(request);
        self.inner().crash.before_commit(CommitKind::Claim);
        let calls = self.inner().store.claim_calls(claim).await?;
        if !calls.is_empty() {
            self.inner().crash.after_commit(CommitKind::Claim);
            self.inner().crash.before_effect("tool_start");
        }
        Ok(calls)
    }

    /// Prolongs a hold; returns what is no longer held.
    pub async fn renew(&self, request: ClaimRequest, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, EngineError> {
        self.known_tool(&request.tenant, &request.tool)?;
        let claim = self.hold(request);
        self.inner().crash.before_commit(CommitKind::Renew);
        let lost = self.inner().store.renew_calls(claim, calls).await?;
        self.inner().crash.after_commit(CommitKind::Renew);
        Ok(lost)
    }

    /// Gives calls back unstarted; returns what was no longer held.
    pub async fn release(
        &self,
        mut request: ClaimRequest,
        calls: Vec<(RunId, CallNumber)>,
    ) -> Result<Vec<(RunId, CallNumber)>, EngineError> {
        self.known_tool(&request.tenant, &request.tool)?;
        request.request = keys::scoped_to_worker("release", &request.tool, &request.worker, request.request);
        if let Some(before) = self.inner().answered(&request.tenant, request.request.as_ref()).await? {
            return Ok(before.lost);
        }
        let (tenant, tool) = (request.tenant.clone(), request.tool.clone());
        let claim = self.hold(request);
        self.inner().crash.before_commit(CommitKind::Release);
        let lost = self.inner().store.release_calls(claim, calls).await?;
        self.inner().crash.after_commit(CommitKind::Release);
        self.inner().tell_services(&tenant, &tool);
        Ok(lost)
    }

    /// Wakes when a call of the tool may have become claimable.
    pub fn watch_tool(&self, tenant: &Tenant, tool: &ToolName) -> Watch {
        self.inner().tool_news.watch(&(tenant.clone(), tool.clone()))
    }

    fn known_tool(&self, tenant: &Tenant, tool: &ToolName) -> Result<(), EngineError> {
        match self.inner().roster.external_tool(tenant, tool).is_some() {
            true => Ok(()),
            false => Err(EngineError::UnknownTool(tool.clone())),
        }
    }

    fn hold(&self, request: ClaimRequest) -> CallClaim {
        let now = self.inner().clock.now();
        CallClaim {
            tenant: request.tenant,
            tool: request.tool,
            worker: request.worker,
            max: request.max,
            until: now.plus_ms(request.lease_ms),
            key: request.key,
            request: request.request,
            now,
        }
    }
}
