//! How a step creates calls.

use super::Draft;
use crate::{
    budget,
    ids::{CallNumber, RunId, Timestamp},
    input::RequestedCall,
    manifest::{AfterExecution, EffectClass, Route, ToolSpec},
    policy::Planned,
    run::{OpenCall, Progress},
};

impl Draft<'_, '_> {
    pub(super) fn made_call(&self, number: CallNumber, requested: &RequestedCall) -> OpenCall {
        match self.manifest.tool(&requested.tool) {
            Some(tool) => self.open_call(number, tool),
            None => self.unknown_call(number, &requested.tool),
        }
    }

    pub(super) fn call_number(&self, index: usize) -> CallNumber {
        CallNumber(self.run().calls_used + index as u32 + 1)
    }

    pub(super) fn open_call(&self, call: CallNumber, tool: &ToolSpec) -> OpenCall {
        OpenCall {
            call,
            tool: tool.name.clone(),
            route: tool.route,
            effect: tool.effect,
            after: tool.after_execution,
            untrusted: tool.untrusted,
            deadline: if tool.route == Route::Person { Timestamp::NEVER } else { self.deadline(tool.deadline_ms) },
            retry: 0,
            not_before: None,
            child: None,
            progress: Progress::Open,
        }
    }

    /// A call that was planned. If it starts a child run, that run's id is drawn here and stands in the journal, so that starting it again
    /// after a crash starts no second one.
    pub(super) fn planned_call(&mut self, number: CallNumber, plan: &Planned) -> OpenCall {
        let call = self.made_call(number, &plan.requested);
        if plan.refused.is_none() { self.with_child(call) } else { call }
    }

    pub(super) fn with_child(&mut self, call: OpenCall) -> OpenCall {
        match call.route {
            Route::Child => OpenCall { child: Some(RunId((self.moment.fresh)().0)), ..call },
            Route::InProcess | Route::External | Route::Client | Route::Person => call,
        }
    }

    /// What making these calls counts against budgets.
    pub(super) fn wanted(&self, planned: &[Planned]) -> budget::Wanted {
        let made = || planned.iter().filter(|plan| plan.refused.is_none());
        let is_child = |plan: &&Planned| self.manifest.tool(&plan.requested.tool).is_some_and(|tool| tool.route == Route::Child);
        budget::Wanted { calls: made().count(), children: made().filter(is_child).count() }
    }

    /// A call of a tool that does not exist. It gets an error result in the same transition and never starts.
    fn unknown_call(&self, call: CallNumber, tool: &str) -> OpenCall {
        OpenCall {
            call,
            tool: tool.into(),
            route: Route::External,
            effect: EffectClass::Read,
            after: AfterExecution::Suspend,
            untrusted: false,
            child: None,
            retry: 0,
            not_before: None,
            deadline: self.moment.now,
            progress: Progress::Open,
        }
    }

    /// The deadline of a call: that of its tool, or the end of the run's wall time if that is earlier.
    pub(super) fn deadline(&self, tool_ms: u64) -> Timestamp {
        let (now, budgets) = (self.moment.now, &self.manifest.budgets);
        let own = now.plus_ms(tool_ms);
        // The only iteration of an action starts with its call.
        let of_first = || budget::limits(self.run(), budgets).wall_ms.map(|ms| now.plus_ms(ms));
        budget::wall_end(self.run(), budgets, now).or_else(of_first).map_or(own, |end| end.min(own))
    }
}
