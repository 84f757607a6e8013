//! The write set of a verb: at most one change per row, so that all changes of a table are sent in one statement.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, CallNumber, Epoch, ItemId, NewItem, RunId, Seq, Tenant, Timestamp};
use windlass_ports::{Guard, MessageId, MessageStatus, NodeId, OpenRequest, PinnedManifest, ReaderRecord, RunStatus, StoreError, codec};

use super::{conversations::ConversationWrites, interrupts::InterruptWrites, overlay::TransactionOverlay, question::Question};
use crate::{
    journal_batch::{self, JournalBatch},
    rows::{
        AnswerRow, BoxRow, CallMove, CallRow, Erasure, HeadRow, JournalRow, MessageRow, Reads, Result, Rows, RunBrief, RunChange, RunRow,
        existing_row,
    },
};

/// Everything that one verb writes.
#[derive(Default)]
pub(super) struct WriteSet {
    pub(super) heads: BTreeMap<AgentKey, HeadWrite>,
    pub(super) gone_heads: BTreeSet<AgentKey>,
    pub(super) new_runs: BTreeMap<RunId, RunRow>,
    pub(super) runs: BTreeMap<RunId, RunWrite>,
    pub(super) manifests: Vec<((Tenant, [u8; 32]), Bytes)>,
    pub(super) open_runs: BTreeMap<Tenant, i64>,
    pub(super) journal_batches: Vec<(RunId, JournalBatch, String)>,
    pub(super) settled: Vec<RunId>,
    pub(super) messages: BTreeMap<MessageId, MessageWrite>,
    pub(super) calls: BTreeMap<(RunId, CallNumber), CallWrite>,
    pub(super) items: Vec<(Tenant, NewItem)>,
    pub(super) boxes: Vec<BoxRow>,
    pub(super) box_rows: Vec<(BoxId, i64, ItemId)>,
    pub(super) outbox: Vec<(AgentKey, RunId, u64, u32)>,
    pub(super) published: Vec<u64>,
    pub(super) shared: BTreeSet<BoxId>,
    pub(super) erased: Vec<Erasure>,
    /// Runs whose follow-up has ended, each with its tenant and the time of that end.
    pub(super) released: BTreeMap<RunId, (Tenant, Timestamp)>,
    pub(super) conversations: ConversationWrites,
    pub(super) interrupts: InterruptWrites,
    pub(super) answers: Vec<AnswerRow>,
    pub(super) requests: Vec<OpenRequest>,
    pub(super) readers: Vec<ReaderRecord>,
    /// Ended runs whose usage is to be counted.
    pub(super) uncounted: Vec<(RunId, Tenant)>,
}

/// The new values of a head.
pub(super) struct HeadWrite {
    pub(super) head: HeadRow,
    pub(super) is_new: bool,
}

/// The change of a stored run.
pub(super) enum RunWrite {
    Changed(RunChange),
    Activated(Epoch),
}

/// The new row of a message, or the change of a stored one.
pub(super) enum MessageWrite {
    Inserted(AgentKey, MessageRow),
    Changed(AgentKey, MessageChange),
}

/// The change of a stored message. A field that is `None` stays as it is.
#[derive(Clone)]
pub(super) struct MessageChange {
    pub(super) status: MessageStatus,
    pub(super) epoch: Option<Epoch>,
    pub(super) processed_at: Option<Timestamp>,
    pub(super) reason: Option<String>,
}

/// The new row of a call, or the change of a stored one.
pub(super) enum CallWrite {
    Inserted(CallRow),
    Updated(CallRow),
    Moved(CallMove),
}

impl RunWrite {
    pub(super) fn apply(&self, row: &mut RunRow) {
        self.apply_brief(&mut row.brief);
        if let RunWrite::Changed(change) = self {
            row.state_version = codec::VERSION;
            row.state = change.state.clone();
            row.iteration = change.iteration;
            row.deliverable = change.deliverable;
            row.ended_at = change.ended_at;
            row.held_ms = change.held_ms;
        }
    }

    pub(super) fn apply_brief(&self, brief: &mut RunBrief) {
        (brief.status, brief.epoch) = match self {
            RunWrite::Changed(change) => (change.status, change.epoch),
            RunWrite::Activated(epoch) => (RunStatus::Active, Some(*epoch)),
        };
    }
}

/// The content of one variant, if the value has it.
macro_rules! only {
    ($name:ident: $pattern:pat => $value:expr, $type:ty) => {
        pub(super) fn $name(&self) -> Option<$type> {
            if let $pattern = self { Some($value) } else { None }
        }
    };
}

impl RunWrite {
    only!(changed: RunWrite::Changed(change) => change, &RunChange);
    only!(activated: RunWrite::Activated(epoch) => *epoch, Epoch);
}

impl MessageWrite {
    only!(inserted: MessageWrite::Inserted(agent, row) => (agent, row), (&AgentKey, &MessageRow));
    only!(changed: MessageWrite::Changed(agent, change) => (agent, change), (&AgentKey, &MessageChange));
}

impl CallWrite {
    only!(inserted: CallWrite::Inserted(row) => row, &CallRow);
    only!(updated: CallWrite::Updated(row) => row, &CallRow);
    only!(moved: CallWrite::Moved(moved) => moved, &CallMove);
}

impl MessageChange {
    pub(super) fn apply(&self, row: &mut MessageRow) {
        row.status = self.status;
        row.epoch = self.epoch.or(row.epoch);
        row.processed_at = self.processed_at.or(row.processed_at);
        if self.reason.is_some() {
            row.reason.clone_from(&self.reason);
        }
    }

    fn then(&mut self, later: MessageChange) {
        self.status = later.status;
        self.epoch = later.epoch.or(self.epoch);
        self.processed_at = later.processed_at.or(self.processed_at);
        self.reason = later.reason.or(self.reason.take());
    }
}

impl WriteSet {
    pub(super) fn is_empty(&self) -> bool {
        let WriteSet {
            heads,
            gone_heads,
            new_runs,
            runs,
            manifests,
            open_runs,
            journal_batches,
            settled,
            messages,
            calls,
            items,
            boxes,
            box_rows,
            outbox,
            published,
            shared,
            erased,
            released,
            conversations,
            interrupts,
            answers,
            requests,
            readers,
            uncounted,
        } = self;
        let sets = heads.is_empty() && gone_heads.is_empty() && new_runs.is_empty() && runs.is_empty() && open_runs.is_empty();
        let maps = messages.is_empty() && calls.is_empty() && shared.is_empty() && erased.is_empty() && released.is_empty();
        let lists = manifests.is_empty() && journal_batches.is_empty() && settled.is_empty() && items.is_empty() && boxes.is_empty();
        sets && maps
            && lists
            && box_rows.is_empty()
            && outbox.is_empty()
            && published.is_empty()
            && conversations.is_empty()
            && interrupts.is_empty()
            && answers.is_empty()
            && requests.is_empty()
            && readers.is_empty()
            && uncounted.is_empty()
    }

    /// The writes to a run's calls.
    pub(super) fn calls_of(&self, run: RunId) -> impl Iterator<Item = (&(RunId, CallNumber), &CallWrite)> {
        self.calls.range((run, CallNumber(0))..=(run, CallNumber(u32::MAX)))
    }

    /// The newest inserted message for which `holds` is true.
    pub(super) fn last_inserted(&self, holds: impl Fn(&AgentKey, &MessageRow) -> bool) -> Option<MessageId> {
        let mut youngest_first = self.messages.iter().rev();
        youngest_first.find(|(_, write)| matches!(write, MessageWrite::Inserted(agent, row) if holds(agent, row))).map(|(id, _)| *id)
    }

    /// Whether it inserts the key that a question asks for: if the key exists already, the database refuses the whole transaction.
    pub(super) fn claims(&self, question: &Question) -> bool {
        if let Question::RunBrief(run) = question {
            return self.new_runs.contains_key(run);
        }
        let Question::Report(run, call, kind, retry) = question else { return false };
        self.last_inserted(|_, row| (row.run, row.call, row.kind, row.retry) == (Some(*run), Some(*call), *kind, *retry)).is_some()
    }

    fn inserted_count(&self) -> usize {
        self.messages.values().filter(|write| matches!(write, MessageWrite::Inserted(..))).count()
    }

    fn change_message(&mut self, agent: &AgentKey, id: MessageId, change: MessageChange) {
        match self.messages.get_mut(&id) {
            None => drop(self.messages.insert(id, MessageWrite::Changed(agent.clone(), change))),
            Some(MessageWrite::Inserted(_, row)) => change.apply(row),
            Some(MessageWrite::Changed(_, earlier)) => earlier.then(change),
        }
    }
}

impl TransactionOverlay<'_> {
    /// Decided here: the head was read under its lock, and no other transaction changes it before the end of this one.
    fn holds(&self, agent: &AgentKey, before: &HeadRow) -> Result<bool> {
        let guard = |head: &HeadRow| (head.status, head.epoch, head.run, head.seq);
        Ok(self.head(agent)?.is_some_and(|head| guard(&head) == guard(before)))
    }
}

impl Rows for TransactionOverlay<'_> {
    fn insert_head(&mut self, agent: &AgentKey, head: &HeadRow) -> Result<()> {
        if self.head(agent)?.is_some() {
            return Err(existing_row("a head"));
        }
        self.write_set.heads.insert(agent.clone(), HeadWrite { head: head.clone(), is_new: true });
        Ok(())
    }

    fn update_head(&mut self, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Result<bool> {
        let holds = self.holds(agent, before)?;
        if holds {
            let is_new = self.write_set.heads.get(agent).is_some_and(|written| written.is_new);
            self.write_set.heads.insert(agent.clone(), HeadWrite { head: after.clone(), is_new });
        }
        Ok(holds)
    }

    fn delete_head(&mut self, agent: &AgentKey, before: &HeadRow) -> Result<bool> {
        let holds = self.holds(agent, before)?;
        if holds {
            self.write_set.gone_heads.insert(agent.clone());
        }
        Ok(holds)
    }

    fn update_head_fast(&mut self, guard: &Guard, owner: NodeId, shown: &HeadRow) -> Result<bool> {
        let is_as_left = |head: &HeadRow| {
            (head.status, head.epoch, head.run, head.seq) == (guard.status, guard.epoch, Some(guard.run), guard.seq)
                && head.owner == Some(owner)
                && head.pending == 0
                && head.quarantined.is_none()
        };
        let Some(before) = self.head(&guard.agent)?.filter(is_as_left) else { return Ok(false) };
        let HeadRow { status, waiting, deadline, wake_at, local, held, .. } = *shown;
        let after = HeadRow { status, waiting, deadline, wake_at, local, held, seq: Seq(before.seq.0 + 1), ..before.clone() };
        self.update_head(&guard.agent, &before, &after)
    }

    fn insert_run(&mut self, run: &RunRow) -> Result<()> {
        self.write_set.new_runs.insert(run.brief.run, run.clone());
        Ok(())
    }

    fn update_run(&mut self, change: &RunChange) -> Result<()> {
        let write = RunWrite::Changed(change.clone());
        match self.write_set.new_runs.get_mut(&change.run) {
            Some(row) => write.apply(row),
            None => drop(self.write_set.runs.insert(change.run, write)),
        }
        Ok(())
    }

    fn release_run(&mut self, tenant: &Tenant, run: RunId, now: Timestamp) -> Result<()> {
        self.write_set.released.insert(run, (tenant.clone(), now));
        Ok(())
    }

    fn activate_run(&mut self, run: RunId, epoch: Epoch) -> Result<()> {
        let write = RunWrite::Activated(epoch);
        match (self.write_set.new_runs.get_mut(&run), self.write_set.runs.get_mut(&run)) {
            (Some(row), _) => write.apply(row),
            (None, Some(RunWrite::Changed(change))) => (change.status, change.epoch) = (RunStatus::Active, Some(epoch)),
            (None, Some(RunWrite::Activated(_)) | None) => drop(self.write_set.runs.insert(run, write)),
        }
        Ok(())
    }

    fn keep_manifest(&mut self, tenant: &Tenant, manifest: &PinnedManifest) -> Result<()> {
        self.write_set.manifests.push(((tenant.clone(), manifest.hash), manifest.body.clone()));
        Ok(())
    }

    fn add_open_runs(&mut self, tenant: &Tenant, change: i32) -> Result<()> {
        *self.write_set.open_runs.entry(tenant.clone()).or_default() += i64::from(change);
        Ok(())
    }

    fn append_journal(&mut self, run: RunId, rows: &[JournalRow]) -> Result<()> {
        if let Some(JournalRow { number, epoch, at, version, .. }) = rows.first() {
            let journal_batch = JournalBatch { first: *number, epoch: *epoch, at: *at, version: *version };
            self.write_set.journal_batches.push((run, journal_batch, journal_batch::pack(rows)?));
        }
        Ok(())
    }

    fn erase_run(&mut self, erasure: &Erasure) -> Result<()> {
        self.write_set.erased.push(erasure.clone());
        Ok(())
    }

    fn forget_deltas(&mut self, run: RunId) -> Result<()> {
        self.write_set.settled.push(run);
        Ok(())
    }

    fn insert_message(&mut self, agent: &AgentKey, row: &MessageRow) -> Result<Option<MessageId>> {
        if let (Some(run), Some(call)) = (row.run, row.call)
            && self.report(run, call, row.kind, row.retry)?.is_some()
        {
            return Ok(None);
        }
        let number = self.numbers.get(self.write_set.inserted_count());
        let id = MessageId(*number.ok_or_else(|| StoreError::Corrupt("a verb stores more messages than it said".into()))?);
        self.write_set.messages.insert(id, MessageWrite::Inserted(agent.clone(), row.clone()));
        Ok(Some(id))
    }

    fn consume_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch, now: Timestamp) -> Result<()> {
        let change = MessageChange { status: MessageStatus::Consumed, epoch: Some(epoch), processed_at: Some(now), reason: None };
        self.write_set.change_message(agent, message, change);
        Ok(())
    }

    fn lease_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch) -> Result<()> {
        let change = MessageChange { status: MessageStatus::Pending, epoch: Some(epoch), processed_at: None, reason: None };
        self.write_set.change_message(agent, message, change);
        Ok(())
    }

    fn skip_message(&mut self, agent: &AgentKey, message: MessageId, now: Timestamp) -> Result<()> {
        let change = MessageChange { status: MessageStatus::Skipped, epoch: None, processed_at: Some(now), reason: None };
        self.write_set.change_message(agent, message, change);
        Ok(())
    }

    fn refuse_message(&mut self, agent: &AgentKey, message: MessageId, reason: &str) -> Result<()> {
        let change = MessageChange { status: MessageStatus::Error, epoch: None, processed_at: None, reason: Some(reason.to_owned()) };
        self.write_set.change_message(agent, message, change);
        Ok(())
    }

    fn insert_call(&mut self, row: &CallRow) -> Result<()> {
        let before = self.write_set.calls.insert((row.run, row.call), CallWrite::Inserted(row.clone()));
        if before.is_some() { Err(existing_row("a call")) } else { Ok(()) }
    }

    fn move_call(&mut self, run: RunId, call: CallNumber, moved: CallMove) -> Result<()> {
        match self.write_set.calls.get_mut(&(run, call)) {
            None => drop(self.write_set.calls.insert((run, call), CallWrite::Moved(moved))),
            Some(CallWrite::Inserted(row) | CallWrite::Updated(row)) => row.move_on(moved),
            Some(CallWrite::Moved(earlier)) => *earlier = earlier.then(moved),
        }
        Ok(())
    }

    fn update_call(&mut self, row: &CallRow) -> Result<()> {
        let write = match self.write_set.calls.get(&(row.run, row.call)) {
            Some(CallWrite::Inserted(_)) => CallWrite::Inserted(row.clone()),
            Some(CallWrite::Updated(_) | CallWrite::Moved(_)) | None => CallWrite::Updated(row.clone()),
        };
        self.write_set.calls.insert((row.run, row.call), write);
        Ok(())
    }

    fn insert_item(&mut self, tenant: &Tenant, item: &NewItem) -> Result<()> {
        self.write_set.items.push((tenant.clone(), item.clone()));
        Ok(())
    }

    fn insert_box(&mut self, row: &BoxRow) -> Result<()> {
        self.write_set.boxes.push(row.clone());
        Ok(())
    }

    fn share_box(&mut self, id: BoxId) -> Result<()> {
        self.write_set.shared.insert(id);
        Ok(())
    }

    fn insert_box_row(&mut self, id: BoxId, position: i64, item: ItemId) -> Result<()> {
        self.write_set.box_rows.push((id, position, item));
        Ok(())
    }

    fn insert_outbox(&mut self, agent: &AgentKey, run: RunId, first: u64, count: u32) -> Result<()> {
        self.write_set.outbox.push((agent.clone(), run, first, count));
        Ok(())
    }

    fn forget_outbox(&mut self, rows: &[u64]) -> Result<()> {
        self.write_set.published.extend(rows);
        Ok(())
    }
}
