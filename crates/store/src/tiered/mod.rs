//! A store in two tiers: a database, and memory for runs that are not to be stored, if the operator wants none of their content on disk.
//!
//! A run in memory has a head of its own, so that any of its keys shows in which tier it is. It has every property except durability, and
//! when it is erased nothing of it is left. A run that continues one in the database, or inherits calls from there, is stored in the
//! database as well.

#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use async_trait::async_trait;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, NewItem, RunId, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, CallClaim, ClaimedCall, Commit, Committed, ContextSize, ConversationChange, Conversed, Day, DeltaBatch,
    Enqueued, GivenUp, Guard, Loaded, LostRequest, MessageId, NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed,
    ReaderRecord, RunUsage, Store, StoreError, Taken, TenantCursor, TenantErasure, UsageRow, Views, Withdrawn,
};

use crate::{StoreOptions, memory::MemoryStore, rows::Result, verbs::is_own_head};

/// Separates the numbers of outbox rows in memory from those of a database, which never reach this one.
const OUTBOX_OF_MEMORY: u64 = 1 << 62;

/// The most runs that are erased early to make room for a new one.
const FORGET_MAX: usize = 64;

/// A database, and memory for the runs that are not stored.
pub struct TieredStore {
    database: Arc<dyn Store>,
    views: Arc<dyn Views>,
    memory: MemoryStore,
    bytes_max: u64,
}

impl TieredStore {
    /// A store over a database. The runs in memory have at most `bytes_max` bytes of content.
    pub fn new(database: Arc<dyn Store>, views: Arc<dyn Views>, options: StoreOptions, bytes_max: u64) -> Self {
        TieredStore { database, views, memory: MemoryStore::new(options), bytes_max }
    }

    /// The tier that an agent is in.
    fn of(&self, agent: &AgentKey) -> Result<&dyn Store> {
        Ok(if self.has(agent)? { &self.memory } else { &*self.database })
    }

    fn has(&self, agent: &AgentKey) -> Result<bool> {
        agent.agent.as_str().parse().map_or(Ok(false), |run| self.memory.has_run_of(run, agent))
    }

    /// Whether a new run goes to memory.
    fn goes_to_memory(&self, new: &NewRun) -> Result<bool> {
        let is_wanted = new.erase_ms.is_some() && is_own_head(&new.agent, new.run);
        let follows_here = new.context.parent.map_or(Ok(true), |parent| self.memory.has_box(parent.id))?;
        Ok(is_wanted && follows_here && new.takes.map_or(Ok(true), |left| self.memory.has_run(left))?)
    }

    /// The run in the database that has already inherited the calls that `new` wants to inherit from a run in memory.
    fn taken_elsewhere(&self, new: &NewRun) -> Result<Option<RunId>> {
        let taker = new.takes.map_or(Ok(None), |left| self.memory.taker(&new.agent.tenant, left))?;
        taker.map_or(Ok(None), |taker| Ok(Some(taker).filter(|_| !self.memory.has_run(taker).unwrap_or(true))))
    }

    /// Makes room for the content of a new run by erasing runs in memory that have ended, the oldest first, although they could still be
    /// read.
    async fn make_room(&self, new: &NewRun) -> Result<bool> {
        let more: u64 = new.context.items.iter().map(|item| item.content.len() as u64).sum();
        for (tenant, run) in self.memory.erasable(Timestamp(i64::MAX), FORGET_MAX).await? {
            if self.memory.bytes()? + more <= self.bytes_max {
                break;
            }
            self.memory.forget(&tenant, run)?;
        }
        Ok(self.memory.bytes()? + more <= self.bytes_max)
    }

    /// Records a run in the database. Content in memory that it continues is copied there.
    async fn enqueue_in_database(&self, mut new: NewRun) -> Result<Enqueued, StoreError> {
        if let Some(parent) = new.context.parent
            && self.memory.has_box(parent.id)?
        {
            let copied = self.copy(&new.agent.tenant, parent, copy_of(new.context.id)).await?;
            new.context.parent = Some(copied);
        }
        let Some(left) = new.takes.filter(|left| self.memory.has_run(*left).unwrap_or(false)) else {
            return self.database.enqueue(new).await;
        };
        let tenant = new.agent.tenant.clone();
        if let Some(by) = self.memory.give_calls(&tenant, left, new.run)? {
            return Ok(Enqueued::AlreadyInherited { by });
        }
        let outcome = self.database.enqueue(new).await;
        let is_refused =
            |outcome: &Enqueued| !matches!(outcome, Enqueued::Entered { .. } | Enqueued::Dispatched { .. } | Enqueued::Queued { .. });
        if outcome.as_ref().is_ok_and(is_refused) {
            self.memory.undo_give_calls(&tenant, left)?;
        }
        outcome
    }

    async fn copy(&self, tenant: &Tenant, range: BoxRange, id: BoxId) -> Result<BoxRange, StoreError> {
        let items = Views::range_items(&self.memory, tenant, range).await?;
        let items =
            items.into_iter().map(|item| NewItem { id: item.id, kind: item.kind, content: item.content, header: item.header }).collect();
        let (tenant, limit) = (tenant.clone(), ContextSize::UNLIMITED);
        match self.database.pack(NewPack { tenant, id, from: Vec::new(), items, key: None, limit }).await? {
            Packed::Done(copied) => Ok(copied),
            Packed::UnknownBox | Packed::TooLarge | Packed::KeyReused => {
                Err(StoreError::Corrupt("a box of another tenant stands where a copy was to be made".into()))
            }
        }
    }
}

/// The id of the copied box: the same one if the request is sent again.
fn copy_of(context: BoxId) -> BoxId {
    let mut bytes = *context.as_bytes();
    bytes[15] ^= 0x80;
    BoxId::from_slice(&bytes).expect("sixteen bytes are a box's id")
}

#[async_trait]
impl Store for TieredStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        if !self.goes_to_memory(&run)? {
            return self.enqueue_in_database(run).await;
        }
        if let Some(by) = self.taken_elsewhere(&run)? {
            return Ok(Enqueued::AlreadyInherited { by });
        }
        if !self.make_room(&run).await? {
            return Ok(Enqueued::MemoryFull);
        }
        self.memory.enqueue(run).await
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        self.of(agent)?.load(agent).await
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let (tenant, now) = (guard.agent.tenant.clone(), commit.now);
        let elsewhere = commit.follows.filter(|_| commit.state.has_ended());
        let committed = self.of(&guard.agent)?.commit(guard, commit).await?;
        if let Some(earlier) = elsewhere {
            // A stored run may continue one in memory, which has to notice its end.
            self.memory.release(&tenant, earlier, now)?;
        }
        Ok(committed)
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        self.of(&batch.agent)?.append_deltas(batch).await
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        self.of(&agent)?.withdraw(agent, commit).await
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        self.of(&report.agent)?.report(report).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        let mut due = self.memory.due(now, limit).await?;
        due.extend(self.database.due(now, limit).await?);
        Ok(due)
    }

    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError> {
        self.memory.beat(node, lease_ms).await?;
        self.database.beat(node, lease_ms).await
    }

    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        self.database.bury(nodes).await
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        // No other process has the runs in memory.
        self.database.orphans(node, after, limit).await
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        let claimed = self.memory.claim_calls(claim.clone()).await?;
        if claimed.is_empty() { self.database.claim_calls(claim).await } else { Ok(claimed) }
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        let (here, there) = self.sorted(calls)?;
        let mut lost = self.memory.renew_calls(claim.clone(), here).await?;
        if !there.is_empty() {
            lost.extend(self.database.renew_calls(claim, there).await?);
        }
        Ok(lost)
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        let (here, there) = self.sorted(calls)?;
        let mut lost = self.memory.release_calls(claim.clone(), here).await?;
        if !there.is_empty() {
            lost.extend(self.database.release_calls(claim, there).await?);
        }
        Ok(lost)
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        self.database.pack(pack).await
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        self.of(&agent)?.quarantine(agent, run, reason).await
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        self.of(&agent)?.abandon(agent, given_up).await
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        match self.memory.has_run(run)? {
            true => self.memory.forget(&tenant, run),
            false => self.database.erase(tenant, run).await,
        }
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        let mut erasable = self.database.erasable(now, limit).await?;
        erasable.extend(self.memory.erasable(now, limit).await?);
        Ok(erasable)
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        // Runs in memory are in no list.
        self.database.aged(scan).await
    }

    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError> {
        let open = self.memory.open_runs(&tenant).await?;
        if open > 0 {
            return Ok(TenantErasure::OpenRuns(open));
        }
        // The runs in memory are erased with every batch, because they do not slow it down.
        match self.database.erase_tenant(tenant.clone(), from, limit).await? {
            TenantErasure::Erased { rows, next } => match self.memory.erase_tenant(tenant, TenantCursor::default(), limit).await? {
                TenantErasure::Erased { rows: in_memory, .. } => Ok(TenantErasure::Erased { rows: rows + in_memory, next }),
                open @ TenantErasure::OpenRuns(_) => Ok(open),
            },
            open @ TenantErasure::OpenRuns(_) => Ok(open),
        }
    }

    async fn empty_log(&self, now: Timestamp) -> Result<(), StoreError> {
        self.database.empty_log(now).await
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        // A conversation is always stored.
        self.database.converse(tenant, id, change, now).await
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        self.of(&agent)?.refuse(agent, message, reason).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        let mut rows = self.memory.outbox(limit).await?;
        rows.iter_mut().for_each(|row| row.n += OUTBOX_OF_MEMORY);
        rows.extend(self.database.outbox(limit).await?);
        Ok(rows)
    }

    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError> {
        let (here, there): (Vec<u64>, Vec<u64>) = rows.into_iter().partition(|n| *n >= OUTBOX_OF_MEMORY);
        self.memory.published(here.into_iter().map(|n| n - OUTBOX_OF_MEMORY).collect()).await?;
        if there.is_empty() { Ok(()) } else { self.database.published(there).await }
    }

    fn record_reader(&self, record: ReaderRecord) {
        // A tier ignores the record of a request that it does not have.
        self.memory.record_reader(record.clone());
        self.database.record_reader(record);
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        self.database.flush_readers().await
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        // Requests in memory are lost with their server.
        self.database.lost_requests(node, limit).await
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        Ok(self.memory.adopt_request(request.clone(), node).await? || self.database.adopt_request(request, node).await?)
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        // Never both in one answer, because their sums are stored in different ways.
        let here = self.memory.uncounted_usage(limit).await?;
        if here.is_empty() { self.database.uncounted_usage(limit).await } else { Ok(here) }
    }

    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError> {
        if !self.memory.has_uncounted(&runs)? {
            return self.database.add_usage(runs, rows).await;
        }
        // The sums are stored although the runs are not. If the process ends between the two steps, its memory is gone as well.
        self.database.add_usage(Vec::new(), rows).await?;
        self.memory.add_usage(runs, Vec::new()).await
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        self.database.forget_usage(before).await
    }
}

type Calls = Vec<(RunId, CallNumber)>;

impl TieredStore {
    fn sorted(&self, calls: Calls) -> Result<(Calls, Calls)> {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for call in calls {
            if self.memory.has_run(call.0)? { here.push(call) } else { there.push(call) }
        }
        Ok((here, there))
    }
}
