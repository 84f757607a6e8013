//! Content items in a request.

use bytes::Bytes;
use serde_json::value::RawValue;
use windlass_kernel::{
    ItemKind,
    content::{Instruction, encode},
};

use super::text_of;
use crate::error::ApiError;

/// One element of content: a string, or an object of the client's own shape, which is stored byte for byte.
pub(crate) fn item_of(value: &RawValue, at: &str) -> Result<(ItemKind, Bytes), ApiError> {
    let instruction = match value.get().as_bytes().first() {
        Some(b'"') => Instruction::Text(text_of(value, at)?),
        Some(b'{') => Instruction::Item(value),
        Some(_) | None => return Err(ApiError::bad_field(at, "a string or an object")),
    };
    Ok((ItemKind::Instruction, encode(&instruction)))
}

/// The elements of a list of content.
pub(crate) fn items_of(values: &[&RawValue], at: &str) -> Result<Vec<(ItemKind, Bytes)>, ApiError> {
    values.iter().enumerate().map(|(index, value)| item_of(value, &format!("{at}[{index}]"))).collect()
}
