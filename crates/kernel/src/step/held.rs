//! Interrupts: what holds a run or a call, and what a person's answer does.

use std::sync::Arc;

use super::{Draft, Taken};
use crate::{
    budget::{self, Breach, RaisedBudget},
    event::{EndReason, Event, IgnoreReason, TaskStatus},
    ids::{CallNumber, ItemId},
    input::{Answer, Decision},
    interrupt::{Cause, Interrupt, OnTimeout, PassedBudget, Verdict},
    policy::{Delivery, Ending},
    run::{OpenCall, Phase},
};

impl Draft<'_, '_> {
    /// Holds a call that was just made, if a rule wants a person to approve it. `shows` is the item with its arguments.
    pub(super) fn hold_for_approval(&mut self, call: &OpenCall, shows: ItemId) {
        let Some(tool) = self.manifest.tool(call.tool.as_str()) else { return };
        let tainted = self.run().tainted;
        let Some(gate) = self.manifest.gates.iter().find(|gate| gate.applies_to(tool, tainted)) else { return };
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
        // A write may have been running when the worker panicked: a resumed run must not start it again.
        self.hold_cut_writes();
        self.interrupt(Cause::Panicked, None);
        Ok(())
    }

    pub(super) fn answered(&mut self, answer: Answer) -> Taken {
        let Answer { interrupt, shows, by, decision } = answer;
        let open = self.run().interrupt(interrupt).cloned().ok_or(IgnoreReason::NotParked)?;
        let names_item = matches!(decision, Decision::Approve | Decision::Edit { .. } | Decision::Reject { .. });
        if names_item && open.shows != shows {
            return Err(IgnoreReason::NotShown);
        }
        match (open.cause, open.call, decision) {
            (Cause::Budget, _, Decision::End) => {
                self.resolve(&open, Verdict::Ended, by);
                if let Some(passed) = open.budget {
                    let ending = self.policy.breached(passed.breach);
                    self.end(ending);
                }
            }
            (_, _, Decision::End) => self.end_by_answer(&open, by, Verdict::Ended, "ended by a person"),
            (Cause::Approval, Some(call), Decision::Approve) => self.approve(&open, call, by)?,
            (Cause::Approval, Some(call), Decision::Edit { item }) => self.edit(&open, call, item, by),
            (Cause::Approval, Some(call), Decision::Reject { comment }) => {
                self.resolve(&open, Verdict::Rejected, by);
                self.give_result(call, TaskStatus::Failed, "rejected", &rejection(&comment));
            }
            (Cause::UnknownOutcome, Some(call), Decision::Record { status, item }) => {
                let after = self.run().call(call).map(|call| call.after).unwrap_or_default();
                self.resolve(&open, Verdict::Recorded, by);
                self.record(Event::Reported { call, status, item, after, below: None });
            }
            (Cause::UnknownOutcome, Some(call), Decision::Release) => self.release(&open, call, Verdict::Released, by),
            (Cause::UnknownOutcome, Some(call), Decision::Tell) => {
                self.resolve(&open, Verdict::ReportedToModel, by);
                let text = "nobody knows whether this call took effect; check before you call it again";
                self.give_result(call, TaskStatus::Failed, "outcome_unknown", text);
            }
            (Cause::Budget, None, Decision::Raise { limit }) => self.raise(&open, limit, by)?,
            (Cause::OwnersLost | Cause::Panicked, None, Decision::Resume) => self.resolve(&open, Verdict::Resumed, by),
            (Cause::Approval | Cause::UnknownOutcome | Cause::Budget | Cause::OwnersLost | Cause::Panicked, _, _) => {
                return Err(IgnoreReason::UnfitDecision);
            }
        }
        match self.run().phase {
            // A worker had entered the run, and a budget held it before its first iteration. Otherwise a worker is still to enter it.
            Phase::Accepted if open.cause == Cause::Budget => self.start_iteration(),
            Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. } | Phase::Ended { .. } => self.resume_if_answered(),
        }
        Ok(())
    }

    /// Holds the run until a person gives the budget a higher limit.
    pub(super) fn wait_for_budget(&mut self, breach: Breach) {
        let number = self.run().next_number;
        let budget = Some(PassedBudget { breach, at: self.moment.now });
        self.record(Event::Interrupted(Interrupt { budget, ..Interrupt::new(number, Cause::Budget, None) }));
    }

    fn raise(&mut self, open: &Interrupt, limit: u64, by: Option<Arc<str>>) -> Taken {
        let passed = open.budget.ok_or(IgnoreReason::UnfitDecision)?;
        if limit < passed.limit_min() {
            return Err(IgnoreReason::RaisedTooLittle);
        }
        let waited_ms = self.moment.now.0.saturating_sub(passed.at.0).max(0).unsigned_abs();
        let raised = Some(RaisedBudget { kind: passed.breach.kind, limit, waited_ms });
        self.record(Event::Resolved { interrupt: open.number, call: None, verdict: Verdict::Raised, by, deadline: None, raised });
        // Another budget may be passed too. A new iteration checks all of them itself.
        let (run, budgets, now) = (self.run(), &self.manifest.budgets, self.moment.now);
        let still = match run.phase {
            Phase::Thinking { .. } => budget::before_attempt(run, budgets, now),
            Phase::Waiting { .. } if run.waiting_count() > 0 => budget::before_calls(run, budgets, 0, budget::Wanted::default(), now),
            Phase::Accepted | Phase::Waiting { .. } | Phase::Ended { .. } => None,
        };
        match still {
            Some(breach) => self.breach(breach),
            None => self.release_waiting_calls(),
        }
        Ok(())
    }

    /// The calls of the iteration waited for a higher limit unstarted: each gets the whole time of its tool.
    fn release_waiting_calls(&mut self) {
        let calls: Vec<(CallNumber, u64)> = {
            let run = self.run();
            let free = run.calls().iter().filter(|call| run.is_free(call));
            free.map(|call| (call.call, self.manifest.tool(call.tool.as_str()).map_or(0, |tool| tool.deadline_ms))).collect()
        };
        for (call, ms) in calls {
            self.record(Event::CallReleased { call, deadline: self.deadline(ms) });
        }
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

    /// Gives the held call other arguments. That is their author's approval; what others approved before was another call.
    fn edit(&mut self, open: &Interrupt, call: CallNumber, item: ItemId, by: Option<Arc<str>>) {
        let name: Arc<str> = by.clone().unwrap_or_default();
        self.made.appended.push(item);
        self.record(Event::Edited { interrupt: open.number, call, item, by: name });
        if open.needs <= 1 {
            self.release(open, call, Verdict::Approved, by);
        }
    }

    /// Closes an interrupt, and lets the call that it held start under a new deadline. If a budget was used up meanwhile the call gets an
    /// error result instead: other calls of the iteration may be in progress, so that the run can't be held or ended here.
    fn release(&mut self, open: &Interrupt, call: CallNumber, verdict: Verdict, by: Option<Arc<str>>) {
        if let Some(breach) = budget::before_calls(self.run(), &self.manifest.budgets, 0, budget::Wanted::default(), self.moment.now) {
            self.resolve(open, verdict, by);
            let (kind, limit) = (breach.kind.as_str(), breach.limit);
            let text = format!("the budget of {limit} {kind} was used up before this call could be started");
            return self.give_result(call, TaskStatus::Failed, "budget_used_up", &text);
        }
        let tool = self.run().call(call).and_then(|open| self.manifest.tool(open.tool.as_str()));
        let deadline = self.deadline(tool.map_or(0, |tool| tool.deadline_ms));
        self.record(Event::Resolved { interrupt: open.number, call: open.call, verdict, by, deadline: Some(deadline), raised: None });
    }

    fn resolve(&mut self, open: &Interrupt, verdict: Verdict, by: Option<Arc<str>>) {
        self.record(Event::Resolved { interrupt: open.number, call: open.call, verdict, by, deadline: None, raised: None });
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
