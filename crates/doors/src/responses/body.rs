//! Extractors of this door, and the conversion of other errors into its format.

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::request::Parts,
};
use bytes::Bytes;
use windlass_engine::{EngineError, PROMPT_TOO_LARGE};
use windlass_ports::StoreError;

use super::{error::WireError, reader::ReadError};
use crate::{DoorState, error::ApiError, request::JsonBody};

/// The bytes of a body; errors have this door's format.
pub(super) struct WireBody(pub Bytes);

impl FromRequest<DoorState> for WireBody {
    type Rejection = WireError;

    async fn from_request(request: Request, state: &DoorState) -> Result<Self, WireError> {
        Ok(WireBody(JsonBody::from_request(request, state).await?.0))
    }
}

/// The id in a path. An id that is not UTF-8 is not found.
pub(super) struct WireId(pub String);

impl FromRequestParts<DoorState> for WireId {
    type Rejection = WireError;

    async fn from_request_parts(parts: &mut Parts, state: &DoorState) -> Result<Self, WireError> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        id.map(|Path(id)| WireId(id)).map_err(|_| WireError::not_found("the id in the path is not UTF-8 text, so nothing has it"))
    }
}

/// The two ids in a path, such as those of a conversation and an item.
pub(super) struct WireIds(pub String, pub String);

impl FromRequestParts<DoorState> for WireIds {
    type Rejection = WireError;

    async fn from_request_parts(parts: &mut Parts, state: &DoorState) -> Result<Self, WireError> {
        let ids = Path::<(String, String)>::from_request_parts(parts, state).await;
        ids.map(|Path((first, second))| WireIds(first, second))
            .map_err(|_| WireError::not_found("an id in the path is not UTF-8 text, so nothing has it"))
    }
}

impl From<ApiError> for WireError {
    fn from(error: ApiError) -> Self {
        let (status, code, message, retry_after_s) = error.into_parts();
        let retry = retry_after_s.unwrap_or(1);
        match status.as_u16() {
            401 => WireError::unauthorized(message),
            403 => WireError::forbidden(message),
            404 => WireError::not_found(message),
            405 => WireError::wrong_method(message),
            408 => WireError::timed_out(message),
            409 => WireError::conflict(code, message),
            413 if code == PROMPT_TOO_LARGE => WireError::prompt_too_large(message),
            413 => WireError::too_large(message),
            415 => WireError::unsupported_media(message),
            429 if code == "insufficient_quota" => WireError::too_many(code, message, retry),
            429 => WireError::too_many("rate_limit_exceeded", message, retry),
            503 => WireError::unavailable(code, message, retry),
            500.. => WireError::internal(&message),
            _ => WireError::bad(code, message),
        }
    }
}

impl From<EngineError> for WireError {
    fn from(error: EngineError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<ReadError> for WireError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone => WireError::not_found(error.to_string()),
            ReadError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for WireError {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}
