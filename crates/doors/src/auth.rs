//! Authentication and authorisation. The tenant of a request comes from its token and from nowhere else.

mod brake;
mod refused;
mod scope;
mod tokens;

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use windlass_kernel::{AgentName, Tenant, Timestamp, ToolName};

pub(crate) use brake::LoginBrake;
pub(crate) use refused::RefusedLogins;
pub use scope::{Scope, UnknownScope};
pub use tokens::{Token, TokenTable, Tokens};

use crate::{DoorState, error::ApiError, in_flight::RequestBytes, requests::Peer, spelling::moment};

/// The paths that need no token.
pub(crate) const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The path that processes on this machine may read without a token.
const METRICS_PATH: &str = "/metrics";

/// Lets a request through if its token is known and its tenant is within its limits, and gives the handlers its [`Caller`].
pub(crate) async fn authenticate(state: &DoorState, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    if OPEN_PATHS.contains(&request.uri().path()) || is_local_scrape(state, &request, peer) {
        return next.run(request).await;
    }
    match find(&state.tokens, request.headers(), state.engine.now()) {
        Ok(token) => {
            let caller = Caller(token);
            if let Err(error) = state.engine.admit_request(caller.tenant()) {
                return crate::in_dialect(request.uri(), error.into());
            }
            let share = match state.request_shares.take(&caller) {
                Ok(share) => share,
                Err(error) => return crate::in_dialect(request.uri(), error),
            };
            // The bytes of the body count until the answer begins, even if a handler has moved the body elsewhere.
            let bytes = RequestBytes::new(state.byte_budget.lease(caller.tenant()));
            request.extensions_mut().insert(bytes.clone());
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            drop(bytes);
            response.extensions_mut().insert(Arc::new(share));
            response
        }
        Err(refused) => {
            let error = refuse(state, request.headers(), peer, refused).await;
            crate::in_dialect(request.uri(), error)
        }
    }
}

/// Logs a refused login, and delays the answer to a peer that has sent many wrong tokens.
async fn refuse(state: &DoorState, headers: &HeaderMap, peer: Option<Peer>, refused: Refused) -> ApiError {
    let client = peer.and_then(|peer| state.peers.client(peer.0.ip(), headers));
    let forwarded = client.filter(|_| state.peers.behind_proxy);
    let (Refused::NoToken(error) | Refused::WrongToken(error)) = &refused;
    state.refused_logins.log(peer.map(|peer| peer.0), forwarded, error.message());
    match (refused, client) {
        (Refused::WrongToken(error), Some(client)) => match state.login_brake.slow(client).await {
            Ok(()) => error,
            Err(brake::Overrun(seconds)) => {
                let message = "this address has shown too many wrong tokens; try again later";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_tokens", message).retry_after(seconds)
            }
        },
        (Refused::NoToken(error) | Refused::WrongToken(error), _) => error,
    }
}

/// Whether a process on this machine reads the metrics without a token. Never behind a proxy, where every client seems to be on this
/// machine.
fn is_local_scrape(state: &DoorState, request: &Request, peer: Option<Peer>) -> bool {
    let is_local = peer.is_some_and(Peer::is_loopback) && !state.peers.behind_proxy;
    is_local && request.uri().path() == METRICS_PATH && !request.headers().contains_key(header::AUTHORIZATION)
}

/// Why a request is refused.
enum Refused {
    /// The request has no token, or a malformed one.
    NoToken(ApiError),
    /// The token is not accepted. It may be a guess, so it counts for the login brake.
    WrongToken(ApiError),
}

fn find(tokens: &TokenTable, headers: &HeaderMap, now: Timestamp) -> Result<Arc<Token>, Refused> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        let error = ApiError::unauthorized("a bearer token is needed").hint(Some("Authorization: Bearer <token>".to_owned()));
        return Err(Refused::NoToken(error));
    };
    let is_only = given.next().is_none();
    let presented = bearer(value.as_bytes()).filter(|_| is_only);
    let malformed = || Refused::NoToken(ApiError::unauthorized("the Authorization header is not one bearer token"));
    current(tokens.find(presented.ok_or_else(malformed)?), now).map_err(Refused::WrongToken)
}

/// The token, if it is known and has not expired.
fn current(token: Option<Arc<Token>>, now: Timestamp) -> Result<Arc<Token>, ApiError> {
    let token = token.ok_or_else(|| ApiError::unauthorized("this token is not known here"))?;
    match token.expires {
        Some(expires) if expires <= now => Err(ApiError::unauthorized(format!("this token expired at {}", moment(expires)))),
        Some(_) | None => Ok(token),
    }
}

/// The token in an `Authorization` value. The case of `Bearer` does not matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

/// The name that the tool service gave its worker, from the holder's name that [`Caller::worker`] made of it.
pub(crate) fn worker_of(holder: &str) -> &str {
    holder.split_once('/').map_or(holder, |(_, name)| name)
}

/// The authenticated sender of a request, with the rights of its token.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Token>);

impl Caller {
    pub fn tenant(&self) -> &Tenant {
        &self.0.tenant
    }

    /// The same caller by the tokens that are accepted now. A WebSocket can outlive its token: the token may have expired since, or have
    /// been removed from the configuration. Both are errors.
    pub fn renewed(&self, state: &DoorState) -> Result<Self, ApiError> {
        current(state.tokens.find_hash(&self.0.hash), state.engine.now()).map(Caller)
    }

    /// The name of the token, as it is recorded with requests and decisions.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// A caller without any rights.
    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self::for_tests_with(0, "t")
    }

    /// A caller without any rights, of this tenant, whose token has this byte for a hash.
    #[cfg(test)]
    pub fn for_tests_with(byte: u8, tenant: &str) -> Self {
        let (hash, tenant, name) = ([byte; 32], tenant.into(), "t".into());
        Caller(Arc::new(Token { hash, tenant, scopes: Vec::new(), name, standard_status: None, expires: None }))
    }

    pub fn token_hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// Whether this token's clients get the status `completed` for a response that waits for them. `None` if the token does not say.
    pub fn standard_status(&self) -> Option<bool> {
        self.0.standard_status
    }

    /// The name under which this token's worker claims calls. It contains a mark of the token: workers of two tokens with the same name are
    /// different workers.
    pub fn worker(&self, name: &str) -> String {
        format!("{}/{name}", self.mark())
    }

    /// Whether a worker of this token made a claim under the name `holder`.
    pub fn holds(&self, holder: &str) -> bool {
        holder.split_once('/').is_some_and(|(mark, _)| mark == self.mark())
    }

    /// The beginning of the token's hash, which tells tokens apart in stored names without revealing them.
    fn mark(&self) -> String {
        self.0.hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether one of the token's scopes covers this one.
    pub fn may(&self, scope: &Scope) -> bool {
        self.0.scopes.iter().any(|own| own.covers(scope))
    }

    /// Whether the token may claim and report the calls of some tool.
    pub fn serves_tools(&self) -> bool {
        self.0.scopes.iter().any(Scope::is_about_tools)
    }

    /// Whether the token may use the agent, tool or server that `named` names. A token without any scope of that kind may use all that its
    /// tenant may.
    pub fn may_use(&self, named: &Scope) -> bool {
        let mut restricting = self.0.scopes.iter().filter(|scope| scope.restricts_use()).peekable();
        restricting.peek().is_none() || restricting.any(|scope| scope == named)
    }

    /// Whether the token may use only what its scopes name.
    pub fn is_restricted(&self) -> bool {
        self.0.scopes.iter().any(Scope::restricts_use)
    }

    /// Refuses an agent, tool or server that the token's scopes do not name. Only the name decides, so that the answer does not reveal what
    /// exists.
    pub fn needs_use(&self, named: &Scope) -> Result<(), ApiError> {
        if self.may_use(named) { Ok(()) } else { Err(ApiError::forbidden(&named.to_string())) }
    }

    /// Refuses an agent that the token's scopes do not name.
    pub fn needs_agent(&self, agent: &AgentName) -> Result<(), ApiError> {
        self.needs_use(&Scope::UseAgent(agent.clone()))
    }

    /// Refuses a configured tool or tool server that the token's scopes do not name. The refusal does not reveal which of the two has this
    /// name.
    pub fn needs_tool(&self, state: &DoorState, name: &ToolName) -> Result<(), ApiError> {
        let (tool, server) = (Scope::UseTool(name.clone()), Scope::UseServer(name.to_string()));
        let named = if state.engine.configured_server(self.tenant(), name).is_some() { &server } else { &tool };
        if self.may_use(named) { Ok(()) } else { Err(ApiError::forbidden(&format!("{tool} or {server}"))) }
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
