//! A store with the faults that a test sets. It records all commits and who sent them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use async_trait::async_trait;
use windlass_kernel::{AgentKey, CallNumber, ConversationId, Event, RunId, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, CallClaim, ClaimedCall, Commit, CommitKind, Committed, ConversationChange, Conversed, Day, DeltaBatch,
    Enqueued, GivenUp, Guard, Loaded, LostRequest, MessageId, NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed,
    ReaderRecord, RunUsage, Store, StoreError, Taken, TenantCursor, TenantErasure, UsageRow, Withdrawn,
};
use windlass_store::conformance::Full;

/// The next faults.
#[derive(Default)]
pub struct Faults {
    /// This many commits are refused.
    pub refuse_commits: usize,
    /// One commit is refused, after this many others.
    pub refuse_after: Option<usize>,
    /// This many commits are applied, but the answer is lost.
    pub lose_answers: usize,
    /// This many enqueues are applied, but the answer is lost.
    pub lose_enqueues: usize,
    /// This many loads of an agent fail.
    pub refuse_loads: usize,
    /// These runs cannot be erased.
    pub keep: Vec<RunId>,
    /// All reads and writes fail.
    pub is_down: bool,
    /// All heartbeats fail.
    pub lose_heartbeats: bool,
    /// The next commit of this agent panics.
    pub panic_at: Option<AgentKey>,
}

/// A commit that reached the store.
#[derive(Clone, Debug)]
pub struct Seen {
    pub agent: AgentKey,
    pub node: NodeId,
    pub kind: CommitKind,
    pub events: Vec<Event>,
    /// `None` if it was fenced or refused.
    pub done: Option<Committed>,
    pub is_fenced: bool,
}

/// A real store with faults in front of it.
pub struct Faulty {
    inner: Arc<dyn Full>,
    pub faults: Mutex<Faults>,
    /// Whether heartbeats reach the real store.
    pub keeps_leases: AtomicBool,
    seen: Mutex<Vec<Seen>>,
    /// The durable writes so far, in order.
    writes: Mutex<Vec<&'static str>>,
    /// The time of the last request to empty the log.
    pub emptied_at: Mutex<Option<Timestamp>>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Full>) -> Self {
        Faulty {
            inner,
            faults: Mutex::default(),
            keeps_leases: AtomicBool::new(false),
            seen: Mutex::default(),
            writes: Mutex::default(),
            emptied_at: Mutex::default(),
        }
    }

    /// The durable writes so far, without heartbeats. A claim that finds nothing writes nothing.
    pub fn writes(&self) -> Vec<&'static str> {
        self.writes.lock().unwrap().clone()
    }

    fn wrote(&self, what: &'static str) {
        self.writes.lock().unwrap().push(what);
    }

    /// Every commit that reached the store so far.
    pub fn commits(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The kinds of an agent's applied commits, in order.
    pub fn kinds(&self, agent: &AgentKey) -> Vec<CommitKind> {
        self.commits().iter().filter(|seen| seen.agent == *agent && seen.done.is_some()).map(|seen| seen.kind).collect()
    }

    pub fn fault(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.faults.lock().unwrap().is_down {
            true => Err(unavailable()),
            false => Ok(()),
        }
    }

    fn is_next_refused(&self) -> bool {
        let mut faults = self.faults.lock().unwrap();
        match faults.refuse_after {
            Some(0) => faults.refuse_after.take().is_some(),
            Some(more) => faults.refuse_after.replace(more - 1).is_none(),
            None => false,
        }
    }

    fn take(&self, count: impl FnOnce(&mut Faults) -> &mut usize) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let left = count(&mut faults);
        let is_due = *left > 0;
        *left = left.saturating_sub(1);
        is_due
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("the test says so".into())
}

#[async_trait]
impl Store for Faulty {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        self.up()?;
        let done = self.inner.enqueue(run).await?;
        self.wrote("enqueue");
        if self.take(|faults| &mut faults.lose_enqueues) { Err(unavailable()) } else { Ok(done) }
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        self.up()?;
        if self.take(|faults| &mut faults.refuse_loads) {
            return Err(unavailable());
        }
        self.inner.load(agent).await
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        self.up()?;
        let panics = self.faults.lock().unwrap().panic_at.take_if(|agent| *agent == guard.agent).is_some();
        assert!(!panics, "the store panics because the test says so");
        if self.take(|faults| &mut faults.refuse_commits) || self.is_next_refused() {
            return Err(unavailable());
        }
        let (agent, node, kind, events) = (guard.agent.clone(), commit.node, commit.kind, commit.events.clone());
        let done = self.inner.commit(guard, commit).await;
        self.wrote("commit");
        let is_fenced = matches!(done, Err(StoreError::Fenced));
        self.seen.lock().unwrap().push(Seen { agent, node, kind, events, done: done.as_ref().ok().cloned(), is_fenced });
        if done.is_ok() && self.take(|faults| &mut faults.lose_answers) { Err(unavailable()) } else { done }
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        self.up()?;
        self.wrote("announce");
        self.inner.append_deltas(batch).await
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        self.up()?;
        self.inner.abandon(agent, given_up).await
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        self.up()?;
        if self.faults.lock().unwrap().keep.contains(&run) {
            return Err(StoreError::Corrupt("the test says so".into()));
        }
        self.wrote("erase");
        self.inner.erase(tenant, run).await
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        self.up()?;
        self.inner.erasable(now, limit).await
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        self.up()?;
        self.inner.aged(scan).await
    }

    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError> {
        self.up()?;
        self.inner.erase_tenant(tenant, from, limit).await
    }

    async fn empty_log(&self, now: Timestamp) -> Result<(), StoreError> {
        self.up()?;
        *self.emptied_at.lock().unwrap() = Some(now);
        self.inner.empty_log(now).await
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        self.up()?;
        self.wrote("withdraw");
        self.inner.withdraw(agent, commit).await
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        self.up()?;
        self.wrote("report");
        self.inner.report(report).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.up()?;
        self.inner.due(now, limit).await
    }

    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError> {
        self.up()?;
        if self.faults.lock().unwrap().lose_heartbeats {
            return Err(unavailable());
        }
        // Unless a test is about leases, a process that has ended is known to be lost at once.
        if self.keeps_leases.load(SeqCst) { self.inner.beat(node, lease_ms).await } else { Ok(Vec::new()) }
    }

    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        self.up()?;
        self.wrote("bury");
        self.inner.bury(nodes).await
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.up()?;
        self.inner.orphans(node, after, limit).await
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        self.up()?;
        let claimed = self.inner.claim_calls(claim).await?;
        if !claimed.is_empty() {
            self.wrote("claim_calls");
        }
        Ok(claimed)
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.up()?;
        self.wrote("renew_calls");
        self.inner.renew_calls(claim, calls).await
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.up()?;
        self.wrote("release_calls");
        self.inner.release_calls(claim, calls).await
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        self.up()?;
        self.wrote("pack");
        self.inner.pack(pack).await
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        self.up()?;
        self.wrote("quarantine");
        self.inner.quarantine(agent, run, reason).await
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        self.up()?;
        self.wrote("converse");
        self.inner.converse(tenant, id, change, now).await
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        self.up()?;
        self.wrote("refuse");
        self.inner.refuse(agent, message, reason).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.up()?;
        self.inner.outbox(limit).await
    }

    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError> {
        self.up()?;
        self.wrote("published");
        self.inner.published(rows).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.inner.record_reader(record);
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        self.up()?;
        self.inner.flush_readers().await
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        self.up()?;
        self.inner.lost_requests(node, limit).await
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        self.up()?;
        self.wrote("adopt_request");
        self.inner.adopt_request(request, node).await
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        self.up()?;
        self.inner.uncounted_usage(limit).await
    }

    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError> {
        self.up()?;
        self.wrote("add_usage");
        self.inner.add_usage(runs, rows).await
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        self.up()?;
        self.inner.forget_usage(before).await
    }
}
