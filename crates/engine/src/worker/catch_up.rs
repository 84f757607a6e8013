//! Reading an agent from the store, and bringing it up to date: a lost owner, messages that wait, deadlines that passed.

use std::sync::Arc;

use windlass_kernel::{
    CallNumber, HeadStatus, Input, ItemId, ItemKind, LostModelCall, NewItem, Opening, Origin, Phase, Report, ReportCause, RequestedCall,
    RunId, TaskStatus, Timestamp, content, outstanding,
};
use windlass_ports::{CommitKind, Head, Item, LoadedRun, Message, MessageKind, NewMessage, StoreError};

use super::Worker;
use crate::{compaction::Reading, count, draft::Draft, live::Words, prompt};

impl Worker {
    /// Reads the agent. Returns a draft of what its active run has to catch up with; `None` if no run is active, or if another
    /// process works on it and it is not to be `taken` from that one.
    pub(super) async fn load(&mut self, now: Timestamp, taken: bool) -> Result<Option<Draft>, StoreError> {
        let loaded = self.inner.store.load(&self.agent).await?;
        let entered_unheard = std::mem::take(&mut self.entered_unheard);
        let Some(loaded) = loaded else { return Ok(None) };
        let Some(run) = loaded.run else {
            self.held.abandon();
            return Ok(None);
        };
        if !taken && self.belongs_elsewhere(&loaded.head, &run) {
            self.held.abandon();
            return Ok(None);
        }
        if loaded.head.owner != Some(self.inner.node) && !loaded.head.owner_lives {
            self.inner.adopted.tell(&self.agent, run.id);
        }
        let opening = self.opening(&run).await?;
        self.held.follow_words(self.open_words(&run).await?);
        if loaded.pending.iter().any(|message| message.kind == MessageKind::Stop) {
            self.held.close_words().await;
        }
        let mut draft = Draft::new(&run.state);
        let mut context = None;
        let never_started = entered_unheard.contains(&run.id) && loaded.head.owner == Some(self.inner.node);
        if !never_started && self.has_lost_work(&loaded.head, &run) {
            let (left, read) = self.left_behind(&loaded.head, &run, now).await?;
            context = read;
            draft.step(&run.manifest, Input::OwnerChanged(left), now, self.inner.ids.as_ref());
        }
        let refused = self.catch_up(&mut draft, &loaded.head, &run, &loaded.pending, opening, now);
        self.held.hold(&loaded.head, run, context);
        for message in refused {
            // A row that names no turn cannot have come from us; it must not stop what waits behind it.
            self.inner.crash.before_commit(CommitKind::Refuse);
            self.inner.store.refuse(self.agent.clone(), message, "the row names no turn of this agent".into()).await?;
            self.inner.crash.after_commit(CommitKind::Refuse);
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
        // The deadline comes first: it gives up on a call for good, whoever holds it.
        for call in draft.run.expired(now) {
            self.time_out(draft, run, call, now);
        }
        for (call, until) in &run.claims {
            let is_open = draft.run.call(*call).is_some_and(|open| open.progress == windlass_kernel::Progress::Open);
            if is_open && *until <= now {
                step(draft, Input::LeaseEnded(*call));
            }
        }
        refused
    }

    /// Whether another process that lives is in the middle of something for the run. One that nobody has entered, or that waits
    /// for the outside, is anybody's.
    fn belongs_elsewhere(&self, head: &Head, run: &LoadedRun) -> bool {
        let is_others = head.owner_lives && head.owner != Some(self.inner.node);
        is_others && head.status != HeadStatus::Dispatched && !outstanding(&run.state).is_empty()
    }

    /// Whether somebody was lost in the middle of something. A run that owes nothing to anybody here, because it waits for the
    /// outside or for a person, loses nothing with its owner.
    fn has_lost_work(&self, head: &Head, run: &LoadedRun) -> bool {
        if head.status == HeadStatus::Dispatched {
            return false;
        }
        match head.owner == Some(self.inner.node) {
            true => self.held.has_lost_calls(run.id, &run.state) && !self.held.held_back(run.id, head.seq),
            false => !outstanding(&run.state).is_empty(),
        }
    }

    /// What a lost owner left of a model call, and what the model reads. Whether the call was made nobody knows, and a budget is
    /// kept only by counting it.
    async fn left_behind(&self, head: &Head, run: &LoadedRun, now: Timestamp) -> Result<(LostModelCall, Option<Vec<Item>>), StoreError> {
        let is_due = matches!(run.state.phase, Phase::Thinking { not_before, .. } if not_before.is_none_or(|at| at <= now));
        if !is_due || head.owner == Some(self.inner.node) {
            return Ok((LostModelCall::default(), None));
        }
        let (tenant, prompt) = (&self.agent.tenant, run.state.output);
        let items = match self.inner.stored_prompt_excess(tenant, prompt).await {
            Ok(None) => self.inner.views.range_items(tenant, prompt).await.map(Some),
            Ok(Some(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let items = match items {
            Ok(Some(items)) => items,
            // The call that is made again finds out, and fails as it would have without a takeover.
            Ok(None) | Err(StoreError::Corrupt(_)) => return Ok((LostModelCall::default(), None)),
            Err(error @ (StoreError::Fenced | StoreError::Unavailable(_))) => return Err(error),
        };
        let said = self.held.said();
        let reading = Reading::of(&run.state, &run.manifest, self.inner.models.context(&self.agent.tenant, &run.manifest.model));
        let lost = reading.tokens(&run.manifest, &items, &prompt::tools(&run.manifest)) + count::text(&said.text);
        Ok((LostModelCall { streamed: said, lost }, Some(items)))
    }

    /// Takes a waiting message. A result for a call that is not made yet stays where it is.
    fn take_message(&self, draft: &mut Draft, run: &LoadedRun, message: &Message, now: Timestamp) {
        let input = match (message.kind, message.call, message.item) {
            (MessageKind::ToolResult | MessageKind::Timeout, Some(call), Some(item)) => {
                if call.0 > draft.run.calls_used {
                    return;
                }
                let cause = if message.kind == MessageKind::Timeout { ReportCause::Deadline } else { ReportCause::Tool };
                Input::Reported(Report { call, cause, status: message.outcome.unwrap_or(TaskStatus::Failed), item, after: message.after })
            }
            (MessageKind::Stop, _, _) => {
                draft.raise_epoch = true;
                Input::Stopped { reason: message.reason.clone().unwrap_or_default(), streamed: self.held.said() }
            }
            // Turns are leased, not taken; the rest is recorded and consumed at once and never waits.
            (MessageKind::Turn | MessageKind::UiAction | MessageKind::Answer | MessageKind::ToolResult | MessageKind::Timeout, _, _) => {
                return;
            }
        };
        draft.consumed.push(message.id);
        draft.step(&run.manifest, input, now, self.inner.ids.as_ref());
    }

    /// A deadline is a report like any other: a message in the inbox, content for the model, and the normal way on.
    fn time_out(&self, draft: &mut Draft, run: &LoadedRun, call: CallNumber, now: Timestamp) {
        let item = ItemId(self.inner.ids.fresh());
        let words = "no result came before the deadline; whether the call took effect is not known";
        draft.items.push(NewItem {
            id: item,
            kind: ItemKind::Result,
            content: content::refusal(call, TaskStatus::Timeout, "timeout", words),
        });
        draft.messages.push(NewMessage {
            kind: MessageKind::Timeout,
            call: Some(call),
            item: Some(item),
            outcome: Some(TaskStatus::Timeout),
            after: None,
            source: None,
            reason: None,
            key: None,
        });
        let report = Report { call, cause: ReportCause::Deadline, status: TaskStatus::Timeout, item, after: None };
        draft.step(&run.manifest, Input::Reported(report), now, self.inner.ids.as_ref());
    }

    /// What an unentered run begins with: its calls, if it begins with any, stand in its context box.
    async fn opening(&self, run: &LoadedRun) -> Result<Opening, StoreError> {
        if run.state.phase != Phase::Accepted {
            return Ok(Opening::Ask);
        }
        let context = run.state.context;
        let items = self.inner.views.box_items(&self.agent.tenant, context.id, 0, context.length as usize).await?;
        let calls = items.iter().filter(|item| item.kind == ItemKind::Call);
        let calls = calls.filter_map(|item| serde_json::from_slice::<content::Call>(&item.content).ok());
        let requested = |call: content::Call| RequestedCall { provider_id: call.provider_id, tool: call.tool, arguments: call.arguments };
        Ok(match run.state.origin {
            Origin::Action => calls.map(requested).next().map_or(Opening::Ask, Opening::Act),
            // Others that stand there were made before, and have their results.
            Origin::Turn => Opening::InheritCalls(calls.filter_map(|call| Some((call.takes?, requested(call)))).collect()),
        })
    }

    /// The words of the lap that were announced, by this process or by the one that was lost.
    async fn open_words(&self, run: &LoadedRun) -> Result<Option<(RunId, Arc<Words>)>, StoreError> {
        if !run.manifest.announced || !matches!(run.state.phase, Phase::Thinking { .. }) {
            return Ok(None);
        }
        let words = match self.inner.live.find(run.id).filter(|_| self.held.follows(run.id)) {
            Some(words) => words,
            None => {
                let said = self.inner.views.announced(&self.agent.tenant, run.id).await?;
                let words = Arc::new(Words::resumed(run.state.output.length, said));
                self.inner.live.hold(run.id, &words);
                words
            }
        };
        Ok(Some((run.id, words)))
    }
}
