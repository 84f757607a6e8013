//! Repeated requests: a request that was sent before joins the run of its first attempt instead of starting another.
//!
//! An equal body alone does not prove a repetition, because a client may ask the same twice on purpose. An `Idempotency-Key` does, and so
//! does the id of a Codex turn: Codex sends no key, and repeats a request whose stream was cut, with the items that it received at the end
//! of the input. A request with neither is recognised by its hash, and the engine decides whether it repeats another
//! (`Engine::join_repeated`).

use axum::http::HeaderMap;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};
use windlass_engine::{JoinGuard, Respond, Responded, RetryMark};
use windlass_kernel::{EndReason, Phase, RunId};
use windlass_ports::{RequestHash, RunView};

use super::{
    deferred_calls,
    error::WireError,
    items::place_of,
    reader::{Known, ReadError, Reader},
    request_identity::{HistoryHash, RequestIdentity},
    stream::Unseen,
};
use crate::{
    DoorState,
    auth::Caller,
    request::{canonical, header_key},
};

/// The header in which Codex names the turn that a request belongs to.
pub(super) const TURN_METADATA: &str = "x-codex-turn-metadata";

/// The header in which OpenAI's clients count the retries of a request.
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// How many runs one request of a turn can have. Runs that failed or have another reader are not joined.
const RUNS_MAX: usize = 16;

/// How many runs one `Idempotency-Key` can have: each but the last failed and produced nothing.
const KEY_RUNS_MAX: usize = 64;

/// How a repetition of a request is recognised.
pub(super) struct Identity {
    by: By,
    /// The parts of the request that are compared; `None` if the request belongs to no turn and came over HTTP.
    compared: Option<RequestIdentity>,
    /// Tells different requests under the same key apart. Empty if a repetition is not recognised by key or turn.
    pub fingerprint: String,
    /// The hash of the body and the token, and whether the client marked the request as a retry. `None` for requests on a socket.
    repeat: Option<(RequestHash, RetryMark)>,
}

enum By {
    Nothing,
    Key(String),
    /// The turn's id identifies a request only together with its fingerprint: every iteration of a turn has the same id.
    Turn(String),
}

impl Identity {
    /// The identity of an HTTP request.
    pub fn of_request(caller: &Caller, headers: &HeaderMap, body: &[u8]) -> Result<Self, WireError> {
        let repeat = Some((request_hash(b"response", caller, body), retry_mark(headers)));
        if let Some(key) = header_key(headers)? {
            return Ok(Identity { by: By::Key(key), compared: None, fingerprint: fingerprint(body), repeat });
        }
        let turn = headers.get(TURN_METADATA).and_then(|metadata| turn_of(metadata.as_bytes()));
        let fields = turn.as_ref().and_then(|_| serde_json::from_slice(body).ok());
        Ok(Identity { repeat, ..Self::of(turn, fields.map(|fields| RequestIdentity::read(fields, None))) })
    }

    /// The identity of a request for a compaction. It never joins a response, even if both bodies are equal.
    pub fn of_compaction(caller: &Caller, headers: &HeaderMap, body: &[u8]) -> Result<Self, WireError> {
        let Identity { by, fingerprint, .. } = Self::of_request(caller, headers, body)?;
        let fingerprint = if fingerprint.is_empty() { fingerprint } else { format!("compaction:{fingerprint}") };
        let repeat = Some((request_hash(b"compaction", caller, body), retry_mark(headers)));
        Ok(Identity { by, compared: None, fingerprint, repeat })
    }

    /// The identity of a frame on a socket, where the turn's metadata is in `client_metadata` instead of a header. `before` is the hash of
    /// the conversation that the frame continues, if the socket remembers it.
    pub fn of_frame(frame: &[u8], before: Option<HistoryHash>) -> Self {
        let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(frame) else { return Self::of(None, None) };
        let metadata = fields.get("client_metadata").and_then(|metadata| metadata.get(TURN_METADATA)?.as_str());
        let turn = metadata.and_then(|metadata| turn_of(metadata.as_bytes()));
        Self::of(turn, Some(RequestIdentity::read(fields, before)))
    }

    fn of(turn: Option<String>, compared: Option<RequestIdentity>) -> Self {
        let known = turn.and_then(|turn| Some((compared.as_ref()?.fingerprint(&turn, 0)?, turn)));
        match known {
            Some((fingerprint, turn)) => Identity { by: By::Turn(turn), compared, fingerprint, repeat: None },
            None => Identity { by: By::Nothing, compared, fingerprint: String::new(), repeat: None },
        }
    }

    /// The identity of a request whose repetitions are not recognised.
    pub fn none() -> Self {
        Self::of(None, None)
    }

    /// The hash by which the engine recognises a repetition.
    pub fn hash(&self) -> Option<RequestHash> {
        self.repeat.map(|(hash, _)| hash)
    }

    /// The hash of the conversation up to the end of the request's input.
    pub fn history(&self) -> Option<HistoryHash> {
        self.compared.as_ref()?.history(0)
    }
}

fn turn_of(metadata: &[u8]) -> Option<String> {
    let metadata: Value = serde_json::from_slice(metadata).ok()?;
    metadata.get("turn_id")?.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// The hash of a request's kind, canonical body and token.
fn request_hash(kind: &[u8], caller: &Caller, body: &[u8]) -> RequestHash {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(caller.token_hash()).chain_update(canonical(body));
    RequestHash(hash.finalize().into())
}

/// Whether the client marked the request as a retry.
fn retry_mark(headers: &HeaderMap) -> RetryMark {
    let count = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.trim().parse::<u32>().ok());
    if count.is_some_and(|count| count > 0) { RetryMark::Marked } else { RetryMark::Unmarked }
}

/// Tells requests under one key apart. The order of keys in the body makes no difference.
fn fingerprint(body: &[u8]) -> String {
    crate::request::fingerprint(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The run that a request may join.
pub(super) enum Found {
    /// The run of the same `Idempotency-Key` or of the same turn. No other request joins that run while the guard is held.
    Run(RunId, Option<JoinGuard>),
    /// The run of an equal request that the engine took this one for a repetition of.
    Repeated(RunId, JoinGuard),
    /// There is no run to join. Runs under the key or turn with numbers below this one were checked.
    Nothing(usize),
}

/// Looks for the run that a request joins. This comes before the request is prepared: checks that held when the request was first sent may
/// fail when it is repeated.
pub(super) async fn find(state: &DoorState, caller: &Caller, identity: &Identity) -> Result<Found, WireError> {
    let views = state.engine.views();
    match &identity.by {
        By::Nothing => {
            let Some((hash, mark)) = identity.repeat else { return Ok(Found::Nothing(0)) };
            let joined = state.engine.join_repeated(caller.tenant(), hash, mark).await?;
            Ok(joined.map_or(Found::Nothing(0), |(run, guard)| Found::Repeated(run, guard)))
        }
        By::Key(key) => {
            for number in 0..KEY_RUNS_MAX {
                let Some(run) = views.run_by_key(caller.tenant(), &dedupe_key(key, number)).await? else {
                    return Ok(Found::Nothing(number));
                };
                if !has_freed_its_key(state, caller, run).await? {
                    return Ok(Found::Run(run, None));
                }
            }
            Err(key_used_up())
        }
        By::Turn(_) => {
            for number in 0..RUNS_MAX {
                let key = turn_key(identity, number);
                let Some(guard) = state.engine.reserve_join(caller.tenant(), &key) else { continue };
                let Some(run) = views.run_by_key(caller.tenant(), &key).await? else { return Ok(Found::Nothing(number)) };
                if wait_until_free(state, caller, run).await? {
                    return Ok(Found::Run(run, Some(guard)));
                }
            }
            Ok(Found::Nothing(RUNS_MAX))
        }
    }
}

/// Starts a run for a request, or joins one that another request started in the meantime. Runs with numbers below `first_number` were
/// checked already. The guard keeps other requests from joining the run until the client is registered as its reader.
pub(super) async fn start(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    first_number: usize,
    request: Respond,
) -> Result<(Responded, Option<JoinGuard>), WireError> {
    match &identity.by {
        By::Nothing => Ok((deferred_calls::start(state, caller, request).await?, None)),
        By::Key(key) => {
            for number in first_number..KEY_RUNS_MAX {
                let request = Respond { dedupe: Some(dedupe_key(key, number)), ..request.clone() };
                let started = deferred_calls::start(state, caller, request).await?;
                if started.begun.is_some() || !has_freed_its_key(state, caller, started.run).await? {
                    return Ok((started, None));
                }
            }
            Err(key_used_up())
        }
        By::Turn(_) => {
            for number in first_number..RUNS_MAX {
                let key = turn_key(identity, number);
                let Some(guard) = state.engine.reserve_join(caller.tenant(), &key) else { continue };
                let started = deferred_calls::start(state, caller, Respond { dedupe: Some(key), ..request.clone() }).await?;
                if started.begun.is_some() || wait_until_free(state, caller, started.run).await? {
                    return Ok((started, Some(guard)));
                }
            }
            Ok((deferred_calls::start(state, caller, request).await?, None))
        }
    }
}

/// The store's key of one of the runs that a request of a turn can have.
fn turn_key(identity: &Identity, number: usize) -> String {
    format!("turn:{}:{number}", identity.fingerprint)
}

/// The store's key of one of the runs that an `Idempotency-Key` can have. Keys of different requests never collide.
fn dedupe_key(key: &str, number: usize) -> String {
    match number {
        0 => format!("response:{key}"),
        _ => format!("response#{number}:{key}"),
    }
}

/// Whether the next request with the same `Idempotency-Key` may start a new run, because this one failed without output.
async fn has_freed_its_key(state: &DoorState, caller: &Caller, run: RunId) -> Result<bool, WireError> {
    let view = state.engine.views().run(caller.tenant(), run).await?;
    Ok(view.is_some_and(|view| view.state.has_failed_without_output()))
}

fn key_used_up() -> WireError {
    let message = format!("{KEY_RUNS_MAX} requests with this Idempotency-Key failed; use a fresh key for the next one");
    WireError::conflict("idempotency_key_spent", message).at("Idempotency-Key")
}

/// Whether a returning client can join a run. Waits for a moment if the run still has a reader, and returns `false` if that one stays.
async fn wait_until_free(state: &DoorState, caller: &Caller, run: RunId) -> Result<bool, WireError> {
    let view = state.engine.views().run(caller.tenant(), run).await?;
    Ok(view.is_some_and(|view| is_joinable(&view)) && state.engine.wait_until_unread(run).await)
}

/// Whether a returning client should get this run. After a failure, a stop or an erasure the client wants a new attempt; every other end is
/// one that it has missed.
fn is_joinable(view: &RunView) -> bool {
    let is_lost =
        matches!(&view.state.phase, Phase::Ended { reason: EndReason::ModelFailed(_) | EndReason::Stopped | EndReason::Abandoned, .. });
    view.note.is_some() && !is_lost
}

/// A response whose first items the client has already received.
pub(super) struct Rest {
    pub run: RunId,
    pub fingerprint: String,
    pub unseen: Unseen,
    /// The hash of the conversation before the response.
    pub history: Option<HistoryHash>,
}

/// The response that a request wants the rest of: its input is that of an earlier request, followed only by finished items of that
/// request's response. If the client's outputs follow those items, the request starts the next iteration and this returns `None`.
pub(super) async fn find_rest(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    input: &[Box<RawValue>],
) -> Result<Option<Rest>, WireError> {
    let (By::Turn(turn), Some(compared)) = (&identity.by, &identity.compared) else { return Ok(None) };
    let Some((run, received)) = received_items(input) else { return Ok(None) };
    let Some(fingerprint) = compared.fingerprint(turn, received.len()) else { return Ok(None) };
    let history = compared.history(received.len());
    let view = state.engine.views().run(caller.tenant(), run).await?.filter(is_joinable);
    let Some(known) = view.and_then(Known::of).filter(|known| known.note.fingerprint == fingerprint) else { return Ok(None) };
    let mut reader = Reader::new(state, known, false);
    match reader.catch_up().await {
        Err(ReadError::Gone) => return Ok(None),
        read => read?,
    }
    let output = &reader.projection.output;
    let is_sent = |(index, item): &(usize, Value)| output.get(*index).is_some_and(|stored| is_same_finished_item(stored, item));
    if !received.iter().all(is_sent) || !state.engine.wait_until_unread(run).await {
        return Ok(None);
    }
    let unseen = Unseen::without_items(received.into_iter().map(|(index, _)| index));
    Ok(Some(Rest { run, fingerprint, unseen, history }))
}

/// The items at the end of an input whose ids belong to one run, with their indices in its output, last item first.
fn received_items(input: &[Box<RawValue>]) -> Option<(RunId, Vec<(usize, Value)>)> {
    let mut received: Vec<(usize, Value)> = Vec::new();
    let mut owner = None;
    for raw in input.iter().rev() {
        let Ok(item) = serde_json::from_str::<Value>(raw.get()) else { break };
        let Some((run, index)) = item.get("id").and_then(Value::as_str).and_then(place_of) else { break };
        if *owner.get_or_insert(run) != run {
            break;
        }
        received.push((index, item));
    }
    Some((owner?, received))
}

/// Whether the client's copy of an item equals the finished one. A client may leave out fields that it does not know.
fn is_same_finished_item(stored: &Value, given: &Value) -> bool {
    let Some(fields) = given.as_object() else { return false };
    stored["status"] != "in_progress" && stored["id"] == given["id"] && fields.iter().all(|(name, value)| stored.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_makes_no_difference_and_every_value_does() {
        let same = fingerprint(br#"{ "a": 1, "b": { "c": 2, "d": 3 } }"#);
        assert_eq!(fingerprint(br#"{"b":{"d":3,"c":2},"a":1}"#), same);
        assert_ne!(fingerprint(br#"{"b":{"d":3,"c":2},"a":2}"#), same);
        let halves = [r#"{"a":"\ud800"}"#, r#"{"a":"\ud801"}"#].map(|body| fingerprint(body.as_bytes()));
        assert_ne!(halves[0], halves[1], "what cannot be sorted is compared as it is");
    }

    #[test]
    fn a_turn_is_recognised_by_its_id() {
        let of = |text: &str| turn_of(text.as_bytes());
        assert_eq!(of(r#"{"turn_id":"t","session_id":"s"}"#).as_deref(), Some("t"));
        for other in ["", "t", "{}", "[]", r#"{"turn_id":""}"#, r#"{"turn_id":7}"#, r#"{"turn_id":"t""#] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_frame_has_the_fingerprint_of_the_same_http_request() {
        let mut headers = HeaderMap::new();
        headers.insert(TURN_METADATA, axum::http::HeaderValue::from_static(r#"{"turn_id":"t"}"#));
        let body = json!({ "input": "hi", "stream": true });
        let request = Identity::of_request(&Caller::for_tests(), &headers, body.to_string().as_bytes()).expect("an identity");
        let mut frame = body;
        frame["type"] = "response.create".into();
        frame["client_metadata"] = json!({ TURN_METADATA: r#"{"turn_id":"t"}"#, "now": 7 });
        assert_eq!(Identity::of_frame(frame.to_string().as_bytes(), None).fingerprint, request.fingerprint);
        assert!(!request.fingerprint.is_empty());
        for other in [json!({}), json!({ "client_metadata": 7 }), json!([]), json!({ "client_metadata": { TURN_METADATA: "{}" } })] {
            assert_eq!(Identity::of_frame(other.to_string().as_bytes(), None).fingerprint, "", "{other}");
        }
    }
}
