//! Log lines and metrics of model calls, for operators.

use windlass_kernel::{AgentKey, Epoch, FailureCode, ModelCallId, Reply, RunId, Spent, Tenant};
use windlass_ports::{Fact, Model, ModelCalled, ModelError};

use crate::{engine::Inner, fair_semaphore::Permit, token_meter::TokenMeter, worker_message::EffectError};

/// An attempt at a model call.
pub(crate) struct Attempt {
    pub agent: AgentKey,
    pub run: RunId,
    pub epoch: Epoch,
    pub id: ModelCallId,
}

impl Attempt {
    /// Counts the attempt, and logs it if it failed.
    pub fn observe(&self, inner: &Inner, model: &str, outcome: &Result<Reply, EffectError<ModelError>>, spent: &Spent, meter: &TokenMeter) {
        let (failure, usage) = match outcome {
            Ok(reply) => (None, reply.usage),
            Err(EffectError::NotStarted) => return,
            Err(EffectError::Failed(error)) => (Some((error.code.clone(), error.message.as_str())), spent.usage),
            Err(EffectError::Panicked) => (Some((FailureCode::Panicked, "the code that calls the model panicked")), spent.usage),
            Err(EffectError::ReplayMismatch) => {
                (Some((FailureCode::Diverged, "the reply does not begin with the text that was streamed before")), spent.usage)
            }
        };
        let ms = meter.started().map(|started| inner.clock.now().0.saturating_sub(started.0).max(0).unsigned_abs());
        let (agent, code, first_token_ms) = (&self.agent.agent, failure.as_ref().map(|(code, _)| code), meter.first_token_ms());
        inner.meter.record(Fact::ModelCalled(ModelCalled { model, agent, code, ms, first_token_ms, usage }));
        if let Some((code, reason)) = &failure {
            let code = code.as_str();
            let Attempt { agent: AgentKey { tenant, agent }, run, epoch, id } = self;
            let ModelCallId { iteration, attempt, .. } = *id;
            let (epoch, node) = (epoch.0, inner.node.0);
            tracing::warn!(%tenant, %agent, %run, epoch, node, iteration, attempt, model, code, reason, "a model call failed");
        }
    }
}

/// Waits for a permit to call a model of this name, and counts the call as waiting meanwhile.
pub(crate) async fn permit(inner: &Inner, model: &dyn Model, name: &str, tenant: &Tenant) -> Permit {
    let _queued = Queued::new(inner, name);
    inner.semaphores.of(model.line(), model.concurrency()).acquire(tenant).await
}

/// Counts a model call as waiting for a permit for as long as this value lives.
struct Queued<'a> {
    inner: &'a Inner,
    model: &'a str,
}

impl<'a> Queued<'a> {
    fn new(inner: &'a Inner, model: &'a str) -> Self {
        inner.meter.record(Fact::ModelQueued(model));
        Queued { inner, model }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.inner.meter.record(Fact::ModelDequeued(self.model));
    }
}
