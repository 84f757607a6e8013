//! Adds, lists, reads and removes the items of a conversation.

use axum::{extract::State, response::Response};
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use windlass_kernel::ItemKind;

use super::{
    Sealed, checked,
    entries::{self, ConversationEntry},
    known, object, read_history,
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    request::Query,
    responses::{
        approval_answers,
        body::{WireBody, WireId, WireIds},
        chain::History,
        error::WireError,
        request::{ITEMS_MAX, read_items},
        retrieve::Paging,
    },
    spelling::shortened,
};

/// Encodes items for a conversation, with the server's calls that the client left out.
pub(super) async fn content(
    state: &DoorState,
    caller: &Caller,
    history: &mut History,
    given: &[Box<RawValue>],
) -> Result<Vec<(ItemKind, Bytes)>, WireError> {
    let mut items = checked(state, caller, history, given).await.map_err(|error| error.replace_param_prefix("input", "items"))?;
    if history.deferred.as_ref().is_some_and(|deferred| approval_answers::has_answers(&deferred.calls)) {
        let message = "adding items to a conversation makes no calls, so it can't answer a request for approval; answer it in a request to \
            POST /v1/responses with this `conversation`";
        return Err(WireError::invalid("items", message).with_code("approval_not_taken"));
    }
    // Deferred calls are dropped: only a response makes calls.
    items.retain(|(kind, _)| *kind == ItemKind::Instruction);
    Ok(items)
}

pub(super) async fn create(
    State(state): State<DoorState>,
    caller: Caller,
    WireId(id): WireId,
    query: Query,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    let given = read_items(&body)?;
    let mut history = read_history(&state, &caller, &found).await?;
    let items = content(&state, &caller, &mut history, &given).await?;
    let count = items.len();
    let added = state.engine.add_to_conversation(caller.tenant(), found.id, items, ITEMS_MAX as u32).await?;
    let entries = entries::latest(&state, &caller, &added, count, Sealed::of(&query)).await?;
    let data: Vec<Value> = entries.into_iter().map(|entry| entry.wire).collect();
    Ok(answer::ok(&Paging::whole(data)))
}

pub(super) async fn list(State(state): State<DoorState>, caller: Caller, WireId(id): WireId, query: Query) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    let paging = Paging::read(&query)?;
    let entries = entries::page(&state, &caller, &found, &paging, Sealed::of(&query)).await?;
    Ok(answer::ok(&paging.begin(entries.into_iter().map(|entry| entry.wire).collect())))
}

pub(super) async fn retrieve(
    State(state): State<DoorState>,
    caller: Caller,
    WireIds(id, item): WireIds,
    query: Query,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    let entry = entries::find(&state, &caller, &found, &item, Sealed::of(&query)).await?.ok_or_else(|| unknown(&id, &item))?;
    Ok(answer::ok(&entry.wire))
}

pub(super) async fn delete(State(state): State<DoorState>, caller: Caller, WireIds(id, item): WireIds) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    let entry = entries::find(&state, &caller, &found, &item, Sealed::default()).await?;
    let ConversationEntry { items, .. } = entry.ok_or_else(|| unknown(&id, &item))?;
    let removed = state.engine.remove_from_conversation(caller.tenant(), found.id, items).await?;
    Ok(answer::ok(&object(&removed)))
}

fn unknown(id: &str, item: &str) -> WireError {
    WireError::not_found(format!("Item with id '{}' not found in conversation '{}'.", shortened(item), shortened(id)))
}
