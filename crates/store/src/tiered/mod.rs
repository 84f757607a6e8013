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
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, NewItem, RunId, Tenant, Timestamp};
use windlass_ports::{
    CallClaim, ClaimedCall, Commit, Committed, ContextSize, DeltaBatch, Enqueued, Found, Guard, NewPack, NewRun, Packed, Query,
    ReaderRecord, Store, StoreError, TenantCursor, TenantErasure, UsageRow, Verb, Views, Written,
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
        // A child run is in the tier of its parent.
        if let Some(parent) = &new.state.parent {
            return self.memory.has_run(parent.run);
        }
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
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        match verb {
            Verb::Enqueue(new) => self.record(*new).await.map(Written::Enqueue),
            Verb::Commit(guard, commit) => self.apply(guard, *commit).await.map(Written::Commit),
            Verb::AppendDeltas(DeltaBatch { ref agent, .. })
            | Verb::Withdraw(ref agent, _)
            | Verb::Quarantine(ref agent, ..)
            | Verb::Abandon(ref agent, _)
            | Verb::Refuse(ref agent, ..) => self.of(agent)?.write(verb).await,
            Verb::Report(ref report) => self.of(&report.agent)?.write(verb).await,
            Verb::Beat(node, lease_ms) => {
                self.memory.beat(node, lease_ms).await?;
                self.database.write(verb).await
            }
            Verb::ClaimCalls(claim) => self.claim(claim).await.map(Written::ClaimCalls),
            Verb::RenewCalls(claim, calls) => {
                let (here, there) = self.split_calls(calls)?;
                let mut lost = self.memory.renew_calls(claim.clone(), here).await?;
                if !there.is_empty() {
                    lost.extend(self.database.renew_calls(claim, there).await?);
                }
                Ok(Written::RenewCalls(lost))
            }
            Verb::ReleaseCalls(claim, calls) => {
                let (here, there) = self.split_calls(calls)?;
                let mut lost = self.memory.release_calls(claim.clone(), here).await?;
                if !there.is_empty() {
                    lost.extend(self.database.release_calls(claim, there).await?);
                }
                Ok(Written::ReleaseCalls(lost))
            }
            Verb::Erase(ref tenant, run) if self.memory.has_run(run)? => self.memory.forget(tenant, run).map(Written::Erase),
            Verb::EraseTenant(tenant, from, limit) => self.erase_both(tenant, from, limit).await.map(Written::EraseTenant),
            Verb::Published(rows) => self.forget_published(rows).await.map(Written::Published),
            Verb::AdoptRequest(ref request, node) => match self.memory.adopt_request(request.clone(), node).await? {
                true => Ok(Written::AdoptRequest(true)),
                false => self.database.write(verb).await,
            },
            Verb::AddUsage(runs, rows) => self.count(runs, rows).await.map(Written::AddUsage),
            // Packed boxes, conversations and sums of usage are always stored, and no other process has the runs in memory.
            Verb::Bury(_) | Verb::Pack(_) | Verb::Erase(..) | Verb::EmptyLog(_) => self.database.write(verb).await,
            Verb::Converse(..) | Verb::FlushReaders() | Verb::ForgetUsage(_) => self.database.write(verb).await,
        }
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        match query {
            Query::Load(agent) => self.of(agent)?.read(query).await,
            Query::Due(now, limit) => {
                let mut due = self.memory.due(now, limit).await?;
                due.extend(self.database.due(now, limit).await?);
                Ok(Found::Due(due))
            }
            Query::Erasable(now, limit) => {
                let mut erasable = self.database.erasable(now, limit).await?;
                erasable.extend(self.memory.erasable(now, limit).await?);
                Ok(Found::Erasable(erasable))
            }
            Query::Outbox(limit) => {
                let mut rows = self.memory.outbox(limit).await?;
                rows.iter_mut().for_each(|row| row.n += OUTBOX_OF_MEMORY);
                rows.extend(self.database.outbox(limit).await?);
                Ok(Found::Outbox(rows))
            }
            Query::UncountedUsage(limit) => {
                // Never both in one answer, because their sums are stored in different ways.
                let here = self.memory.uncounted_usage(limit).await?;
                if here.is_empty() { self.database.read(query).await } else { Ok(Found::UncountedUsage(here)) }
            }
            // No other process has the runs in memory, they are in no list, and their requests are lost with their server.
            Query::Orphans(..) | Query::Aged(_) | Query::LostRequests(..) => self.database.read(query).await,
        }
    }

    fn record_reader(&self, record: ReaderRecord) {
        // A tier ignores the record of a request that it does not have.
        self.memory.record_reader(record.clone());
        self.database.record_reader(record);
    }
}

type Calls = Vec<(RunId, CallNumber)>;

/// The verbs that concern both tiers.
impl TieredStore {
    async fn record(&self, new: NewRun) -> Result<Enqueued> {
        if !self.goes_to_memory(&new)? {
            return self.enqueue_in_database(new).await;
        }
        if let Some(by) = self.taken_elsewhere(&new)? {
            return Ok(Enqueued::AlreadyInherited { by });
        }
        if !self.make_room(&new).await? {
            return Ok(Enqueued::MemoryFull);
        }
        self.memory.enqueue(new).await
    }

    async fn apply(&self, guard: Guard, commit: Commit) -> Result<Committed> {
        let (tenant, now) = (guard.agent.tenant.clone(), commit.now);
        let elsewhere = commit.follows.filter(|_| commit.state.has_ended());
        let committed = self.of(&guard.agent)?.commit(guard, commit).await?;
        if let Some(earlier) = elsewhere {
            // A stored run may continue one in memory, which has to notice its end.
            self.memory.release(&tenant, earlier, now)?;
        }
        Ok(committed)
    }

    async fn claim(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>> {
        let claimed = self.memory.claim_calls(claim.clone()).await?;
        if claimed.is_empty() { self.database.claim_calls(claim).await } else { Ok(claimed) }
    }

    fn split_calls(&self, calls: Calls) -> Result<(Calls, Calls)> {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for call in calls {
            if self.memory.has_run(call.0)? { here.push(call) } else { there.push(call) }
        }
        Ok((here, there))
    }

    async fn erase_both(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure> {
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

    async fn forget_published(&self, rows: Vec<u64>) -> Result<()> {
        let (here, there): (Vec<u64>, Vec<u64>) = rows.into_iter().partition(|n| *n >= OUTBOX_OF_MEMORY);
        self.memory.published(here.into_iter().map(|n| n - OUTBOX_OF_MEMORY).collect()).await?;
        if there.is_empty() { Ok(()) } else { self.database.published(there).await }
    }

    async fn count(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool> {
        if !self.memory.has_uncounted(&runs)? {
            return self.database.add_usage(runs, rows).await;
        }
        // The sums are stored although the runs are not. If the process ends between the two steps, its memory is gone as well.
        self.database.add_usage(Vec::new(), rows).await?;
        self.memory.add_usage(runs, Vec::new()).await
    }
}
