//! What a worker is told: by doors, by its own effects, and by the sweep.

use tokio::sync::oneshot;
use windlass_kernel::{CallNumber, Reply, RunId, Spent, content::Reasoning};
use windlass_ports::{Enqueued, Item, ModelError, NewRun, ToolReport};

use crate::api::{EngineError, Reconcile, Reported, Stop, Stopped, ToolResult};

/// Who waits for the answer to a note.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, EngineError>>;

/// One thing a worker is told.
pub(crate) enum Note {
    /// Something may be due or waiting in the store.
    Look,
    /// A run is asked for.
    Enqueue(Box<NewRun>, Answer<Enqueued>),
    /// A result came from outside.
    Report(Box<ToolResult>, Answer<Reported>),
    /// A run should end.
    Stop(Box<Stop>, Answer<Stopped>),
    /// A person decided.
    Reconcile(Box<Reconcile>, Answer<()>),
    /// Somebody who follows a run has heard nothing for a while, since its journal had so many events.
    Quiet(RunId, u64),
    /// A model call of this process has thoughts, which stand before the words that it is about to announce.
    Reasoned(Box<Reasoned>),
    /// A model call of this process is over.
    Thought(Box<Thought>),
    /// A tool call of this process is over.
    Tool(Box<ToolDone>),
}

/// Thoughts of a model call that goes on.
pub(crate) struct Reasoned {
    pub run: RunId,
    pub iteration: u32,
    pub attempt: u32,
    /// How much stood in the run's output: more, and they are on record already.
    pub place: u32,
    pub reasoning: Vec<Reasoning>,
    /// Told when they are on record. Who gets no answer says nothing more.
    pub done: oneshot::Sender<()>,
}

/// The end of a model call.
pub(crate) struct Thought {
    pub run: RunId,
    pub iteration: u32,
    pub attempt: u32,
    /// What the model read, so that it need not be read from the store again.
    pub context: Option<Vec<Item>>,
    /// What was used up, if there is no answer.
    pub spent: Spent,
    pub outcome: Result<Reply, Broken<ModelError>>,
}

/// The end of a tool call.
pub(crate) struct ToolDone {
    pub run: RunId,
    pub call: CallNumber,
    pub outcome: Result<ToolReport, Broken<String>>,
}

impl ToolDone {
    /// The class of the failure, for the log, if the failure is not the tool's own answer.
    pub fn failure(&self) -> Option<&'static str> {
        match &self.outcome {
            Ok(report) => report.failure,
            Err(Broken::Failed(_)) => Some("not_run"),
            Err(Broken::Panicked) => Some("panicked"),
            Err(Broken::Diverged | Broken::NotStarted) => None,
        }
    }
}

/// Why an effect has no result.
pub(crate) enum Broken<E> {
    /// It failed as such things fail.
    Failed(E),
    /// It panicked.
    Panicked,
    /// The model does not repeat what was announced of an earlier try.
    Diverged,
    /// It was never started: this process had lost its lease by then.
    NotStarted,
}
