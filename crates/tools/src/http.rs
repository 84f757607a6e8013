//! The HTTP client of MCP sessions: it adds our headers to every request, follows no redirects, and limits the bytes of answers.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{
        common::http_header::{EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE},
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use sse_stream_rmcp::{Sse, SseStream};

use crate::headers::Headers;

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Error = StreamableHttpError<HttpError>;

/// The settings for one server.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) client: reqwest::Client,
    pub(crate) headers: Headers,
    /// Bytes of one answer, streamed or not.
    pub(crate) answer_bytes_max: usize,
    /// Whether the server may keep a stream of its own open, and resume a broken one. A server that a request declared may not, since it
    /// could send for ever.
    pub(crate) is_trusted: bool,
}

/// Why a request failed, worded without addresses or secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("the connection broke")]
    Broken,
    #[error("it answered with HTTP {0}")]
    Status(u16),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("its answer is not one of MCP")]
    NotMcp,
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_connect() { HttpError::Unreachable } else { HttpError::Broken }
    }
}

impl Http {
    fn request(&self, request: RequestBuilder, session: Option<Arc<str>>, extra: HashMap<HeaderName, HeaderValue>) -> RequestBuilder {
        let request = request.header(ACCEPT, format!("{JSON_MIME_TYPE}, {EVENT_STREAM_MIME_TYPE}")).headers(self.headers.map().clone());
        // The protocol's own headers are added last, so that no other header replaces them.
        let request = extra.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        match session {
            Some(session) => request.header(HEADER_SESSION_ID, session.as_ref()),
            None => request,
        }
    }

    /// The body of an answer, up to the limit.
    async fn body(&self, response: Response) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        let mut pieces = std::pin::pin!(capped(response, self.answer_bytes_max));
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece?);
        }
        Ok(body)
    }

    /// Handles the error status of a request that the server refused.
    async fn refusal(&self, response: Response, id: Option<RequestId>, had_session: bool) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(Error::SessionExpired);
        }
        let failed = Error::Client(HttpError::Status(status.as_u16()));
        let is_ours = !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        if !is_ours || status.is_redirection() || !is_of_type(&response, JSON_MIME_TYPE) {
            return Err(failed);
        }
        let body = self.body(response).await.map_err(Error::Client)?;
        let Ok(JsonRpcMessage::Error(error)) = serde_json::from_slice::<ServerJsonRpcMessage>(&body) else {
            return Err(failed);
        };
        // Some servers report a lost session only as a bad request, in an error without a request's id.
        if error.id.is_none() && had_session && status == StatusCode::BAD_REQUEST {
            return Err(Error::SessionExpired);
        }
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error.error, id.or(error.id)), None))
    }

    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        extra: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let id = if let JsonRpcMessage::Request(request) = &message { Some(request.id.clone()) } else { None };
        let had_session = session.is_some();
        let request = self.request(self.client.post(uri.as_ref()), session, extra).json(&message);
        let response = request.send().await.map_err(|error| Error::Client(error.into()))?;
        self.answer(response, id, had_session).await
    }

    /// Reads the answer to the request `id`, or to a notification if `id` is `None`.
    pub(crate) async fn answer(
        &self,
        response: Response,
        id: Option<RequestId>,
        had_session: bool,
    ) -> Result<StreamableHttpPostResponse, Error> {
        if !response.status().is_success() {
            return self.refusal(response, id, had_session).await;
        }
        // Only a request has an answer; the body of an answer to a notification is ignored.
        let Some(id) = id else {
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = response.headers().get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(answered(events(response, self.answer_bytes_max), id), session));
        }
        if !is_of_type(&response, JSON_MIME_TYPE) {
            return Err(Error::Client(HttpError::NotMcp));
        }
        let body = self.body(response).await.map_err(Error::Client)?;
        let message = serde_json::from_slice(&body).map_err(|_| Error::Client(HttpError::NotMcp))?;
        Ok(StreamableHttpPostResponse::Json(message, session))
    }
}

fn is_of_type(response: &Response, wanted: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().to_ascii_lowercase().starts_with(wanted.as_bytes()))
}

/// The bytes of an answer, with an error instead of the chunk that exceeds the limit.
fn capped(response: Response, bytes_max: usize) -> impl Stream<Item = Result<Bytes, HttpError>> + Send + 'static {
    response.bytes_stream().scan(Some(bytes_max), move |left, piece| {
        let kept = match (piece, left.take()) {
            (_, None) => None,
            (Err(error), Some(_)) => Some(Err(error.into())),
            (Ok(piece), Some(before)) => {
                *left = before.checked_sub(piece.len());
                Some(if left.is_some() { Ok(piece) } else { Err(HttpError::TooLarge(bytes_max)) })
            }
        };
        std::future::ready(kept)
    })
}

fn events(response: Response, bytes_max: usize) -> Events {
    SseStream::from_bytes_stream(capped(response, bytes_max)).boxed()
}

/// Ends a stream that exceeds the limit with an error answer to the request `id`. A plain stream error would look like a broken connection,
/// and the session would request the stream again.
fn answered(events: Events, id: RequestId) -> Events {
    let answer = move |event: Result<Sse, SseError>| match event {
        Err(SseError::Body(error)) if matches!(error.downcast_ref(), Some(HttpError::TooLarge(_))) => {
            let error = ErrorData::internal_error(Cow::Owned(error.to_string()), None);
            let message = ServerJsonRpcMessage::error(error, Some(id.clone()));
            Ok(Sse::default().data(serde_json::to_string(&message).unwrap_or_default()))
        }
        event => event,
    };
    events.map(answer).boxed()
}

impl StreamableHttpClient for Http {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        self.post(uri, message, session_id, custom_headers).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let request = self.request(self.client.delete(uri.as_ref()), Some(session_id), custom_headers);
        // The session is over for us, whether or not the server supports its deletion.
        request.send().await.map(drop).map_err(|error| Error::Client(error.into()))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Error> {
        if !self.is_trusted {
            return Err(Error::ServerDoesNotSupportSse);
        }
        let mut request = self.request(self.client.get(uri.as_ref()), session_id, custom_headers);
        if let Some(last) = last_event_id {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let response = request.send().await.map_err(|error| Error::Client(error.into()))?;
        // Many servers have no such stream and report that in different ways; another request would not help.
        if !response.status().is_success() || !is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
            return Err(Error::ServerDoesNotSupportSse);
        }
        Ok(events(response, self.answer_bytes_max))
    }
}
