//! Calls that external tool services run: claim, renew, release. The result comes as a report.

use windlass_kernel::{CallNumber, RunId, Tenant, ToolName};
use windlass_ports::{CallClaim, ClaimedCall, RequestKey};

use crate::{api::EngineError, engine::Engine, keys, watch::Watch};

/// A tool service's request to claim, renew or release calls.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The tenant whose calls are claimed.
    pub tenant: Tenant,
    /// The tool whose calls are claimed.
    pub tool: ToolName,
    /// The name of the service's worker, which holds the claim.
    pub worker: String,
    /// The largest number of calls to claim.
    pub max: usize,
    /// The length of the lease in milliseconds.
    pub lease_ms: u64,
    /// A claim repeated under the same key gets the same calls.
    pub key: Option<String>,
    /// The key with the hash of the request. Another request under the same key is refused, and a repeated release gets its first answer.
    pub request: Option<RequestKey>,
}

impl Engine {
    /// Claims calls for a service. They belong to it until the lease ends; a write without a report by then is parked.
    pub async fn claim(&self, mut request: ClaimRequest) -> Result<Vec<ClaimedCall>, EngineError> {
        self.known_tool(&request.tenant, &request.tool)?;
        request.request = keys::scoped_to_worker("claim", &request.tool, &request.worker, request.request);
        // The answer to a repeated claim is its calls, which the store finds by their key. Here only another request under the same key
        // is found, and refused.
        self.inner().answered(&request.tenant, request.request.as_ref()).await?;
        let claim = self.hold(request);
        let calls = self.inner().store.claim_calls(claim).await?;
        if !calls.is_empty() {
            self.inner().crash.before_effect("tool_start");
        }
        Ok(calls)
    }

    /// Renews the lease of claimed calls. Returns the calls that the service does not hold any more.
    pub async fn renew(&self, request: ClaimRequest, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, EngineError> {
        self.known_tool(&request.tenant, &request.tool)?;
        let claim = self.hold(request);
        Ok(self.inner().store.renew_calls(claim, calls).await?)
    }

    /// Releases claimed calls that were not started. Returns the calls that the service did not hold any more.
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
        let lost = self.inner().store.release_calls(claim, calls).await?;
        self.inner().notify_services(&tenant, &tool);
        Ok(lost)
    }

    /// A watch that wakes when a call of the tool may be claimable.
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
