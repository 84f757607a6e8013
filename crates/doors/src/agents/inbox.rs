//! An agent's inbox, and the edges of the execution graph that are derived from it.

use axum::{extract::State, response::Response};
use serde_json::{Value, json};
use windlass_kernel::{CallKey, CallNumber, RunId, Tenant};
use windlass_ports::{Edge, InboxView, MessageId, Page};

use super::known_head;
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    inbox_ids::InboxIds,
    request::{AgentPath, Query},
    spelling::{moment, trace_id},
};

pub(super) async fn inbox(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsRead)?;
    let page = page(&state, &agent.tenant, &query)?;
    known_head(&state, &agent).await?;
    let id = |message| state.inbox_ids.inbox(&agent.tenant, message);
    let rows = state.engine.views().inbox(&agent, page).await?;
    let next = next(page, rows.len(), rows.last().map(|row| row.id)).map(id);
    let rows: Vec<Value> = rows.iter().map(|row| inbox_row(row, &id)).collect();
    Ok(answer::ok(&json!({ "inbox": rows, "next": next })))
}

pub(super) async fn edges(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsRead)?;
    let page = page(&state, &agent.tenant, &query)?;
    known_head(&state, &agent).await?;
    let id = |message| state.inbox_ids.inbox(&agent.tenant, message);
    let rows = state.engine.views().edges(&agent, page).await?;
    let messages: Vec<MessageId> = rows.iter().filter_map(|row| row.message).collect();
    let next = next(page, messages.len(), messages.last().copied()).map(id);
    let rows: Vec<Value> = rows.iter().map(|row| edge_row(row, &state.inbox_ids, &agent.tenant)).collect();
    Ok(answer::ok(&json!({ "edges": rows, "next": next })))
}

fn page(state: &DoorState, tenant: &Tenant, query: &Query) -> Result<Page, ApiError> {
    query.only(&["after", "limit"])?;
    let bad = || ApiError::bad("bad_cursor", "`after` must be an inbox_id, as in the answer's `next`");
    let after = query.text("after").map_or(Ok(0), |text| state.inbox_ids.number(tenant, text).ok_or_else(bad))?;
    Ok(Page { after, limit: query.limit()? })
}

/// The cursor of the next page, or `None` if this page is not full and therefore the last one.
fn next(page: Page, rows: usize, last: Option<MessageId>) -> Option<MessageId> {
    last.filter(|_| rows >= page.limit)
}

fn call_id(run: Option<RunId>, call: Option<CallNumber>) -> Option<String> {
    Some(CallKey { run: run?, call: call? }.to_string())
}

fn inbox_row(row: &InboxView, id: &impl Fn(MessageId) -> String) -> Value {
    let call = call_id(row.run, row.call);
    json!({
        "inbox_id": id(row.id),
        "message_type": row.kind.as_str(),
        "status": row.status.as_str(),
        "agent_turn_id": row.run,
        "turn_epoch": row.epoch,
        "tool_call_id": call,
        "correlation_id": call,
        "tool_result_card_id": row.item.filter(|_| row.call.is_some()),
        "result_status": row.outcome,
        "after_execution": row.after,
        "source": row.source,
        "reason": row.reason,
        "created_at": moment(row.created_at),
        "processed_at": row.processed_at.map(moment),
    })
}

fn edge_row(row: &Edge, ids: &InboxIds, tenant: &Tenant) -> Value {
    let call = call_id(row.run, row.call);
    json!({
        "edge_id": row.message.map(|message| ids.edge(tenant, message)).or_else(|| call.as_ref().map(|call| format!("edge_{call}"))),
        "primitive": row.primitive,
        "edge_phase": row.phase,
        "agent_turn_id": row.run,
        // A request that belongs to no call is correlated by its own inbox row.
        "correlation_id": call.or_else(|| row.message.map(|message| ids.inbox(tenant, message))),
        "trace_id": trace_id(&row.trace),
        "parent_step_id": row.parent_step,
        "recursion_depth": row.depth,
        "created_at": moment(row.at),
    })
}
