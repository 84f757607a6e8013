//! Answers as JSON.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::error::ApiError;

/// What was asked for.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, body)
}

/// It was made.
pub(crate) fn created(body: &impl Serialize) -> Response {
    json(StatusCode::CREATED, body)
}

/// It is on disk, and will happen.
pub(crate) fn accepted(body: &impl Serialize) -> Response {
    json(StatusCode::ACCEPTED, body)
}

/// Any status with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        // Only a failing serialiser gets here, and there is none: an error's own body is made of strings.
        Err(error) => ApiError::internal(&error).into_response(),
    }
}
