//! One request and its answer, from the first byte out to the last event in.

use std::{collections::VecDeque, error::Error, pin::Pin, sync::Arc, time::Duration};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use reqwest::{RequestBuilder, Response, header::CONTENT_TYPE};
use serde_json::Value;
use sse_stream::{Sse, SseByteStream};
use tokio::time::timeout;
use windlass_ports::{ModelError, ModelEvent, ModelStream, Retry};

use super::{
    answer::{Answer, Refused},
    cap::{Broken, Cap, capped},
    retry_after,
};
use crate::{
    failure,
    limits::{AFTER_FINISH_MS_MAX, ANSWER_BYTES_MAX, CONTENT_BYTES_MAX, ERROR_BODY_BYTES_MAX, EVENT_BYTES_MAX},
};

/// What an exchange needs to know about the server.
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) idle: Duration,
    /// What must never be repeated in an error.
    pub(super) secrets: Vec<String>,
}

/// One call under way.
pub(super) struct Exchange {
    upstream: Arc<Upstream>,
    phase: Phase,
    ready: VecDeque<ModelEvent>,
    answer: Answer,
}

/// What comes next.
enum Phase {
    Send(RequestBuilder),
    Stream(Events),
    Whole(Response),
    Ended,
}

type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

impl Exchange {
    /// The stream of a call. Nothing is sent before it is polled.
    pub(super) fn start(upstream: Arc<Upstream>, http: RequestBuilder, iteration: u32) -> ModelStream {
        let phase = Phase::Send(http);
        let exchange = Exchange { upstream, phase, ready: VecDeque::new(), answer: Answer::new(iteration) };
        Box::pin(stream::unfold(exchange, Exchange::next))
    }

    async fn next(mut self) -> Option<(Result<ModelEvent, ModelError>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            let advanced = match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Send(http) => self.send(http).await,
                Phase::Stream(events) => self.read(events).await,
                Phase::Whole(response) => self.read_whole(response).await,
                Phase::Ended => return None,
            };
            match advanced {
                Ok(phase) => self.phase = phase,
                Err(error) => return Some((Err(error), self)),
            }
        }
    }

    async fn send(&mut self, http: RequestBuilder) -> Result<Phase, ModelError> {
        let sent = timeout(self.upstream.idle, http.send()).await.map_err(|_| self.upstream.stalled())?;
        let response = sent.map_err(|error| self.upstream.unreachable(error))?;
        if !response.status().is_success() {
            return Err(self.upstream.refusal(response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if content_type.trim_start().to_ascii_lowercase().starts_with("application/json") {
            return Ok(Phase::Whole(response));
        }
        let cap = Cap { event_bytes: EVENT_BYTES_MAX, answer_bytes: ANSWER_BYTES_MAX };
        let bytes = capped(response.bytes_stream().boxed(), cap);
        Ok(Phase::Stream(Box::pin(SseByteStream::new(Box::pin(bytes)))))
    }

    async fn read(&mut self, mut events: Events) -> Result<Phase, ModelError> {
        let finished = self.answer.is_finished();
        let after_finish = Duration::from_millis(AFTER_FINISH_MS_MAX).min(self.upstream.idle);
        let patience = if finished { after_finish } else { self.upstream.idle };
        let event = match timeout(patience, events.next()).await {
            Ok(Some(Ok(event))) => event,
            // The answer is whole; only the usage or the end mark is missing.
            Err(_) | Ok(None) if finished => return self.end(),
            Err(_) => return Err(self.upstream.stalled()),
            Ok(None) => return Err(self.upstream.cut("the stream ended before the answer did")),
            Ok(Some(Err(error))) => {
                let error = self.upstream.broken(error);
                return if finished && error.code == "stream_cut" { self.end() } else { Err(error) };
            }
        };
        match event.data.as_deref().map(str::trim) {
            None | Some("") => {}
            Some("[DONE]") if self.answer.has_begun() => return self.end(),
            Some("[DONE]") => return Err(self.upstream.cut("the stream ended before the answer began")),
            Some(data) => self.take(data)?,
        }
        Ok(Phase::Stream(events))
    }

    async fn read_whole(&mut self, response: Response) -> Result<Phase, ModelError> {
        let body = self.upstream.body(response, CONTENT_BYTES_MAX).await?;
        if body.is_truncated {
            return Err(failure::too_large(format!("the answer has more than {CONTENT_BYTES_MAX} bytes")));
        }
        self.take(&body.text)?;
        if !self.answer.has_begun() {
            return Err(failure::garbage(format!("{} sent JSON that is no chat completion", self.upstream.name)));
        }
        self.end()
    }

    fn take(&mut self, json: &str) -> Result<(), ModelError> {
        let events = self.answer.take(json).map_err(|refused| match refused {
            Refused::Ours(error) => error,
            Refused::Theirs(error) => self.upstream.error_object(&error),
        })?;
        self.ready.extend(events);
        Ok(())
    }

    fn end(&mut self) -> Result<Phase, ModelError> {
        self.ready.extend(self.answer.calls()?);
        Ok(Phase::Ended)
    }
}

/// As much of a body as is taken.
struct Body {
    text: String,
    is_truncated: bool,
}

impl Upstream {
    fn presentable(&self, words: &str) -> String {
        failure::presentable(words, self.secrets.iter().map(String::as_str))
    }

    fn stalled(&self) -> ModelError {
        failure::stream_stalled(format!("{} sent nothing for {} ms", self.name, self.idle.as_millis()))
    }

    fn cut(&self, how: &str) -> ModelError {
        failure::stream_cut(format!("{}: {how}", self.name))
    }

    /// The request did not get through.
    fn unreachable(&self, error: reqwest::Error) -> ModelError {
        // The address is the operator's and may hold a password.
        let why = innermost(&error.without_url());
        failure::unreachable(format!("cannot reach {}: {}", self.name, self.presentable(&why)))
    }

    /// The stream of events failed.
    fn broken(&self, error: sse_stream::Error) -> ModelError {
        let sse_stream::Error::Body(source) = error else {
            return failure::garbage(format!("{} sent an event that is not UTF-8 text", self.name));
        };
        match source.downcast::<Broken<reqwest::Error>>().map(|broken| *broken) {
            Ok(large @ (Broken::EventTooLarge(_) | Broken::AnswerTooLarge(_))) => failure::too_large(format!("{}: {large}", self.name)),
            Ok(Broken::Transport(error)) => self.cut(&self.presentable(&innermost(&error.without_url()))),
            Err(_) => self.cut("the connection failed"),
        }
    }

    /// An answer that is an error by its status.
    async fn refusal(&self, response: Response) -> ModelError {
        let status = response.status();
        let retry_after_ms = retry_after::read(response.headers());
        // The status alone says enough if the body does not come soon.
        let body = timeout(self.idle, self.body(response, ERROR_BODY_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).map_or_else(String::new, |body| body.text);
        let words = serde_json::from_str::<Value>(&body).ok().and_then(|json| words_of(&json)).unwrap_or(body);
        let words = self.presentable(&words);
        let separator = if words.is_empty() { "" } else { ": " };
        let message = format!("{} answered {}{separator}{words}", self.name, status.as_u16());
        failure::from_status(status.as_u16(), message, retry_after_ms)
    }

    /// An error object in the middle of an answer.
    fn error_object(&self, error: &Value) -> ModelError {
        let words = words_of(error).unwrap_or_else(|| error.to_string());
        let message = format!("{} broke off: {}", self.name, self.presentable(&words));
        let status = ["code", "status"].into_iter().find_map(|key| {
            let code = error.get(key)?;
            code.as_str().map_or_else(|| u16::try_from(code.as_u64()?).ok(), |text| text.parse().ok())
        });
        match status.filter(|status| (400..600).contains(status)) {
            Some(status) => failure::from_status(status, message, None),
            None => failure::failure("upstream_error", message, Retry::Backoff),
        }
    }

    /// Reads a body up to so many bytes.
    async fn body(&self, response: Response, bytes_max: usize) -> Result<Body, ModelError> {
        let mut pieces = response.bytes_stream().boxed();
        let mut bytes = Vec::new();
        while let Some(piece) = timeout(self.idle, pieces.next()).await.map_err(|_| self.stalled())? {
            let piece = piece.map_err(|error| self.cut(&self.presentable(&innermost(&error.without_url()))))?;
            let room = bytes_max - bytes.len();
            if piece.len() > room {
                bytes.extend_from_slice(&piece[..room]);
                return Ok(Body { text: String::from_utf8_lossy(&bytes).into_owned(), is_truncated: true });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Body { text: String::from_utf8_lossy(&bytes).into_owned(), is_truncated: false })
    }
}

/// The sentence in an error's JSON, wherever this server keeps it.
fn words_of(json: &Value) -> Option<String> {
    match json {
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) => ["error", "message", "detail"].into_iter().find_map(|key| words_of(fields.get(key)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// What is at the bottom of an error, where the reason is.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
