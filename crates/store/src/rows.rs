//! The named statements a database has to know, with their contracts.
//!
//! A statement reads or writes rows and decides nothing. A write whose key stands already, or that finds no row to change
//! where one must be, is an error: the transaction around it is rolled back.

mod answers;
mod calls;
mod conversations;
mod lists;
mod requests;
mod usage;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, BoxId, BoxRange, CallNumber, ChunkLengths, Epoch, HeadStatus, ItemId, ItemKind, Manifest, NewItem,
    RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};
use windlass_ports::{
    Announcement, Guard, Lineage, MessageId, MessageKind, MessageStatus, NodeId, OutboxRow, Page, PinnedManifest, RunStatus, StoreError,
};

pub use answers::{AnswerReads, AnswerRow, AnswerRows, pack_calls, unpack_calls};
pub use calls::{CallMove, CallRow};
pub use conversations::{ConversationReads, ConversationRow, ConversationRows};
pub use lists::ListReads;
pub use requests::{RequestReads, RequestRows};
pub use usage::UsageRows;

/// What a statement returns.
pub type Outcome<T> = Result<T, StoreError>;

/// A head, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRow {
    /// Its status.
    pub status: HeadStatus,
    /// The fence.
    pub epoch: Epoch,
    /// The count of its commits.
    pub seq: Seq,
    /// The active run: none exactly when idle.
    pub run: Option<RunId>,
    /// Whose lease it is.
    pub owner: Option<NodeId>,
    /// Results awaited.
    pub waiting: u32,
    /// When the wait is given up.
    pub deadline: Option<Timestamp>,
    /// When somebody has to look.
    pub wake_at: Option<Timestamp>,
    /// Pending messages that are the active run's or no run's; a run's own turn is never counted.
    pub pending: u32,
    /// Runs that wait their turn.
    pub queued: u32,
    /// Runs it ever had, which is the last ordinal given.
    pub runs: u64,
    /// Effects this head's owner owes the run.
    pub local: u32,
    /// Why it was taken out of the way.
    pub quarantined: Option<String>,
}

impl HeadRow {
    /// The head of an agent nobody has used.
    pub fn unused() -> Self {
        HeadRow {
            status: HeadStatus::Idle,
            epoch: Epoch(0),
            seq: Seq(0),
            run: None,
            owner: None,
            waiting: 0,
            deadline: None,
            wake_at: None,
            pending: 0,
            queued: 0,
            runs: 0,
            local: 0,
            quarantined: None,
        }
    }
}

/// A run, whole; its state is encoded.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// What most questions are about.
    pub brief: RunBrief,
    /// `turn` or `ui_action`.
    pub kind: MessageKind,
    /// The hash of a key under which it is found again.
    pub dedupe: Option<String>,
    /// The hash of its manifest: what it may do. `NO_MANIFEST` once the run is erased.
    pub manifest: [u8; 32],
    /// What its door wants to know again.
    pub note: Option<Bytes>,
    /// How long after its end it is erased.
    pub erase_ms: Option<u64>,
    /// Whether lists leave it out: it was not to be stored, or its content was erased.
    pub unlisted: bool,
    /// How long after its end it is kept at the least, though its time would have come.
    pub held_ms: u64,
    /// The earlier run whose calls it takes over.
    pub takes: Option<RunId>,
    /// The earlier run that it goes on from, if that one waited for it.
    pub follows: Option<RunId>,
    /// What it reads.
    pub context: BoxId,
    /// Where it writes.
    pub output: BoxId,
    /// The version of `state`.
    pub state_version: u16,
    /// The folded state.
    pub state: Bytes,
    /// Laps begun.
    pub iteration: u32,
    /// Where it comes from.
    pub lineage: Lineage,
    /// Its one result.
    pub deliverable: Option<ItemId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
}

/// What stands in place of the hash of a manifest in a run whose content was erased.
pub const NO_MANIFEST: [u8; 32] = [0; 32];

/// A run without its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBrief {
    /// Its id.
    pub run: RunId,
    /// The head it runs under.
    pub agent: AgentKey,
    /// The name of its agent, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// Its place among the agent's runs.
    pub ordinal: u64,
    /// Where it is.
    pub status: RunStatus,
    /// Its fence, once it has one.
    pub epoch: Option<Epoch>,
    /// Its turn's inbox row.
    pub message: MessageId,
}

/// What changes of a run.
#[derive(Clone, Debug)]
pub struct RunChange {
    /// Which run.
    pub run: RunId,
    /// Where it is.
    pub status: RunStatus,
    /// Its fence.
    pub epoch: Option<Epoch>,
    /// The folded state, in the version this code writes.
    pub state: Bytes,
    /// Laps begun.
    pub iteration: u32,
    /// Its one result.
    pub deliverable: Option<ItemId>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// How long after its end it is kept at the least; nothing to a run that is never erased.
    pub held_ms: u64,
}

/// What is erased of a run that has ended.
#[derive(Clone, Debug)]
pub struct Erasure {
    /// Which run.
    pub run: RunId,
    /// Its agent.
    pub agent: AgentKey,
    /// Those of its boxes that go.
    pub gone: Vec<BoxId>,
    /// Those that stay, because others read them.
    pub kept: Vec<BoxId>,
    /// Its manifest, which goes unless another run has it. `None` if the run was erased before.
    pub manifest: Option<[u8; 32]>,
    /// The model that the manifest names: a run that is in no sum of usage yet is counted under it.
    pub model: Option<String>,
}

/// An inbox message to be stored.
#[derive(Clone, Debug)]
pub struct MessageRow {
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

/// Whether a message is the beginning of a run; those are never counted as pending.
pub fn begins_run(kind: MessageKind) -> bool {
    match kind {
        MessageKind::Turn | MessageKind::UiAction => true,
        MessageKind::ToolResult | MessageKind::Timeout | MessageKind::Stop | MessageKind::Answer => false,
    }
}

/// Whether a message is a report, of which a call has at most one of each kind.
pub fn is_report(kind: MessageKind) -> bool {
    match kind {
        MessageKind::ToolResult | MessageKind::Timeout => true,
        MessageKind::Turn | MessageKind::UiAction | MessageKind::Stop | MessageKind::Answer => false,
    }
}

/// One journal row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// Its number.
    pub number: u64,
    /// The fence it was written under.
    pub epoch: Option<Epoch>,
    /// When.
    pub at: Timestamp,
    /// The event's kind.
    pub kind: Cow<'static, str>,
    /// The version of `body`.
    pub version: u16,
    /// The event without its kind.
    pub body: Bytes,
}

/// A batch of announced words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaRow {
    /// How many pieces of the run's open words came before.
    pub first: u32,
    /// How the words are divided.
    pub pieces: ChunkLengths,
    /// The words.
    pub text: String,
}

/// One item row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRow {
    /// Its id.
    pub id: ItemId,
    /// What it is.
    pub kind: ItemKind,
    /// What `content` hashed to when it was written.
    pub hash: [u8; 16],
    /// The bytes.
    pub content: Bytes,
}

/// A box. Its items are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxRow {
    /// Its id.
    pub id: BoxId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What stands before its own items.
    pub parent: Option<BoxRange>,
    /// How many boxes must be read before it.
    pub depth: u32,
    /// How many of the parents' items were copied in front of its own, at positions below zero. Then no parent is read.
    pub inherited: u32,
    /// Whether another run's box, or a packed one, was made from it: then its items are not this run's alone.
    pub shared: bool,
}

/// One part of a range: the items of a box from one position to below another. Inherited ones stand below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The box.
    pub id: BoxId,
    /// The first position.
    pub from: i64,
    /// The position after the last one.
    pub below: i64,
}

/// What a database can be asked.
pub trait Reads: ConversationReads + AnswerReads + ListReads + RequestReads {
    /// An agent's head.
    fn head(&self, agent: &AgentKey) -> Outcome<Option<HeadRow>>;
    /// A run, whole.
    fn run(&self, run: RunId) -> Outcome<Option<RunRow>>;
    /// A run without its state.
    fn run_brief(&self, run: RunId) -> Outcome<Option<RunBrief>>;
    /// The run that used a key, by the hash of the key.
    fn run_by_dedupe(&self, tenant: &Tenant, key: &str) -> Outcome<Option<RunBrief>>;
    /// The run that took over another's calls.
    fn run_taking(&self, tenant: &Tenant, run: RunId) -> Outcome<Option<RunBrief>>;
    /// The agent's run of the lowest ordinal that is at least this one.
    fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Outcome<Option<RunRow>>;
    /// The agent's queued run of the lowest ordinal above this one.
    fn next_queued(&self, agent: &AgentKey, above: u64) -> Outcome<Option<RunBrief>>;
    /// Where a run comes from.
    fn lineage(&self, run: RunId) -> Outcome<Option<Lineage>>;
    /// A pinned manifest of a tenant, decoded.
    fn manifest(&self, tenant: &Tenant, hash: &[u8; 32]) -> Outcome<Option<Arc<Manifest>>>;
    /// How many runs of a tenant have not ended.
    fn open_runs(&self, tenant: &Tenant) -> Outcome<u32>;
    /// A run's journal from a number on.
    fn journal(&self, run: RunId, from: u64, limit: usize) -> Outcome<Vec<JournalRow>>;

    /// A run's announced words that are not settled, in their order.
    fn deltas(&self, run: RunId) -> Outcome<Vec<DeltaRow>>;

    /// One message of an agent.
    fn message(&self, agent: &AgentKey, message: MessageId) -> Outcome<Option<MessageRow>>;
    /// The report of that kind about a call.
    fn report(&self, run: RunId, call: CallNumber, kind: MessageKind) -> Outcome<Option<MessageId>>;
    /// The youngest message of a run of that kind about that call, or about none.
    fn last_message(&self, agent: &AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber>) -> Outcome<Option<MessageId>>;
    /// An agent's pending messages, oldest first, turns included.
    fn pending(&self, agent: &AgentKey) -> Outcome<Vec<(MessageId, MessageRow)>>;
    /// An agent's messages after a row: those of no run first, then run by run in the order of the runs, oldest first.
    fn inbox(&self, agent: &AgentKey, page: Page) -> Outcome<Vec<(MessageId, MessageRow)>>;

    /// One call.
    fn call(&self, run: RunId, call: CallNumber) -> Outcome<Option<CallRow>>;
    /// A run's calls from a number on.
    fn calls(&self, run: RunId, from: CallNumber, limit: usize) -> Outcome<Vec<CallRow>>;
    /// A run's calls that are neither applied, expired nor dropped.
    fn open_calls(&self, run: RunId) -> Outcome<Vec<CallNumber>>;
    /// A run's claimed calls and until when they are held.
    fn claims(&self, run: RunId) -> Outcome<Vec<(CallNumber, Timestamp)>>;
    /// Claimable calls of a tool, oldest first: waiting, not past their deadline, of a head's active run, not quarantined.
    fn waiting_calls(&self, tenant: &Tenant, tool: &ToolName, now: Timestamp, limit: usize) -> Outcome<Vec<CallRow>>;
    /// The calls held under a claim's key, by the hash of the key.
    fn calls_by_key(&self, tenant: &Tenant, key: &str) -> Outcome<Vec<CallRow>>;

    /// One item of a tenant.
    fn item(&self, tenant: &Tenant, item: ItemId) -> Outcome<Option<ItemRow>>;
    /// A box.
    fn find_box(&self, id: BoxId) -> Outcome<Option<BoxRow>>;
    /// How many items of its own a box has.
    fn box_length(&self, id: BoxId) -> Outcome<u32>;
    /// The item ids at positions below `below`, in order, the inherited ones first.
    fn box_item_ids(&self, id: BoxId, below: u32) -> Outcome<Vec<ItemId>>;
    /// The bytes of content of all items at positions `from..below` of these boxes.
    fn content_bytes(&self, segments: &[Segment]) -> Outcome<u64>;
    /// The items at positions `from..below`, in order, at most `limit`, each with its position.
    fn box_items(&self, id: BoxId, from: i64, below: i64, limit: usize) -> Outcome<Vec<(i64, ItemRow)>>;

    /// Agents whose time to be looked at has come, the longest due first.
    fn due(&self, now: Timestamp, limit: usize) -> Outcome<Vec<AgentKey>>;
    /// Whether a node's lease holds.
    fn lives(&self, node: NodeId) -> Outcome<bool>;
    /// Agents that a node owes something which is neither this one nor lives, in key order.
    fn orphans(&self, node: NodeId, after: Option<&AgentKey>, limit: usize) -> Outcome<Vec<AgentKey>>;
    /// Outbox rows, oldest first.
    fn outbox(&self, limit: usize) -> Outcome<Vec<OutboxRow>>;
}

/// What a database can be told, inside a transaction that somebody else begins and ends.
pub trait Rows: Reads + ConversationRows + AnswerRows + RequestRows + UsageRows {
    /// Stores the head of an agent that has none.
    fn insert_head(&mut self, agent: &AgentKey, head: &HeadRow) -> Outcome<()>;
    /// Replaces a head that still has the status, epoch, run and seq of `before`. False if it has not, and then nothing changes.
    fn update_head(&mut self, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Outcome<bool>;
    /// Moves a head on that is just as its owner left it: the guard holds, the owner is the same, nothing waits. False if anything
    /// is otherwise, and then nothing changes. Of `shown` only what a run shows is taken.
    fn pass_head(&mut self, guard: &Guard, owner: NodeId, shown: &HeadRow) -> Outcome<bool>;
    /// Forgets a head that still has the status, epoch, run and seq of `before`. False if it has not, and then nothing changes.
    fn delete_head(&mut self, agent: &AgentKey, before: &HeadRow) -> Outcome<bool>;
    /// Stores a run.
    fn insert_run(&mut self, run: &RunRow) -> Outcome<()>;
    /// Changes a run. One that ends is to be erased its time later, if it has one.
    fn update_run(&mut self, change: &RunChange) -> Outcome<()>;
    /// The follow-up of a run is over: the run is kept for its own time from now on, and no longer than it was to be. One that is
    /// not there, not the tenant's or never erased is left alone.
    fn release_run(&mut self, tenant: &Tenant, run: RunId, now: Timestamp) -> Outcome<()>;
    /// Makes a queued run the active one; its state is untouched.
    fn activate_run(&mut self, run: RunId, epoch: Epoch) -> Outcome<()>;
    /// Stores a manifest of a tenant unless the tenant has it.
    fn keep_manifest(&mut self, tenant: &Tenant, manifest: &PinnedManifest) -> Outcome<()>;
    /// Changes the count of a tenant's open runs.
    fn add_open_runs(&mut self, tenant: &Tenant, change: i32) -> Outcome<()>;
    /// Stores events of one commit, in their order.
    fn append_journal(&mut self, run: RunId, rows: &[JournalRow]) -> Outcome<()>;

    /// Deletes a run's journal and calls, the boxes that go, and every item of the run that no box that stays has. Of its messages
    /// the content is forgotten, and what was told to those that have a key; of the run its note, its result, the step that asked for it,
    /// its manifest and when it is erased. The manifest goes with the last run of the tenant that has it. A box that goes is not shared.
    fn erase_run(&mut self, erasure: &Erasure) -> Outcome<()>;

    /// Forgets a run's announced words.
    fn forget_deltas(&mut self, run: RunId) -> Outcome<()>;

    /// Stores a message under the next number. A report that stands already is not stored twice: then `None`.
    fn insert_message(&mut self, agent: &AgentKey, row: &MessageRow) -> Outcome<Option<MessageId>>;
    /// Makes a message consumed.
    fn consume_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch, now: Timestamp) -> Outcome<()>;
    /// Makes a queued turn pending under a fence.
    fn lease_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch) -> Outcome<()>;
    /// Makes a message skipped.
    fn skip_message(&mut self, agent: &AgentKey, message: MessageId, now: Timestamp) -> Outcome<()>;
    /// Makes a message an error.
    fn refuse_message(&mut self, agent: &AgentKey, message: MessageId, reason: &str) -> Outcome<()>;

    /// Stores a call.
    fn insert_call(&mut self, row: &CallRow) -> Outcome<()>;
    /// Moves a call on, as `CallRow::move_on` does. A statement of its own, because every result needs it.
    fn move_call(&mut self, run: RunId, call: CallNumber, moved: CallMove) -> Outcome<()>;
    /// Replaces what can change of a call: status, deadline, result, worker, lease, attempt and key.
    fn update_call(&mut self, row: &CallRow) -> Outcome<()>;

    /// Stores an item under its hash.
    fn insert_item(&mut self, tenant: &Tenant, item: &NewItem) -> Outcome<()>;
    /// Stores a box without items.
    fn insert_box(&mut self, row: &BoxRow) -> Outcome<()>;
    /// Makes a box a shared one, for good.
    fn share_box(&mut self, id: BoxId) -> Outcome<()>;
    /// Puts an item at a position of a box.
    fn insert_box_row(&mut self, id: BoxId, position: i64, item: ItemId) -> Outcome<()>;

    /// Notes a stretch of a journal for publishing.
    fn insert_outbox(&mut self, agent: &AgentKey, run: RunId, first: u64, count: u32) -> Outcome<()>;
    /// Forgets outbox rows.
    fn forget_outbox(&mut self, rows: &[u64]) -> Outcome<()>;
}

/// What a database can be told of announced words, where it is told one batch at a time.
pub trait Announces: Reads {
    /// Whether a run is its agent's active one under a fence.
    fn is_active(&mut self, agent: &AgentKey, run: RunId, epoch: Epoch) -> Outcome<bool>;
    /// How many pieces of a run's words stand.
    fn pieces_standing(&self, run: RunId) -> Outcome<u32>;
    /// Stores words behind those of their run that stand.
    fn insert_delta(&mut self, words: &Announcement) -> Outcome<()>;
}

/// The error of a write whose key stands already.
pub(crate) fn stands_already(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} stands already"))
}

/// The error of a change that finds no row.
pub(crate) fn is_missing(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} is missing"))
}
