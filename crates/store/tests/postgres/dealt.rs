//! The whole suite over two servers: the requests of a case go to the two servers in turn. So no case may depend on the memory of one
//! server, and races are between servers, not inside the writer of one.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{BoxId, BoxRange, CallNumber, ConversationId, ItemId, Run, StreamedText, Tenant};
use windlass_ports::{
    AgentSummary, BoxView, CallView, ContextSize, ConversationView, Edge, Found, HeadView, InboxView, InterruptId, InterruptScan,
    InterruptView, Item, ItemBytes, ItemScan, JournalEntry, JournalRecord, KeptAnswer, OpenRequest, Page, Part, Query, ReaderRecord,
    RequestHash, RunPage, RunScan, RunView, StoreTotals, UsageGroup, UsageQuery, Verb, Views, Written,
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

#[async_trait]
impl Store for Dealt {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other verb may be sent to any server")]
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        let server = match &verb {
            // Only the owner of a run stores its deltas, in their order.
            Verb::AppendDeltas(batch) => &self.servers[usize::from(batch.run.as_bytes()[15]) % self.servers.len()],
            Verb::FlushReaders() => {
                for server in &self.servers {
                    server.flush_readers().await?;
                }
                return Ok(Written::FlushReaders(()));
            }
            // One server publishes for all.
            Verb::Published(_) => &self.servers[0],
            _ => self.next(),
        };
        server.write(verb).await
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        let server = if matches!(query, Query::Outbox(_)) { &self.servers[0] } else { self.next() };
        server.read(query).await
    }

    // A server keeps its records until its own next commit, and a case can't know which of the two makes the next one.
    fn record_reader(&self, record: ReaderRecord) {
        self.servers.iter().for_each(|server| server.record_reader(record.clone()));
    }
}

/// A port whose reads go to the servers in turn.
macro_rules! deal {
    ($port:ident { $($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty;)+ }) => {
        #[async_trait]
        impl $port for Dealt {
            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer, StoreError> {
                    self.next().$verb($($name),*).await
                }
            )+
        }
    };
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
