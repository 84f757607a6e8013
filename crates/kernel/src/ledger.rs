//! What events do to the rows of calls. The engine writes these changes, and the model check applies them to its own rows.

use crate::{
    event::{Event, TaskStatus},
    ids::{CallNumber, ItemId, Timestamp},
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
    /// A tool service holds the call. Only the store sets this status.
    Claimed,
    /// The result is stored.
    Received,
    /// The result is in the output box.
    Applied,
    /// The deadline passed before a result arrived.
    Expired,
    /// The call is parked until a person decides.
    Parked,
    /// The run ended before the result arrived.
    Dropped,
}

impl CallStatus {
    /// All statuses.
    pub const ALL: &'static [CallStatus] = &[
        CallStatus::Started,
        CallStatus::Waiting,
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
            Route::InProcess => CallStatus::Started,
            Route::External | Route::Client => CallStatus::Waiting,
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
    },
}

/// What an event does to the rows of calls. `before` is the run without the event.
pub fn call_updates(before: &Run, event: &Event) -> Vec<(CallNumber, CallUpdate)> {
    match event {
        Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } => made(before.iteration, calls),
        Event::ActionStarted { call, .. } => made(1, std::slice::from_ref(call)),
        Event::Reported { call, status, item, .. } => vec![moved(*call, arrived(*status), Some(*item))],
        Event::LeaseEnded { call } => vec![moved(*call, CallStatus::Waiting, None)],
        Event::CallParked { call } => vec![moved(*call, CallStatus::Parked, None)],
        Event::CallReleased { call, deadline } => {
            let route = before.call(*call).map_or(Route::External, |call| call.route);
            vec![(*call, CallUpdate::Moved { status: CallStatus::fresh(route), result: None, deadline: Some(*deadline) })]
        }
        // A parked run restarts nothing, and one that has lost too many owners is parked by its next event.
        Event::OwnerChanged { .. } if before.parked.is_some() || before.takeovers + 1 >= TAKEOVERS_MAX => Vec::new(),
        Event::OwnerChanged { .. } | Event::Unparked => restarted(before.calls()),
        Event::IterationStarted { .. } | Event::Ended { .. } => before.calls().iter().map(settled).collect(),
        Event::Accepted { .. }
        | Event::Leased
        | Event::AttemptFailed { .. }
        | Event::Cut { .. }
        | Event::Reasoned { .. }
        | Event::Compacting { .. }
        | Event::Compacted { .. }
        | Event::Heartbeat
        | Event::Parked { .. }
        | Event::Ignored { .. }
        | Event::BudgetBreached { .. } => Vec::new(),
    }
}

fn made(iteration: u32, calls: &[OpenCall]) -> Vec<(CallNumber, CallUpdate)> {
    calls.iter().map(|call| (call.call, CallUpdate::Made { iteration, call: call.clone() })).collect()
}

fn moved(call: CallNumber, status: CallStatus, result: Option<ItemId>) -> (CallNumber, CallUpdate) {
    (call, CallUpdate::Moved { status, result, deadline: None })
}

fn arrived(status: TaskStatus) -> CallStatus {
    if status == TaskStatus::Timeout { CallStatus::Expired } else { CallStatus::Received }
}

/// The calls that a server starts again: they were started and have no result. A write is parked by an event of its own.
fn restarted(calls: &[OpenCall]) -> Vec<(CallNumber, CallUpdate)> {
    let is_restarted =
        |call: &&OpenCall| call.route == Route::InProcess && call.progress == Progress::Open && call.effect != EffectClass::Write;
    calls.iter().filter(is_restarted).map(|call| moved(call.call, CallStatus::Started, None)).collect()
}

/// The last change of a call: its result is applied, or it is given up.
fn settled(call: &OpenCall) -> (CallNumber, CallUpdate) {
    let status = match call.progress {
        Progress::Received { status: TaskStatus::Timeout, .. } => CallStatus::Expired,
        Progress::Received { .. } => CallStatus::Applied,
        Progress::Open | Progress::Parked => CallStatus::Dropped,
    };
    moved(call.call, status, None)
}
