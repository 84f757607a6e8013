//! The whole suite over two servers: the requests of a case go to the two servers in turn. So no case may depend on the memory of one
//! server, and races are between servers, not inside the writer of one.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, StreamedText, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, AgentSummary, BoxView, CallClaim, CallView, ClaimedCall, Commit, Committed, ContextSize,
    ConversationChange, ConversationView, Conversed, Day, DeltaBatch, Edge, GivenUp, Guard, HeadView, InboxView, InterruptId,
    InterruptScan, InterruptView, Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, LostRequest, MessageId, NewPack,
    NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed, Page, Part, ReaderRecord, RequestHash, RunPage, RunScan, RunUsage, RunView,
    StoreTotals, TenantCursor, TenantErasure, UsageGroup, UsageQuery, UsageRow, Views, Withdrawn,
};

use super::*;

struct Dealt {
    servers: [PostgresStore; 2],
    asked: AtomicUsize,
}

impl Dealt {
    fn next(&self) -> &PostgresStore {
        &self.servers[self.asked.fetch_add(1, Ordering::Relaxed) % self.servers.len()]
    }
}

macro_rules! deal {
    ($port:ident { $($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty;)+ } $($more:tt)*) => {
        #[async_trait]
        impl $port for Dealt {
            $($more)*
            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer, StoreError> {
                    self.next().$verb($($name),*).await
                }
            )+
        }
    };
}

deal! { Store {
    enqueue(run: NewRun) -> Enqueued;
    load(agent: &AgentKey) -> Option<Loaded>;
    commit(guard: Guard, commit: Commit) -> Committed;
    withdraw(agent: AgentKey, commit: Commit) -> Withdrawn;
    report(report: NewReport) -> Taken;
    due(now: Timestamp, limit: usize) -> Vec<AgentKey>;
    beat(node: NodeId, lease_ms: u64) -> Vec<NodeId>;
    bury(nodes: Vec<NodeId>) -> ();
    orphans(node: NodeId, after: Option<AgentKey>, limit: usize) -> Vec<AgentKey>;
    claim_calls(claim: CallClaim) -> Vec<ClaimedCall>;
    renew_calls(claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Vec<(RunId, CallNumber)>;
    release_calls(claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Vec<(RunId, CallNumber)>;
    pack(pack: NewPack) -> Packed;
    quarantine(agent: AgentKey, run: RunId, reason: String) -> ();
    abandon(agent: AgentKey, given_up: GivenUp) -> Abandoned;
    erase(tenant: Tenant, run: RunId) -> ();
    erasable(now: Timestamp, limit: usize) -> Vec<(Tenant, RunId)>;
    aged(scan: &AgedScan) -> AgedPage;
    erase_tenant(tenant: Tenant, from: TenantCursor, limit: usize) -> TenantErasure;
    converse(tenant: Tenant, id: ConversationId, change: ConversationChange, now: Timestamp) -> Conversed;
    refuse(agent: AgentKey, message: MessageId, reason: String) -> ();
    lost_requests(node: NodeId, limit: usize) -> Vec<LostRequest>;
    adopt_request(request: OpenRequest, node: NodeId) -> bool;
    uncounted_usage(limit: usize) -> Vec<RunUsage>;
    add_usage(runs: Vec<RunId>, rows: Vec<UsageRow>) -> bool;
    forget_usage(before: Day) -> ();
}
    // Only the owner of a run stores its deltas, in their order.
    async fn append_deltas(&self, delta_batch: DeltaBatch) -> Result<(), StoreError> {
        let owner = usize::from(delta_batch.run.as_bytes()[15]) % self.servers.len();
        self.servers[owner].append_deltas(delta_batch).await
    }

    // A server keeps its records until its own next commit, and a case can't know which of the two makes the next one.
    fn record_reader(&self, record: ReaderRecord) {
        self.servers.iter().for_each(|server| server.record_reader(record.clone()));
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        for server in &self.servers {
            server.flush_readers().await?;
        }
        Ok(())
    }

    // One server publishes for all.
    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.servers[0].outbox(limit).await
    }

    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError> {
        self.servers[0].published(rows).await
    }
}

deal! { Views {
    head(agent: &AgentKey) -> Option<HeadView>;
    open_requests(tenant: &Tenant, hash: RequestHash) -> Vec<OpenRequest>;
    run(tenant: &Tenant, run: RunId) -> Option<RunView>;
    agent_of(tenant: &Tenant, run: RunId) -> Option<AgentKey>;
    inheriting_run(tenant: &Tenant, run: RunId) -> Option<RunId>;
    run_by_key(tenant: &Tenant, key: &str) -> Option<RunId>;
    answered(tenant: &Tenant, key: &str) -> Option<KeptAnswer>;
    conversation(tenant: &Tenant, id: ConversationId) -> Option<ConversationView>;
    conversation_parts(tenant: &Tenant, id: ConversationId) -> Vec<Part>;
    streamed_text(tenant: &Tenant, run: RunId) -> StreamedText;
    run_from(agent: &AgentKey, ordinal: u64) -> Option<RunView>;
    journal(tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Vec<JournalEntry>;
    journal_records(tenant: &Tenant, run: RunId, so_far: Option<Run>, limit: usize) -> Vec<JournalRecord>;
    calls(tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Vec<CallView>;
    interrupts(tenant: &Tenant, scan: &InterruptScan) -> Vec<InterruptView>;
    interrupt(tenant: &Tenant, id: InterruptId) -> Option<InterruptView>;
    item(tenant: &Tenant, item: ItemId) -> Option<Item>;
    open_box(tenant: &Tenant, id: BoxId) -> Option<BoxView>;
    box_items(tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Vec<Item>;
    range_items(tenant: &Tenant, range: BoxRange) -> Vec<Item>;
    range_size(tenant: &Tenant, range: BoxRange) -> ContextSize;
    inbox(agent: &AgentKey, page: Page) -> Vec<InboxView>;
    edges(agent: &AgentKey, page: Page) -> Vec<Edge>;
    scan_runs(tenant: &Tenant, scan: &RunScan) -> RunPage;
    agent_names(tenant: &Tenant, after: &str, limit: usize) -> Vec<AgentSummary>;
    instruction(tenant: &Tenant, id: BoxId) -> Option<Bytes>;
    tenants() -> Vec<Tenant>;
    open_runs(tenant: &Tenant) -> u32;
    usage(tenant: &Tenant, query: &UsageQuery) -> Vec<UsageGroup>;
    item_bytes(scan: &ItemScan) -> ItemBytes;
    totals() -> StoreTotals;
} }

async fn make(options: StoreOptions) -> Subject {
    let database = Server::shared().database().await;
    let (one, two) = (opened(&database, options).await, opened(&database, options).await);
    Subject::new(Dealt { servers: [one, two], asked: AtomicUsize::new(0) }, database)
}

windlass_store::conformance!(make);
