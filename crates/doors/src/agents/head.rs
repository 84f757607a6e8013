//! `GET /v1/agents/{agent}`: the state of the agent and of its active run.

use axum::{extract::State, response::Response};
use serde_json::{Value, json};
use windlass_kernel::{HeadStatus, Run};
use windlass_ports::{RunView, StoreError};

use super::known_head;
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{AgentPath, Query},
    spelling::{moment, named, trace_id},
};

pub(super) async fn head(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsRead)?;
    query.only(&[])?;
    let head = known_head(&state, &agent).await?;
    let run = match head.as_ref().and_then(|head| head.run) {
        Some(run) => readable(state.engine.views().run(&agent.tenant, run).await)?,
        None => None,
    };
    let active = head.as_ref().and_then(|head| head.run);
    Ok(answer::ok(&json!({
        "agent_id": agent.agent,
        "status": head.as_ref().map_or(HeadStatus::Idle, |head| head.status),
        "active_agent_turn_id": active,
        "active_run_id": active,
        "turn_epoch": head.as_ref().map_or(0, |head| head.epoch.0),
        "waiting_tool_count": head.as_ref().map_or(0, |head| head.waiting),
        "resume_deadline": head.as_ref().and_then(|head| head.deadline).map(moment),
        "queued": head.as_ref().map_or(0, |head| head.queued),
        "expecting_correlation_id": null,
        "trace_id": run.as_ref().map(|run| trace_id(&run.lineage.trace)),
        "parent_step_id": run.as_ref().and_then(|run| run.lineage.parent_step.as_ref()),
        "parked": run.as_ref().map_or(Value::Bool(false), |run| parked(&run.state)),
        "quarantined": head.as_ref().is_some_and(|head| head.quarantined.is_some()),
    })))
}

/// Treats a run that cannot be read as absent, so that the head of a quarantined agent can still be shown.
fn readable(run: Result<Option<RunView>, StoreError>) -> Result<Option<RunView>, StoreError> {
    match run {
        Err(StoreError::Corrupt(_)) => Ok(None),
        read => read,
    }
}

/// Why the run is parked, as the API shows it: a reason for the whole run, `true` if only calls are parked, else `false`.
pub(crate) fn parked(run: &Run) -> Value {
    match run.hold() {
        Some(hold) => named(&hold.cause),
        None => run.is_interrupted().into(),
    }
}
