//! Messages on their way through a worker: drafted into a commit, or resolved outside of one.

mod decisions;

use windlass_kernel::{
    Failure, FailureCause, FailureCode, Input, ItemId, ItemKind, NewItem, OpenCall, Phase, Progress, Report, ReportCause, RunId, Spent,
    StreamedText, TaskStatus, Tenant, Timestamp, check_steering, parameters::Parameters,
};
use windlass_ports::{KeptAnswer, MessageId, MessageKind, ModelError, NewMessage, RequestKey, Retry};

use super::active_run::ActiveRun;
use crate::{
    api::{Answered, EngineError, Reported, Stop, Stopped, ToolResult},
    draft::Draft,
    engine::Inner,
    failover::ModelChoice,
    mailbox::result_content,
    steering::steering_message,
    worker_message::{ChildStarted, EffectError, ModelDone, Reasoned, Refused, Steering, ToolDone, WorkerMessage},
};

/// A message that waits to be part of a commit, and its progress.
pub(super) struct PendingMessage {
    pub(super) message: Option<WorkerMessage>,
    is_drafted: bool,
    has_message: bool,
    /// What the draft made of an answer to an interrupt.
    answered: Option<Answered>,
}

/// The outcome of a message, from which its sender's answer is made.
pub(super) enum Reply {
    /// It is part of a commit. The id is that of its inbox row, if it has one.
    Committed(Option<MessageId>),
    /// The report was recorded outside the active run's commit, now or before.
    Reported(Reported),
    /// The instruction was stored for the owner of the run, in this inbox row.
    Recorded(MessageId),
    /// The same request was answered before, under its key.
    Answered(KeptAnswer),
    /// The run had ended before, or was ended while it was queued.
    Stopped(Stopped),
    /// It was refused.
    Refused(EngineError),
}

impl PendingMessage {
    pub fn new(message: WorkerMessage) -> Self {
        PendingMessage { message: Some(message), is_drafted: false, has_message: false, answered: None }
    }

    /// Whether the message comes from this process itself, so that no request waits for an answer.
    pub fn is_local(&self) -> bool {
        matches!(
            self.message,
            Some(
                WorkerMessage::Reasoned(_)
                    | WorkerMessage::ModelDone(_)
                    | WorkerMessage::ToolDone(_)
                    | WorkerMessage::ChildStarted(_)
                    | WorkerMessage::Heartbeat(..)
            )
        )
    }

    /// Whether the message may settle streamed text: the run may end, or continue in another message item.
    pub fn may_settle_text(&self) -> bool {
        match &self.message {
            Some(WorkerMessage::Stop(..)) => true,
            Some(WorkerMessage::ModelDone(model_done)) => {
                matches!(model_done.outcome, Err(EffectError::Failed(_) | EffectError::ReplayMismatch))
            }
            Some(
                WorkerMessage::CheckStore
                | WorkerMessage::Enqueue(..)
                | WorkerMessage::Report(..)
                | WorkerMessage::Steer(..)
                | WorkerMessage::AnswerInterrupt(..)
                | WorkerMessage::Heartbeat(..)
                | WorkerMessage::Reasoned(_)
                | WorkerMessage::ToolDone(_)
                | WorkerMessage::ChildStarted(_),
            )
            | None => false,
        }
    }

    /// Whether an effect was never started because this process had no lease.
    pub fn is_unstarted(&self) -> bool {
        match &self.message {
            Some(WorkerMessage::ModelDone(model_done)) => matches!(model_done.outcome, Err(EffectError::NotStarted)),
            Some(WorkerMessage::ToolDone(done)) => matches!(done.outcome, Err(EffectError::NotStarted)),
            Some(WorkerMessage::ChildStarted(started)) => matches!(started.outcome, Err(EffectError::NotStarted)),
            Some(
                WorkerMessage::CheckStore
                | WorkerMessage::Enqueue(..)
                | WorkerMessage::Report(..)
                | WorkerMessage::Stop(..)
                | WorkerMessage::Steer(..)
                | WorkerMessage::AnswerInterrupt(..)
                | WorkerMessage::Heartbeat(..)
                | WorkerMessage::Reasoned(_),
            )
            | None => false,
        }
    }

    /// Whether the message is a stop or an answer to an interrupt. Only these take a run from another process.
    pub fn is_person_request(&self) -> bool {
        matches!(self.message, Some(WorkerMessage::Stop(..) | WorkerMessage::AnswerInterrupt(..)))
    }

    /// The idempotency key of the request, if it has one.
    pub fn key(&self) -> Option<&RequestKey> {
        match self.message.as_ref()? {
            WorkerMessage::Report(result, _) => result.key.as_ref(),
            WorkerMessage::Stop(stop, _) => stop.key.as_ref(),
            WorkerMessage::Steer(steering, _) => steering.key.as_ref(),
            WorkerMessage::AnswerInterrupt(answer, _) => answer.key.as_ref(),
            WorkerMessage::CheckStore
            | WorkerMessage::Enqueue(..)
            | WorkerMessage::Heartbeat(..)
            | WorkerMessage::Reasoned(_)
            | WorkerMessage::ModelDone(_)
            | WorkerMessage::ToolDone(_)
            | WorkerMessage::ChildStarted(_) => None,
        }
    }

    pub fn is_resolved(&self) -> bool {
        self.message.is_none()
    }

    /// Whether the message is part of the current draft.
    pub fn is_drafted(&self) -> bool {
        self.is_drafted
    }

    /// Whether the message put an inbox row into the commit.
    pub fn has_message(&self) -> bool {
        self.has_message
    }

    /// Applies the message to the draft, if it is about the active run and fits the run's state.
    pub fn draft(&mut self, draft: &mut Draft, active: &ActiveRun, tenant: &Tenant, inner: &Inner, now: Timestamp) {
        let (Some(run), Some(message)) = (active.run(), &self.message) else { return };
        // The same request arrived twice in one batch. The second one is answered with the result of the first after that is committed.
        let is_taken =
            |key: &RequestKey| draft.messages.iter().any(|message| message.key.as_ref().is_some_and(|other| other.key == key.key));
        if self.key().is_some_and(is_taken) {
            self.is_drafted = false;
            return;
        }
        // An earlier message of the same draft may have settled the streamed text.
        let streamed = if draft.clears_deltas { StreamedText::default() } else { active.streamed_text() };
        let mut drafting = Drafting {
            draft,
            inner,
            tenant,
            run: run.id,
            manifest: &run.manifest,
            streamed,
            now,
            messages: 0,
            answered_at: None,
            remaining: 0,
        };
        let is_drafted = match message {
            WorkerMessage::Reasoned(reasoned) => drafting.reasoned(reasoned),
            WorkerMessage::ModelDone(model_done) => drafting.model_done(model_done),
            WorkerMessage::ToolDone(done) => drafting.tool(done),
            WorkerMessage::ChildStarted(started) => drafting.child_started(started),
            WorkerMessage::Report(result, _) => drafting.report(result),
            WorkerMessage::Stop(stop, _) => drafting.stop(stop),
            WorkerMessage::Steer(steering, _) => drafting.steer(steering),
            WorkerMessage::AnswerInterrupt(answer, _) => drafting.answer_interrupt(answer),
            WorkerMessage::Heartbeat(run, events) => drafting.heartbeat(*run, *events),
            WorkerMessage::CheckStore | WorkerMessage::Enqueue(..) => false,
        };
        self.has_message = drafting.messages > 0;
        self.answered = drafting.answered_at.map(|number| Answered { number: Some(number), remaining: drafting.remaining });
        self.is_drafted = is_drafted;
    }

    /// Sends the answer, if a request waits for one. Later calls do nothing.
    pub fn resolve(&mut self, reply: Reply) {
        match self.message.take() {
            Some(WorkerMessage::Report(_, answer)) => {
                let _ = answer.send(match reply {
                    Reply::Committed(Some(message)) => Ok(Reported { message, is_duplicate: false }),
                    Reply::Reported(reported) => Ok(reported),
                    Reply::Answered(kept) => {
                        kept.message.map(|message| Reported { message, is_duplicate: false }).ok_or(EngineError::Internal)
                    }
                    Reply::Refused(error) => Err(error),
                    Reply::Committed(None) | Reply::Stopped(_) | Reply::Recorded(_) => Err(EngineError::Internal),
                });
            }
            Some(WorkerMessage::Stop(_, answer)) => {
                let _ = answer.send(match reply {
                    Reply::Committed(_) | Reply::Answered(_) => Ok(Stopped::Now),
                    Reply::Stopped(stopped) => Ok(stopped),
                    Reply::Refused(error) => Err(error),
                    Reply::Reported(_) | Reply::Recorded(_) => Err(EngineError::Internal),
                });
            }
            Some(WorkerMessage::Steer(_, answer)) => {
                let _ = answer.send(match reply {
                    Reply::Committed(Some(message)) | Reply::Recorded(message) => Ok(message),
                    Reply::Answered(kept) => kept.message.ok_or(EngineError::Internal),
                    Reply::Refused(error) => Err(error),
                    Reply::Committed(None) | Reply::Reported(_) | Reply::Stopped(_) => Err(EngineError::Internal),
                });
            }
            Some(WorkerMessage::AnswerInterrupt(_, answer)) => {
                let _ = answer.send(match reply {
                    Reply::Committed(_) => self.answered.ok_or(EngineError::Internal),
                    Reply::Answered(_) => Ok(Answered { number: None, remaining: 0 }),
                    Reply::Refused(error) => Err(error),
                    Reply::Reported(_) | Reply::Recorded(_) | Reply::Stopped(_) => Err(EngineError::Internal),
                });
            }
            Some(WorkerMessage::Reasoned(reasoned)) => drop(reasoned.done.send(())),
            Some(
                WorkerMessage::CheckStore
                | WorkerMessage::Enqueue(..)
                | WorkerMessage::Heartbeat(..)
                | WorkerMessage::ModelDone(_)
                | WorkerMessage::ToolDone(_)
                | WorkerMessage::ChildStarted(_),
            )
            | None => {}
        }
    }
}

/// One message being applied to a draft.
struct Drafting<'a> {
    draft: &'a mut Draft,
    inner: &'a Inner,
    tenant: &'a Tenant,
    run: RunId,
    manifest: &'a windlass_kernel::Manifest,
    /// The streamed text that no item contains yet.
    streamed: StreamedText,
    now: Timestamp,
    messages: usize,
    /// The number of the event that records an answer to an interrupt.
    answered_at: Option<u64>,
    /// How many more people must approve after that answer.
    remaining: u8,
}

impl Drafting<'_> {
    fn step(&mut self, input: Input) -> bool {
        self.draft.step(self.manifest, input, self.now, self.inner.ids.as_ref());
        true
    }

    /// Records reasoning of the current attempt, unless it is recorded already.
    fn reasoned(&mut self, reasoned: &Reasoned) -> bool {
        let now = (self.run, self.draft.run.model_call(), self.draft.run.output.length);
        let is_its = now == (reasoned.run, Some(reasoned.id), reasoned.position) && self.streamed.text.is_empty();
        is_its && self.step(Input::Reasoned { reasoning: reasoned.reasoning.clone(), chunks: self.streamed.chunks.clone() })
    }

    fn model_done(&mut self, model_done: &ModelDone) -> bool {
        if model_done.run != self.run || self.draft.run.model_call() != Some(model_done.id) {
            return false;
        }
        let input = match &model_done.outcome {
            Ok(reply) => Input::Replied(reply.clone()),
            Err(EffectError::Failed(error)) => Input::AttemptFailed(self.failure(error, model_done.id.attempt, model_done.spent)),
            Err(EffectError::ReplayMismatch) if self.wants_json() => Input::AttemptFailed(self.unfinished(model_done.spent)),
            Err(EffectError::ReplayMismatch) => Input::Cut { streamed: self.streamed.clone(), spent: model_done.spent },
            Err(EffectError::Panicked) => Input::Panicked,
            Err(EffectError::NotStarted) => return false,
        };
        self.step(input)
    }

    fn wants_json(&self) -> bool {
        self.manifest.parameters.as_ref().is_some_and(Parameters::wants_json)
    }

    /// The failure of a structured answer whose stream was cut: half a JSON object cannot be continued in another message item.
    fn unfinished(&self, spent: Spent) -> Failure {
        let message = "the answer was cut off in the middle, and the model did not say the same again".to_owned();
        let (code, cause) = (FailureCode::StreamCut, FailureCause::BadAnswer);
        Failure { code, cause, message, retry_after_ms: None, retry_at: None, fallback: None, spent, streamed: self.streamed.clone() }
    }

    /// Records a heartbeat, unless the journal has grown since it was requested.
    fn heartbeat(&mut self, run: RunId, events: u64) -> bool {
        let is_unchanged =
            run == self.run && self.draft.run.next_number == events && !matches!(self.draft.run.phase, Phase::Thinking { .. });
        is_unchanged && !self.draft.run.has_ended() && self.step(Input::Heartbeat)
    }

    fn failure(&self, error: &ModelError, attempt: u32, spent: Spent) -> Failure {
        let settings = &self.inner.settings;
        let choice = ModelChoice::of(self.inner.models.as_ref(), self.tenant, &self.manifest.model, attempt, settings.attempts_max);
        let (own_attempt, next) = choice.map_or((attempt, None), |choice| (choice.own_attempt, choice.next));
        let pause_ms = match error.retry {
            Retry::Never => None,
            Retry::Backoff => Some(settings.backoff_ms.saturating_mul(1 << (own_attempt - 1).min(20))),
            Retry::AfterMs(ms) => Some(ms),
        };
        // A fallback model would not continue text that this model has begun, so it is asked only if nothing was streamed. It needs no
        // pause.
        let is_worn_out = pause_ms.is_some() && own_attempt >= settings.attempts_max;
        let next = next.filter(|_| is_worn_out && self.streamed.text.is_empty());
        let retry_at = match &next {
            Some(_) => Some(self.now),
            None => pause_ms.filter(|_| !is_worn_out).map(|ms| self.now.plus_ms(ms.min(settings.backoff_ms_max))),
        };
        let fallback = next.map(|next| next.provider().to_owned());
        let retry_after_ms = match error.retry {
            Retry::AfterMs(ms) => Some(ms),
            Retry::Never | Retry::Backoff => None,
        };
        // Clients read the message of the last failure.
        let message = match (retry_at, attempt) {
            (Some(_), _) => error.message.clone(),
            (None, 1) => format!("{} (1 attempt)", error.message),
            (None, attempts) => format!("{} ({attempts} attempts)", error.message),
        };
        let (code, cause) = (error.code.clone(), error.cause);
        Failure { code, cause, message, retry_after_ms, retry_at, fallback, spent, streamed: self.streamed.clone() }
    }

    fn tool(&mut self, done: &ToolDone) -> bool {
        let is_open = self.draft.run.call(done.call).is_some_and(|call| self.draft.run.is_free(call) && call.not_before.is_none());
        if done.run != self.run || !is_open {
            return false;
        }
        match &done.outcome {
            Err(EffectError::Panicked) => self.step(Input::Panicked),
            Err(EffectError::NotStarted | EffectError::ReplayMismatch) => false,
            Err(EffectError::Failed(why)) => {
                let content = windlass_kernel::content::refusal(done.call, TaskStatus::Failed, "tool_failed", why);
                self.take_result(done.call, (ReportCause::Tool, TaskStatus::Failed), content, None, None)
            }
            Ok(report) if report.result.len() > self.inner.settings.item_bytes_max => {
                let reason = format!("the result has {} bytes, {} are allowed", report.result.len(), self.inner.settings.item_bytes_max);
                let content = windlass_kernel::content::refusal(done.call, TaskStatus::Failed, "result_too_large", &reason);
                self.take_result(done.call, (ReportCause::Server, TaskStatus::Failed), content, None, None)
            }
            Ok(report) => match serde_json::from_slice(&report.result) {
                Ok(raw) => {
                    let content = windlass_kernel::content::result(done.call, report.status, raw);
                    let after = self.inner.reader.wished_after(raw).or(report.after);
                    let cause = if report.failure.is_some() { ReportCause::Server } else { ReportCause::Tool };
                    self.take_result(done.call, (cause, report.status), content, after, None)
                }
                Err(_) => {
                    let content =
                        windlass_kernel::content::refusal(done.call, TaskStatus::Failed, "bad_result", "the tool's result was not JSON");
                    self.take_result(done.call, (ReportCause::Server, TaskStatus::Failed), content, None, None)
                }
            },
        }
    }

    /// Records that the child run of a call is on record, or gives the call the reason why there is none.
    fn child_started(&mut self, started: &ChildStarted) -> bool {
        let is_open = self.draft.run.call(started.call).is_some_and(|call| call.progress == Progress::Open);
        if started.run != self.run || !is_open {
            return false;
        }
        match &started.outcome {
            Ok(()) => self.step(Input::ChildBegun(started.call)),
            Err(EffectError::Panicked) => self.step(Input::Panicked),
            Err(EffectError::NotStarted | EffectError::ReplayMismatch) => false,
            Err(EffectError::Failed(Refused { code, message })) => {
                let content = windlass_kernel::content::refusal(started.call, TaskStatus::Failed, code, message);
                self.take_result(started.call, (ReportCause::Tool, TaskStatus::Failed), content, None, None)
            }
        }
    }

    fn report(&mut self, result: &ToolResult) -> bool {
        let takes = |call: &OpenCall| !call.is_received() && call.not_before.is_none() && call.retry == result.retry;
        let is_awaited = self.draft.run.call(result.call).is_some_and(takes);
        if result.run != self.run || !is_awaited {
            return false;
        }
        match result_content(result) {
            Ok(content) => {
                let taken = self.take_result(result.call, (ReportCause::Tool, result.status), content, result.after, result.source.clone());
                if let Some(message) = self.draft.messages.last_mut() {
                    message.key = result.key.clone();
                }
                taken
            }
            Err(_) => false,
        }
    }

    /// Stores a result as an inbox row and an item, and applies it in the same commit.
    fn take_result(
        &mut self,
        call: windlass_kernel::CallNumber,
        (cause, status): (ReportCause, TaskStatus),
        content: bytes::Bytes,
        after: Option<windlass_kernel::AfterExecution>,
        source: Option<String>,
    ) -> bool {
        let item = ItemId(self.inner.ids.fresh());
        let retry = self.draft.run.call(call).map_or(0, |open| open.retry);
        self.draft.items.push(NewItem::own(item, ItemKind::Result, content));
        self.message(NewMessage {
            kind: MessageKind::ToolResult,
            call: Some(call),
            retry,
            item: Some(item),
            outcome: Some(status),
            after,
            source,
            reason: None,
            key: None,
        });
        self.step(Input::Reported(Report { call, retry, cause, status, item, after, below: None }))
    }

    fn stop(&mut self, stop: &Stop) -> bool {
        if stop.run != self.run || self.draft.run.has_ended() {
            return false;
        }
        self.draft.raise_epoch = true;
        self.message(stop_message(stop));
        self.step(Input::Stopped { reason: stop.reason.clone(), streamed: self.streamed.clone() })
    }

    /// Stores an instruction as an item and an inbox row, and gives it to the run in the same commit.
    fn steer(&mut self, steering: &Steering) -> bool {
        if steering.run != self.run || check_steering(&self.draft.run, self.manifest).is_err() {
            return false;
        }
        self.draft.items.push(steering.item.clone());
        self.message(steering_message(steering));
        self.step(Input::Steered(steering.item.id))
    }

    fn message(&mut self, message: NewMessage) {
        self.messages += 1;
        self.draft.messages.push(message);
    }
}

pub(super) fn stop_message(stop: &Stop) -> NewMessage {
    NewMessage {
        kind: MessageKind::Stop,
        call: None,
        retry: 0,
        item: None,
        outcome: None,
        after: None,
        source: stop.source.clone(),
        reason: Some(stop.reason.clone()),
        key: stop.key.clone(),
    }
}
