//! Child runs: how their parents start, answer and stop them, and what they report at their end.

use super::{Draft, Taken};
use crate::{
    budget::Below,
    content::{self, ItemKind},
    event::{Event, IgnoreReason, TaskStatus},
    ids::{CallNumber, ItemId, RunId},
    run::{OpenCall, ParentCall, Progress, Run},
};

/// What an ended child run reports to its parent. It is committed together with the end of the child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildReport {
    /// The call that it is the result of.
    pub parent: ParentCall,
    /// How the run ended.
    pub status: TaskStatus,
    /// The item with the content of the result.
    pub item: ItemId,
    /// What the run and the runs below it used.
    pub below: Below,
}

impl Draft<'_, '_> {
    /// The child run is on record and has an owner of its own: from now on the parent only waits.
    pub(super) fn child_begun(&mut self, number: CallNumber) -> Taken {
        if self.run().call_hold(number).is_some_and(|interrupt| !interrupt.takes_results()) {
            return Err(IgnoreReason::Held);
        }
        match self.run().call(number) {
            Some(OpenCall { child: Some(_), progress: Progress::Open, .. }) => {
                self.record(Event::ChildBegun { call: number });
                Ok(())
            }
            Some(OpenCall { progress: Progress::Received { .. } | Progress::Begun, .. }) => Err(IgnoreReason::AlreadyReported),
            Some(OpenCall { child: None, .. }) | None => Err(IgnoreReason::NotWaiting),
        }
    }

    /// Makes the result that the parent gets, if the run that has ended has one. `deliverable` is the encoded deliverable of the run.
    pub(super) fn report_to_parent(&mut self, status: TaskStatus, deliverable: &[u8]) {
        let Some(parent) = self.run().parent.clone() else { return };
        let item = self.new_item(ItemKind::Result, content::child_result(parent.call, status, deliverable));
        let below = self.run().used(&self.manifest.budgets);
        self.made.report = Some(ChildReport { parent, status, item, below });
    }
}

/// The child runs that nothing waits for after an event: those of a run that ends, and that of a call whose time is over. `before` is the
/// run without the event.
pub(super) fn stops(before: &Run, event: &Event) -> Vec<RunId> {
    let timed_out = if let Event::Reported { call, status: TaskStatus::Timeout, .. } = event { Some(*call) } else { None };
    let has_ended = matches!(event, Event::Ended { .. });
    let is_given_up = |call: &&OpenCall| !call.is_received() && (has_ended || timed_out == Some(call.call));
    before.calls().iter().filter(is_given_up).filter_map(|call| call.child).collect()
}
