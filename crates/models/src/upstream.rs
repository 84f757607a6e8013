//! A provider as a call sees it, and the messages of its failures: with its name, its address and the configuration key to check, and
//! without secrets.

use std::{error::Error, time::Duration};

use futures_util::StreamExt;
use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;
use windlass_kernel::{FailureCause, FailureCode};
use windlass_ports::{ModelError, Retry};

use crate::{cap::Broken, failure, limits::ERROR_BODY_BYTES_MAX, retry_after};

/// The settings of a provider that an exchange needs.
pub(crate) struct Upstream {
    pub(crate) name: String,
    /// The address that requests are posted to, without credentials and query.
    pub(crate) url: String,
    /// The configuration's path of this provider, such as `models[0]`.
    pub(crate) setting: Option<String>,
    /// The time limit for the first event of an answer, or the body of one that is not streamed.
    pub(crate) first_byte: Duration,
    /// The time limit between two events.
    pub(crate) idle: Duration,
    /// Texts that an error message must never contain.
    pub(crate) secrets: Vec<String>,
}

/// The beginning of a body, up to a limit.
pub(crate) struct Body {
    pub(crate) text: String,
    pub(crate) is_truncated: bool,
}

impl Upstream {
    fn presentable(&self, text: &str) -> String {
        failure::presentable(text, self.secrets.iter().map(String::as_str))
    }

    /// The full path of one of this provider's configuration keys.
    fn key(&self, key: &str) -> String {
        self.setting.as_ref().map_or_else(|| key.to_owned(), |setting| format!("{setting}.{key}"))
    }

    /// The name and the address, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{} at {}", self.name, self.url)
    }

    /// The answer did not begin within `first_byte`.
    pub(crate) fn silent(&self) -> ModelError {
        let ms = self.first_byte.as_millis();
        failure::first_byte_late(format!("{} sent nothing for {ms} ms; limits.first_byte is the limit", self.place()))
    }

    /// No event arrived for `idle` in the middle of an answer.
    pub(crate) fn stalled(&self) -> ModelError {
        let ms = self.idle.as_millis();
        let limit = self.key("idle_timeout");
        failure::stream_stalled(format!("{} sent nothing for {ms} ms in the middle of its answer; {limit} is the limit", self.place()))
    }

    /// The answer ended before it was complete.
    pub(crate) fn cut(&self, how: &str) -> ModelError {
        failure::stream_cut(format!("{}: {how}", self.place()))
    }

    /// What the operator should check after this status; empty if the status explains itself.
    fn advice(&self, status: u16) -> String {
        match status {
            401 | 403 => format!("; check {}", self.key("api_key")),
            404 => format!("; check {}, which usually ends in /v1, and the name of the model", self.key("base_url")),
            300..=399 => format!("; redirects are not followed: set {} to the final address", self.key("base_url")),
            _ => String::new(),
        }
    }

    /// The request could not be sent.
    pub(crate) fn unreachable(&self, error: reqwest::Error) -> ModelError {
        // The address is left out, since it may contain a password.
        let why = innermost(&error.without_url());
        let why = self.presentable(&why);
        failure::unreachable(format!("cannot reach {}: {why}; check {}", self.place(), self.key("base_url")))
    }

    /// The stream of events broke.
    pub(crate) fn broken(&self, error: sse_stream::Error) -> ModelError {
        let sse_stream::Error::Body(source) = error else {
            return failure::garbage(format!("{} sent an event that is not UTF-8 text", self.place()));
        };
        match source.downcast::<Broken<reqwest::Error>>().map(|broken| *broken) {
            Ok(large @ (Broken::EventTooLarge(_) | Broken::AnswerTooLarge(_))) => failure::too_large(format!("{}: {large}", self.place())),
            Ok(Broken::Transport(error)) => self.cut(&self.presentable(&innermost(&error.without_url()))),
            Err(_) => self.cut("the connection failed"),
        }
    }

    /// An answer with an error status.
    pub(crate) async fn refusal(&self, response: Response) -> ModelError {
        let status = response.status().as_u16();
        let retry_after_ms = retry_after::read(response.headers());
        // If the body does not arrive soon, the status alone has to explain the failure.
        let body = timeout(self.idle, self.body(response, ERROR_BODY_BYTES_MAX, self.idle)).await;
        let body = body.ok().and_then(Result::ok).map_or_else(String::new, |body| body.text);
        let json = serde_json::from_str::<Value>(&body).unwrap_or_default();
        let text = self.presentable(&message_of(&json).unwrap_or(body));
        let separator = if text.is_empty() { "" } else { ": " };
        let message = format!("{} answered {status}{separator}{text}{}", self.place(), self.advice(status));
        let error = failure::from_status(status, message, retry_after_ms);
        named(error, json.get("error").unwrap_or(&json), &text)
    }

    /// An error object in the middle of an answer.
    pub(crate) fn error_object(&self, error: &Value) -> ModelError {
        let text = self.presentable(&message_of(error).unwrap_or_else(|| error.to_string()));
        let message = format!("{} broke off: {text}", self.place());
        let mapped = match status_of(error) {
            Some(status) => failure::from_status(status, format!("{message}{}", self.advice(status)), None),
            None => failure::failure(FailureCode::UpstreamError, FailureCause::BadAnswer, message, Retry::Backoff),
        };
        named(mapped, error, &text)
    }

    /// Reads a body of at most `bytes_max` bytes, whose first byte may take `first`.
    pub(crate) async fn body(&self, response: Response, bytes_max: usize, first: Duration) -> Result<Body, ModelError> {
        let mut chunks = response.bytes_stream().boxed();
        let mut bytes = Vec::new();
        let mut patience = first;
        loop {
            let late = || if bytes.is_empty() { self.silent() } else { self.stalled() };
            let Some(chunk) = timeout(patience, chunks.next()).await.map_err(|_| late())? else { break };
            patience = self.idle;
            let chunk = chunk.map_err(|error| self.cut(&self.presentable(&innermost(&error.without_url()))))?;
            let left = bytes_max - bytes.len();
            if chunk.len() > left {
                bytes.extend_from_slice(&chunk[..left]);
                return Ok(Body { text: String::from_utf8_lossy(&bytes).into_owned(), is_truncated: true });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Body { text: String::from_utf8_lossy(&bytes).into_owned(), is_truncated: false })
    }
}

/// The HTTP status for an error object: its number, or the status of a keyword that providers use.
fn status_of(error: &Value) -> Option<u16> {
    let of = |code: &Value| match code.as_str() {
        None => u16::try_from(code.as_u64()?).ok(),
        Some("rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota") => Some(429),
        Some("overloaded_error" | "server_is_overloaded" | "slow_down") => Some(529),
        Some("server_error" | "api_error") => Some(500),
        Some("timeout_error") => Some(504),
        Some("authentication_error") => Some(401),
        Some("permission_error") => Some(403),
        Some("not_found_error" | "model_not_found") => Some(404),
        Some("request_too_large") => Some(413),
        Some("invalid_request_error" | "invalid_prompt" | "context_length_exceeded") => Some(400),
        Some(text) => text.parse().ok(),
    };
    let known = |status: &u16| (400..600).contains(status);
    ["code", "status", "type"].into_iter().find_map(|key| of(error.get(key)?).filter(known))
}

/// Replaces the code by a more specific one that clients act upon, where the provider's message is unambiguous.
fn named(mapped: ModelError, error: &Value, text: &str) -> ModelError {
    let is_code = |code: &str| ["code", "type"].into_iter().any(|key| error.get(key).and_then(Value::as_str) == Some(code));
    let is_too_long = is_code("context_length_exceeded")
        || is_code("exceed_context_size_error")
        || text.starts_with("prompt is too long")
        || text.contains("maximum context length");
    let code = match () {
        () if mapped.retry == Retry::Never && is_too_long => FailureCode::ContextLengthExceeded,
        () if mapped.code == FailureCode::RateLimited && is_code("insufficient_quota") => FailureCode::InsufficientQuota,
        () => return mapped,
    };
    ModelError { code, ..mapped }
}

/// The message in an error's JSON, wherever this provider has it.
fn message_of(json: &Value) -> Option<String> {
    match json {
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) => ["error", "message", "detail"].into_iter().find_map(|key| message_of(fields.get(key)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The innermost cause of an error, which has the actual reason.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mapped(error: Value) -> (FailureCode, Retry) {
        let (name, url) = ("p".to_owned(), "http://h/v1".to_owned());
        let upstream = Upstream { name, url, setting: None, first_byte: Duration::ZERO, idle: Duration::ZERO, secrets: Vec::new() };
        let error = upstream.error_object(&error);
        (error.code, error.retry)
    }

    #[test]
    fn an_error_in_an_answer_keeps_its_meaning() {
        let expected = |code: &str, retry| (FailureCode::from(code), retry);
        for (error, code) in [
            (json!({"code": "rate_limit_exceeded"}), "rate_limited"),
            (json!({"type": "overloaded_error", "message": "Overloaded"}), "overloaded"),
            (json!({"type": "api_error"}), "upstream_error"),
            (json!({"code": "insufficient_quota"}), "insufficient_quota"),
            (json!({"code": null, "message": "gone"}), "upstream_error"),
        ] {
            assert_eq!(mapped(error.clone()), expected(code, Retry::Backoff), "{error}");
        }
        for (error, code) in [
            (json!({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens"}), "context_length_exceeded"),
            (json!({"code": "context_length_exceeded"}), "context_length_exceeded"),
            (json!({"code": 400, "type": "exceed_context_size_error"}), "context_length_exceeded"),
            (json!({"code": 400, "message": "This model's maximum context length is 9 tokens."}), "context_length_exceeded"),
            (json!({"type": "invalid_request_error", "code": null}), "refused"),
            (json!({"type": "authentication_error"}), "upstream_unauthorized"),
        ] {
            assert_eq!(mapped(error.clone()), expected(code, Retry::Never), "{error}");
        }
    }
}
