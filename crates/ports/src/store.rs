//! The storage port: a small number of verbs, each of which is a whole transaction.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, CallNumber, ChunkLengths, ConversationId, EffectClass, Epoch, Event, HeadStatus, InterruptUpdate,
    ItemId, Manifest, NewItem, Route, Run, RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};

use crate::{
    boxes::{NewPack, Packed},
    conversations::{ConversationChange, Conversed},
    names::{CallStatus, CommitKind, MessageKind},
    open_requests::{LostRequest, OpenRequest, ReaderRecord},
    reports::{NewReport, Taken},
    request::{Enqueued, NewRun},
    retention::{AgedPage, AgedScan},
    tenant::{TenantCursor, TenantErasure},
    usage::{Day, RunUsage, UsageRow},
};

/// The durable state of all runs. After `Ok` a write is on disk. After an error it may be, and the caller sends the same write again.
#[async_trait]
pub trait Store: Send + Sync {
    /// Records a run with its first inbox message, its boxes and its first event. If the agent is idle it is leased to the run, and if the
    /// request has a commit for that, the run is entered too. A repeated dedupe key returns the first run and changes nothing.
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError>;

    /// Reads an agent's head, its active run and its pending messages, oldest first. `None` if the agent never had a run. Reading does not
    /// make the caller the owner: the guard of its next commit does.
    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError>;

    /// Applies a transition whole, if the guard still holds. A commit that was applied before succeeds again and changes nothing. When the
    /// run ends and another is queued, the agent is leased to that one in the same transaction.
    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError>;

    /// Stores a batch of deltas before readers see them, if the run is still active under this epoch. The same batch again changes nothing.
    /// The commit that puts the text into an item deletes the deltas.
    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError>;

    /// Ends a run that is still queued. Any other run is left as it is.
    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError>;

    /// Adds a report from outside the owner. It waits in the inbox until the owner takes it. A repeated report changes nothing.
    async fn report(&self, report: NewReport) -> Result<Taken, StoreError>;

    /// Agents that need attention by `now`, oldest first.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError>;

    /// Renews the lease of a server process, by the store's own clock. Returns processes whose lease has ended: `orphans` finds their runs.
    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError>;

    /// Deletes processes whose lease has ended and that own no runs any more. A process that renews its lease later is recorded again.
    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError>;

    /// Agents with unfinished work whose owner is neither this process nor another live one. The list starts after `after`, in the order of
    /// the keys.
    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError>;

    /// Leases waiting calls of a tool to a worker of a tool service, oldest first. A repeated key gives the same calls.
    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError>;

    /// Prolongs a worker's leases on calls. Returns the calls that it no longer holds.
    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError>;

    /// Gives calls back unstarted. Returns the calls that the worker no longer held. A repeated request gets the same answer.
    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError>;

    /// Makes a box of ranges of other boxes and of new items. This is how agents share content. Nothing is stored unless the outcome is
    /// `Packed::Done`.
    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError>;

    /// Quarantines an agent whose run can't be read: the head is suspended with no deadline, and the reason is stored. An agent that has
    /// another run by now is left as it is.
    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError>;

    /// Ends the run that an agent was quarantined for, as failed, and leases the agent to the next run. The stored rows of the run need not
    /// be readable.
    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError>;

    /// Erases the input and output of an ended run for good: content, journal and note. A skeleton stays: id, times, status and usage.
    /// Content that another run reads stays with that run. A run that has not ended is left as it is.
    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError>;

    /// Runs whose own time to be erased has passed, oldest first.
    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError>;

    /// Ended runs of a tenant that are old enough to be erased, in the order in which they were accepted. Left out are runs that are not
    /// listed (erased already, or with a time of their own, which `erasable` finds), runs that an open run continues or whose calls it
    /// inherits, and runs of a conversation that exists.
    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError>;

    /// Erases a batch of everything that a tenant has, including its runs, conversations, manifests and sums of usage: at most about
    /// `limit` rows of a table are read or deleted. Nothing is changed while the tenant has a run that has not ended. The same batch again
    /// deletes what is left of it.
    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError>;

    /// Empties a log file of the store that may still have erased content, if something was erased and the file was not emptied within the
    /// last minute. A store without such a file, or whose log belongs to the operator, does nothing.
    async fn empty_log(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// Changes a conversation, unless one of its runs has not ended. The same change again changes nothing.
    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError>;

    /// Refuses a message that breaks the protocol: its status becomes `error`, and nothing else changes.
    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError>;

    /// Journal ranges that are to be published, oldest first.
    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError>;

    /// Deletes outbox rows by their numbers, after they were published.
    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError>;

    /// Records what happened to the client of an open request. The record is written together with the next commit and causes no flush of
    /// its own, so that a crash may lose it; a lost record counts as absent. A request that another server has adopted is not changed.
    fn record_reader(&self, record: ReaderRecord);

    /// Writes everything that `record_reader` was given. A server calls it when it stops.
    async fn flush_readers(&self) -> Result<(), StoreError>;

    /// At most `limit` open requests that belong neither to `node` nor to another live server.
    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError>;

    /// Makes an open request belong to `node` if it still belongs to `request.node`. False if it does not: the client has its answer by
    /// now, or another server adopted the request.
    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError>;

    /// At most `limit` ended runs whose usage is in no sum yet. Empty unless the store was opened to count usage.
    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError>;

    /// Adds rows to the sums and removes the runs that they consist of from `uncounted_usage`, in one transaction. False if one of these
    /// runs was counted meanwhile; then nothing changes.
    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError>;

    /// Deletes the sums of days before this one.
    async fn forget_usage(&self, before: Day) -> Result<(), StoreError>;
}

/// Why a store failed a request.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The guard did not hold: another owner has the run, or the run has progressed. The caller drops its state of the run and publishes
    /// nothing.
    #[error("fenced: the run has moved on")]
    Fenced,
    /// The database does not answer, or takes no writes.
    #[error("storage unavailable: {0}")]
    Unavailable(String),
    /// Stored rows can't be read.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

/// One start of one server process. Leases belong to it, not to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The number of an inbox row. The store numbers rows in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// The condition on the head under which a commit is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key of the head.
    pub agent: AgentKey,
    /// The status that the head must have.
    pub status: HeadStatus,
    /// The epoch that the head must have.
    pub epoch: Epoch,
    /// The run that must be active.
    pub run: RunId,
    /// The number of commits that the head must have had.
    pub seq: Seq,
}

/// The writes of one transition, or of several consecutive ones of a run.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What the commit does, for crash points and metrics.
    pub kind: CommitKind,
    /// The run that it belongs to.
    pub run: RunId,
    /// The owner of the head after the commit. A change of the owner raises the epoch; so does a stop.
    pub node: NodeId,
    /// Whether the epoch is raised although the owner stays.
    pub raise_epoch: bool,
    /// The state of the run after the commit.
    pub state: Run,
    /// The events of the transitions. The number of the last one is `state.next_number - 1`.
    pub events: Vec<Event>,
    /// New content.
    pub items: Vec<NewItem>,
    /// Items that are appended to the output box. The position of the last one is `state.output.length - 1`.
    pub appended: Vec<ItemId>,
    /// Changes of the run's calls.
    pub calls: Vec<(CallNumber, CallChange)>,
    /// Changes of the run's interrupts.
    pub interrupts: Vec<InterruptUpdate>,
    /// Messages that are recorded as consumed.
    pub messages: Vec<NewMessage>,
    /// Pending messages that the commit consumes.
    pub consumed: Vec<MessageId>,
    /// Whether the streamed deltas are deleted: their text is in an item now, or is given up.
    pub clears_deltas: bool,
    /// The run that this one continues. It stops waiting for its client when this one ends.
    pub follows: Option<RunId>,
    /// The time of the commit.
    pub now: Timestamp,
}

/// A batch of deltas to be stored before readers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaBatch {
    /// The agent of the run.
    pub agent: AgentKey,
    /// The run that streams.
    pub run: RunId,
    /// The epoch under which the run must be active.
    pub epoch: Epoch,
    /// The number of chunks that are stored already. The batch follows them.
    pub first: u32,
    /// The text.
    pub text: String,
    /// The lengths of the chunks that the text consists of.
    pub pieces: ChunkLengths,
}

/// A change of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallChange {
    /// The call is made.
    Made(NewCall),
    /// The call gets another status. A result is stored if one is given.
    Moved {
        /// The new status.
        status: CallStatus,
        /// The item of the result.
        result: Option<ItemId>,
        /// The new deadline, if it changes.
        deadline: Option<Timestamp>,
    },
}

/// A call to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCall {
    /// The iteration that made the call.
    pub iteration: u32,
    /// The name of the tool.
    pub tool: ToolName,
    /// Who executes the call.
    pub route: Route,
    /// What repeating the call would do.
    pub effect: EffectClass,
    /// When the wait for the result ends.
    pub deadline: Timestamp,
    /// The item with the call's content.
    pub item: ItemId,
    /// The status of the call.
    pub status: CallStatus,
    /// The result, if the call was refused at once.
    pub result: Option<ItemId>,
}

/// A message that is recorded as consumed, because the owner took it directly.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// The kind of the message.
    pub kind: MessageKind,
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
    /// The key under which the sender may repeat the request.
    pub key: Option<RequestKey>,
}

/// The idempotency key of a request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The key.
    pub key: String,
    /// A hash of the request. A request with the same key and another hash is refused.
    pub asked: [u8; 16],
}

/// The recorded answer to a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// A hash of the request.
    pub asked: [u8; 16],
    /// The inbox row that the request made, if it made one.
    pub message: Option<MessageId>,
    /// Calls that the worker did not hold any more.
    pub lost: Vec<(RunId, CallNumber)>,
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head's sequence number now.
    pub seq: Seq,
    /// The epoch of the head now.
    pub epoch: Epoch,
    /// The number of messages that wait for the owner.
    pub pending: u32,
    /// Whether the head is leased to another run now.
    pub next_leased: bool,
    /// The inbox numbers of the commit's `messages`, in the same order.
    pub messages: Vec<MessageId>,
}

/// The outcome of ending a queued run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// The run has ended.
    Done,
    /// The run is not queued, or not any more.
    NotQueued,
}

/// A run that a person gives up.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// The run.
    pub run: RunId,
    /// The owner of the head after the commit.
    pub node: NodeId,
    /// The deliverable of the run.
    pub deliverable: NewItem,
    /// The person's decision.
    pub message: NewMessage,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The outcome of giving a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The run has ended.
    Done {
        /// Whether the head is leased to another run now.
        next_leased: bool,
    },
    /// Its agent is not quarantined for this run.
    NotQuarantined,
}

/// A head with what its owner needs to continue.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The head.
    pub head: Head,
    /// The active run.
    pub run: Option<LoadedRun>,
    /// The pending messages, oldest first.
    pub pending: Vec<Message>,
}

/// The stored head of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: HeadStatus,
    /// The epoch.
    pub epoch: Epoch,
    /// The number of commits.
    pub seq: Seq,
    /// The process that owns it.
    pub owner: Option<NodeId>,
    /// Whether the owner's lease is valid.
    pub owner_lives: bool,
    /// The number of queued runs.
    pub queued: u32,
}

/// An active run.
#[derive(Clone, Debug)]
pub struct LoadedRun {
    /// The id of the run.
    pub id: RunId,
    /// Its state.
    pub state: Run,
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The name of the agent whose settings it has, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// The run that this one continues, if that run waited for it.
    pub follows: Option<RunId>,
    /// The inbox row of the request, until a worker enters the run.
    pub turn: Option<MessageId>,
    /// Calls that tool services hold, each with the end of its lease.
    pub claims: Vec<(CallNumber, Timestamp)>,
}

/// A pending inbox message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The number of its row.
    pub id: MessageId,
    /// The kind of the message.
    pub kind: MessageKind,
    /// The run that it is for. A message without a run breaks the protocol.
    pub run: Option<RunId>,
    /// The call that it is about.
    pub call: Option<CallNumber>,
    /// The item with its content.
    pub item: Option<ItemId>,
    /// The outcome that it reports.
    pub outcome: Option<TaskStatus>,
    /// What follows the result, if the message says.
    pub after: Option<AfterExecution>,
    /// The reason that the sender gave.
    pub reason: Option<String>,
}

/// A lease of a tool service's worker on calls.
#[derive(Clone, Debug)]
pub struct CallClaim {
    /// The tenant that owns the calls.
    pub tenant: Tenant,
    /// The tool.
    pub tool: ToolName,
    /// The worker of the tool service.
    pub worker: String,
    /// The number of calls that are claimed at most.
    pub max: usize,
    /// The end of the lease.
    pub until: Timestamp,
    /// The idempotency key: a repeated claim with it gets the same calls.
    pub key: Option<String>,
    /// The key with a hash of the request, if the request has a key. A different claim or release with the same key is refused.
    pub request: Option<RequestKey>,
    /// The time of the request.
    pub now: Timestamp,
}

/// A call that is leased to a tool service.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedCall {
    /// The head that the run belongs to.
    pub agent: AgentKey,
    /// The name of the run's agent, if the run has a named one.
    pub agent_name: Option<AgentName>,
    /// The run that made the call.
    pub run: RunId,
    /// The number of the call in that run.
    pub call: CallNumber,
    /// The epoch of the head.
    pub epoch: Epoch,
    /// The iteration that made the call.
    pub iteration: u32,
    /// The content of the call.
    pub content: Bytes,
    /// When the wait for the result ends.
    pub deadline: Timestamp,
    /// How often the call was started or claimed, this claim included.
    pub attempt: u32,
}

/// Events that are to be published: a range of one run's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// The number of the row.
    pub n: u64,
    /// The agent of the run.
    pub agent: AgentKey,
    /// The run that the events belong to.
    pub run: RunId,
    /// The number of the first event.
    pub first: u64,
    /// The number of events.
    pub count: u32,
}
