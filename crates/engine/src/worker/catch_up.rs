//! Loads an agent from the store and brings its run up to date: a lost owner, inbox messages that wait, deadlines that have passed.

use std::sync::Arc;

use windlass_kernel::{
    CallNumber, HeadStatus, Input, ItemId, ItemKind, LostModelCall, NewItem, Opening, Origin, Phase, Report, ReportCause, RunId,
    TaskStatus, Timestamp, content, outstanding,
};
use windlass_ports::{Head, Item, LoadedRun, Message, MessageKind, NewMessage, StoreError};

use super::Worker;
use crate::{compaction::PromptPlan, count, draft::Draft, prompt, stream_buffer::StreamBuffer};

impl Worker {
    /// Loads the agent. Returns a draft with everything that its active run must catch up with. Returns `None` if no run is active, or if
    /// another live process works on the run and `take_from_owner` is false.
    pub(super) async fn load(&mut self, now: Timestamp, take_from_owner: bool) -> Result<Option<Draft>, StoreError> {
        let loaded = self.inner.store.load(&self.agent).await?;
        let maybe_entered = std::mem::take(&mut self.maybe_entered);
        let Some(loaded) = loaded else { return Ok(None) };
        let Some(run) = loaded.run else {
            self.active.abandon();
            return Ok(None);
        };
        if !take_from_owner && self.belongs_elsewhere(&loaded.head, &run) {
            self.active.abandon();
            return Ok(None);
        }
        if loaded.head.owner != Some(self.inner.node) && !loaded.head.owner_lives {
            self.inner.adopted.notify(&self.agent, run.id);
        }
        let opening = self.opening(&run).await?;
        self.active.set_buffer(self.open_buffer(&run).await?);
        if loaded.pending.iter().any(|message| message.kind == MessageKind::Stop) {
            self.active.close_buffer().await;
        }
        let mut draft = Draft::new(&run.state);
        let mut context = None;
        let never_started = maybe_entered.contains(&run.id) && loaded.head.owner == Some(self.inner.node);
        if !never_started && self.has_lost_work(&loaded.head, &run) {
            let (left, read) = self.left_behind(&loaded.head, &run, now).await?;
            context = read;
            draft.step(&run.manifest, Input::OwnerChanged(left), now, self.inner.ids.as_ref());
        }
        let refused = self.catch_up(&mut draft, &loaded.head, &run, &loaded.pending, opening, now);
        self.active.set_run(&loaded.head, run, context);
        for message in refused {
            // A row that names no run of this agent cannot come from this engine. It is refused, so that it does not block the rows
            // behind it.
            self.inner.store.refuse(self.agent.clone(), message, "the row names no turn of this agent".into()).await?;
        }
        Ok(Some(draft))
    }

    fn catch_up(
        &self,
        draft: &mut Draft,
        head: &Head,
        run: &LoadedRun,
        pending: &[Message],
        opening: Opening,
        now: Timestamp,
    ) -> Vec<windlass_ports::MessageId> {
        let step = |draft: &mut Draft, input| draft.step(&run.manifest, input, now, self.inner.ids.as_ref());
        if head.status == HeadStatus::Dispatched && !*self.inner.draining.borrow() {
            draft.consumed.extend(run.turn);
            step(draft, Input::Entered(opening));
        }
        let mut refused = Vec::new();
        for message in pending {
            match message.run {
                Some(id) if id == run.id => self.take_message(draft, run, message, now),
                Some(_) | None => refused.push(message.id),
            }
        }
        for interrupt in draft.run.expired_interrupts(now) {
            step(draft, Input::InterruptTimedOut(interrupt));
        }
        for call in draft.run.due_retries(now) {
            step(draft, Input::RetryDue(call));
        }
        // The deadline comes before the lease: a call past its deadline is closed for good, whichever service holds it.
        for call in draft.run.expired(now) {
            self.time_out(draft, run, call, now);
        }
        for (call, until) in &run.claims {
            let is_open = draft.run.call(*call).is_some_and(|open| draft.run.is_free(open));
            if is_open && *until <= now {
                step(draft, Input::LeaseEnded(*call));
            }
        }
        refused
    }

    /// Whether another live process is working on the run. A run that no worker has entered, or that waits for results from outside, may
    /// be loaded by any process.
    fn belongs_elsewhere(&self, head: &Head, run: &LoadedRun) -> bool {
        let is_others = head.owner_lives && head.owner != Some(self.inner.node);
        is_others && head.status != HeadStatus::Dispatched && !outstanding(&run.state).is_empty()
    }

    /// Whether the run lost work together with its owner. A run without outstanding effects, because it waits for results from outside or
    /// for a person, loses nothing with its owner.
    fn has_lost_work(&self, head: &Head, run: &LoadedRun) -> bool {
        if head.status == HeadStatus::Dispatched {
            return false;
        }
        match head.owner == Some(self.inner.node) {
            true => self.active.has_lost_calls(run.id, &run.state) && !self.active.has_deferred(run.id, head.seq),
            false => !outstanding(&run.state).is_empty(),
        }
    }

    /// What a lost owner's model call leaves behind, and the prompt if it was read for the estimate. It is unknown whether the call was
    /// made, so it is counted: otherwise a takeover could exceed the token budget.
    async fn left_behind(&self, head: &Head, run: &LoadedRun, now: Timestamp) -> Result<(LostModelCall, Option<Vec<Item>>), StoreError> {
        let is_due = matches!(run.state.phase, Phase::Thinking { not_before, .. } if not_before.is_none_or(|at| at <= now));
        if !is_due || head.owner == Some(self.inner.node) {
            return Ok((LostModelCall::default(), None));
        }
        let (tenant, prompt) = (&self.agent.tenant, run.state.output);
        let items = match self.inner.stored_prompt_excess(tenant, prompt).await {
            Ok(None) => self.inner.prompt_items(tenant, prompt).await.map(Some),
            Ok(Some(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let items = match items {
            Ok(Some(items)) => items,
            // The repeated call finds the same error and fails as it would have without a takeover.
            Ok(None) | Err(StoreError::Corrupt(_)) => return Ok((LostModelCall::default(), None)),
            Err(error @ (StoreError::Fenced | StoreError::Unavailable(_))) => return Err(error),
        };
        let text = self.active.streamed_text();
        let plan = PromptPlan::of(&run.state, &run.manifest, self.inner.models.context(&self.agent.tenant, &run.manifest.model));
        let lost = plan.tokens(&run.manifest, &items, &prompt::tools(&run.manifest)) + count::text(&text.text);
        Ok((LostModelCall { streamed: text, lost }, Some(items)))
    }

    /// Applies a pending message. A result for a call that the run has not made yet stays in the inbox.
    fn take_message(&self, draft: &mut Draft, run: &LoadedRun, message: &Message, now: Timestamp) {
        let input = match (message.kind, message.call, message.item) {
            (MessageKind::ToolResult | MessageKind::Timeout, Some(call), Some(item)) => {
                if call.0 > draft.run.calls_used {
                    return;
                }
                let cause = if message.kind == MessageKind::Timeout { ReportCause::Deadline } else { ReportCause::Tool };
                Input::Reported(Report {
                    call,
                    retry: message.retry,
                    cause,
                    status: message.outcome.unwrap_or(TaskStatus::Failed),
                    item,
                    after: message.after,
                    below: message.below,
                })
            }
            (MessageKind::Stop, _, _) => {
                draft.raise_epoch = true;
                Input::Stopped { reason: message.reason.clone().unwrap_or_default(), streamed: self.active.streamed_text() }
            }
            (MessageKind::Steer, _, Some(item)) => Input::Steered(item),
            // Turn messages are leased to a run, not applied to one. The other kinds are consumed in the commit that records them, so
            // they never wait.
            (MessageKind::Turn | MessageKind::UiAction | MessageKind::Answer, _, _)
            | (MessageKind::ToolResult | MessageKind::Timeout | MessageKind::Steer, _, _) => return,
        };
        draft.consumed.push(message.id);
        draft.step(&run.manifest, input, now, self.inner.ids.as_ref());
    }

    /// Treats a passed deadline like any other report: an inbox message, content for the model, and the usual transition.
    fn time_out(&self, draft: &mut Draft, run: &LoadedRun, call: CallNumber, now: Timestamp) {
        let item = ItemId(self.inner.ids.fresh());
        let retry = draft.run.call(call).map_or(0, |open| open.retry);
        let reason = "no result came before the deadline; whether the call took effect is not known";
        let refusal = content::refusal(call, TaskStatus::Timeout, "timeout", reason);
        draft.items.push(NewItem::own(item, ItemKind::Result, refusal));
        draft.messages.push(NewMessage {
            kind: MessageKind::Timeout,
            call: Some(call),
            retry,
            item: Some(item),
            outcome: Some(TaskStatus::Timeout),
            after: None,
            source: None,
            reason: None,
            key: None,
        });
        let report = Report { call, retry, cause: ReportCause::Deadline, status: TaskStatus::Timeout, item, after: None, below: None };
        draft.step(&run.manifest, Input::Reported(report), now, self.inner.ids.as_ref());
    }

    /// The opening of a run that no worker has entered. Its calls, if it starts with any, are in its context box.
    async fn opening(&self, run: &LoadedRun) -> Result<Opening, StoreError> {
        if run.state.phase != Phase::Accepted {
            return Ok(Opening::Ask);
        }
        let context = run.state.context;
        let items = self.inner.views.box_items(&self.agent.tenant, context.id, 0, context.length as usize).await?;
        let calls = items.iter().filter(|item| item.kind == ItemKind::Call);
        let calls = calls.filter_map(|item| serde_json::from_slice::<content::Call>(&item.content).ok());
        Ok(match run.state.origin {
            Origin::Action => calls.map(content::Call::requested).next().map_or(Opening::Ask, Opening::Act),
            // Other calls in the context were made by earlier runs and have their results.
            Origin::Turn => Opening::InheritCalls(calls.filter_map(content::Call::inherited).collect()),
        })
    }

    /// The stream buffer of the current iteration: the one in memory, or one rebuilt from the deltas that this or a lost process stored.
    async fn open_buffer(&self, run: &LoadedRun) -> Result<Option<(RunId, Arc<StreamBuffer>)>, StoreError> {
        if !run.manifest.announced || !matches!(run.state.phase, Phase::Thinking { .. }) {
            return Ok(None);
        }
        let buffer = match self.inner.stream_buffers.find(run.id).filter(|_| self.active.is_streaming(run.id)) {
            Some(buffer) => buffer,
            None => {
                let text = self.inner.views.streamed_text(&self.agent.tenant, run.id).await?;
                let buffer = Arc::new(StreamBuffer::resumed(run.state.output.length, text));
                self.inner.stream_buffers.insert(run.id, &buffer);
                buffer
            }
        };
        Ok(Some((run.id, buffer)))
    }
}
