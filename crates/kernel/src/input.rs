//! What can happen to a run from outside the kernel.

use bytes::Bytes;

use crate::{
    budget::Usage,
    event::{InputKind, TaskStatus},
    ids::{CallNumber, ItemId, Timestamp},
    manifest::AfterExecution,
};

/// One thing that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A worker entered a leased run. An action brings its call along.
    Entered(Option<RequestedCall>),
    /// The model answered.
    Replied(Reply),
    /// A try of the model call failed.
    AttemptFailed(Failure),
    /// A result, or the deadline that stands for one.
    Reported(Report),
    /// A claimed call's lease ended without a result.
    LeaseEnded(CallNumber),
    /// Somebody wants the run to end.
    Stopped {
        /// Why, in their words.
        reason: String,
    },
    /// The run has another owner than before.
    TakenOver,
    /// A step or an executor of the run panicked.
    Panicked,
    /// A person decided about something parked.
    Answered(Decision),
}

impl Input {
    /// The kind, for the record of an ignored input.
    pub fn kind(&self) -> InputKind {
        match self {
            Input::Entered(_) => InputKind::Entered,
            Input::Replied(_) => InputKind::Replied,
            Input::AttemptFailed(_) => InputKind::AttemptFailed,
            Input::Reported(Report { cause: ReportCause::Tool, .. }) => InputKind::ToolResult,
            Input::Reported(Report { cause: ReportCause::Deadline, .. }) => InputKind::Timeout,
            Input::LeaseEnded(_) => InputKind::LeaseEnded,
            Input::Stopped { .. } => InputKind::Stop,
            Input::TakenOver => InputKind::TakenOver,
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
            | Input::Replied(_)
            | Input::AttemptFailed(_)
            | Input::Stopped { .. }
            | Input::TakenOver
            | Input::Panicked => None,
        }
    }
}

/// A model's whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What it said.
    pub text: String,
    /// What it wants called, in its order.
    pub calls: Vec<RequestedCall>,
    /// Tokens used.
    pub usage: Usage,
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
    /// A sentence for people.
    pub message: String,
    /// When to try again; `None` if trying again is of no use.
    pub retry_at: Option<Timestamp>,
    /// Tokens used up all the same.
    pub usage: Usage,
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
