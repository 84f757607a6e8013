//! `/v1/windlass/interrupts`: what waits for a person, and the answers.

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::{Value, json, value::RawValue};
use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, EngineError};
use windlass_kernel::{AgentName, CallKey, Cause, ItemId, PassedBudget, Question, TaskStatus, Tenant, Timestamp, Verdict, content::Call};
use windlass_ports::{CallView, ClosedInterrupt, InterruptId, InterruptScan, InterruptView};

use super::{
    answer_schema,
    lists::{limit, short, word},
};
use crate::{
    DoorState,
    agents::STATUS_WORDS,
    answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{AGENT_CHARS_MAX, REASON_CHARS_MAX},
    request::{Fields, JsonBody, Query, request_key},
    spelling::moment,
};

const PARAMETERS: [&str; 6] = ["state", "cause", "agent", "run", "limit", "after"];
/// The highest limit that a budget can get.
const LIMIT_MAX: u64 = 1 << 53;
const KNOWN: [&str; 9] = ["action", "shows", "arguments", "status", "result", "answer", "comment", "limit", "idempotency_key"];
const CAUSES: &str = "approval, question, unknown_outcome, budget, owners_lost, panicked";
const ACTIONS: &str = "approve, edit, reject, answer, record, release, tell, raise, resume, end";

pub(super) async fn list(State(state): State<DoorState>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    caller.needs_one_of(&[Scope::RunsRead, Scope::ApprovalsAnswer])?;
    query.only(&PARAMETERS)?;
    let limit = limit(&query)?;
    let scan = InterruptScan {
        with_closed: word(&query, "state", parse_state, "open, all")?.unwrap_or(false),
        cause: word(&query, "cause", Cause::parse, CAUSES)?,
        agent: short(&query, "agent", AGENT_CHARS_MAX)?.map(AgentName::from),
        run: word(&query, "run", |text| text.parse().ok(), "the id of a run")?,
        after: word(&query, "after", parse_cursor, "the `next` of a page")?,
        limit: limit + 1,
    };
    let mut found = state.engine.views().interrupts(caller.tenant(), &scan).await?;
    let next = (found.len() > limit).then(|| found.get(limit - 1).map(cursor)).flatten();
    found.truncate(limit);
    let rows = try_join_all(found.iter().map(|interrupt| row_for(&state, &caller, interrupt))).await?;
    Ok(answer::ok(&json!({ "interrupts": rows.into_iter().flatten().collect::<Vec<_>>(), "next": next })))
}

/// The row of an interrupt, if the caller may see it. A run that is not to be stored is hidden from readers, and shown to those who decide.
async fn row_for(state: &DoorState, caller: &Caller, view: &InterruptView) -> Result<Option<Value>, ApiError> {
    if !caller.may(&Scope::ApprovalsAnswer) {
        let run = state.engine.views().run(caller.tenant(), view.run).await?;
        if run.is_none_or(|run| run.unlisted) {
            return Ok(None);
        }
    }
    row(state, caller.tenant(), view).await.map(Some)
}

pub(super) async fn one(State(state): State<DoorState>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.needs_one_of(&[Scope::RunsRead, Scope::ApprovalsAnswer])?;
    let interrupt = find(&state, caller.tenant(), &id).await?;
    Ok(answer::ok(&row_for(&state, &caller, &interrupt).await?.ok_or_else(unknown)?))
}

pub(super) async fn decide(
    State(state): State<DoorState>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs_one_of(&[Scope::ApprovalsAnswer, Scope::Admin])?;
    let interrupt = find(&state, caller.tenant(), &id).await?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let name = fields.required_text("action")?;
    let shows = shows(&fields, &name, &interrupt)?;
    let action = action(&state, &interrupt, &fields, &body, &name, shows).await?;
    check_answer(&state, caller.tenant(), &interrupt, &action).await?;
    let key = request_key(&headers, &fields, &body)?;
    let (by, id) = (caller.name(), interrupt.id());
    let target = AnswerTarget::Interrupt { number: id.number, shows };
    let asked = AnswerInterrupt { agent: interrupt.agent.clone(), run: id.run, target, action, source: Some(by.clone()), key };
    let answered = match state.engine.answer_interrupt(asked).await {
        Ok(answered) => answered,
        // Another person, or the deadline of the interrupt, may have come first.
        Err(EngineError::NotParked) => return Err(not_open(&state, caller.tenant(), id).await),
        Err(error @ EngineError::UnfitDecision) => {
            let hint = format!(
                "the actions {} fit an interrupt with the cause {}",
                actions(interrupt.interrupt.cause).join(", "),
                interrupt.interrupt.cause.as_str()
            );
            return Err(ApiError::from(error).hint(Some(hint)));
        }
        Err(error) => return Err(error.into()),
    };
    let at = moment(state.engine.now());
    Ok(answer::ok(
        &json!({ "interrupt_id": id.to_string(), "action": name, "by": by, "at": at, "number": answered.number, "remaining": answered.remaining }),
    ))
}

async fn action(
    state: &DoorState,
    view: &InterruptView,
    fields: &Fields<'_>,
    body: &Bytes,
    name: &str,
    shows: Option<ItemId>,
) -> Result<AnswerAction, ApiError> {
    let gives_result = fields.given("status").is_some() || fields.raw("result").is_some();
    if name != "record" && gives_result {
        return Err(ApiError::bad("bad_field", "`status` and `result` go with the action record only"));
    }
    if name != "edit" && fields.given("arguments").is_some() {
        return Err(ApiError::bad("bad_field", "`arguments` goes with the action edit only"));
    }
    if name != "answer" && fields.raw("answer").is_some() {
        return Err(ApiError::bad("bad_field", "`answer` goes with the action answer only"));
    }
    let comment = fields.given("comment").map_or(Ok(String::new()), |_| fields.sentence("comment", REASON_CHARS_MAX))?;
    match name {
        "approve" => Ok(AnswerAction::Approve),
        "edit" => edit(state, view, fields, body, shows).await,
        "reject" => Ok(AnswerAction::Reject { comment }),
        "answer" => Ok(AnswerAction::Answer { answer: given_answer(state, fields, body)? }),
        "record" => record(state, fields, body),
        "release" => Ok(AnswerAction::Release),
        "tell" => Ok(AnswerAction::Tell),
        "raise" => Ok(AnswerAction::Raise { limit: limit_of(fields)? }),
        "resume" => Ok(AnswerAction::Resume),
        "end" => Ok(AnswerAction::End),
        _ => Err(ApiError::bad("bad_field", format!("`action` must be one of: {ACTIONS}"))),
    }
}

/// The call with the arguments that the person wrote, byte for byte.
async fn edit(
    state: &DoorState,
    view: &InterruptView,
    fields: &Fields<'_>,
    body: &Bytes,
    shows: Option<ItemId>,
) -> Result<AnswerAction, ApiError> {
    if fields.raw("arguments").is_none() {
        let message = "the action edit needs `arguments`: a JSON object with all arguments of the call";
        return Err(ApiError::bad("missing_field", message));
    }
    let written = fields.kept("arguments", body);
    let arguments = std::str::from_utf8(&written).map_err(|_| ApiError::bad_field("arguments", "valid UTF-8"))?;
    // Why an edit of something else is refused is said when it is applied, unless the same request was answered before.
    let Some(shown) = shows.filter(|shown| view.interrupt.shows == Some(*shown) && view.closed.is_none()) else {
        return Ok(AnswerAction::Edit { call: Bytes::new() });
    };
    let call = state.engine.edited_call(&view.agent.tenant, view.run, shown, arguments).await?;
    Ok(AnswerAction::Edit { call })
}

/// The new limit of a budget, in its unit: a number of iterations, calls or tokens, or milliseconds.
fn limit_of(fields: &Fields<'_>) -> Result<u64, ApiError> {
    let missing = "the action raise needs `limit`: the new limit of the budget, in iterations, calls, tokens or milliseconds";
    fields.whole("limit", 1..=LIMIT_MAX)?.ok_or_else(|| ApiError::bad("missing_field", missing))
}

fn record(state: &DoorState, fields: &Fields<'_>, body: &Bytes) -> Result<AnswerAction, ApiError> {
    let status = fields.word("status", TaskStatus::parse, STATUS_WORDS)?;
    let (Some(status), Some(_)) = (status, fields.raw("result")) else {
        let message = format!("the action record needs `status` ({STATUS_WORDS}) and `result`, the result of the call");
        return Err(ApiError::bad("missing_field", message));
    };
    let (result, limit) = (fields.kept("result", body), state.engine.settings().item_bytes_max);
    match result.len() <= limit {
        true => Ok(AnswerAction::Record { status, result }),
        false => Err(EngineError::ItemTooLarge { bytes: result.len(), limit }.into()),
    }
}

/// The answer to a question: any JSON.
fn given_answer(state: &DoorState, fields: &Fields<'_>, body: &Bytes) -> Result<Bytes, ApiError> {
    if fields.raw("answer").is_none() {
        return Err(ApiError::bad("missing_field", "the action answer needs `answer`: the answer to the question, as JSON"));
    }
    let (answer, limit) = (fields.kept("answer", body), state.engine.settings().item_bytes_max);
    match answer.len() <= limit {
        true => Ok(answer),
        false => Err(EngineError::ItemTooLarge { bytes: answer.len(), limit }.into()),
    }
}

/// Refuses an answer that does not fit the schema of its question. What cannot be answered at all is refused by the engine.
async fn check_answer(state: &DoorState, tenant: &Tenant, view: &InterruptView, action: &AnswerAction) -> Result<(), ApiError> {
    let AnswerAction::Answer { answer } = action else { return Ok(()) };
    if view.interrupt.cause != Cause::Question || view.closed.is_some() {
        return Ok(());
    }
    let call = held_call(state, tenant, view).await?.and_then(|(_, content)| content);
    let question: Option<Question> = call.and_then(|call| serde_json::from_str(&call.arguments).ok());
    let Some(schema) = question.and_then(|question| question.schema) else { return Ok(()) };
    answer_schema::check(&schema, answer)
}

/// The item that the person saw. An approval or a rejection must name it, so that every decision is about arguments that the person
/// has seen.
fn shows(fields: &Fields<'_>, action: &str, view: &InterruptView) -> Result<Option<ItemId>, ApiError> {
    let given = fields.text("shows")?;
    if given.is_none() && view.interrupt.shows.is_some() && matches!(action, "approve" | "edit" | "reject") {
        let message = "`shows` is missing: send the `shows` of the interrupt, which names the arguments that you saw";
        return Err(ApiError::bad("shows_required", message));
    }
    given.map(|text| text.parse().map_err(|_| ApiError::bad_field("shows", "the id of an item, as the interrupt shows it"))).transpose()
}

fn unknown() -> ApiError {
    let hint = "GET /v1/windlass/interrupts lists the open ones";
    ApiError::not_found("unknown_interrupt", "there is no such interrupt").hint(Some(hint.to_owned()))
}

async fn find(state: &DoorState, tenant: &Tenant, id: &str) -> Result<InterruptView, ApiError> {
    let id: InterruptId = id.parse().map_err(|_| unknown())?;
    state.engine.views().interrupt(tenant, id).await?.ok_or_else(unknown)
}

/// The error that an interrupt is closed, with the answer that closed it.
async fn not_open(state: &DoorState, tenant: &Tenant, id: InterruptId) -> ApiError {
    let closed = match state.engine.views().interrupt(tenant, id).await {
        Ok(found) => found.and_then(|interrupt| interrupt.closed),
        Err(error) => return error.into(),
    };
    let error = ApiError::conflict("already_answered", "this interrupt was answered already");
    match closed {
        Some(closed) => error.details(json!({ "by": closed.by, "at": moment(closed.at), "action": action_of(closed.verdict) })),
        None => error,
    }
}

/// The action that led to a verdict. Verdicts without an action of a person have a name of their own.
fn action_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approved => "approve",
        Verdict::Rejected => "reject",
        Verdict::Answered => "answer",
        Verdict::Recorded => "record",
        Verdict::Released => "release",
        Verdict::ReportedToModel => "tell",
        Verdict::Raised => "raise",
        Verdict::Resumed => "resume",
        Verdict::Ended => "end",
        Verdict::TimedOut | Verdict::Reported | Verdict::Stopped => verdict.as_str(),
    }
}

/// The actions that fit a cause.
fn actions(cause: Cause) -> &'static [&'static str] {
    match cause {
        Cause::Approval => &["approve", "edit", "reject", "end"],
        Cause::Question => &["answer", "reject", "end"],
        Cause::UnknownOutcome => &["record", "release", "tell", "end"],
        Cause::Budget => &["raise", "end"],
        Cause::OwnersLost | Cause::Panicked => &["resume", "end"],
    }
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Question => "the model asks a person",
        Cause::Approval => "a rule demands a person's approval before this call starts",
        Cause::UnknownOutcome => "the server that ran this call was lost: it may have taken effect, and it must not run twice",
        Cause::Budget => "continuing would exceed a budget of the run",
        Cause::OwnersLost => "the run lost several servers in a row without progress",
        Cause::Panicked => "a step or a tool of the run panicked; the log has the evidence",
    }
}

async fn row(state: &DoorState, tenant: &Tenant, view: &InterruptView) -> Result<Value, ApiError> {
    let interrupt = &view.interrupt;
    let call = held_call(state, tenant, view).await?;
    let passed = passed_budget(state, tenant, view).await?;
    let (iteration, tool, effect) = match &call {
        Some((call, _)) => (Some(call.iteration), Some(&call.tool), Some(call.effect)),
        None => (None, None, None),
    };
    Ok(json!({
        "interrupt_id": view.id().to_string(),
        "run_id": view.run,
        "agent_id": view.agent_name.as_ref().unwrap_or(&view.agent.agent),
        "iteration": iteration,
        "cause": interrupt.cause,
        "tool_call_id": interrupt.call.map(|call| CallKey { run: view.run, call }.to_string()),
        "tool": tool,
        "effect": effect,
        "arguments": call.as_ref().and_then(|(_, content)| content.as_ref()).map(|call| arguments(&call.arguments)),
        "shows": interrupt.shows,
        "why": why(interrupt.cause),
        "created_at": moment(view.created_at),
        "until": interrupt.until.map(moment),
        "on_timeout": interrupt.until.map(|_| interrupt.on_timeout.as_str()),
        "budget": passed.map(|passed| json!({
            "kind": passed.breach.kind.as_str(), "limit": passed.breach.limit, "used": passed.breach.observed, "limit_min": passed.limit_min(),
        })),
        "actions": if view.closed.is_some() { &[] } else { actions(interrupt.cause) },
        "needs": interrupt.needs,
        "answers": answers(view),
    }))
}

/// The budget that a run waits for. It is in the state of the run only, and gone once the interrupt is answered.
async fn passed_budget(state: &DoorState, tenant: &Tenant, view: &InterruptView) -> Result<Option<PassedBudget>, ApiError> {
    if view.interrupt.cause != Cause::Budget || view.closed.is_some() {
        return Ok(None);
    }
    let run = state.engine.views().run(tenant, view.run).await?;
    Ok(run.and_then(|run| run.state.interrupt(view.interrupt.number)?.budget))
}

/// The held call, with its content unless that was erased.
async fn held_call(state: &DoorState, tenant: &Tenant, view: &InterruptView) -> Result<Option<(CallView, Option<Call>)>, ApiError> {
    let Some(number) = view.interrupt.call else { return Ok(None) };
    let views = state.engine.views();
    let calls = views.calls(tenant, view.run, number, 1).await?;
    let Some(call) = calls.into_iter().find(|call| call.call == number) else { return Ok(None) };
    let item = views.item(tenant, view.interrupt.shows.unwrap_or(call.item)).await?;
    let content = item.and_then(|item| serde_json::from_slice(&item.content).ok());
    Ok(Some((call, content)))
}

/// The arguments as JSON, or as text if they are not JSON.
fn arguments(text: &str) -> Value {
    RawValue::from_string(text.to_owned()).ok().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_else(|| text.into())
}

fn answers(view: &InterruptView) -> Vec<Value> {
    let entry = |action: &str, by: Option<&str>, at: Option<Timestamp>| json!({ "action": action, "by": by, "at": at.map(moment) });
    let approvals = view.interrupt.approvals.iter().map(|by| entry("approve", Some(by), None));
    let closed = view.closed.iter().map(|ClosedInterrupt { verdict, by, at }| entry(action_of(*verdict), by.as_deref(), Some(*at)));
    approvals.chain(closed).collect()
}

fn parse_state(text: &str) -> Option<bool> {
    match text {
        "open" => Some(false),
        "all" => Some(true),
        _ => None,
    }
}

fn cursor(view: &InterruptView) -> String {
    format!("{}.{}", view.created_at.0, view.id())
}

fn parse_cursor(text: &str) -> Option<(Timestamp, InterruptId)> {
    let (at, id) = text.split_once('.')?;
    Some((Timestamp(at.parse().ok()?), id.parse().ok()?))
}
