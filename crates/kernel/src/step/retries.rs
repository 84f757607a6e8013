//! Repetitions of calls whose tools report a failure. There is no other retry of a call: what a crash cut is a matter of effect classes.

use super::{Draft, Taken};
use crate::{
    budget,
    event::{Event, IgnoreReason, TaskStatus},
    ids::{CallNumber, Timestamp},
    input::{Report, ReportCause},
    manifest::{AfterExecution, EffectClass},
    run::OpenCall,
};

impl Draft<'_, '_> {
    /// When the call is repeated after this report. `None` if the report is its result: it is no failure, the tool has no repetitions left,
    /// or the wall time of the run is over before the repetition could start. A failure that answers the question what became of the call
    /// is its result, too, and so is one that is to end the run.
    pub(super) fn repeats_at(&self, call: &OpenCall, report: &Report) -> Option<Timestamp> {
        let may_repeat = match report.cause {
            ReportCause::Tool => true,
            // The tool may have run, and a repetition has another key.
            ReportCause::Server => call.effect == EffectClass::Read,
            ReportCause::Deadline => false,
        };
        let is_failure = report.status == TaskStatus::Failed;
        if !may_repeat || !is_failure || report.after == Some(AfterExecution::Terminate) || self.run().call_hold(call.call).is_some() {
            return None;
        }
        let retries = self.manifest.tool(call.tool.as_str())?.retry.filter(|retries| call.retry < retries.max)?;
        let at = self.moment.now.plus_ms(retries.pause_ms(call.retry + 1));
        let end = budget::wall_end(self.run(), &self.manifest.budgets, self.moment.now);
        end.is_none_or(|end| at < end).then_some(at)
    }

    /// The pause is over: the call may start, under the whole deadline of its tool. If a budget was used up meanwhile it gets an error
    /// result instead, as a call that is released does.
    pub(super) fn retry_due(&mut self, number: CallNumber) -> Taken {
        let run = self.run();
        let call = run.call(number).ok_or(IgnoreReason::NotWaiting)?;
        let is_due = run.is_free(call) && !run.is_held() && call.not_before.is_some_and(|at| at <= self.moment.now);
        if !is_due {
            return Err(IgnoreReason::NotWaiting);
        }
        let ms = self.manifest.tool(call.tool.as_str()).map_or(0, |tool| tool.deadline_ms);
        match budget::before_calls(run, &self.manifest.budgets, budget::Spent::default(), budget::Wanted::default(), self.moment.now) {
            None => self.record(Event::CallReleased { call: number, deadline: self.deadline(ms) }),
            Some(breach) => {
                let (kind, limit) = (breach.kind.as_str(), breach.limit);
                let text = format!("the call failed, and the budget of {limit} {kind} was used up before it could be repeated");
                self.give_result(number, TaskStatus::Failed, "budget_used_up", &text);
                self.resume_if_answered();
            }
        }
        Ok(())
    }
}
