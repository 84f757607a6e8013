//! Observability of requests: an id on every answer, a log line at debug level, and metrics.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    response::Response,
};
use futures_util::StreamExt;
use uuid::Uuid;

use crate::{DoorState, is_responses_path, shares::Share};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Characters of a request id that the client chooses.
const ID_CHARS_MAX: usize = 128;

/// The other end of a connection. The code that accepts connections stores it in the extensions of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// Whether the peer is a process on this machine.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// A request while it is answered.
pub(crate) struct Observed {
    began: Instant,
    id: HeaderValue,
    method: Method,
    door: &'static str,
    route: Option<MatchedPath>,
}

impl Observed {
    pub fn begin(request: &Request) -> Self {
        Observed {
            began: Instant::now(),
            id: request_id(request.headers()),
            method: request.method().clone(),
            door: door(request.uri().path()),
            route: request.extensions().get::<MatchedPath>().cloned(),
        }
    }

    /// Gives the answer its `x-request-id`, counts the request and logs it.
    pub fn answered(self, state: &DoorState, mut response: Response) -> Response {
        let Observed { began, id, method, door, route } = self;
        let route = route.as_ref().map(MatchedPath::as_str);
        let (status, took) = (response.status().as_u16(), began.elapsed());
        state.scrape.metrics.answered(door, route, status, took.as_secs_f64());
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(%method, route = route.unwrap_or("other"), status, ms, request_id = id.to_str().unwrap_or_default(), "request");
        response.headers_mut().insert(REQUEST_ID, id);
        let share = response.extensions_mut().remove::<Arc<Share>>();
        if is_stream(&response) { count_stream(state, share, response) } else { response }
    }
}

/// The client's request id if it can be logged safely, else a fresh one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(byte);
    let is_sane = |value: &&HeaderValue| (1..=ID_CHARS_MAX).contains(&value.len()) && value.as_bytes().iter().all(is_plain);
    headers.get(REQUEST_ID).filter(is_sane).cloned().unwrap_or_else(|| {
        let fresh = format!("req_{}", Uuid::now_v7().simple());
        HeaderValue::from_str(&fresh).unwrap_or_else(|_| HeaderValue::from_static("req_unknown"))
    })
}

/// The API that a path belongs to.
fn door(path: &str) -> &'static str {
    match path {
        path if is_responses_path(path) => "responses",
        path if path.starts_with("/v1/agents/") || path.starts_with("/v1/tools/") => "agents",
        path if path.starts_with("/v1/windlass/") => "windlass",
        _ => "other",
    }
}

fn is_stream(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Counts a stream as open until its body is dropped, also among the open requests of its token.
fn count_stream(state: &DoorState, share: Option<Arc<Share>>, response: Response) -> Response {
    let open = state.scrape.metrics.stream();
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |piece| {
            let _open = (&open, &share);
            piece
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(id: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(id).expect("a header"))])
    }

    #[test]
    fn a_sane_id_is_taken_over_and_any_other_replaced() {
        for id in ["a", "0197f3c2-11aa-7bb2-9c0d-aabbccddeeff", "trace/1:2+3=@~_.", &"x".repeat(ID_CHARS_MAX)] {
            assert_eq!(request_id(&with_id(id.as_bytes())), id);
        }
        for id in [&b""[..], b"two words", b"\"quoted\"", b"tab\tbed", b"\xc3\xa4", "x".repeat(ID_CHARS_MAX + 1).as_bytes()] {
            let given = request_id(&with_id(id));
            assert!(given.to_str().expect("text").starts_with("req_"), "{given:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
