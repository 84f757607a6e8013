//! What can happen to a run from outside the kernel.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    budget::{Spent, Usage},
    chunks::ChunkLengths,
    content::Reasoning,
    event::{InputKind, TaskStatus},
    facts::ReplyFacts,
    failure::FailureCause,
    ids::{CallNumber, ItemId, Timestamp},
    manifest::AfterExecution,
};

/// One thing that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A worker entered a leased run.
    Entered(Opening),
    /// The model thought, and has more to say.
    Reasoned {
        /// The thoughts, in order.
        reasoning: Vec<Reasoning>,
        /// The signs of life that were announced before.
        chunks: ChunkLengths,
    },
    /// The model answered.
    Replied(Reply),
    /// A try of the model call failed.
    AttemptFailed(Failure),
    /// A result, or the deadline that stands for one.
    Reported(Report),
    /// A claimed call's lease ended without a result.
    LeaseEnded(CallNumber),
    /// The model does not repeat what was announced of an earlier try: what stands, stands, and it goes on in another message.
    Cut {
        /// What was announced.
        streamed: StreamedText,
        /// What the try used up that did not repeat it.
        spent: Spent,
    },
    /// Somebody who reads along is owed a sign of life.
    Heartbeat,
    /// Somebody wants the run to end.
    Stopped {
        /// Why, in their words.
        reason: String,
        /// What was announced and stands in no item yet.
        streamed: StreamedText,
    },
    /// The run has another owner than before.
    OwnerChanged(LostModelCall),
    /// A step or an executor of the run panicked.
    Panicked,
    /// A person decided about something parked.
    Answered(Decision),
}

impl Input {
    /// A takeover from an owner that was not in the middle of a model call.
    pub fn owner_changed() -> Self {
        Input::OwnerChanged(LostModelCall::default())
    }

    /// The kind, for the record of an ignored input.
    pub fn kind(&self) -> InputKind {
        match self {
            Input::Entered(_) => InputKind::Entered,
            Input::Reasoned { .. } => InputKind::Reasoned,
            Input::Replied(_) => InputKind::Replied,
            Input::AttemptFailed(_) => InputKind::AttemptFailed,
            Input::Reported(Report { cause: ReportCause::Tool, .. }) => InputKind::ToolResult,
            Input::Reported(Report { cause: ReportCause::Deadline, .. }) => InputKind::Timeout,
            Input::LeaseEnded(_) => InputKind::LeaseEnded,
            Input::Cut { .. } => InputKind::Cut,
            Input::Heartbeat => InputKind::Heartbeat,
            Input::Stopped { .. } => InputKind::Stop,
            Input::OwnerChanged(_) => InputKind::OwnerChanged,
            Input::Panicked => InputKind::Panicked,
            Input::Answered(_) => InputKind::Answer,
        }
    }

    /// The call the input is about.
    pub fn call(&self) -> Option<CallNumber> {
        match self {
            Input::Reported(report) => Some(report.call),
            Input::LeaseEnded(call) => Some(*call),
            Input::Answered(decision) => decision.call(),
            Input::Entered(_)
            | Input::Reasoned { .. }
            | Input::Replied(_)
            | Input::AttemptFailed(_)
            | Input::Cut { .. }
            | Input::Heartbeat
            | Input::Stopped { .. }
            | Input::OwnerChanged(_)
            | Input::Panicked => None,
        }
    }
}

/// How a run begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Opening {
    /// The model is asked.
    #[default]
    Ask,
    /// A person's action: this call is made, and nothing else.
    Act(RequestedCall),
    /// Calls that an earlier run of the conversation left behind, by the numbers they had there, are made first.
    InheritCalls(Vec<(CallNumber, RequestedCall)>),
}

/// Words, and the pieces they were announced in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamedText {
    /// The words.
    pub text: String,
    /// Their boundaries; none if nothing was announced before the end.
    pub chunks: ChunkLengths,
}

impl StreamedText {
    /// Whether not even a sign of life was announced.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.chunks.is_empty()
    }
}

/// What a lost owner left of a model call. Nothing, if it was not in the middle of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LostModelCall {
    /// What was announced and stands in no item yet.
    pub streamed: StreamedText,
    /// Tokens of the call, estimated.
    pub lost: u64,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    #[default]
    Done,
    /// It had used up the tokens it was given.
    OutOfTokens,
    /// Its provider would not let it go on.
    Filtered,
}

impl Finish {
    pub(crate) fn is_done(&self) -> bool {
        *self == Finish::Done
    }
}

/// A model's whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What it thought before it spoke, as far as that is not on record.
    pub reasoning: Vec<Reasoning>,
    /// What it streamed.
    pub text: String,
    /// The pieces in which that was announced.
    pub chunks: ChunkLengths,
    /// Why it stopped.
    pub finish: Finish,
    /// What it thought between its words and its calls.
    pub afterthoughts: Vec<Reasoning>,
    /// What it wants called, in its order.
    pub calls: Vec<RequestedCall>,
    /// Tokens used.
    pub usage: Usage,
    /// Tokens that nobody told, estimated: of a call of the same try that came to nothing.
    pub lost: u64,
    /// What else is known of the model call.
    pub model: ReplyFacts,
}

impl Reply {
    /// What it used up.
    pub fn spent(&self) -> Spent {
        Spent { usage: self.usage, lost: self.lost }
    }
}

/// A call as the model wrote it: nothing of it is trusted yet.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedCall {
    /// The provider's own id, sent back to it with the result.
    pub provider_id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments, which should be JSON.
    pub arguments: String,
}

/// Why a try of the model call gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// A code for machines.
    pub code: String,
    /// What went wrong, as far as APIs tell causes apart.
    pub cause: FailureCause,
    /// A sentence for people.
    pub message: String,
    /// The pause that the provider asked for.
    pub retry_after_ms: Option<u64>,
    /// When to try again; `None` if trying again is of no use.
    pub retry_at: Option<Timestamp>,
    /// The model that the next try turns to, if it is another one of the same name.
    pub fallback: Option<String>,
    /// Tokens used up all the same.
    pub spent: Spent,
    /// What was announced so far and stands in no item yet.
    pub streamed: StreamedText,
}

/// A call's result, whose content is stored already.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whose result.
    pub call: CallNumber,
    /// Who says so.
    pub cause: ReportCause,
    /// How it ended.
    pub status: TaskStatus,
    /// The content.
    pub item: ItemId,
    /// What should follow, if the report says.
    pub after: Option<AfterExecution>,
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCause {
    /// The tool.
    Tool,
    /// The call's deadline.
    Deadline,
}

/// What a person decides about something parked.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The call did run: this is its result.
    Record {
        /// Which call.
        call: CallNumber,
        /// How it ended.
        status: TaskStatus,
        /// The content of its result.
        item: ItemId,
    },
    /// The call did not run, or may run again.
    Release {
        /// Which call.
        call: CallNumber,
    },
    /// The model is told that the outcome is unknown.
    Tell {
        /// Which call.
        call: CallNumber,
    },
    /// The whole run may go on.
    Unpark,
}

impl Decision {
    fn call(&self) -> Option<CallNumber> {
        match self {
            Decision::Record { call, .. } | Decision::Release { call } | Decision::Tell { call } => Some(*call),
            Decision::Unpark => None,
        }
    }
}

/// New content a step made. It is stored with the commit and never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    /// Its id.
    pub id: ItemId,
    /// What it is.
    pub kind: crate::content::ItemKind,
    /// The bytes: JSON, kept as they came.
    pub content: Bytes,
}
