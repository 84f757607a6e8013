//! A single run, its journal and its calls.

use axum::{extract::State, response::Response};
use serde_json::{Value, json};
use windlass_kernel::{Below, CallKey, CallNumber, OpenCall, Phase, Run, RunId, Timestamp};
use windlass_ports::{CallView, JournalEntry, RunView};

use super::row::{cost_usd, outcome, wait};
use crate::{
    DoorState,
    agents::parked,
    answer,
    auth::{Caller, Scope, worker_of},
    error::ApiError,
    request::{IdPath, Query},
    spelling::{moment, trace_id},
};

pub(super) async fn run(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<RunId>,
    query: Query,
) -> Result<Response, ApiError> {
    query.only(&[])?;
    let run = read(&state, &caller, id).await?;
    let entry = state.engine.run_entry(caller.tenant(), run.clone()).await?;
    let mut described = described(&run);
    described["state"] = entry.state.as_str().into();
    described["wait"] = entry.wait.as_ref().map(wait).into();
    described["title"] = entry.title.into();
    Ok(answer::ok(&described))
}

pub(super) async fn journal(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<RunId>,
    query: Query,
) -> Result<Response, ApiError> {
    query.only(&["from", "limit"])?;
    let (from, limit) = (query.number("from", 0)?, query.limit()?);
    let run = read(&state, &caller, id).await?.id;
    let entries = state.engine.views().journal(caller.tenant(), run, from, limit).await?;
    let next = entries.last().filter(|_| entries.len() >= limit).map(|entry| entry.number + 1);
    let entries: Vec<Value> = entries.iter().map(journal_row).collect();
    Ok(answer::ok(&json!({ "run_id": run, "entries": entries, "next": next })))
}

pub(super) async fn calls(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<RunId>,
    query: Query,
) -> Result<Response, ApiError> {
    query.only(&["from", "limit"])?;
    let limit = query.limit()?;
    let from = u32::try_from(query.number("from", 1)?).map_err(|_| ApiError::bad("bad_query", "`from` must be a call's number"))?;
    let run = read(&state, &caller, id).await?.id;
    let calls = state.engine.views().calls(caller.tenant(), run, CallNumber(from), limit).await?;
    let next = calls.last().filter(|_| calls.len() >= limit).map(|call| call.call.0 + 1);
    let calls: Vec<Value> = calls.iter().map(|call| call_row(run, call)).collect();
    Ok(answer::ok(&json!({ "run_id": run, "calls": calls, "next": next })))
}

pub(super) async fn read(state: &DoorState, caller: &Caller, id: Option<RunId>) -> Result<RunView, ApiError> {
    caller.needs(&Scope::RunsRead)?;
    let id = id.ok_or_else(ApiError::no_such_run)?;
    let run = state.engine.views().run(caller.tenant(), id).await?;
    run.filter(|run| !run.unlisted).ok_or_else(ApiError::no_such_run)
}

fn described(run: &RunView) -> Value {
    let state = &run.state;
    let outcome = outcome(&state.phase);
    json!({
        "run_id": run.id,
        "agent_turn_id": run.id,
        "agent_id": run.agent_id(),
        "status": run.status.as_str(),
        "phase": phase(&state.phase),
        "task_status": outcome.map(|(status, _)| status),
        "end_reason": outcome.map(|(_, reason)| reason),
        "message_type": run.kind.as_str(),
        "ordinal": run.ordinal,
        "turn_epoch": run.epoch,
        "iteration": state.iteration,
        "usage": usage(state),
        "cost_usd": cost_usd(run),
        "upstream_model": state.model.upstream,
        "first_token_ms": state.model.first_token_ms,
        "context_box_id": state.context.id,
        "output_box_id": state.output.id,
        "output_length": state.output.length,
        "deliverable_item_id": run.deliverable,
        "parked": parked(state),
        "calls": {
            "made": state.calls_used,
            "open": state.calls().iter().map(|call| open_call(run.id, state, call)).collect::<Vec<_>>(),
        },
        "model": run.manifest.model,
        "tools": run.manifest.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "journal_length": state.next_number,
        "trace_id": trace_id(&run.lineage.trace),
        "caller_span_id": run.lineage.caller.map(|caller| caller.id),
        "caller_sampled": run.lineage.caller.map(|caller| caller.sampled),
        "parent_step_id": run.lineage.parent_step,
        "recursion_depth": run.lineage.depth,
        "parent_run_id": state.parent.as_ref().map(|parent| parent.run),
        "parent_tool_call_id": state.parent.as_ref().map(|parent| CallKey { run: parent.run, call: parent.call }.to_string()),
        "children": { "made": state.children_used, "usage": below(&state.below) },
        "source": run.lineage.source,
        "created_at": moment(run.created_at),
        "started_at": state.started_at.map(moment),
        "ended_at": run.ended_at.map(moment),
    })
}

/// Tokens of a run. `cached` and `cache_written` are parts of `tokens_in`, `reasoning` is a part of `tokens_out`.
fn usage(run: &Run) -> Value {
    let usage = &run.usage;
    json!({
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cached": usage.cached,
        "cache_written": usage.cache_written,
        "reasoning": usage.reasoning,
        "lost": run.lost,
    })
}

/// What the ended runs below a run used. It counts against the budgets of the run.
fn below(below: &Below) -> Value {
    json!({
        "tokens_in": below.usage.tokens_in,
        "tokens_out": below.usage.tokens_out,
        "lost": below.lost,
        "calls": below.calls,
        "children": below.children,
    })
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::Accepted => "accepted",
        Phase::Thinking { .. } => "thinking",
        Phase::Waiting { .. } => "waiting",
        Phase::Ended { .. } => "ended",
    }
}

fn open_call(run: RunId, state: &Run, call: &OpenCall) -> Value {
    let progress = match (call.is_received(), state.is_free(call)) {
        (true, _) => "received",
        (false, true) => "open",
        (false, false) => "parked",
    };
    json!({
        "tool_call_id": CallKey { run, call: call.call }.to_string(),
        "tool": call.tool,
        "progress": progress,
        "deadline": deadline(call.deadline),
        "child_run_id": call.child,
    })
}

/// A call of an agent may have no deadline.
fn deadline(at: Timestamp) -> Option<String> {
    (at < Timestamp::NEVER).then(|| moment(at))
}

fn journal_row(entry: &JournalEntry) -> Value {
    json!({ "number": entry.number, "turn_epoch": entry.epoch, "at": moment(entry.at), "event": entry.event })
}

fn call_row(run: RunId, call: &CallView) -> Value {
    json!({
        "tool_call_id": CallKey { run, call: call.call }.to_string(),
        "number": call.call,
        "iteration": call.iteration,
        "tool": call.tool,
        "route": call.route,
        "effect": call.effect,
        "status": call.status.as_str(),
        "deadline": deadline(call.deadline),
        "item_id": call.item,
        "result_item_id": call.result,
        "worker": call.worker.as_deref().map(worker_of),
        "lease_until": call.lease_until.map(moment),
        "created_at": moment(call.created_at),
        "attempt": call.attempt,
        "retry": call.retry,
    })
}
