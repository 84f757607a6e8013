//! The named statements that a database must implement, with their contracts.
//!
//! A statement reads or writes rows and decides nothing. A write whose key exists already, or that finds no row to change where there must
//! be one, is an error: the caller rolls the transaction back.

mod answers;
mod calls;
mod conversations;
mod interrupts;
mod lists;
mod requests;
mod usage;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, Below, BoxId, BoxRange, CallNumber, ChunkLengths, Epoch, HeadStatus, ItemId, ItemKind, Manifest,
    NewItem, ParentCall, RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};
use windlass_ports::{
    DeltaBatch, Guard, Lineage, MessageId, MessageKind, MessageStatus, NodeId, OutboxRow, Page, PinnedManifest, RunStatus, StoreError,
};

pub use answers::{AnswerReads, AnswerRow, AnswerRows, pack_calls, unpack_calls};
pub use calls::{CallMove, CallRow};
pub use conversations::{ConversationReads, ConversationRow, ConversationRows};
pub use interrupts::{InterruptChange, InterruptReads, InterruptRows, pack_names, unpack_names};
pub use lists::ListReads;
pub use requests::{RequestReads, RequestRows};
pub use usage::UsageRows;

/// The result of a statement, and of everything else that fails with a `StoreError`.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The head of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRow {
    /// The status.
    pub status: HeadStatus,
    /// The epoch.
    pub epoch: Epoch,
    /// The number of its commits.
    pub seq: Seq,
    /// The active run: `None` exactly when the head is idle.
    pub run: Option<RunId>,
    /// The process whose lease it is under.
    pub owner: Option<NodeId>,
    /// The number of results that the active run waits for.
    pub waiting: u32,
    /// When the wait for the results ends.
    pub deadline: Option<Timestamp>,
    /// When the head must be looked at.
    pub wake_at: Option<Timestamp>,
    /// Pending messages of the active run or of none. The turn of a run is never counted.
    pub pending: u32,
    /// The number of queued runs.
    pub queued: u32,
    /// The number of runs it ever had, which is the last ordinal in use.
    pub runs: u64,
    /// The number of effects that only the owner can run.
    pub local: u32,
    /// Why it is quarantined.
    pub quarantined: Option<String>,
    /// Whether an open interrupt holds the whole active run: then none of its calls is claimed.
    pub held: bool,
}

impl HeadRow {
    /// The head of an agent that never had a run.
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
            held: false,
        }
    }
}

/// A run. Its state is encoded.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// The columns that most reads need.
    pub brief: RunBrief,
    /// `turn` or `ui_action`.
    pub kind: MessageKind,
    /// The hash of the idempotency key under which a repeated request finds it.
    pub dedupe: Option<String>,
    /// The hash of its manifest. `NO_MANIFEST` once the run is erased.
    pub manifest: [u8; 32],
    /// Data of the door, which the store does not interpret.
    pub note: Option<Bytes>,
    /// How long after its end it is erased, in milliseconds.
    pub erase_ms: Option<u64>,
    /// Whether lists leave it out: it was not to be stored, or its content was erased.
    pub unlisted: bool,
    /// How long after its end it is kept at least, in milliseconds, even if it could be erased earlier.
    pub held_ms: u64,
    /// The earlier run whose calls it inherits.
    pub takes: Option<RunId>,
    /// The earlier run that it continues, if that one waited for it.
    pub follows: Option<RunId>,
    /// The call of another run that it answers, if it is a child run.
    pub parent: Option<ParentCall>,
    /// The box that it reads.
    pub context: BoxId,
    /// The box that it writes.
    pub output: BoxId,
    /// The version of `state`.
    pub state_version: u16,
    /// The folded state.
    pub state: Bytes,
    /// The number of iterations that have begun.
    pub iteration: u32,
    /// Its place in the execution graph.
    pub lineage: Lineage,
    /// The item of its deliverable.
    pub deliverable: Option<ItemId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// The manifest hash of a run whose content was erased.
pub const NO_MANIFEST: [u8; 32] = [0; 32];

/// A run without its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBrief {
    /// The id of the run.
    pub run: RunId,
    /// The head that it belongs to.
    pub agent: AgentKey,
    /// The name of its agent, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// Its number among the agent's runs.
    pub ordinal: u64,
    /// Whether it is queued, active or ended.
    pub status: RunStatus,
    /// The epoch under which it was last written. `None` while it is queued.
    pub epoch: Option<Epoch>,
    /// The inbox row of its request.
    pub message: MessageId,
}

/// The columns of a run that a commit changes.
#[derive(Clone, Debug)]
pub struct RunChange {
    /// The run.
    pub run: RunId,
    /// Whether it is queued, active or ended.
    pub status: RunStatus,
    /// The epoch of the commit.
    pub epoch: Option<Epoch>,
    /// The folded state, in the version this code writes.
    pub state: Bytes,
    /// The number of iterations that have begun.
    pub iteration: u32,
    /// The item of its deliverable.
    pub deliverable: Option<ItemId>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How long after its end it is kept at least. Without effect for a run that is never erased.
    pub held_ms: u64,
}

/// What is erased of an ended run.
#[derive(Clone, Debug)]
pub struct Erasure {
    /// The run.
    pub run: RunId,
    /// The agent of the run.
    pub agent: AgentKey,
    /// The boxes that are deleted.
    pub gone: Vec<BoxId>,
    /// The boxes that stay, because others read them.
    pub kept: Vec<BoxId>,
    /// Its manifest, which is deleted unless another run has it. `None` if the run was erased before.
    pub manifest: Option<[u8; 32]>,
    /// The model that the manifest names. A run that is in no sum of usage yet is counted under it.
    pub model: Option<String>,
}

/// An inbox message.
#[derive(Clone, Debug)]
pub struct MessageRow {
    /// The kind of the message.
    pub kind: MessageKind,
    /// The status of the message.
    pub status: MessageStatus,
    /// The run that it is for.
    pub run: Option<RunId>,
    /// The epoch under which the owner took it.
    pub epoch: Option<Epoch>,
    /// The call that it is about.
    pub call: Option<CallNumber>,
    /// The number of the call's repetition that it is about; 0 is the first try.
    pub retry: u32,
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
    /// What the child run used whose result it is.
    pub below: Option<Below>,
    /// When it arrived.
    pub created_at: Timestamp,
    /// When the owner took it.
    pub processed_at: Option<Timestamp>,
}

/// Whether a message of this kind starts a run. Such messages are never counted as pending.
pub fn begins_run(kind: MessageKind) -> bool {
    match kind {
        MessageKind::Turn | MessageKind::UiAction => true,
        MessageKind::ToolResult | MessageKind::Timeout | MessageKind::Stop | MessageKind::Answer | MessageKind::Steer => false,
    }
}

/// Whether a message of this kind is a report. A call has at most one of each kind.
pub fn is_report(kind: MessageKind) -> bool {
    match kind {
        MessageKind::ToolResult | MessageKind::Timeout => true,
        MessageKind::Turn | MessageKind::UiAction | MessageKind::Stop | MessageKind::Answer | MessageKind::Steer => false,
    }
}

/// An event of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// The number of the event.
    pub number: u64,
    /// The epoch under which it was written.
    pub epoch: Option<Epoch>,
    /// The time of the commit.
    pub at: Timestamp,
    /// The kind of the event.
    pub kind: Cow<'static, str>,
    /// The version of `body`.
    pub version: u16,
    /// The event without its kind.
    pub body: Bytes,
}

/// A batch of deltas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaRow {
    /// The number of chunks of the streamed text before it.
    pub first: u32,
    /// The lengths of its chunks.
    pub pieces: ChunkLengths,
    /// The text.
    pub text: String,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRow {
    /// The id of the item.
    pub id: ItemId,
    /// The kind of the item.
    pub kind: ItemKind,
    /// The hash of `content` when it was written.
    pub hash: [u8; 16],
    /// The content.
    pub content: Bytes,
    /// The encoded header, if there is one.
    pub header: Option<Bytes>,
}

/// A box. Its items are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxRow {
    /// The id of the box.
    pub id: BoxId,
    /// The tenant that owns it.
    pub tenant: Tenant,
    /// The range that precedes its own items.
    pub parent: Option<BoxRange>,
    /// The number of boxes that must be read before it.
    pub depth: u32,
    /// The number of items that were copied from the parents, at positions below zero. If there are any, no parent is read.
    pub inherited: u32,
    /// Whether another run's box or a packed box was made from it. Then its items do not belong to this run alone.
    pub shared: bool,
}

/// A part of a range: the items of one box between two positions. Copied items have positions below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The box.
    pub id: BoxId,
    /// The first position.
    pub from: i64,
    /// The position after the last one.
    pub below: i64,
}

/// The reads that a database must implement.
pub trait Reads: ConversationReads + AnswerReads + InterruptReads + ListReads + RequestReads {
    /// The head of an agent.
    fn head(&self, agent: &AgentKey) -> Result<Option<HeadRow>>;
    /// A run with its state.
    fn run(&self, run: RunId) -> Result<Option<RunRow>>;
    /// A run without its state.
    fn run_brief(&self, run: RunId) -> Result<Option<RunBrief>>;
    /// The run with an idempotency key, by the hash of the key.
    fn run_by_dedupe(&self, tenant: &Tenant, key: &str) -> Result<Option<RunBrief>>;
    /// The run that inherited the calls of this one.
    fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunBrief>>;
    /// The agent's run with the lowest ordinal that is at least this one.
    fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunRow>>;
    /// The agent's queued run with the lowest ordinal above this one.
    fn next_queued(&self, agent: &AgentKey, above: u64) -> Result<Option<RunBrief>>;
    /// The place of a run in the execution graph.
    fn lineage(&self, run: RunId) -> Result<Option<Lineage>>;
    /// A manifest of a tenant, decoded.
    fn manifest(&self, tenant: &Tenant, hash: &[u8; 32]) -> Result<Option<Arc<Manifest>>>;
    /// The number of runs of a tenant that have not ended.
    fn open_runs(&self, tenant: &Tenant) -> Result<u32>;
    /// A run's journal from event number `from` on.
    fn journal(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalRow>>;

    /// A run's deltas that are in no item yet, in their order.
    fn deltas(&self, run: RunId) -> Result<Vec<DeltaRow>>;

    /// One message of an agent.
    fn message(&self, agent: &AgentKey, message: MessageId) -> Result<Option<MessageRow>>;
    /// The report of this kind about a call.
    fn report(&self, run: RunId, call: CallNumber, kind: MessageKind, retry: u32) -> Result<Option<MessageId>>;
    /// The newest message of a run with this kind and this call, or without a call.
    fn last_message(&self, agent: &AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber>) -> Result<Option<MessageId>>;
    /// An agent's pending messages, oldest first, turns included.
    fn pending(&self, agent: &AgentKey) -> Result<Vec<(MessageId, MessageRow)>>;
    /// An agent's messages after a row: first those of no run, then run by run in the order of the runs, oldest first.
    fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<(MessageId, MessageRow)>>;

    /// One call.
    fn call(&self, run: RunId, call: CallNumber) -> Result<Option<CallRow>>;
    /// A run's calls from number `from` on.
    fn calls(&self, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallRow>>;
    /// A run's calls that are neither applied, expired nor dropped.
    fn open_calls(&self, run: RunId) -> Result<Vec<CallNumber>>;
    /// A run's claimed calls, each with the end of its lease.
    fn claims(&self, run: RunId) -> Result<Vec<(CallNumber, Timestamp)>>;
    /// Claimable calls of a tool, oldest first: waiting, not past their deadline, of a head's active run, which is
    /// neither held nor quarantined.
    fn waiting_calls(&self, tenant: &Tenant, tool: &ToolName, now: Timestamp, limit: usize) -> Result<Vec<CallRow>>;
    /// The calls that are held under a claim's key, by the hash of the key.
    fn calls_by_key(&self, tenant: &Tenant, key: &str) -> Result<Vec<CallRow>>;

    /// One item of a tenant.
    fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<ItemRow>>;
    /// A box.
    fn find_box(&self, id: BoxId) -> Result<Option<BoxRow>>;
    /// The number of items that a box has besides its parent.
    fn box_length(&self, id: BoxId) -> Result<u32>;
    /// The item ids at positions below `below`, in order, the copied ones first.
    fn box_item_ids(&self, id: BoxId, below: u32) -> Result<Vec<ItemId>>;
    /// The bytes of content of all items at positions `from..below` of these boxes.
    fn content_bytes(&self, segments: &[Segment]) -> Result<u64>;
    /// The items at positions `from..below`, in order, at most `limit`, each with its position.
    fn box_items(&self, id: BoxId, from: i64, below: i64, limit: usize) -> Result<Vec<(i64, ItemRow)>>;

    /// Agents that must be looked at by `now`, the longest due first.
    fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>>;
    /// Whether a node's lease is valid.
    fn lives(&self, node: NodeId) -> Result<bool>;
    /// Agents with unfinished work whose owner is neither this node nor a live one, in the order of the keys.
    fn orphans(&self, node: NodeId, after: Option<&AgentKey>, limit: usize) -> Result<Vec<AgentKey>>;
    /// Outbox rows, oldest first.
    fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>>;
}

/// The writes that a database must implement. They are made inside a transaction that the caller begins and ends.
pub trait Rows: Reads + ConversationRows + AnswerRows + InterruptRows + RequestRows + UsageRows {
    /// Stores the head of an agent that has none.
    fn insert_head(&mut self, agent: &AgentKey, head: &HeadRow) -> Result<()>;
    /// Replaces a head if it still has the status, epoch, run and seq of `before`. Otherwise returns false and changes nothing.
    fn update_head(&mut self, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Result<bool>;
    /// Updates a head that is as its owner left it: the guard holds, the owner is the same, and no messages are pending. Otherwise returns
    /// false and changes nothing. Only the columns that show the run are taken from `shown`.
    fn update_head_fast(&mut self, guard: &Guard, owner: NodeId, shown: &HeadRow) -> Result<bool>;
    /// Deletes a head if it still has the status, epoch, run and seq of `before`. Otherwise returns false and changes nothing.
    fn delete_head(&mut self, agent: &AgentKey, before: &HeadRow) -> Result<bool>;
    /// Stores a run.
    fn insert_run(&mut self, run: &RunRow) -> Result<()>;
    /// Changes a run. If it ends and has a time to live, it becomes due to be erased when that is over.
    fn update_run(&mut self, change: &RunChange) -> Result<()>;
    /// The follow-up of a run has ended: the run is kept for its own time to live from now on, but not longer than before. A run that does
    /// not exist, is not the tenant's or is never erased is left as it is.
    fn release_run(&mut self, tenant: &Tenant, run: RunId, now: Timestamp) -> Result<()>;
    /// Makes a queued run the active one. Its state stays the same.
    fn activate_run(&mut self, run: RunId, epoch: Epoch) -> Result<()>;
    /// Stores a manifest of a tenant unless the tenant has it.
    fn keep_manifest(&mut self, tenant: &Tenant, manifest: &PinnedManifest) -> Result<()>;
    /// Adds `change` to the number of a tenant's open runs.
    fn add_open_runs(&mut self, tenant: &Tenant, change: i32) -> Result<()>;
    /// Stores the events of one commit, in their order.
    fn append_journal(&mut self, run: RunId, rows: &[JournalRow]) -> Result<()>;

    /// Deletes a run's journal, calls and interrupts, the boxes that go, and every item of the run that is in no box that stays. Clears the content of
    /// its messages, the recorded answers about it, and these columns of the run: note, deliverable, parent step, manifest and the time to
    /// be erased. The manifest is deleted with the last run of the tenant that has it. A box that goes is not shared.
    fn erase_run(&mut self, erasure: &Erasure) -> Result<()>;

    /// Deletes a run's deltas.
    fn forget_deltas(&mut self, run: RunId) -> Result<()>;

    /// Stores a message under the next number. A report that exists already is not stored twice: then `None`.
    fn insert_message(&mut self, agent: &AgentKey, row: &MessageRow) -> Result<Option<MessageId>>;
    /// Sets the status of a message to consumed.
    fn consume_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch, now: Timestamp) -> Result<()>;
    /// Makes a queued turn pending, under an epoch.
    fn lease_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch) -> Result<()>;
    /// Sets the status of a message to skipped.
    fn skip_message(&mut self, agent: &AgentKey, message: MessageId, now: Timestamp) -> Result<()>;
    /// Sets the status of a message to error.
    fn refuse_message(&mut self, agent: &AgentKey, message: MessageId, reason: &str) -> Result<()>;

    /// Stores a call.
    fn insert_call(&mut self, row: &CallRow) -> Result<()>;
    /// Changes a call's status as `CallRow::move_on` does. A statement of its own, because every result needs it.
    fn move_call(&mut self, run: RunId, call: CallNumber, moved: CallMove) -> Result<()>;
    /// Replaces all columns of a call that can change: status, deadline, result, worker, lease, attempt and key.
    fn update_call(&mut self, row: &CallRow) -> Result<()>;

    /// Stores an item under its hash.
    fn insert_item(&mut self, tenant: &Tenant, item: &NewItem) -> Result<()>;
    /// Stores a box without items.
    fn insert_box(&mut self, row: &BoxRow) -> Result<()>;
    /// Marks a box as shared, for good.
    fn share_box(&mut self, id: BoxId) -> Result<()>;
    /// Puts an item at a position of a box.
    fn insert_box_row(&mut self, id: BoxId, position: i64, item: ItemId) -> Result<()>;

    /// Stores an outbox row for a range of a journal.
    fn insert_outbox(&mut self, agent: &AgentKey, run: RunId, first: u64, count: u32) -> Result<()>;
    /// Deletes outbox rows.
    fn forget_outbox(&mut self, rows: &[u64]) -> Result<()>;
}

/// The statements about deltas, for a caller that stores one batch at a time.
pub trait Announces: Reads {
    /// Whether a run is its agent's active one under this epoch.
    fn is_active(&mut self, agent: &AgentKey, run: RunId, epoch: Epoch) -> Result<bool>;
    /// The number of chunks that are stored of a run's streamed text.
    fn stored_chunks(&self, run: RunId) -> Result<u32>;
    /// Appends a batch to the stored deltas of its run.
    fn insert_delta(&mut self, batch: &DeltaBatch) -> Result<()>;
}

/// The error of a write whose key exists already.
pub(crate) fn existing_row(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} stands already").into())
}

/// The error of a change that finds no row.
pub(crate) fn missing_row(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} is missing").into())
}
