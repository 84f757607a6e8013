//! One state of the whole: the store's rows, two workers' memories, what is on its way outside, and what may still go wrong.

use std::sync::Arc;

use windlass_kernel::{CallNumber, Effect, Event, HeadStatus, Run, Timestamp};

use super::configs::Config;

/// A run, by its place in `State::runs`.
pub(super) type RunNo = u8;

/// One start of one process. A restarted worker is another node.
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

/// A run's row. The journal is not kept: every commit is folded over the state that stands, and has to give its own.
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
    /// Handed to an executor of the owner's process.
    Started,
    /// Waits for a service.
    Waiting,
    /// A service holds it until then.
    Claimed(Timestamp),
    /// A person has to decide.
    Parked,
    /// Received, applied, expired or dropped: nobody starts it any more.
    Over,
}

/// A call's row, and what the world outside knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub run: RunNo,
    pub call: CallNumber,
    pub is_write: bool,
    pub status: CallStatus,
    /// How often it was really started: the effect's own ledger.
    pub starts: u8,
    /// A service has a result that nobody has acknowledged.
    pub is_ready: bool,
}

/// The durable rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub head: Head,
    pub runs: Vec<RunRow>,
    pub inbox: Vec<Message>,
    pub calls: Vec<Call>,
}

/// What must still be true for a commit to be applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub status: HeadStatus,
    pub epoch: u8,
    pub run: RunNo,
    pub seq: u8,
}

/// Consecutive transitions of one run, to be written as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Commit {
    pub run: RunNo,
    pub node: NodeNo,
    pub raise_epoch: bool,
    pub state: Arc<Run>,
    pub events: Vec<Event>,
    /// Results that are recorded and taken at once.
    pub reports: Vec<CallNumber>,
    /// Places in the inbox.
    pub consumed: Vec<u8>,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Note {
    /// Something may wait in the store.
    Look,
    /// A model call is over.
    Thought { run: RunNo, iteration: u32, attempt: u32, is_reply: bool },
    /// A tool of this process is over.
    Tool { run: RunNo, call: CallNumber },
    /// A service reports to this process.
    Report { run: RunNo, call: CallNumber },
    /// Somebody asks this process to end a run.
    Stop { run: RunNo },
}

impl Note {
    /// Whether it comes from an effect of this process.
    pub fn is_local(self) -> bool {
        match self {
            Note::Thought { .. } | Note::Tool { .. } => true,
            Note::Look | Note::Report { .. } | Note::Stop { .. } => false,
        }
    }
}

/// A run as its worker last committed or read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub run: RunNo,
    pub state: Arc<Run>,
    pub status: HeadStatus,
    pub epoch: u8,
    pub seq: u8,
}

/// An effect in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub run: RunNo,
    pub effect: Effect,
    /// It is over, and its note waits.
    pub is_over: bool,
}

/// A commit on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub named: Named,
    pub commit: Commit,
    /// The notes it was made from, and those that did not fit.
    pub told: Vec<(Note, bool)>,
    /// It was applied and its answer lost.
    pub is_applied: bool,
}

/// What a worker is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Free,
    /// A commit is not answered yet.
    Asking(Box<Asked>),
    /// It was answered; what it made owed is not started yet.
    Starting {
        told: Vec<Note>,
        again: bool,
    },
}

/// One process, as far as the agent is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub node: NodeNo,
    /// It stands still, and its lease has run out.
    pub is_paused: bool,
    pub held: Option<Held>,
    pub in_flight: Vec<Flight>,
    pub notes: Vec<Note>,
    pub stage: Stage,
}

/// What may still happen that nobody wishes for, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Left {
    /// Processes that die.
    pub crashes: u8,
    /// Processes that stand still for longer than their lease.
    pub pauses: u8,
    /// Answers that are lost though the store has written.
    pub lost: u8,
    /// Commits that hang on the line while they are asked for again.
    pub delays: u8,
    /// Reports that are sent twice.
    pub duplicates: u8,
    /// Reports that come before their call is made.
    pub early: u8,
    /// Services that never say how a call ended.
    pub silences: u8,
    /// Stops.
    pub stops: u8,
    /// Model calls that fail.
    pub failures: u8,
    /// Steps of the clock.
    pub ticks: u8,
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub clock: Timestamp,
    pub store: Store,
    pub workers: Vec<Worker>,
    /// A commit that hangs on the line.
    pub floating: Option<Box<(Named, Commit)>>,
    /// Requests that were not made, or not answered.
    pub requests: Vec<bool>,
    pub left: Left,
}

impl State {
    /// Before anything happened.
    pub fn first(config: &Config) -> Self {
        let head = Head { status: HeadStatus::Idle, epoch: 0, seq: 0, run: None, owner: None, wake_at: None, pending: 0, queued: 0 };
        State {
            clock: Timestamp(0),
            store: Store { head, runs: Vec::new(), inbox: Vec::new(), calls: Vec::new() },
            workers: (0..config.workers).map(Worker::fresh).collect(),
            floating: None,
            requests: vec![true; config.keys.len()],
            left: config.left,
        }
    }

    /// Whether a node's lease holds.
    pub fn is_live(&self, node: NodeNo) -> bool {
        self.workers.iter().any(|worker| worker.node == node && !worker.is_paused)
    }
}

impl Worker {
    /// A process that has just begun.
    pub fn fresh(node: NodeNo) -> Self {
        Worker { node, is_paused: false, held: None, in_flight: Vec::new(), notes: Vec::new(), stage: Stage::Free }
    }

    /// Whether it has anything to lose.
    pub fn is_busy(&self) -> bool {
        !self.notes.is_empty() || !self.in_flight.is_empty() || self.stage != Stage::Free
    }
}
