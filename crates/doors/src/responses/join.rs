//! A request that was sent before: it joins the run of its first try instead of starting another.
//!
//! An equal body alone does not say that, because the same may be asked twice on purpose. A key of the client's does, or the id of
//! Codex's turn: Codex sends no key, and repeats a request whose answer was cut, with what it has got of it at the end of the input.
//! A request without either is known by its hash, and the engine decides whether it repeats another (`Engine::join_repeated`).

use axum::http::HeaderMap;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};
use windlass_engine::{JoinGuard, Respond, Responded, RetryMark};
use windlass_kernel::{EndReason, Phase, RunId};
use windlass_ports::{RequestHash, RunView};

use super::{
    error::WireError,
    items::place_of,
    left,
    reader::{Known, ReadError, Reader},
    said::{Said, Trail},
    stream::Unseen,
};
use crate::{
    DoorState,
    auth::Caller,
    request::{canonical, header_key},
};

/// Codex's header about the turn that a request is part of.
pub(super) const TURN_METADATA: &str = "x-codex-turn-metadata";

/// The header in which OpenAI's clients count the retries of a request.
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// How many runs of the same request of a turn can be joined: those that failed, or that somebody else reads, are passed over.
const RUNS_MAX: usize = 16;

/// How many runs one `Idempotency-Key` can have: each but the last failed and produced nothing.
const KEY_RUNS_MAX: usize = 64;

/// How a request is known again.
pub(super) struct Identity {
    by: By,
    /// What it says; nothing if nobody will want to compare it.
    said: Option<Said>,
    /// What tells it from others under the same key; empty if it is not known again.
    pub fingerprint: String,
    /// The hash of body and token, with what the client says about retries. `None` if a repetition cannot be recognised by it.
    repeat: Option<(RequestHash, RetryMark)>,
}

enum By {
    Nothing,
    Key(String),
    /// The turn's id counts only together with all that the request says: every lap of a turn has it.
    Turn(String),
}

impl Identity {
    /// That of a request over HTTP.
    pub fn of_request(caller: &Caller, headers: &HeaderMap, body: &[u8]) -> Result<Self, WireError> {
        let repeat = Some((request_hash(b"response", caller, body), retry_mark(headers)));
        if let Some(key) = header_key(headers)? {
            return Ok(Identity { by: By::Key(key), said: None, fingerprint: fingerprint(body), repeat });
        }
        let turn = headers.get(TURN_METADATA).and_then(|metadata| turn_of(metadata.as_bytes()));
        let fields = turn.as_ref().and_then(|_| serde_json::from_slice(body).ok());
        Ok(Identity { repeat, ..Self::of(turn, fields.map(|fields| Said::read(fields, None))) })
    }

    /// That of a request for a compaction: what it joins is never a response, though both may say the same.
    pub fn of_compaction(caller: &Caller, headers: &HeaderMap, body: &[u8]) -> Result<Self, WireError> {
        let Identity { by, fingerprint, .. } = Self::of_request(caller, headers, body)?;
        let fingerprint = if fingerprint.is_empty() { fingerprint } else { format!("compaction:{fingerprint}") };
        let repeat = Some((request_hash(b"compaction", caller, body), retry_mark(headers)));
        Ok(Identity { by, said: None, fingerprint, repeat })
    }

    /// That of a frame, where what is a header elsewhere stands among what the client says about itself. `before` is the
    /// conversation that it goes on from, if its socket knows.
    pub fn of_frame(frame: &[u8], before: Option<Trail>) -> Self {
        let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(frame) else { return Self::of(None, None) };
        let metadata = fields.get("client_metadata").and_then(|metadata| metadata.get(TURN_METADATA)?.as_str());
        let turn = metadata.and_then(|metadata| turn_of(metadata.as_bytes()));
        Self::of(turn, Some(Said::read(fields, before)))
    }

    fn of(turn: Option<String>, said: Option<Said>) -> Self {
        let known = turn.and_then(|turn| Some((said.as_ref()?.fingerprint(&turn, 0)?, turn)));
        match known {
            Some((fingerprint, turn)) => Identity { by: By::Turn(turn), said, fingerprint, repeat: None },
            None => Identity { by: By::Nothing, said, fingerprint: String::new(), repeat: None },
        }
    }

    /// That of a request that nobody will send again.
    pub fn none() -> Self {
        Self::of(None, None)
    }

    /// What a repetition of the request is recognised by, if it can be.
    pub fn hash(&self) -> Option<RequestHash> {
        self.repeat.map(|(hash, _)| hash)
    }

    /// The conversation that the request is the end of.
    pub fn trail(&self) -> Option<Trail> {
        self.said.as_ref()?.trail(0)
    }
}

fn turn_of(metadata: &[u8]) -> Option<String> {
    let metadata: Value = serde_json::from_slice(metadata).ok()?;
    metadata.get("turn_id")?.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// The hash of a request: what it is, its canonical body, its token.
fn request_hash(kind: &[u8], caller: &Caller, body: &[u8]) -> RequestHash {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(caller.token_hash()).chain_update(canonical(body));
    RequestHash(hash.finalize().into())
}

/// Whether the client says that it sent the request before.
fn retry_mark(headers: &HeaderMap) -> RetryMark {
    let count = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.trim().parse::<u32>().ok());
    if count.is_some_and(|count| count > 0) { RetryMark::Marked } else { RetryMark::Unmarked }
}

/// What tells one request from another under a key: what it says, in whatever order.
fn fingerprint(body: &[u8]) -> String {
    crate::request::fingerprint(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is there of a request that was sent before.
pub(super) enum Found {
    /// The run of its key, or of its turn. No other request joins that run while the guard is held.
    Run(RunId, Option<JoinGuard>),
    /// The run of an equal request, which this one repeats.
    Repeated(RunId, JoinGuard),
    /// Nothing that it could join. Runs of its turn up to this number were looked at.
    Nothing(usize),
}

/// Looks for the run that a request joins, before anything is prepared for it: what was right when it was first asked may be wrong when it
/// is asked again.
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
                if is_free(state, caller, run).await? {
                    return Ok(Found::Run(run, Some(guard)));
                }
            }
            Ok(Found::Nothing(RUNS_MAX))
        }
    }
}

/// Starts a run for a request, or finds the one it joins that was begun meanwhile. Of a turn, runs below a number were looked at. What comes
/// with it says that the request is on its way to its reader.
pub(super) async fn take(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    from: usize,
    request: Respond,
) -> Result<(Responded, Option<JoinGuard>), WireError> {
    match &identity.by {
        By::Nothing => Ok((left::start(state, caller, request).await?, None)),
        By::Key(key) => {
            for number in from..KEY_RUNS_MAX {
                let request = Respond { dedupe: Some(dedupe_key(key, number)), ..request.clone() };
                let taken = left::start(state, caller, request).await?;
                if taken.begun.is_some() || !has_freed_its_key(state, caller, taken.run).await? {
                    return Ok((taken, None));
                }
            }
            Err(key_used_up())
        }
        By::Turn(_) => {
            for number in from..RUNS_MAX {
                let key = turn_key(identity, number);
                let Some(guard) = state.engine.reserve_join(caller.tenant(), &key) else { continue };
                let taken = left::start(state, caller, Respond { dedupe: Some(key), ..request.clone() }).await?;
                if taken.begun.is_some() || is_free(state, caller, taken.run).await? {
                    return Ok((taken, Some(guard)));
                }
            }
            Ok((left::start(state, caller, request).await?, None))
        }
    }
}

/// The key of one of the runs that the same request of a turn can have.
fn turn_key(identity: &Identity, number: usize) -> String {
    format!("turn:{}:{number}", identity.fingerprint)
}

/// The store's key of one of the runs that an `Idempotency-Key` can have. No key of a client's makes two of them equal.
fn dedupe_key(key: &str, number: usize) -> String {
    match number {
        0 => format!("response:{key}"),
        _ => format!("response#{number}:{key}"),
    }
}

/// Whether a run has left its `Idempotency-Key` to the next request: it failed and produced nothing.
async fn has_freed_its_key(state: &DoorState, caller: &Caller, run: RunId) -> Result<bool, WireError> {
    let view = state.engine.views().run(caller.tenant(), run).await?;
    Ok(view.is_some_and(|view| view.state.has_failed_without_output()))
}

fn key_used_up() -> WireError {
    let message = format!("{KEY_RUNS_MAX} requests with this Idempotency-Key failed; use a fresh key for the next one");
    WireError::conflict("idempotency_key_spent", message).at("Idempotency-Key")
}

/// Whether a run can be joined: it has something to say to a client that comes back, and nobody reads it.
async fn is_free(state: &DoorState, caller: &Caller, run: RunId) -> Result<bool, WireError> {
    let view = state.engine.views().run(caller.tenant(), run).await?;
    Ok(view.is_some_and(|view| is_worth_it(&view)) && state.engine.wait_until_unread(run).await)
}

/// A client that comes back after a failure wants another try, and so does one that came too late. Anything else that is over is
/// an end it has missed, as long as it is not erased.
fn is_worth_it(view: &RunView) -> bool {
    let is_lost =
        matches!(&view.state.phase, Phase::Ended { reason: EndReason::ModelFailed(_) | EndReason::Stopped | EndReason::Abandoned, .. });
    view.note.is_some() && !is_lost
}

/// The rest of a response, for a client that has its beginning.
pub(super) struct Rest {
    pub run: RunId,
    pub fingerprint: String,
    pub unseen: Unseen,
    /// The conversation before the response.
    pub trail: Option<Trail>,
}

/// What a cut response still has for the client, if the request is the earlier one with nothing but finished items of that
/// response after it. With an output after them it is the next lap, and a request like any other.
pub(super) async fn rest(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    input: &[Box<RawValue>],
) -> Result<Option<Rest>, WireError> {
    let (By::Turn(turn), Some(said)) = (&identity.by, &identity.said) else { return Ok(None) };
    let Some((run, got)) = got_at_the_end(input) else { return Ok(None) };
    let Some(fingerprint) = said.fingerprint(turn, got.len()) else { return Ok(None) };
    let trail = said.trail(got.len());
    let view = state.engine.views().run(caller.tenant(), run).await?.filter(is_worth_it);
    let Some(known) = view.and_then(Known::of).filter(|known| known.note.fingerprint == fingerprint) else { return Ok(None) };
    let mut reader = Reader::new(state, known, false);
    match reader.catch_up().await {
        Err(ReadError::Gone) => return Ok(None),
        read => read?,
    }
    let is_ours = |(index, item): &(usize, Value)| reader.made.output.get(*index).is_some_and(|ours| is_finished_as(ours, item));
    if !got.iter().all(is_ours) || !state.engine.wait_until_unread(run).await {
        return Ok(None);
    }
    let unseen = Unseen::without_items(got.into_iter().map(|(index, _)| index));
    Ok(Some(Rest { run, fingerprint, unseen, trail }))
}

/// The items at the end of an input that are one run's, by their ids, and where they stand in its output.
fn got_at_the_end(input: &[Box<RawValue>]) -> Option<(RunId, Vec<(usize, Value)>)> {
    let mut got: Vec<(usize, Value)> = Vec::new();
    let mut whose = None;
    for raw in input.iter().rev() {
        let Ok(item) = serde_json::from_str::<Value>(raw.get()) else { break };
        let Some((run, index)) = item.get("id").and_then(Value::as_str).and_then(place_of) else { break };
        if *whose.get_or_insert(run) != run {
            break;
        }
        got.push((index, item));
    }
    Some((whose?, got))
}

/// Whether an item was told as finished in these words. A client may leave out fields that it does not know.
fn is_finished_as(ours: &Value, given: &Value) -> bool {
    let Some(fields) = given.as_object() else { return false };
    ours["status"] != "in_progress" && ours["id"] == given["id"] && fields.iter().all(|(name, value)| ours.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_says_nothing_and_everything_else_does() {
        let same = fingerprint(br#"{ "a": 1, "b": { "c": 2, "d": 3 } }"#);
        assert_eq!(fingerprint(br#"{"b":{"d":3,"c":2},"a":1}"#), same);
        assert_ne!(fingerprint(br#"{"b":{"d":3,"c":2},"a":2}"#), same);
        let halves = [r#"{"a":"\ud800"}"#, r#"{"a":"\ud801"}"#].map(|body| fingerprint(body.as_bytes()));
        assert_ne!(halves[0], halves[1], "what cannot be sorted is compared as it is");
    }

    #[test]
    fn a_turn_is_known_by_its_id() {
        let of = |text: &str| turn_of(text.as_bytes());
        assert_eq!(of(r#"{"turn_id":"t","session_id":"s"}"#).as_deref(), Some("t"));
        for other in ["", "t", "{}", "[]", r#"{"turn_id":""}"#, r#"{"turn_id":7}"#, r#"{"turn_id":"t""#] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_frame_is_known_again_as_the_request_that_it_is() {
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
