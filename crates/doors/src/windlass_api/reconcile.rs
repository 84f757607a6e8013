//! `POST /v1/windlass/reconcile`: a person's decision about a parked run or call, without the id of an interrupt.

use axum::{extract::State, http::HeaderMap, response::Response};
use bytes::Bytes;
use serde_json::json;
use windlass_engine::{Abandon, AnswerAction, AnswerInterrupt, AnswerTarget, EngineError};
use windlass_kernel::{CallKey, CallNumber, Cause, Run, RunId, TaskStatus};
use windlass_ports::{RequestKey, RunView};

use crate::{
    DoorState,
    agents::STATUS_WORDS,
    answer,
    auth::{Caller, Scope},
    error::ApiError,
    request::{Fields, JsonBody, request_key},
};

const KNOWN: [&str; 6] = ["run_id", "tool_call_id", "action", "status", "result", "idempotency_key"];

pub(super) async fn reconcile(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs_one_of(&[Scope::ApprovalsAnswer, Scope::Admin])?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let action = fields.word("action", Action::parse, "record, release, tell, resume, abandon")?;
    let action = action.ok_or_else(|| ApiError::bad("missing_field", "`action` is missing"))?;
    check_fit(&fields, action)?;
    let status = fields.word("status", TaskStatus::parse, STATUS_WORDS)?;
    let recorded = recorded(&fields, status, action)?;
    let result = result(&fields, &body, state.engine.settings().item_bytes_max)?;
    let key = request_key(&headers, &fields, &body)?;
    if action == Action::Abandon {
        return abandon(&state, &caller, &fields, key).await;
    }
    let run = run_of(&state, &caller, &fields).await?;
    let (target, action) = match action {
        Action::Record => (AnswerTarget::Call(call_of(&run, &fields)?), AnswerAction::Record { status: recorded, result }),
        Action::Release => (AnswerTarget::Call(call_of(&run, &fields)?), AnswerAction::Release),
        Action::Tell => (AnswerTarget::Call(call_of(&run, &fields)?), AnswerAction::Tell),
        Action::Resume | Action::Abandon => (AnswerTarget::Run, AnswerAction::Resume),
    };
    let id = run.id;
    let answer = AnswerInterrupt { agent: run.agent, run: id, target, action, source: Some(caller.name()), key };
    match state.engine.answer_interrupt(answer).await {
        Err(EngineError::NotParked | EngineError::UnfitDecision) => return Err(not_parked(id, &run.state)),
        decided => decided?,
    };
    Ok(answer::ok(&json!({ "run_id": id, "tool_call_id": fields.text("tool_call_id")?, "status": "reconciled" })))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Record,
    Release,
    Tell,
    Resume,
    Abandon,
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "record" => Some(Action::Record),
            "release" => Some(Action::Release),
            "tell" => Some(Action::Tell),
            "resume" => Some(Action::Resume),
            "abandon" => Some(Action::Abandon),
            _ => None,
        }
    }
}

/// Refuses a field that the action does not use: the person may have meant something else, and a decision must not be guessed.
fn check_fit(fields: &Fields<'_>, action: Action) -> Result<(), ApiError> {
    if action != Action::Record && (fields.raw("result").is_some() || fields.given("status").is_some()) {
        return Err(ApiError::bad("bad_field", "`status` and `result` go with the action record only"));
    }
    match (action, fields.given("tool_call_id").is_some()) {
        (Action::Resume | Action::Abandon, true) => {
            Err(ApiError::bad("bad_field", "the actions resume and abandon are about a whole run, without `tool_call_id`"))
        }
        (Action::Record | Action::Release | Action::Tell, false) => Err(ApiError::bad("missing_field", "`tool_call_id` is missing")),
        (Action::Resume | Action::Abandon, false) | (Action::Record | Action::Release | Action::Tell, true) => Ok(()),
    }
}

/// The status of a call whose outcome a person records. The status and the result must come together.
fn recorded(fields: &Fields<'_>, status: Option<TaskStatus>, action: Action) -> Result<TaskStatus, ApiError> {
    let missing = match (status, fields.raw("result").is_some()) {
        (Some(status), true) => return Ok(status),
        _ if action != Action::Record => return Ok(TaskStatus::Success),
        (None, false) => "`status` and `result` are missing",
        (None, true) => "`status` is missing",
        (Some(_), false) => "`result` is missing",
    };
    let message = format!("{missing}: the action record needs both, the status of the call ({STATUS_WORDS}) and its result");
    Err(ApiError::bad("missing_field", message))
}

/// The error that nothing waits for this decision. Its hint names the decisions that fit.
fn not_parked(run: RunId, state: &Run) -> ApiError {
    let parked = state.interrupts.iter().filter(|open| open.cause == Cause::UnknownOutcome).filter_map(|open| open.call);
    let parked: Vec<String> = parked.map(|call| CallKey { run, call }.to_string()).collect();
    let hint = match (state.is_held(), parked.as_slice()) {
        (true, _) => "the whole run is parked: the action resume fits, without `tool_call_id`".to_owned(),
        (false, []) => return ApiError::conflict("not_parked", "nothing of this run waits for a decision"),
        (false, calls) => format!(
            "single calls wait, not the whole run: send `tool_call_id` ({}) with the action record (it ran, this is its result), release (run \
             it) or tell (the model learns that the outcome is unknown)",
            calls.join(", ")
        ),
    };
    ApiError::conflict("not_parked", "this run does not wait for this decision").hint(Some(hint))
}

fn result(fields: &Fields<'_>, body: &Bytes, limit: usize) -> Result<Bytes, ApiError> {
    let result = fields.kept("result", body);
    match result.len() <= limit {
        true => Ok(result),
        false => Err(EngineError::ItemTooLarge { bytes: result.len(), limit }.into()),
    }
}

/// Gives up a run that cannot be read. Since its state is unreadable, only its agent is looked up.
async fn abandon(state: &DoorState, caller: &Caller, fields: &Fields<'_>, key: Option<RequestKey>) -> Result<Response, ApiError> {
    let run = named_run(fields)?;
    let agent = state.engine.views().agent_of(caller.tenant(), run).await?.ok_or_else(ApiError::no_such_run)?;
    state.engine.abandon(Abandon { agent, run, source: Some(caller.name()), key }).await?;
    Ok(answer::ok(&json!({ "run_id": run, "tool_call_id": null, "status": "reconciled" })))
}

fn named_run(fields: &Fields<'_>) -> Result<RunId, ApiError> {
    fields.required_text("run_id")?.parse().map_err(|_| ApiError::no_such_run())
}

async fn run_of(state: &DoorState, caller: &Caller, fields: &Fields<'_>) -> Result<RunView, ApiError> {
    let id = named_run(fields)?;
    state.engine.views().run(caller.tenant(), id).await?.ok_or_else(ApiError::no_such_run)
}

fn call_of(run: &RunView, fields: &Fields<'_>) -> Result<CallNumber, ApiError> {
    let key: Option<CallKey> = fields.required_text("tool_call_id")?.parse().ok();
    let is_made = |key: &CallKey| key.run == run.id && (1..=run.state.calls_used).contains(&key.call.0);
    key.filter(is_made).map(|key| key.call).ok_or_else(|| ApiError::not_found("unknown_call", "the run has made no such call"))
}
