//! The messages that workers receive from doors, from their own effects and from the sweep.

use tokio::sync::oneshot;
use windlass_kernel::{AgentKey, CallNumber, ModelCallId, NewItem, Reply, RunId, Spent, content::Reasoning};
use windlass_ports::{Enqueued, Item, MessageId, ModelError, NewRun, RequestKey, ToolReport};

use crate::api::{AnswerInterrupt, Answered, EngineError, Reported, Stop, Stopped, ToolResult};

/// The channel for the answer to a message.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, EngineError>>;

/// One message for a worker.
pub(crate) enum WorkerMessage {
    /// The agent's stored state must be checked: something may be due or waiting there.
    CheckStore,
    /// Record a run, and enter it if the agent is idle.
    Enqueue(Box<NewRun>, Answer<Enqueued>),
    /// Record the result of an external call.
    Report(Box<ToolResult>, Answer<Reported>),
    /// End a run.
    Stop(Box<Stop>, Answer<Stopped>),
    /// Give the active run another instruction.
    Steer(Box<Steering>, Answer<MessageId>),
    /// Apply a person's answer to an interrupt.
    AnswerInterrupt(Box<AnswerInterrupt>, Answer<Answered>),
    /// Record a heartbeat for a reader of this run, unless its journal has grown beyond this many events.
    Heartbeat(RunId, u64),
    /// Commit the reasoning of a model call of this process, before the text that the call is about to stream.
    Reasoned(Box<Reasoned>),
    /// A model call of this process has ended.
    ModelDone(Box<ModelDone>),
    /// A tool call of this process has ended.
    ToolDone(Box<ToolDone>),
    /// A child run is on record, or can't be started.
    ChildStarted(Box<ChildStarted>),
}

/// An instruction for the active run.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// The head of the run.
    pub agent: AgentKey,
    pub run: RunId,
    pub item: NewItem,
    /// Who sent it, for the record.
    pub source: Option<String>,
    /// The same request under the same key gets the same answer.
    pub key: Option<RequestKey>,
}

/// Reasoning of a model call that continues.
pub(crate) struct Reasoned {
    pub run: RunId,
    pub id: ModelCallId,
    /// The length of the run's output at the start of the call. If the output is longer now, the reasoning is recorded already.
    pub position: u32,
    pub reasoning: Vec<Reasoning>,
    /// Resolved once the reasoning is committed. If the sender is dropped, the model call must stop.
    pub done: oneshot::Sender<()>,
}

/// The outcome of a model call.
pub(crate) struct ModelDone {
    pub run: RunId,
    pub id: ModelCallId,
    /// The items of the prompt, so that they need not be read from the store again.
    pub context: Option<Vec<Item>>,
    /// The tokens used by the attempt, if there is no reply.
    pub spent: Spent,
    pub outcome: Result<Reply, EffectError<ModelError>>,
}

/// The outcome of a tool call.
pub(crate) struct ToolDone {
    pub run: RunId,
    pub call: CallNumber,
    pub outcome: Result<ToolReport, EffectError<String>>,
}

impl ToolDone {
    /// The class of the failure, for the log. `None` if the call succeeded, or if the failure is an answer of the tool itself.
    pub fn failure(&self) -> Option<&'static str> {
        match &self.outcome {
            Ok(report) => report.failure,
            Err(EffectError::Failed(_)) => Some("not_run"),
            Err(EffectError::Panicked) => Some("panicked"),
            Err(EffectError::ReplayMismatch | EffectError::NotStarted) => None,
        }
    }
}

/// The outcome of starting a child run.
pub(crate) struct ChildStarted {
    pub run: RunId,
    pub call: CallNumber,
    pub outcome: Result<(), EffectError<Refused>>,
}

/// Why a child run was not started, for the model that asked for it.
pub(crate) struct Refused {
    pub code: &'static str,
    pub message: String,
}

/// Why an effect has no result.
pub(crate) enum EffectError<E> {
    /// The model, or the start of the tool, failed.
    Failed(E),
    /// The code of the effect panicked.
    Panicked,
    /// The model's answer does not begin with the text that an earlier attempt streamed.
    ReplayMismatch,
    /// The effect was never started, because this process had lost its lease.
    NotStarted,
}
