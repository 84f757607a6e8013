//! Reads of both tiers.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, RunId, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, HeadView, InboxView, InterruptId, InterruptScan, InterruptView,
    Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, OpenRequest, Page, Part, RequestHash, RunPage, RunScan, RunSet,
    RunView, StoreError, StoreTotals, UsageGroup, UsageQuery, Views,
};

use super::TieredStore;
use crate::rows::Result;

impl TieredStore {
    fn views_of_agent(&self, agent: &AgentKey) -> Result<&dyn Views> {
        Ok(self.pick(self.has(agent)?))
    }

    fn views_of_run(&self, run: RunId) -> Result<&dyn Views> {
        Ok(self.pick(self.memory.has_run(run)?))
    }

    fn views_of_box(&self, id: BoxId) -> Result<&dyn Views> {
        Ok(self.pick(self.memory.has_box(id)?))
    }

    fn pick(&self, is_here: bool) -> &dyn Views {
        if is_here { &self.memory } else { &*self.views }
    }
}

#[async_trait]
impl Views for TieredStore {
    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError> {
        self.views_of_agent(agent)?.head(agent).await
    }

    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError> {
        self.views_of_run(run)?.run(tenant, run).await
    }

    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError> {
        self.views_of_run(run)?.agent_of(tenant, run).await
    }

    async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError> {
        match self.memory.taker(tenant, run)? {
            Some(taker) => Ok(Some(taker)),
            None => self.views.inheriting_run(tenant, run).await,
        }
    }

    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError> {
        match self.memory.run_by_key(tenant, key).await? {
            Some(run) => Ok(Some(run)),
            None => self.views.run_by_key(tenant, key).await,
        }
    }

    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError> {
        let (here, there) = (self.memory.answered(tenant, key).await?, self.views.answered(tenant, key).await?);
        // One request may have given back calls of both tiers, and each tier has recorded its own.
        Ok(match (here, there) {
            (Some(here), Some(mut there)) if here.asked == there.asked => {
                there.lost.extend(here.lost);
                Some(there)
            }
            (here, there) => there.or(here),
        })
    }

    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError> {
        let mut found = self.memory.open_requests(tenant, hash).await?;
        found.extend(self.views.open_requests(tenant, hash).await?);
        found.sort_by_key(|request| request.run);
        Ok(found)
    }

    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError> {
        self.views.conversation(tenant, id).await
    }

    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError> {
        self.views.conversation_parts(tenant, id).await
    }

    async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError> {
        self.views_of_run(run)?.streamed_text(tenant, run).await
    }

    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError> {
        self.views_of_agent(agent)?.run_from(agent, ordinal).await
    }

    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError> {
        // Runs in memory are not stored, so no list shows them. Their parent leads to them all the same.
        match &scan.set {
            RunSet::Children(parent) => self.views_of_run(*parent)?.scan_runs(tenant, scan).await,
            RunSet::All | RunSet::Open | RunSet::Named(_) => self.views.scan_runs(tenant, scan).await,
        }
    }

    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError> {
        self.views.agent_names(tenant, after, limit).await
    }

    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError> {
        self.views_of_box(id)?.instruction(tenant, id).await
    }

    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.views_of_run(run)?.journal(tenant, run, from, limit).await
    }

    async fn journal_records(
        &self,
        tenant: &Tenant,
        run: RunId,
        so_far: Option<Run>,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.views_of_run(run)?.journal_records(tenant, run, so_far, limit).await
    }

    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError> {
        self.views_of_run(run)?.calls(tenant, run, from, limit).await
    }

    async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError> {
        // Runs in memory are in no list of runs, but a person has to know what they wait for.
        let mut listed = self.memory.interrupts(tenant, scan).await?;
        listed.extend(self.views.interrupts(tenant, scan).await?);
        listed.sort_by_key(|row| (row.created_at, row.id()));
        listed.truncate(scan.limit);
        Ok(listed)
    }

    async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError> {
        self.views_of_run(id.run)?.interrupt(tenant, id).await
    }

    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError> {
        match self.memory.item(tenant, item).await? {
            Some(found) => Ok(Some(found)),
            None => self.views.item(tenant, item).await,
        }
    }

    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError> {
        self.views_of_box(id)?.open_box(tenant, id).await
    }

    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
        self.views_of_box(id)?.box_items(tenant, id, from, limit).await
    }

    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError> {
        self.views_of_box(range.id)?.range_size(tenant, range).await
    }

    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError> {
        self.views_of_box(range.id)?.range_items(tenant, range).await
    }

    async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError> {
        self.views_of_agent(agent)?.inbox(agent, page).await
    }

    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError> {
        self.views_of_agent(agent)?.edges(agent, page).await
    }

    /// Runs in memory do not count: the tenants are those of the database.
    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.views.tenants().await
    }

    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError> {
        Ok(self.views.open_runs(tenant).await?.saturating_add(Views::open_runs(&self.memory, tenant).await?))
    }

    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        // The usage of runs in memory is summed in the database, too.
        self.views.usage(tenant, query).await
    }

    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError> {
        // The content in memory has a limit of its own, and is not counted here.
        self.views.item_bytes(scan).await
    }

    async fn totals(&self) -> Result<StoreTotals, StoreError> {
        let (here, mut totals) = (self.memory.totals().await?, self.views.totals().await?);
        totals.add_interrupts(here);
        Ok(totals)
    }
}
