//! The agents door: agents, their runs and their inboxes over HTTP.

mod actions;
mod calls;
mod control;
mod enqueue;
mod events;
mod head;
mod inbox;
mod report;
mod steer;
mod stop;

pub(crate) use control::wished_after;
pub(crate) use head::parked;
pub(crate) use report::STATUS_WORDS;

use axum::{
    Router,
    routing::{get, post},
};
use windlass_kernel::{AgentIdentity, AgentKey, CallKey, RunId};
use windlass_ports::HeadView;

use crate::{DoorState, error::ApiError, request::Fields};

/// The routes of this door.
pub(crate) fn routes() -> Router<DoorState> {
    Router::new()
        .route("/v1/agents/{agent}", get(head::head))
        .route("/v1/agents/{agent}/enqueue", post(enqueue::enqueue))
        .route("/v1/agents/{agent}/report", post(report::report))
        .route("/v1/agents/{agent}/stop", post(stop::stop))
        .route("/v1/agents/{agent}/steer", post(steer::steer))
        .route("/v1/agents/{agent}/actions", post(actions::act))
        .route("/v1/agents/{agent}/inbox", get(inbox::inbox))
        .route("/v1/agents/{agent}/edges", get(inbox::edges))
        .route("/v1/agents/{agent}/events", get(events::events))
        .route("/v1/tools/{tool}/claim", post(calls::claim))
        .route("/v1/tools/{tool}/renew", post(calls::renew))
        .route("/v1/tools/{tool}/release", post(calls::release))
}

/// The head of an agent, or `None` if the agent is configured but has never been used. Any other agent is a 404.
async fn known_head(state: &DoorState, agent: &AgentKey) -> Result<Option<HeadView>, ApiError> {
    let head = if is_unlisted(state, agent).await? { None } else { state.engine.views().head(agent).await? };
    match head.is_some() || state.engine.roster().agent(&agent.tenant, &agent.agent).is_some() {
        true => Ok(head),
        false => Err(ApiError::not_found("unknown_agent", format!("there is no agent {:?}", agent.agent.as_str()))),
    }
}

/// Whether the agent's key is that of a run which is not stored. Lists and events leave such runs out.
async fn is_unlisted(state: &DoorState, agent: &AgentKey) -> Result<bool, ApiError> {
    let AgentIdentity::Run(run) = agent.agent.identity() else { return Ok(false) };
    Ok(state.engine.views().run(&agent.tenant, run).await?.is_some_and(|run| run.unlisted))
}

/// The run that the body names. A malformed id gets the same answer as an unknown one.
fn named_run(fields: &Fields<'_>) -> Result<RunId, ApiError> {
    fields.required_text("agent_turn_id")?.parse().map_err(|_| ApiError::unknown_run())
}

/// The call that the body names. The body has the run's id twice, in `agent_turn_id` and inside `tool_call_id`; both must agree.
fn named_call(fields: &Fields<'_>) -> Result<CallKey, ApiError> {
    let run = fields.required_text("agent_turn_id")?;
    let call = fields.required_text("tool_call_id")?;
    let run: RunId = run.parse().map_err(|_| ApiError::unknown_run())?;
    call.parse().ok().filter(|key: &CallKey| key.run == run).ok_or_else(ApiError::unknown_call)
}
