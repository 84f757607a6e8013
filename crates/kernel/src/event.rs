//! The journal of a run: append-only, densely numbered events. They hold pointers, numbers and times, never content.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    budget::{Below, Breach, BudgetKind, RaisedBudget, Usage, is_zero},
    chunks::ChunkLengths,
    facts::{CallerSpan, ReplyFacts},
    failure::{FailureCause, FailureCode},
    ids::{CallNumber, ItemId, Timestamp},
    input::Finish,
    interrupt::{Interrupt, Verdict},
    manifest::AfterExecution,
    run::{BoxRange, OpenCall, Origin, ParentCall, ParkReason, Purpose, is_false},
};

/// An entry of the journal. The state of a run is the fold of its events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A request was accepted: number 0 of every journal.
    Accepted {
        /// What started the run.
        origin: Origin,
        /// The items that the run may read.
        context: BoxRange,
        /// The box that the run writes to.
        output: BoxRange,
        /// The trace span of the request, if it named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<CallerSpan>,
        /// The call of another run that this run answers, if it is a child run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Box<ParentCall>>,
    },
    /// A worker entered the run, which is now the active run of its head.
    Leased,
    /// An iteration started and a model call is outstanding. The results of the iteration before are in the output box.
    #[serde(rename = "lap_started")]
    IterationStarted {
        /// The number of the iteration, from 1.
        iteration: u32,
        /// What the model is asked for.
        #[serde(default, skip_serializing_if = "Purpose::is_reply")]
        purpose: Purpose,
        /// When it started.
        at: Timestamp,
    },
    /// A person's action started its only iteration, which has a call and no model call.
    ActionStarted {
        /// When it started.
        at: Timestamp,
        /// The call, whose content is the next item of the output box.
        call: OpenCall,
    },
    /// Calls that an earlier run of the conversation did not make are made, before the model is asked.
    #[serde(rename = "calls_taken")]
    CallsInherited {
        /// When they were made.
        at: Timestamp,
        /// The calls, whose contents are the next items of the output box.
        calls: Vec<OpenCall>,
        /// Whether the earlier run was tainted, which taints this one.
        #[serde(default, skip_serializing_if = "is_false")]
        tainted: bool,
    },
    /// A streamed reply was cut off and the model did not continue it: the text is kept in the output box as a truncated message.
    Cut {
        /// The iteration of the reply.
        iteration: u32,
        /// How many items went into the output box.
        items: u32,
        /// The lengths of the chunks in which the text was streamed.
        #[serde(rename = "pieces", default, skip_serializing_if = "ChunkLengths::is_empty")]
        chunks: ChunkLengths,
        /// Whether the model is asked to continue in another message.
        resumes: bool,
        /// Tokens of the attempt that did not continue the text.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// An estimate of its tokens that the provider did not report.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
    },
    /// Nothing happened for a while, and a reader follows the run: the reader gets a heartbeat.
    #[serde(rename = "quiet")]
    Heartbeat,
    /// An attempt of the model call failed. Another one is outstanding unless it would be of no use.
    AttemptFailed {
        /// The error code.
        code: FailureCode,
        /// The cause, as far as APIs distinguish causes.
        #[serde(default, skip_serializing_if = "FailureCause::is_other")]
        cause: FailureCause,
        /// The pause that the provider asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// The earliest start of the next attempt. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
        /// Tokens that the attempt used.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// An estimate of its tokens that the provider did not report.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
        /// The model of the next attempt, if it is another one with the same configured name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback: Option<String>,
    },
    /// The model finished reasoning and is about to write: its reasoning is in the output box, as one item.
    Reasoned {
        /// The iteration of the reply.
        iteration: u32,
        /// The heartbeats that were streamed before.
        #[serde(rename = "pieces", default, skip_serializing_if = "ChunkLengths::is_empty")]
        chunks: ChunkLengths,
    },
    /// The prompt is too long for the model: the model is asked for a summary first. With each attempt it reads less.
    Compacting {
        /// The iteration that needs the summary.
        iteration: u32,
    },
    /// The conversation so far was summarised: the summary is the next item of the output box, and the model is asked again.
    Compacted {
        /// The iteration that needed the summary.
        iteration: u32,
        /// Tokens of the call that made the summary.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// The heartbeats that were streamed meanwhile.
        #[serde(rename = "pieces", default, skip_serializing_if = "ChunkLengths::is_empty")]
        chunks: ChunkLengths,
        /// What is known of that model call besides its tokens.
        #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
        model: ReplyFacts,
    },
    /// The model answered. If it requested calls, the run waits for their results.
    Replied {
        /// The iteration of the reply.
        iteration: u32,
        /// How many items of the reply went into the output box.
        items: u32,
        /// Tokens of the model call.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// An estimate of unreported tokens: those of an earlier call of this attempt that did not continue the streamed text.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
        /// The lengths of the chunks in which its text was streamed.
        #[serde(rename = "pieces", default, skip_serializing_if = "ChunkLengths::is_empty")]
        chunks: ChunkLengths,
        /// Why the model stopped.
        #[serde(default, skip_serializing_if = "Finish::is_done")]
        finish: Finish,
        /// What is known of the model call besides its tokens.
        #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
        model: ReplyFacts,
        /// The calls that it requested.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<OpenCall>,
    },
    /// A result was recorded for a call of the current iteration.
    Reported {
        /// The call that the result belongs to.
        call: CallNumber,
        /// How the call ended.
        status: TaskStatus,
        /// The item with the content.
        item: ItemId,
        /// What follows the result.
        #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
        after: AfterExecution,
        /// What the child run and the runs below it used, if it is the result of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<Box<Below>>,
    },
    /// The child run that a call starts is on record.
    ChildBegun {
        /// The call.
        call: CallNumber,
    },
    /// A tool reported a failure, and the call is repeated under its number after a pause. The model does not read the failure.
    CallRetried {
        /// The call.
        call: CallNumber,
        /// The number of the repetition, from 1.
        retry: u32,
        /// The earliest start of the repetition.
        at: Timestamp,
        /// The item with the failure.
        item: ItemId,
    },
    /// The lease of the tool service that had claimed the call ended without a result. The call can be claimed again.
    LeaseEnded {
        /// The call that can be claimed again.
        call: CallNumber,
    },
    /// A person must decide something.
    Interrupted(Interrupt),
    /// A person approved a call that more people must approve.
    Approved {
        /// The number of the interrupt.
        #[serde(rename = "n")]
        interrupt: u64,
        /// Who approved it.
        by: Arc<str>,
    },
    /// A person changed the arguments of a held call. The new call is the next item of the output box, and what others must have seen.
    Edited {
        /// The number of the interrupt.
        #[serde(rename = "n")]
        interrupt: u64,
        /// The call.
        call: CallNumber,
        /// The item with the new arguments.
        item: ItemId,
        /// Who changed them, which counts as an approval. Earlier approvals count no more.
        by: Arc<str>,
    },
    /// An interrupt was closed.
    Resolved {
        /// The number of the interrupt.
        #[serde(rename = "n")]
        interrupt: u64,
        /// The call that it held. Absent if it held the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallNumber>,
        /// How it was closed.
        verdict: Verdict,
        /// Who decided. Absent if the deadline of the interrupt passed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
        /// The new deadline of the call, if it may start now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The new limit of the budget that the run waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raised: Option<RaisedBudget>,
        /// How long the run has waited for people, if it waits for none any more. A raised budget has the time itself.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// What versions before interrupts wrote when a call's outcome was unknown.
    CallParked {
        /// The parked call.
        call: CallNumber,
    },
    /// A call that waited for a higher limit, or for the pause before its repetition, may start under a new deadline. Versions before interrupts also wrote it when a person allowed a
    /// call to run again.
    CallReleased {
        /// The released call.
        call: CallNumber,
        /// Its new deadline.
        deadline: Timestamp,
    },
    /// What versions before interrupts wrote when the whole run had to wait for a person.
    Parked {
        /// Why it is parked.
        reason: ParkReason,
    },
    /// What versions before interrupts wrote when a person allowed the run to continue.
    Unparked,
    /// Another process owns the run, because the owner was lost.
    #[serde(rename = "taken_over")]
    OwnerChanged {
        /// An estimate of the tokens of the model call that was lost with the owner.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
    },
    /// An input changed nothing. It is recorded with the reason.
    Ignored {
        /// The kind of the input.
        input: InputKind,
        /// The call it was about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallNumber>,
        /// Why the input changed nothing.
        reason: IgnoreReason,
    },
    /// An instruction for the active run arrived. The next iteration begins with it; until then it is in no box.
    Steered {
        /// The instruction.
        item: ItemId,
    },
    /// Continuing would have exceeded a budget.
    BudgetBreached {
        /// The budget, its limit and what was observed.
        #[serde(flatten)]
        breach: Breach,
    },
    /// The run has ended. Its deliverable is the last item of the output box.
    Ended {
        /// The status of the task event.
        status: TaskStatus,
        /// Why the run ended.
        reason: EndReason,
    },
}

impl Event {
    /// The name of the kind in the journal: the field `kind` of the serialised form.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Accepted { .. } => "accepted",
            Event::Leased => "leased",
            Event::IterationStarted { .. } => "lap_started",
            Event::ActionStarted { .. } => "action_started",
            Event::CallsInherited { .. } => "calls_taken",
            Event::Cut { .. } => "cut",
            Event::Heartbeat => "quiet",
            Event::AttemptFailed { .. } => "attempt_failed",
            Event::Reasoned { .. } => "reasoned",
            Event::Compacting { .. } => "compacting",
            Event::Compacted { .. } => "compacted",
            Event::Replied { .. } => "replied",
            Event::Reported { .. } => "reported",
            Event::ChildBegun { .. } => "child_begun",
            Event::CallRetried { .. } => "call_retried",
            Event::LeaseEnded { .. } => "lease_ended",
            Event::Interrupted(_) => "interrupted",
            Event::Approved { .. } => "approved",
            Event::Edited { .. } => "edited",
            Event::Resolved { .. } => "resolved",
            Event::CallParked { .. } => "call_parked",
            Event::CallReleased { .. } => "call_released",
            Event::Parked { .. } => "parked",
            Event::Unparked => "unparked",
            Event::OwnerChanged { .. } => "taken_over",
            Event::Ignored { .. } => "ignored",
            Event::Steered { .. } => "steered",
            Event::BudgetBreached { .. } => "budget_breached",
            Event::Ended { .. } => "ended",
        }
    }
}

/// How a call or a run ended, in the terms of the agents API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It ended as it should.
    Success,
    /// It ended with an error.
    Failed,
    /// A client or a person stopped it.
    Canceled,
    /// Its deadline passed.
    Timeout,
    /// It has a result, but not a complete one.
    Partial,
}

impl TaskStatus {
    /// The status as stores and APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Success => "success",
            TaskStatus::Failed => "failed",
            TaskStatus::Canceled => "canceled",
            TaskStatus::Timeout => "timeout",
            TaskStatus::Partial => "partial",
        }
    }

    /// The status that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Canceled, TaskStatus::Timeout, TaskStatus::Partial]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// Why a run has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered, or handed in its result.
    Answered,
    /// A tool's result ended it.
    Terminated,
    /// The client has to make calls that the model requested.
    RequiresAction,
    /// The model stopped before its reply was complete.
    CutShort(Finish),
    /// A budget was used up.
    Budget(BudgetKind),
    /// The model could not be called. The text is the error code.
    ModelFailed(FailureCode),
    /// A client or a person stopped it.
    Stopped,
    /// Its stored rows could not be read, and a person gave it up.
    Abandoned,
}

impl EndReason {
    /// The name of the reason, without its details.
    pub fn kind(&self) -> &'static str {
        match self {
            EndReason::Answered => "answered",
            EndReason::Terminated => "terminated",
            EndReason::RequiresAction => "requires_action",
            EndReason::CutShort(_) => "cut_short",
            EndReason::Budget(_) => "budget",
            EndReason::ModelFailed(_) => "model_failed",
            EndReason::Stopped => "stopped",
            EndReason::Abandoned => "abandoned",
        }
    }
}

/// The kinds of input, for the record of an ignored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A worker entered the run.
    Entered,
    /// The model finished reasoning.
    Reasoned,
    /// The model replied.
    Replied,
    /// An attempt of the model call failed.
    AttemptFailed,
    /// A tool reported a result.
    ToolResult,
    /// The deadline of a call passed.
    Timeout,
    /// The lease of a tool service ended.
    LeaseEnded,
    /// A streamed reply was cut off.
    Cut,
    /// A heartbeat.
    #[serde(rename = "quiet")]
    Heartbeat,
    /// A request to stop the run.
    Stop,
    /// Another process took the run over.
    #[serde(rename = "taken_over")]
    OwnerChanged,
    /// A step or an executor panicked.
    Panicked,
    /// A person's decision.
    Answer,
    /// The deadline of an interrupt passed.
    InterruptTimeout,
    /// An instruction for the active run.
    Steer,
    /// The pause before a repetition of a call is over.
    RetryDue,
    /// A child run is on record.
    ChildBegun,
}

/// Why an input changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoreReason {
    /// The run has ended.
    AlreadyEnded,
    /// The call has its result already.
    AlreadyReported,
    /// The call does not belong to the current iteration.
    NotWaiting,
    /// A run in its present phase does not take such an input.
    OutOfPhase,
    /// Nothing waits for this decision.
    NotParked,
    /// The person saw another item than the one that waits for the decision.
    NotShown,
    /// The decision does not fit the cause of the interrupt.
    UnfitDecision,
    /// The same person has approved already.
    AlreadyApproved,
    /// The new limit is below what was used.
    RaisedTooLittle,
    /// The call is held and was never started.
    Held,
    /// The run asks no model again, so that nothing would read the instruction.
    NotSteerable,
    /// Too many instructions wait for the next iteration already.
    TooManyInstructions,
}
