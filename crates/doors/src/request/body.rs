//! Request bodies, read whole and within limits.

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
    limits::{BODY_MS_MAX, DISCARD_BYTES_MAX},
};

/// The bytes of a body. What they say is for [`super::Fields`] to find out.
pub(crate) struct JsonBody(pub Bytes);

impl FromRequest<DoorState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &DoorState) -> Result<Self, ApiError> {
        check_encoding(request.headers())?;
        let body = request.into_body().into_data_stream();
        let reading = read(body, state.limits.body_bytes_max);
        let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time");
        tokio::time::timeout(Duration::from_millis(BODY_MS_MAX), reading).await.map_err(late)?.map(JsonBody)
    }
}

/// A compressed body would read as broken JSON, which is harder to understand than a refusal.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_plain = |value: &axum::http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        return Ok(());
    }
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", "the body must be sent without Content-Encoding"))
}

async fn read(mut body: BodyDataStream, limit: usize) -> Result<Bytes, ApiError> {
    let mut first = None;
    let mut rest = BytesMut::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad("body_broken", format!("the body broke off: {error}")))?;
        let held = first.as_ref().map_or(0, Bytes::len) + rest.len();
        if held + chunk.len() > limit {
            discard(body).await;
            return Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("a body may have {limit} bytes at the most"),
            ));
        }
        // Most bodies are one chunk, which then need not be copied.
        match &first {
            None => first = Some(chunk),
            Some(_) => rest.extend_from_slice(&chunk),
        }
    }
    Ok(match first {
        Some(first) if !rest.is_empty() => [first, rest.freeze()].concat().into(),
        Some(first) => first,
        None => Bytes::new(),
    })
}

async fn discard(mut body: BodyDataStream) {
    let mut discarded = 0;
    while discarded < DISCARD_BYTES_MAX
        && let Some(Ok(chunk)) = body.next().await
    {
        discarded += chunk.len();
    }
}
