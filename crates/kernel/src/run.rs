//! The folded state of one run: what its journal amounts to, and nothing that is not in it.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Usage,
    event::{EndReason, TaskStatus},
    facts::{CallerSpan, ReplyFacts},
    ids::{BoxId, CallNumber, ItemId, Timestamp, ToolName},
    manifest::{AfterExecution, EffectClass, Route},
};

/// A run, as folding its journal gives it. Small whatever its age: open calls only, boxes as pointers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Where the run is.
    pub phase: Phase,
    /// What began it.
    pub origin: Origin,
    /// Laps begun. Suspending, resuming and crashing leave it alone.
    pub iteration: u32,
    /// The journal's next number.
    pub next_number: u64,
    /// Calls made so far; the next one's number is one more.
    pub calls_used: u32,
    /// What the run was given to read, and how much of it.
    pub context: BoxRange,
    /// Where the run writes, and how much stands there.
    pub output: BoxRange,
    /// Tokens used, as providers told them, failed attempts included.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// Tokens of attempts that failed or were lost before their provider had told them, estimated. They count against the budget.
    #[serde(default, skip_serializing_if = "crate::budget::is_zero")]
    pub lost: u64,
    /// What is known of the model call that gave the last reply.
    #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
    pub model: ReplyFacts,
    /// The span of the request that began the run, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerSpan>,
    /// When the first lap began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Owners lost since the run last got anywhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub takeovers: u32,
    /// How often the model was asked for a summary that it has not given yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacting: u32,
    /// The lap in which the model last gave a summary.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted_in: u32,
    /// Why the whole run waits for a person, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkReason>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What began a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// An enqueued turn: the model is asked first.
    Turn,
    /// A person's action: one tool is called, its result is the deliverable.
    Action,
}

/// The first so many items of a box, parents included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BoxRange {
    /// The box.
    #[serde(rename = "box")]
    pub id: BoxId,
    /// How many of its own items.
    pub length: u32,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Accepted; no worker has entered.
    Accepted,
    /// A model call for the current iteration is owed.
    Thinking {
        /// Which try of this lap's model call it is, from 1.
        attempt: u32,
        /// It must not start before this moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
    /// These calls were made and are not all answered. Their results are applied together, in this order.
    Waiting {
        /// The calls of the lap.
        calls: Vec<OpenCall>,
    },
    /// Over. Nothing changes any more.
    Ended {
        /// What the task event says.
        status: TaskStatus,
        /// Why it is over.
        reason: EndReason,
    },
}

/// A call of the current lap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenCall {
    /// Its number in the run.
    pub call: CallNumber,
    /// What is called.
    pub tool: ToolName,
    /// Who runs it.
    pub route: Route,
    /// What a second start would do.
    pub effect: EffectClass,
    /// What its result leads to, as the tool is declared.
    #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
    pub after: AfterExecution,
    /// When its result is given up.
    pub deadline: Timestamp,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Progress::is_open")]
    pub progress: Progress,
}

/// How far a call of the current lap is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// No result yet.
    #[default]
    Open,
    /// Nobody knows whether it ran: a person decides.
    Parked,
    /// The result is here, to be applied with the others of its lap.
    Received {
        /// The result's content.
        item: ItemId,
        /// How the call ended.
        status: TaskStatus,
        /// What follows, the result's own wish included.
        #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
        after: AfterExecution,
    },
}

impl Progress {
    /// Whether there is no result yet and nobody needs to decide.
    pub(crate) fn is_open(&self) -> bool {
        *self == Progress::Open
    }
}

/// Why a whole run waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// It took its worker down time after time without getting anywhere.
    OwnersLost,
    /// A step or an executor of it panicked.
    Panicked,
}

/// The four states a head can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStatus {
    /// No active run.
    Idle,
    /// Leased; no worker has entered.
    Dispatched,
    /// A worker owns it: reasoning, or starting tools.
    Running,
    /// Waiting for results or a person.
    Suspended,
}

impl HeadStatus {
    /// The status as stores and doors spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            HeadStatus::Idle => "idle",
            HeadStatus::Dispatched => "dispatched",
            HeadStatus::Running => "running",
            HeadStatus::Suspended => "suspended",
        }
    }

    /// Reads what `as_str` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        [HeadStatus::Idle, HeadStatus::Dispatched, HeadStatus::Running, HeadStatus::Suspended]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

impl Run {
    /// What of a run that is over others go on from. The last item is its deliverable: where the model's own words are not it, it says
    /// something about the run instead.
    pub fn said(&self) -> Option<BoxRange> {
        let Phase::Ended { reason, .. } = &self.phase else { return None };
        let length = match reason {
            EndReason::Answered | EndReason::CutShort(_) => self.output.length,
            EndReason::Terminated
            | EndReason::RequiresAction
            | EndReason::Budget(_)
            | EndReason::ModelFailed(_)
            | EndReason::Stopped
            | EndReason::Abandoned => self.output.length.saturating_sub(1),
        };
        Some(BoxRange { id: self.output.id, length })
    }

    /// Tokens that count against the budget.
    pub fn tokens(&self) -> u64 {
        self.usage.total().saturating_add(self.lost)
    }

    /// Whether the run is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether the run failed because its first model call did, before it produced anything: its only item is the deliverable that
    /// says so.
    pub fn has_failed_without_output(&self) -> bool {
        let has_failed = matches!(&self.phase, Phase::Ended { reason: EndReason::ModelFailed(_), .. });
        has_failed && self.iteration <= 1 && self.calls_used == 0 && self.output.length <= 1
    }

    /// Whether a person has to decide before it, or one of its calls, goes on.
    pub fn has_parked(&self) -> bool {
        self.parked.is_some() || self.calls().iter().any(|call| call.progress == Progress::Parked)
    }

    /// What the head of the run's agent shows while this run is the active one.
    pub fn head_status(&self) -> HeadStatus {
        match &self.phase {
            Phase::Ended { .. } => HeadStatus::Idle,
            _ if self.parked.is_some() => HeadStatus::Suspended,
            Phase::Accepted => HeadStatus::Dispatched,
            Phase::Thinking { .. } => HeadStatus::Running,
            Phase::Waiting { .. } => HeadStatus::Suspended,
        }
    }

    /// The calls of the current lap.
    pub fn calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Waiting { calls } => calls,
            Phase::Accepted | Phase::Thinking { .. } | Phase::Ended { .. } => &[],
        }
    }

    /// The current lap's call of that number.
    pub fn call(&self, number: CallNumber) -> Option<&OpenCall> {
        self.calls().iter().find(|call| call.call == number)
    }

    /// How many results are awaited: the turn machine's `waiting_tool_count`.
    pub fn waiting_count(&self) -> usize {
        self.calls().iter().filter(|call| !call.is_received()).count()
    }

    /// When the next wait is given up: the turn machine's `resume_deadline`. A parked call has none.
    pub fn resume_deadline(&self) -> Option<Timestamp> {
        let open = self.calls().iter().filter(|call| call.progress == Progress::Open);
        open.map(|call| call.deadline).min().filter(|_| self.parked.is_none())
    }

    /// When somebody has to look at this run even if nothing arrives.
    pub fn wake_at(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Thinking { not_before, .. } => not_before.filter(|_| self.parked.is_none()),
            Phase::Waiting { .. } => self.resume_deadline(),
            Phase::Accepted | Phase::Ended { .. } => None,
        }
    }

    /// The calls whose deadline has passed.
    pub fn expired(&self, now: Timestamp) -> Vec<CallNumber> {
        let open = self.calls().iter().filter(|call| call.progress == Progress::Open);
        open.filter(|call| self.parked.is_none() && call.deadline <= now).map(|call| call.call).collect()
    }
}

impl OpenCall {
    /// Whether the result is here.
    pub fn is_received(&self) -> bool {
        matches!(self.progress, Progress::Received { .. })
    }
}
