//! Parses the bodies of the Conversations API.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{
    items,
    limits::CONVERSATION_ITEMS_MAX,
    object::{At, Object, Shape, list_of},
    sampling::metadata_of,
    sound,
};
use crate::responses::error::WireError;

/// A request to create a conversation.
pub(crate) struct Begin {
    pub metadata: BTreeMap<String, String>,
    pub items: Vec<Box<RawValue>>,
}

impl Begin {
    /// Reads the body of `POST /v1/conversations`, which may be empty.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        if body.is_empty() {
            return Ok(Begin { metadata: BTreeMap::new(), items: Vec::new() });
        }
        let body = Object::of(sound::sound(body)?, &At::Body)?;
        Ok(Begin { metadata: metadata_of(&body)?, items: items_of(&body)?.unwrap_or_default() })
    }
}

/// Reads the body of `POST /v1/conversations/{id}`.
pub(crate) fn read_metadata(body: &[u8]) -> Result<BTreeMap<String, String>, WireError> {
    let body = Object::of(sound::sound(body)?, &At::Body)?;
    body.required("metadata")?;
    metadata_of(&body)
}

/// Reads the body of `POST /v1/conversations/{id}/items`.
pub(crate) fn read_items(body: &[u8]) -> Result<Vec<Box<RawValue>>, WireError> {
    let body = Object::of(sound::sound(body)?, &At::Body)?;
    let items = items_of(&body)?.unwrap_or_default();
    if items.is_empty() { Err(WireError::missing("items")) } else { Ok(items) }
}

fn items_of(body: &Object<'_, '_>) -> Result<Option<Vec<Box<RawValue>>>, WireError> {
    let Some(value) = body.given("items") else { return Ok(None) };
    let at = body.at("items");
    if Shape::of(value) != Shape::List {
        return Err(at.wrong_type("an array", value));
    }
    list_of(value, &at, CONVERSATION_ITEMS_MAX)?;
    items::items_of(value, &at).map(Some)
}
