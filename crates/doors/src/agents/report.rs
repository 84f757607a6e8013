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

const KNOWN: [&str; 8] = ["agent_turn_id", "tool_call_id", "status", "result", "after_execution", "retry", "turn_epoch", "idempotency_key"];
/// The highest number of a repetition that a report can name.
const RETRY_MAX: u64 = 1_000;
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
    let given = fields.whole("retry", 0..=RETRY_MAX)?.map(|retry| retry as u32);
    let present = may_report(&state, &caller, key).await?;
    let retry = given.unwrap_or(present);
    let wished = fields.raw("result").and_then(wished_after);
    let reported = state
        .engine
        .report(ToolResult {
            agent,
            run: key.run,
            call: key.call,
            retry,
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
///
/// Returns the repetition of the call that a report without a number is for. A repetition that no service has claimed yet has no result, so
/// that such a report is a late copy of the one before.
async fn may_report(state: &DoorState, caller: &Caller, key: CallKey) -> Result<u32, ApiError> {
    let views = state.engine.views();
    let run = views.run(caller.tenant(), key.run).await?.ok_or_else(ApiError::unknown_run)?;
    let calls = views.calls(caller.tenant(), key.run, key.call, 1).await?;
    let call = calls.into_iter().find(|call| call.call == key.call).ok_or_else(ApiError::unknown_call)?;
    let is_paused = run.state.call(key.call).is_some_and(|open| open.not_before.is_some());
    let is_copy = call.retry > 0 && (is_paused || call.status == CallStatus::Waiting);
    let retry = call.retry - u32::from(is_copy);
    if call.status == CallStatus::Parked {
        let is_holder = call.worker.is_some_and(|holder| caller.holds(&holder)) && caller.may(&Scope::Tool(call.tool));
        return if is_holder { Ok(retry) } else { caller.needs(&Scope::ApprovalsAnswer).map(|()| retry) };
    }
    caller.needs(&Scope::Tool(call.tool))?;
    let holder = call.worker.filter(|_| call.status == CallStatus::Claimed);
    if holder.is_some_and(|holder| !caller.holds(&holder)) {
        let error = ApiError::new(StatusCode::FORBIDDEN, "not_the_claimant", "another token has claimed this call");
        return Err(error.hint(Some("report with the token that claimed it, or wait for the end of its lease".to_owned())));
    }
    Ok(retry)
}
