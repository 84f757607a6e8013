//! Applying events: the only way in which a run changes.

use std::sync::Arc;

use crate::{
    budget::{Below, RaisedLimits, Usage},
    event::{EndReason, Event, TaskStatus},
    facts::ReplyFacts,
    ids::{CallNumber, ItemId, Timestamp},
    interrupt::{Cause, Interrupt},
    run::{OpenCall, Phase, Progress, Purpose, Run},
};

/// The state of a run after one event. `None` before the first event, which must be `Accepted`.
pub fn apply(run: Option<Run>, event: &Event) -> Option<Run> {
    let Some(mut run) = run else {
        return begin(event);
    };
    apply_to(&mut run, event);
    Some(run)
}

/// Applies an event to a run that has begun.
pub(crate) fn apply_to(run: &mut Run, event: &Event) {
    run.next_number += 1;
    match event {
        // `Accepted` counts as number 0 only.
        Event::Accepted { .. }
        | Event::Leased
        | Event::LeaseEnded { .. }
        | Event::Ignored { .. }
        | Event::BudgetBreached { .. }
        | Event::Heartbeat => {}
        Event::IterationStarted { iteration, purpose, at } => start_iteration(run, *iteration, *purpose, *at),
        Event::ActionStarted { at, call } => start_action(run, *at, call),
        Event::CallsInherited { at, calls, tainted } => {
            run.started_at.get_or_insert(*at);
            run.tainted |= *tainted;
            make_calls(run, calls.len() as u32, calls);
        }
        Event::Cut { items, resumes, usage, lost, .. } => {
            run.output.length += items;
            count(run, *usage, *lost);
            if *resumes {
                ask_again(run, None);
            }
        }
        Event::AttemptFailed { retry_at, usage, lost, .. } => {
            count(run, *usage, *lost);
            if retry_at.is_some() {
                ask_again(run, *retry_at);
            }
        }
        Event::Reasoned { .. } => run.output.length += 1,
        // The attempt is counted by the failure before this event.
        Event::Compacting { .. } => run.compacting += 1,
        Event::Compacted { iteration, usage, model, .. } => {
            (run.takeovers, run.model) = (0, model.clone());
            run.usage.add(*usage);
            run.output.length += 1;
            (run.compacting, run.compacted_in) = (0, *iteration);
            ask_again(run, None);
        }
        Event::Replied { items, usage, lost, calls, model, .. } => {
            (run.takeovers, run.model) = (0, model.clone());
            count(run, *usage, *lost);
            make_calls(run, *items, calls);
        }
        Event::ChildBegun { call } => {
            run.takeovers = 0;
            set_progress(run, *call, Progress::Begun);
        }
        Event::Reported { call, status, item, after, below } => {
            below.iter().for_each(|below| count_below(run, **below));
            report(run, *call, Progress::Received { item: *item, status: *status, after: *after });
        }
        Event::CallRetried { call, retry, at, .. } => repeat(run, *call, *retry, *at),
        Event::Interrupted(interrupt) => open_interrupt(run, interrupt.clone()),
        Event::Approved { interrupt, by } => approve(run, *interrupt, by),
        Event::Edited { interrupt, item, by, .. } => edit(run, *interrupt, *item, by),
        Event::Resolved { interrupt, deadline, raised, waited_ms, .. } => {
            raised.iter().for_each(|raised| run.raised.raise(*raised));
            run.raised.wait(*waited_ms);
            resolve(run, *interrupt, *deadline);
        }
        Event::CallParked { call } => hold(run, Cause::UnknownOutcome, Some(*call)),
        Event::CallReleased { call, deadline } => release(run, *call, *deadline),
        Event::Parked { reason } => hold(run, reason.cause(), None),
        Event::Unparked => end_hold(run, None),
        Event::Steered { item } => steer(run, *item),
        Event::OwnerChanged { lost } => {
            run.takeovers += 1;
            run.lost = run.lost.saturating_add(*lost);
        }
        Event::Ended { status, reason } => end(run, *status, reason.clone()),
    }
}

fn start_iteration(run: &mut Run, iteration: u32, purpose: Purpose, at: Timestamp) {
    run.output.length += (run.calls().len() + run.steering.len()) as u32;
    run.steering.clear();
    run.iteration = iteration;
    run.started_at.get_or_insert(at);
    run.phase = Phase::Thinking { purpose, attempt: 1, not_before: None };
}

/// A person's action: its only iteration has a call and no model call.
fn start_action(run: &mut Run, at: Timestamp, call: &OpenCall) {
    run.output.length += 1;
    run.iteration = 1;
    run.started_at.get_or_insert(at);
    run.calls_used += 1;
    run.children_used += u32::from(call.child.is_some());
    run.phase = Phase::Waiting { calls: vec![call.clone()] };
}

fn count(run: &mut Run, usage: Usage, lost: u64) {
    run.usage.add(usage);
    run.lost = run.lost.saturating_add(lost);
}

/// A child run has ended: what its tree used counts here, and so does what it read.
fn count_below(run: &mut Run, used: Below) {
    run.below.add(used);
    run.tainted |= used.tainted;
}

/// Another attempt of the iteration's model call is owed.
fn ask_again(run: &mut Run, at: Option<Timestamp>) {
    if let Phase::Thinking { attempt, not_before, .. } = &mut run.phase {
        *attempt += 1;
        *not_before = at;
    }
}

/// Results that have arrived and instructions that no model call has read are appended before the deliverable.
fn end(run: &mut Run, status: TaskStatus, reason: EndReason) {
    let received = run.calls().iter().filter(|call| call.is_received()).count();
    run.output.length += (received + run.steering.len()) as u32 + 1;
    run.steering.clear();
    run.interrupts.clear();
    run.waiting_since = None;
    run.phase = Phase::Ended { status, reason };
}

/// Calls are made. Their contents are among the `items` new items of the output box.
fn make_calls(run: &mut Run, items: u32, calls: &[OpenCall]) {
    run.output.length += items;
    run.calls_used += calls.len() as u32;
    run.children_used += calls.iter().filter(|call| call.child.is_some()).count() as u32;
    run.phase = Phase::Waiting { calls: calls.to_vec() };
}

/// A result has arrived.
fn report(run: &mut Run, call: CallNumber, received: Progress) {
    run.takeovers = 0;
    run.tainted |= run.call(call).is_some_and(|call| call.untrusted);
    set_progress(run, call, received);
    // A result that arrives after all answers the question what became of the call.
    run.interrupts.retain(|interrupt| interrupt.call != Some(call));
    stop_waiting(run);
}

/// A call begins the pause before a repetition.
fn repeat(run: &mut Run, call: CallNumber, retry: u32, at: Timestamp) {
    run.takeovers = 0;
    if let Some(open) = open_call(run, call) {
        (open.retry, open.not_before) = (retry, Some(at));
    }
}

/// An instruction waits for the next iteration.
fn steer(run: &mut Run, item: ItemId) {
    run.steering.push(item);
    run.steered += 1;
}

fn open_interrupt(run: &mut Run, interrupt: Interrupt) {
    run.waiting_since = run.waiting_since.or(interrupt.at);
    run.interrupts.push(interrupt);
}

/// Opens an interrupt for an event of a version that numbered none. The event itself has been counted already.
fn hold(run: &mut Run, cause: Cause, call: Option<CallNumber>) {
    run.interrupts.push(Interrupt::new(run.next_number - 1, cause, call));
}

fn approve(run: &mut Run, number: u64, by: &Arc<str>) {
    if let Some(open) = run.interrupts.iter_mut().find(|open| open.number == number) {
        open.approvals.push(by.clone());
    }
}

/// The new call is in the output box. What people approved before was another call.
fn edit(run: &mut Run, number: u64, item: ItemId, by: &Arc<str>) {
    run.output.length += 1;
    if let Some(open) = run.interrupts.iter_mut().find(|open| open.number == number) {
        open.shows = Some(item);
        open.approvals = vec![by.clone()];
    }
}

/// Closes the interrupt that holds this call, or the run, for an event of a version that numbered none.
fn end_hold(run: &mut Run, call: Option<CallNumber>) {
    let held = run.interrupts.iter().find(|open| open.call == call).map(|open| open.number);
    held.into_iter().for_each(|number| resolve(run, number, None));
}

/// A call may start under a new deadline.
fn release(run: &mut Run, call: CallNumber, deadline: Timestamp) {
    end_hold(run, Some(call));
    if let Some(open) = open_call(run, call) {
        (open.deadline, open.not_before) = (deadline, None);
    }
}

/// Closes an interrupt. A call that it held may start now, if it gets a deadline; a run that it held begins to count lost owners again.
fn resolve(run: &mut Run, number: u64, deadline: Option<Timestamp>) {
    let Some(index) = run.interrupts.iter().position(|open| open.number == number) else { return };
    let closed = run.interrupts.remove(index);
    stop_waiting(run);
    match closed.call {
        None => run.takeovers = 0,
        Some(call) => {
            if let (Some(open), Some(deadline)) = (open_call(run, call), deadline) {
                open.deadline = deadline;
            }
        }
    }
}

/// Ends the wait for people, if nothing waits for one any more.
fn stop_waiting(run: &mut Run) {
    if run.interrupts.is_empty() {
        run.waiting_since = None;
    }
}

/// Folds a whole journal. `None` if it does not begin with `Accepted`.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<Run> {
    events.into_iter().try_fold(None, |run, event| apply(run, event).map(Some)).flatten()
}

fn begin(event: &Event) -> Option<Run> {
    let Event::Accepted { origin, context, output, caller, parent } = event else {
        return None;
    };
    Some(Run {
        phase: Phase::Accepted,
        origin: *origin,
        iteration: 0,
        next_number: 1,
        calls_used: 0,
        context: *context,
        output: *output,
        usage: Usage::default(),
        lost: 0,
        model: ReplyFacts::default(),
        caller: *caller,
        started_at: None,
        takeovers: 0,
        compacting: 0,
        compacted_in: 0,
        interrupts: Vec::new(),
        waiting_since: None,
        raised: RaisedLimits::default(),
        tainted: parent.as_ref().is_some_and(|parent| parent.tainted),
        steering: Vec::new(),
        steered: 0,
        parent: parent.as_deref().cloned(),
        children_used: 0,
        below: Below::default(),
    })
}

fn set_progress(run: &mut Run, number: CallNumber, progress: Progress) {
    if let Some(call) = open_call(run, number) {
        call.progress = progress;
    }
}

fn open_call(run: &mut Run, number: CallNumber) -> Option<&mut OpenCall> {
    let Phase::Waiting { calls } = &mut run.phase else {
        return None;
    };
    calls.iter_mut().find(|call| call.call == number)
}
