//! The state of the model: the store's rows, the memories of two workers, what is in progress outside, and the faults that are left.

use std::sync::Arc;

use windlass_kernel::{CallNumber, Effect, Event, HeadStatus, ModelCallId, Run, Timestamp};

use super::configs::Config;

/// A run, by its index in `State::runs`.
pub(super) type RunNo = u8;

/// One start of one process. A process that restarts has another number.
pub(super) type NodeNo = u8;

/// The agent's head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub status: HeadStatus,
    pub epoch: u8,
    pub seq: u8,
    pub run: Option<RunNo>,
    pub owner: Option<NodeNo>,
    pub wake_at: Option<Timestamp>,
    pub pending: u8,
    pub queued: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RunStatus {
    Queued,
    Active,
    Ended,
}

/// A run's row. The journal is not kept: every commit is folded over the stored state and must give the commit's own state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunRow {
    pub key: u8,
    pub status: RunStatus,
    pub state: Arc<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MessageStatus {
    Pending,
    Consumed,
    Skipped,
}

/// A report in the inbox, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub run: RunNo,
    pub call: CallNumber,
    pub status: MessageStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallStatus {
    /// An executor of the owner's process was given the call.
    Started,
    /// The call waits for a service.
    Waiting,
    /// A service holds the call until then.
    Claimed(Timestamp),
    /// The call is parked until a person decides.
    Parked,
    /// Received, applied, expired or dropped: the call is not started again.
    Over,
}

impl CallStatus {
    /// The status that a commit gives a row. Only a claim makes a row `Claimed`.
    pub fn of(status: windlass_kernel::CallStatus) -> Self {
        use windlass_kernel::CallStatus as Stored;
        match status {
            Stored::Started | Stored::Begun => CallStatus::Started,
            Stored::Waiting | Stored::Claimed => CallStatus::Waiting,
            Stored::Parked => CallStatus::Parked,
            Stored::Received | Stored::Applied | Stored::Expired | Stored::Dropped => CallStatus::Over,
        }
    }
}

/// A call's row, and what the world outside knows of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub run: RunNo,
    pub call: CallNumber,
    pub is_write: bool,
    pub status: CallStatus,
    /// How often the call was really started, as the outside counts it.
    pub starts: u8,
    /// A service has a result that no process has acknowledged.
    pub is_ready: bool,
}

/// The rows of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub head: Head,
    pub runs: Vec<RunRow>,
    pub inbox: Vec<Message>,
    pub calls: Vec<Call>,
}

/// The guard of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub status: HeadStatus,
    pub epoch: u8,
    pub run: RunNo,
    pub seq: u8,
}

/// Consecutive transitions of one run that are written as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Commit {
    pub run: RunNo,
    pub node: NodeNo,
    pub raise_epoch: bool,
    pub state: Arc<Run>,
    pub events: Vec<Event>,
    /// Results that are recorded as consumed.
    pub reports: Vec<CallNumber>,
    /// The indexes of the consumed messages in the inbox.
    pub consumed: Vec<u8>,
}

/// A message in a worker's mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkerMessage {
    /// There may be work in the store.
    CheckStore,
    /// A model call has ended.
    ModelEnded { run: RunNo, id: ModelCallId, is_reply: bool },
    /// A tool of this process has ended.
    Tool { run: RunNo, call: CallNumber },
    /// A service reports to this process.
    Report { run: RunNo, call: CallNumber },
    /// A client asks this process to stop a run.
    Stop { run: RunNo },
}

impl WorkerMessage {
    /// Whether the message comes from an effect of this process.
    pub fn is_local(self) -> bool {
        match self {
            WorkerMessage::ModelEnded { .. } | WorkerMessage::Tool { .. } => true,
            WorkerMessage::CheckStore | WorkerMessage::Report { .. } | WorkerMessage::Stop { .. } => false,
        }
    }
}

/// A run as its worker last committed or loaded it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ActiveRun {
    pub run: RunNo,
    pub state: Arc<Run>,
    pub status: HeadStatus,
    pub epoch: u8,
    pub seq: u8,
}

/// An effect in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunningEffect {
    pub run: RunNo,
    pub effect: Effect,
    /// The effect has ended, and its message is in the mailbox.
    pub is_over: bool,
}

/// A commit that was sent to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SentCommit {
    pub named: Named,
    pub commit: Commit,
    /// The messages that it was made from, each with whether it fitted.
    pub taken: Vec<(WorkerMessage, bool)>,
    /// Whether it was applied and its answer lost.
    pub is_applied: bool,
}

/// What a worker is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Free,
    /// It waits for the answer to a commit.
    Committing(Box<SentCommit>),
    /// The commit was answered. The effects that it made outstanding are not started yet.
    Starting {
        taken: Vec<WorkerMessage>,
        again: bool,
    },
}

/// One process, as far as it works on the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub node: NodeNo,
    /// Whether it is paused. Its lease has ended then.
    pub is_paused: bool,
    pub active: Option<ActiveRun>,
    pub in_flight: Vec<RunningEffect>,
    pub messages: Vec<WorkerMessage>,
    pub stage: Stage,
}

/// The number of faults of each kind that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultBudget {
    /// Crashes of processes.
    pub crashes: u8,
    /// Pauses of processes beyond their leases.
    pub pauses: u8,
    /// Answers of the store that are lost after it wrote.
    pub lost: u8,
    /// Commits that are delayed on the network while they are sent again.
    pub delays: u8,
    /// Reports that are sent twice.
    pub duplicates: u8,
    /// Reports that arrive before their call is made.
    pub early: u8,
    /// Services that never report.
    pub silences: u8,
    /// Stops.
    pub stops: u8,
    /// Model calls that fail.
    pub failures: u8,
    /// Steps of the clock.
    pub ticks: u8,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub clock: Timestamp,
    pub store: Store,
    pub workers: Vec<Worker>,
    /// A commit that is delayed on the network.
    pub floating: Option<Box<(Named, Commit)>>,
    /// Whether each request is still to be made or repeated.
    pub requests: Vec<bool>,
    pub faults: FaultBudget,
}

impl State {
    /// The state before anything happened.
    pub fn first(config: &Config) -> Self {
        let head = Head { status: HeadStatus::Idle, epoch: 0, seq: 0, run: None, owner: None, wake_at: None, pending: 0, queued: 0 };
        State {
            clock: Timestamp(0),
            store: Store { head, runs: Vec::new(), inbox: Vec::new(), calls: Vec::new() },
            workers: (0..config.workers).map(Worker::fresh).collect(),
            floating: None,
            requests: vec![true; config.keys.len()],
            faults: config.faults,
        }
    }

    /// Whether the lease of a process is valid.
    pub fn is_live(&self, node: NodeNo) -> bool {
        self.workers.iter().any(|worker| worker.node == node && !worker.is_paused)
    }
}

impl Worker {
    /// A process that has just started.
    pub fn fresh(node: NodeNo) -> Self {
        Worker { node, is_paused: false, active: None, in_flight: Vec::new(), messages: Vec::new(), stage: Stage::Free }
    }

    /// Whether a crash would lose anything.
    pub fn is_busy(&self) -> bool {
        !self.messages.is_empty() || !self.in_flight.is_empty() || self.stage != Stage::Free
    }
}
