//! How a step creates calls.

use super::Draft;
use crate::{
    budget,
    ids::{CallNumber, Timestamp},
    input::RequestedCall,
    manifest::{AfterExecution, EffectClass, Route, ToolSpec},
    run::{OpenCall, Progress},
};

/// The deadline of a call that waits as long as its run does.
const UNLIMITED: Timestamp = Timestamp(i64::MAX);

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
            deadline: if tool.route == Route::Person { UNLIMITED } else { self.deadline(tool.deadline_ms) },
            progress: Progress::Open,
        }
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
