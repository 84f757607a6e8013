//! Erases everything of a tenant, one batch per request.

use axum::{extract::State, response::Response};
use serde_json::json;
use windlass_ports::{TenantCursor, TenantErasure};

use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{Fields, JsonBody},
};

const KNOWN: [&str; 3] = ["tenant", "after", "idempotency_key"];

/// The body must name the tenant, so that a request with the wrong token erases nothing. Repeating the request erases the rest.
pub(super) async fn erase(State(state): State<DoorState>, caller: Caller, JsonBody(body): JsonBody) -> Result<Response, ApiError> {
    caller.needs(&Scope::Admin)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let tenant = caller.tenant();
    if fields.required_text("tenant")? != tenant.as_str() {
        return Err(ApiError::not_found("unknown_tenant", "this token has no such tenant"));
    }
    let after = fields
        .text("after")?
        .map(|text| TenantCursor::read(&text).ok_or_else(|| ApiError::bad_field("after", "`next` of the answer before")));
    match state.engine.erase_tenant(tenant, after.transpose()?.unwrap_or_default()).await? {
        TenantErasure::Erased { rows, next } => {
            let next = next.map(|next| next.spell());
            if next.is_none() {
                tracing::info!(%tenant, by = caller.name(), "erased everything of a tenant");
            }
            Ok(answer::ok(&json!({ "tenant": tenant, "erased": rows, "next": next })))
        }
        TenantErasure::OpenRuns(open) => {
            let message = format!("{open} runs of the tenant have not ended; nothing was erased");
            let hint = "stop them, or wait until they have ended, and keep clients of the tenant away".to_owned();
            Err(ApiError::conflict("open_runs", message).hint(Some(hint)))
        }
    }
}
