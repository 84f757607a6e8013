//! Retrieves, follows, cancels and deletes responses, and lists their input.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::{Value, json};
use windlass_engine::Stop;
use windlass_kernel::{ItemKind, RunId, content};
use windlass_ports::Item;

use super::{
    body::WireId,
    error::WireError,
    items::item_id,
    note::{Note, Spelling},
    object::{object, run_of},
    reader::{Known, Reader},
    stream::{self, Events, Unseen},
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    request::Query,
    spelling::shortened,
};

/// The default and the largest number of items on a page of input.
const LIST_ITEMS: u64 = 20;
const LIST_ITEMS_MAX: u64 = 100;

/// The response with this id. Not found if it is another tenant's, was erased, or has `store: false`.
pub(super) async fn known(state: &DoorState, caller: &Caller, id: &str) -> Result<Known, WireError> {
    let unknown = || WireError::not_found(format!("there is no response {:?}; it may have been deleted, or was not stored", shortened(id)));
    let run = run_of(id).ok_or_else(unknown)?;
    let view = state.engine.views().run(caller.tenant(), run).await?.ok_or_else(unknown)?;
    Known::of(view).filter(|known| known.note.store).ok_or_else(unknown)
}

pub(super) async fn retrieve(
    State(state): State<DoorState>,
    caller: Caller,
    WireId(id): WireId,
    query: Query,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let known = known(&state, &caller, &id).await?;
    if flag(&query, "stream")? {
        let after = number(&query, "starting_after")?;
        check_after(&state, &caller, &id, after).await?;
        let reader = Reader::new(&state, known, true);
        return Ok(stream::response(Events::new(reader, Unseen::after(after), state.responses.heartbeat_ms), None));
    }
    if query.text("starting_after").is_some() {
        return Err(WireError::invalid("starting_after", "`starting_after` is about a stream: send `stream=true` too"));
    }
    let mut reader = Reader::new(&state, shown(known, &query), false);
    reader.catch_up().await?;
    Ok(answer::ok(&object(&reader.projection)))
}

/// A response with the additions of the query's `include`. Streams do not use this: they repeat the events that were sent first.
fn shown(known: Known, query: &Query) -> Known {
    if !query.has("include", "reasoning.encrypted_content") {
        return known;
    }
    let spelling = Spelling { sealed: true, ..known.note.spelling };
    Known { note: Arc::new(Note { spelling, ..(*known.note).clone() }), ..known }
}

/// Refuses an event number beyond the last event: no client can have seen it, and a stream after it might never send anything.
async fn check_after(state: &DoorState, caller: &Caller, id: &str, after: Option<u64>) -> Result<(), WireError> {
    let Some(after) = after else { return Ok(()) };
    let mut reader = Reader::new(state, known(state, caller, id).await?, false);
    reader.catch_up().await?;
    match after < reader.projection.next_event() {
        true => Ok(()),
        false => Err(WireError::invalid("starting_after", format!("this response has told no event of the number {after} yet"))),
    }
}

pub(super) async fn cancel(State(state): State<DoorState>, caller: Caller, WireId(id): WireId) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let known = known(&state, &caller, &id).await?;
    let stop =
        Stop { agent: known.agent.clone(), run: known.id, reason: "cancelled".into(), epoch: None, source: Some(caller.name()), key: None };
    let mut reader = Reader::new(&state, known, false);
    reader.catch_up().await?;
    if !reader.projection.is_over() {
        state.engine.stop(stop).await?;
        reader.catch_up().await?;
    }
    Ok(answer::ok(&object(&reader.projection)))
}

pub(super) async fn delete(State(state): State<DoorState>, caller: Caller, WireId(id): WireId) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let known = known(&state, &caller, &id).await?;
    let stop =
        Stop { agent: known.agent.clone(), run: known.id, reason: "deleted".into(), epoch: None, source: Some(caller.name()), key: None };
    state.engine.stop(stop).await?;
    state.engine.erase(caller.tenant(), known.id).await?;
    Ok(answer::ok(&json!({ "id": id, "object": "response", "deleted": true })))
}

pub(super) async fn input_items(
    State(state): State<DoorState>,
    caller: Caller,
    WireId(id): WireId,
    query: Query,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let known = known(&state, &caller, &id).await?;
    let paging = Paging::read(&query)?;
    let mut items = input(&state, &caller, &known).await?;
    if !paging.ascending {
        items.reverse();
    }
    Ok(answer::ok(&paging.cut(items)?))
}

/// The part of a list that a query asks for.
pub(super) struct Paging {
    pub limit: u64,
    pub ascending: bool,
    /// The id of the item before the first wanted one.
    pub after: Option<String>,
}

impl Paging {
    pub fn read(query: &Query) -> Result<Self, WireError> {
        let limit = number(query, "limit")?.unwrap_or(LIST_ITEMS);
        if !(1..=LIST_ITEMS_MAX).contains(&limit) {
            return Err(WireError::invalid("limit", format!("`limit` must be from 1 to {LIST_ITEMS_MAX}")));
        }
        let ascending = match query.text("order") {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => return Err(WireError::invalid("order", "`order` must be `asc` or `desc`")),
        };
        Ok(Paging { limit, ascending, after: query.text("after").map(str::to_owned) })
    }

    pub fn unknown(after: &str) -> WireError {
        WireError::invalid("after", format!("no item of this list has the id {:?}", shortened(after)))
    }

    /// The wanted part of a list that is already in the wanted order. Fails if no item has the id of `after`.
    fn cut(&self, mut items: Vec<Value>) -> Result<Value, WireError> {
        if let Some(after) = &self.after {
            let place = items.iter().position(|item| item["id"] == after.as_str()).ok_or_else(|| Self::unknown(after))?;
            items.drain(..=place);
        }
        Ok(self.begin(items))
    }

    /// The first page of a list that begins with the first wanted item.
    pub fn begin(&self, mut items: Vec<Value>) -> Value {
        let has_more = items.len() as u64 > self.limit;
        items.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        Self::list(&items, has_more)
    }

    /// A list without further pages.
    pub fn whole(items: Vec<Value>) -> Value {
        Self::list(&items, false)
    }

    fn list(items: &[Value], has_more: bool) -> Value {
        let id_of = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        json!({
            "object": "list", "first_id": id_of(items.first()), "last_id": id_of(items.last()), "has_more": has_more, "data": items,
        })
    }
}

/// The request's own input, each item with an id. Items of the history belong to the responses before it.
async fn input(state: &DoorState, caller: &Caller, known: &Known) -> Result<Vec<Value>, WireError> {
    let views = state.engine.views();
    let Some(view) = views.run(caller.tenant(), known.id).await? else { return Ok(Vec::new()) };
    let own = views.box_items(caller.tenant(), view.state.context.id, 0, view.state.context.length as usize).await?;
    Ok(own.iter().enumerate().filter_map(|(index, item)| wire_input(known.id, index, item)).collect())
}

/// An input item as the wire has it. Without an id of its own it gets one that a later request can refer to.
pub(super) fn wire_input(run: RunId, index: usize, item: &Item) -> Option<Value> {
    if item.kind != ItemKind::Instruction {
        return None;
    }
    let mut value = match serde_json::from_slice(&item.content).ok()? {
        content::Instruction::Item(raw)
        | content::Instruction::Aside(raw)
        | content::Instruction::Made { item: raw, .. }
        | content::Instruction::Compaction { item: raw, .. } => serde_json::from_str::<Value>(raw.get()).ok()?,
        content::Instruction::Text(text) | content::Instruction::Summary(text) => {
            json!({ "role": "user", "content": [{ "type": "input_text", "text": text }] })
        }
    };
    let object = value.as_object_mut()?;
    object.entry("type").or_insert_with(|| "message".into());
    if object.get("type").and_then(Value::as_str) == Some("message") {
        object.entry("status").or_insert_with(|| "completed".into());
        // A plain text is a shorthand for one part. Some clients of these lists can read parts only.
        if let Some(Value::String(text)) = object.get("content") {
            let part = match object.get("role").and_then(Value::as_str) {
                Some("assistant") => json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }),
                _ => json!({ "type": "input_text", "text": text }),
            };
            object.insert("content".into(), json!([part]));
        }
    }
    let id = object.entry("id").or_insert(Value::Null);
    if !id.is_string() {
        *id = item_id("in", run, index).into();
    }
    Some(value)
}

fn number(query: &Query, key: &'static str) -> Result<Option<u64>, WireError> {
    let Some(text) = query.text(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| WireError::invalid(key, format!("`{key}` must be a whole number from 0")))
}

fn flag(query: &Query, key: &'static str) -> Result<bool, WireError> {
    match query.text(key) {
        None | Some("false" | "False" | "0") => Ok(false),
        Some("true" | "True" | "1") => Ok(true),
        Some(_) => Err(WireError::invalid(key, format!("`{key}` must be `true` or `false`"))),
    }
}
