//! What tells one request from another under the same key.

use serde_json::Value;
use windlass_ports::codec;

/// What a body says, in whatever order, and wherever the key itself stands.
pub(crate) fn fingerprint(body: &[u8]) -> [u8; 16] {
    // An object of this kind keeps its keys sorted, so that the order they came in says nothing. What cannot be read as one counts
    // byte for byte.
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return codec::content_hash(body) };
    if let Some(fields) = value.as_object_mut() {
        fields.remove("idempotency_key");
    }
    codec::content_hash(value.to_string().as_bytes())
}
