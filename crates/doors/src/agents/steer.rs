//! `POST /v1/agents/{agent}/steer`: gives the active run another instruction.

use axum::{extract::State, http::HeaderMap, response::Response};
use bytes::Bytes;
use serde_json::json;
use windlass_engine::Steer;
use windlass_kernel::ItemKind;

use super::named_run;
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{AgentPath, Fields, JsonBody, item_of, request_key},
};

const KNOWN: [&str; 3] = ["agent_turn_id", "input", "idempotency_key"];

pub(super) async fn steer(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsWrite)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let key = request_key(&headers, &fields, &body)?;
    let run = named_run(&fields)?;
    let input = input(&fields)?;
    let message = state.engine.steer(Steer { agent, run, input, source: Some(caller.name()), key }).await?;
    Ok(answer::accepted(&json!({ "inbox_id": state.inbox_ids.inbox(caller.tenant(), message) })))
}

/// The instruction: a text, or an item in the format of the client. It may be alone in a list, as `enqueue` takes it.
fn input(fields: &Fields<'_>) -> Result<(ItemKind, Bytes), ApiError> {
    let value = fields.required("input")?;
    if value.get().as_bytes().first() != Some(&b'[') {
        return item_of(value, "input");
    }
    match fields.list("input", 1)?.unwrap_or_default().as_slice() {
        [only] => item_of(only, "input[0]"),
        _ => Err(ApiError::bad_field("input", "one instruction; send each one with a request of its own")),
    }
}
