//! Extractors for the names and ids in a path.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use windlass_kernel::{AgentKey, AgentName, ToolName};

use crate::{DoorState, auth::Caller, error::ApiError, limits::AGENT_CHARS_MAX};

/// The agent that the path names, in the caller's tenant. A token that is restricted to named agents is refused here for all others.
pub(crate) struct AgentPath(pub AgentKey);

impl FromRequestParts<DoorState> for AgentPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &DoorState) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let name = segment(parts, state).await.filter(|name| is_agent_name(name));
        let name = name.ok_or_else(|| {
            let message = format!("an agent's name has 1 to {AGENT_CHARS_MAX} characters out of A-Z a-z 0-9 . _ -");
            ApiError::bad("bad_agent", message)
        })?;
        let agent = AgentName::from(name.as_str());
        caller.needs_agent(&agent)?;
        Ok(AgentPath(AgentKey { tenant: caller.tenant().clone(), agent }))
    }
}

/// The tool that the path names. The engine checks whether it exists.
pub(crate) struct ToolPath(pub ToolName);

impl FromRequestParts<DoorState> for ToolPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &DoorState) -> Result<Self, ApiError> {
        let name = segment(parts, state).await;
        name.map(|name| ToolPath(name.as_str().into())).ok_or_else(|| ApiError::not_found("unknown_tool", "there is no such tool"))
    }
}

/// An id in a path. `None` if it is malformed; handlers answer that like an unknown id.
pub(crate) struct IdPath<T>(pub Option<T>);

impl<T: FromStr + Send> FromRequestParts<DoorState> for IdPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &DoorState) -> Result<Self, ApiError> {
        Ok(IdPath(segment(parts, state).await.and_then(|text| text.parse().ok())))
    }
}

/// The only variable segment of the path. `None` if it does not decode to UTF-8.
async fn segment(parts: &mut Parts, state: &DoorState) -> Option<String> {
    Path::<String>::from_request_parts(parts, state).await.ok().map(|Path(text)| text)
}

fn is_agent_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=AGENT_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}
