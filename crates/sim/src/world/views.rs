//! The reads of a process: they see what is flushed, and nothing else.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, HeadView, InboxView, InterruptId, InterruptScan, InterruptView,
    Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, OpenRequest, Page, Part, RequestHash, RunPage, RunScan, RunView,
    StoreError, UsageGroup, UsageQuery, Views,
};

use super::store::SimStore;

#[async_trait]
impl Views for SimStore {
    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.ask(self.data().tenants()).await
    }

    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
        self.ask(self.data().open_runs(tenant)).await
    }

    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        self.ask(self.data().usage(tenant, query)).await
    }

    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
        self.ask(self.data().item_bytes(scan)).await
    }

    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
        self.ask(self.data().head(agent)).await
    }

    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.ask(self.data().run(tenant, run)).await
    }

    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
        self.ask(self.data().agent_of(tenant, run)).await
    }

    async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
        self.ask(self.data().inheriting_run(tenant, run)).await
    }

    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
        self.ask(self.data().run_by_key(tenant, key)).await
    }

    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
        self.ask(self.data().answered(tenant, key)).await
    }

    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
        self.ask(self.data().open_requests(tenant, hash)).await
    }

    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
        self.ask(self.data().conversation(tenant, id)).await
    }

    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
        self.ask(self.data().conversation_parts(tenant, id)).await
    }

    async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
        self.ask(self.data().streamed_text(tenant, run)).await
    }

    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
        self.ask(self.data().run_from(agent, ordinal)).await
    }

    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
        self.ask(self.data().scan_runs(tenant, scan)).await
    }

    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
        self.ask(self.data().agent_names(tenant, after, limit)).await
    }

    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.data().instruction(tenant, id)).await
    }

    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.ask(self.data().journal(tenant, run, from, limit)).await
    }

    async fn journal_records(
        &self,
        tenant: &Tenant,
        run: RunId,
        so_far: Option<Run>,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.ask(self.data().journal_records(tenant, run, so_far, limit)).await
    }

    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
        self.ask(self.data().calls(tenant, run, from, limit)).await
    }

    async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
        self.ask(self.data().interrupts(tenant, scan)).await
    }

    async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
        self.ask(self.data().interrupt(tenant, id)).await
    }

    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
        self.ask(self.data().item(tenant, item)).await
    }

    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
        self.ask(self.data().open_box(tenant, id)).await
    }

    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
        self.ask(self.data().box_items(tenant, id, from, limit)).await
    }

    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
        self.ask(self.data().range_size(tenant, range)).await
    }

    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
        self.ask(self.data().range_items(tenant, range)).await
    }

    async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError> {
        self.ask(self.data().inbox(agent, page)).await
    }

    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
        self.ask(self.data().edges(agent, page)).await
    }
}
