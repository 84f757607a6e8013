//! How a store encodes journal events, run states and manifests: JSON, with the version beside it.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_kernel::{Below, Event, Manifest, Run, Tenant, header::ItemHeader};

use crate::{
    request::PinnedManifest,
    store_error::{ErrorDetail, StoreError},
};

/// The version that is stored beside every event and state.
pub const VERSION: u16 = 2;

/// The first version whose states have interrupts. Earlier states of runs with something parked are not read: their journals are folded.
const INTERRUPTS: u16 = 2;

/// Encodes an event as its kind and a body without the kind.
pub fn encode_event(event: &Event) -> (&'static str, Vec<u8>) {
    let kind = event.kind();
    let whole = serde_json::to_vec(event).expect("events have string keys and no failing serialiser");
    // The serialised form begins with the tag: {"kind":"…"
    let tag = "{\"kind\":\"\"".len() + kind.len();
    let mut body = Vec::with_capacity(whole.len() - tag + 1);
    body.push(b'{');
    body.extend_from_slice(whole[tag..].strip_prefix(b",").unwrap_or(&whole[tag..]));
    (kind, body)
}

/// Decodes what `encode_event` made.
pub fn decode_event(kind: &str, version: u16, body: &[u8]) -> Result<Event, StoreError> {
    check_version("an event", version)?;
    let rest = body.strip_prefix(b"{").ok_or_else(|| StoreError::Corrupt(format!("the body of a {kind} event is no object").into()))?;
    let mut whole = format!("{{\"kind\":\"{kind}\"").into_bytes();
    if rest != b"}" {
        whole.push(b',');
    }
    whole.extend_from_slice(rest);
    serde_json::from_slice(&whole)
        .map_err(|error| StoreError::Corrupt(ErrorDetail::of(format!("a {kind} event cannot be read: {error}"), error)))
}

/// Encodes the state of a run.
pub fn encode_run(run: &Run) -> Vec<u8> {
    serde_json::to_vec(run).expect("a run has string keys and no failing serialiser")
}

/// Decodes what `encode_run` made. `None` if an earlier version wrote the state while something was parked: then the caller folds the journal,
/// which numbers the interrupts.
pub fn decode_run(version: u16, body: &[u8]) -> Result<Option<Run>, StoreError> {
    check_version("a run's state", version)?;
    let parked = b"\"parked\"";
    if version < INTERRUPTS && body.windows(parked.len()).any(|window| window == parked) {
        return Ok(None);
    }
    let unreadable = |error| StoreError::Corrupt(ErrorDetail::of(format!("a run's state cannot be read: {error}"), error));
    serde_json::from_slice(body).map(Some).map_err(unreadable)
}

/// Encodes a manifest and hashes its bytes, which are stored under that hash.
pub fn pin_manifest(manifest: Manifest) -> PinnedManifest {
    let body: Bytes = serde_json::to_vec(&manifest).expect("a manifest has string keys and no failing serialiser").into();
    PinnedManifest { hash: Sha256::digest(&body).into(), body, manifest: manifest.into() }
}

/// Decodes a stored manifest.
pub fn decode_manifest(body: &[u8]) -> Result<Manifest, StoreError> {
    let manifest: Manifest = serde_json::from_slice(body)
        .map_err(|error| StoreError::Corrupt(ErrorDetail::of(format!("a manifest cannot be read: {error}"), error)))?;
    check_version("a manifest", manifest.version)?;
    Ok(manifest)
}

/// Encodes the header of an item. `None` if the item has no header, or one that is not worth its bytes.
pub fn encode_header(header: Option<&ItemHeader>) -> Option<Vec<u8>> {
    let header = header.filter(|header| !header.is_plain_message())?;
    Some(serde_json::to_vec(header).expect("a header has string keys and no failing serialiser"))
}

/// Decodes what `encode_header` made. `None` if it cannot be read, as that of a later version may be: then the content is read again.
pub fn decode_header(header: &[u8]) -> Option<ItemHeader> {
    serde_json::from_slice(header).ok()
}

/// The hash by which the content of an item is checked when it is read: the first half of its SHA-256.
pub fn content_hash(content: &[u8]) -> [u8; 16] {
    let whole: [u8; 32] = Sha256::digest(content).into();
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    half
}

/// An idempotency key as stores keep it: the hexadecimal SHA-256 of the tenant and the key. Stores only compare keys, and a key may be
/// content of its request, which must not outlive the run.
pub fn key_hash(tenant: &Tenant, key: &str) -> String {
    let mut hasher = Sha256::new();
    // The length separates the tenant from the key: no other tenant and key can give the same bytes.
    hasher.update((tenant.as_str().len() as u64).to_be_bytes());
    hasher.update(tenant.as_str().as_bytes());
    hasher.update(key.as_bytes());
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_version(what: &str, version: u16) -> Result<(), StoreError> {
    if version > VERSION {
        return Err(StoreError::Corrupt(
            format!("{what} was written by a newer version ({version}); this one reads up to {VERSION}").into(),
        ));
    }
    Ok(())
}

/// Encodes what a child run used.
pub fn encode_below(below: &Below) -> String {
    serde_json::to_string(below).expect("numbers have no failing serialiser")
}

/// Decodes what a child run used. `None` if it cannot be read.
pub fn decode_below(text: &str) -> Option<Below> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{
        CallNumber, CallerSpan, Event, IgnoreReason, InputKind, Purpose, ReplyFacts, SpanId, Timestamp, Usage,
        header::{Content, Part, Role, Span},
    };

    use super::*;

    #[test]
    fn events_are_read_back_as_they_were() {
        let events = [
            Event::Leased,
            Event::IterationStarted { iteration: 2, purpose: Purpose::Reply, at: Timestamp(5) },
            Event::Ignored { input: InputKind::Timeout, call: Some(CallNumber(3)), reason: IgnoreReason::NotWaiting },
        ];
        for event in events {
            let (kind, body) = encode_event(&event);
            assert!(!body.windows(6).any(|w| w == b"\"kind\""), "the kind stands beside the body");
            assert_eq!(decode_event(kind, VERSION, &body).unwrap(), event);
        }
    }

    /// A `replied` event as versions before `ReplyFacts` and `cache_written` stored it.
    const OLD_REPLY: &[u8] = br#"{"iteration":1,"items":0,"usage":{"in":20,"out":5,"cached":3}}"#;

    #[test]
    fn facts_that_are_not_known_take_no_bytes_and_old_rows_are_read() {
        let old = decode_event("replied", VERSION, OLD_REPLY).unwrap();
        let Event::Replied { model, usage, .. } = &old else { panic!("{old:?}") };
        assert_eq!((model, usage.cache_written), (&ReplyFacts::default(), 0));
        assert_eq!(encode_event(&old).1, OLD_REPLY);
        let accepted = br#"{"origin":"turn","context":{"box":"box_00000000000000000000000000000001","length":1},"output":{"box":"box_00000000000000000000000000000002","length":0}}"#;
        let old = decode_event("accepted", VERSION, accepted).unwrap();
        assert_eq!(encode_event(&old).1, accepted);
        let state = encode_run(&windlass_kernel::apply(None, &old).unwrap());
        assert!(!String::from_utf8(state.clone()).unwrap().contains("caller"));
        assert_eq!(decode_run(VERSION, &state).unwrap().unwrap().caller, None);
    }

    #[test]
    fn facts_of_a_reply_and_of_its_caller_are_kept_and_folded() {
        let usage = Usage { tokens_in: 20, cache_written: 3, ..Usage::default() };
        let (kind, body) = encode_event(&decode_event("replied", VERSION, OLD_REPLY).unwrap());
        let Event::Replied { iteration, items, chunks, finish, calls, lost, .. } = decode_event(kind, VERSION, &body).unwrap() else {
            panic!()
        };
        let model = ReplyFacts { upstream: Some("gpt-x".into()), first_token_ms: Some(12) };
        let replied = Event::Replied { iteration, items, usage, lost, chunks, finish, model: model.clone(), calls };
        let caller = Some(CallerSpan { id: SpanId(7), sampled: true });
        let range = |n| windlass_kernel::BoxRange { id: windlass_kernel::BoxId(uuid::Uuid::from_u128(n)), length: 0 };
        let accepted = Event::Accepted { origin: windlass_kernel::Origin::Turn, context: range(1), output: range(2), caller, parent: None };
        let read: Vec<Event> =
            [accepted, replied].iter().map(encode_event).map(|(kind, body)| decode_event(kind, VERSION, &body).unwrap()).collect();
        let run = windlass_kernel::fold(&read).unwrap();
        assert_eq!((&run.model, run.caller, run.usage.cache_written), (&model, caller, 3));
        assert_eq!(decode_run(VERSION, &encode_run(&run)).unwrap(), Some(run));
    }

    #[test]
    fn a_state_from_before_interrupts_is_not_read_while_something_is_parked() {
        let state = |parked: &str| format!(r#"{{"phase":{{"waiting":{{"calls":[]}}}},"calls_used":1{parked}}}"#);
        assert_eq!(decode_run(1, state(r#","parked":"panicked""#).as_bytes()).unwrap(), None);
        assert!(decode_run(VERSION, state(r#","parked":"panicked""#).as_bytes()).is_err(), "the present version reads every state");
    }

    #[test]
    fn tm_05_a_key_is_kept_as_a_hash_with_its_tenant() {
        let hash = |tenant: &str, key| key_hash(&tenant.into(), key);
        assert_eq!(hash("acme", "order 7"), hash("acme", "order 7"));
        let all = [hash("acme", "order 7"), hash("acme", "order 8"), hash("acm", "eorder 7"), hash("other", "order 7")];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }

    #[test]
    fn the_header_of_a_plain_message_takes_no_bytes() {
        let message = |parts| ItemHeader::Message { role: Role::User, content: Content::Parts(parts) };
        assert_eq!(encode_header(Some(&message(vec![Part::Text(Span(61, 5))]))), None);
        let two = message(vec![Part::Text(Span(61, 5)), Part::Text(Span(80, 1))]);
        let stored = encode_header(Some(&two)).unwrap();
        assert_eq!(std::str::from_utf8(&stored).unwrap(), r#"{"m":{"r":"u","c":{"p":[{"t":[61,5]},{"t":[80,1]}]}}}"#);
        assert_eq!(decode_header(&stored), Some(two));
        assert_eq!(decode_header(br#"{"later":1}"#), None);
    }

    #[test]
    fn a_newer_version_is_refused() {
        assert!(matches!(decode_event("leased", VERSION + 1, b"{}"), Err(StoreError::Corrupt(_))));
    }
}
