//! Any bytes as the answer of a provider, in chunks of any length.

use std::io;

use axum::http;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::{Body, Response};
use windlass_models::{
    fuzzing::ProviderProtocol,
    limits::{CALLS_MAX, MESSAGE_CHARS_MAX},
};
use windlass_ports::{ModelError, ModelEvent};

use super::{BYTES_MAX, run};

const PROTOCOLS: [ProviderProtocol; 3] = [ProviderProtocol::Chat, ProviderProtocol::Responses, ProviderProtocol::Messages];

/// The form of the answer.
#[derive(Clone, Copy, PartialEq)]
enum AnswerForm {
    Streamed,
    /// A stream that breaks off.
    Broken,
    Whole,
    /// An error with this status.
    Refused(u16),
}

const FORMS: [AnswerForm; 6] = [
    AnswerForm::Streamed,
    AnswerForm::Broken,
    AnswerForm::Whole,
    AnswerForm::Refused(400),
    AnswerForm::Refused(429),
    AnswerForm::Refused(500),
];

/// Reads the bytes as an answer: the first byte chooses the protocol and the form, the second the length of the chunks.
pub fn provider_streams(bytes: &[u8]) -> bool {
    let [first, second, answer @ ..] = bytes else { return false };
    if answer.len() > BYTES_MAX {
        return false;
    }
    let protocol = PROTOCOLS[usize::from(*first) % PROTOCOLS.len()];
    let form = FORMS[usize::from(*first) / PROTOCOLS.len() % FORMS.len()];
    let at_once = run(outcome(protocol, form, vec![Bytes::copy_from_slice(answer)]));
    check(&at_once, answer.len());
    let pieces = answer.chunks(usize::from(*second).max(1)).map(Bytes::copy_from_slice).collect();
    assert_eq!(run(outcome(protocol, form, pieces)), at_once, "in pieces it is another answer");
    !at_once.0.is_empty()
}

type Outcome = (Vec<ModelEvent>, Option<ModelError>);

async fn outcome(protocol: ProviderProtocol, form: AnswerForm, pieces: Vec<Bytes>) -> Outcome {
    let mut shown = protocol.read(response(form, pieces));
    let mut events = Vec::new();
    while let Some(item) = shown.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(shown.next().await.is_none(), "an error is the end");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

fn response(form: AnswerForm, pieces: Vec<Bytes>) -> Response {
    let (status, kind) = match form {
        AnswerForm::Streamed | AnswerForm::Broken => (200, "text/event-stream"),
        AnswerForm::Whole => (200, "application/json"),
        AnswerForm::Refused(status) => (status, "application/json"),
    };
    let end = (form == AnswerForm::Broken).then(|| Err(io::Error::other("broken on purpose")));
    let body = Body::wrap_stream(stream::iter(pieces.into_iter().map(Ok).chain(end)));
    let response = http::Response::builder().status(status).header("content-type", kind).header("retry-after", "7").body(body);
    response.expect("an answer can be made").into()
}

/// The size of the events is bounded by the size of the answer.
fn check((events, error): &Outcome, came: usize) {
    let mut shown = 0;
    let mut calls = 0;
    for event in events {
        shown += match event {
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
    assert!(shown <= 8 * came + 64 * events.len(), "{shown} bytes were read from {came}");
    assert!(events.len() <= came, "{} events of {came} bytes", events.len());
    if let Some(error) = error {
        assert!(error.message.chars().count() <= MESSAGE_CHARS_MAX + 200, "{} letters of error", error.message.len());
    }
}
