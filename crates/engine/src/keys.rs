//! Idempotency keys: a request that is repeated under its key gets the first answer, and nothing is done again.

use windlass_kernel::{AgentKey, AgentName, Tenant, ToolName};
use windlass_ports::{KeptAnswer, RequestKey, RunStatus, StoreError};

use crate::{
    api::{EngineError, Enqueued, Reported},
    engine::{Engine, Inner},
};

/// The stored form of a key. It contains the verb and the agent, because the same key for another verb or agent is another request.
pub(crate) fn scoped(verb: &str, agent: &AgentName, request: Option<RequestKey>) -> Option<RequestKey> {
    request.map(|request| RequestKey { key: format!("{verb}:{agent}/{}", request.key), asked: request.asked })
}

/// The stored form of a key of a tool service's worker.
pub(crate) fn scoped_to_worker(verb: &str, tool: &ToolName, worker: &str, request: Option<RequestKey>) -> Option<RequestKey> {
    request.map(|request| RequestKey { key: format!("{verb}:{tool}/{worker}/{}", request.key), asked: request.asked })
}

impl Engine {
    /// The run of the first request under the key, if there was one.
    pub(crate) async fn first_run(&self, tenant: &Tenant, request: Option<&RequestKey>) -> Result<Option<Enqueued>, EngineError> {
        match request {
            Some(request) => self.run_under(tenant, &request.key, request.asked).await,
            None => Ok(None),
        }
    }

    /// The run that has a key. `None` if there is none, or if it is unreadable: then the store finds the duplicate without reading it.
    pub(crate) async fn run_under(&self, tenant: &Tenant, key: &str, asked: [u8; 16]) -> Result<Option<Enqueued>, EngineError> {
        let Some(run) = self.views().run_by_key(tenant, key).await? else { return Ok(None) };
        let view = match self.views().run(tenant, run).await {
            Err(StoreError::Corrupt(_)) => None,
            read => read?,
        };
        let Some(view) = view else { return Ok(None) };
        if view.note.as_deref().is_some_and(|note| note != asked) {
            return Err(EngineError::KeyReused);
        }
        Ok(Some(Enqueued { run, message: view.message, is_queued: view.status == RunStatus::Queued, epoch: view.epoch }))
    }
}

impl Inner {
    /// The stored answer to an earlier request under the key, if there was one.
    pub async fn answered(&self, tenant: &Tenant, request: Option<&RequestKey>) -> Result<Option<KeptAnswer>, EngineError> {
        let Some(request) = request else { return Ok(None) };
        match self.views.answered(tenant, &request.key).await? {
            Some(kept) if kept.asked != request.asked => Err(EngineError::KeyReused),
            kept => Ok(kept),
        }
    }

    /// The stored answer to an earlier report under the key, if there was one.
    pub async fn reported(&self, agent: &AgentKey, request: Option<&RequestKey>) -> Result<Option<Reported>, EngineError> {
        let kept = self.answered(&agent.tenant, request).await?;
        Ok(kept.and_then(|kept| kept.message).map(|message| Reported { message, is_duplicate: false }))
    }
}
