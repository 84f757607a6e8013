//! `POST /v1/agents/{agent}/actions`: a person calls one tool through the agent, which must be idle.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::json;
use windlass_engine::Action;
use windlass_kernel::ToolName;

use super::enqueue::{lineage, may_ask, may_use};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::NAME_CHARS_MAX,
    request::{AgentPath, Fields, JsonBody, idempotency_key},
};

const KNOWN: [&str; 5] = ["action_id", "tool", "args", "idempotency_key", "parent_step_id"];

pub(super) async fn act(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsWrite)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    // The key is only checked: a repeated action is recognised by `action_id`.
    idempotency_key(&headers, &fields)?;
    let action_id = fields.required_name("action_id", NAME_CHARS_MAX)?;
    let tool = ToolName::from(fields.required_name("tool", NAME_CHARS_MAX)?.as_str());
    may_ask(&caller, &agent, state.engine.roster().widening(&agent, None, None, Some(std::slice::from_ref(&tool))))?;
    may_use(&state, &caller, &agent, &tool)?;
    let action = Action {
        agent: agent.clone(),
        action_id: action_id.clone(),
        tool,
        arguments: arguments(&fields)?,
        lineage: lineage(&caller, &headers, &fields)?,
    };
    let taken = state.engine.act(action).await?;
    Ok(answer::accepted(&json!({
        "status": "accepted",
        "agent_turn_id": taken.run,
        "run_id": taken.run,
        "inbox_id": state.inbox_ids.inbox(&agent.tenant, taken.message),
        "turn_epoch": taken.epoch,
        "action_id": action_id,
    })))
}

fn arguments(fields: &Fields<'_>) -> Result<String, ApiError> {
    match fields.given("args") {
        None => Ok("{}".to_owned()),
        Some(value) if value.get().starts_with('{') => Ok(value.get().to_owned()),
        Some(_) => Err(ApiError::bad_field("args", "an object")),
    }
}
