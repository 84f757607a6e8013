//! What can happen to a run from outside the kernel.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    budget::{Below, Spent, Usage},
    chunks::ChunkLengths,
    content::{ClientApproval, Reasoning},
    event::{InputKind, TaskStatus},
    facts::ReplyFacts,
    failure::{FailureCause, FailureCode},
    header::ItemHeader,
    ids::{CallNumber, ItemId, Timestamp},
    manifest::AfterExecution,
};

/// Something that happened outside the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A worker entered a run that its agent is leased to.
    Entered(Opening),
    /// The model finished reasoning and is about to write.
    Reasoned {
        /// The pieces of reasoning, in order.
        reasoning: Vec<Reasoning>,
        /// The heartbeats that were streamed before.
        chunks: ChunkLengths,
    },
    /// The model answered.
    Replied(Reply),
    /// An attempt of the model call failed.
    AttemptFailed(Failure),
    /// A call has a result, or its deadline passed without one.
    Reported(Report),
    /// The child run that the call starts is on record.
    ChildBegun(CallNumber),
    /// The lease of the tool service that had claimed the call ended without a result.
    LeaseEnded(CallNumber),
    /// An attempt did not repeat the text that an earlier attempt had streamed. The streamed text stays, and the model continues in another
    /// message.
    Cut {
        /// The text that was streamed before.
        streamed: StreamedText,
        /// What the attempt used that did not repeat the text.
        spent: Spent,
    },
    /// A reader follows the run and gets a heartbeat.
    Heartbeat,
    /// A client or a person wants the run to end.
    Stopped {
        /// The reason, as the client gave it. May be empty.
        reason: String,
        /// Streamed text that is in no item yet.
        streamed: StreamedText,
    },
    /// The run has another owner than before.
    OwnerChanged(LostModelCall),
    /// A step or an executor of the run panicked.
    Panicked,
    /// A person decided about an interrupt.
    Answered(Answer),
    /// The deadline of the interrupt with this number passed.
    InterruptTimedOut(u64),
    /// A client gave the active run another instruction, which is stored already.
    Steered(ItemId),
    /// The pause before the repetition of a call is over.
    RetryDue(CallNumber),
}

impl Input {
    /// A takeover from an owner that had no model call in progress.
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
            Input::Reported(Report { cause: ReportCause::Tool | ReportCause::Server, .. }) => InputKind::ToolResult,
            Input::Reported(Report { cause: ReportCause::Deadline, .. }) => InputKind::Timeout,
            Input::LeaseEnded(_) => InputKind::LeaseEnded,
            Input::ChildBegun(_) => InputKind::ChildBegun,
            Input::Cut { .. } => InputKind::Cut,
            Input::Heartbeat => InputKind::Heartbeat,
            Input::Stopped { .. } => InputKind::Stop,
            Input::OwnerChanged(_) => InputKind::OwnerChanged,
            Input::Panicked => InputKind::Panicked,
            Input::Answered(_) => InputKind::Answer,
            Input::InterruptTimedOut(_) => InputKind::InterruptTimeout,
            Input::Steered(_) => InputKind::Steer,
            Input::RetryDue(_) => InputKind::RetryDue,
        }
    }

    /// The call that the input is about.
    pub fn call(&self) -> Option<CallNumber> {
        match self {
            Input::Reported(report) => Some(report.call),
            Input::LeaseEnded(call) | Input::ChildBegun(call) | Input::RetryDue(call) => Some(*call),
            Input::Entered(_)
            | Input::Reasoned { .. }
            | Input::Replied(_)
            | Input::AttemptFailed(_)
            | Input::Cut { .. }
            | Input::Heartbeat
            | Input::Stopped { .. }
            | Input::OwnerChanged(_)
            | Input::Panicked
            | Input::Answered(_)
            | Input::InterruptTimedOut(_)
            | Input::Steered(_) => None,
        }
    }
}

/// How a run begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Opening {
    /// The model is asked.
    #[default]
    Ask,
    /// A person's action: this call is made, and no model is asked.
    Act(RequestedCall),
    /// Calls that an earlier run of the conversation did not make are made first.
    InheritCalls(Vec<InheritedCall>),
}

/// A call that an earlier run of the conversation did not make.
#[derive(Clone, Debug, PartialEq)]
pub struct InheritedCall {
    /// Its number in that run.
    pub number: CallNumber,
    /// The call as the model requested it.
    pub requested: RequestedCall,
    /// The client's answer, if that run asked the client to approve the call.
    pub approval: Option<ClientApproval>,
    /// Whether that run was tainted.
    pub tainted: bool,
}

/// Streamed text, and the lengths of the chunks in which it was streamed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamedText {
    /// The text.
    pub text: String,
    /// The lengths of the chunks; empty if nothing was streamed.
    pub chunks: ChunkLengths,
}

impl StreamedText {
    /// Whether nothing was streamed, not even a heartbeat.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.chunks.is_empty()
    }
}

/// What is known of the model call of a lost owner. The default, if the owner had no model call in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LostModelCall {
    /// Streamed text that is in no item yet.
    pub streamed: StreamedText,
    /// An estimate of the call's tokens.
    pub lost: u64,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The reply is complete.
    #[default]
    Done,
    /// The model had used up the tokens that it was given.
    OutOfTokens,
    /// The provider's content filter ended the reply.
    Filtered,
}

impl Finish {
    pub(crate) fn is_done(&self) -> bool {
        *self == Finish::Done
    }
}

/// The whole reply of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Reasoning before the text, without the part that is in an item already.
    pub reasoning: Vec<Reasoning>,
    /// The text that the model streamed.
    pub text: String,
    /// The lengths of the chunks in which the text was streamed.
    pub chunks: ChunkLengths,
    /// Why the model stopped.
    pub finish: Finish,
    /// Reasoning between the text and the calls.
    pub afterthoughts: Vec<Reasoning>,
    /// The calls that the model requests, in its order.
    pub calls: Vec<RequestedCall>,
    /// Tokens of the call.
    pub usage: Usage,
    /// Estimated tokens of an earlier model call in this attempt, which failed and whose provider reported nothing.
    pub lost: u64,
    /// What else is known of the model call.
    pub model: ReplyFacts,
}

impl Reply {
    /// What the reply used: reported tokens and estimated ones.
    pub fn spent(&self) -> Spent {
        Spent { usage: self.usage, lost: self.lost }
    }
}

/// A call as the model wrote it. Nothing of it has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedCall {
    /// The provider's own id of the call, which it expects back with the result.
    pub provider_id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments, which should be JSON.
    pub arguments: String,
}

/// Why an attempt of the model call gave no reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// A code for programs.
    pub code: FailureCode,
    /// The cause, as far as APIs distinguish causes.
    pub cause: FailureCause,
    /// A sentence for people.
    pub message: String,
    /// The pause that the provider asked for.
    pub retry_after_ms: Option<u64>,
    /// When to make another attempt; `None` if another attempt is of no use.
    pub retry_at: Option<Timestamp>,
    /// The model of the next attempt, if it is another one with the same configured name.
    pub fallback: Option<String>,
    /// What the attempt used although it failed.
    pub spent: Spent,
    /// Streamed text that is in no item yet.
    pub streamed: StreamedText,
}

/// The result of a call, whose content is stored already.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The call that the result belongs to.
    pub call: CallNumber,
    /// The number of the repetition that the result belongs to; 0 is the first try.
    pub retry: u32,
    /// Whether the tool or the call's deadline gave the result.
    pub cause: ReportCause,
    /// How the call ended.
    pub status: TaskStatus,
    /// The item with the content.
    pub item: ItemId,
    /// What follows, if the report says. Otherwise the tool's declaration decides.
    pub after: Option<AfterExecution>,
    /// What the child run used, if it is the result of one.
    pub below: Option<Below>,
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCause {
    /// The tool.
    Tool,
    /// The call's deadline.
    Deadline,
    /// The server that runs the call, in place of the tool: it has no usable answer, and the tool may have run.
    Server,
}

/// A person's answer to an interrupt.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The number of the interrupt.
    pub interrupt: u64,
    /// The item that the person saw.
    pub shows: Option<ItemId>,
    /// The name of the person, for the record and for rules that want several people.
    pub by: Option<Arc<str>>,
    /// The decision.
    pub decision: Decision,
}

/// What a person decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The call may start with the arguments that were shown.
    Approve,
    /// The call may start with the arguments of another item, which a person wrote. It counts as that person's approval.
    Edit {
        /// The item with the call as the person wants it.
        item: ItemId,
    },
    /// The call must not start.
    Reject {
        /// What the model reads about it. May be empty.
        comment: String,
    },
    /// The answer to the model's question: the result of the call.
    Answer {
        /// The item with the answer.
        item: ItemId,
    },
    /// The call did run, and this is its result.
    Record {
        /// How the call ended.
        status: TaskStatus,
        /// The item with the content of its result.
        item: ItemId,
    },
    /// The call did not run, or may run again.
    Release,
    /// The model gets a result that says that the outcome is unknown.
    Tell,
    /// The budget that the run waits for gets this limit.
    Raise {
        /// The new limit, in the unit of the budget.
        limit: u64,
    },
    /// The held run may continue.
    Resume,
    /// The run ends.
    End,
}

/// Content that a step created. It is stored with the commit and never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    /// The id of the item.
    pub id: ItemId,
    /// The kind of the item, which decides the shape of the content.
    pub kind: crate::content::ItemKind,
    /// The content: JSON. Bytes from outside are kept unchanged.
    pub content: Bytes,
    /// What the item is, if its content has the format of an API.
    pub header: Option<ItemHeader>,
}

impl NewItem {
    /// An item with content of the engine's own shape, which needs no header.
    pub fn own(id: ItemId, kind: crate::content::ItemKind, content: Bytes) -> Self {
        NewItem { id, kind, content, header: None }
    }
}
