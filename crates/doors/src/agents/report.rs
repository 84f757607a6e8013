//! `POST /v1/agents/{agent}/report`: a tool service reports the result of a call.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::json;
use windlass_engine::ToolResult;
use windlass_kernel::{AfterExecution, CallKey, TaskStatus};
use windlass_ports::CallStatus;

use super::{control::wished_after, named_call};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{AgentPath, Fields, JsonBody, request_key},
};

const KNOWN: [&str; 7] = ["agent_turn_id", "tool_call_id", "status", "result", "after_execution", "turn_epoch", "idempotency_key"];
/// The valid values of `status`.
pub(crate) const STATUS_WORDS: &str = "success, failed, canceled, timeout, partial";

pub(super) async fn report(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    if !caller.serves_tools() {
        caller.needs_one_of(&[Scope::AllTools, Scope::ApprovalsAnswer])?;
    }
    let fields = Fields::of_body(&body, &KNOWN)?;
    let status = fields.word("status", TaskStatus::parse, STATUS_WORDS)?;
    let status = status.ok_or_else(|| ApiError::bad("missing_field", "`status` is missing"))?;
    let after = fields.word("after_execution", after_execution, "suspend, terminate")?;
    // The epoch is checked for its form and then ignored: a takeover raises the epoch while tools run, and that must not cost their
    // results.
    fields.epoch()?;
    let request = request_key(&headers, &fields, &body)?;
    let key = named_call(&fields)?;
    may_report(&state, &caller, key).await?;
    let wished = fields.raw("result").and_then(wished_after);
    let reported = state
        .engine
        .report(ToolResult {
            agent,
            run: key.run,
            call: key.call,
            status,
            after: wished.or(after),
            result: fields.kept("result", &body),
            source: Some(caller.name()),
            key: request,
        })
        .await?;
    Ok(answer::accepted(
        &json!({ "inbox_id": state.inbox_ids.inbox(caller.tenant(), reported.message), "duplicate": reported.is_duplicate }),
    ))
}

fn after_execution(text: &str) -> Option<AfterExecution> {
    match text {
        "suspend" => Some(AfterExecution::Suspend),
        "terminate" => Some(AfterExecution::Terminate),
        _ => None,
    }
}

/// Refuses a report unless the caller may run the call's tool and no other token has claimed the call. For a parked call, a person decides
/// the outcome: besides the token that had claimed it, only a token with `approvals:answer` can report it.
async fn may_report(state: &DoorState, caller: &Caller, key: CallKey) -> Result<(), ApiError> {
    let views = state.engine.views();
    if views.run(caller.tenant(), key.run).await?.is_none() {
        return Err(ApiError::unknown_run());
    }
    let calls = views.calls(caller.tenant(), key.run, key.call, 1).await?;
    let call = calls.into_iter().find(|call| call.call == key.call).ok_or_else(ApiError::unknown_call)?;
    if call.status == CallStatus::Parked {
        let is_holder = call.worker.is_some_and(|holder| caller.holds(&holder)) && caller.may(&Scope::Tool(call.tool));
        return if is_holder { Ok(()) } else { caller.needs(&Scope::ApprovalsAnswer) };
    }
    caller.needs(&Scope::Tool(call.tool))?;
    let holder = call.worker.filter(|_| call.status == CallStatus::Claimed);
    if holder.is_some_and(|holder| !caller.holds(&holder)) {
        let error = ApiError::new(StatusCode::FORBIDDEN, "not_the_claimant", "another token has claimed this call");
        return Err(error.hint(Some("report with the token that claimed it, or wait for the end of its lease".to_owned())));
    }
    Ok(())
}
