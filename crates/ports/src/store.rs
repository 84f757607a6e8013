//! The durable truth: a handful of verbs, each a whole transaction.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, BoxId, BoxRange, CallNumber, EffectClass, Epoch, Event, HeadStatus, ItemId, Manifest, NewItem, Route, Run,
    RunId, Seq, TaskStatus, Tenant, Timestamp, ToolName,
};

use crate::request::{Enqueued, NewRun};

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

    /// Gives calls back unstarted; returns those the worker no longer held.
    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError>;

    /// Makes a box out of others and of new items: how content is shared between agents. `None` if one of them is not there.
    async fn pack(&self, tenant: Tenant, id: BoxId, from: Vec<BoxRange>, items: Vec<NewItem>) -> Result<Option<BoxRange>, StoreError>;

    /// Takes an agent out of the way whose stored state cannot be read: suspended, with nothing due, the reason on record.
    async fn quarantine(&self, agent: AgentKey, reason: String) -> Result<(), StoreError>;

    /// Refuses a message that breaks the protocol: it becomes `error`, nothing else changes.
    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError>;

    /// Journal ranges to be published, oldest first.
    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError>;

    /// Forgets outbox rows by their numbers: they were published.
    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError>;
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
    /// When.
    pub now: Timestamp,
}

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// As it is spelled in stores and on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// Reads what `as_str` wrote.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }
    };
}
pub(crate) use spelled;

spelled! {
    /// What a commit does. Each has a crash point before and after it.
    CommitKind {
        /// A run is recorded behind others.
        Enqueue = "enqueue",
        /// A leased run is entered.
        Enter = "enter",
        /// The model's reply asks for calls.
        Suspend = "suspend",
        /// Some results are in.
        Report = "report",
        /// All results are in and the next lap begins.
        Resume = "resume",
        /// A try of the model call failed.
        Retry = "retry",
        /// The run is over.
        End = "end",
        /// Somebody stopped it.
        Stop = "stop",
        /// A deadline passed.
        Timeout = "timeout",
        /// A lost owner's run goes on.
        TakeOver = "take_over",
        /// A person has to decide.
        Park = "park",
        /// A person decided.
        Answer = "answer",
        /// Something else is put on record: an ignored input, an ended claim, a refused message, a packed box.
        Note = "note",
        /// A service took calls.
        Claim = "claim",
        /// A service prolonged its hold.
        Renew = "renew",
        /// A service gave calls back.
        Release = "release",
    }
}

spelled! {
    /// What an inbox message is.
    MessageKind {
        /// A request for a run.
        Turn = "turn",
        /// A result.
        ToolResult = "tool_result",
        /// A deadline that passed.
        Timeout = "timeout",
        /// A wish to end a run.
        Stop = "stop",
        /// A person's decision.
        Answer = "answer",
        /// A person's action.
        UiAction = "ui_action",
    }
}

spelled! {
    /// How far an inbox message is.
    MessageStatus {
        /// A run that waits its turn.
        Queued = "queued",
        /// To be taken by the owner.
        Pending = "pending",
        /// Taken.
        Consumed = "consumed",
        /// Against the protocol.
        Error = "error",
        /// No longer wanted.
        Skipped = "skipped",
    }
}

spelled! {
    /// How far a call is.
    CallStatus {
        /// Handed to an executor of this process.
        Started = "started",
        /// Waits for a service to claim it.
        Waiting = "waiting",
        /// A service holds it.
        Claimed = "claimed",
        /// The result is here.
        Received = "received",
        /// The result went into the output box.
        Applied = "applied",
        /// The deadline passed first.
        Expired = "expired",
        /// A person has to decide.
        Parked = "parked",
        /// The run ended without it.
        Dropped = "dropped",
    }
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

/// A result from outside the owner.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// Which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// What it says: `tool_result` or `timeout`, with its call.
    pub message: NewMessage,
    /// The content, stored with it.
    pub content: NewItem,
    /// When.
    pub now: Timestamp,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It waits for the owner.
    Recorded(MessageId),
    /// It came too late to matter, and is on record.
    Late(MessageId),
    /// It was there already.
    Duplicate(MessageId),
    /// There is no such run.
    UnknownRun,
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
    /// When.
    pub now: Timestamp,
}

/// A call given to a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedCall {
    /// Which agent.
    pub agent: AgentKey,
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
    /// How often it was claimed, this time included.
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
