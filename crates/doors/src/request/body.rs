//! Reads whole request bodies within limits.

use std::time::Duration;

use axum::{
    body::BodyDataStream,
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use crate::{
    DoorState,
    error::ApiError,
    in_flight::RequestBytes,
    limits::{DISCARD_BYTES_MAX, DISCARD_IDLE_MS},
    spelling::shortened,
};

/// The size of a buffer block. Allocators return blocks of this size to the system when they are freed.
const BLOCK_BYTES: usize = 256 << 10;

/// The content types that curl, browsers and libraries send by default. A body with one of them is read as JSON.
const VAGUE_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "application/octet-stream", "text/plain"];

/// The bytes of a body, not parsed yet; [`super::Fields`] parses them.
pub(crate) struct JsonBody(pub Bytes);

impl FromRequest<DoorState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &DoorState) -> Result<Self, ApiError> {
        let limit = state.limits.body_bytes_max;
        let refusal = refusal(request.headers(), limit);
        // A client with `Expect: 100-continue` sends its body only after a `100 Continue`, which hyper sends once the body is read.
        let waits = request.headers().get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let in_flight = request.extensions().get::<RequestBytes>().cloned();
        let body = request.into_body().into_data_stream();
        let reading = async {
            match refusal {
                None => read(body, limit, in_flight.as_ref()).await,
                Some(refusal) if waits => Err(refusal),
                Some(refusal) => {
                    discard(body).await;
                    Err(refusal)
                }
            }
        };
        let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time");
        tokio::time::timeout(Duration::from_millis(state.limits.body_ms_max), reading).await.map_err(late)?.map(JsonBody)
    }
}

/// The reason to refuse a request before its body is read.
fn refusal(headers: &HeaderMap, limit: usize) -> Option<ApiError> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let is_too_large = declared.is_some_and(|bytes| bytes > limit as u64);
    check_encoding(headers).and_then(|()| check_type(headers)).err().or_else(|| is_too_large.then(|| too_large(limit)))
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", format!("a body may have {limit} bytes at the most"))
}

/// Refuses a compressed body: parsed as JSON it would give an error that is harder to understand.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_plain = |value: &axum::http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        return Ok(());
    }
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", "the body must be sent without Content-Encoding"))
}

/// Refuses a form or a document, which would give a confusing JSON error as well. A body without a type, or with one that tools send by
/// default, is accepted as JSON.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = String::from_utf8_lossy(value.as_bytes());
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind.split_once('/').is_some_and(|(_, subtype)| subtype == "json" || subtype.ends_with("+json"));
    if is_json || kind.is_empty() || VAGUE_TYPES.contains(&kind.as_str()) {
        return Ok(());
    }
    let message = format!("the body must be JSON, sent with `Content-Type: application/json` and not `{}`", shortened(&kind));
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_type", message))
}

async fn read(mut body: BodyDataStream, limit: usize, in_flight: Option<&RequestBytes>) -> Result<Bytes, ApiError> {
    let mut buffer = BodyBuffer::default();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad("body_broken", format!("the body broke off: {error}")))?;
        if buffer.length + chunk.len() > limit {
            drop(buffer);
            discard(body).await;
            return Err(too_large(limit));
        }
        if let Some(Err(full)) = in_flight.map(|in_flight| in_flight.grow(chunk.len())) {
            drop((buffer, chunk));
            in_flight.inspect(|in_flight| in_flight.release());
            discard(body).await;
            return Err(full.into());
        }
        buffer.take(chunk);
    }
    Ok(buffer.whole())
}

/// Buffers a body that is being received, in blocks that are joined once the body is whole; each block is freed when it has been copied. A
/// single growing buffer would take a multiple of the body's size, and so would a list of chunks if each has one byte.
#[derive(Default)]
struct BodyBuffer {
    full: Vec<Bytes>,
    open: BytesMut,
    length: usize,
}

impl BodyBuffer {
    fn take(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        let is_first = self.length == 0;
        self.length += chunk.len();
        // Most bodies are one chunk, which then need not be copied.
        if is_first {
            return self.full.push(chunk);
        }
        if self.open.len() + chunk.len() > self.open.capacity() {
            let fresh = BytesMut::with_capacity(BLOCK_BYTES.max(chunk.len()));
            self.full.push(std::mem::replace(&mut self.open, fresh).freeze());
        }
        self.open.extend_from_slice(&chunk);
    }

    fn whole(mut self) -> Bytes {
        if self.full.len() < 2 && self.open.is_empty() {
            return self.full.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.length);
        for block in self.full {
            whole.extend_from_slice(&block);
        }
        whole.extend_from_slice(&self.open);
        whole.freeze()
    }
}

/// Reads and discards more of the body within limits, so that a client which writes before it reads gets its answer. A client that sends
/// nothing for a while is no longer writing, so it can read.
async fn discard(mut body: BodyDataStream) {
    let idle = Duration::from_millis(DISCARD_IDLE_MS);
    let mut discarded = 0;
    while discarded < DISCARD_BYTES_MAX
        && let Ok(Some(Ok(chunk))) = tokio::time::timeout(idle, body.next()).await
    {
        discarded += chunk.len();
    }
}
