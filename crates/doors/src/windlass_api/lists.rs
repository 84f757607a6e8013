//! Lists: runs, agents and tools.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_engine::{RunFilter, RunState};
use windlass_kernel::{
    AgentKey, AgentName, EffectClass, HeadStatus, Route, RunId, ServerSource, TaskStatus, Tenant, Timestamp, ToolName, ToolServer, ToolSpec,
};
use windlass_ports::{AgentSummary, OfferedTool, RunScan, RunSet};

use super::{row::row, runs::read};
use crate::{
    DoorState,
    agents::STATUS_WORDS,
    answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{AGENT_CHARS_MAX, LIST_ROWS, LIST_ROWS_MAX, OPEN_RUNS_COUNTED_MAX, TEXT_CHARS_MAX},
    request::{IdPath, Query},
    spelling::{moment, shortened},
};

const RUN_PARAMETERS: [&str; 9] = ["state", "agent", "parent", "outcome", "since", "until", "q", "limit", "after"];

pub(super) async fn runs(State(state): State<DoorState>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    caller.needs(&Scope::RunsRead)?;
    query.only(&RUN_PARAMETERS)?;
    let filter = RunFilter {
        state: word(&query, "state", RunState::parse, "queued, thinking, waiting, parked, ended")?,
        agent: short(&query, "agent", AGENT_CHARS_MAX)?.map(AgentName::from),
        parent: word(&query, "parent", |text| text.parse::<RunId>().ok(), "the id of a run")?,
        outcome: word(&query, "outcome", TaskStatus::parse, STATUS_WORDS)?,
        since: time(&query, "since")?,
        until: time(&query, "until")?,
        text: short(&query, "q", TEXT_CHARS_MAX)?.map(str::to_owned),
        after: word(&query, "after", |text| text.parse::<RunId>().ok(), "the `next` of a page")?,
        limit: limit(&query)?,
    };
    let list = state.engine.list_runs(caller.tenant(), &filter).await?;
    let runs: Vec<Value> = list.runs.iter().map(row).collect();
    Ok(answer::ok(&json!({ "runs": runs, "next": list.next })))
}

/// The child runs of a run, newest first.
pub(super) async fn children(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<RunId>,
    query: Query,
) -> Result<Response, ApiError> {
    query.only(&["limit", "after"])?;
    let parent = read(&state, &caller, id).await?.id;
    let after = word(&query, "after", |text| text.parse::<RunId>().ok(), "the `next` of a page")?;
    let filter = RunFilter { parent: Some(parent), after, limit: limit(&query)?, ..RunFilter::default() };
    let list = state.engine.list_runs(caller.tenant(), &filter).await?;
    let children: Vec<Value> = list.runs.iter().map(row).collect();
    Ok(answer::ok(&json!({ "run_id": parent, "children": children, "next": list.next })))
}

pub(super) async fn agents(State(state): State<DoorState>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    caller.needs_one_of(&[Scope::AgentsRead, Scope::RunsRead])?;
    query.only(&["limit", "after"])?;
    let limit = limit(&query)?;
    let after = short(&query, "after", AGENT_CHARS_MAX)?.unwrap_or_default();
    let stored = state.engine.views().agent_names(caller.tenant(), after, limit + 1).await?;
    let configured = state.engine.roster().agents(caller.tenant()).filter(|name| name.as_str() > after);
    let mut names: BTreeMap<AgentName, Option<AgentSummary>> = configured.map(|name| (name.clone(), None)).collect();
    names.extend(stored.into_iter().map(|agent| (agent.name.clone(), Some(agent))));
    let next = names.keys().nth(limit).and_then(|_| names.keys().nth(limit - 1)).cloned();
    let mut rows = Vec::with_capacity(limit.min(names.len()));
    for (name, summary) in names.into_iter().take(limit) {
        rows.push(agent_row(&state, caller.tenant(), &name, summary).await?);
    }
    Ok(answer::ok(&json!({ "agents": rows, "next": next })))
}

/// One agent with its own head. Responses of an agent that is not serial have heads of their own, which are not shown here.
async fn agent_row(state: &DoorState, tenant: &Tenant, name: &AgentName, summary: Option<AgentSummary>) -> Result<Value, ApiError> {
    let head = state.engine.views().head(&AgentKey { tenant: tenant.clone(), agent: name.clone() }).await?;
    let head = head.as_ref();
    let spec = state.engine.roster().agent(tenant, name);
    Ok(json!({
        "agent_id": name,
        "configured": spec.is_some(),
        "serial": spec.is_some_and(|spec| spec.serial),
        "status": head.map_or(HeadStatus::Idle, |head| head.status),
        "active_run_id": head.and_then(|head| head.run),
        "turn_epoch": head.map_or(0, |head| head.epoch.0),
        "waiting_tool_count": head.map_or(0, |head| head.waiting),
        "queued": head.map_or(0, |head| head.queued),
        "quarantined": head.is_some_and(|head| head.quarantined.is_some()),
        "runs": summary.as_ref().map_or(0, |agent| agent.runs),
        "last_run_at": summary.map(|agent| moment(agent.last_run_at)),
    }))
}

pub(super) async fn tools(State(state): State<DoorState>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    caller.needs(&Scope::RunsRead)?;
    query.only(&[])?;
    let counts = open_calls(&state, caller.tenant()).await?;
    let count = |name: &ToolName| counts.get(name).copied().unwrap_or_default();
    let mut tools: Vec<Value> = Vec::new();
    let is_usable = |spec: &&ToolSpec| caller.may_use(&Scope::UseTool(spec.name.clone()));
    for spec in state.engine.roster().external_tools(caller.tenant()).filter(is_usable) {
        let (open, parked) = count(&spec.name);
        tools.push(json!({
            "name": spec.name, "route": spec.route, "server": null, "description": spec.description, "effect": spec.effect,
            "effect_from": "configuration", "schema": spec.parameters, "open": open, "parked": parked, "last_error": null,
        }));
    }
    let mut servers: Vec<Value> = Vec::new();
    for (label, offered) in offered(&state, &caller).await {
        let (offered, error) = match offered {
            Ok(offered) => (offered, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        servers.push(json!({ "server": label, "tools": offered.len(), "error": error }));
        for tool in offered {
            let (open, parked) = count(&ToolName::from(tool.name.as_str()));
            tools.push(json!({
                "name": tool.name, "route": Route::InProcess, "server": label, "description": tool.description,
                "effect": tool.effect, "effect_from": effect_from(&tool), "schema": tool.parameters, "open": open, "parked": parked,
                "last_error": null,
            }));
        }
    }
    Ok(answer::ok(&json!({ "tools": tools, "servers": servers })))
}

type Offered = Result<Vec<OfferedTool>, String>;

/// The tools of each configured server, or the error with which the server failed. All servers are asked at the same time.
async fn offered(state: &DoorState, caller: &Caller) -> Vec<(String, Offered)> {
    let Some(servers) = state.engine.servers() else { return Vec::new() };
    let tenant = caller.tenant();
    let ask = |label: String| async move {
        let server = ToolServer { label: label.clone(), source: ServerSource::Configured };
        let offered = servers.list(tenant, &server).await.map_err(|error| error.to_string());
        (label, offered)
    };
    let labels = servers.labels(tenant).into_iter().filter(|label| caller.may_use(&Scope::UseServer(label.clone())));
    join_all(labels.map(ask)).await
}

/// The source of a tool's effect class: the configuration, the server, or the default.
fn effect_from(tool: &OfferedTool) -> &'static str {
    match (&tool.annotations, tool.effect) {
        (Some(_), _) => "server",
        (None, EffectClass::Write) => "default",
        (None, EffectClass::Read | EffectClass::Idempotent) => "configuration",
    }
}

/// Open and parked calls by tool, in the newest runs that have not ended.
async fn open_calls(state: &DoorState, tenant: &Tenant) -> Result<BTreeMap<ToolName, (u32, u32)>, ApiError> {
    let scan = RunScan { set: RunSet::Open, below: None, limit: OPEN_RUNS_COUNTED_MAX };
    let page = state.engine.views().scan_runs(tenant, &scan).await?;
    let mut counts: BTreeMap<ToolName, (u32, u32)> = BTreeMap::new();
    for view in page.runs.iter().filter_map(|run| run.view.as_ref()) {
        for call in view.state.calls() {
            let counted = counts.entry(call.tool.clone()).or_default();
            match (call.is_received(), view.state.is_free(call)) {
                (true, _) => {}
                (false, true) => counted.0 += 1,
                (false, false) => counted.1 += 1,
            }
        }
    }
    Ok(counts)
}

pub(super) fn limit(query: &Query) -> Result<usize, ApiError> {
    let wanted = || ApiError::bad("bad_query", format!("`limit` must be a whole number from 1 to {LIST_ROWS_MAX}"));
    let limit = query.text("limit").map_or(Ok(LIST_ROWS), |text| text.parse().map_err(|_| wanted()))?;
    (1..=LIST_ROWS_MAX).contains(&limit).then_some(limit).ok_or_else(wanted)
}

/// A parameter with one of the keywords that `parse` knows; `words` lists them for the error.
pub(super) fn word<T>(query: &Query, name: &str, parse: impl Fn(&str) -> Option<T>, words: &str) -> Result<Option<T>, ApiError> {
    let Some(text) = query.text(name) else { return Ok(None) };
    let bad = || ApiError::bad("bad_query", format!("`{name}` cannot be {:?}; send {words}", shortened(text)));
    parse(text).map(Some).ok_or_else(bad)
}

/// A parameter with at most `chars_max` characters.
pub(super) fn short<'a>(query: &'a Query, name: &str, chars_max: usize) -> Result<Option<&'a str>, ApiError> {
    let Some(text) = query.text(name) else { return Ok(None) };
    let is_short = !text.is_empty() && text.chars().nth(chars_max).is_none();
    let bad = || ApiError::bad("bad_query", format!("`{name}` must be a text of 1 to {chars_max} characters"));
    is_short.then_some(Some(text)).ok_or_else(bad)
}

/// A parameter that is a time: RFC 3339, or milliseconds since 1970.
fn time(query: &Query, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let parse = |text: &str| {
        let milliseconds = || text.parse::<i64>().ok().filter(|ms| *ms >= 0);
        text.parse::<jiff::Timestamp>().ok().map(|at| at.as_millisecond()).or_else(milliseconds).map(Timestamp)
    };
    word(query, name, parse, "a time such as 2026-01-31T09:00:00Z, or milliseconds since 1970")
}
