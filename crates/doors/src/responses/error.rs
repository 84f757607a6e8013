//! The errors of the Responses door, in the shape that OpenAI's SDKs read.
//!
//! The SDKs choose their exception by the status and print the message; people search for the code and the parameter. All four keys are
//! always present, because generated clients require them.

use std::fmt;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::json;
use windlass_engine::PROMPT_TOO_LARGE;

use crate::answer;

const INVALID_REQUEST: &str = "invalid_request_error";
const TOO_MANY_REQUESTS: &str = "too_many_requests";

/// The header that names the response of a request that failed.
const RESPONSE_ID: HeaderName = HeaderName::from_static("windlass-response-id");
/// The header that tells OpenAI's client libraries whether to retry.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error. It serialises as the object under `error`, in HTTP bodies, events and frames.
#[derive(Debug)]
pub(crate) struct WireError {
    status: u16,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    message: String,
    retry_after_s: Option<u32>,
    /// The id of the response that the request started before it failed.
    response_id: Option<String>,
    /// Whether this server has retried already, so that clients should not.
    is_retried: bool,
}

impl WireError {
    fn new(status: u16, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        WireError { status, kind, code, param: None, message, retry_after_s: None, response_id: None, is_retried: false }
    }

    /// 400: the request is wrong.
    pub fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(400, INVALID_REQUEST, code, message)
    }

    /// 400: a required parameter is missing.
    pub fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        Self::bad("missing_required_parameter", format!("Missing required parameter: '{param}'.")).at(param)
    }

    /// 400: a parameter has a value that is not allowed.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad("invalid_value", message).at(param)
    }

    /// 401: the token is missing or unknown.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, INVALID_REQUEST, "invalid_api_key", message)
    }

    /// 403: the token does not have the permission.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, INVALID_REQUEST, "insufficient_permissions", message)
    }

    /// 404: it does not exist, or belongs to another tenant.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", "not_found", message)
    }

    /// 405: the path exists, but not with this method.
    pub fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(405, INVALID_REQUEST, "method_not_allowed", message)
    }

    /// 408: the body did not arrive in time. The SDKs retry by themselves.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(408, INVALID_REQUEST, "request_timeout", message)
    }

    /// 409: the request conflicts with another one. The SDKs retry by themselves.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(409, INVALID_REQUEST, code, message)
    }

    /// 413: the request is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, INVALID_REQUEST, "request_too_large", message)
    }

    /// 413: the input and its history are larger than a prompt may be.
    pub fn prompt_too_large(message: impl Into<String>) -> Self {
        Self::too_large(message).with_code(PROMPT_TOO_LARGE).at("input")
    }

    /// 415: the body is not plain JSON.
    pub fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(415, INVALID_REQUEST, "unsupported_media_type", message)
    }

    /// 424: a tool server that the request needs failed.
    pub fn failed_dependency(message: impl Into<String>) -> Self {
        Self::new(424, "external_connector_error", "http_error", message)
    }

    /// 429: a limit of requests, tokens or resources is reached.
    pub fn too_many(code: &'static str, message: impl Into<String>, retry_after_s: u32) -> Self {
        Self::new(429, TOO_MANY_REQUESTS, code, message).retry_after(Some(retry_after_s))
    }

    /// 500: a fault of this server. The cause goes to the log and not to the client.
    pub fn internal(error: &dyn fmt::Display) -> Self {
        tracing::error!(%error, "a request failed by our own fault");
        Self::new(500, "server_error", "server_error", "something broke on our side; the log has the details")
    }

    /// 500: the model failed to produce what was asked for.
    pub fn model_failed(message: impl Into<String>) -> Self {
        Self::new(500, "model_error", "model_error", message)
    }

    /// An error of the model's provider. The error's type follows from the status.
    pub fn upstream(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        let kind = match status {
            429 => TOO_MANY_REQUESTS,
            400..=499 => INVALID_REQUEST,
            _ => "model_error",
        };
        Self::new(status, kind, code, message)
    }

    /// 503: a temporary condition of this server.
    pub fn unavailable(code: &'static str, message: impl Into<String>, retry_after_s: u32) -> Self {
        Self::new(503, "server_error", code, message).retry_after(Some(retry_after_s))
    }

    /// Sets the parameter that the error is about.
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Prefixes the parameter with the place of the object that it is in. Without a parameter, the error is about that whole object.
    pub fn within(mut self, place: &str) -> Self {
        self.param = Some(self.param.map_or_else(|| place.to_owned(), |param| format!("{place}.{param}")));
        self
    }

    /// Replaces the message.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Replaces the code.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Replaces the prefix `of` of the parameter by `place`.
    pub fn replace_param_prefix(mut self, of: &str, place: &str) -> Self {
        self.param = self.param.map(|param| param.strip_prefix(of).map_or(param.clone(), |rest| format!("{place}{rest}")));
        self
    }

    /// The code by which programs distinguish errors.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Sets `Retry-After`; `None` leaves the header out.
    pub fn retry_after(mut self, seconds: Option<u32>) -> Self {
        self.retry_after_s = seconds;
        self
    }

    /// Sets the id of the response that the request started.
    pub fn with_response_id(mut self, id: String) -> Self {
        self.response_id = Some(id);
        self
    }

    /// Asks client libraries not to retry, because this server has retried already.
    pub fn retried_already(mut self) -> Self {
        self.is_retried = true;
        self
    }
}

impl WireError {
    /// The error as a frame on a socket. It has the status and `Retry-After` as fields, because a frame has no headers.
    pub fn frame(&self) -> String {
        let mut frame = json!({ "type": "error", "status": self.status, "error": self });
        if let Some(seconds) = self.retry_after_s {
            frame["headers"] = json!({ "retry-after": seconds.to_string() });
        }
        frame.to_string()
    }
}

/// Accessors for tests.
#[cfg(test)]
impl WireError {
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Serialize for WireError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.response_id.is_some() { 5 } else { 4 };
        let mut error = serializer.serialize_struct("error", fields)?;
        error.serialize_field("message", &self.message)?;
        error.serialize_field("type", self.kind)?;
        error.serialize_field("param", &self.param)?;
        error.serialize_field("code", self.code)?;
        if let Some(id) = &self.response_id {
            error.serialize_field("response_id", id)?;
        }
        error.end()
    }
}

impl IntoResponse for WireError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: &'a WireError,
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = answer::json(status, &Envelope { error: &self });
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(id) = self.response_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            response.headers_mut().insert(RESPONSE_ID, id);
        }
        if self.is_retried {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_four_keys_are_present_even_when_null() {
        let cases = [
            (WireError::bad("invalid_json", "m"), 400, "invalid_request_error", "invalid_json"),
            (WireError::unauthorized("m"), 401, "invalid_request_error", "invalid_api_key"),
            (WireError::forbidden("m"), 403, "invalid_request_error", "insufficient_permissions"),
            (WireError::not_found("m"), 404, "not_found", "not_found"),
            (WireError::wrong_method("m"), 405, "invalid_request_error", "method_not_allowed"),
            (WireError::timed_out("m"), 408, "invalid_request_error", "request_timeout"),
            (WireError::conflict("conversation_locked", "m"), 409, "invalid_request_error", "conversation_locked"),
            (WireError::too_large("m"), 413, "invalid_request_error", "request_too_large"),
            (WireError::unsupported_media("m"), 415, "invalid_request_error", "unsupported_media_type"),
            (WireError::failed_dependency("m"), 424, "external_connector_error", "http_error"),
            (WireError::too_many("rate_limit_exceeded", "m", 5), 429, "too_many_requests", "rate_limit_exceeded"),
            (WireError::unavailable("server_is_overloaded", "m", 1), 503, "server_error", "server_is_overloaded"),
        ];
        for (error, status, kind, code) in cases {
            assert_eq!(error.status(), status);
            let body = serde_json::to_value(&error).unwrap();
            assert_eq!(body, json!({ "message": "m", "type": kind, "param": null, "code": code }));
        }
        let missing = serde_json::to_value(WireError::missing("input")).unwrap();
        assert_eq!((&missing["param"], &missing["code"]), (&json!("input"), &json!("missing_required_parameter")));
    }

    #[test]
    fn internal_errors_do_not_show_their_cause() {
        let error = WireError::internal(&"the password is 1234");
        assert_eq!(error.status(), 500);
        let body: Value = serde_json::to_value(&error).unwrap();
        assert_eq!(body["code"], "server_error");
        assert!(!error.message().contains("1234"));
    }

    #[test]
    fn the_response_has_retry_after_and_www_authenticate() {
        let response = WireError::too_many("rate_limit_exceeded", "m", 7).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "7");
        let response = WireError::unauthorized("m").into_response();
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}
