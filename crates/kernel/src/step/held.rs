//! Interrupts: what holds a run or a call, and what a person's answer does.

use std::sync::Arc;

use super::{Draft, Taken};
use crate::{
    event::{EndReason, Event, IgnoreReason, TaskStatus},
    ids::{CallNumber, ItemId},
    input::{Answer, Decision},
    interrupt::{Cause, Interrupt, OnTimeout, Verdict},
    policy::{Delivery, Ending},
    run::OpenCall,
};

impl Draft<'_, '_> {
    /// Holds a call that was just made, if a rule wants a person to approve it. `shows` is the item with its arguments.
    pub(super) fn hold_for_approval(&mut self, call: &OpenCall, shows: ItemId) {
        let Some(tool) = self.manifest.tool(call.tool.as_str()) else { return };
        let tainted = self.run().tainted;
        let Some(gate) = self.manifest.gates.iter().find(|gate| gate.holds(tool, tainted)) else { return };
        let until = gate.until_ms.map(|ms| self.deadline(ms));
        let number = self.run().next_number;
        self.record(Event::Interrupted(Interrupt {
            shows: Some(shows),
            until,
            on_timeout: gate.on_timeout,
            needs: gate.approvers.max(1),
            ..Interrupt::new(number, Cause::Approval, Some(call.call))
        }));
    }

    pub(super) fn panicked(&mut self) -> Taken {
        if self.run().is_held() {
            return Err(IgnoreReason::OutOfPhase);
        }
        // What panicked may have been a write: a resumed run must not start it again.
        self.hold_cut_writes();
        self.interrupt(Cause::Panicked, None);
        Ok(())
    }

    pub(super) fn answered(&mut self, answer: Answer) -> Taken {
        let Answer { interrupt, shows, by, decision } = answer;
        let open = self.run().interrupt(interrupt).cloned().ok_or(IgnoreReason::NotParked)?;
        let names_item = matches!(decision, Decision::Approve | Decision::Reject { .. });
        if names_item && open.shows != shows {
            return Err(IgnoreReason::NotShown);
        }
        match (open.cause, open.call, decision) {
            (_, _, Decision::End) => self.end_by_answer(&open, by, Verdict::Ended, "ended by a person"),
            (Cause::Approval, Some(call), Decision::Approve) => self.approve(&open, call, by)?,
            (Cause::Approval, Some(call), Decision::Reject { comment }) => {
                self.resolve(&open, Verdict::Rejected, by);
                self.give_result(call, TaskStatus::Failed, "rejected", &rejection(&comment));
            }
            (Cause::UnknownOutcome, Some(call), Decision::Record { status, item }) => {
                let after = self.run().call(call).map(|call| call.after).unwrap_or_default();
                self.resolve(&open, Verdict::Recorded, by);
                self.record(Event::Reported { call, status, item, after });
            }
            (Cause::UnknownOutcome, Some(call), Decision::Release) => self.release(&open, call, Verdict::Released, by),
            (Cause::UnknownOutcome, Some(call), Decision::Tell) => {
                self.resolve(&open, Verdict::ReportedToModel, by);
                let text = "nobody knows whether this call took effect; check before you call it again";
                self.give_result(call, TaskStatus::Failed, "outcome_unknown", text);
            }
            (Cause::OwnersLost | Cause::Panicked, None, Decision::Resume) => self.resolve(&open, Verdict::Resumed, by),
            (Cause::Approval | Cause::UnknownOutcome | Cause::OwnersLost | Cause::Panicked, _, _) => {
                return Err(IgnoreReason::UnfitDecision);
            }
        }
        self.resume_if_answered();
        Ok(())
    }

    /// Records an approval, and releases the call if it was the last one that the rule wants.
    fn approve(&mut self, open: &Interrupt, call: CallNumber, by: Option<Arc<str>>) -> Taken {
        let is_enough = open.approvals.len() + 1 >= usize::from(open.needs);
        let name: Arc<str> = by.clone().unwrap_or_default();
        if open.approvals.contains(&name) {
            return Err(IgnoreReason::AlreadyApproved);
        }
        match is_enough {
            true => self.release(open, call, Verdict::Approved, by),
            false => self.record(Event::Approved { interrupt: open.number, by: name }),
        }
        Ok(())
    }

    /// Closes an interrupt, and lets the call that it held start under a new deadline.
    fn release(&mut self, open: &Interrupt, call: CallNumber, verdict: Verdict, by: Option<Arc<str>>) {
        let tool = self.run().call(call).and_then(|open| self.manifest.tool(open.tool.as_str()));
        let deadline = self.deadline(tool.map_or(0, |tool| tool.deadline_ms));
        self.record(Event::Resolved { interrupt: open.number, call: open.call, verdict, by, deadline: Some(deadline) });
    }

    fn resolve(&mut self, open: &Interrupt, verdict: Verdict, by: Option<Arc<str>>) {
        self.record(Event::Resolved { interrupt: open.number, call: open.call, verdict, by, deadline: None });
    }

    fn end_by_answer(&mut self, open: &Interrupt, by: Option<Arc<str>>, verdict: Verdict, text: &str) {
        self.resolve(open, verdict, by);
        let deliverable = Delivery::Text(text.to_owned());
        self.end(Ending { status: TaskStatus::Canceled, reason: EndReason::Stopped, deliverable });
    }

    /// The rule of the interrupt decides, because no person did in time.
    pub(super) fn interrupt_timed_out(&mut self, number: u64) -> Taken {
        let is_over = |open: &&Interrupt| open.until.is_some_and(|until| until <= self.moment.now);
        let open = self.run().interrupt(number).filter(is_over).cloned().ok_or(IgnoreReason::NotParked)?;
        match (open.on_timeout, open.call) {
            (OnTimeout::Approve, Some(call)) => self.release(&open, call, Verdict::TimedOut, None),
            (OnTimeout::Reject, Some(call)) => {
                self.resolve(&open, Verdict::TimedOut, None);
                self.give_result(call, TaskStatus::Failed, "approval_timed_out", "no person approved this call in time; it was not made");
            }
            (OnTimeout::End, _) | (OnTimeout::Approve | OnTimeout::Reject, None) => {
                self.end_by_answer(&open, None, Verdict::TimedOut, "ended because no person decided in time");
            }
        }
        self.resume_if_answered();
        Ok(())
    }
}

fn rejection(comment: &str) -> String {
    match comment {
        "" => "a person rejected this call; it was not made".to_owned(),
        comment => format!("a person rejected this call; it was not made. They say: {comment}"),
    }
}
