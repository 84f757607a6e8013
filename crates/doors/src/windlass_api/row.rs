//! A run as one row of a list. The answer about a single run has the same fields.

use serde_json::{Value, json};
use windlass_engine::{RunEntry, Wait};
use windlass_kernel::{EndReason, Phase, Run, TaskStatus, budget};
use windlass_ports::{MessageKind, RunView};

use crate::{responses, spelling::moment};

/// One run. Unknown values are null: forks are not recorded yet, the cost of a run without a cost budget is not known, and of a run that
/// cannot be read only its row is known.
pub(super) fn row(entry: &RunEntry) -> Value {
    let run = &entry.run;
    let view = run.view.as_ref();
    let outcome = view.and_then(|view| outcome(&view.state.phase));
    json!({
        "run_id": run.id,
        "agent_id": run.agent_name.as_ref().unwrap_or(&run.agent.agent),
        "door": view.and_then(door),
        "title": entry.title,
        "state": entry.state.as_str(),
        "task_status": outcome.map(|(status, _)| status),
        "end_reason": outcome.map(|(_, reason)| reason),
        "wait": entry.wait.as_ref().map(wait),
        "iteration": view.map(|view| view.state.iteration),
        "calls": view.map(|view| calls(&view.state)),
        "usage": view.map(|view| usage(&view.state)),
        "cost_usd": view.and_then(cost_usd),
        "model": view.map(|view| &view.manifest.model),
        "parent_run_id": view.and_then(|view| view.state.parent.as_ref()).map(|parent| parent.run),
        "fork_of": null,
        "created_at": moment(run.created_at),
        "started_at": view.and_then(|view| view.state.started_at).map(moment),
        "ended_at": run.ended_at.map(moment),
    })
}

/// What the run and the ended runs below it cost, if it has a cost budget: its manifest then has the prices.
pub(super) fn cost_usd(view: &RunView) -> Option<f64> {
    // The kernel counts in integers; this is for people.
    budget::cost(&view.state, &view.manifest.budgets).map(|micro| micro as f64 / 1_000_000.0)
}

/// Why a run waits.
pub(super) fn wait(wait: &Wait) -> Value {
    json!({
        "kind": wait.kind.as_str(),
        "what": wait.what,
        "since": wait.since.map(moment),
        "until": wait.until.map(moment),
    })
}

/// The API through which the run was requested, as far as its record shows.
fn door(view: &RunView) -> Option<&'static str> {
    if view.note.as_deref().is_some_and(responses::is_response) {
        return Some("responses");
    }
    match view.kind {
        // A response always has a note of its API until it is erased, and erased responses are in no list.
        MessageKind::Turn | MessageKind::UiAction => Some("agents"),
        MessageKind::ToolResult | MessageKind::Timeout | MessageKind::Stop | MessageKind::Answer | MessageKind::Steer => None,
    }
}

fn calls(run: &Run) -> Value {
    let open = run.calls().iter().filter(|call| run.is_free(call)).count();
    json!({ "made": run.calls_used, "open": open, "parked": run.waiting_count() - open })
}

fn usage(run: &Run) -> Value {
    json!({
        "in": run.usage.tokens_in,
        "out": run.usage.tokens_out,
        "cached": run.usage.cached,
        "cache_written": null,
        "reasoning": run.usage.reasoning,
        "lost": run.lost,
    })
}

/// The status and reason with which a run ended, if it has.
pub(super) fn outcome(phase: &Phase) -> Option<(TaskStatus, &EndReason)> {
    match phase {
        Phase::Ended { status, reason } => Some((*status, reason)),
        Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. } => None,
    }
}
