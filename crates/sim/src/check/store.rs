//! The store's verbs on the rows of the model. Each mirrors the verb of the same name in `windlass-store`, guard by guard. Only this module
//! checks whether a guard is active.

use std::sync::Arc;

use windlass_kernel::{
    BoxId, BoxRange, CallNumber, CallUpdate, Cause, EffectClass, EndReason, Event, HeadStatus, Interrupt, Origin, Progress, Route, Run,
    TAKEOVERS_MAX, TaskStatus, Timestamp, apply, call_updates, outstanding,
};

use super::{
    configs::{HOLD_TICKS, ITERATIONS_MAX},
    guards::{Guard, Guards},
    promises::{Fact, Promise, Seen},
    state::{Call, CallStatus, Commit, Message, MessageStatus, Named, NodeNo, RunNo, RunRow, RunStatus, Store},
};

/// What a verb needs besides its arguments, and where it records what it saw.
pub(super) struct StoreContext<'a> {
    pub guards: Guards,
    pub now: Timestamp,
    pub seen: &'a mut Seen,
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The commit is stored.
    Done {
        /// Whether messages are pending.
        pending: bool,
        /// Whether the agent is leased to another run now.
        next_leased: bool,
    },
    /// The guard did not hold.
    Fenced,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enqueued {
    /// The agent was idle, and the run is entered.
    Entered(RunNo),
    /// The run is queued.
    Queued,
    /// The request was recorded before.
    Duplicate,
}

impl Store {
    /// The row of a run.
    pub fn run(&self, run: RunNo) -> &RunRow {
        &self.runs[usize::from(run)]
    }

    /// The row of a call.
    pub fn call(&mut self, run: RunNo, call: CallNumber) -> Option<&mut Call> {
        self.calls.iter_mut().find(|row| row.run == run && row.call == call)
    }

    /// Whether the sweep finds the head.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.head.wake_at.is_some_and(|at| at <= now)
    }

    /// Whether the head is owed something that only its owner does.
    pub fn is_owed(&self) -> bool {
        match (self.head.status, self.head.run) {
            (HeadStatus::Idle, _) | (_, None) => false,
            (HeadStatus::Dispatched | HeadStatus::Running, _) => true,
            (HeadStatus::Suspended, Some(run)) => !outstanding(&self.run(run).state).is_empty(),
        }
    }

    /// Records a run, and enters it if the agent is idle: `entered` is the run after that.
    pub fn enqueue(&mut self, context: &mut StoreContext<'_>, key: u8, node: NodeNo, entered: Option<(Arc<Run>, Vec<Event>)>) -> Enqueued {
        if context.guards.has(Guard::UniqueDedupe) && self.runs.iter().any(|row| row.key == key) {
            context.seen.fact(Fact::DuplicateKey);
            return Enqueued::Duplicate;
        }
        let run = self.runs.len() as RunNo;
        let accepted = accepted(run);
        let is_busy = self.head.run.is_some() && context.guards.has(Guard::LeaseFromIdle);
        let is_one = self.runs.iter().all(|row| row.key != key);
        context.seen.holds(is_one, Promise::OneRunPerRequest, || format!("a second run for the key {key}"));
        if is_busy {
            self.runs.push(RunRow { key, status: RunStatus::Queued, state: accepted });
            self.head.queued += 1;
            return Enqueued::Queued;
        }
        self.runs.push(RunRow { key, status: RunStatus::Active, state: accepted });
        let pending = self.head.pending;
        self.lease(context, run);
        self.head.pending = pending;
        self.head.owner = Some(node);
        self.head.seq += 1;
        if let Some((state, events)) = entered {
            let commit = Commit { run, node, raise_epoch: false, state, events, reports: Vec::new(), consumed: Vec::new() };
            self.write(context, &commit);
            self.show(context, run);
        }
        Enqueued::Entered(run)
    }

    /// Leases the head to a run that no worker has entered.
    fn lease(&mut self, context: &mut StoreContext<'_>, run: RunNo) {
        let is_raised = context.guards.has(Guard::LeaseRaisesEpoch);
        context.seen.holds(is_raised || self.head.epoch == 0 && run == 0, Promise::OneOwnerPerEpoch, || {
            format!("run {run} is leased under the epoch of another")
        });
        self.head.status = HeadStatus::Dispatched;
        self.head.epoch += u8::from(is_raised);
        self.head.run = Some(run);
        self.head.pending = 0;
        self.head.wake_at = context.guards.has(Guard::DispatchedIsDue).then_some(context.now);
    }

    /// Applies a commit if its guard still holds. `is_applied` means that it is stored already, which the real store finds in the journal.
    pub fn commit(&mut self, context: &mut StoreContext<'_>, named: &Named, commit: &Commit, is_applied: bool) -> Answer {
        if !self.holds(context.guards, named) {
            let is_next = self.head.seq == named.seq + 1 && self.head.owner == Some(commit.node);
            if is_applied && is_next && context.guards.has(Guard::AppliedAlready) {
                return self.done(commit.run);
            }
            return Answer::Fenced;
        }
        let head = &self.head;
        context.seen.holds(head.run == Some(commit.run), Promise::OneActiveRun, || {
            format!("a commit of run {} is applied while {:?} is active", commit.run, head.run)
        });
        context.seen.holds(named.epoch == head.epoch, Promise::NoOldEpoch, || {
            format!("a commit of epoch {} is applied under epoch {}", named.epoch, head.epoch)
        });
        self.raise(context, commit);
        self.head.seq += 1;
        self.head.owner = Some(commit.node);
        let counted = commit.consumed.iter().filter(|place| self.is_counted(**place)).count() as u8;
        self.head.pending = self.head.pending.saturating_sub(counted);
        self.write(context, commit);
        if commit.state.has_ended() {
            self.end(context, commit.run);
        } else {
            self.show(context, commit.run);
        }
        self.done(commit.run)
    }

    fn holds(&self, guards: Guards, named: &Named) -> bool {
        let Named { status, epoch, run, seq } = named;
        (self.head.status == *status || !guards.has(Guard::Status))
            && (self.head.epoch == *epoch || !guards.has(Guard::Epoch))
            && (self.head.run == Some(*run) || !guards.has(Guard::Run))
            && (self.head.seq == *seq || !guards.has(Guard::Seq))
    }

    fn done(&self, run: RunNo) -> Answer {
        Answer::Done { pending: self.head.pending > 0, next_leased: self.head.run.is_some_and(|next| next != run) }
    }

    fn raise(&mut self, context: &mut StoreContext<'_>, commit: &Commit) {
        let is_other = self.head.owner != Some(commit.node);
        let is_raised =
            is_other && context.guards.has(Guard::OwnerRaisesEpoch) || commit.raise_epoch && context.guards.has(Guard::StopRaisesEpoch);
        context.seen.holds(is_raised || !is_other, Promise::OneOwnerPerEpoch, || "two owners write under one epoch".to_owned());
        let is_stop = |event: &Event| matches!(event, Event::Ended { reason: EndReason::Stopped, .. });
        let stops = commit.events.iter().any(is_stop);
        context.seen.holds(is_raised || !stops, Promise::OneOwnerPerEpoch, || "a stop is written under the epoch it ends".to_owned());
        self.head.epoch += u8::from(is_raised);
    }

    fn is_counted(&self, place: u8) -> bool {
        let message = &self.inbox[usize::from(place)];
        message.status == MessageStatus::Pending && Some(message.run) == self.head.run
    }

    /// Writes everything of a commit but the head. Folds its events over the stored state, and checks every promise.
    fn write(&mut self, context: &mut StoreContext<'_>, commit: &Commit) {
        let stored = self.run(commit.run).state.clone();
        let first = commit.state.next_number - commit.events.len() as u64;
        let is_unmet = first >= stored.next_number || !context.guards.has(Guard::JournalNumber);
        context.seen.holds(is_unmet, Promise::RowsAgree, || format!("journal number {first} of run {} exists already", commit.run));
        let mut folded = stored.as_ref().clone();
        for event in &commit.events {
            judge(context.seen, &folded, event);
            self.move_calls(commit.run, &folded, event);
            folded = apply(Some(folded), event).unwrap_or_else(|| stored.as_ref().clone());
        }
        context.seen.holds(folded == *commit.state, Promise::FoldIsState, || {
            format!("run {}: the journal gives {folded:?}, the commit has {:?}", commit.run, commit.state)
        });
        for call in &commit.reports {
            self.record_report(context, commit.run, *call, MessageStatus::Consumed);
        }
        for place in &commit.consumed {
            self.inbox[usize::from(*place)].status = MessageStatus::Consumed;
        }
        let row = &mut self.runs[usize::from(commit.run)];
        row.state = commit.state.clone();
        assert!(commit.state.takeovers < TAKEOVERS_MAX, "states are compared as if takeovers were not counted");
        let within = commit.state.iteration <= ITERATIONS_MAX;
        context.seen.holds(within, Promise::WithinBudget, || format!("run {} is in iteration {}", commit.run, commit.state.iteration));
    }

    fn move_calls(&mut self, run: RunNo, before: &Run, event: &Event) {
        for (number, update) in call_updates(before, event) {
            match update {
                CallUpdate::Made { call, .. } => self.calls.push(Call {
                    run,
                    call: number,
                    is_write: call.effect == EffectClass::Write,
                    status: CallStatus::of(windlass_kernel::CallStatus::fresh(call.route)),
                    starts: 0,
                    is_ready: false,
                }),
                CallUpdate::Moved { status, .. } => {
                    if let Some(row) = self.call(run, number) {
                        row.status = CallStatus::of(status);
                    }
                }
            }
        }
    }

    /// Makes the head show a run that has not ended.
    fn show(&mut self, context: &StoreContext<'_>, run: RunNo) {
        let state = self.run(run).state.clone();
        self.head.run = Some(run);
        self.head.status = state.head_status();
        self.head.wake_at = match self.head.status {
            HeadStatus::Idle => None,
            HeadStatus::Dispatched => context.guards.has(Guard::DispatchedIsDue).then_some(context.now),
            HeadStatus::Running => state.wake_at().filter(|_| context.guards.has(Guard::RetryIsDue)),
            HeadStatus::Suspended => self.wake_suspended(context, run),
        };
    }

    fn wake_suspended(&self, context: &StoreContext<'_>, run: RunNo) -> Option<Timestamp> {
        let at_once = (self.head.pending > 0 && context.guards.has(Guard::PendingIsDue)).then_some(context.now);
        let deadline = self.run(run).state.resume_deadline().filter(|_| context.guards.has(Guard::DeadlineIsDue));
        let held = self.calls.iter().filter(|call| call.run == run).filter_map(|call| match call.status {
            CallStatus::Claimed(until) => Some(until).filter(|_| context.guards.has(Guard::HoldEndIsDue)),
            CallStatus::Started | CallStatus::Waiting | CallStatus::Parked | CallStatus::Over => None,
        });
        deadline.into_iter().chain(at_once).chain(held).min()
    }

    /// The run has ended: its pending messages are skipped, and the next queued run is leased in the same commit.
    fn end(&mut self, context: &mut StoreContext<'_>, run: RunNo) {
        self.runs[usize::from(run)].status = RunStatus::Ended;
        self.skip(run);
        self.head.status = HeadStatus::Idle;
        (self.head.run, self.head.wake_at, self.head.pending) = (None, None, 0);
        if self.head.queued == 0 {
            return;
        }
        let Some(next) = self.runs.iter().position(|row| row.status == RunStatus::Queued) else {
            return context.seen.holds(false, Promise::RowsAgree, || "a run that the head counts as queued is missing".to_owned());
        };
        context.seen.fact(Fact::NextLeased);
        self.head.queued -= 1;
        self.runs[next].status = RunStatus::Active;
        self.lease(context, next as RunNo);
        self.head.pending = self.waiting_for(next as RunNo);
    }

    fn skip(&mut self, run: RunNo) {
        let waiting = self.inbox.iter_mut().filter(|message| message.run == run && message.status == MessageStatus::Pending);
        waiting.for_each(|message| message.status = MessageStatus::Skipped);
    }

    fn waiting_for(&self, run: RunNo) -> u8 {
        self.inbox.iter().filter(|message| message.run == run && message.status == MessageStatus::Pending).count() as u8
    }

    /// Ends a run that is still queued. Returns whether it was.
    pub fn withdraw(&mut self, context: &mut StoreContext<'_>, commit: &Commit) -> bool {
        if self.run(commit.run).status != RunStatus::Queued {
            return false;
        }
        context.seen.fact(Fact::Withdrawn);
        self.head.queued -= 1;
        self.write(context, commit);
        self.runs[usize::from(commit.run)].status = RunStatus::Ended;
        self.skip(commit.run);
        true
    }

    /// Adds a report from outside the owner.
    pub fn report(&mut self, context: &mut StoreContext<'_>, run: RunNo, call: CallNumber) {
        let is_late = self.run(run).status == RunStatus::Ended;
        if is_late {
            context.seen.fact(Fact::LateReport);
        }
        let status = if is_late { MessageStatus::Skipped } else { MessageStatus::Pending };
        if !self.record_report(context, run, call, status) || is_late || self.head.run != Some(run) {
            return;
        }
        self.head.pending += 1;
        if self.head.status == HeadStatus::Suspended && context.guards.has(Guard::ReportIsDue) {
            self.head.wake_at = Some(self.head.wake_at.map_or(context.now, |at| at.min(context.now)));
        }
    }

    /// Records a report. Returns false if the call has one already.
    fn record_report(&mut self, context: &mut StoreContext<'_>, run: RunNo, call: CallNumber, status: MessageStatus) -> bool {
        if self.inbox.iter().any(|message| message.run == run && message.call == call) {
            context.seen.fact(Fact::DuplicateReport);
            if context.guards.has(Guard::UniqueReport) {
                return false;
            }
            context.seen.holds(false, Promise::OneReportRow, || format!("call {} of run {run} has two reports", call.0));
        }
        self.inbox.push(Message { run, call, status });
        true
    }

    /// A service claims a call and starts it.
    pub fn claim(&mut self, context: &mut StoreContext<'_>, place: usize) {
        let row = self.calls[place];
        let deadline = self.run(row.run).state.call(row.call).map_or(context.now, |call| call.deadline);
        self.calls[place].status = CallStatus::Claimed(context.now.plus_ms(HOLD_TICKS).min(deadline));
        self.calls[place].is_ready = true;
        self.start(context.seen, row.run, row.call);
        if self.head.status == HeadStatus::Suspended {
            self.head.wake_at = self.wake_suspended(context, row.run);
        }
    }

    /// Whether a service may claim a call.
    pub fn is_claimable(&self, guards: Guards, place: usize, now: Timestamp) -> bool {
        let row = self.calls[place];
        let open = self.run(row.run).state.call(row.call);
        let can_wait = match row.status {
            CallStatus::Waiting => true,
            CallStatus::Claimed(_) => row.is_write && !guards.has(Guard::ClaimWaiting),
            CallStatus::Started | CallStatus::Parked | CallStatus::Over => false,
        };
        let is_held = self.run(row.run).state.is_held();
        can_wait
            && !is_held
            && self.head.run == Some(row.run)
            && open.is_some_and(|open| open.route == Route::External && open.deadline > now)
    }

    /// The call is really started: the outside counts it.
    pub fn start(&mut self, seen: &mut Seen, run: RunNo, call: CallNumber) {
        let Some(row) = self.call(run, call) else {
            return seen.holds(false, Promise::EffectFromRow, || format!("call {} of run {run} is started without a row", call.0));
        };
        row.starts += 1;
        let (starts, is_write) = (row.starts, row.is_write);
        if starts > 1 && !is_write {
            seen.fact(Fact::ReadAgain);
        }
        seen.holds(starts == 1 || !is_write, Promise::WriteOnce, || format!("write {} of run {run} is started {starts} times", call.0));
    }

    /// Checks what the rows must have in common in every state.
    pub fn agree(&self, seen: &mut Seen) {
        let mut active = self.runs.iter().enumerate().filter(|(_, row)| row.status == RunStatus::Active);
        let first = active.next().map(|(run, _)| run as RunNo);
        seen.holds(active.next().is_none() && first == self.head.run, Promise::OneActiveRun, || {
            format!("the head shows {:?}, active is {first:?}, and perhaps more", self.head.run)
        });
        let waiting = self.head.run.map_or(0, |run| self.waiting_for(run));
        seen.holds(waiting == self.head.pending, Promise::RowsAgree, || format!("{waiting} wait, the head counts {}", self.head.pending));
        let queued = self.runs.iter().filter(|row| row.status == RunStatus::Queued).count();
        seen.holds(queued == usize::from(self.head.queued), Promise::RowsAgree, || "the head counts other queued runs".to_owned());
    }
}

/// Checks one event against the promises, given the stored state.
fn judge(seen: &mut Seen, stored: &Run, event: &Event) {
    match event {
        Event::IterationStarted { iteration, .. } => seen.holds(*iteration == stored.iteration + 1, Promise::IterationsByOne, || {
            format!("iteration {iteration} after iteration {}", stored.iteration)
        }),
        Event::Reasoned { iteration, .. }
        | Event::Replied { iteration, .. }
        | Event::Cut { iteration, .. }
        | Event::Compacting { iteration }
        | Event::Compacted { iteration, .. } => seen.holds(*iteration == stored.iteration, Promise::IterationsByOne, || {
            format!("a reply of iteration {iteration} in iteration {}", stored.iteration)
        }),
        Event::Reported { call, status, .. } => {
            let waits = stored.call(*call).is_some_and(|open| !open.is_received());
            if *status == TaskStatus::Timeout {
                seen.fact(Fact::TimedOut);
            }
            seen.holds(waits, Promise::ResultOnce, || format!("a result is applied to call {} that does not wait", call.0));
        }
        Event::Ended { .. } => seen.holds(!stored.has_ended(), Promise::OneEnd, || "a run ends twice".to_owned()),
        Event::Interrupted(Interrupt { cause: Cause::UnknownOutcome, call: Some(call), .. }) => {
            let is_local = stored.call(*call).is_some_and(|open| open.route == Route::InProcess && open.progress == Progress::Open);
            seen.fact(if is_local { Fact::WriteParked } else { Fact::HeldWriteParked });
        }
        Event::OwnerChanged { .. } => seen.fact(Fact::TakenOver),
        Event::LeaseEnded { .. } => seen.fact(Fact::HoldEnded),
        Event::BudgetBreached { .. } => seen.fact(Fact::BudgetEnded),
        Event::AttemptFailed { .. } => seen.fact(Fact::Retried),
        Event::Accepted { .. }
        | Event::Leased
        | Event::ActionStarted { .. }
        | Event::CallsInherited { .. }
        | Event::Heartbeat
        | Event::ChildBegun { .. }
        | Event::CallReleased { .. }
        | Event::Interrupted(_)
        | Event::Approved { .. }
        | Event::Edited { .. }
        | Event::Resolved { .. }
        | Event::CallParked { .. }
        | Event::Parked { .. }
        | Event::Unparked
        | Event::Steered { .. }
        | Event::CallRetried { .. }
        | Event::Ignored { .. } => {}
    }
}

/// A run that was just accepted.
fn accepted(run: RunNo) -> Arc<Run> {
    let range = |id: u128, length| BoxRange { id: BoxId(uuid::Uuid::from_u128(id)), length };
    let (context, output) = (range(u128::from(run) * 2, 1), range(u128::from(run) * 2 + 1, 0));
    let event = Event::Accepted { origin: Origin::Turn, context, output, caller: None, parent: None };
    Arc::new(apply(None, &event).expect("every journal begins with `accepted`"))
}

/// The same, for a worker that wants to enter the run with the enqueue.
pub(super) fn accepted_run(run: RunNo) -> Arc<Run> {
    accepted(run)
}
