//! The body of a plain answer, which marks its reader as served once it is sent.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use windlass_engine::ReaderGuard;

/// Wraps an answer so that its reader counts as served once the connection takes the body to send it. If the client leaves before, the
/// guard is dropped unserved.
pub(super) async fn answered(response: Response, reader: ReaderGuard) -> Response {
    let (parts, body) = response.into_parts();
    // The body is in memory already, so collecting it does not wait.
    let bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return crate::error::ApiError::internal(&error).into_response(),
    };
    Response::from_parts(parts, Body::new(Answered { bytes: Some(bytes), reader }))
}

struct Answered {
    bytes: Option<Bytes>,
    reader: ReaderGuard,
}

impl hyper::body::Body for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.bytes.take().map(|bytes| Ok(Frame::data(bytes)));
        self.reader.served();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
