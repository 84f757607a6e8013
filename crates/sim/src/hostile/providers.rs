//! Any bytes as the answer of a provider, in chunks of any length.

use std::io;

use axum::http;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::{Body, Response};
use windlass_models::{
    fuzzing::Protocol,
    limits::{CALLS_MAX, MESSAGE_CHARS_MAX},
};
use windlass_ports::{ModelError, ModelEvent};

use super::{BYTES_MAX, run};

const PROTOCOLS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];

/// The form of the answer.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Streamed,
    /// A stream that breaks off.
    Broken,
    Whole,
    /// An error with this status.
    Refused(u16),
}

const WAYS: [Way; 6] = [Way::Streamed, Way::Broken, Way::Whole, Way::Refused(400), Way::Refused(429), Way::Refused(500)];

/// Reads the bytes as an answer: the first byte chooses the protocol and the form, the second the length of the chunks.
pub fn provider_streams(bytes: &[u8]) -> bool {
    let [first, second, answer @ ..] = bytes else { return false };
    if answer.len() > BYTES_MAX {
        return false;
    }
    let protocol = PROTOCOLS[usize::from(*first) % PROTOCOLS.len()];
    let way = WAYS[usize::from(*first) / PROTOCOLS.len() % WAYS.len()];
    let at_once = run(outcome(protocol, way, vec![Bytes::copy_from_slice(answer)]));
    check(&at_once, answer.len());
    let pieces = answer.chunks(usize::from(*second).max(1)).map(Bytes::copy_from_slice).collect();
    assert_eq!(run(outcome(protocol, way, pieces)), at_once, "in pieces it is another answer");
    !at_once.0.is_empty()
}

type Outcome = (Vec<ModelEvent>, Option<ModelError>);

async fn outcome(protocol: Protocol, way: Way, pieces: Vec<Bytes>) -> Outcome {
    let mut told = protocol.read(response(way, pieces));
    let mut events = Vec::new();
    while let Some(item) = told.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(told.next().await.is_none(), "an error is the end");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

fn response(way: Way, pieces: Vec<Bytes>) -> Response {
    let (status, kind) = match way {
        Way::Streamed | Way::Broken => (200, "text/event-stream"),
        Way::Whole => (200, "application/json"),
        Way::Refused(status) => (status, "application/json"),
    };
    let end = (way == Way::Broken).then(|| Err(io::Error::other("broken on purpose")));
    let body = Body::wrap_stream(stream::iter(pieces.into_iter().map(Ok).chain(end)));
    let response = http::Response::builder().status(status).header("content-type", kind).header("retry-after", "7").body(body);
    response.expect("an answer can be made").into()
}

/// The size of the events is bounded by the size of the answer.
fn check((events, error): &Outcome, came: usize) {
    let mut told = 0;
    let mut calls = 0;
    for event in events {
        told += match event {
            ModelEvent::Text(text) => text.len(),
            ModelEvent::Reasoning(thought) => {
                let sealed = thought.sealed.as_ref().map_or(0, String::len);
                thought.summary.iter().map(String::len).sum::<usize>() + thought.text.len() + sealed
            }
            ModelEvent::Call(call) => {
                calls += 1;
                call.provider_id.len() + call.tool.len() + call.arguments.len()
            }
            ModelEvent::Model(name) => name.len(),
            ModelEvent::Taken | ModelEvent::Usage(_) | ModelEvent::Finish(_) => 0,
        };
    }
    assert!(calls <= CALLS_MAX, "{calls} calls");
    // A missing field gets a short default, and one letter can become a long escape.
    assert!(told <= 8 * came + 64 * events.len(), "{told} bytes were told of {came}");
    assert!(events.len() <= came, "{} events of {came} bytes", events.len());
    if let Some(error) = error {
        assert!(error.message.chars().count() <= MESSAGE_CHARS_MAX + 200, "{} letters of error", error.message.len());
    }
}
