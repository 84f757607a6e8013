//! Steering: instructions for a run that is active.

use windlass_kernel::{AgentKey, IgnoreReason, check_steering};
use windlass_ports::{MessageId, MessageKind, NewMessage, NewReport, RunStatus, Taken};

use crate::{
    api::{EngineError, Steer},
    engine::{Engine, Inner},
    keys,
    worker_message::{Steering, WorkerMessage},
};

impl Engine {
    /// Gives the active run another instruction, which its next iteration reads. When this returns, the instruction is on disk.
    pub async fn steer(&self, steer: Steer) -> Result<MessageId, EngineError> {
        let key = keys::scoped("steer", &steer.agent.agent, steer.key);
        if let Some(kept) = self.inner().answered(&steer.agent.tenant, key.as_ref()).await? {
            return kept.message.ok_or(EngineError::Internal);
        }
        let run = self.run_of(&steer.agent, steer.run).await?;
        if run.status != RunStatus::Active {
            return Err(EngineError::NotActive);
        }
        check_steering(&run.state, &run.manifest).map_err(refusal)?;
        let tenant = &steer.agent.tenant;
        self.admit_content(tenant)?;
        let (kind, content) = steer.input;
        let item = self.item(kind, content)?;
        self.check_prompt(tenant, Some(run.state.output), std::slice::from_ref(&item)).await?;
        let agent: AgentKey = run.agent;
        let steering = Steering { agent: agent.clone(), run: steer.run, item, source: steer.source, key };
        if self.is_draining() {
            return self.inner().record_steering(steering).await;
        }
        self.ask(&agent, |answer| WorkerMessage::Steer(Box::new(steering), answer)).await
    }
}

impl Inner {
    /// Stores an instruction in the inbox, where the owner of the run finds it.
    pub async fn record_steering(&self, steering: Steering) -> Result<MessageId, EngineError> {
        let message = steering_message(&steering);
        let Steering { agent, run, item, .. } = steering;
        let report = NewReport { agent: agent.clone(), run, message, content: item, now: self.clock.now() };
        match self.store.report(report).await? {
            Taken::Recorded(message) => {
                self.ring(&agent);
                Ok(message)
            }
            Taken::NotActive => Err(EngineError::NotActive),
            Taken::UnknownRun => Err(EngineError::UnknownRun),
            Taken::Late(_) | Taken::Duplicate(_) => Err(EngineError::Internal),
        }
    }
}

/// The inbox row of an instruction.
pub(crate) fn steering_message(steering: &Steering) -> NewMessage {
    NewMessage {
        kind: MessageKind::Steer,
        call: None,
        retry: 0,
        item: Some(steering.item.id),
        outcome: None,
        after: None,
        source: steering.source.clone(),
        reason: None,
        key: steering.key.clone(),
    }
}

/// The error of a run that does not take an instruction, from the reason of the kernel.
pub(crate) fn refusal(reason: IgnoreReason) -> EngineError {
    if reason == IgnoreReason::NotSteerable {
        EngineError::NotSteerable
    } else if reason == IgnoreReason::TooManyInstructions {
        EngineError::TooManyInstructions
    } else {
        EngineError::NotActive
    }
}
