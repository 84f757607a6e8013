//! A store without a disk, for tests and trials. It has every property except durability.

mod aging;
mod answers;
mod conversations;
mod erase;
mod erase_tenant;
mod forget;
mod interrupts;
mod lists;
mod own_verbs;
mod reads;
mod requests;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod writes;

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, Found, HeadView, InboxView, InterruptId, InterruptScan,
    InterruptView, Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, NodeId, OpenRequest, Page, Part, Query,
    ReaderRecord, RequestHash, RunPage, RunScan, RunView, Store, StoreError, StoreTotals, UsageGroup, UsageQuery, Verb, Views, Written,
};

use crate::{
    StoreOptions, edges, listing, reading,
    rows::{InterruptReads, ListReads, Reads, RequestReads, RequestRows, Result},
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

    fn change<T>(&self, verb: impl FnOnce(&mut MemoryRows) -> Result<T>) -> Result<T> {
        let mut rows = self.lock()?;
        let outcome = verb(&mut rows);
        match &outcome {
            Ok(_) => rows.commit(),
            Err(_) => rows.roll_back(),
        }
        outcome
    }

    fn look<T>(&self, question: impl FnOnce(&MemoryRows) -> Result<T>) -> Result<T> {
        question(&*self.lock()?)
    }

    /// Whether these runs exist and their usage is in no sum.
    pub(crate) fn has_uncounted(&self, runs: &[RunId]) -> Result<bool> {
        self.look(|rows| Ok(runs.iter().any(|run| rows.uncounted.get(run).is_some())))
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, MemoryRows>> {
        // A panic in a verb may have left half of its changes, and the store can't know.
        self.rows.lock().map_err(|_| StoreError::Unavailable("a verb panicked in the memory store".into()))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        self.change(|rows| {
            let written = verbs::apply(rows, self.options, &verb, MemoryRows::apply_own);
            debug_assert!(!verbs::is_refused(&written) || !rows.has_changes(), "{} wrote before it was refused", verb.name());
            written
        })
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        self.look(|rows| {
            Ok(match query {
                Query::Load(agent) => Found::Load(reading::load(rows, agent)?),
                Query::Due(now, limit) => Found::Due(rows.due(now, limit)?),
                Query::Orphans(node, after, limit) => Found::Orphans(rows.orphans(node, after.as_ref(), limit)?),
                Query::Erasable(now, limit) => Found::Erasable(rows.erasable(now, limit)?),
                Query::Aged(scan) => Found::Aged(rows.aged(scan)),
                Query::Outbox(limit) => Found::Outbox(rows.outbox(limit)?),
                Query::LostRequests(node, limit) => Found::LostRequests(rows.lost_requests(node, limit)?),
                Query::UncountedUsage(limit) => Found::UncountedUsage(rows.uncounted_usage(self.node(), limit)?),
            })
        })
    }

    fn record_reader(&self, record: ReaderRecord) {
        // A store that failed has nothing to record: the next verb returns the error.
        let _ = self.change(|rows| rows.record_reader(&record));
    }
}

#[async_trait]
impl Views for MemoryStore {
    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
        self.look(|rows| reading::head(rows, agent))
    }

    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.look(|rows| reading::run(rows, tenant, run))
    }

    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
        self.look(|rows| reading::agent_of(rows, tenant, run))
    }

    async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
        self.look(|rows| reading::inheriting_run(rows, tenant, run))
    }

    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
        self.look(|rows| reading::run_by_key(rows, tenant, key))
    }

    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
        self.look(|rows| reading::answered(rows, tenant, key))
    }

    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
        self.look(|rows| rows.open_requests(tenant, hash))
    }

    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
        self.look(|rows| verbs::conversation(rows, tenant, id))
    }

    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
        self.look(|rows| verbs::conversation_parts(rows, tenant, id))
    }

    async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
        self.look(|rows| reading::streamed_text(rows, tenant, run))
    }

    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
        self.look(|rows| reading::run_from(rows, agent, ordinal))
    }

    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
        self.look(|rows| listing::scan_runs(rows, tenant, scan))
    }

    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
        self.look(|rows| rows.agent_names(tenant, after, limit))
    }

    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
        self.look(|rows| rows.instruction(tenant, id))
    }

    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.look(|rows| reading::journal(rows, tenant, run, from, limit))
    }

    async fn journal_records(
        &self,
        tenant: &Tenant,
        run: RunId,
        so_far: Option<Run>,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.look(|rows| reading::journal_records(rows, tenant, run, so_far, limit))
    }

    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
        self.look(|rows| reading::calls(rows, tenant, run, from, limit))
    }

    async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
        self.look(|rows| rows.interrupts(tenant, scan))
    }

    async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
        self.look(|rows| rows.interrupt(tenant, id))
    }

    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
        self.look(|rows| reading::item(rows, tenant, item))
    }

    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
        self.look(|rows| reading::open_box(rows, tenant, id))
    }

    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
        self.look(|rows| reading::box_items(rows, tenant, id, from, limit))
    }

    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
        self.look(|rows| verbs::range_size(rows, tenant, range))
    }

    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
        self.look(|rows| {
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
        self.look(|rows| reading::inbox(rows, agent, page))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.look(|rows| Ok(rows.tenants()))
    }

    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
        self.look(|rows| rows.open_runs(tenant))
    }

    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        self.look(|rows| Ok(rows.usage(tenant, query)))
    }

    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
        self.look(|rows| Ok(rows.item_bytes(scan)))
    }

    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
        self.look(|rows| edges::edges(rows, agent, page))
    }

    async fn totals(&self) -> Result<StoreTotals, StoreError> {
        self.look(|rows| Ok(rows.totals()))
    }
}
