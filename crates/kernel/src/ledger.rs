//! What events do to the rows of calls. The engine writes these changes, and the model check applies them to its own rows.

use std::sync::Arc;

use crate::{
    event::{Event, TaskStatus},
    ids::{CallNumber, ItemId, Timestamp},
    interrupt::{Cause, Interrupt, Verdict},
    manifest::{EffectClass, Route},
    run::{OpenCall, Progress, Run},
    step::TAKEOVERS_MAX,
};

/// The status of a call's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallStatus {
    /// An executor of the server process was given the call.
    Started,
    /// The call waits for a tool service to claim it.
    Waiting,
    /// The child run that the call starts is on record.
    Begun,
    /// A tool service holds the call. Only the store sets this status.
    Claimed,
    /// The result is stored.
    Received,
    /// The result is in the output box.
    Applied,
    /// The deadline passed before a result arrived.
    Expired,
    /// An interrupt holds the call until a person decides, or the call is in the pause before its repetition.
    Parked,
    /// The run ended before the result arrived.
    Dropped,
}

impl CallStatus {
    /// All statuses.
    pub const ALL: &'static [CallStatus] = &[
        CallStatus::Started,
        CallStatus::Waiting,
        CallStatus::Begun,
        CallStatus::Claimed,
        CallStatus::Received,
        CallStatus::Applied,
        CallStatus::Expired,
        CallStatus::Parked,
        CallStatus::Dropped,
    ];

    /// The status, as stores and the wire spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            CallStatus::Started => "started",
            CallStatus::Waiting => "waiting",
            CallStatus::Begun => "begun",
            CallStatus::Claimed => "claimed",
            CallStatus::Received => "received",
            CallStatus::Applied => "applied",
            CallStatus::Expired => "expired",
            CallStatus::Parked => "parked",
            CallStatus::Dropped => "dropped",
        }
    }

    /// The status that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == text)
    }

    /// The status of a call that was just made or released.
    pub fn fresh(route: Route) -> Self {
        match route {
            // A child call is never `waiting`: it would be claimed.
            Route::InProcess | Route::Child => CallStatus::Started,
            Route::External | Route::Client => CallStatus::Waiting,
            // Only an answer ends it, and no service may claim it.
            Route::Person => CallStatus::Parked,
        }
    }
}

/// A change of a call's row.
#[derive(Clone, Debug, PartialEq)]
pub enum CallUpdate {
    /// The call is made: it gets a row.
    Made {
        /// The iteration that makes it.
        iteration: u32,
        /// The call.
        call: OpenCall,
    },
    /// The row gets another status.
    Moved {
        /// The new status.
        status: CallStatus,
        /// The item of the result, if the call gets one.
        result: Option<ItemId>,
        /// The new deadline, if it changes.
        deadline: Option<Timestamp>,
        /// The item with other arguments, if a person changed them.
        item: Option<ItemId>,
        /// The number of the repetition that comes next, if the call is repeated.
        retry: Option<u32>,
    },
}

/// A change of an interrupt's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterruptUpdate {
    /// The interrupt is opened: it gets a row.
    Opened(Interrupt),
    /// One of the people who must approve has approved.
    Approved {
        /// The number of the interrupt.
        interrupt: u64,
        /// Who approved.
        by: Arc<str>,
    },
    /// A person changed the arguments of the call, and approved it so.
    Edited {
        /// The number of the interrupt.
        interrupt: u64,
        /// The item that the others must have seen.
        shows: ItemId,
        /// Who changed them. Earlier approvals count no more.
        by: Arc<str>,
    },
    /// The interrupt is closed.
    Closed {
        /// The number of the interrupt.
        interrupt: u64,
        /// How it was closed.
        verdict: Verdict,
        /// Who decided, if a person did.
        by: Option<Arc<str>>,
    },
}

/// What an event does to the rows of interrupts. `before` is the run without the event.
pub fn interrupt_updates(before: &Run, event: &Event) -> Vec<InterruptUpdate> {
    let close = |open: &Interrupt, verdict| InterruptUpdate::Closed { interrupt: open.number, verdict, by: None };
    match event {
        Event::Interrupted(interrupt) => vec![InterruptUpdate::Opened(interrupt.clone())],
        Event::Approved { interrupt, by } => vec![InterruptUpdate::Approved { interrupt: *interrupt, by: by.clone() }],
        Event::Edited { interrupt, item, by, .. } => {
            vec![InterruptUpdate::Edited { interrupt: *interrupt, shows: *item, by: by.clone() }]
        }
        Event::Resolved { interrupt, verdict, by, .. } => {
            vec![InterruptUpdate::Closed { interrupt: *interrupt, verdict: *verdict, by: by.clone() }]
        }
        Event::Reported { call, .. } => before.call_hold(*call).map(|open| close(open, Verdict::Reported)).into_iter().collect(),
        Event::Ended { .. } => before.interrupts.iter().map(|open| close(open, Verdict::Stopped)).collect(),
        Event::Accepted { .. }
        | Event::Leased
        | Event::IterationStarted { .. }
        | Event::ActionStarted { .. }
        | Event::CallsInherited { .. }
        | Event::Cut { .. }
        | Event::Heartbeat
        | Event::AttemptFailed { .. }
        | Event::Reasoned { .. }
        | Event::Compacting { .. }
        | Event::Compacted { .. }
        | Event::Replied { .. }
        | Event::ChildBegun { .. }
        | Event::LeaseEnded { .. }
        | Event::CallRetried { .. }
        | Event::CallParked { .. }
        | Event::CallReleased { .. }
        | Event::Parked { .. }
        | Event::Unparked
        | Event::OwnerChanged { .. }
        | Event::Ignored { .. }
        | Event::Steered { .. }
        | Event::BudgetBreached { .. } => Vec::new(),
    }
}

/// What an event does to the rows of calls. `before` is the run without the event.
pub fn call_updates(before: &Run, event: &Event) -> Vec<(CallNumber, CallUpdate)> {
    match event {
        Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } => made(before.iteration, calls),
        Event::ActionStarted { call, .. } => made(1, std::slice::from_ref(call)),
        Event::Reported { call, status, item, .. } => vec![moved(*call, arrived(*status), Some(*item))],
        Event::ChildBegun { call } => vec![moved(*call, CallStatus::Begun, None)],
        // It can be claimed or started again after the pause.
        Event::CallRetried { call, retry, .. } => {
            vec![(*call, CallUpdate::Moved { status: CallStatus::Parked, result: None, deadline: None, item: None, retry: Some(*retry) })]
        }
        Event::LeaseEnded { call } => vec![moved(*call, CallStatus::Waiting, None)],
        Event::Edited { call, item, .. } => {
            vec![(*call, CallUpdate::Moved { status: CallStatus::Parked, result: None, deadline: None, item: Some(*item), retry: None })]
        }
        // The calls of the iteration wait unstarted for a higher limit.
        Event::Interrupted(Interrupt { cause: Cause::Budget, .. }) => {
            let free = before.calls().iter().filter(|call| before.is_free(call));
            free.map(|call| moved(call.call, CallStatus::Parked, None)).collect()
        }
        Event::Interrupted(Interrupt { call: Some(call), .. }) | Event::CallParked { call } => vec![moved(*call, CallStatus::Parked, None)],
        Event::Resolved { interrupt, deadline, raised, .. } => match before.interrupt(*interrupt).map(|open| open.call) {
            Some(Some(call)) => deadline.map(|deadline| released(before, call, deadline)).into_iter().collect(),
            // The calls that waited for a higher limit are released by events of their own.
            Some(None) if raised.is_some() => Vec::new(),
            Some(None) => restarted(before),
            None => Vec::new(),
        },
        Event::CallReleased { call, deadline } => vec![released(before, *call, *deadline)],
        // A held run restarts nothing, and one that has lost too many owners is held by its next event.
        Event::OwnerChanged { .. } if before.is_held() || before.takeovers + 1 >= TAKEOVERS_MAX => Vec::new(),
        Event::OwnerChanged { .. } | Event::Unparked => restarted(before),
        Event::IterationStarted { .. } | Event::Ended { .. } => before.calls().iter().map(settled).collect(),
        Event::Accepted { .. }
        | Event::Leased
        | Event::AttemptFailed { .. }
        | Event::Cut { .. }
        | Event::Reasoned { .. }
        | Event::Compacting { .. }
        | Event::Compacted { .. }
        | Event::Heartbeat
        | Event::Interrupted(_)
        | Event::Approved { .. }
        | Event::Parked { .. }
        | Event::Ignored { .. }
        | Event::Steered { .. }
        | Event::BudgetBreached { .. } => Vec::new(),
    }
}

fn made(iteration: u32, calls: &[OpenCall]) -> Vec<(CallNumber, CallUpdate)> {
    calls.iter().map(|call| (call.call, CallUpdate::Made { iteration, call: call.clone() })).collect()
}

fn moved(call: CallNumber, status: CallStatus, result: Option<ItemId>) -> (CallNumber, CallUpdate) {
    (call, CallUpdate::Moved { status, result, deadline: None, item: None, retry: None })
}

fn arrived(status: TaskStatus) -> CallStatus {
    if status == TaskStatus::Timeout { CallStatus::Expired } else { CallStatus::Received }
}

/// The calls that a server starts again: they were started and have no result. A write is held by an event of its own.
fn restarted(run: &Run) -> Vec<(CallNumber, CallUpdate)> {
    let may_run = |call: &OpenCall| run.is_free(call) && call.not_before.is_none();
    let is_restarted = |call: &&OpenCall| call.route == Route::InProcess && may_run(call) && call.effect != EffectClass::Write;
    run.calls().iter().filter(is_restarted).map(|call| moved(call.call, CallStatus::Started, None)).collect()
}

fn released(run: &Run, call: CallNumber, deadline: Timestamp) -> (CallNumber, CallUpdate) {
    let open = run.call(call);
    let status = match open.map(|call| call.progress) {
        Some(Progress::Begun) => CallStatus::Begun,
        Some(Progress::Open | Progress::Received { .. }) | None => CallStatus::fresh(open.map_or(Route::External, |call| call.route)),
    };
    (call, CallUpdate::Moved { status, result: None, deadline: Some(deadline), item: None, retry: None })
}

/// The last change of a call: its result is applied, or it is given up.
fn settled(call: &OpenCall) -> (CallNumber, CallUpdate) {
    let status = match call.progress {
        Progress::Received { status: TaskStatus::Timeout, .. } => CallStatus::Expired,
        Progress::Received { .. } => CallStatus::Applied,
        Progress::Open | Progress::Begun => CallStatus::Dropped,
    };
    moved(call.call, status, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        apply::fold,
        budget::{BudgetKind, RaisedBudget},
        event::TaskStatus::Success,
        ids::{BoxId, ToolName},
        manifest::AfterExecution,
        run::{BoxRange, Origin},
    };

    #[test]
    fn a_status_is_read_back_as_it_is_spelled() {
        for status in CallStatus::ALL {
            assert_eq!(CallStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(CallStatus::parse("done"), None);
    }

    fn call(number: u32, route: Route, effect: EffectClass) -> OpenCall {
        OpenCall {
            call: CallNumber(number),
            tool: ToolName::from("tool"),
            route,
            effect,
            after: AfterExecution::Suspend,
            untrusted: false,
            child: None,
            deadline: Timestamp(9),
            retry: 0,
            not_before: None,
            progress: Progress::Open,
        }
    }

    /// A run with a started read and write, a waiting read, and a read that has its result.
    fn run() -> Run {
        let range = BoxRange { id: BoxId(uuid::Uuid::nil()), length: 0 };
        let accepted = Event::Accepted { origin: Origin::Turn, context: range, output: range, caller: None, parent: None };
        let calls = vec![
            call(1, Route::InProcess, EffectClass::Read),
            call(2, Route::InProcess, EffectClass::Write),
            call(3, Route::External, EffectClass::Read),
            call(4, Route::InProcess, EffectClass::Read),
        ];
        let made = Event::CallsInherited { at: Timestamp(1), calls, tainted: false };
        let item = ItemId(uuid::Uuid::nil());
        let reported = Event::Reported { call: CallNumber(4), status: Success, item, after: AfterExecution::Suspend, below: None };
        fold([&accepted, &made, &reported]).unwrap()
    }

    fn held(run: &Run, cause: Cause, call: Option<CallNumber>) -> (Run, u64) {
        let number = run.next_number;
        let event = Event::Interrupted(Interrupt::new(number, cause, call));
        (crate::apply::apply(Some(run.clone()), &event).unwrap(), number)
    }

    fn statuses(run: &Run, event: &Event) -> Vec<(u32, CallStatus)> {
        let status = |(call, update): (CallNumber, CallUpdate)| match update {
            CallUpdate::Moved { status, .. } => (call.0, status),
            CallUpdate::Made { .. } => panic!("no call is made"),
        };
        call_updates(run, event).into_iter().map(status).collect()
    }

    fn resolved(interrupt: u64, verdict: Verdict, raised: Option<RaisedBudget>) -> Event {
        Event::Resolved { interrupt, call: None, verdict, by: None, deadline: None, raised, waited_ms: 0 }
    }

    #[test]
    fn only_reads_of_the_process_that_nothing_holds_are_started_again() {
        let run = run();
        assert_eq!(statuses(&run, &Event::OwnerChanged { lost: 0 }), [(1, CallStatus::Started)]);
        let (one_held, _) = held(&run, Cause::UnknownOutcome, Some(CallNumber(1)));
        assert_eq!(statuses(&one_held, &Event::OwnerChanged { lost: 0 }), []);
        let (all_held, number) = held(&run, Cause::Panicked, None);
        assert_eq!(statuses(&all_held, &Event::OwnerChanged { lost: 0 }), [], "a held run restarts nothing");
        assert_eq!(statuses(&all_held, &resolved(number, Verdict::Resumed, None)), [(1, CallStatus::Started)]);
    }

    #[test]
    fn calls_that_wait_for_a_budget_are_parked_and_released_one_by_one() {
        let run = run();
        let waits = Event::Interrupted(Interrupt::new(run.next_number, Cause::Budget, None));
        assert_eq!(statuses(&run, &waits), [(1, CallStatus::Parked), (2, CallStatus::Parked), (3, CallStatus::Parked)]);
        let (waiting, number) = held(&run, Cause::Budget, None);
        let raised = RaisedBudget { kind: BudgetKind::Calls, limit: 9, waited_ms: 0 };
        assert_eq!(statuses(&waiting, &resolved(number, Verdict::Raised, Some(raised))), []);
        for (call, status) in [(1, CallStatus::Started), (2, CallStatus::Started), (3, CallStatus::Waiting)] {
            let released = Event::CallReleased { call: CallNumber(call), deadline: Timestamp(20) };
            let update = CallUpdate::Moved { status, result: None, deadline: Some(Timestamp(20)), item: None, retry: None };
            assert_eq!(call_updates(&waiting, &released), [(CallNumber(call), update)]);
        }
    }

    #[test]
    fn the_end_of_an_iteration_applies_results_and_drops_the_rest() {
        let ended = Event::Ended { status: Success, reason: crate::event::EndReason::Answered };
        let (dropped, applied) = (CallStatus::Dropped, CallStatus::Applied);
        assert_eq!(statuses(&run(), &ended), [(1, dropped), (2, dropped), (3, dropped), (4, applied)]);
    }

    #[test]
    fn an_interrupt_is_closed_by_its_answer_by_a_late_result_and_by_the_end() {
        let (run, number) = held(&run(), Cause::UnknownOutcome, Some(CallNumber(2)));
        let closed = |verdict| [InterruptUpdate::Closed { interrupt: number, verdict, by: None }];
        let item = ItemId(uuid::Uuid::nil());
        let late = Event::Reported { call: CallNumber(2), status: Success, item, after: AfterExecution::Suspend, below: None };
        assert_eq!(interrupt_updates(&run, &late), closed(Verdict::Reported));
        let ended = Event::Ended { status: Success, reason: crate::event::EndReason::Answered };
        assert_eq!(interrupt_updates(&run, &ended), closed(Verdict::Stopped));
        assert_eq!(interrupt_updates(&run, &resolved(number, Verdict::Released, None)), closed(Verdict::Released));
        let other = Event::Reported { call: CallNumber(1), status: Success, item, after: AfterExecution::Suspend, below: None };
        assert_eq!(interrupt_updates(&run, &other), []);
    }
}
