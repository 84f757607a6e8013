//! `POST /v1/agents/{agent}/enqueue`: requests a run of the agent.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use bytes::Bytes;
use serde_json::json;
use windlass_engine::{Enqueue, Enqueued, Excess};
use windlass_kernel::{AgentKey, BoxId, ItemKind, ResultField, ToolName, content};
use windlass_ports::Lineage;

use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{NAME_CHARS_MAX, RESULT_FIELDS_MAX, TOOLS_MAX},
    request::{AgentPath, Fields, JsonBody, item_of, items_of, request_key, trace_context},
};

const KNOWN: [&str; 8] =
    ["input", "model", "instructions", "tools", "context_box_id", "result_fields", "idempotency_key", "parent_step_id"];

pub(super) async fn enqueue(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsWrite)?;
    let fields = Fields::of_body(&body, &KNOWN)?;
    let result_fields = result_fields(&fields)?;
    let mut input = input(&fields, state.engine.settings().input_items_max)?;
    if !result_fields.is_empty() {
        let schema = content::FieldsSchema { fields: result_fields.clone() };
        input.push((ItemKind::ResultFields, content::encode(&schema)));
    }
    let tools = fields.names("tools", TOOLS_MAX, NAME_CHARS_MAX)?;
    let tools: Option<Vec<ToolName>> = tools.map(|names| names.iter().map(|name| ToolName::from(name.as_str())).collect());
    let (model, instructions) = (fields.name("model", NAME_CHARS_MAX)?, fields.text("instructions")?);
    may_ask(&caller, &agent, state.engine.roster().widening(&agent, model.as_deref(), instructions.as_deref(), tools.as_deref()))?;
    for tool in tools.iter().flatten() {
        may_use(&state, &caller, &agent, tool)?;
    }
    let request = Enqueue {
        input,
        model,
        instructions,
        tools,
        context_box: context_box(&fields)?,
        result_fields,
        key: request_key(&headers, &fields, &body)?,
        lineage: lineage(&caller, &headers, &fields)?,
        agent,
    };
    let enqueued = state.engine.enqueue(request).await?;
    Ok(answer::accepted(&json!({
        "agent_turn_id": enqueued.run,
        "run_id": enqueued.run,
        "inbox_id": state.inbox_ids.inbox(caller.tenant(), enqueued.message),
        "status": status(&enqueued),
        "turn_epoch": enqueued.epoch,
    })))
}

/// Refuses a request that asks for more than the agent's configuration allows, unless the token has `agents:configure`.
pub(super) fn may_ask(caller: &Caller, agent: &AgentKey, widening: Option<Excess>) -> Result<(), ApiError> {
    let Some(widening) = widening.filter(|_| !caller.may(&Scope::AgentsConfigure)) else { return Ok(()) };
    let what = match widening {
        Excess::Model => "another model".to_owned(),
        Excess::Instructions => "other instructions".to_owned(),
        Excess::Tool(tool) => format!("the tool {:?}", tool.as_str()),
    };
    let message = format!("a request may only narrow what the agent {:?} has, and this one asks for {what}", agent.agent.as_str());
    let hint = "leave it out, or use a token with the scope agents:configure".to_owned();
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).hint(Some(hint)))
}

/// Refuses a tool that is neither in the agent's configuration nor named by a scope of the token.
pub(super) fn may_use(state: &DoorState, caller: &Caller, agent: &AgentKey, tool: &ToolName) -> Result<(), ApiError> {
    let spec = state.engine.roster().agent(&agent.tenant, &agent.agent);
    if spec.is_some_and(|spec| spec.has_tool(tool)) { Ok(()) } else { caller.needs_tool(state, tool) }
}

/// The origin of a request: its trace, the step that caused it, and the caller's name.
pub(super) fn lineage(caller: &Caller, headers: &HeaderMap, fields: &Fields<'_>) -> Result<Lineage, ApiError> {
    let parent_step = fields.name("parent_step_id", NAME_CHARS_MAX)?;
    Ok(Lineage { parent_step, source: Some(caller.name()), ..trace_context(headers)? })
}

fn status(enqueued: &Enqueued) -> &'static str {
    if enqueued.is_queued { "queued" } else { "dispatched" }
}

fn input(fields: &Fields<'_>, items_max: usize) -> Result<Vec<(ItemKind, Bytes)>, ApiError> {
    let value = fields.required("input")?;
    match value.get().as_bytes().first() {
        Some(b'"') => Ok(vec![item_of(value, "input")?]),
        Some(b'[') => {
            let values = fields.list("input", items_max)?.unwrap_or_default();
            if values.is_empty() && fields.given("context_box_id").is_none() {
                return Err(ApiError::bad_field("input", "something: there is no context box either"));
            }
            items_of(&values, "input")
        }
        Some(_) | None => Err(ApiError::bad_field("input", "a string or an array of strings and objects")),
    }
}

fn context_box(fields: &Fields<'_>) -> Result<Option<BoxId>, ApiError> {
    let Some(text) = fields.text("context_box_id")? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| windlass_engine::EngineError::UnknownBox.into())
}

fn result_fields(fields: &Fields<'_>) -> Result<Vec<ResultField>, ApiError> {
    let values = fields.list("result_fields", RESULT_FIELDS_MAX)?.unwrap_or_default();
    let mut wanted: Vec<ResultField> = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let at = format!("result_fields[{index}]");
        let field = Fields::of_value(value, &at, &["name", "description", "required"])?;
        let name = field.required_name("name", NAME_CHARS_MAX)?;
        if wanted.iter().any(|earlier| earlier.name == name) {
            return Err(ApiError::bad_field(&format!("{at}.name"), "a name that no other field has"));
        }
        let description = field.text("description")?.unwrap_or_default();
        wanted.push(ResultField { name, description, required: field.flag("required")?.unwrap_or(false) });
    }
    Ok(wanted)
}
