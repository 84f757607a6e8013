//! What an input does to a run: the state machine.
//!
//! ```text
//!               entered               replied, calls
//!   accepted ───────────▶ thinking ───────────────────▶ waiting
//!       │                  │  ▲ │                        │ │ ▲
//!       │ attempt failed,  │  └─┘       all results in   │ └─┘ some results in
//!       │ cut, compacting  │  ◀──────────────────────────┘
//!       │                  ▼
//!       └───────────────▶ ended
//! ```
//!
//! A person's action, and calls that an earlier run deferred, lead from accepted directly to waiting. A run ends by its final reply or a
//! failed model (from thinking), by a result that terminates it (from waiting), and from anywhere by a budget, a stop, or an interrupt
//! that a person or its deadline decides so.
//!
//! Two conditions lie across these phases:
//!
//! - *Held*: an interrupt waits for a person. A whole run is held by a panic, by [`TAKEOVERS_MAX`] lost owners without progress, or by a
//!   budget if it is to wait for a higher limit; a single call is held if a rule demands approval before it starts, or if it is a write
//!   that may have happened. A held run has no outstanding effects, but results of its calls are recorded; a held call is not outstanding.
//!   A decision of a person, the deadline of the interrupt or a stop ends the condition.
//! - *Compacting*: the outstanding model call asks for a summary of what the model would read. The run then continues from the summary.
//!
//! An instruction that a client gives the active run (steering) waits in the state until the next iteration, which begins with it.
//!
//! A takeover (another process owns the run after its owner was lost) keeps the phase, unless the tokens of the lost model call exceed a
//! budget. It holds the writes that the lost owner may have started; everything else that is outstanding starts again.

mod calls;
mod children;
mod compaction;
mod held;
mod inherited;
mod lost;
mod reply;
mod retries;
mod steering;

pub use self::children::ChildReport;
use self::lost::AfterCut;
pub use self::steering::check_steering;
use crate::{
    apply::apply_to,
    budget::{self, Spent},
    chunks::ChunkLengths,
    content::{self, ItemKind, Reasoning},
    event::{EndReason, Event, IgnoreReason, TaskStatus},
    failure::FailureCode,
    ids::{CallNumber, ItemId, RunId, Timestamp},
    input::{Failure, Input, NewItem, Opening, Reply, Report, RequestedCall, StreamedText},
    interrupt::{Cause, Interrupt},
    ledger::{CallUpdate, InterruptUpdate, call_updates, interrupt_updates},
    manifest::{EffectClass, Manifest},
    policy::{self, Delivery, Ending, Move, Next, Planned, Policy},
    run::{OpenCall, Origin, Phase, Progress, Run},
};

/// A run that loses this many owners in a row without progress is held.
pub const TAKEOVERS_MAX: u32 = 5;

/// What the kernel gets as arguments because it is pure: the time, and unused ids.
pub struct Moment<'a> {
    /// The time at which the input is applied.
    pub now: Timestamp,
    /// Gives a fresh id each time.
    pub fresh: &'a mut dyn FnMut() -> ItemId,
}

/// What one input does to a run: committed together, or not at all.
#[derive(Debug, PartialEq)]
pub struct Transition {
    /// The journal entries of the transition, in order.
    pub events: Vec<Event>,
    /// Content that the step created.
    pub items: Vec<NewItem>,
    /// What goes into the output box, in order: new items, and results that are stored already.
    pub appended: Vec<ItemId>,
    /// What the events do to the rows of calls, in order.
    pub calls: Vec<(CallNumber, CallUpdate)>,
    /// What the events do to the rows of interrupts, in order.
    pub interrupts: Vec<InterruptUpdate>,
    /// The child runs that are to be stopped, because nothing waits for them any more.
    pub stops: Vec<RunId>,
    /// The result that an ended child run gives its parent. Its content is among `items`.
    pub report: Option<ChildReport>,
    /// The run afterwards: always the fold of `events` over the run before.
    pub run: Run,
}

impl Transition {
    /// Why the input changed nothing, if so.
    pub fn ignored(&self) -> Option<IgnoreReason> {
        match self.events.as_slice() {
            [Event::Ignored { reason, .. }] => Some(*reason),
            _ => None,
        }
    }
}

/// What `input` does to `run`. Total: an input that does not fit is an event like any other.
pub fn step(run: &Run, manifest: &Manifest, input: Input, moment: &mut Moment<'_>) -> Transition {
    let mut draft = Draft::new(run, manifest, moment);
    let (kind, call) = (input.kind(), input.call());
    let taken = match (&run.phase, input) {
        (Phase::Ended { .. }, _) => Err(IgnoreReason::AlreadyEnded),
        (_, Input::Stopped { reason, streamed }) => draft.stop(&reason, streamed),
        (_, Input::OwnerChanged(left)) => draft.owner_changed(left),
        (_, Input::Panicked) => draft.panicked(),
        (_, Input::Answered(answer)) => draft.answered(answer),
        (_, Input::InterruptTimedOut(number)) => draft.interrupt_timed_out(number),
        // A run that was held when a worker entered it waits for a decision, before its first iteration.
        (Phase::Accepted, Input::Entered(opening)) if !run.is_held() => draft.entered(opening),
        // While the run is held, what its model says is ignored. Results of calls are recorded, and used after the decision.
        (Phase::Thinking { .. }, Input::Reasoned { .. } | Input::Replied(_) | Input::AttemptFailed(_) | Input::Cut { .. })
            if run.is_held() =>
        {
            Err(IgnoreReason::OutOfPhase)
        }
        (_, Input::Heartbeat) => draft.heartbeat(),
        (_, Input::Steered(item)) => draft.steered(item),
        (Phase::Thinking { .. }, Input::Cut { streamed, spent }) => draft.cut_off(streamed, spent),
        (Phase::Thinking { .. }, Input::Reasoned { reasoning, chunks }) => draft.reasoned(reasoning, chunks),
        (Phase::Thinking { .. }, Input::Replied(reply)) => draft.replied(reply),
        (Phase::Thinking { .. }, Input::AttemptFailed(failure)) => draft.attempt_failed(failure),
        (Phase::Waiting { .. }, Input::Reported(report)) => draft.reported(&report),
        (Phase::Waiting { .. }, Input::LeaseEnded(call)) => draft.lease_ended(call),
        (Phase::Waiting { .. }, Input::RetryDue(call)) => draft.retry_due(call),
        (Phase::Waiting { .. }, Input::ChildBegun(call)) => draft.child_begun(call),
        (
            Phase::Accepted | Phase::Thinking { .. },
            Input::Reported(_) | Input::LeaseEnded(_) | Input::RetryDue(_) | Input::ChildBegun(_),
        ) => Err(IgnoreReason::NotWaiting),
        (Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. }, Input::Entered(_))
        | (
            Phase::Accepted | Phase::Waiting { .. },
            Input::Reasoned { .. } | Input::Replied(_) | Input::AttemptFailed(_) | Input::Cut { .. },
        ) => Err(IgnoreReason::OutOfPhase),
    };
    if let Err(reason) = taken {
        draft.record(Event::Ignored { input: kind, call, reason });
    }
    draft.finish()
}

/// A transition under construction. Every change goes through `record`, so that the state is the fold of the events.
struct Draft<'a, 'm> {
    manifest: &'a Manifest,
    policy: &'static dyn Policy,
    moment: &'a mut Moment<'m>,
    made: Transition,
}

/// Whether a run took an input. An input that does not fit is recorded with its reason and changes nothing else.
type Taken = Result<(), IgnoreReason>;

impl<'a, 'm> Draft<'a, 'm> {
    fn new(run: &Run, manifest: &'a Manifest, moment: &'a mut Moment<'m>) -> Self {
        let made = Transition {
            events: Vec::new(),
            items: Vec::new(),
            appended: Vec::new(),
            calls: Vec::new(),
            interrupts: Vec::new(),
            stops: Vec::new(),
            report: None,
            run: run.clone(),
        };
        Draft { manifest, policy: policy::policy(manifest.policy), moment, made }
    }

    fn finish(self) -> Transition {
        self.made
    }

    fn run(&self) -> &Run {
        &self.made.run
    }

    fn record(&mut self, event: Event) {
        self.made.calls.extend(call_updates(&self.made.run, &event));
        self.made.interrupts.extend(interrupt_updates(&self.made.run, &event));
        self.made.stops.extend(children::stops(&self.made.run, &event));
        apply_to(&mut self.made.run, &event);
        self.made.events.push(event);
    }

    /// Opens an interrupt.
    fn interrupt(&mut self, cause: Cause, call: Option<CallNumber>) {
        let number = self.run().next_number;
        let at = Some(self.moment.now);
        self.record(Event::Interrupted(Interrupt { at, ..Interrupt::new(number, cause, call) }));
    }

    fn new_item(&mut self, kind: ItemKind, content: bytes::Bytes) -> ItemId {
        let id = (self.moment.fresh)();
        self.made.items.push(NewItem::own(id, kind, content));
        id
    }

    /// How many items this transition has put into the output box so far.
    fn appended(&self) -> usize {
        self.made.appended.len()
    }

    /// How many items were put into the output box since [`appended`](Self::appended) gave `before`.
    fn appended_since(&self, before: usize) -> u32 {
        (self.made.appended.len() - before) as u32
    }

    fn append_new(&mut self, kind: ItemKind, content: bytes::Bytes) -> ItemId {
        let id = self.new_item(kind, content);
        self.made.appended.push(id);
        id
    }

    /// Appends the results of the iteration to the output box, in the order of the calls and not in that of their arrival.
    fn append_results(&mut self) {
        let received = self.made.run.calls().iter().filter_map(|call| match call.progress {
            Progress::Received { item, .. } => Some(item),
            Progress::Open | Progress::Begun => None,
        });
        self.made.appended.extend(received);
    }

    fn entered(&mut self, opening: Opening) -> Taken {
        self.record(Event::Leased);
        match (self.run().origin, opening) {
            (Origin::Action, Opening::Act(requested)) => self.start_action(requested),
            (Origin::Turn, Opening::InheritCalls(left)) if !left.is_empty() => self.inherit_calls(&left),
            (Origin::Turn | Origin::Action, _) => self.start_iteration(),
        }
        Ok(())
    }

    fn heartbeat(&mut self) -> Taken {
        self.record(Event::Heartbeat);
        Ok(())
    }

    fn start_action(&mut self, requested: RequestedCall) {
        let Some(tool) = self.manifest.tool(&requested.tool) else {
            let reason = EndReason::ModelFailed(FailureCode::UnknownTool);
            return self.end(Ending { status: TaskStatus::Failed, reason, deliverable: Delivery::Text("the tool is gone".into()) });
        };
        let call = self.open_call(CallNumber(1), tool);
        let call = self.with_child(call);
        let item = self.append_new(ItemKind::Call, content::call(CallNumber(1), &requested));
        self.record(Event::ActionStarted { at: self.moment.now, call: call.clone() });
        self.hold_for_person(&call, item);
    }

    fn start_iteration(&mut self) {
        match budget::before_iteration(self.run(), &self.manifest.budgets, self.moment.now) {
            Some(breach) => self.breach(breach),
            None => {
                self.append_results();
                self.append_steering();
                let iteration = self.run().iteration + 1;
                self.record(Event::IterationStarted { iteration, purpose: self.purpose(), at: self.moment.now });
            }
        }
    }

    /// Reasoning is stored before the text that it led to, in one item. A later attempt of the iteration has reasoning of its own.
    fn reasoned(&mut self, reasoning: Vec<Reasoning>, chunks: ChunkLengths) -> Taken {
        self.append_new(ItemKind::Thought, content::reasoning(reasoning));
        self.record(Event::Reasoned { iteration: self.run().iteration, chunks });
        Ok(())
    }

    fn replied(&mut self, mut reply: Reply) -> Taken {
        if self.awaits_summary() {
            return self.summed_up(reply);
        }
        if !reply.reasoning.is_empty() {
            let quiet = reply.chunks.take_heartbeats();
            self.reasoned(std::mem::take(&mut reply.reasoning), quiet)?;
        }
        if self.manifest.one_call {
            // A provider that ignores the setting and makes several is asked again after the first.
            reply.calls.truncate(1);
        }
        match self.policy.replied(self.run(), self.manifest, &reply) {
            Move::Act(planned) => self.act(reply, planned),
            Move::Remind(text) => self.remind(reply, text),
            Move::Finish(ending) if self.must_read_on(&ending, reply.spent()) => self.read_on(reply),
            Move::Finish(ending) => self.finish_with_reply(reply, ending),
        }
        Ok(())
    }

    /// The reply lacks something that the run requires: its text stays, an instruction says what is missing, and another iteration starts.
    fn remind(&mut self, mut reply: Reply, text: String) {
        let (before, ended) = (self.appended(), reply.take_end());
        self.append_new(ItemKind::Thought, content::thought(reply.text));
        self.append_new(ItemKind::Instruction, content::encode(&content::Instruction::Text(text)));
        self.record_reply(before, ended, Vec::new());
        self.start_iteration();
    }

    /// The reply ends the run. Its text is the deliverable and is stored once; calls for the client are stored as items.
    fn finish_with_reply(&mut self, mut reply: Reply, ending: Ending) {
        let (before, ended) = (self.appended(), reply.take_end());
        if !reply.calls.is_empty() {
            self.append_text(reply.text, reply.afterthoughts);
            for content in self.handed_back(&reply.calls, &ending.reason) {
                self.append_new(ItemKind::Call, content);
            }
        }
        self.record_reply(before, ended, Vec::new());
        self.end(ending);
    }

    /// Appends the text of a reply that has calls, and the reasoning between its text and its calls.
    fn append_text(&mut self, text: String, afterthoughts: Vec<Reasoning>) {
        if !text.is_empty() {
            self.append_new(ItemKind::Thought, content::thought(text));
        }
        if !afterthoughts.is_empty() {
            self.append_new(ItemKind::Thought, content::reasoning(afterthoughts));
        }
    }

    fn act(&mut self, mut reply: Reply, planned: Vec<Planned>) {
        let spent = reply.spent();
        let (before, ended) = (self.appended(), reply.take_end());
        let breach = budget::before_calls(self.run(), &self.manifest.budgets, spent, self.wanted(&planned), self.moment.now);
        self.append_text(reply.text, reply.afterthoughts);
        let (mut calls, mut items) = (Vec::with_capacity(planned.len()), Vec::with_capacity(planned.len()));
        for (index, plan) in planned.iter().enumerate() {
            let number = self.call_number(index);
            items.push(self.append_new(ItemKind::Call, content::call(number, &plan.requested)));
            calls.push(self.planned_call(number, plan));
        }
        match breach {
            // The calls are made and wait, unstarted, for a higher limit.
            Some(breach) if self.manifest.budgets_park => {
                self.record_reply(before, ended, calls.clone());
                self.breach(breach);
                self.begin_calls(&calls, &items, planned);
            }
            Some(breach) => {
                // None of the calls is started, but they are recorded.
                self.record_reply(before, ended, Vec::new());
                self.breach(breach);
            }
            None => {
                self.record_reply(before, ended, calls.clone());
                self.begin_calls(&calls, &items, planned);
            }
        }
    }

    /// Gives calls that may not be made their error results, and holds those that a person answers or that a rule wants a person to approve. `items` has the content
    /// of the calls.
    fn begin_calls(&mut self, calls: &[OpenCall], items: &[ItemId], planned: Vec<Planned>) {
        for ((call, item), plan) in calls.iter().zip(items).zip(planned) {
            match plan.refused {
                Some(refusal) => self.give_result(call.call, TaskStatus::Failed, refusal.code, &refusal.message),
                None => self.hold_for_person(call, *item),
            }
        }
        self.resume_if_answered();
    }

    fn attempt_failed(&mut self, failure: Failure) -> Taken {
        let Failure { code, cause, message, retry_after_ms, retry_at, fallback, spent, streamed } = failure;
        let compacts = retry_at.is_none() && self.can_compact(&code, &streamed);
        let retry_at = if compacts { Some(self.moment.now) } else { retry_at };
        let starts_at = retry_at.map(|at| at.max(self.moment.now));
        let breach = starts_at.and_then(|at| self.breached_by(spent, at));
        let ends = starts_at.is_none() || (breach.is_some() && !self.manifest.budgets_park);
        if !streamed.is_empty() && ends {
            // The run is about to end, and readers have seen this text.
            self.cut(streamed, Spent::default(), AfterCut::Ends);
        }
        let Spent { usage, lost } = spent;
        self.record(Event::AttemptFailed { code: code.clone(), cause, retry_after_ms, retry_at, usage, lost, fallback });
        if retry_at.is_none() {
            let text = format!("the model could not be called: {message}");
            self.end(Ending { status: TaskStatus::Failed, reason: EndReason::ModelFailed(code), deliverable: Delivery::Text(text) });
            return Ok(());
        }
        match breach {
            Some(breach) if !self.manifest.budgets_park => self.breach(breach),
            _ => {
                if compacts {
                    self.record(Event::Compacting { iteration: self.run().iteration });
                }
                breach.into_iter().for_each(|breach| self.breach(breach));
            }
        }
        Ok(())
    }

    fn reported(&mut self, report: &Report) -> Taken {
        let call = self.run().call(report.call).ok_or(IgnoreReason::NotWaiting)?;
        if call.is_received() {
            return Err(IgnoreReason::AlreadyReported);
        }
        // A late copy of the failure that is the reason for the pause, or a result of an earlier try.
        if report.retry < call.retry || call.not_before.is_some() {
            return Err(IgnoreReason::AlreadyReported);
        }
        if report.retry > call.retry {
            return Err(IgnoreReason::NotWaiting);
        }
        if self.run().call_hold(report.call).is_some_and(|interrupt| !interrupt.takes_results()) {
            return Err(IgnoreReason::Held);
        }
        if let Some(at) = self.repeats_at(call, report) {
            self.record(Event::CallRetried { call: report.call, retry: report.retry + 1, at, item: report.item });
            return Ok(());
        }
        let after = policy::effective(call.after, report.after);
        let below = report.below.filter(|below| !below.is_empty()).map(Box::new);
        self.record(Event::Reported { call: report.call, status: report.status, item: report.item, after, below });
        self.resume_if_answered();
        Ok(())
    }

    /// Gives a call an error result of the kernel's own, which the model reads.
    fn give_result(&mut self, call: CallNumber, status: TaskStatus, code: &str, message: &str) {
        let item = self.new_item(ItemKind::Result, content::refusal(call, status, code, message));
        self.record(Event::Reported { call, status, item, after: crate::manifest::AfterExecution::Suspend, below: None });
    }

    fn resume_if_answered(&mut self) {
        let all_in = self.run().waiting_count() == 0 && !self.run().is_held();
        if !all_in || !matches!(self.run().phase, Phase::Waiting { .. }) {
            return;
        }
        match self.policy.next(self.run(), self.manifest) {
            Next::Iterate => self.start_iteration(),
            Next::Finish(ending) => self.end(ending),
        }
    }

    fn lease_ended(&mut self, number: CallNumber) -> Taken {
        let call = self.run().call(number).ok_or(IgnoreReason::NotWaiting)?;
        match call.effect {
            _ if !self.run().is_free(call) || call.not_before.is_some() => return Err(IgnoreReason::AlreadyReported),
            EffectClass::Write => self.interrupt(Cause::UnknownOutcome, Some(number)),
            EffectClass::Read | EffectClass::Idempotent => self.record(Event::LeaseEnded { call: number }),
        }
        Ok(())
    }

    fn stop(&mut self, reason: &str, streamed: StreamedText) -> Taken {
        if !streamed.is_empty() && matches!(self.run().phase, Phase::Thinking { .. }) {
            self.cut(streamed, Spent::default(), AfterCut::Ends);
        }
        let text = if reason.is_empty() { "stopped".to_owned() } else { format!("stopped: {reason}") };
        self.end(Ending { status: TaskStatus::Canceled, reason: EndReason::Stopped, deliverable: Delivery::Text(text) });
        Ok(())
    }

    /// Continuing would exceed a budget: the run waits for a higher limit, if it was started so, or ends as its policy says.
    fn breach(&mut self, breach: budget::Breach) {
        self.record(Event::BudgetBreached { breach });
        if self.manifest.budgets_park {
            return self.wait_for_budget(breach);
        }
        let ending = self.policy.breached(breach);
        self.end(ending);
    }

    fn end(&mut self, Ending { status, reason, deliverable }: Ending) {
        self.append_results();
        self.append_steering();
        let content = match deliverable {
            Delivery::Text(text) => content::deliverable_text(text),
            Delivery::Encoded(content) => content,
        };
        self.append_new(ItemKind::Deliverable, content.clone());
        self.record(Event::Ended { status, reason });
        self.report_to_parent(status, &content);
    }
}
