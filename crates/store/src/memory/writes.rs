//! The tables, and the statements that change them.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use windlass_kernel::{
    AgentKey, BoxId, CallNumber, ConversationId, Epoch, ItemId, Manifest, NewItem, RunId, Seq, Tenant, Timestamp, ToolName,
};
use windlass_ports::{
    CallStatus, DeltaBatch, Guard, InterruptId, InterruptView, MessageId, MessageKind, MessageStatus, NodeId, OpenRequest, OutboxRow, Part,
    PinnedManifest, RequestHash, RunStatus, UsageKey, UsageSums, codec,
};

use super::table::Table;
use crate::rows::{
    Announces, AnswerRow, BoxRow, CallMove, CallRow, ConversationRow, DeltaRow, Erasure, HeadRow, ItemRow, JournalRow, MessageRow, Result,
    Rows, RunChange, RunRow, existing_row, is_report, missing_row,
};

/// The place of a waiting call in the order of claims: tenant, tool, time, run and number.
pub(super) type Place = (Tenant, ToolName, Timestamp, RunId, CallNumber);

pub(super) struct MemoryRows {
    pub(super) heads: Table<AgentKey, HeadRow>,
    pub(super) runs: Table<RunId, RunRow>,
    pub(super) ordinals: Table<(AgentKey, u64), RunId>,
    pub(super) dedupes: Table<(Tenant, String), RunId>,
    pub(super) takers: Table<(Tenant, RunId), RunId>,
    pub(super) erasable: Table<(Timestamp, RunId), Tenant>,
    pub(super) manifests: Table<(Tenant, [u8; 32]), Arc<Manifest>>,
    /// The number of runs that have a manifest.
    pub(super) pinned: Table<(Tenant, [u8; 32]), u32>,
    pub(super) open_runs: Table<Tenant, u32>,
    pub(super) journal: Table<(RunId, u64), JournalRow>,
    pub(super) deltas: Table<(RunId, u32), DeltaRow>,
    pub(super) inbox: Table<(AgentKey, MessageId), MessageRow>,
    pub(super) pending: Table<(AgentKey, MessageId), ()>,
    pub(super) reports: Table<(RunId, CallNumber, MessageKind, u32), MessageId>,
    pub(super) calls: Table<(RunId, CallNumber), CallRow>,
    pub(super) waiting: Table<Place, ()>,
    pub(super) claimed: Table<(RunId, CallNumber), Timestamp>,
    pub(super) claim_keys: Table<(Tenant, String, RunId, CallNumber), ()>,
    pub(super) interrupts: Table<InterruptId, InterruptView>,
    pub(super) items: Table<ItemId, (Tenant, ItemRow)>,
    pub(super) boxes: Table<BoxId, BoxRow>,
    /// The number of boxes that are made from a box.
    pub(super) children: Table<BoxId, u32>,
    /// Boxes whose run was forgotten.
    pub(super) ownerless: Table<BoxId, ()>,
    pub(super) box_rows: Table<(BoxId, i64), ItemId>,
    pub(super) conversations: Table<ConversationId, ConversationRow>,
    pub(super) conversation_parts: Table<(ConversationId, u64), Part>,
    pub(super) answers: Table<(Tenant, String), AnswerRow>,
    /// The recorded answers about each run.
    pub(super) answers_of: Table<(RunId, Tenant, String), ()>,
    pub(super) requests: Table<(Tenant, RequestHash, RunId), OpenRequest>,
    pub(super) outbox: Table<u64, OutboxRow>,
    /// Ended runs that are in no sum, with the model of those that were erased.
    pub(super) uncounted: Table<RunId, (Tenant, Option<String>)>,
    pub(super) usage: Table<UsageKey, UsageSums>,
    /// The end of each node's lease. Verbs do not write it.
    pub(super) nodes: BTreeMap<NodeId, Instant>,
    /// Message numbers are never used again, not even those of a verb that was rolled back.
    last_message: u64,
    last_outbox: u64,
    /// Bytes of content now, and after the last commit.
    pub(super) bytes: u64,
    bytes_committed: u64,
}

impl MemoryRows {
    pub(super) fn new() -> Self {
        MemoryRows {
            heads: Table::new(),
            runs: Table::new(),
            ordinals: Table::new(),
            dedupes: Table::new(),
            takers: Table::new(),
            erasable: Table::new(),
            manifests: Table::new(),
            pinned: Table::new(),
            open_runs: Table::new(),
            journal: Table::new(),
            deltas: Table::new(),
            inbox: Table::new(),
            pending: Table::new(),
            reports: Table::new(),
            calls: Table::new(),
            waiting: Table::new(),
            claimed: Table::new(),
            claim_keys: Table::new(),
            interrupts: Table::new(),
            items: Table::new(),
            boxes: Table::new(),
            children: Table::new(),
            ownerless: Table::new(),
            box_rows: Table::new(),
            conversations: Table::new(),
            conversation_parts: Table::new(),
            answers: Table::new(),
            answers_of: Table::new(),
            requests: Table::new(),
            outbox: Table::new(),
            uncounted: Table::new(),
            usage: Table::new(),
            nodes: BTreeMap::new(),
            last_message: 0,
            last_outbox: 0,
            bytes: 0,
            bytes_committed: 0,
        }
    }
}

/// Does the same to every table, so that no table is left out in one place only.
macro_rules! each_table {
    ($rows:ident, |$table:ident| $visit:expr) => {
        each_table!(@ $rows, $table, $visit, heads, runs, ordinals, dedupes, takers, erasable, manifests, pinned, open_runs, journal, deltas, inbox, pending, reports, calls, waiting, claimed, claim_keys, interrupts, items, boxes, children, ownerless, box_rows, conversations, conversation_parts, answers, answers_of, requests, outbox, uncounted, usage);
    };
    (@ $rows:ident, $table:ident, $visit:expr, $($name:ident),+) => {
        $(
            let $table = &mut $rows.$name;
            $visit;
        )+
    };
}

impl MemoryRows {
    pub(super) fn commit(&mut self) {
        each_table!(self, |table| table.commit());
        self.bytes_committed = self.bytes;
    }

    /// Whether a verb has written anything since the last commit.
    pub(super) fn has_changes(&mut self) -> bool {
        let mut has_changes = false;
        each_table!(self, |table| has_changes |= table.has_changes());
        has_changes
    }

    /// The rows of all tables except the counts of open runs, of which every tenant has one.
    #[cfg(test)]
    pub(super) fn count(&mut self) -> usize {
        let mut lengths = Vec::new();
        each_table!(self, |table| lengths.push(table.len()));
        lengths.into_iter().sum::<usize>() - self.open_runs.len()
    }

    pub(super) fn roll_back(&mut self) {
        each_table!(self, |table| table.roll_back());
        self.bytes = self.bytes_committed;
    }

    pub(super) fn remove_item(&mut self, item: &ItemId) {
        let bytes = self.items.get(item).map_or(0, |(_, row)| row.content.len() as u64);
        self.bytes -= bytes;
        self.items.remove(item);
    }

    /// Removes one run's use of a manifest. The manifest is deleted with the last use.
    pub(super) fn release_manifest(&mut self, tenant: &Tenant, hash: [u8; 32]) {
        let key = (tenant.clone(), hash);
        if count(&mut self.pinned, key.clone(), -1) == 0 {
            self.manifests.remove(&key);
        }
    }

    fn holds(&self, agent: &AgentKey, before: &HeadRow) -> bool {
        let guard = |head: &HeadRow| (head.status, head.epoch, head.run, head.seq);
        self.heads.get(agent).is_some_and(|head| guard(head) == guard(before))
    }

    pub(super) fn change_run(&mut self, run: RunId, change: impl FnOnce(&mut RunRow)) -> Result<()> {
        let mut row = self.runs.get(&run).cloned().ok_or_else(|| missing_row("a run that changes"))?;
        let before = erase_at(&row);
        change(&mut row);
        self.index_run(before, &row);
        self.runs.put(run, row);
        Ok(())
    }

    fn index_run(&mut self, before: Option<Timestamp>, row: &RunRow) {
        let after = erase_at(row);
        if before == after {
            return;
        }
        before.into_iter().for_each(|at| self.erasable.remove(&(at, row.brief.run)));
        after.into_iter().for_each(|at| self.erasable.put((at, row.brief.run), row.brief.agent.tenant.clone()));
    }

    pub(super) fn change_message(&mut self, agent: &AgentKey, id: MessageId, change: impl FnOnce(&mut MessageRow)) -> Result<()> {
        let key = (agent.clone(), id);
        let mut row = self.inbox.get(&key).cloned().ok_or_else(|| missing_row("a message that changes"))?;
        change(&mut row);
        self.index_message(&key, &row);
        self.inbox.put(key, row);
        Ok(())
    }

    fn index_message(&mut self, key: &(AgentKey, MessageId), row: &MessageRow) {
        match row.status {
            MessageStatus::Pending => self.pending.put(key.clone(), ()),
            MessageStatus::Queued | MessageStatus::Consumed | MessageStatus::Error | MessageStatus::Skipped => self.pending.remove(key),
        }
    }

    pub(super) fn unindex_call(&mut self, row: &CallRow) {
        self.waiting.remove(&place(row));
        self.claimed.remove(&(row.run, row.call));
        if let Some(key) = &row.claim_key {
            self.claim_keys.remove(&(row.agent.tenant.clone(), key.clone(), row.run, row.call));
        }
    }

    fn index_call(&mut self, row: &CallRow) {
        if row.status == CallStatus::Waiting {
            self.waiting.put(place(row), ());
        }
        if let (CallStatus::Claimed, Some(until)) = (row.status, row.lease_until) {
            self.claimed.put((row.run, row.call), until);
        }
        if let Some(key) = &row.claim_key {
            self.claim_keys.put((row.agent.tenant.clone(), key.clone(), row.run, row.call), ());
        }
    }
}

fn place(row: &CallRow) -> Place {
    (row.agent.tenant.clone(), row.tool.clone(), row.created_at, row.run, row.call)
}

/// Adds one to a count or subtracts one, and returns the result. A count of zero has no row.
pub(super) fn count<K: Ord + Clone>(table: &mut Table<K, u32>, key: K, change: i32) -> u32 {
    let after = table.get(&key).copied().unwrap_or(0).saturating_add_signed(change);
    match after {
        0 => table.remove(&key),
        _ => table.put(key, after),
    }
    after
}

fn erase_at(row: &RunRow) -> Option<Timestamp> {
    Some(row.ended_at?.plus_ms(row.erase_ms?.max(row.held_ms)))
}

pub(super) fn must(is_new: bool, what: &str) -> Result<()> {
    if is_new { Ok(()) } else { Err(existing_row(what)) }
}

impl Rows for MemoryRows {
    fn insert_head(&mut self, agent: &AgentKey, head: &HeadRow) -> Result<()> {
        must(self.heads.insert(agent.clone(), head.clone()), "a head")
    }

    fn update_head(&mut self, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Result<bool> {
        let holds = self.holds(agent, before);
        if holds {
            self.heads.put(agent.clone(), after.clone());
        }
        Ok(holds)
    }

    fn delete_head(&mut self, agent: &AgentKey, before: &HeadRow) -> Result<bool> {
        let holds = self.holds(agent, before);
        if holds {
            self.heads.remove(agent);
        }
        Ok(holds)
    }

    fn update_head_fast(&mut self, guard: &Guard, owner: NodeId, shown: &HeadRow) -> Result<bool> {
        let is_as_left = |head: &&HeadRow| {
            (head.status, head.epoch, head.run, head.seq) == (guard.status, guard.epoch, Some(guard.run), guard.seq)
                && head.owner == Some(owner)
                && head.pending == 0
                && head.quarantined.is_none()
        };
        let Some(before) = self.heads.get(&guard.agent).filter(is_as_left).cloned() else { return Ok(false) };
        let HeadRow { status, waiting, deadline, wake_at, local, held, .. } = shown.clone();
        let after = HeadRow { status, waiting, deadline, wake_at, local, held, seq: Seq(before.seq.0 + 1), ..before };
        self.heads.put(guard.agent.clone(), after);
        Ok(true)
    }

    fn insert_run(&mut self, run: &RunRow) -> Result<()> {
        let brief = &run.brief;
        if let Some(key) = &run.dedupe {
            must(self.dedupes.insert((brief.agent.tenant.clone(), key.clone()), brief.run), "a dedupe key")?;
        }
        if let Some(left) = run.takes {
            must(self.takers.insert((brief.agent.tenant.clone(), left), brief.run), "a run that takes over calls")?;
        }
        must(self.ordinals.insert((brief.agent.clone(), brief.ordinal), brief.run), "an ordinal")?;
        self.index_run(None, run);
        count(&mut self.pinned, (brief.agent.tenant.clone(), run.manifest), 1);
        must(self.runs.insert(brief.run, run.clone()), "a run")
    }

    fn update_run(&mut self, change: &RunChange) -> Result<()> {
        self.change_run(change.run, |row| {
            row.brief.status = change.status;
            row.brief.epoch = change.epoch;
            row.state_version = codec::VERSION;
            row.state = change.state.clone();
            row.iteration = change.iteration;
            row.deliverable = change.deliverable;
            row.ended_at = change.ended_at;
            row.held_ms = change.held_ms;
        })
    }

    fn release_run(&mut self, tenant: &Tenant, run: RunId, now: Timestamp) -> Result<()> {
        let found = self.runs.get(&run).filter(|row| row.brief.agent.tenant == *tenant);
        let Some((ended_at, erase_ms)) = found.and_then(|row| row.ended_at.zip(row.erase_ms)) else { return Ok(()) };
        let held_ms = u64::try_from(now.0 - ended_at.0).unwrap_or_default().saturating_add(erase_ms);
        self.change_run(run, |row| row.held_ms = row.held_ms.min(held_ms))
    }

    fn activate_run(&mut self, run: RunId, epoch: Epoch) -> Result<()> {
        self.change_run(run, |row| {
            row.brief.status = RunStatus::Active;
            row.brief.epoch = Some(epoch);
        })
    }

    fn keep_manifest(&mut self, tenant: &Tenant, manifest: &PinnedManifest) -> Result<()> {
        let key = (tenant.clone(), manifest.hash);
        if self.manifests.get(&key).is_none() {
            // The manifest is decoded from its bytes, as a database would do it.
            self.manifests.put(key, Arc::new(codec::decode_manifest(&manifest.body)?));
        }
        Ok(())
    }

    fn add_open_runs(&mut self, tenant: &Tenant, change: i32) -> Result<()> {
        let before = self.open_runs.get(tenant).copied().unwrap_or(0);
        let after = i64::from(before) + i64::from(change);
        self.open_runs.put(tenant.clone(), u32::try_from(after).map_err(|_| missing_row("an open run of the tenant"))?);
        Ok(())
    }

    fn append_journal(&mut self, run: RunId, rows: &[JournalRow]) -> Result<()> {
        rows.iter().try_for_each(|row| must(self.journal.insert((run, row.number), row.clone()), "a journal number"))
    }

    fn erase_run(&mut self, erasure: &Erasure) -> Result<()> {
        self.erase(erasure)
    }

    fn forget_deltas(&mut self, run: RunId) -> Result<()> {
        let keys: Vec<_> = self.deltas.range((run, 0)..=(run, u32::MAX)).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.deltas.remove(key));
        Ok(())
    }

    fn insert_message(&mut self, agent: &AgentKey, row: &MessageRow) -> Result<Option<MessageId>> {
        let id = MessageId(self.last_message + 1);
        if let (Some(run), Some(call), true) = (row.run, row.call, is_report(row.kind))
            && !self.reports.insert((run, call, row.kind, row.retry), id)
        {
            return Ok(None);
        }
        self.last_message = id.0;
        let key = (agent.clone(), id);
        self.index_message(&key, row);
        self.inbox.put(key, row.clone());
        Ok(Some(id))
    }

    fn consume_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch, now: Timestamp) -> Result<()> {
        self.change_message(agent, message, |row| {
            row.status = MessageStatus::Consumed;
            row.epoch = Some(epoch);
            row.processed_at = Some(now);
        })
    }

    fn lease_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch) -> Result<()> {
        self.change_message(agent, message, |row| {
            row.status = MessageStatus::Pending;
            row.epoch = Some(epoch);
        })
    }

    fn skip_message(&mut self, agent: &AgentKey, message: MessageId, now: Timestamp) -> Result<()> {
        self.change_message(agent, message, |row| {
            row.status = MessageStatus::Skipped;
            row.processed_at = Some(now);
        })
    }

    fn refuse_message(&mut self, agent: &AgentKey, message: MessageId, reason: &str) -> Result<()> {
        self.change_message(agent, message, |row| {
            row.status = MessageStatus::Error;
            row.reason = Some(reason.to_owned());
        })
    }

    fn insert_call(&mut self, row: &CallRow) -> Result<()> {
        must(self.calls.insert((row.run, row.call), row.clone()), "a call")?;
        self.index_call(row);
        Ok(())
    }

    fn update_call(&mut self, row: &CallRow) -> Result<()> {
        let key = (row.run, row.call);
        let before = self.calls.get(&key).cloned().ok_or_else(|| missing_row("a call that changes"))?;
        self.unindex_call(&before);
        self.index_call(row);
        self.calls.put(key, row.clone());
        Ok(())
    }

    fn move_call(&mut self, run: RunId, call: CallNumber, moved: CallMove) -> Result<()> {
        let mut row = self.calls.get(&(run, call)).cloned().ok_or_else(|| missing_row("a call that moves"))?;
        row.move_on(moved);
        self.update_call(&row)
    }

    fn insert_item(&mut self, tenant: &Tenant, item: &NewItem) -> Result<()> {
        // A copy, because the caller's bytes may be a slice of a large buffer.
        let content = Bytes::copy_from_slice(&item.content);
        self.bytes += content.len() as u64;
        let row = ItemRow {
            id: item.id,
            kind: item.kind,
            hash: codec::content_hash(&content),
            content,
            header: codec::encode_header(item.header.as_ref()).map(Bytes::from),
        };
        must(self.items.insert(item.id, (tenant.clone(), row)), "an item")
    }

    fn insert_box(&mut self, row: &BoxRow) -> Result<()> {
        if let Some(parent) = row.parent {
            count(&mut self.children, parent.id, 1);
        }
        must(self.boxes.insert(row.id, row.clone()), "a box")
    }

    fn share_box(&mut self, id: BoxId) -> Result<()> {
        let mut row = self.boxes.get(&id).cloned().ok_or_else(|| missing_row("a box that is shared"))?;
        row.shared = true;
        self.boxes.put(id, row);
        Ok(())
    }

    fn insert_box_row(&mut self, id: BoxId, position: i64, item: ItemId) -> Result<()> {
        must(self.box_rows.insert((id, position), item), "a position of a box")
    }

    fn insert_outbox(&mut self, agent: &AgentKey, run: RunId, first: u64, count: u32) -> Result<()> {
        self.last_outbox += 1;
        self.outbox.put(self.last_outbox, OutboxRow { n: self.last_outbox, agent: agent.clone(), run, first, count });
        Ok(())
    }

    fn forget_outbox(&mut self, rows: &[u64]) -> Result<()> {
        rows.iter().for_each(|n| self.outbox.remove(n));
        Ok(())
    }
}

impl Announces for MemoryRows {
    fn is_active(&mut self, agent: &AgentKey, run: RunId, epoch: Epoch) -> Result<bool> {
        Ok(self.heads.get(agent).is_some_and(|head| head.run == Some(run) && head.epoch == epoch))
    }

    fn stored_chunks(&self, run: RunId) -> Result<u32> {
        let last = self.deltas.range((run, 0)..=(run, u32::MAX)).next_back();
        Ok(last.map_or(0, |(_, row)| row.first + row.pieces.0.len() as u32))
    }

    fn insert_delta(&mut self, batch: &DeltaBatch) -> Result<()> {
        let row = DeltaRow { first: batch.first, pieces: batch.pieces.clone(), text: batch.text.clone() };
        must(self.deltas.insert((batch.run, batch.first), row), "a batch of words")
    }
}
