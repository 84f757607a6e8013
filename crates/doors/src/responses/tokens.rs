//! `POST /v1/responses/input_tokens`: estimates the input tokens of a request.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::json;

use super::{
    body::WireBody,
    create::{self, CreateContext, Prepared},
    error::WireError,
    join::Identity,
    request::Create,
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
};

/// Prepares a request with all checks, estimates its prompt, and stores nothing.
pub(super) async fn count(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let create = Create::read(&body)?;
    let context = CreateContext::of(&caller, &headers, &create, Identity::none());
    let Prepared { request, .. } = create::prepare(&state, &context).await?;
    let tokens = state.engine.estimate(&request).await?;
    Ok(answer::ok(&json!({ "object": "response.input_tokens", "input_tokens": tokens })))
}
