//! Requests that may be made again: under the same key they are answered as before, and nothing is done.

use windlass_kernel::{AgentKey, AgentName, Tenant, ToolName};
use windlass_ports::{KeptAnswer, RequestKey};

use crate::{
    api::{EngineError, Reported},
    engine::Inner,
};

/// A key is the agent's and the verb's own: the same one elsewhere is another request.
pub(crate) fn scoped(verb: &str, agent: &AgentName, request: Option<RequestKey>) -> Option<RequestKey> {
    request.map(|request| RequestKey { key: format!("{verb}:{agent}/{}", request.key), asked: request.asked })
}

/// The same for a worker of a tool's service.
pub(crate) fn scoped_to_worker(verb: &str, tool: &ToolName, worker: &str, request: Option<RequestKey>) -> Option<RequestKey> {
    request.map(|request| RequestKey { key: format!("{verb}:{tool}/{worker}/{}", request.key), asked: request.asked })
}

impl Inner {
    /// What a request was told that came before, if it has.
    pub async fn answered(&self, tenant: &Tenant, request: Option<&RequestKey>) -> Result<Option<KeptAnswer>, EngineError> {
        let Some(request) = request else { return Ok(None) };
        match self.views.answered(tenant, &request.key).await? {
            Some(kept) if kept.asked != request.asked => Err(EngineError::KeyReused),
            kept => Ok(kept),
        }
    }

    /// The same of a report.
    pub async fn reported(&self, agent: &AgentKey, request: Option<&RequestKey>) -> Result<Option<Reported>, EngineError> {
        let kept = self.answered(&agent.tenant, request).await?;
        Ok(kept.and_then(|kept| kept.message).map(|message| Reported { message, is_duplicate: false }))
    }
}
