//! Reads for people, doors and the command line. Nobody mutates anything through these.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, BoxId, BoxRange, CallNumber, ConversationId, EffectClass, Epoch, Event, HeadStatus, ItemId,
    ItemKind, Manifest, Route, Run, RunId, StreamedText, TaskStatus, Tenant, Timestamp, ToolName,
};

use crate::{
    boxes::ContextSize,
    conversations::{ConversationView, Part},
    lists::{AgentSummary, RunPage, RunScan},
    open_requests::{OpenRequest, RequestHash},
    request::Lineage,
    store::{KeptAnswer, MessageId, StoreError},
    usage::{ItemBytes, ItemScan, UsageGroup, UsageQuery},
    words::{CallStatus, MessageKind, MessageStatus, spelled},
};

/// What can be read. A foreign id looks like an unknown one: the tenant is part of every question.
#[async_trait]
pub trait Views: Send + Sync {
    /// An agent's head.
    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError>;
    /// A run.
    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError>;
    /// Whose a run is, also of one that cannot be read.
    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError>;
    /// The run that took over another's calls.
    async fn run_taking(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError>;
    /// The run that has a dedupe key.
    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError>;
    /// What the request was told that has a key.
    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError>;
    /// The open requests that have a hash, those of the oldest runs first.
    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError>;
    /// A conversation.
    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError>;
    /// What a conversation is made of, oldest first.
    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError>;
    /// The words of a run that were announced and stand in no item yet.
    async fn announced(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError>;
    /// The agent's run of the lowest ordinal that is at least this one.
    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError>;
    /// One page of a tenant's runs, newest first. Runs that are not stored for their client, and runs whose content was erased, are
    /// not on it.
    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError>;
    /// The names of agents that have listed runs, in order, after a name.
    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError>;
    /// The first bytes of the newest instruction among a box's last items: enough to tell runs apart in a list.
    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError>;
    /// A run's journal from a number on.
    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError>;
    /// What happened since a reader knew the run so far, with the content that goes with it, in so many entries at the most.
    async fn passages(&self, tenant: &Tenant, run: RunId, so_far: Option<Run>, limit: usize) -> Result<Vec<Passage>, StoreError>;
    /// A run's calls from a number on.
    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError>;
    /// One item.
    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError>;
    /// A box.
    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError>;
    /// A page of a box's own items.
    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError>;
    /// Everything a range stands for, parents first. `range_size` says beforehand how much that is.
    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError>;
    /// How much a range stands for, parents included. No content is read for it.
    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError>;
    /// An agent's inbox after a row.
    async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError>;
    /// An agent's execution edges after an inbox row.
    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError>;
    /// The tenants that ever had a run.
    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError>;
    /// How many runs of a tenant have not ended.
    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError>;
    /// A tenant's sums, in the order of their groups.
    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError>;
    /// The bytes of content in a stretch of items, by tenant.
    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError>;
    /// Numbers about all tenants together, for metrics. A store that does not count has none.
    async fn totals(&self) -> Result<StoreTotals, StoreError> {
        Ok(StoreTotals::default())
    }
}

/// How much is in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Calls without a result that services run, by tool.
    pub open_calls: Vec<(ToolName, u64)>,
    /// Outbox rows that are not published; not counted beyond 100,000.
    pub outbox: u64,
    /// Bytes of the database.
    pub bytes: u64,
}

/// A stretch of rows.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// After this number.
    pub after: u64,
    /// So many at the most.
    pub limit: usize,
}

/// An agent's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// Its status.
    pub status: HeadStatus,
    /// The fence.
    pub epoch: Epoch,
    /// The active run.
    pub run: Option<RunId>,
    /// Results awaited.
    pub waiting: u32,
    /// When the wait is given up.
    pub deadline: Option<Timestamp>,
    /// Runs that wait their turn.
    pub queued: u32,
    /// Messages that wait for the owner.
    pub pending: u32,
    /// Runs it ever had.
    pub runs: u64,
    /// Why the agent was taken out of the way, if it was.
    pub quarantined: Option<String>,
}

spelled! {
    /// Where a run is, as lists show it.
    RunStatus {
        /// It waits its turn.
        Queued = "queued",
        /// Its agent is leased to it.
        Active = "active",
        /// It is over.
        Ended = "ended",
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunView {
    /// Its id.
    pub id: RunId,
    /// The head it runs under.
    pub agent: AgentKey,
    /// The name of the agent whose settings it has, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// Its turn's inbox row.
    pub message: MessageId,
    /// Its place among the agent's runs, from 1.
    pub ordinal: u64,
    /// Where it is.
    pub status: RunStatus,
    /// Its fence, once it has one.
    pub epoch: Option<Epoch>,
    /// Its state.
    pub state: Run,
    /// What it may do.
    pub manifest: Manifest,
    /// What its door wanted to know again.
    pub note: Option<Bytes>,
    /// Its one result.
    pub deliverable: Option<ItemId>,
    /// Where it comes from.
    pub lineage: Lineage,
    /// Whether a turn or an action began it.
    pub kind: MessageKind,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether it is not to be stored: only the client that started it reads it, until it is erased.
    pub unlisted: bool,
}

impl RunView {
    /// What clients call the run's agent: its name, or the head's key if the run has no named agent.
    pub fn agent_id(&self) -> &AgentName {
        self.agent_name.as_ref().unwrap_or(&self.agent.agent)
    }
}

/// One event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number, from 0.
    pub number: u64,
    /// The fence it was written under; none while the run was queued.
    pub epoch: Option<Epoch>,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// One event with the content that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The event.
    pub entry: JournalEntry,
    /// The items it appended to the output box.
    pub appended: Vec<Item>,
    /// The result that it reports.
    pub result: Option<Item>,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// Its number.
    pub call: CallNumber,
    /// The lap.
    pub iteration: u32,
    /// What is called.
    pub tool: ToolName,
    /// Who runs it.
    pub route: Route,
    /// What a second start would do.
    pub effect: EffectClass,
    /// How far it is.
    pub status: CallStatus,
    /// When its result is given up.
    pub deadline: Timestamp,
    /// Its content.
    pub item: ItemId,
    /// Its result.
    pub result: Option<ItemId>,
    /// Who holds it.
    pub worker: Option<String>,
    /// Until when.
    pub lease_until: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// How often it was started by a server or claimed by a worker.
    pub attempt: u32,
}

/// An immutable piece of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// What it is.
    pub kind: ItemKind,
    /// The bytes, as they came.
    pub content: Bytes,
}

/// A box, without its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxView {
    /// How many items of its own.
    pub length: u32,
    /// What stands before them.
    pub parent: Option<BoxRange>,
}

/// An inbox row: pointers, no content.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxView {
    /// Its number.
    pub id: MessageId,
    /// What it is.
    pub kind: MessageKind,
    /// How far it is.
    pub status: MessageStatus,
    /// For which run.
    pub run: Option<RunId>,
    /// Under which fence it was taken.
    pub epoch: Option<Epoch>,
    /// About which call.
    pub call: Option<CallNumber>,
    /// Its content.
    pub item: Option<ItemId>,
    /// What it says of the outcome.
    pub outcome: Option<TaskStatus>,
    /// What it wants to follow.
    pub after: Option<AfterExecution>,
    /// Who sent it.
    pub source: Option<String>,
    /// A word about why.
    pub reason: Option<String>,
    /// When it came.
    pub created_at: Timestamp,
    /// When it was taken.
    pub processed_at: Option<Timestamp>,
}

/// One edge of the execution graph: who asked whom for what. Derived from the inbox, so that none can be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The inbox row it is derived from; a call has none.
    pub message: Option<MessageId>,
    /// `enqueue`, `tool_call`, `report`, `stop`, `answer`.
    pub primitive: &'static str,
    /// `request` or `response`.
    pub phase: &'static str,
    /// The run.
    pub run: Option<RunId>,
    /// What the two ends are matched by: the call, or the inbox row.
    pub call: Option<CallNumber>,
    /// The trace.
    pub trace: [u8; 16],
    /// The step that asked.
    pub parent_step: Option<String>,
    /// How deep the run is.
    pub depth: u32,
    /// When.
    pub at: Timestamp,
}
