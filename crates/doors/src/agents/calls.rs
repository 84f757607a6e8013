//! Calls that external tool services run: claim, renew and release.

use std::time::Duration;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use windlass_engine::{ClaimRequest, EngineError, messages::step_id};
use windlass_kernel::{AgentName, CallKey, CallNumber, Epoch, RunId, ToolName, content};
use windlass_ports::{ClaimedCall, StoreError};

use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{CLAIM_MAX, CLAIM_WAIT_S_MAX, LEASE_S, LEASE_S_MAX, LEASED_CALLS_MAX, NAME_CHARS_MAX},
    request::{Fields, JsonBody, ToolPath, idempotency_key, request_key},
    spelling::moment,
    waiting::news_or_time,
};

pub(super) async fn claim(
    State(state): State<DoorState>,
    caller: Caller,
    ToolPath(tool): ToolPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::Tool(tool.clone()))?;
    let fields = Fields::of_body(&body, &["worker", "max", "lease_s", "wait_s", "idempotency_key"])?;
    let wait = Duration::from_secs(fields.whole("wait_s", 0..=CLAIM_WAIT_S_MAX)?.unwrap_or(0));
    let max = fields.whole("max", 1..=CLAIM_MAX)?.unwrap_or(1);
    let request = request_key(&headers, &fields, &body)?;
    let request = ClaimRequest {
        // The bounds above fit a `usize` on any machine.
        max: usize::try_from(max).unwrap_or(1),
        key: request.as_ref().map(|request| request.key.clone()),
        request,
        ..hold(&caller, tool, &fields)?
    };
    let tool = request.tool.clone();
    let calls = claim_within(&state, request, wait).await?;
    let calls = calls.iter().map(|call| claimed(&tool, call)).collect::<Result<_, _>>()?;
    Ok(answer::ok(&Claimed { calls }))
}

/// Claims calls. If there are none, it waits up to `wait` for the first ones; it returns early when the server drains.
async fn claim_within(state: &DoorState, request: ClaimRequest, wait: Duration) -> Result<Vec<ClaimedCall>, ApiError> {
    let until = Instant::now() + wait;
    let mut watch = state.engine.watch_tool(&request.tenant, &request.tool);
    loop {
        let calls = state.engine.claim(request.clone()).await.map_err(about_path)?;
        let left = until.saturating_duration_since(Instant::now());
        if !calls.is_empty() || left.is_zero() || state.engine.is_draining() {
            return Ok(calls);
        }
        news_or_time(&mut watch, left).await;
    }
}

/// An unknown tool is a 404 here, because the path names it; elsewhere the body does, and it is a 400.
fn about_path(error: EngineError) -> ApiError {
    if let EngineError::UnknownTool(_) = &error {
        return ApiError::not_found("unknown_tool", error.to_string());
    }
    error.into()
}

fn hold(caller: &Caller, tool: ToolName, fields: &Fields<'_>) -> Result<ClaimRequest, ApiError> {
    Ok(ClaimRequest {
        tenant: caller.tenant().clone(),
        tool,
        worker: caller.worker(&fields.required_name("worker", NAME_CHARS_MAX)?),
        max: 0,
        lease_ms: fields.whole("lease_s", 1..=LEASE_S_MAX)?.unwrap_or(LEASE_S) * 1000,
        key: None,
        request: None,
    })
}

#[derive(Serialize)]
struct Claimed<'a> {
    calls: Vec<Command<'a>>,
}

/// A claimed call with all that the tool service needs to run it.
#[derive(Serialize)]
struct Command<'a> {
    tool_call_id: String,
    agent_id: &'a AgentName,
    agent_turn_id: RunId,
    turn_epoch: Epoch,
    step_id: String,
    tool: &'a ToolName,
    arguments: Box<RawValue>,
    idempotency_key: String,
    deadline: String,
    /// How often the call was repeated after a reported failure. The report repeats the number.
    retry: u32,
    attempt: u32,
}

fn claimed<'a>(tool: &'a ToolName, call: &'a ClaimedCall) -> Result<Command<'a>, ApiError> {
    let key = CallKey { run: call.run, call: call.call };
    let corrupt = |error| StoreError::Corrupt(format!("the content of {key} cannot be read: {error}").into());
    let content: content::Call = serde_json::from_slice(&call.content).map_err(corrupt)?;
    Ok(Command {
        tool_call_id: key.to_string(),
        agent_id: call.agent_name.as_ref().unwrap_or(&call.agent.agent),
        agent_turn_id: call.run,
        turn_epoch: call.epoch,
        step_id: step_id(call.run, call.iteration),
        tool,
        arguments: arguments(content.arguments).map_err(|error| ApiError::internal(&error))?,
        idempotency_key: key.idempotency_key(call.retry),
        retry: call.retry,
        deadline: moment(call.deadline),
        attempt: call.attempt,
    })
}

/// The arguments exactly as the model wrote them, or as a JSON string if they are not valid JSON.
fn arguments(text: String) -> serde_json::Result<Box<RawValue>> {
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(raw) => Ok(raw.to_owned()),
        Err(_) => serde_json::value::to_raw_value(&text),
    }
}

pub(super) async fn renew(
    State(state): State<DoorState>,
    caller: Caller,
    ToolPath(tool): ToolPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::Tool(tool.clone()))?;
    let fields = Fields::of_body(&body, &["worker", "lease_s", "calls", "idempotency_key"])?;
    // The key is only checked: renewing a lease twice is harmless.
    idempotency_key(&headers, &fields)?;
    let request = hold(&caller, tool, &fields)?;
    let named = named_calls(&fields)?;
    let lost = state.engine.renew(request, known(&named)).await.map_err(about_path)?;
    Ok(answer::ok(&Lost::of(named, &lost)))
}

pub(super) async fn release(
    State(state): State<DoorState>,
    caller: Caller,
    ToolPath(tool): ToolPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::Tool(tool.clone()))?;
    let fields = Fields::of_body(&body, &["worker", "calls", "idempotency_key"])?;
    let request = ClaimRequest { request: request_key(&headers, &fields, &body)?, ..hold(&caller, tool, &fields)? };
    let named = named_calls(&fields)?;
    let lost = state.engine.release(request, known(&named)).await.map_err(about_path)?;
    Ok(answer::ok(&Lost::of(named, &lost)))
}

/// A call as the tool service named it.
#[derive(Serialize)]
struct NamedCall {
    agent_turn_id: String,
    tool_call_id: String,
    /// `None` if the ids are malformed; the answer then lists the call as lost, like one whose lease has ended.
    #[serde(skip)]
    key: Option<CallKey>,
}

#[derive(Serialize)]
struct Lost {
    lost: Vec<NamedCall>,
}

impl Lost {
    /// The calls whose lease is lost, in the order of the request.
    fn of(named: Vec<NamedCall>, lost: &[(RunId, CallNumber)]) -> Self {
        let is_lost = |call: &NamedCall| call.key.is_none_or(|key| lost.contains(&(key.run, key.call)));
        Lost { lost: named.into_iter().filter(is_lost).collect() }
    }
}

fn named_calls(fields: &Fields<'_>) -> Result<Vec<NamedCall>, ApiError> {
    fields.required("calls")?;
    let values = fields.list("calls", LEASED_CALLS_MAX)?.unwrap_or_default();
    let read = |(index, value)| {
        let call = Fields::of_value(value, &format!("calls[{index}]"), &["agent_turn_id", "tool_call_id"])?;
        let (agent_turn_id, tool_call_id) = (call.required_text("agent_turn_id")?, call.required_text("tool_call_id")?);
        let run: Option<RunId> = agent_turn_id.parse().ok();
        let key = tool_call_id.parse().ok().filter(|key: &CallKey| Some(key.run) == run);
        Ok(NamedCall { agent_turn_id, tool_call_id, key })
    };
    values.into_iter().enumerate().map(read).collect()
}

fn known(named: &[NamedCall]) -> Vec<(RunId, CallNumber)> {
    named.iter().filter_map(|call| call.key).map(|key| (key.run, key.call)).collect()
}
