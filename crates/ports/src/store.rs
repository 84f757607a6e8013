//! The data of the storage port. The port itself, with its verbs, is in `verbs.rs`.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, Below, CallNumber, ChildReport, ChunkLengths, EffectClass, Epoch, Event, HeadStatus,
    InterruptUpdate, ItemId, Manifest, NewItem, ParentCall, Route, Run, RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};

use crate::names::{CallStatus, CommitKind, MessageKind};

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
    /// Whether `state` itself is stored.
    pub state_write: StateWrite,
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
    /// Child runs that nothing waits for any more: each one that has not ended gets a request to stop.
    pub stops: Vec<RunId>,
    /// The result for the parent, if a child run ends. Its content is among `items`.
    pub report: Option<ChildReport>,
    /// The time of the commit.
    pub now: Timestamp,
}

/// The key of the head of a child run. Every child run has a head of its own, whatever its agent is.
pub fn child_head(tenant: &Tenant, child: RunId) -> AgentKey {
    AgentKey { tenant: tenant.clone(), agent: AgentName::from(child.to_string().as_str()) }
}

/// The key of the head of a child run's parent, which is of the same tenant.
pub fn parent_head(tenant: &Tenant, parent: &ParentCall) -> AgentKey {
    AgentKey { tenant: tenant.clone(), agent: parent.head.clone() }
}

/// Whether a commit stores the state of its run. The events of a commit are always stored, and folding them from the last stored state on
/// gives the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateWrite {
    /// The commit stores the state.
    Always,
    /// The commit stores the state only if it rewrites the row of the run for another reason, for instance because the owner changes or a
    /// message is consumed.
    WithRow,
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
        /// The item with other arguments, if a person changed them.
        item: Option<ItemId>,
        /// The number of the repetition that comes next, if the call is repeated.
        retry: Option<u32>,
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
    /// The id of the result that the parent gets, if it is a child run.
    pub result: ItemId,
    /// The run's children. Those that have not ended are stopped.
    pub children: Vec<RunId>,
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
    /// The number of the call's repetition that it is about; 0 is the first try.
    pub retry: u32,
    /// The item with its content.
    pub item: Option<ItemId>,
    /// The outcome that it reports.
    pub outcome: Option<TaskStatus>,
    /// What follows the result, if the message says.
    pub after: Option<AfterExecution>,
    /// The reason that the sender gave.
    pub reason: Option<String>,
    /// What the child run used whose result it is.
    pub below: Option<Below>,
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
    /// How often the call was repeated after a reported failure.
    pub retry: u32,
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
