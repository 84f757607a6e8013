//! How much a request would give a model to read.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::json;

use super::{
    body::WireBody,
    create::{self, Asked, Prepared},
    error::WireError,
    join::Identity,
    request::Create,
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
};

/// Checks a request like one that is to be done, and stores nothing of it.
pub(super) async fn count(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let create = Create::read(&body)?;
    let asked = Asked::of(&caller, &headers, &create, Identity::none());
    let Prepared { request, .. } = create::prepare(&state, &asked).await?;
    let tokens = state.engine.estimate(&request).await?;
    Ok(answer::ok(&json!({ "object": "response.input_tokens", "input_tokens": tokens })))
}
