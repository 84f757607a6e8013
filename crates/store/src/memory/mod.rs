//! A store without a disk, for tests and trials. It has every property except durability.

mod aging;
mod answers;
mod conversations;
mod erase;
mod erase_tenant;
mod forget;
mod interrupts;
mod lists;
mod reads;
mod requests;
mod table;
mod usage;
mod writes;

use std::{sync::Mutex, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, AgentSummary, BoxView, CallClaim, CallView, ClaimedCall, Commit, Committed, ContextSize,
    ConversationChange, ConversationView, Conversed, Day, DeltaBatch, Edge, Enqueued, GivenUp, Guard, HeadView, InboxView, InterruptId,
    InterruptScan, InterruptView, Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, Loaded, LostRequest, MessageId,
    NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed, Page, Part, ReaderRecord, RequestHash, RunPage, RunScan, RunUsage,
    RunView, Store, StoreError, StoreTotals, Taken, TenantCursor, TenantErasure, UsageGroup, UsageQuery, UsageRow, Views, Withdrawn,
};

use crate::{
    StoreOptions, edges, listing, reading,
    rows::{InterruptReads, ListReads, Reads, RequestReads, RequestRows, Result, Rows},
    verbs,
};
use writes::MemoryRows;

/// A store in memory.
pub struct MemoryStore {
    /// One verb at a time, as with the one writer of SQLite. No verb waits for anything while it holds this lock.
    rows: Mutex<MemoryRows>,
    options: StoreOptions,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(options: StoreOptions) -> Self {
        MemoryStore { rows: Mutex::new(MemoryRows::new()), options }
    }

    /// The first node. Other nodes choose numbers of their own, because this store gives none out.
    pub fn node(&self) -> NodeId {
        NodeId(1)
    }

    fn write<T>(&self, verb: impl FnOnce(&mut MemoryRows) -> Result<T>) -> Result<T> {
        let mut rows = self.lock()?;
        let outcome = verb(&mut rows);
        match &outcome {
            Ok(_) => rows.commit(),
            Err(_) => rows.roll_back(),
        }
        outcome
    }

    fn read<T>(&self, question: impl FnOnce(&MemoryRows) -> Result<T>) -> Result<T> {
        question(&*self.lock()?)
    }

    /// Whether these runs exist and their usage is in no sum.
    pub(crate) fn has_uncounted(&self, runs: &[RunId]) -> Result<bool> {
        self.read(|rows| Ok(runs.iter().any(|run| rows.uncounted.get(run).is_some())))
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, MemoryRows>> {
        // A panic in a verb may have left half of its changes, and the store can't know.
        self.rows.lock().map_err(|_| StoreError::Unavailable("a verb panicked in the memory store".into()))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        self.write(|rows| verbs::enqueue(rows, self.options, &run))
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        self.read(|rows| reading::load(rows, agent))
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        self.write(|rows| verbs::commit(rows, self.options, &guard, &commit))
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        self.write(|rows| verbs::append_deltas(rows, &batch))
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        self.write(|rows| verbs::withdraw(rows, self.options, &agent, &commit))
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        self.write(|rows| verbs::report(rows, &report))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.read(|rows| rows.due(now, limit))
    }

    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError> {
        let mut rows = self.lock()?;
        let now = Instant::now();
        rows.nodes.insert(node, now + Duration::from_millis(lease_ms));
        Ok(rows.nodes.iter().filter(|(_, until)| **until <= now).map(|(node, _)| *node).collect())
    }

    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        let now = Instant::now();
        self.lock()?.nodes.retain(|node, until| *until > now || !nodes.contains(node));
        Ok(())
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.read(|rows| rows.orphans(node, after.as_ref(), limit))
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        self.write(|rows| verbs::claim_calls(rows, &claim))
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.write(|rows| verbs::renew_calls(rows, &claim, &calls))
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.write(|rows| verbs::release_calls(rows, &claim, &calls))
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        self.write(|rows| verbs::pack(rows, &pack))
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        self.write(|rows| verbs::quarantine(rows, &agent, run, &reason))
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        self.write(|rows| verbs::abandon(rows, self.options, &agent, &given_up))
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        self.write(|rows| verbs::erase(rows, &tenant, run))
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        self.read(|rows| rows.erasable(now, limit))
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        self.read(|rows| Ok(rows.aged(scan)))
    }

    async fn erase_tenant(&self, tenant: Tenant, _: TenantCursor, _: usize) -> Result<TenantErasure, StoreError> {
        self.write(|rows| rows.erase_tenant(&tenant))
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        self.write(|rows| verbs::converse(rows, &tenant, id, &change, now))
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        self.write(|rows| verbs::refuse(rows, &agent, message, &reason))
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(|rows| rows.outbox(limit))
    }

    async fn published(&self, published: Vec<u64>) -> Result<(), StoreError> {
        self.write(|rows| rows.forget_outbox(&published))
    }

    fn record_reader(&self, record: ReaderRecord) {
        // A store that failed has nothing to record: the next verb returns the error.
        let _ = self.write(|rows| rows.record_reader(&record));
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        self.read(|rows| rows.lost_requests(node, limit))
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        self.write(|rows| Ok(rows.adopt_request(&request, node)))
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        self.read(|rows| rows.uncounted_usage(self.node(), limit))
    }

    async fn add_usage(&self, runs: Vec<RunId>, added: Vec<UsageRow>) -> Result<bool, StoreError> {
        self.write(|rows| Ok(rows.add_usage(&runs, &added)))
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        self.write(|rows| {
            rows.forget_usage(before);
            Ok(())
        })
    }
}

#[async_trait]
impl Views for MemoryStore {
    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
        self.read(|rows| reading::head(rows, agent))
    }

    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.read(|rows| reading::run(rows, tenant, run))
    }

    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
        self.read(|rows| reading::agent_of(rows, tenant, run))
    }

    async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
        self.read(|rows| reading::inheriting_run(rows, tenant, run))
    }

    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
        self.read(|rows| reading::run_by_key(rows, tenant, key))
    }

    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
        self.read(|rows| reading::answered(rows, tenant, key))
    }

    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
        self.read(|rows| rows.open_requests(tenant, hash))
    }

    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
        self.read(|rows| verbs::conversation(rows, tenant, id))
    }

    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
        self.read(|rows| verbs::conversation_parts(rows, tenant, id))
    }

    async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
        self.read(|rows| reading::streamed_text(rows, tenant, run))
    }

    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
        self.read(|rows| reading::run_from(rows, agent, ordinal))
    }

    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
        self.read(|rows| listing::scan_runs(rows, tenant, scan))
    }

    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
        self.read(|rows| rows.agent_names(tenant, after, limit))
    }

    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
        self.read(|rows| rows.instruction(tenant, id))
    }

    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.read(|rows| reading::journal(rows, tenant, run, from, limit))
    }

    async fn journal_records(
        &self,
        tenant: &Tenant,
        run: RunId,
        so_far: Option<Run>,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.read(|rows| reading::journal_records(rows, tenant, run, so_far, limit))
    }

    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
        self.read(|rows| reading::calls(rows, tenant, run, from, limit))
    }

    async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
        self.read(|rows| rows.interrupts(tenant, scan))
    }

    async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
        self.read(|rows| rows.interrupt(tenant, id))
    }

    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
        self.read(|rows| reading::item(rows, tenant, item))
    }

    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
        self.read(|rows| reading::open_box(rows, tenant, id))
    }

    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
        self.read(|rows| reading::box_items(rows, tenant, id, from, limit))
    }

    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
        self.read(|rows| verbs::range_size(rows, tenant, range))
    }

    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
        self.read(|rows| {
            let segments = verbs::chain(rows, tenant, range)?.unwrap_or_default();
            let mut items = Vec::new();
            for segment in segments {
                let found = rows.box_items(segment.id, segment.from, segment.below, usize::MAX)?;
                for (_, row) in found {
                    items.push(reading::verified(row)?);
                }
            }
            Ok(items)
        })
    }

    async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError> {
        self.read(|rows| reading::inbox(rows, agent, page))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.read(|rows| Ok(rows.tenants()))
    }

    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
        self.read(|rows| rows.open_runs(tenant))
    }

    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        self.read(|rows| Ok(rows.usage(tenant, query)))
    }

    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
        self.read(|rows| Ok(rows.item_bytes(scan)))
    }

    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
        self.read(|rows| edges::edges(rows, agent, page))
    }

    async fn totals(&self) -> Result<StoreTotals, StoreError> {
        self.read(|rows| Ok(rows.totals()))
    }
}
