//! Items and boxes. Content is sent byte for byte as it was stored.

use std::collections::BTreeSet;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Serialize;
use serde_json::{json, value::RawValue};
use windlass_engine::EngineError;
use windlass_kernel::{BoxId, BoxRange, ItemId};
use windlass_ports::{Item, StoreError};

use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{BOXES_MAX, CONTENT_ROWS, NAME_CHARS_MAX, PAGE_BYTES_MAX},
    request::{Fields, IdPath, JsonBody, Query, items_of, request_key},
    spelling::stored_json,
};

pub(super) async fn item(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<ItemId>,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::RunsRead)?;
    query.only(&[])?;
    let unknown = || ApiError::not_found("unknown_item", "there is no such item");
    let id = id.ok_or_else(unknown)?;
    let item = state.engine.views().item(caller.tenant(), id).await?.ok_or_else(unknown)?;
    Ok(answer::ok(&ItemRow::of(&item)?))
}

pub(super) async fn open_box(
    State(state): State<DoorState>,
    caller: Caller,
    IdPath(id): IdPath<BoxId>,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::RunsRead)?;
    query.only(&["from", "limit"])?;
    let from = u32::try_from(query.number("from", 0)?).map_err(|_| ApiError::bad("bad_query", "`from` must be a place in the box"))?;
    let limit = query.limit()?;
    let unknown = || ApiError::not_found("unknown_box", "there is no such box");
    let id = id.ok_or_else(unknown)?;
    let view = state.engine.views().open_box(caller.tenant(), id).await?.ok_or_else(unknown)?;
    let items = page(&state, &caller, id, from, limit).await?;
    let reached = from.saturating_add(u32::try_from(items.len()).unwrap_or(u32::MAX));
    Ok(answer::ok(&BoxRow {
        box_id: id,
        length: view.length,
        parent: view.parent.map(Range::of),
        items: items.iter().map(ItemRow::of).collect::<Result<_, _>>()?,
        next: (!items.is_empty() && reached < view.length).then_some(reached),
    }))
}

/// At most `limit` items of a box, fewer if they are large, because an answer must fit into memory.
async fn page(state: &DoorState, caller: &Caller, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>, StoreError> {
    let (mut items, mut bytes, mut from): (Vec<Item>, usize, u32) = (Vec::new(), 0, from);
    while items.len() < limit && bytes < PAGE_BYTES_MAX {
        let wanted = (limit - items.len()).min(CONTENT_ROWS);
        let read = state.engine.views().box_items(caller.tenant(), id, from, wanted).await?;
        let is_last = read.len() < wanted;
        from = from.saturating_add(u32::try_from(read.len()).unwrap_or(u32::MAX));
        bytes += read.iter().map(|item| item.content.len()).sum::<usize>();
        items.extend(read);
        if is_last {
            break;
        }
    }
    Ok(items)
}

pub(super) async fn pack(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsWrite)?;
    let fields = Fields::of_body(&body, &["boxes", "items", "idempotency_key"])?;
    let key = request_key(&headers, &fields, &body)?;
    let boxes = fields.names("boxes", BOXES_MAX, NAME_CHARS_MAX)?.unwrap_or_default();
    let boxes: Vec<BoxId> = boxes.iter().map(|id| id.parse().map_err(|_| EngineError::UnknownBox)).collect::<Result<_, _>>()?;
    if boxes.iter().collect::<BTreeSet<_>>().len() < boxes.len() {
        return Err(ApiError::bad("bad_field", "`boxes` names a box twice; each box can be packed once"));
    }
    let items = fields.list("items", state.engine.settings().input_items_max)?.unwrap_or_default();
    let packed = state.engine.pack(caller.tenant(), &boxes, items_of(&items, "items")?, key).await?;
    Ok(answer::created(&json!({ "box_id": packed.id, "length": packed.length })))
}

#[derive(Serialize)]
struct ItemRow<'a> {
    item_id: ItemId,
    kind: &'static str,
    content: &'a RawValue,
}

impl<'a> ItemRow<'a> {
    fn of(item: &'a Item) -> Result<Self, ApiError> {
        Ok(ItemRow { item_id: item.id, kind: item.kind.as_str(), content: stored_json(&item.content)? })
    }
}

#[derive(Serialize)]
struct BoxRow<'a> {
    box_id: BoxId,
    length: u32,
    parent: Option<Range>,
    items: Vec<ItemRow<'a>>,
    next: Option<u32>,
}

#[derive(Serialize)]
struct Range {
    box_id: BoxId,
    length: u32,
}

impl Range {
    fn of(range: BoxRange) -> Self {
        Range { box_id: range.id, length: range.length }
    }
}
