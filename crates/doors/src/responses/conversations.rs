//! The Conversations API: creates, describes, reads and deletes conversations. [`items`] adds and removes items; [`entries`] reads them.

mod entries;
mod items;

use std::collections::BTreeMap;

use axum::{
    Router,
    extract::State,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use windlass_kernel::{ConversationId, ItemKind};
use windlass_ports::{ConversationView, InConversation, Part};

pub(super) use entries::Sealed;

use super::{
    body::{WireBody, WireId},
    chain::{self, History},
    deferred_calls::FinalCalls,
    error::WireError,
    request::{Begin, Create, ITEMS_MAX, read_metadata},
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    spelling::shortened,
};

pub(super) fn routes() -> Router<DoorState> {
    Router::new()
        .route("/v1/conversations", post(create))
        .route("/v1/conversations/{id}", get(retrieve).post(update).delete(delete))
        .route("/v1/conversations/{id}/items", get(items::list).post(items::create))
        .route("/v1/conversations/{id}/items/{item}", get(items::retrieve).delete(items::delete))
}

async fn create(State(state): State<DoorState>, caller: Caller, WireBody(body): WireBody) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let Begin { metadata, items } = Begin::read(&body)?;
    let items = items::content(&state, &caller, &mut History::default(), &items).await?;
    let begun = state.engine.begin_conversation(caller.tenant(), encode(&metadata), items).await?;
    Ok(answer::ok(&object(&begun)))
}

async fn retrieve(State(state): State<DoorState>, caller: Caller, WireId(id): WireId) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    Ok(answer::ok(&object(&known(&state, &caller, &id).await?)))
}

async fn update(
    State(state): State<DoorState>,
    caller: Caller,
    WireId(id): WireId,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    let metadata = read_metadata(&body)?;
    Ok(answer::ok(&object(&state.engine.describe_conversation(caller.tenant(), found.id, encode(&metadata)).await?)))
}

async fn delete(State(state): State<DoorState>, caller: Caller, WireId(id): WireId) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let found = known(&state, &caller, &id).await?;
    state.engine.end_conversation(caller.tenant(), found.id).await?;
    Ok(answer::ok(&json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}

/// The conversation with this id. Not found if it is another tenant's.
async fn known(state: &DoorState, caller: &Caller, id: &str) -> Result<ConversationView, WireError> {
    let unknown = || WireError::not_found(format!("Conversation with id '{}' not found.", shortened(id)));
    // Only the canonical spelling of an id is accepted.
    let read = id.parse().ok().filter(|read: &ConversationId| read.to_string() == id).ok_or_else(unknown)?;
    state.engine.views().conversation(caller.tenant(), read).await?.ok_or_else(unknown)
}

fn encode(metadata: &BTreeMap<String, String>) -> Bytes {
    serde_json::to_vec(metadata).expect("texts have no failing serialiser").into()
}

fn object(view: &ConversationView) -> Value {
    let metadata: Map<String, Value> = serde_json::from_slice(&view.metadata).unwrap_or_default();
    json!({ "id": view.id, "object": "conversation", "created_at": view.created_at.0 / 1000, "metadata": metadata })
}

/// The history of a request in a conversation, and the version of the conversation that the engine compares when the run starts.
pub(super) async fn history(state: &DoorState, caller: &Caller, create: &Create, id: &str) -> Result<(History, InConversation), WireError> {
    let view = known(state, caller, id).await.map_err(|error| error.at("conversation"))?;
    if view.items as usize >= ITEMS_MAX {
        let message = format!("the conversation has {} items, {ITEMS_MAX} are allowed; begin another one", view.items);
        return Err(WireError::invalid("conversation", message).with_code("conversation_full"));
    }
    let found = InConversation { id: view.id, version: view.version, is_busy: view.is_busy, may_wait: create.background };
    // While a response is in progress, the history that this request will continue is not known yet.
    let history = if view.is_busy { History::default() } else { read_history(state, caller, &view).await? };
    Ok((history, found))
}

/// The history of a conversation, with the open calls of its last response.
async fn read_history(state: &DoorState, caller: &Caller, view: &ConversationView) -> Result<History, WireError> {
    let views = state.engine.views();
    let parts = views.conversation_parts(caller.tenant(), view.id).await?;
    let last = parts.iter().rev().find_map(|part| if let Part::Run(run) = part { Some(*run) } else { None });
    let run = match last {
        Some(run) => views.run(caller.tenant(), run).await?,
        None => None,
    };
    let calls = match &run {
        Some(run) => FinalCalls::of(state, caller, run).await?,
        None => None,
    };
    Ok(History::ending_with(view.tail, run.map(|run| run.id), calls))
}

/// Encodes items for the store, and checks them against the history before them.
async fn checked(
    state: &DoorState,
    caller: &Caller,
    history: &mut History,
    given: &[Box<serde_json::value::RawValue>],
) -> Result<Vec<(ItemKind, Bytes)>, WireError> {
    chain::read_call_ids(state, caller, history, given).await?;
    chain::input(state, caller, history, given).await
}
