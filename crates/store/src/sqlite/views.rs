//! The reads, for the server's own store and for other processes.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, HeadView, InboxView, InterruptId, InterruptScan, InterruptView,
    Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, NodeId, OpenRequest, Page, Part, RequestHash, RunPage, RunScan,
    RunView, StoreError, StoreTotals, UsageGroup, UsageQuery, Views,
};

use super::{
    OpenError, SqliteStore, open,
    readers::Readers,
    statements::{Manifests, SqliteRows},
};
use crate::{
    edges, listing, reading,
    rows::{InterruptReads, ListReads, Reads, RequestReads},
    verbs,
};

/// The most rows that are read in one transaction.
const PAGE: usize = 256;

/// A database that is only read. The server that has it open is not disturbed.
pub struct SqliteViews {
    readers: Readers,
}

impl SqliteViews {
    /// Opens an existing database for reading.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let rows = SqliteRows::new(open::reader(path.as_ref())?, NodeId(0), Manifests::default(), None);
        Ok(SqliteViews { readers: Readers::new(vec![rows]) })
    }
}

/// Both types read in the same way, but the compiler does not accept one implementation for two types.
macro_rules! views_over_readers {
    ($store:ty) => {
        #[async_trait]
        impl Views for $store {
            async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
                let agent = agent.clone();
                self.readers.read(move |rows| reading::head(rows, &agent)).await
            }

            async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::run(rows, &tenant, run)).await
            }

            async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::agent_of(rows, &tenant, run)).await
            }

            async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::inheriting_run(rows, &tenant, run)).await
            }

            async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
                let (tenant, key) = (tenant.clone(), key.to_owned());
                self.readers.read(move |rows| reading::run_by_key(rows, &tenant, &key)).await
            }

            async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
                let (tenant, key) = (tenant.clone(), key.to_owned());
                self.readers.read(move |rows| reading::answered(rows, &tenant, &key)).await
            }

            async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| rows.open_requests(&tenant, hash)).await
            }

            async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| verbs::conversation(rows, &tenant, id)).await
            }

            async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| verbs::conversation_parts(rows, &tenant, id)).await
            }

            async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::streamed_text(rows, &tenant, run)).await
            }

            async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
                let agent = agent.clone();
                self.readers.read(move |rows| reading::run_from(rows, &agent, ordinal)).await
            }

            async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
                let (tenant, scan) = (tenant.clone(), scan.clone());
                self.readers.read(move |rows| listing::scan_runs(rows, &tenant, &scan)).await
            }

            async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
                let (tenant, after) = (tenant.clone(), after.to_owned());
                self.readers.read(move |rows| rows.agent_names(&tenant, &after, limit)).await
            }

            async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| rows.instruction(&tenant, id)).await
            }

            async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::journal(rows, &tenant, run, from, limit)).await
            }

            async fn journal_records(
                &self,
                tenant: &Tenant,
                run: RunId,
                so_far: Option<Run>,
                limit: usize,
            ) -> Result<Vec<JournalRecord>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::journal_records(rows, &tenant, run, so_far, limit)).await
            }

            async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::calls(rows, &tenant, run, from, limit)).await
            }

            async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
                let (tenant, scan) = (tenant.clone(), scan.clone());
                self.readers.read(move |rows| rows.interrupts(&tenant, &scan)).await
            }

            async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| rows.interrupt(&tenant, id)).await
            }

            async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::item(rows, &tenant, item)).await
            }

            async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::open_box(rows, &tenant, id)).await
            }

            async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| reading::box_items(rows, &tenant, id, from, limit)).await
            }

            async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| verbs::range_size(rows, &tenant, range)).await
            }

            async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
                let whose = tenant.clone();
                let segments = self.readers.read(move |rows| verbs::chain(rows, &whose, range)).await?.unwrap_or_default();
                let mut items = Vec::new();
                for segment in segments {
                    let mut from = segment.from;
                    // Boxes only grow at the end, so that pages which are read one after the other fit together.
                    while from < segment.below {
                        let page = self.readers.read(move |rows| rows.box_items(segment.id, from, segment.below, PAGE)).await?;
                        let Some((last, _)) = page.last() else { break };
                        from = last + 1;
                        for (_, row) in page {
                            items.push(reading::verified(row)?);
                        }
                    }
                }
                Ok(items)
            }

            async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError> {
                let agent = agent.clone();
                self.readers.read(move |rows| reading::inbox(rows, &agent, page)).await
            }

            async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
                let agent = agent.clone();
                self.readers.read(move |rows| edges::edges(rows, &agent, page)).await
            }

            async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
                self.readers.read(SqliteRows::tenants).await
            }

            async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
                let tenant = tenant.clone();
                self.readers.read(move |rows| rows.open_runs(&tenant)).await
            }

            async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
                let (tenant, query) = (tenant.clone(), query.clone());
                self.readers.read(move |rows| rows.usage(&tenant, &query)).await
            }

            async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
                let scan = scan.clone();
                self.readers.read(move |rows| rows.item_bytes(&scan)).await
            }

            async fn totals(&self) -> Result<StoreTotals, StoreError> {
                self.readers.read(SqliteRows::totals).await
            }
        }
    };
}

views_over_readers!(SqliteStore);
views_over_readers!(SqliteViews);
