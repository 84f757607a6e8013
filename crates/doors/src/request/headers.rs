//! The request headers that the doors read.

use axum::http::{HeaderMap, HeaderName};

use windlass_kernel::{CallerSpan, SpanId};
use windlass_ports::{Lineage, RequestKey};

use super::{Fields, fingerprint};
use crate::{error::ApiError, limits::KEY_CHARS_MAX};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The flag of `traceparent` by which the caller says that it records this trace.
const SAMPLED: u8 = 0x01;

/// The idempotency key of a request: from the header, else from the body.
pub(crate) fn idempotency_key(headers: &HeaderMap, fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    let from_header = header_key(headers)?;
    let from_body = fields.name("idempotency_key", KEY_CHARS_MAX)?;
    match (from_header, from_body) {
        (Some(header), Some(body)) if header != body => {
            Err(ApiError::bad("idempotency_key_mismatch", "the Idempotency-Key header and `idempotency_key` differ"))
        }
        (Some(key), _) | (None, Some(key)) => Ok(Some(key)),
        (None, None) => Ok(None),
    }
}

/// The idempotency key with the fingerprint of the request, so that the same key with another request is refused.
pub(crate) fn request_key(headers: &HeaderMap, fields: &Fields<'_>, body: &[u8]) -> Result<Option<RequestKey>, ApiError> {
    Ok(idempotency_key(headers, fields)?.map(|key| RequestKey { key, asked: fingerprint(body) }))
}

/// The idempotency key from the header alone.
pub(crate) fn header_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let key = std::str::from_utf8(value.as_bytes()).ok().filter(|_| given.next().is_none());
    let is_key = |key: &&str| !key.is_empty() && key.chars().nth(KEY_CHARS_MAX).is_none() && !key.contains(char::is_control);
    let wanted = || ApiError::bad("bad_idempotency_key", format!("Idempotency-Key must be one text of 1 to {KEY_CHARS_MAX} characters"));
    key.filter(is_key).map(|key| Some(key.to_owned())).ok_or_else(wanted)
}

/// The event after which the client wants to resume a stream (`Last-Event-ID`). An empty header counts as absent, because browsers send
/// one.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(LAST_EVENT_ID)?;
    // A value that is not text cannot be a cursor. It is decoded with replacement characters and then refused as a bad cursor.
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|id| !id.is_empty())
}

/// The trace and the span that `traceparent` names, or a fresh trace without a span.
pub(crate) fn trace_context(headers: &HeaderMap) -> Result<Lineage, ApiError> {
    if let Some((trace, caller)) = headers.get(TRACEPARENT).and_then(|value| traceparent(value.as_bytes())) {
        return Ok(Lineage { trace, caller: Some(caller), ..Lineage::default() });
    }
    let mut trace = [0; 16];
    getrandom::fill(&mut trace).map_err(|error| ApiError::internal(&error))?;
    Ok(Lineage { trace, ..Lineage::default() })
}

/// Parses a W3C `traceparent`. An invalid header is ignored, as its specification demands.
fn traceparent(value: &[u8]) -> Option<([u8; 16], CallerSpan)> {
    const LENGTH: usize = 55;
    let text = std::str::from_utf8(value).ok()?.trim();
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2) && version != "ff";
    // Later versions may append fields after the known ones.
    let is_whole = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    let id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0 && is_well_formed && is_whole)?;
    let span = u64::from_str_radix(parent, 16).ok().filter(|span| *span != 0)?;
    let sampled = u8::from_str_radix(flags, 16).ok()? & SAMPLED != 0;
    Some((id.to_be_bytes(), CallerSpan { id: SpanId(span), sampled }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_from_a_valid_traceparent_only() {
        let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let span = |sampled| CallerSpan { id: SpanId(0x00f0_67aa_0ba9_02b7), sampled };
        assert_eq!(traceparent(valid.as_bytes()), Some((id, span(true))));
        assert_eq!(traceparent(format!("cc-{}-what-else", &valid[3..]).as_bytes()), Some((id, span(true))));
        assert_eq!(traceparent(format!("{}02", &valid[..53]).as_bytes()), Some((id, span(false))));
        for invalid in [
            "",
            "00",
            &format!("{valid}-x"),
            &format!("ff-{}", &valid[3..]),
            &valid.to_uppercase(),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-0",
        ] {
            assert_eq!(traceparent(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
