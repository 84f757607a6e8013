//! The statements that read the tables.

use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use tokio::time::Instant;
use windlass_kernel::{AgentKey, BoxId, CallNumber, HeadStatus, ItemId, Manifest, RunId, Tenant, Timestamp, ToolName};
use windlass_ports::{CallStatus, Lineage, MessageId, MessageKind, NodeId, OutboxRow, Page, RunStatus};

use super::writes::MemoryRows;
use crate::rows::{
    BoxRow, CallRow, DeltaRow, HeadRow, ItemRow, JournalRow, MessageRow, Reads, Result, RunBrief, RunRow, Segment, missing_row,
};

const LAST_MESSAGE: MessageId = MessageId(u64::MAX);
const LAST_CALL: CallNumber = CallNumber(u32::MAX);

fn first_run() -> RunId {
    RunId::from_slice(&[0; 16]).expect("sixteen bytes are a run's id")
}

impl Reads for MemoryRows {
    fn head(&self, agent: &AgentKey) -> Result<Option<HeadRow>> {
        Ok(self.heads.get(agent).cloned())
    }

    fn run(&self, run: RunId) -> Result<Option<RunRow>> {
        Ok(self.runs.get(&run).cloned())
    }

    fn run_brief(&self, run: RunId) -> Result<Option<RunBrief>> {
        Ok(self.runs.get(&run).map(|row| row.brief.clone()))
    }

    fn run_by_dedupe(&self, tenant: &Tenant, key: &str) -> Result<Option<RunBrief>> {
        match self.dedupes.get(&(tenant.clone(), key.to_owned())) {
            Some(run) => self.run_brief(*run),
            None => Ok(None),
        }
    }

    fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunBrief>> {
        match self.takers.get(&(tenant.clone(), run)) {
            Some(taker) => self.run_brief(*taker),
            None => Ok(None),
        }
    }

    fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunRow>> {
        let found = self.ordinals.range((agent.clone(), ordinal)..=(agent.clone(), u64::MAX)).next();
        Ok(found.and_then(|(_, run)| self.runs.get(run)).cloned())
    }

    fn next_queued(&self, agent: &AgentKey, above: u64) -> Result<Option<RunBrief>> {
        let later = (Excluded((agent.clone(), above)), Included((agent.clone(), u64::MAX)));
        let briefs = self.ordinals.range(later).filter_map(|(_, run)| self.runs.get(run)).map(|row| &row.brief);
        Ok(briefs.into_iter().find(|brief| brief.status == RunStatus::Queued).cloned())
    }

    fn lineage(&self, run: RunId) -> Result<Option<Lineage>> {
        Ok(self.runs.get(&run).map(|row| row.lineage.clone()))
    }

    fn manifest(&self, tenant: &Tenant, hash: &[u8; 32]) -> Result<Option<Arc<Manifest>>> {
        Ok(self.manifests.get(&(tenant.clone(), *hash)).cloned())
    }

    fn open_runs(&self, tenant: &Tenant) -> Result<u32> {
        Ok(self.open_runs.get(tenant).copied().unwrap_or(0))
    }

    fn journal(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalRow>> {
        Ok(self.journal.range((run, from)..=(run, u64::MAX)).take(limit).map(|(_, row)| row.clone()).collect())
    }

    fn deltas(&self, run: RunId) -> Result<Vec<DeltaRow>> {
        Ok(self.deltas.range((run, 0)..=(run, u32::MAX)).map(|(_, row)| row.clone()).collect())
    }

    fn message(&self, agent: &AgentKey, message: MessageId) -> Result<Option<MessageRow>> {
        Ok(self.inbox.get(&(agent.clone(), message)).cloned())
    }

    fn report(&self, run: RunId, call: CallNumber, kind: MessageKind, retry: u32) -> Result<Option<MessageId>> {
        Ok(self.reports.get(&(run, call, kind, retry)).copied())
    }

    fn last_message(&self, agent: &AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber>) -> Result<Option<MessageId>> {
        let mut all = self.inbox.range((agent.clone(), MessageId(0))..=(agent.clone(), LAST_MESSAGE)).rev();
        let found = all.find(|(_, row)| row.run == Some(run) && row.kind == kind && row.call == call);
        Ok(found.map(|((_, id), _)| *id))
    }

    fn pending(&self, agent: &AgentKey) -> Result<Vec<(MessageId, MessageRow)>> {
        let keys = self.pending.range((agent.clone(), MessageId(0))..=(agent.clone(), LAST_MESSAGE)).map(|(key, ())| key);
        Ok(keys.filter_map(|key| Some((key.1, self.inbox.get(key)?.clone()))).collect())
    }

    fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<(MessageId, MessageRow)>> {
        let ordinal = |row: &MessageRow| row.run.and_then(|run| self.runs.get(&run)).map_or(0, |run| run.brief.ordinal);
        let after = self.inbox.get(&(agent.clone(), MessageId(page.after))).map_or(0, ordinal);
        let all = self.inbox.range((agent.clone(), MessageId(0))..=(agent.clone(), LAST_MESSAGE));
        let mut ordered: Vec<_> = all.map(|((_, id), row)| (ordinal(row), *id, row)).collect();
        ordered.retain(|(ordinal, id, _)| (*ordinal, id.0) > (after, page.after));
        ordered.sort_by_key(|(ordinal, id, _)| (*ordinal, *id));
        Ok(ordered.into_iter().take(page.limit).map(|(_, id, row)| (id, row.clone())).collect())
    }

    fn call(&self, run: RunId, call: CallNumber) -> Result<Option<CallRow>> {
        Ok(self.calls.get(&(run, call)).cloned())
    }

    fn calls(&self, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallRow>> {
        Ok(self.calls.range((run, from)..=(run, LAST_CALL)).take(limit).map(|(_, row)| row.clone()).collect())
    }

    fn open_calls(&self, run: RunId) -> Result<Vec<CallNumber>> {
        let is_open = |row: &CallRow| !matches!(row.status, CallStatus::Applied | CallStatus::Expired | CallStatus::Dropped);
        let of_run = self.calls.range((run, CallNumber(0))..=(run, LAST_CALL));
        Ok(of_run.filter(|(_, row)| is_open(row)).map(|((_, call), _)| *call).collect())
    }

    fn claims(&self, run: RunId) -> Result<Vec<(CallNumber, Timestamp)>> {
        Ok(self.claimed.range((run, CallNumber(0))..=(run, LAST_CALL)).map(|((_, call), until)| (*call, *until)).collect())
    }

    fn waiting_calls(&self, tenant: &Tenant, tool: &ToolName, now: Timestamp, limit: usize) -> Result<Vec<CallRow>> {
        let first = (tenant.clone(), tool.clone(), Timestamp(i64::MIN), first_run(), CallNumber(0));
        let in_line = self.waiting.range(first..).take_while(|((whose, what, ..), ())| whose == tenant && what == tool);
        let calls = in_line.filter_map(|((.., run, call), ())| self.calls.get(&(*run, *call)));
        let is_claimable = |call: &&CallRow| {
            let head = self.heads.get(&call.agent);
            call.deadline > now && head.is_some_and(|head| head.run == Some(call.run) && !head.held && head.quarantined.is_none())
        };
        Ok(calls.filter(is_claimable).take(limit).cloned().collect())
    }

    fn calls_by_key(&self, tenant: &Tenant, key: &str) -> Result<Vec<CallRow>> {
        let first = (tenant.clone(), key.to_owned(), first_run(), CallNumber(0));
        let held = self.claim_keys.range(first..).take_while(|((whose, under, ..), ())| whose == tenant && under == key);
        Ok(held.filter_map(|((.., run, call), ())| self.calls.get(&(*run, *call))).cloned().collect())
    }

    fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<ItemRow>> {
        Ok(self.items.get(&item).filter(|(whose, _)| whose == tenant).map(|(_, row)| row.clone()))
    }

    fn find_box(&self, id: BoxId) -> Result<Option<BoxRow>> {
        Ok(self.boxes.get(&id).cloned())
    }

    fn box_length(&self, id: BoxId) -> Result<u32> {
        let last = self.box_rows.range((id, 0)..=(id, i64::MAX)).next_back();
        Ok(last.map_or(0, |((_, position), _)| *position as u32 + 1))
    }

    fn box_item_ids(&self, id: BoxId, below: u32) -> Result<Vec<ItemId>> {
        Ok(self.box_rows.range((id, i64::MIN)..(id, below.into())).map(|(_, item)| *item).collect())
    }

    fn content_bytes(&self, segments: &[Segment]) -> Result<u64> {
        let positions = |segment: &Segment| (segment.id, segment.from)..(segment.id, segment.below.max(segment.from));
        let items = segments.iter().flat_map(|segment| self.box_rows.range(positions(segment)));
        Ok(items.filter_map(|(_, item)| self.items.get(item)).map(|(_, row)| row.content.len() as u64).sum())
    }

    fn box_items(&self, id: BoxId, from: i64, below: i64, limit: usize) -> Result<Vec<(i64, ItemRow)>> {
        let found = self.box_rows.range((id, from)..(id, below.max(from))).take(limit).map(|((_, position), item)| {
            let (_, row) = self.items.get(item).ok_or_else(|| missing_row("an item of a box"))?;
            Ok((*position, row.clone()))
        });
        found.collect()
    }

    fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>> {
        let mut due: Vec<(Timestamp, &AgentKey)> =
            self.heads.range(..).filter_map(|(agent, head)| head.wake_at.filter(|at| *at <= now).map(|at| (at, agent))).collect();
        due.sort();
        Ok(due.into_iter().take(limit).map(|(_, agent)| agent.clone()).collect())
    }

    fn lives(&self, node: NodeId) -> Result<bool> {
        Ok(self.nodes.get(&node).is_some_and(|until| *until > Instant::now()))
    }

    fn orphans(&self, node: NodeId, after: Option<&AgentKey>, limit: usize) -> Result<Vec<AgentKey>> {
        let is_owed = |head: &HeadRow| match head.status {
            HeadStatus::Idle => false,
            HeadStatus::Dispatched | HeadStatus::Running => true,
            HeadStatus::Suspended => head.local > 0,
        };
        let mut found = Vec::new();
        for (agent, head) in self.heads.range((after.cloned().map_or(Unbounded, Excluded), Unbounded)) {
            let is_lost = is_owed(head) && head.owner != Some(node) && head.quarantined.is_none();
            if is_lost && !head.owner.map_or(Ok(false), |owner| self.lives(owner))? {
                found.push(agent.clone());
            }
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>> {
        Ok(self.outbox.range(..).take(limit).map(|(_, row)| row.clone()).collect())
    }
}
