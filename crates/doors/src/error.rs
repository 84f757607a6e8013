//! Errors as the agents API and the windlass API send them.
//!
//! The message of an error is for the client. Details that it must not see, such as the store's messages and faults of this server, go to
//! the log.

use std::fmt;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use windlass_engine::{EngineError, PROMPT_TOO_LARGE};
use windlass_ports::{QuotaKind, ServerError, StoreError};

use crate::answer;

/// Seconds after which a client should retry when a queue is full.
const FULL_RETRY_S: u32 = 5;
/// Seconds after which a client should retry when the server is briefly unavailable.
const TROUBLE_RETRY_S: u32 = 1;

/// An error answer: status, code, message, and optionally a hint and `Retry-After`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    retry_after_s: Option<u32>,
    /// Further fields of the error object.
    details: Option<Value>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code, message: message.into(), hint: None, retry_after_s: None, details: None }
    }

    /// 400: the request cannot be read.
    pub fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 400: a field has an invalid value. `wanted` completes "must be …".
    pub fn bad_field(field: &str, wanted: impl fmt::Display) -> Self {
        Self::bad("bad_field", format!("`{field}` must be {wanted}"))
    }

    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub fn unknown_run() -> Self {
        EngineError::UnknownRun.into()
    }

    /// 404: no run with that id, for the APIs whose wire says run.
    pub fn no_such_run() -> Self {
        let hint = "GET /v1/windlass/runs lists the runs of this token's tenant";
        Self::not_found("unknown_run", "there is no such run").hint(Some(hint.to_owned()))
    }

    pub fn unknown_call() -> Self {
        EngineError::UnknownCall.into()
    }

    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn forbidden(scopes: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("this token lacks the scope {scopes}"))
    }

    pub fn draining() -> Self {
        EngineError::Draining.into()
    }

    /// 503: the server has not yet loaded what it needs before it serves requests.
    pub fn starting() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "starting", "the server is starting; try again").retry_after(TROUBLE_RETRY_S)
    }

    /// 500: a fault of this server. The error goes to the log, and the client gets a general message.
    pub fn internal(error: &dyn fmt::Display) -> Self {
        tracing::error!(%error, "a request failed by our own fault");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something broke on our side; the log has the details")
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// Adds fields to the error object.
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Status, code, message and seconds for `Retry-After`, for doors that use another shape.
    pub fn into_parts(self) -> (StatusCode, &'static str, String, Option<u32>) {
        (self.status, self.code, self.message, self.retry_after_s)
    }

    /// Sets `Retry-After`, in seconds.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::UnknownModel(_) => Self::bad("unknown_model", message),
            EngineError::UnpricedModel(_) => Self::bad("unpriced_model", message),
            EngineError::NoDefaultModel => Self::bad("missing_model", message),
            EngineError::UnknownAgent { nearest, .. } => {
                let nearest = nearest.map(|known| format!("did you mean {:?}? ", known.as_str())).unwrap_or_default();
                let hint = format!("{nearest}agents that the configuration does not have need `agents_open: true` in it");
                Self::not_found("unknown_agent", message).hint(Some(hint))
            }
            EngineError::UnknownTool(_) => Self::bad("unknown_tool", message),
            EngineError::UnknownBox => Self::bad("unknown_box", message),
            EngineError::UnknownRun => Self::not_found("unknown_turn", message),
            EngineError::UnknownCall => Self::not_found("unknown_call", message),
            EngineError::NotExternal => {
                let hint = "if it is parked, decide with POST /v1/windlass/reconcile";
                Self::conflict("not_external", message).hint(Some(hint.to_owned()))
            }
            EngineError::ToolServer(ServerError::Busy(_)) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "tool_servers_busy", message).retry_after(FULL_RETRY_S)
            }
            EngineError::ToolServer(_) => Self::new(StatusCode::FAILED_DEPENDENCY, "tool_server_failed", message),
            EngineError::TooDeep { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "recursion_depth_exceeded", message),
            EngineError::AlreadyInherited(_) => Self::conflict("taken_before", message),
            EngineError::KeyReused => Self::conflict("idempotency_key_reused", message),
            EngineError::Busy => Self::conflict("busy", message),
            EngineError::UnknownConversation => Self::not_found("unknown_conversation", message),
            EngineError::ConversationBusy => Self::conflict("conversation_locked", message),
            EngineError::ConversationMoved => Self::conflict("conversation_moved", message),
            EngineError::ConversationsAgent => Self::bad("bad_agent", message),
            EngineError::ConversationFull => Self::bad("conversation_full", message),
            EngineError::NotParked => Self::conflict("not_parked", message),
            EngineError::BadArguments { .. } => Self::bad("bad_arguments", message),
            EngineError::UnusableSchema(_) => Self::bad("unusable_schema", message),
            EngineError::NotShown => Self::conflict("not_what_was_shown", message),
            EngineError::UnfitDecision => Self::conflict("unfit_decision", message),
            EngineError::RaisedTooLittle { limit_min, .. } => {
                Self::new(StatusCode::BAD_REQUEST, "raised_too_little", message).details(serde_json::json!({ "limit_min": limit_min }))
            }
            EngineError::AlreadyApproved => Self::conflict("already_approved", message),
            EngineError::ParentGone => Self::conflict("parent_gone", message),
            EngineError::CallPaused => Self::conflict("call_paused", message),
            EngineError::CallHeld => Self::conflict("call_held", message),
            EngineError::NotQuarantined => Self::conflict("not_quarantined", message),
            EngineError::NotActive => Self::conflict("not_active", message),
            EngineError::NotSteerable => Self::conflict("not_steerable", message),
            EngineError::TooManyInstructions => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_instructions", message).retry_after(FULL_RETRY_S)
            }
            EngineError::EpochAhead => Self::conflict("epoch_ahead", message),
            EngineError::AgentFull => Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after(FULL_RETRY_S),
            EngineError::TenantFull => Self::new(StatusCode::TOO_MANY_REQUESTS, "tenant_full", message).retry_after(FULL_RETRY_S),
            EngineError::OverQuota(over) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, quota_code(over.kind), message).retry_after(over.retry_after_s)
            }
            EngineError::MemoryFull => Self::new(StatusCode::TOO_MANY_REQUESTS, "memory_full", message).retry_after(FULL_RETRY_S),
            EngineError::ItemTooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "item_too_large", message),
            EngineError::BoxTooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "box_too_large", message),
            EngineError::PromptTooLarge(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, PROMPT_TOO_LARGE, message),
            EngineError::Draining => Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message).retry_after(TROUBLE_RETRY_S),
            EngineError::Store(error) => error.into(),
            EngineError::Internal => Self::internal(&message),
        }
    }
}

/// Quotas that recover within minutes are rate limits to clients; the others are quotas that are used up.
fn quota_code(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::Requests | QuotaKind::Runs => "rate_limit_exceeded",
        QuotaKind::Tokens | QuotaKind::Bytes => "insufficient_quota",
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced => {
                let message = "the turn kept moving on while this was tried; try again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "retry", message).retry_after(TROUBLE_RETRY_S)
            }
            StoreError::Unavailable(why) => {
                tracing::warn!(why = why.as_str(), "a request found the store unavailable");
                let message = "the store does not answer; try again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message).retry_after(TROUBLE_RETRY_S)
            }
            StoreError::Corrupt(why) => {
                tracing::error!(why = why.as_str(), "a request met stored data that makes no sense");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "corrupt", "stored data makes no sense; the log has the details")
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Body<'a>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            #[serde(flatten, skip_serializing_if = "Option::is_none")]
            details: Option<&'a Value>,
        }
        let body = Body { code: self.code, message: &self.message, hint: self.hint.as_deref(), details: self.details.as_ref() };
        let mut response = answer::json(self.status, &Envelope { error: body });
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
