//! Interrupts: what holds a run or a call, and what a person's answer does.

use std::sync::Arc;

use super::{Draft, Taken};
use crate::{
    budget::{self, Breach, RaisedBudget, Spent},
    event::{EndReason, Event, IgnoreReason, TaskStatus},
    ids::{CallNumber, ItemId, Timestamp},
    input::{Answer, Decision},
    interrupt::{Cause, Interrupt, OnTimeout, PassedBudget, Verdict},
    manifest::Route,
    policy::{Delivery, Ending},
    run::{OpenCall, Phase},
};

impl Draft<'_, '_> {
    /// Holds a call that was just made, if it is a question to a person or a rule wants a person to approve it. `shows` is the item with its
    /// arguments. A rule that applies to a question gives it its deadline.
    pub(super) fn hold_for_person(&mut self, call: &OpenCall, shows: ItemId) {
        let Some(tool) = self.manifest.tool(call.tool.as_str()) else { return };
        let tainted = self.run().tainted;
        let gate = self.manifest.gates.iter().find(|gate| gate.applies_to(tool, tainted));
        let asks = tool.route == Route::Person;
        if gate.is_none() && !asks {
            return;
        }
        let until = gate.and_then(|gate| gate.until_ms).map(|ms| self.moment.now.plus_ms(ms));
        let on_timeout = match gate.map_or(OnTimeout::Reject, |gate| gate.on_timeout) {
            // There is no answer that could be given for a person.
            OnTimeout::Approve if asks => OnTimeout::Reject,
            reaction @ (OnTimeout::Approve | OnTimeout::Reject | OnTimeout::End) => reaction,
        };
        let (cause, needs) = match gate {
            Some(gate) if !asks => (Cause::Approval, gate.approvers.max(1)),
            Some(_) | None => (Cause::Question, 1),
        };
        let (number, at) = (self.run().next_number, Some(self.moment.now));
        let interrupt = Interrupt { shows: Some(shows), until, on_timeout, needs, at, ..Interrupt::new(number, cause, Some(call.call)) };
        self.record(Event::Interrupted(interrupt));
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
            (Cause::Question, Some(call), Decision::Answer { item }) => {
                let after = self.run().call(call).map(|call| call.after).unwrap_or_default();
                self.resolve(&open, Verdict::Answered, by);
                self.record(Event::Reported { call, status: TaskStatus::Success, item, after, below: None });
            }
            (Cause::Question, Some(call), Decision::Reject { comment }) => {
                self.resolve(&open, Verdict::Rejected, by);
                self.give_result(call, TaskStatus::Failed, "rejected", &refused_answer(&comment));
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
            (Cause::Approval | Cause::Question | Cause::UnknownOutcome | Cause::Budget | Cause::OwnersLost | Cause::Panicked, _, _) => {
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
        let at = Some(self.moment.now);
        self.record(Event::Interrupted(Interrupt { budget, at, ..Interrupt::new(number, Cause::Budget, None) }));
    }

    fn raise(&mut self, open: &Interrupt, limit: u64, by: Option<Arc<str>>) -> Taken {
        let passed = open.budget.ok_or(IgnoreReason::UnfitDecision)?;
        if limit < passed.limit_min() {
            return Err(IgnoreReason::RaisedTooLittle);
        }
        let waited_ms = match self.run().waiting_since {
            Some(_) => self.waited_ms(),
            // The journal of an earlier version says only here since when the run waits.
            None => self.moment.now.0.saturating_sub(passed.at.0).max(0).unsigned_abs(),
        };
        let raised = Some(RaisedBudget { kind: passed.breach.kind, limit, waited_ms });
        let verdict = Verdict::Raised;
        self.record(Event::Resolved { interrupt: open.number, call: None, verdict, by, deadline: None, raised, waited_ms: 0 });
        // Another budget may be passed too. A new iteration checks all of them itself.
        let (run, budgets, now) = (self.run(), &self.manifest.budgets, self.moment.now);
        let still = match run.phase {
            Phase::Thinking { .. } => budget::before_attempt(run, budgets, now),
            Phase::Waiting { .. } if run.waiting_count() > 0 => {
                budget::before_calls(run, budgets, Spent::default(), budget::Wanted::default(), now)
            }
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
        if let Some(breach) =
            budget::before_calls(self.run(), &self.manifest.budgets, Spent::default(), budget::Wanted::default(), self.moment.now)
        {
            self.resolve(open, verdict, by);
            let (kind, limit) = (breach.kind.as_str(), breach.limit);
            let text = format!("the budget of {limit} {kind} was used up before this call could be started");
            return self.give_result(call, TaskStatus::Failed, "budget_used_up", &text);
        }
        let tool = self.run().call(call).and_then(|open| self.manifest.tool(open.tool.as_str()));
        let deadline = self.deadline(tool.map_or(0, |tool| tool.deadline_ms));
        self.close(open, verdict, by, Some(deadline));
    }

    fn resolve(&mut self, open: &Interrupt, verdict: Verdict, by: Option<Arc<str>>) {
        self.close(open, verdict, by, None);
    }

    /// Closes an interrupt. The call that it held may start if it gets a deadline.
    fn close(&mut self, open: &Interrupt, verdict: Verdict, by: Option<Arc<str>>, deadline: Option<Timestamp>) {
        let waited_ms = self.waited_ms();
        self.record(Event::Resolved { interrupt: open.number, call: open.call, verdict, by, deadline, raised: None, waited_ms });
    }

    /// How long the run has waited for people, if only one interrupt is open and is being closed. Interrupts that are open at the same time
    /// are one wait.
    fn waited_ms(&self) -> u64 {
        match self.run().interrupts.as_slice() {
            [_only] => budget::waiting_ms(self.run(), self.moment.now),
            _ => 0,
        }
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
                match open.cause {
                    Cause::Question => self.give_result(call, TaskStatus::Timeout, "answer_timed_out", "no person answered in time"),
                    Cause::Approval | Cause::UnknownOutcome | Cause::Budget | Cause::OwnersLost | Cause::Panicked => {
                        let text = "no person approved this call in time; it was not made";
                        self.give_result(call, TaskStatus::Failed, "approval_timed_out", text);
                    }
                }
            }
            (OnTimeout::End, _) | (OnTimeout::Approve | OnTimeout::Reject, None) => {
                self.end_by_answer(&open, None, Verdict::TimedOut, "ended because no person decided in time");
            }
        }
        self.resume_if_answered();
        Ok(())
    }
}

fn refused_answer(comment: &str) -> String {
    match comment {
        "" => "the person did not answer".to_owned(),
        comment => format!("the person did not answer. They say: {comment}"),
    }
}

fn rejection(comment: &str) -> String {
    match comment {
        "" => "a person rejected this call; it was not made".to_owned(),
        comment => format!("a person rejected this call; it was not made. They say: {comment}"),
    }
}
