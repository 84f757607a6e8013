//! The durable truth: a handful of verbs, each a whole transaction.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, CallNumber, ChunkLengths, ConversationId, EffectClass, Epoch, Event, HeadStatus, ItemId, Manifest,
    NewItem, Route, Run, RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};

use crate::{
    boxes::{NewPack, Packed},
    conversations::{ConversationChange, Conversed},
    open_requests::{LostRequest, OpenRequest, ReaderRecord},
    reports::{NewReport, Taken},
    request::{Enqueued, NewRun},
    retention::{AgedPage, AgedScan},
    tenant::{TenantCursor, TenantErasure},
    usage::{Day, RunUsage, UsageRow},
    words::{CallStatus, CommitKind, MessageKind},
};

/// The durable truth. What a method returned `Ok` for is on disk; what it returned an error for may be, and is asked for again.
#[async_trait]
pub trait Store: Send + Sync {
    /// Records a run with its first inbox message, its boxes and its first event. If the agent is idle it is leased to the
    /// run, and the run is entered too if the request says how. A repeated dedupe key returns the first run and changes nothing.
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError>;

    /// Reads an agent's head, its active run and the messages that wait, oldest first. `None` if the agent was never used.
    /// A read: what makes the reader the owner is the guard of its next commit.
    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError>;

    /// Applies a transition whole, if the guard still holds. Applied already counts as success. When the run ends and
    /// another is queued, the agent is leased to that one in the same transaction.
    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError>;

    /// Keeps words of the model that are about to be announced, if the run is still active under this epoch. The same words again
    /// change nothing. They are forgotten by the commit that settles them.
    async fn announce(&self, words: Announcement) -> Result<(), StoreError>;

    /// Ends a run that is still queued. Nothing happens if it is not.
    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError>;

    /// Adds a report from outside the owner. It waits in the inbox until the owner takes it. A duplicate changes nothing.
    async fn report(&self, report: NewReport) -> Result<Taken, StoreError>;

    /// Agents that somebody has to look at by now, oldest first.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError>;

    /// Says that a node lives, and will for as long as its lease is: by the store's own clock. Returns nodes whose lease has run
    /// out: what they owed is found by `orphans`.
    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError>;

    /// Forgets nodes whose lease has run out and who owe nobody anything any more. One that beats again is as good as new.
    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError>;

    /// Agents whose owner is neither this node nor one that lives, and owed them something, after `after` in key order.
    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError>;

    /// Gives waiting calls of a tool to a worker, oldest first, for the length of its lease. A repeated key gives the same calls.
    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError>;

    /// Prolongs a worker's hold on calls; returns those it no longer holds.
    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError>;

    /// Gives calls back unstarted; returns those the worker no longer held. A repeated request is told the same again.
    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError>;

    /// Makes a box out of others and of new items: how content is shared between agents. Nothing is stored unless the answer is
    /// `Packed::Done`.
    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError>;

    /// Takes an agent out of the way whose run cannot be read: suspended, with nothing due, the reason on record. An agent that has
    /// another run by now is left alone.
    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError>;

    /// Ends the run that an agent was quarantined for, as failed, and leases the agent to the next. Of what is stored of the run nothing
    /// need be readable but that it is there.
    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError>;

    /// Erases what a run was given and what it said, for good: content, journal and note. A skeleton stays: id, times, how it ended,
    /// what it used. Content that another run reads stays with that one. A run that has not ended is left alone.
    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError>;

    /// Runs whose time to be erased has come, oldest first.
    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError>;

    /// Ended runs of a tenant that are old enough to be erased, in the order in which they were accepted. Runs that are not listed are not
    /// among them: those that are erased already, and those whose time `erasable` knows. Nor is a run that an open run goes on from or takes
    /// calls over from, nor a run of a conversation that exists.
    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError>;

    /// Erases a batch of everything that a tenant has, its runs, conversations, manifests and sums of usage included: at most about `limit`
    /// rows of a table, looked at or deleted. Nothing is changed while the tenant has a run that has not ended. The same batch again
    /// deletes what is left of it.
    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError>;

    /// Empties a log of the store's own in which erased content may stand, if something was erased and it has not been emptied within the
    /// last minute. A store that has no such log, or whose log is the operator's, does nothing.
    async fn empty_log(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// Changes a conversation, unless a run of it is going on. The same change again changes nothing.
    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError>;

    /// Refuses a message that breaks the protocol: it becomes `error`, nothing else changes.
    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError>;

    /// Journal ranges to be published, oldest first.
    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError>;

    /// Forgets outbox rows by their numbers: they were published.
    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError>;

    /// Records what became of the client of an open request, together with the next commit. It causes no flush of its own, so a
    /// crash may lose the record; a lost record counts as absent. A request that another server has adopted is not changed.
    fn record_reader(&self, record: ReaderRecord);

    /// Writes all that `record_reader` was given. For a server that stops.
    async fn flush_readers(&self) -> Result<(), StoreError>;

    /// Open requests that belong neither to `node` nor to another server that lives, at most `limit`.
    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError>;

    /// Makes an open request belong to `node` if it still belongs to `request.node`. False if it does not: the client has its answer
    /// by now, or another server adopted it.
    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError>;

    /// Ended runs whose usage is in no sum yet, at most `limit`. There are none unless the store was opened to count usage.
    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError>;

    /// Adds rows to the sums and takes the runs that they are made of off the list of `uncounted_usage`, in one transaction. False, and
    /// nothing changes, if one of these runs was counted meanwhile.
    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError>;

    /// Deletes the sums of days before this one.
    async fn forget_usage(&self, before: Day) -> Result<(), StoreError>;
}

/// What a store says instead of doing it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another owner has the run now, or it moved on. Drop all local work for it, publish nothing.
    #[error("fenced: the run has moved on")]
    Fenced,
    /// The storage does not answer or does not take writes.
    #[error("storage unavailable: {0}")]
    Unavailable(String),
    /// What is stored makes no sense.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

/// One start of one server process. Leases belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// An inbox row's number, given by the store in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// What must still be true for a transition to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The head.
    pub agent: AgentKey,
    /// Its status.
    pub status: HeadStatus,
    /// Its fence.
    pub epoch: Epoch,
    /// Its active run.
    pub run: RunId,
    /// Its count.
    pub seq: Seq,
}

/// Everything one transition, or several consecutive ones of a run, write.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What it does, for crash points and metrics.
    pub kind: CommitKind,
    /// Which run.
    pub run: RunId,
    /// Who owns the head from here on. Another owner than before raises the epoch; so does a stop.
    pub node: NodeId,
    /// Whether the epoch is raised though the owner stays.
    pub raise_epoch: bool,
    /// The run afterwards.
    pub state: Run,
    /// The events that led there; the last one's number is `state.next_number - 1`.
    pub events: Vec<Event>,
    /// New content.
    pub items: Vec<NewItem>,
    /// What goes into the output box; the last one's position is `state.output.length - 1`.
    pub appended: Vec<ItemId>,
    /// What happens to calls.
    pub calls: Vec<(CallNumber, CallChange)>,
    /// Messages that are recorded and consumed at once.
    pub messages: Vec<NewMessage>,
    /// Waiting messages that are consumed.
    pub consumed: Vec<MessageId>,
    /// Whether announced words are settled: they stand in an item now, or are forgotten.
    pub settles: bool,
    /// The run that this one goes on from: with this one's end it need not wait for a follow-up any more.
    pub follows: Option<RunId>,
    /// When.
    pub now: Timestamp,
}

/// Words of the model on their way to readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Whose run.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// The fence.
    pub epoch: Epoch,
    /// How many pieces of the open words came before.
    pub first: u32,
    /// The words.
    pub text: String,
    /// How they are divided.
    pub pieces: ChunkLengths,
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallChange {
    /// It is made.
    Made(NewCall),
    /// It moves on; a result is kept if one is given.
    Moved {
        /// To where.
        status: CallStatus,
        /// The result's content.
        result: Option<ItemId>,
        /// A new deadline.
        deadline: Option<Timestamp>,
    },
}

/// A call to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCall {
    /// The lap that made it.
    pub iteration: u32,
    /// What is called.
    pub tool: ToolName,
    /// Who runs it.
    pub route: Route,
    /// What a second start would do.
    pub effect: EffectClass,
    /// When its result is given up.
    pub deadline: Timestamp,
    /// The call's own content.
    pub item: ItemId,
    /// How far it is.
    pub status: CallStatus,
    /// Its result, if it was refused at once.
    pub result: Option<ItemId>,
}

/// A message that is recorded as consumed.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// What it is.
    pub kind: MessageKind,
    /// The call it is about.
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
    /// Under which key the sender may ask again.
    pub key: Option<RequestKey>,
}

/// What tells a request that may be made again: the key, and what was asked under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The key.
    pub key: String,
    /// A hash of the request. Another one under the same key is another request.
    pub asked: [u8; 16],
}

/// What a request was told that has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// A hash of the request.
    pub asked: [u8; 16],
    /// Its inbox row.
    pub message: Option<MessageId>,
    /// Calls that the asker did not hold any more.
    pub lost: Vec<(RunId, CallNumber)>,
}

/// What a commit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head's count now.
    pub seq: Seq,
    /// The fence now.
    pub epoch: Epoch,
    /// Messages that wait for the owner.
    pub pending: u32,
    /// Whether the agent is leased to another run now.
    pub next_leased: bool,
    /// The numbers of the commit's `messages`, in their order.
    pub messages: Vec<MessageId>,
}

/// What became of a wish to end a queued run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It is over.
    Done,
    /// It is not queued (any more).
    NotQueued,
}

/// A run that a person gives up.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// Which run.
    pub run: RunId,
    /// Who owns the head from here on.
    pub node: NodeId,
    /// Its deliverable.
    pub deliverable: NewItem,
    /// The person's word.
    pub message: NewMessage,
    /// When.
    pub now: Timestamp,
}

/// What became of a wish to give a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// It is over.
    Done {
        /// Whether the agent is leased to another run now.
        next_leased: bool,
    },
    /// Its agent is not quarantined for it.
    NotQuarantined,
}

/// A head and what its owner needs.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The head.
    pub head: Head,
    /// The active run.
    pub run: Option<LoadedRun>,
    /// Messages that wait, oldest first.
    pub pending: Vec<Message>,
}

/// A head as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: HeadStatus,
    /// The fence.
    pub epoch: Epoch,
    /// The count of its commits.
    pub seq: Seq,
    /// Who owns it.
    pub owner: Option<NodeId>,
    /// Whether the owner's lease holds.
    pub owner_lives: bool,
    /// Runs that wait their turn.
    pub queued: u32,
}

/// An active run.
#[derive(Clone, Debug)]
pub struct LoadedRun {
    /// Its id.
    pub id: RunId,
    /// Its state.
    pub state: Run,
    /// What it may do.
    pub manifest: Arc<Manifest>,
    /// The name of the agent whose settings it has, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// The run that it goes on from, if that one waited for it.
    pub follows: Option<RunId>,
    /// The turn's own inbox row, until it is entered.
    pub turn: Option<MessageId>,
    /// Calls a service holds, and until when.
    pub claims: Vec<(CallNumber, Timestamp)>,
}

/// A waiting inbox message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its number.
    pub id: MessageId,
    /// What it is.
    pub kind: MessageKind,
    /// For which run; a message without one breaks the protocol.
    pub run: Option<RunId>,
    /// About which call.
    pub call: Option<CallNumber>,
    /// Its content.
    pub item: Option<ItemId>,
    /// What it says of the outcome.
    pub outcome: Option<TaskStatus>,
    /// What it wants to follow.
    pub after: Option<AfterExecution>,
    /// A word about why.
    pub reason: Option<String>,
}

/// A service's hold on calls.
#[derive(Clone, Debug)]
pub struct CallClaim {
    /// Whose calls.
    pub tenant: Tenant,
    /// Of which tool.
    pub tool: ToolName,
    /// Which worker of the service.
    pub worker: String,
    /// How many at the most.
    pub max: usize,
    /// Until when.
    pub until: Timestamp,
    /// A key under which the same calls are given again.
    pub key: Option<String>,
    /// The request under its key, if it has one: a claim or a release of other calls under the same key is refused.
    pub request: Option<RequestKey>,
    /// When.
    pub now: Timestamp,
}

/// A call given to a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedCall {
    /// The head of its run.
    pub agent: AgentKey,
    /// The name of the run's agent, if the run has a named one.
    pub agent_name: Option<AgentName>,
    /// Which run.
    pub run: RunId,
    /// Which call.
    pub call: CallNumber,
    /// The head's fence.
    pub epoch: Epoch,
    /// The lap.
    pub iteration: u32,
    /// The call's content.
    pub content: Bytes,
    /// When its result is given up.
    pub deadline: Timestamp,
    /// How often it was started or claimed, this time included.
    pub attempt: u32,
}

/// Events to be published: a stretch of one run's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its number.
    pub n: u64,
    /// Which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// The first event's number.
    pub first: u64,
    /// How many events.
    pub count: u32,
}
