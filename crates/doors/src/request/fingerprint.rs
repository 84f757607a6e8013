//! What tells one request from another under the same key.

use std::borrow::Cow;

use serde_json::Value;
use windlass_ports::codec;

/// What a body says, in whatever order, and wherever the key itself stands.
pub(crate) fn fingerprint(body: &[u8]) -> [u8; 16] {
    codec::content_hash(&canonical(body))
}

/// The canonical form of a body: equal for bodies that say the same in another order. An idempotency key in the body is left out.
pub(crate) fn canonical(body: &[u8]) -> Cow<'_, [u8]> {
    // An object of this kind keeps its keys sorted, so that the order they came in says nothing. What cannot be read as one counts
    // byte for byte.
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return Cow::Borrowed(body) };
    if let Some(fields) = value.as_object_mut() {
        fields.remove("idempotency_key");
    }
    Cow::Owned(value.to_string().into_bytes())
}
