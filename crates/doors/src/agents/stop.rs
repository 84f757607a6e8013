//! `POST /v1/agents/{agent}/stop`: asks that a run ends.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::json;
use windlass_engine::{Stop, Stopped};

use super::named_run;
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::REASON_CHARS_MAX,
    request::{AgentPath, Fields, JsonBody, request_key},
};

const KNOWN: [&str; 4] = ["agent_turn_id", "reason", "turn_epoch", "idempotency_key"];

pub(super) async fn stop(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsStop)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let reason = fields.sentence("reason", REASON_CHARS_MAX)?;
    let epoch = fields.epoch()?;
    let key = request_key(&headers, &fields, &body)?;
    let run = named_run(&fields)?;
    let stopped = state.engine.stop(Stop { agent, run, reason, epoch, source: Some(caller.name()), key }).await?;
    let status = match stopped {
        Stopped::Now => "stopped",
        Stopped::Before => "ended",
    };
    Ok(answer::accepted(&json!({ "agent_turn_id": run, "status": status })))
}
