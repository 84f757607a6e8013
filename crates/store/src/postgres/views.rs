//! The reads, for the server's own store and for other processes.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, HeadView, InboxView, InterruptId, InterruptScan, InterruptView,
    Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, OpenRequest, Page, Part, RequestHash, RunPage, RunScan, RunView,
    StoreError, StoreTotals, UsageGroup, UsageQuery, Views,
};

use super::{
    PostgresStore,
    fetch::Depth,
    open::{PostgresOpenError, look},
    readers::Readers,
    session::Connector,
    usage,
};
use crate::{
    edges, listing, reading,
    rows::{InterruptReads, ListReads, Reads, RequestReads, Result, Segment},
    verbs,
};

/// The most rows of one read.
const PAGE: usize = 256;

/// The most boxes of one read.
const BOXES_AT_ONCE: usize = 16;

/// A database that is only read. The servers that use it are not disturbed.
pub struct PostgresViews {
    readers: Readers,
}

impl PostgresViews {
    /// Opens an existing database for reading. Nothing in it is changed.
    pub async fn open(url: &str) -> Result<Self, PostgresOpenError> {
        let connector = Connector::new(url, None)?;
        look(&connector).await?;
        Ok(PostgresViews { readers: Readers::new(&connector, 1) })
    }
}

/// Both types read in the same way, but the compiler does not accept one implementation for two types.
macro_rules! views_over_readers {
    ($store:ty) => {
        #[async_trait]
        impl Views for $store {
            async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
                self.readers.read(|rows| reading::head(rows, agent)).await
            }

            async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
                self.readers.read(|rows| reading::run(rows, tenant, run)).await
            }

            async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
                self.readers.read(|rows| reading::agent_of(rows, tenant, run)).await
            }

            async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
                self.readers.read(|rows| reading::inheriting_run(rows, tenant, run)).await
            }

            async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
                self.readers.read(|rows| reading::run_by_key(rows, tenant, key)).await
            }

            async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
                self.readers.read(|rows| reading::answered(rows, tenant, key)).await
            }

            async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
                self.readers.read(|rows| rows.open_requests(tenant, hash)).await
            }

            async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
                self.readers.read(|rows| verbs::conversation(rows, tenant, id)).await
            }

            async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
                self.readers.read(|rows| verbs::conversation_parts(rows, tenant, id)).await
            }

            async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
                self.readers.read(|rows| reading::streamed_text(rows, tenant, run)).await
            }

            async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
                self.readers.read(|rows| reading::run_from(rows, agent, ordinal)).await
            }

            async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
                self.readers.read(|rows| listing::scan_runs(rows, tenant, scan)).await
            }

            async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
                self.readers.read(|rows| rows.agent_names(tenant, after, limit)).await
            }

            async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
                self.readers.read(|rows| rows.instruction(tenant, id)).await
            }

            async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
                self.readers.read(|rows| reading::journal(rows, tenant, run, from, limit)).await
            }

            async fn journal_records(
                &self,
                tenant: &Tenant,
                run: RunId,
                so_far: Option<Run>,
                limit: usize,
            ) -> Result<Vec<JournalRecord>, StoreError> {
                self.readers.read(|rows| reading::journal_records(rows, tenant, run, so_far.clone(), limit)).await
            }

            async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
                self.readers.read(|rows| reading::calls(rows, tenant, run, from, limit)).await
            }

            async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
                self.readers.read(|rows| rows.interrupts(tenant, scan)).await
            }

            async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
                self.readers.read(|rows| rows.interrupt(tenant, id)).await
            }

            async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
                self.readers.read(|rows| reading::item(rows, tenant, item)).await
            }

            async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
                self.readers.read(|rows| reading::open_box(rows, tenant, id)).await
            }

            async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
                self.readers.read(|rows| reading::box_items(rows, tenant, id, from, limit)).await
            }

            async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
                self.readers.read_deep(Depth::Chain, |rows| verbs::range_size(rows, tenant, range)).await
            }

            async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
                range_items(&self.readers, tenant, range).await
            }

            async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError> {
                self.readers.read(|rows| reading::inbox(rows, agent, page)).await
            }

            async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
                self.readers.read(|rows| edges::edges(rows, agent, page)).await
            }

            async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
                self.readers.ask(|session| async move { usage::tenants(&session).await }).await
            }

            async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
                self.readers.read(|rows| rows.open_runs(tenant)).await
            }

            async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
                self.readers.ask(|session| async move { usage::usage(&session, tenant, query).await }).await
            }

            async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
                self.readers.ask(|session| async move { usage::item_bytes(&session, scan).await }).await
            }

            async fn totals(&self) -> Result<StoreTotals, StoreError> {
                self.readers.totals().await
            }
        }
    };
}

views_over_readers!(PostgresStore);
views_over_readers!(PostgresViews);

async fn range_items(readers: &Readers, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>> {
    let segments = readers.read_deep(Depth::Chain, |rows| verbs::chain(rows, tenant, range)).await?.unwrap_or_default();
    let mut items = Vec::new();
    for some in segments.chunks(BOXES_AT_ONCE) {
        for found in join_all(some.iter().map(|segment| segment_items(readers, *segment))).await {
            items.extend(found?);
        }
    }
    Ok(items)
}

/// Boxes only grow at the end, so that pages which are read one after the other fit together.
async fn segment_items(readers: &Readers, segment: Segment) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut from = segment.from;
    while from < segment.below {
        let page = readers.read(|rows| rows.box_items(segment.id, from, segment.below, PAGE)).await?;
        let Some((last, _)) = page.last() else { break };
        from = last + 1;
        for (_, row) in page {
            items.push(reading::verified(row)?);
        }
    }
    Ok(items)
}
