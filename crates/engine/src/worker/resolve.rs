//! Resolving messages outside of a commit of the active run: those of other runs, and those that were answered meanwhile.

use windlass_kernel::{Epoch, Input, StreamedText, check_steering};
use windlass_ports::{MessageId, RunStatus, StoreError, Withdrawn};

use super::{
    Advanced, Worker, interrupt_answer,
    observe::Observed,
    pending_message::{PendingMessage, Reply, stop_message},
};
use crate::{
    api::{EngineError, Stop, Stopped},
    draft::Draft,
    steering,
    worker_message::{Steering, WorkerMessage},
};

impl Worker {
    /// Resolves messages that are not about the active run or no longer fit its state. Each gets its answer here, without a commit of the
    /// active run.
    pub(super) async fn resolve_outside_commit(&mut self, pending: &mut Vec<PendingMessage>) -> Result<Advanced, StoreError> {
        self.resolve_answered(pending).await?;
        let mut more = Advanced::Done;
        for message in pending.iter_mut() {
            let reply = match &message.message {
                Some(WorkerMessage::Report(result, _)) => match self.inner.record((**result).clone()).await {
                    Ok(reported) => {
                        // The result may wait in the inbox now. The next load applies it, or records it as ignored.
                        self.active.forget_run();
                        more = Advanced::MoreToDo;
                        Reply::Reported(reported)
                    }
                    Err(EngineError::Store(error)) => return Err(error),
                    Err(error) => Reply::Refused(error),
                },
                Some(WorkerMessage::Stop(stop, _)) => match self.stop_queued(stop).await? {
                    Some(stopped) => Reply::Stopped(stopped),
                    None => {
                        self.active.forget_run();
                        more = Advanced::MoreToDo;
                        continue;
                    }
                },
                Some(WorkerMessage::Steer(steering, _)) => match self.record_steering(steering).await {
                    Ok(recorded) => {
                        self.active.forget_run();
                        more = Advanced::MoreToDo;
                        Reply::Recorded(recorded)
                    }
                    Err(EngineError::Store(error)) => return Err(error),
                    Err(error) => Reply::Refused(error),
                },
                Some(WorkerMessage::AnswerInterrupt(answer, _)) => {
                    let run = self.active.run().filter(|run| run.id == answer.run).map(|run| &run.state);
                    let refusal = run.and_then(|run| interrupt_answer::find(run, answer).err());
                    Reply::Refused(refusal.unwrap_or(EngineError::NotParked))
                }
                Some(
                    WorkerMessage::CheckStore
                    | WorkerMessage::Enqueue(..)
                    | WorkerMessage::Heartbeat(..)
                    | WorkerMessage::Reasoned(_)
                    | WorkerMessage::ModelDone(_)
                    | WorkerMessage::ToolDone(_)
                    | WorkerMessage::ChildStarted(_),
                )
                | None => Reply::Committed(None),
            };
            message.resolve(reply);
        }
        pending.retain(|message| !message.is_resolved());
        Ok(more)
    }

    /// Resolves messages whose request this or another process answered since they were received.
    pub(super) async fn resolve_answered(&self, pending: &mut Vec<PendingMessage>) -> Result<(), StoreError> {
        for message in pending.iter_mut() {
            let Some(key) = message.key().cloned() else { continue };
            match self.inner.answered(&self.agent.tenant, Some(&key)).await {
                Ok(None) => {}
                Ok(Some(kept)) => message.resolve(Reply::Answered(kept)),
                Err(EngineError::Store(error)) => return Err(error),
                Err(error) => message.resolve(Reply::Refused(error)),
            }
        }
        pending.retain(|message| !message.is_resolved());
        Ok(())
    }

    /// Stores an instruction for a run that another process owns, or says why the run does not take it.
    async fn record_steering(&self, steering: &Steering) -> Result<MessageId, EngineError> {
        if let Some(run) = self.active.run().filter(|run| run.id == steering.run) {
            check_steering(&run.state, &run.manifest).map_err(steering::refusal)?;
        }
        self.inner.record_steering(steering.clone()).await
    }

    /// Ends a run that is queued. Returns `None` if the run is active by now.
    async fn stop_queued(&self, stop: &Stop) -> Result<Option<Stopped>, StoreError> {
        let Some(view) = self.inner.views.run(&self.agent.tenant, stop.run).await? else {
            return Ok(Some(Stopped::Before));
        };
        match view.status {
            RunStatus::Ended => Ok(Some(Stopped::Before)),
            RunStatus::Active => Ok(None),
            RunStatus::Queued => {
                let now = self.inner.clock.now();
                let mut draft = Draft::new(&view.state);
                draft.messages.push(stop_message(stop));
                let stopped = Input::Stopped { reason: stop.reason.clone(), streamed: StreamedText::default() };
                draft.step(&view.manifest, stopped, now, self.inner.ids.as_ref());
                let commit = draft.into_commit(stop.run, None, self.inner.node, now);
                let state = commit.state.clone();
                let outcome = self.inner.store.withdraw(self.agent.clone(), commit).await?;
                if outcome == Withdrawn::Done {
                    let epoch = view.epoch.unwrap_or(Epoch(0));
                    Observed { inner: &self.inner, agent: &self.agent, run: stop.run, epoch }.ended(&state, now);
                }
                self.notify_watchers(true);
                Ok((outcome == Withdrawn::Done).then_some(Stopped::Now))
            }
        }
    }
}
