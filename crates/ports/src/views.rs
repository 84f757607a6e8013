//! The read operations of a store, for doors, tools of operators and tests. None of them changes anything.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, BoxId, BoxRange, CallNumber, Cause, ConversationId, EffectClass, Epoch, Event, HeadStatus, ItemId,
    ItemKind, Manifest, NewItem, Route, Run, RunId, StreamedText, TaskStatus, Tenant, Timestamp, ToolName, header::ItemHeader,
};

use crate::{
    boxes::ContextSize,
    conversations::{ConversationView, Part},
    interrupts::{InterruptId, InterruptScan, InterruptView},
    lists::{AgentSummary, RunPage, RunScan},
    names::{CallStatus, MessageKind, MessageStatus, spelled},
    open_requests::{OpenRequest, RequestHash},
    request::Lineage,
    store::{KeptAnswer, MessageId},
    store_error::StoreError,
    usage::{ItemBytes, ItemScan, UsageGroup, UsageQuery},
};

/// The reads of a store. The tenant is part of every question, so that another tenant's id looks like an unknown one.
#[async_trait]
pub trait Views: Send + Sync {
    /// The head of an agent.
    async fn head(&self, agent: &AgentKey) -> Result<Option<HeadView>, StoreError>;
    /// A run with its state and manifest.
    async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunView>, StoreError>;
    /// The head of a run. It also answers for a run whose other rows can't be read.
    async fn agent_of(&self, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>, StoreError>;
    /// The run that inherited the calls of this one.
    async fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunId>, StoreError>;
    /// The run that was accepted under a dedupe key.
    async fn run_by_key(&self, tenant: &Tenant, key: &str) -> Result<Option<RunId>, StoreError>;
    /// The recorded answer to a request with this idempotency key.
    async fn answered(&self, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>, StoreError>;
    /// The open requests with this hash, those of the oldest runs first.
    async fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>, StoreError>;
    /// A conversation.
    async fn conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>, StoreError>;
    /// The parts of a conversation, oldest first.
    async fn conversation_parts(&self, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>, StoreError>;
    /// The streamed text of a run that is in no item yet.
    async fn streamed_text(&self, tenant: &Tenant, run: RunId) -> Result<StreamedText, StoreError>;
    /// The agent's run with the lowest ordinal that is at least this one.
    async fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>, StoreError>;
    /// One page of a tenant's runs, newest first. Runs that are not stored for their client, and runs whose content was erased, are left
    /// out.
    async fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<RunPage, StoreError>;
    /// The agents with listed runs, in the order of their names, after the name `after`.
    async fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>, StoreError>;
    /// The first bytes of the newest instruction among a box's last items. Lists show it so that people can distinguish runs.
    async fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>, StoreError>;
    /// A run's journal from event number `from` on.
    async fn journal(&self, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError>;
    /// The events that came after the state `so_far`, with the content that belongs to them, at most `limit`.
    async fn journal_records(
        &self,
        tenant: &Tenant,
        run: RunId,
        so_far: Option<Run>,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, StoreError>;
    /// A run's calls from number `from` on.
    async fn calls(&self, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>, StoreError>;
    /// Interrupts of a tenant, the oldest first.
    async fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, StoreError>;
    /// An interrupt, open or closed.
    async fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>, StoreError>;
    /// An item with its content.
    async fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<Item>, StoreError>;
    /// A box without its items.
    async fn open_box(&self, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>, StoreError>;
    /// A page of the items that a box has besides its parent.
    async fn box_items(&self, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError>;
    /// All items of a range, those of the parents first. `range_size` gives the amount of content in advance.
    async fn range_items(&self, tenant: &Tenant, range: BoxRange) -> Result<Vec<Item>, StoreError>;
    /// The amount of content in a range, parents included. It reads no content.
    async fn range_size(&self, tenant: &Tenant, range: BoxRange) -> Result<ContextSize, StoreError>;
    /// A page of an agent's inbox.
    async fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>, StoreError>;
    /// A page of the edges of an agent's execution graph.
    async fn edges(&self, agent: &AgentKey, page: Page) -> Result<Vec<Edge>, StoreError>;
    /// All tenants that ever had a run.
    async fn tenants(&self) -> Result<Vec<Tenant>, StoreError>;
    /// The number of runs of a tenant that have not ended.
    async fn open_runs(&self, tenant: &Tenant) -> Result<u32, StoreError>;
    /// A tenant's sums of usage, in the order of their groups.
    async fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError>;
    /// The bytes of content in a range of items, by tenant.
    async fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes, StoreError>;
    /// Numbers about all tenants together, for metrics. The default for a store that does not count.
    async fn totals(&self) -> Result<StoreTotals, StoreError> {
        Ok(StoreTotals::default())
    }
}

/// The amounts of rows and bytes in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Calls of tool services that have no result yet, by tool.
    pub open_calls: Vec<(ToolName, u64)>,
    /// Outbox rows that are not published. The count stops at 100,000.
    pub outbox: u64,
    /// Open interrupts, by cause. A cause without one is left out.
    pub open_interrupts: Vec<(Cause, u64)>,
    /// When the oldest open interrupt was opened.
    pub oldest_interrupt: Option<Timestamp>,
    /// Bytes of the database.
    pub bytes: u64,
}

impl StoreTotals {
    /// Adds the interrupts of another store.
    pub fn add_interrupts(&mut self, other: StoreTotals) {
        for (cause, count) in other.open_interrupts {
            match self.open_interrupts.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, sum)) => *sum += count,
                None => self.open_interrupts.push((cause, count)),
            }
        }
        self.oldest_interrupt = self.oldest_interrupt.into_iter().chain(other.oldest_interrupt).min();
    }
}

/// A page of numbered rows.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only rows with a higher number.
    pub after: u64,
    /// The number of rows that are read at most.
    pub limit: usize,
}

/// The head of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// The status.
    pub status: HeadStatus,
    /// The epoch.
    pub epoch: Epoch,
    /// The active run.
    pub run: Option<RunId>,
    /// The number of results that the active run waits for.
    pub waiting: u32,
    /// The end of the wait.
    pub deadline: Option<Timestamp>,
    /// The number of queued runs.
    pub queued: u32,
    /// The number of messages that wait for the owner.
    pub pending: u32,
    /// The number of runs that the agent ever had.
    pub runs: u64,
    /// Why the agent is quarantined, if it is.
    pub quarantined: Option<String>,
}

spelled! {
    /// The status of a run on a list.
    RunStatus {
        /// It waits for earlier runs of its agent.
        Queued = "queued",
        /// Its agent is leased to it.
        Active = "active",
        /// It has ended.
        Ended = "ended",
    }
}

/// A stored run.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The id of the run.
    pub id: RunId,
    /// The head that the run belongs to.
    pub agent: AgentKey,
    /// The name of the run's agent, if the run has a named one.
    pub agent_name: Option<AgentName>,
    /// The inbox row of the run's request.
    pub message: MessageId,
    /// The number of the run among the agent's runs, from 1.
    pub ordinal: u64,
    /// Whether the run is queued, active or ended.
    pub status: RunStatus,
    /// The epoch under which it was last written. `None` while it is queued.
    pub epoch: Option<Epoch>,
    /// The state.
    pub state: Run,
    /// The manifest.
    pub manifest: Manifest,
    /// The data that the door stored with the run.
    pub note: Option<Bytes>,
    /// The item of the deliverable, after the end.
    pub deliverable: Option<ItemId>,
    /// The place of the run in the execution graph.
    pub lineage: Lineage,
    /// Whether a turn or an action started the run.
    pub kind: MessageKind,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When the run ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// Whether lists leave the run out, because it is not stored for its client: only that client reads it, until it is erased.
    pub unlisted: bool,
    /// How long after its end the run is erased, in milliseconds. `None` if it is kept.
    pub erase_ms: Option<u64>,
}

impl RunView {
    /// The name by which clients know the run's agent, or the key of the head if the run has no named agent.
    pub fn agent_id(&self) -> &AgentName {
        self.agent_name.as_ref().unwrap_or(&self.agent.agent)
    }
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The number of the event, from 0.
    pub number: u64,
    /// The epoch under which it was written. `None` while the run was queued.
    pub epoch: Option<Epoch>,
    /// The time of the commit.
    pub at: Timestamp,
    /// The event.
    pub event: Event,
}

/// An event with the content that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// The event with its number.
    pub entry: JournalEntry,
    /// The items that the event appended to the output box.
    pub appended: Vec<Item>,
    /// The result that the event reports.
    pub result: Option<Item>,
}

/// A stored call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// The number of the call in its run.
    pub call: CallNumber,
    /// The iteration that made the call.
    pub iteration: u32,
    /// The name of the tool.
    pub tool: ToolName,
    /// Who executes the call.
    pub route: Route,
    /// What repeating the call would do.
    pub effect: EffectClass,
    /// The status of the call.
    pub status: CallStatus,
    /// When the wait for the result ends.
    pub deadline: Timestamp,
    /// The item with the call's content.
    pub item: ItemId,
    /// The item with the result.
    pub result: Option<ItemId>,
    /// The worker of the tool service that holds the call.
    pub worker: Option<String>,
    /// The end of that worker's lease.
    pub lease_until: Option<Timestamp>,
    /// When the call was made.
    pub created_at: Timestamp,
    /// How often a server started the call or a worker claimed it.
    pub attempt: u32,
    /// How often the call was repeated after a reported failure.
    pub retry: u32,
}

/// An immutable piece of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The id of the item.
    pub id: ItemId,
    /// The kind of the item.
    pub kind: ItemKind,
    /// The content, byte for byte.
    pub content: Bytes,
    /// What the item is, if its content has the format of an API. It may be missing: then the API reads the content again.
    pub header: Option<ItemHeader>,
}

impl From<&NewItem> for Item {
    fn from(new: &NewItem) -> Self {
        Item { id: new.id, kind: new.kind, content: new.content.clone(), header: new.header.clone() }
    }
}

/// A box, without its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxView {
    /// The number of the box's own items.
    pub length: u32,
    /// The range that precedes them.
    pub parent: Option<BoxRange>,
}

/// An inbox row: pointers, no content.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxView {
    /// The number of the row.
    pub id: MessageId,
    /// The kind of the message.
    pub kind: MessageKind,
    /// The status of the message.
    pub status: MessageStatus,
    /// The run that the message is for.
    pub run: Option<RunId>,
    /// The epoch under which the owner took it.
    pub epoch: Option<Epoch>,
    /// The call that it is about.
    pub call: Option<CallNumber>,
    /// The item with its content.
    pub item: Option<ItemId>,
    /// The outcome that it reports.
    pub outcome: Option<TaskStatus>,
    /// What follows the result, if the message says.
    pub after: Option<AfterExecution>,
    /// The sender: the name of its token.
    pub source: Option<String>,
    /// The reason that the sender gave.
    pub reason: Option<String>,
    /// When the message arrived.
    pub created_at: Timestamp,
    /// When the owner took it.
    pub processed_at: Option<Timestamp>,
}

/// An edge of the execution graph: a request from one step to another, or its answer. It is derived from the inbox, so that no edge can be
/// missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The inbox row that the edge is derived from. The edge of a call has none.
    pub message: Option<MessageId>,
    /// `enqueue`, `tool_call`, `report`, `stop`, `answer`.
    pub primitive: &'static str,
    /// `request` or `response`.
    pub phase: &'static str,
    /// The run that the edge belongs to.
    pub run: Option<RunId>,
    /// The call by which request and answer are matched, unless they are matched by the inbox row.
    pub call: Option<CallNumber>,
    /// The trace of the run.
    pub trace: [u8; 16],
    /// The step that made the request.
    pub parent_step: Option<String>,
    /// The depth of the run in the graph.
    pub depth: u32,
    /// When the message arrived or the call was made.
    pub at: Timestamp,
}
