//! Responses with a JSON body.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::error::ApiError;

/// 200: the requested data.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, body)
}

/// 201: the object was created.
pub(crate) fn created(body: &impl Serialize) -> Response {
    json(StatusCode::CREATED, body)
}

/// 202: the request is committed, and the server will do it.
pub(crate) fn accepted(body: &impl Serialize) -> Response {
    json(StatusCode::ACCEPTED, body)
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        // This happens only if the serialiser fails. It does not recurse: the body of an error consists of strings, which always serialise.
        Err(error) => ApiError::internal(&error).into_response(),
    }
}
