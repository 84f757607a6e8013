//! A request that was sent before: it joins the run of its first try instead of starting another.
//!
//! What it says does not tell that, for the same may be meant twice. A key of the client's does, or the id of Codex's turn: Codex
//! sends no key, and repeats a request whose answer was cut, with what it has got of it at the end of the input.

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};
use windlass_engine::{Respond, Responded};
use windlass_kernel::{EndReason, Phase, RunId};
use windlass_ports::RunView;

use super::{
    attended::Arrival,
    error::WireError,
    items::place_of,
    left,
    reader::{Known, Reader},
    stream::Unseen,
};
use crate::{DoorState, auth::Caller, request::header_key};

/// Codex's header about the turn that a request is part of.
const TURN_METADATA: &str = "x-codex-turn-metadata";

/// How many runs of the same request of a turn can be joined: those that failed, or that somebody else reads, are passed over.
const RUNS_MAX: usize = 16;

/// How a request is known again.
pub(super) struct Identity {
    by: By,
    /// What tells it from others under the same key; empty if it is not known again.
    pub fingerprint: String,
}

enum By {
    Nothing,
    Key(String),
    /// The turn's id counts only together with all that the request says: every lap of a turn has it.
    Turn(String),
}

impl Identity {
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, WireError> {
        Ok(match (header_key(headers)?, turn_of(headers)) {
            (Some(key), _) => Identity { by: By::Key(key), fingerprint: fingerprint("", body) },
            (None, Some(turn)) => Identity { fingerprint: fingerprint(&turn, body), by: By::Turn(turn) },
            (None, None) => Identity { by: By::Nothing, fingerprint: String::new() },
        })
    }
}

fn turn_of(headers: &HeaderMap) -> Option<String> {
    let metadata: Value = serde_json::from_slice(headers.get(TURN_METADATA)?.as_bytes()).ok()?;
    metadata.get("turn_id")?.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// What tells one request from another: its turn, and what it says, in whatever order.
fn fingerprint(turn: &str, body: &[u8]) -> String {
    // An object of this kind keeps its keys sorted, so that the order they came in says nothing. What cannot be read as one counts
    // byte for byte.
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => digest(turn, value.to_string().as_bytes()),
        Err(_) => digest(turn, body),
    }
}

fn digest(turn: &str, canonical: &[u8]) -> String {
    // Without a turn it is the digest of what is said alone, as stored requests have it that came before turns were known.
    let end: &[u8] = if turn.is_empty() { b"" } else { b"\0" };
    let hash = Sha256::new().chain_update(turn).chain_update(end).chain_update(canonical).finalize();
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a run for a request, or finds the one it joins. What comes with it says that the request is on its way to its reader.
pub(super) async fn take(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    request: Respond,
) -> Result<(Responded, Option<Arrival>), WireError> {
    match &identity.by {
        By::Nothing => Ok((left::start(state, caller, request).await?, None)),
        By::Key(key) => {
            let request = Respond { dedupe: Some(format!("response:{key}")), ..request };
            Ok((left::start(state, caller, request).await?, None))
        }
        By::Turn(_) => {
            for number in 0..RUNS_MAX {
                let key = format!("turn:{}:{number}", identity.fingerprint);
                let Some(arrival) = state.attended.arrive(caller.tenant(), &key) else { continue };
                let taken = left::start(state, caller, Respond { dedupe: Some(key), ..request.clone() }).await?;
                if taken.begun.is_some() || is_free(state, caller, taken.run).await? {
                    return Ok((taken, Some(arrival)));
                }
            }
            Ok((left::start(state, caller, request).await?, None))
        }
    }
}

/// Whether a run can be joined: it has something to say to a client that comes back, and nobody reads it.
async fn is_free(state: &DoorState, caller: &Caller, run: RunId) -> Result<bool, WireError> {
    let view = state.engine.views().run(caller.tenant(), run).await?;
    Ok(view.is_some_and(|view| is_worth_it(&view)) && state.attended.is_left(run).await)
}

/// A client that comes back after a failure wants another try, and so does one that came too late. Anything else that is over is
/// an end it has missed, as long as it is not erased.
fn is_worth_it(view: &RunView) -> bool {
    let is_lost = matches!(&view.state.phase, Phase::Ended { reason: EndReason::ModelFailed(_) | EndReason::Stopped, .. });
    view.note.is_some() && !is_lost
}

/// The rest of a response, for a client that has its beginning.
pub(super) struct Rest {
    pub run: RunId,
    pub fingerprint: String,
    pub unseen: Unseen,
}

/// What a cut response still has for the client, if the request is the earlier one with nothing but finished items of that
/// response after it. With an output after them it is the next lap, and a request like any other.
pub(super) async fn rest(
    state: &DoorState,
    caller: &Caller,
    identity: &Identity,
    body: &Bytes,
    input: &[Box<RawValue>],
) -> Result<Option<Rest>, WireError> {
    let By::Turn(turn) = &identity.by else { return Ok(None) };
    let Some((run, got)) = got_at_the_end(input) else { return Ok(None) };
    let Some(fingerprint) = without_the_last(body, got.len()).map(|body| digest(turn, body.to_string().as_bytes())) else {
        return Ok(None);
    };
    let view = state.engine.views().run(caller.tenant(), run).await?.filter(is_worth_it);
    let Some(known) = view.and_then(Known::of).filter(|known| known.note.fingerprint == fingerprint) else { return Ok(None) };
    let mut reader = Reader::new(&state.engine, known, false);
    reader.catch_up().await?;
    let is_ours = |(index, item): &(usize, Value)| reader.made.output.get(*index).is_some_and(|ours| is_finished_as(ours, item));
    if !got.iter().all(is_ours) || !state.attended.is_left(run).await {
        return Ok(None);
    }
    let unseen = Unseen::without_items(got.into_iter().map(|(index, _)| index));
    Ok(Some(Rest { run, fingerprint, unseen }))
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

fn without_the_last(body: &[u8], count: usize) -> Option<Value> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let input = body.get_mut("input")?.as_array_mut()?;
    input.truncate(input.len().checked_sub(count)?);
    Some(body)
}

/// Whether an item was told as finished in these words. A client may leave out fields that it does not know.
fn is_finished_as(ours: &Value, given: &Value) -> bool {
    let Some(fields) = given.as_object() else { return false };
    ours["status"] != "in_progress" && ours["id"] == given["id"] && fields.iter().all(|(name, value)| ours.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_says_nothing_and_everything_else_does() {
        let same = fingerprint("t", br#"{ "a": 1, "b": { "c": 2, "d": 3 } }"#);
        assert_eq!(fingerprint("t", br#"{"b":{"d":3,"c":2},"a":1}"#), same);
        assert_ne!(fingerprint("u", br#"{"b":{"d":3,"c":2},"a":1}"#), same);
        assert_ne!(fingerprint("t", br#"{"b":{"d":3,"c":2},"a":2}"#), same);
        let halves = [r#"{"a":"\ud800"}"#, r#"{"a":"\ud801"}"#].map(|body| fingerprint("t", body.as_bytes()));
        assert_ne!(halves[0], halves[1], "what cannot be sorted is compared as it is");
    }

    #[test]
    fn a_turn_is_known_by_its_id() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(TURN_METADATA, axum::http::HeaderValue::from_static(text));
            turn_of(&headers)
        };
        assert_eq!(of(r#"{"turn_id":"t","session_id":"s"}"#).as_deref(), Some("t"));
        for other in ["", "t", "{}", "[]", r#"{"turn_id":""}"#, r#"{"turn_id":7}"#, r#"{"turn_id":"t""#] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(turn_of(&HeaderMap::new()), None);
    }
}
