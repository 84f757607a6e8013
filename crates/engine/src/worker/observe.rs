//! Log lines and metrics of commits, for operators: names, numbers and codes, never content.

use windlass_kernel::{
    AgentKey, CallKey, CallNumber, Cause, EndReason, Epoch, Event, FailureCode, Interrupt, OpenCall, Phase, Run, RunId, TaskStatus,
    Timestamp,
};
use windlass_ports::{CallChange, Commit, EndedRun, Fact, InterruptId, Notice, StoreError, StoreFailure};

use super::Worker;
use crate::engine::Inner;

/// Where a person decides.
const ANSWER: &str = "windlass inbox, or GET and POST /v1/windlass/interrupts";

impl Worker {
    /// Logs and counts what a commit of the active run recorded. It must run before the worker takes over the new state, because it needs
    /// the calls that were open before the commit.
    pub(super) fn observe(&self, commit: &Commit, epoch: Epoch) {
        let active = self.active.run().filter(|run| run.id == commit.run);
        let agent = &active.map_or_else(|| self.agent.clone(), |run| run.agent_id(&self.agent));
        let observed = Observed { inner: &self.inner, agent, run: commit.run, epoch };
        for event in &commit.events {
            match event {
                Event::Leased => observed.started(commit.now),
                Event::IterationStarted { .. } | Event::ActionStarted { .. } => {
                    self.inner.meter.record(Fact::IterationStarted(&agent.agent));
                }
                Event::OwnerChanged { .. } => observed.taken_over(),
                Event::Interrupted(interrupt) => {
                    let call = interrupt.call.and_then(|call| self.call(commit, call));
                    observed.interrupted(interrupt, call);
                    self.inner.notify_people(Notice {
                        tenant: agent.tenant.clone(),
                        interrupt: InterruptId { run: commit.run, number: interrupt.number },
                        agent: agent.agent.clone(),
                        cause: interrupt.cause,
                        tool: call.map(|call| call.tool.clone()),
                        at: commit.now,
                    });
                }
                Event::AttemptFailed { code, fallback: Some(fallback), .. } => observed.falls_back(code, fallback),
                Event::CallRetried { call, retry, .. } => observed.call_retried(*call, self.call(commit, *call), *retry),
                Event::Reported { call, status, .. } => self.reported(&observed, commit, *call, *status),
                Event::Ended { .. } => observed.ended(&commit.state, commit.now),
                Event::Accepted { .. }
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
                | Event::Approved { .. }
                | Event::Edited { .. }
                | Event::Resolved { .. }
                | Event::CallParked { .. }
                | Event::CallReleased { .. }
                | Event::Parked { .. }
                | Event::Unparked
                | Event::Ignored { .. }
                | Event::Steered { .. }
                | Event::BudgetBreached { .. } => {}
            }
        }
    }

    /// Counts a transition that the store did not commit, and logs it if the store failed.
    pub(super) fn observe_error(&self, error: &StoreError) {
        let (meter, AgentKey { tenant, agent }) = (&self.inner.meter, &self.agent);
        match error {
            StoreError::Fenced => meter.record(Fact::Fenced),
            StoreError::Unavailable(why) => {
                meter.record(Fact::StoreFailed(StoreFailure::Unavailable));
                tracing::error!(%tenant, %agent, node = self.inner.node.0, why = why.as_str(), "the store does not take a commit; trying again");
            }
            StoreError::Corrupt(_) => meter.record(Fact::StoreFailed(StoreFailure::Corrupt)),
        }
    }

    /// A call that the commit made or that was open before it.
    fn call<'a>(&'a self, commit: &'a Commit, number: CallNumber) -> Option<&'a OpenCall> {
        let made = commit.events.iter().filter_map(|event| {
            if let Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } = event {
                return Some(calls.as_slice());
            }
            if let Event::ActionStarted { call, .. } = event { Some(std::slice::from_ref(call)) } else { None }
        });
        let before = self.active.run().filter(|run| run.id == commit.run).map_or(&[][..], |run| run.state.calls());
        made.flatten().chain(before).find(|open| open.call == number)
    }

    fn reported(&self, observed: &Observed<'_>, commit: &Commit, number: CallNumber, status: TaskStatus) {
        let Some(call) = self.call(commit, number) else { return };
        let ms = self.made_at(commit, call).map(|made| passed_ms(made, commit.now));
        observed.inner.meter.record(Fact::CallEnded { tool: call.tool.as_str(), effect: call.effect, status, ms });
        if status != TaskStatus::Success {
            let run = self.active.run().filter(|run| run.id == commit.run);
            let remote = run.and_then(|run| run.manifest.tool(call.tool.as_str())?.remote.as_ref());
            let refused = refusal(commit, number);
            let failure = CallFailure {
                server: remote.map(|remote| remote.server.as_str()),
                class: self.active.failure_class(commit.run, number).or(refused.as_deref()).unwrap_or("tool_error"),
                bytes: result_of(commit, number).map_or(0, |result| result.len()),
            };
            observed.call_failed(call, status, &failure);
        }
    }

    /// The time at which a call was made, computed from its deadline. `None` if the run has a wall time budget, which may have shortened
    /// the deadline.
    fn made_at(&self, commit: &Commit, call: &OpenCall) -> Option<Timestamp> {
        let run = self.active.run().filter(|run| run.id == commit.run && run.manifest.budgets.wall_ms.is_none())?;
        let deadline_ms = run.manifest.tool(call.tool.as_str())?.deadline_ms;
        Some(Timestamp(call.deadline.0.saturating_sub(i64::try_from(deadline_ms).ok()?)))
    }
}

/// A run and the context of its log lines.
pub(crate) struct Observed<'a> {
    pub inner: &'a Inner,
    pub agent: &'a AgentKey,
    pub run: RunId,
    pub epoch: Epoch,
}

/// Logs with the fields that every line about a run has.
macro_rules! log_run {
    ($level:ident, $observed:expr, $($rest:tt)+) => {{
        let Observed { inner, agent, run, epoch } = $observed;
        tracing::$level!(tenant = %agent.tenant, agent = %agent.agent, %run, epoch = epoch.0, node = inner.node.0, $($rest)+)
    }};
}

impl Observed<'_> {
    fn started(&self, now: Timestamp) {
        let waited_ms = made_at(self.run).map(|made| passed_ms(made, now));
        self.inner.meter.record(Fact::RunStarted { agent: self.agent, run: self.run, waited_ms });
    }

    fn taken_over(&self) {
        self.inner.meter.record(Fact::TakenOver(&self.agent.agent));
        log_run!(warn, self, "this server took the run over from a lost one");
    }

    fn interrupted(&self, interrupt: &Interrupt, call: Option<&OpenCall>) {
        let tool = call.map_or("", |call| call.tool.as_str());
        if interrupt.cause == Cause::UnknownOutcome {
            self.inner.meter.record(Fact::CallParked(tool));
        }
        let id = InterruptId { run: self.run, number: interrupt.number };
        let reason = match interrupt.cause {
            Cause::Approval => "a rule demands approval of a call",
            Cause::Question => "the model asks a person",
            Cause::UnknownOutcome => "the outcome of a call is unknown, and it must not run twice",
            Cause::Budget => "continuing would exceed a budget of the run",
            Cause::OwnersLost => "the servers of the run were lost one after the other",
            Cause::Panicked => "a step or a tool of the run panicked",
        };
        let (cause, tool) = (interrupt.cause.as_str(), call.map(|call| call.tool.as_str()));
        let call = interrupt.call.map(|call| CallKey { run: self.run, call }.to_string());
        log_run!(warn, self, interrupt = %id, cause, call, tool, reason, resolve = ANSWER, "a person must decide");
    }

    fn falls_back(&self, code: &FailureCode, fallback: &str) {
        let code = code.as_str();
        log_run!(warn, self, code, fallback, "the model is unavailable; the next attempt asks its fallback");
    }

    fn call_retried(&self, number: CallNumber, call: Option<&OpenCall>, retry: u32) {
        let key = CallKey { run: self.run, call: number };
        let tool = call.map(|call| call.tool.as_str());
        log_run!(warn, self, call = %key, tool, retry, "a tool reported a failure; the call is repeated after a pause");
    }

    fn call_failed(&self, call: &OpenCall, status: TaskStatus, failure: &CallFailure<'_>) {
        let key = CallKey { run: self.run, call: call.call };
        let (tool, status, CallFailure { server, class, bytes }) = (call.tool.as_str(), status.as_str(), failure);
        log_run!(warn, self, call = %key, tool, server, status, class, bytes, "a tool call failed");
    }

    /// Logs the one line that every ended run gets.
    pub fn ended(&self, state: &Run, now: Timestamp) {
        let Phase::Ended { status, reason } = &state.phase else { return };
        let (status, ms) = (*status, state.started_at.map_or(0, |started| passed_ms(started, now)));
        let Run { iteration: iterations, calls_used: calls, usage, .. } = *state;
        let ended = EndedRun { agent: self.agent, run: self.run, status, reason, iterations, calls, usage, ms };
        self.inner.meter.record(Fact::RunEnded(ended));
        let (outcome, reason) = (status.as_str(), described(reason));
        let (tokens_in, tokens_out) = (usage.tokens_in, usage.tokens_out);
        log_run!(info, self, outcome, reason, iterations, calls, tokens_in, tokens_out, ms, "the run ended");
    }
}

/// The logged facts about a failed call. No text of the tool or its server, which may be content.
struct CallFailure<'a> {
    /// The label of the tool's server, if it has one.
    server: Option<&'a str>,
    class: &'a str,
    /// The length of the stored result.
    bytes: usize,
}

/// The stored result of a call that the commit reports.
fn result_of(commit: &Commit, number: CallNumber) -> Option<&[u8]> {
    let reported = |event: &Event| if let Event::Reported { call, item, .. } = event { (*call == number).then_some(*item) } else { None };
    let item = commit.events.iter().find_map(reported)?;
    Some(&commit.items.iter().find(|new| new.id == item)?.content)
}

/// The code of a call that the kernel refused in the commit that made it. Any other result is content and is not logged.
fn refusal(commit: &Commit, number: CallNumber) -> Option<String> {
    let is_made = commit.calls.iter().any(|(call, change)| *call == number && matches!(change, CallChange::Made(_)));
    let refused: serde_json::Value = serde_json::from_slice(result_of(commit, number).filter(|_| is_made)?).ok()?;
    Some(refused["result"]["error"]["code"].as_str()?.to_owned())
}

/// The end reason with its details, which are codes.
fn described(reason: &EndReason) -> String {
    match reason {
        EndReason::ModelFailed(code) => format!("{}: {code}", reason.kind()),
        EndReason::Budget(budget) => format!("{}: {}", reason.kind(), budget.as_str()),
        EndReason::Answered
        | EndReason::Terminated
        | EndReason::RequiresAction
        | EndReason::CutShort(_)
        | EndReason::Stopped
        | EndReason::Abandoned => reason.kind().to_owned(),
    }
}

fn passed_ms(from: Timestamp, to: Timestamp) -> u64 {
    to.0.saturating_sub(from.0).max(0).unsigned_abs()
}

/// The time at which a run's id was made, if the id contains one.
fn made_at(run: RunId) -> Option<Timestamp> {
    let (seconds, nanos) = run.0.get_timestamp()?.to_unix();
    Some(Timestamp(i64::try_from(seconds).ok()?.checked_mul(1_000)?.checked_add(i64::from(nanos / 1_000_000))?))
}
