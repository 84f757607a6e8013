//! Erases the runs that are older than `retention` allows, one batch per request.

use axum::{extract::State, response::Response};
use serde_json::json;
use windlass_kernel::RunId;

use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{Fields, JsonBody},
};

const KNOWN: [&str; 2] = ["after", "idempotency_key"];

/// Erases runs of the token's tenant only. Repeating the request erases the rest.
pub(super) async fn gc(State(state): State<DoorState>, caller: Caller, JsonBody(body): JsonBody) -> Result<Response, ApiError> {
    caller.needs(&Scope::Admin)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let wrong = || ApiError::bad_field("after", "`next` of the answer before");
    let after = fields.text("after")?.map(|text| text.parse::<RunId>().map_err(|_| wrong())).transpose()?;
    if !state.engine.settings().retention.is_set() {
        let hint = "set `retention.responses` or `retention.runs` in the configuration of the server".to_owned();
        return Err(
            ApiError::conflict("no_retention", "the configuration has no `retention`: no run is erased by its age").hint(Some(hint))
        );
    }
    let done = state.engine.erase_aged(caller.tenant(), after).await?;
    Ok(answer::ok(&json!({ "erased": done.erased, "failed": done.failed, "next": done.next, "done": done.next.is_none() })))
}
