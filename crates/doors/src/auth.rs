//! Who is asking, and what they may do. The tenant comes from the token and from nowhere else.

mod refused;
mod scope;
mod tokens;

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::Response,
};
use windlass_kernel::Tenant;

pub(crate) use refused::RefusedLogins;
pub use scope::{Scope, UnknownScope};
pub use tokens::{Token, Tokens};

use crate::{DoorState, error::ApiError, requests::Peer};

/// The paths that need no token.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The path that processes of this machine need no token for.
const METRICS_PATH: &str = "/metrics";

/// Lets a request through whose token is known, and tells the handlers whose it is.
pub(crate) async fn authenticate(State(state): State<DoorState>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    if OPEN_PATHS.contains(&request.uri().path()) || is_local_scrape(&state, &request, peer) {
        return next.run(request).await;
    }
    match find(&state.tokens, request.headers()) {
        Ok(token) => {
            request.extensions_mut().insert(Caller(token));
            next.run(request).await
        }
        Err(error) => {
            state.refused_logins.log(peer.map(|peer| peer.0), error.message());
            crate::in_dialect(request.uri(), error)
        }
    }
}

/// Whether a process of this machine asks for the metrics without a token. Behind a proxy every client seems to be one.
fn is_local_scrape(state: &DoorState, request: &Request, peer: Option<Peer>) -> bool {
    let is_local = peer.is_some_and(Peer::is_loopback) && !state.behind_proxy;
    is_local && request.uri().path() == METRICS_PATH && !request.headers().contains_key(header::AUTHORIZATION)
}

fn find(tokens: &Tokens, headers: &HeaderMap) -> Result<Arc<Token>, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Err(ApiError::unauthorized("a bearer token is needed").hint(Some("Authorization: Bearer <token>".to_owned())));
    };
    let is_only = given.next().is_none();
    let presented = bearer(value.as_bytes()).filter(|_| is_only);
    let presented = presented.ok_or_else(|| ApiError::unauthorized("the Authorization header is not one bearer token"))?;
    tokens.find(presented).ok_or_else(|| ApiError::unauthorized("this token is not known here"))
}

/// What stands after `Bearer`, however that is capitalised.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

/// The worker's own name in what `Caller::worker` made.
pub(crate) fn worker_of(holder: &str) -> &str {
    holder.split_once('/').map_or(holder, |(_, name)| name)
}

/// Whoever asks.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Token>);

impl Caller {
    pub fn tenant(&self) -> &Tenant {
        &self.0.tenant
    }

    /// Who it is, for the record.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// A caller without any rights.
    #[cfg(test)]
    pub fn for_tests() -> Self {
        let token = Token { hash: [0; 32], tenant: "t".into(), scopes: Vec::new(), name: "t".into(), standard_status: None };
        Caller(Arc::new(token))
    }

    /// The SHA-256 of the token.
    pub fn token_hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// How a response is called that waits for this token's holder, if that is decided for the token.
    pub fn standard_status(&self) -> Option<bool> {
        self.0.standard_status
    }

    /// A worker of this token's, as a hold on calls names it: another token's worker of the same name is another worker.
    pub fn worker(&self, name: &str) -> String {
        format!("{}/{name}", self.mark())
    }

    /// Whether a hold is this token's.
    pub fn holds(&self, holder: &str) -> bool {
        holder.split_once('/').is_some_and(|(mark, _)| mark == self.mark())
    }

    /// What tells tokens apart on record; it says nothing about the token itself.
    fn mark(&self) -> String {
        self.0.hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether one of the token's scopes covers this one.
    pub fn may(&self, scope: &Scope) -> bool {
        self.0.scopes.iter().any(|held| held.covers(scope))
    }

    /// Whether the token is a tool service's, for whichever tool.
    pub fn serves_tools(&self) -> bool {
        self.0.scopes.iter().any(Scope::is_about_tools)
    }

    /// Refuses unless the token has this scope.
    pub fn needs(&self, scope: &Scope) -> Result<(), ApiError> {
        self.needs_one_of(std::slice::from_ref(scope))
    }

    /// Refuses unless the token has one of these scopes.
    pub fn needs_one_of(&self, scopes: &[Scope]) -> Result<(), ApiError> {
        if scopes.iter().any(|scope| self.may(scope)) {
            return Ok(());
        }
        let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
        Err(ApiError::forbidden(&names.join(" or ")))
    }
}

impl FromRequestParts<DoorState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &DoorState) -> Result<Self, ApiError> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| ApiError::unauthorized("a bearer token is needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_found_behind_its_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"bearer  abc "), Some(b"abc".as_slice()));
        for value in [b"".as_slice(), b"Bearer", b"Bearer ", b"Basic abc", b"abc", b"Bearerabc"] {
            assert_eq!(bearer(value), None, "{value:?}");
        }
    }
}
