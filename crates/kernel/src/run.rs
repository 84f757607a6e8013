//! The state of one run: the fold of its journal, and nothing else.

use serde::{Deserialize, Serialize};

use crate::{
    budget::{self, Below, Budgets, RaisedLimits, Usage},
    event::{EndReason, TaskStatus},
    facts::{CallerSpan, ReplyFacts},
    ids::{AgentName, BoxId, CallNumber, ItemId, RunId, Timestamp, ToolName},
    interrupt::{Cause, Interrupt},
    manifest::{AfterExecution, EffectClass, Route},
};

/// The state of a run. Its size does not grow with the age of the run: it has open calls only, and boxes as pointers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The phase of the state machine.
    pub phase: Phase,
    /// What started the run.
    pub origin: Origin,
    /// Iterations started. Suspending, resuming and crashes leave it unchanged.
    pub iteration: u32,
    /// The number of the journal's next event.
    pub next_number: u64,
    /// Calls made so far; the next one's number is one more.
    pub calls_used: u32,
    /// The items that the run was given to read.
    pub context: BoxRange,
    /// The box that the run writes to, and its present length.
    pub output: BoxRange,
    /// Tokens used, as providers reported them, failed attempts included.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// An estimate of the tokens of attempts that failed or were lost before their provider reported any. They count against the budget.
    #[serde(default, skip_serializing_if = "crate::budget::is_zero")]
    pub lost: u64,
    /// Facts about the model call that gave the last reply.
    #[serde(default, skip_serializing_if = "ReplyFacts::is_empty")]
    pub model: ReplyFacts,
    /// The trace span of the request that started the run, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerSpan>,
    /// When the first iteration started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Owners lost since the last progress of the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub takeovers: u32,
    /// Attempts for the summary that the model is asked for now. Zero if it is not asked for one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacting: u32,
    /// The iteration in which the model last gave a summary.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted_in: u32,
    /// What waits for a person, in the order in which it began to wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Interrupt>,
    /// Since when something waits for a person, if the journal says. The time does not count as wall time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Limits that people gave the run.
    #[serde(default, skip_serializing_if = "RaisedLimits::is_empty")]
    pub raised: RaisedLimits,
    /// Whether the run has read a result of a tool that is not trusted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tainted: bool,
    /// Instructions that arrived while the run was active and that no model call has read. The next iteration starts with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<ItemId>,
    /// The number of such instructions that the run has got so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steered: u32,
    /// The call of another run that this run answers, if it is a child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentCall>,
    /// Child runs that the run itself asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_used: u32,
    /// What the ended runs below this one used.
    #[serde(default, skip_serializing_if = "Below::is_empty")]
    pub below: Below,
}

/// A call that a child run answers: its end is the result of the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ParentCall {
    /// The run that made the call.
    pub run: RunId,
    /// The key of that run's head.
    pub head: AgentName,
    /// The number of the call in that run.
    pub call: CallNumber,
    /// Whether that run had read results of untrusted tools when it made the call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tainted: bool,
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// An enqueued turn: the model is asked first.
    Turn,
    /// A person's action: one tool is called, and its result is the deliverable.
    Action,
}

/// The first items of a box, with those of its parents before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BoxRange {
    /// The box.
    #[serde(rename = "box")]
    pub id: BoxId,
    /// How many of the box's own items belong to the range.
    pub length: u32,
}

/// The phase of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Accepted; no worker has entered it.
    Accepted,
    /// A model call for the current iteration is owed.
    Thinking {
        /// What the iteration asks the model for. [`Run::model_call`] also knows about a summary that is needed before that.
        #[serde(default, skip_serializing_if = "Purpose::is_reply")]
        purpose: Purpose,
        /// The attempt of the iteration's model call, from 1.
        attempt: u32,
        /// The earliest start of the attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
    /// Calls were made and do not all have results. The results are applied together, in the order of the calls.
    Waiting {
        /// The calls of the iteration.
        calls: Vec<OpenCall>,
    },
    /// The run has ended. Nothing changes any more.
    Ended {
        /// The status of the task event.
        status: TaskStatus,
        /// Why the run ended.
        reason: EndReason,
    },
}

/// What a model call is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The model answers or requests calls.
    #[default]
    Reply,
    /// The model summarises what it would read.
    Summary,
}

impl Purpose {
    /// Whether it is the default, which stored records leave out.
    pub(crate) fn is_reply(&self) -> bool {
        *self == Purpose::Reply
    }
}

/// The identity of a model call within its run: a result counts only for the call that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelCallId {
    /// The iteration that the call belongs to.
    pub iteration: u32,
    /// What the call is for.
    pub purpose: Purpose,
    /// The attempt within the iteration, from 1.
    pub attempt: u32,
}

/// A call of the current iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenCall {
    /// Its number in the run.
    pub call: CallNumber,
    /// The name of the tool.
    pub tool: ToolName,
    /// Who runs the tool.
    pub route: Route,
    /// The effect of starting it twice.
    pub effect: EffectClass,
    /// What follows its result, as the tool declares it.
    #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
    pub after: AfterExecution,
    /// Whether its result taints the run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub untrusted: bool,
    /// When the kernel stops waiting for its result.
    pub deadline: Timestamp,
    /// How often it was repeated after its tool had reported a failure.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry: u32,
    /// The earliest start of the repetition. `None` once it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The run that the call starts, if it is a call of an agent that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Its progress.
    #[serde(default, skip_serializing_if = "Progress::is_open")]
    pub progress: Progress,
}

/// The progress of a call of the current iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// No result yet.
    #[default]
    Open,
    /// The child run is on record: nothing has to be done before it ends.
    Begun,
    /// The result has arrived. It is applied together with the others of the iteration.
    Received {
        /// The result's content.
        item: ItemId,
        /// How the call ended.
        status: TaskStatus,
        /// What follows, as the result asks for it or else as the tool declares it.
        #[serde(default, skip_serializing_if = "AfterExecution::is_suspend")]
        after: AfterExecution,
    },
}

impl Progress {
    /// Whether it is the default, which stored records leave out.
    pub(crate) fn is_open(&self) -> bool {
        *self == Progress::Open
    }
}

/// Why a whole run is parked, in the journals of versions before interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// It lost several owners in a row without progress.
    OwnersLost,
    /// A step or an executor of it panicked.
    Panicked,
}

impl ParkReason {
    /// The cause of the interrupt that such a run has now.
    pub(crate) fn cause(self) -> Cause {
        match self {
            ParkReason::OwnersLost => Cause::OwnersLost,
            ParkReason::Panicked => Cause::Panicked,
        }
    }
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
    /// The part of an ended run's output that follow-up runs build on. The last item of the output is the deliverable; it is left out where it
    /// describes the end of the run and is not text of the model.
    pub fn continuation_range(&self) -> Option<BoxRange> {
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

    /// Tokens that count against the budget: those of the run and of the ended runs below it.
    pub fn tokens(&self) -> u64 {
        self.own_tokens().saturating_add(self.below.tokens())
    }

    /// Tokens of the run without those of runs below it.
    pub fn own_tokens(&self) -> u64 {
        self.usage.total().saturating_add(self.lost)
    }

    /// What the run and the ended runs below it used, as its parent counts it.
    pub fn used(&self, budgets: &Budgets) -> Below {
        let mut used = self.below;
        let own_cost = budget::cost(self, budgets).map_or(0, |cost| cost.saturating_sub(self.below.cost));
        used.add(Below {
            usage: self.usage,
            lost: self.lost,
            calls: self.calls_used,
            children: self.children_used,
            cost: own_cost,
            tainted: self.tainted,
        });
        used
    }

    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether the first model call failed before the run produced anything: its only item is then the deliverable with the error.
    pub fn has_failed_without_output(&self) -> bool {
        let has_failed = matches!(&self.phase, Phase::Ended { reason: EndReason::ModelFailed(_), .. });
        has_failed && self.iteration <= 1 && self.calls_used == 0 && self.output.length <= 1
    }

    /// Whether a person must decide something before the run can end by itself.
    pub fn is_interrupted(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// The open interrupt with this number.
    pub fn interrupt(&self, number: u64) -> Option<&Interrupt> {
        self.interrupts.iter().find(|interrupt| interrupt.number == number)
    }

    /// The open interrupt that holds the whole run.
    pub fn hold(&self) -> Option<&Interrupt> {
        self.interrupts.iter().find(|interrupt| interrupt.call.is_none())
    }

    /// Whether the whole run is held: it is owed no effects until a person decides.
    pub fn is_held(&self) -> bool {
        self.hold().is_some()
    }

    /// The open interrupt that holds this call.
    pub fn call_hold(&self, call: CallNumber) -> Option<&Interrupt> {
        self.interrupts.iter().find(|interrupt| interrupt.call == Some(call))
    }

    /// The calls without a result that nothing holds.
    fn free_calls(&self) -> impl Iterator<Item = &OpenCall> {
        let calls = if self.is_held() { &[] } else { self.calls() };
        calls.iter().filter(|call| self.is_free(call))
    }

    /// Whether a call has no result and no interrupt of its own. It may be in the pause before a repetition.
    pub fn is_free(&self, call: &OpenCall) -> bool {
        !call.is_received() && self.call_hold(call.call).is_none()
    }

    /// The status of the agent's head while this run is the active one.
    pub fn head_status(&self) -> HeadStatus {
        match &self.phase {
            Phase::Ended { .. } => HeadStatus::Idle,
            _ if self.is_held() => HeadStatus::Suspended,
            Phase::Accepted => HeadStatus::Dispatched,
            Phase::Thinking { .. } => HeadStatus::Running,
            Phase::Waiting { .. } => HeadStatus::Suspended,
        }
    }

    /// The model call that the run is owed in its present phase. A held run has one too, which is made once a person has decided.
    pub fn model_call(&self) -> Option<ModelCallId> {
        let Phase::Thinking { purpose, attempt, .. } = self.phase else { return None };
        let purpose = if self.compacting > 0 { Purpose::Summary } else { purpose };
        Some(ModelCallId { iteration: self.iteration, purpose, attempt })
    }

    /// The calls of the current iteration.
    pub fn calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Waiting { calls } => calls,
            Phase::Accepted | Phase::Thinking { .. } | Phase::Ended { .. } => &[],
        }
    }

    /// The call of the current iteration with this number.
    pub fn call(&self, number: CallNumber) -> Option<&OpenCall> {
        self.calls().iter().find(|call| call.call == number)
    }

    /// How many results are awaited: the turn machine's `waiting_tool_count`.
    pub fn waiting_count(&self) -> usize {
        self.calls().iter().filter(|call| !call.is_received()).count()
    }

    /// When the wait ends by itself: the turn machine's `resume_deadline`. It is the earliest deadline of a call that nothing holds, or of
    /// an interrupt, or the end of a pause before a repetition.
    pub fn resume_deadline(&self) -> Option<Timestamp> {
        let interrupts = self.interrupts.iter().filter_map(|interrupt| interrupt.until);
        let calls = self.free_calls().map(|call| call.not_before.unwrap_or(call.deadline));
        calls.chain(interrupts).min().filter(|at| *at < Timestamp::NEVER)
    }

    /// The end of the earliest pause before a repetition of a call.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.free_calls().filter_map(|call| call.not_before).min()
    }

    /// The calls whose pause before a repetition is over.
    pub fn due_retries(&self, now: Timestamp) -> Vec<CallNumber> {
        let is_due = |call: &&OpenCall| call.not_before.is_some_and(|at| at <= now);
        self.free_calls().filter(is_due).map(|call| call.call).collect()
    }

    /// When a worker must look at this run even if no message arrives.
    pub fn wake_at(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Thinking { not_before, .. } => not_before.filter(|_| !self.is_held()),
            Phase::Waiting { .. } => self.resume_deadline(),
            Phase::Accepted | Phase::Ended { .. } => None,
        }
    }

    /// The calls whose deadline has passed.
    pub fn expired(&self, now: Timestamp) -> Vec<CallNumber> {
        let is_over = |call: &&OpenCall| call.not_before.is_none() && call.deadline <= now;
        self.free_calls().filter(is_over).map(|call| call.call).collect()
    }

    /// The interrupts whose deadline has passed, by their numbers.
    pub fn expired_interrupts(&self, now: Timestamp) -> Vec<u64> {
        let is_over = |interrupt: &&Interrupt| interrupt.until.is_some_and(|until| until <= now);
        self.interrupts.iter().filter(is_over).map(|interrupt| interrupt.number).collect()
    }
}

impl OpenCall {
    /// Whether the result has arrived.
    pub fn is_received(&self) -> bool {
        matches!(self.progress, Progress::Received { .. })
    }
}
