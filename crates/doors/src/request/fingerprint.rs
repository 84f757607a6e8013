//! Fingerprints of requests: two requests under one idempotency key must have the same one.

use std::borrow::Cow;

use serde_json::Value;
use windlass_ports::codec;

/// The hash of a body's canonical form. The order of keys and the idempotency key itself do not change it.
pub(crate) fn fingerprint(body: &[u8]) -> [u8; 16] {
    codec::content_hash(&canonical(body))
}

/// The canonical form of a body: bodies that differ only in the order of keys have the same. An idempotency key in the body is left out.
pub(crate) fn canonical(body: &[u8]) -> Cow<'_, [u8]> {
    // `serde_json` sorts the keys of its objects, so the order in the request does not matter. A body that is not a JSON object is hashed
    // byte for byte.
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return Cow::Borrowed(body) };
    if let Some(fields) = value.as_object_mut() {
        fields.remove("idempotency_key");
    }
    Cow::Owned(value.to_string().into_bytes())
}
