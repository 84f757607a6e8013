//! The journal: an append-only, densely numbered list of what happened to a run. Pointers, numbers and times; never content.

use serde::{Deserialize, Serialize};

use crate::{
    budget::{Breach, BudgetKind, Usage, is_zero},
    facts::{CallerSpan, ReplyFacts},
    failure::FailureCause,
    ids::{CallNumber, ItemId, Timestamp},
    input::Finish,
    manifest::AfterExecution,
    pieces::Pieces,
    run::{BoxRange, OpenCall, Origin, ParkReason},
};

/// One thing that happened. The state of a run is the fold of these, from the first on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A request was taken: number 0 of every journal.
    Accepted {
        /// What began the run.
        origin: Origin,
        /// What it may read.
        context: BoxRange,
        /// Where it writes.
        output: BoxRange,
        /// The span of the request, if it named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<CallerSpan>,
    },
    /// A worker entered: the agent is this run's now.
    Leased,
    /// A lap began; a model call is owed. The results of the lap before stand in the output box.
    LapStarted {
        /// Which lap, from 1.
        iteration: u32,
        /// When.
        at: Timestamp,
    },
    /// A person's action entered its only lap, which has a call and no model.
    ActionStarted {
        /// When.
        at: Timestamp,
        /// The call, whose content is the output box's next item.
        call: OpenCall,
    },
    /// Calls that an earlier run of the conversation left behind are made here, before the model is asked.
    CallsTaken {
        /// When.
        at: Timestamp,
        /// The calls, whose contents are the output box's next items.
        calls: Vec<OpenCall>,
    },
    /// Words that were announced were not gone on with: they stand in the output box as they are.
    Cut {
        /// In which lap.
        iteration: u32,
        /// How many items went into the output box.
        items: u32,
        /// The pieces in which the words were announced.
        #[serde(default, skip_serializing_if = "Pieces::is_empty")]
        pieces: Pieces,
        /// Whether the model is asked to go on in another message.
        resumes: bool,
        /// Tokens of the try that did not go on with them.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// Its tokens that nobody told, estimated.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
    },
    /// Nothing happened for a while, and somebody reads along.
    Quiet,
    /// A try of the model call failed. Another one is owed, unless it is of no use.
    AttemptFailed {
        /// What went wrong, as a code.
        code: String,
        /// What went wrong, as far as APIs tell causes apart.
        #[serde(default, skip_serializing_if = "FailureCause::is_other")]
        cause: FailureCause,
        /// The pause that the provider asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// The next try waits until then; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
        /// Tokens the try used up all the same.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// Its tokens that nobody told, estimated.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
        /// The model that the next try turns to, if it is another one of the same name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback: Option<String>,
    },
    /// The model thought, and is about to speak: its thoughts stand in the output box, as one item.
    Reasoned {
        /// In which lap.
        iteration: u32,
        /// The signs of life that were announced before.
        #[serde(default, skip_serializing_if = "Pieces::is_empty")]
        pieces: Pieces,
    },
    /// What the model reads is too much for it: it is asked for a summary first, and reads the less the more often it was asked.
    Compacting {
        /// In which lap.
        iteration: u32,
    },
    /// What was said before is summed up: the summary is the output box's next item, and the model is asked again.
    Compacted {
        /// In which lap.
        iteration: u32,
        /// Tokens of the call.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// The signs of life that were announced meanwhile.
        #[serde(default, skip_serializing_if = "Pieces::is_empty")]
        pieces: Pieces,
        /// What else is known of the model call.
        #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
        model: ReplyFacts,
    },
    /// The model answered. With calls, the run waits for their results.
    Replied {
        /// In which lap.
        iteration: u32,
        /// How many items of the reply went into the output box.
        items: u32,
        /// Tokens of the call.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
        /// Tokens that nobody told, estimated: of a call that did not go on with what was announced, before the one that did.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
        /// The pieces in which its words were announced.
        #[serde(default, skip_serializing_if = "Pieces::is_empty")]
        pieces: Pieces,
        /// Why it stopped.
        #[serde(default, skip_serializing_if = "Finish::is_done")]
        finish: Finish,
        /// What else is known of the model call.
        #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
        model: ReplyFacts,
        /// The calls it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<OpenCall>,
    },
    /// A result was taken for a call of the current lap.
    Reported {
        /// Whose result.
        call: CallNumber,
        /// How the call ended.
        status: TaskStatus,
        /// The content.
        item: ItemId,
        /// What follows.
        #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
        after: AfterExecution,
    },
    /// Whoever had claimed the call let go of it without a result; it may be claimed again.
    LeaseEnded {
        /// Which call.
        call: CallNumber,
    },
    /// Nobody knows whether the call took effect, and it must not run twice: a person decides.
    CallParked {
        /// Which call.
        call: CallNumber,
    },
    /// A person let a parked call run once more.
    CallReleased {
        /// Which call.
        call: CallNumber,
        /// Its new deadline.
        deadline: Timestamp,
    },
    /// The whole run waits for a person.
    Parked {
        /// Why.
        reason: ParkReason,
    },
    /// A person let the run go on.
    Unparked,
    /// Another owner goes on where one was lost.
    TakenOver {
        /// Tokens of the model call that was lost with it, estimated.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost: u64,
    },
    /// An input changed nothing, and that is on record.
    Ignored {
        /// Which kind of input.
        input: InputKind,
        /// The call it was about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallNumber>,
        /// Why.
        reason: IgnoreReason,
    },
    /// Going on would have passed a limit.
    BudgetBreached {
        /// Which, and by how much.
        #[serde(flatten)]
        breach: Breach,
    },
    /// The run is over; its deliverable is the last item of the output box.
    Ended {
        /// What the task event says.
        status: TaskStatus,
        /// Why.
        reason: EndReason,
    },
}

impl Event {
    /// The kind as the journal spells it; the `kind` of the serialised form.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Accepted { .. } => "accepted",
            Event::Leased => "leased",
            Event::LapStarted { .. } => "lap_started",
            Event::ActionStarted { .. } => "action_started",
            Event::CallsTaken { .. } => "calls_taken",
            Event::Cut { .. } => "cut",
            Event::Quiet => "quiet",
            Event::AttemptFailed { .. } => "attempt_failed",
            Event::Reasoned { .. } => "reasoned",
            Event::Compacting { .. } => "compacting",
            Event::Compacted { .. } => "compacted",
            Event::Replied { .. } => "replied",
            Event::Reported { .. } => "reported",
            Event::LeaseEnded { .. } => "lease_ended",
            Event::CallParked { .. } => "call_parked",
            Event::CallReleased { .. } => "call_released",
            Event::Parked { .. } => "parked",
            Event::Unparked => "unparked",
            Event::TakenOver { .. } => "taken_over",
            Event::Ignored { .. } => "ignored",
            Event::BudgetBreached { .. } => "budget_breached",
            Event::Ended { .. } => "ended",
        }
    }
}

/// How a call or a run came out, in the turn machine's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// As it should.
    Success,
    /// With an error.
    Failed,
    /// Somebody called it off.
    Canceled,
    /// The time was up.
    Timeout,
    /// Something, but not all.
    Partial,
}

impl TaskStatus {
    /// The status as it is spelled everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Success => "success",
            TaskStatus::Failed => "failed",
            TaskStatus::Canceled => "canceled",
            TaskStatus::Timeout => "timeout",
            TaskStatus::Partial => "partial",
        }
    }

    /// Reads what `as_str` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Canceled, TaskStatus::Timeout, TaskStatus::Partial]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// Why a run is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered, or handed in its result.
    Answered,
    /// A tool's result was the end.
    Terminated,
    /// The next move is the client's: it runs the calls.
    RequiresAction,
    /// The model stopped before it was done.
    CutShort(Finish),
    /// A budget was used up.
    Budget(BudgetKind),
    /// The model could not be called.
    ModelFailed(String),
    /// Somebody stopped it.
    Stopped,
    /// What is stored of it could not be read, and a person gave it up.
    Abandoned,
}

impl EndReason {
    /// The reason without its details.
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
    /// A worker entered.
    Entered,
    /// The model's thoughts.
    Reasoned,
    /// The model's answer.
    Replied,
    /// A failed try of the model call.
    AttemptFailed,
    /// A tool's result.
    ToolResult,
    /// A deadline.
    Timeout,
    /// The end of a claim.
    LeaseEnded,
    /// The end of words that were announced.
    Cut,
    /// A sign of life.
    Quiet,
    /// A stop.
    Stop,
    /// A new owner.
    TakenOver,
    /// A panic.
    Panicked,
    /// A person's decision.
    Answer,
}

/// Why an input changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoreReason {
    /// The run is over.
    AlreadyEnded,
    /// The call has its result.
    AlreadyReported,
    /// The call is not one of the current lap.
    NotWaiting,
    /// The input belongs to another phase.
    OutOfPhase,
    /// There is nothing for a person to decide.
    NotParked,
}
