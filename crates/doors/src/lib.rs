//! The wire protocols over the engine, one door each: the Responses API, the agents API, and the API that the command line uses.
//!
//! A door authenticates a request, reads it within limits, calls the engine, and writes the answer in its protocol's shape. Every field
//! that a client sends is bounded and checked here, so that no input reaches the engine that the engine would have to report as its own
//! fault.
//!
//! Doors keep no durable state; what a run does next is decided by the kernel and the engine. The Responses door does decide a few things
//! before it starts a run: which history a request continues and which manifest its run gets, which calls that an earlier response deferred
//! the run makes first, and, for a request with an `Idempotency-Key` or a turn id, which earlier run it joins. For other requests the
//! engine decides whether they repeat one, and the engine stops a run without a reader. In memory doors hold what only matters while
//! clients are connected: the counts of open requests, sockets and bytes, the failed logins of each peer, and the last responses of each
//! socket.

mod agents;
mod answer;
mod auth;
mod error;
mod hosts;
mod in_flight;
mod inbox_ids;
mod limits;
mod metrics;
mod openapi;
mod peers;
mod request;
mod requests;
mod responses;
mod shares;
mod spelling;
mod waiting;
mod windlass_api;
mod wire_reader;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{Method, StatusCode, Uri},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::sync::Semaphore;
use windlass_engine::Engine;
use windlass_ports::Sealing;

pub use auth::{Scope, Token, TokenTable, Tokens, UnknownScope};
pub use hosts::Hosts;
pub use inbox_ids::InboxIds;
pub use limits::Limits;
pub use metrics::{Configured, Metrics};
pub use peers::{BadNetwork, Network, PeerKey, PeerRules};
pub use requests::Peer;
#[doc(hidden)]
pub use responses::fuzzing;
pub use responses::{DefaultApproval, ResponsesSettings};
pub use wire_reader::WireReader;

use auth::{LoginBrake, RefusedLogins};
use error::ApiError;
use in_flight::ByteBudget;
use metrics::Scrape;
use requests::Observed;
use responses::{Holders, WireError, expect_readers, is_ours as is_responses_path};
use shares::Shares;

/// The state that every handler gets. A clone shares it, and costs no more than one counter: a request makes several.
#[derive(Clone)]
pub struct DoorState(Arc<DoorParts>);

/// What a [`DoorState`] has.
#[doc(hidden)]
#[derive(Clone)]
pub struct DoorParts {
    engine: Engine,
    tokens: TokenTable,
    limits: Limits,
    responses: ResponsesSettings,
    /// Seals data that the server hands to clients and reads back later.
    sealing: Arc<dyn Sealing>,
    holders: Holders,
    scrape: Scrape,
    refused_logins: Arc<RefusedLogins>,
    login_brake: Arc<LoginBrake>,
    /// The host names that a request may have in its `Host` header.
    hosts: Arc<Hosts>,
    /// Maps the numbers of inbox rows to the ids that clients see.
    inbox_ids: InboxIds,
    /// The rules by which the client of a connection is found, directly or behind a proxy.
    peers: Arc<PeerRules>,
    /// Permits for open WebSockets, over all tenants. A socket is no longer an HTTP connection, so the limit of connections does not count
    /// it.
    sockets: Arc<Semaphore>,
    /// The limit of the bytes that clients have in flight.
    byte_budget: Arc<ByteBudget>,
    /// Counts the open requests of each tenant and token.
    request_shares: Arc<Shares>,
    /// Counts the open sockets of each tenant and token.
    socket_shares: Arc<Shares>,
}

impl Deref for DoorState {
    type Target = DoorParts;

    fn deref(&self) -> &DoorParts {
        &self.0
    }
}

impl DoorState {
    /// The state of doors over `engine`. Clients need one of `tokens`; `sealing` seals the data that clients keep between requests.
    pub fn new(engine: Engine, tokens: Tokens, limits: Limits, sealing: Arc<dyn Sealing>) -> Self {
        let (responses, holders) = (ResponsesSettings::default(), Holders::default());
        let sockets = Arc::new(Semaphore::new(limits::SOCKETS_MAX));
        let (scrape, refused_logins) = (Scrape::new(Metrics::new(Configured::default())), Arc::default());
        DoorState(Arc::new(DoorParts {
            engine,
            tokens: TokenTable::new(tokens),
            limits,
            responses,
            sealing,
            holders,
            scrape,
            refused_logins,
            login_brake: Arc::default(),
            hosts: Arc::default(),
            inbox_ids: InboxIds::new([0; 32]),
            peers: Arc::default(),
            sockets,
            byte_budget: ByteBudget::new(limits.in_flight_bytes_max, limits.tenant_in_flight_bytes_max),
            request_shares: Shares::new("requests", limits.requests_per_tenant, limits.requests_per_token),
            socket_shares: Shares::new("sockets", limits.sockets_per_tenant, limits.sockets_per_token),
        }))
    }

    /// Changes the state before it is shared.
    fn with(mut self, change: impl FnOnce(&mut DoorParts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The table of accepted tokens. Its owner can replace the tokens while the server runs.
    pub fn tokens(&self) -> TokenTable {
        self.tokens.clone()
    }

    /// Serves `metrics` at `/metrics`. The engine and the store must report to the same `metrics`.
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        self.with(|parts| parts.scrape = Scrape::new(metrics))
    }

    /// Finds clients by the rules `peers`. Behind a proxy, `/metrics` always needs a token.
    pub fn with_peers(self, peers: PeerRules) -> Self {
        self.with(|parts| parts.peers = Arc::new(peers))
    }

    /// Refuses requests whose `Host` is not in `hosts`.
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        self.with(|parts| parts.hosts = Arc::new(hosts))
    }

    /// Computes the ids of inbox rows with `inbox_ids`. Servers on one store must share its key.
    pub fn with_inbox_ids(self, inbox_ids: InboxIds) -> Self {
        self.with(|parts| parts.inbox_ids = inbox_ids)
    }

    /// Sets how the Responses door behaves.
    pub fn with_responses(self, responses: ResponsesSettings) -> Self {
        self.with(|parts| parts.responses = responses)
    }
}

/// All doors as one service. Every path but `/healthz` and `/readyz` needs a token, also a path that does not exist; `/metrics` needs none
/// from a process on this machine.
pub fn router(state: DoorState) -> Router {
    expect_readers(&state);
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/openapi.json", get(openapi::openapi))
        .route("/metrics", get(metrics::metrics))
        .merge(agents::routes())
        .merge(responses::routes())
        .merge(windlass_api::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), admit))
        .with_state(state)
}

/// Middleware: what happens with every request before its handler, and with every answer. One layer for all of it, because each layer moves
/// the request and the future of its handler once more.
async fn admit(State(state): State<DoorState>, request: Request, next: middleware::Next) -> Response {
    let observed = Observed::begin(&request);
    let response = match hosts::refusal(&state, &request) {
        Some(refusal) => refusal,
        None => auth::authenticate(&state, request, next).await,
    };
    observed.answered(&state, response)
}

/// Limits `router` to its health checks: every other request gets 503. It serves the connections above the limit.
pub fn health_only(router: Router) -> Router {
    async fn only_health(request: Request, next: middleware::Next) -> Response {
        if auth::OPEN_PATHS.contains(&request.uri().path()) {
            return next.run(request).await;
        }
        let message = "as many connections are open as may be open, of this client or of all; try again later";
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "connections_full", message).retry_after(1);
        in_dialect(request.uri(), error)
    }
    router.layer(middleware::from_fn(only_health))
}

async fn healthz(State(state): State<DoorState>) -> Result<Response, ApiError> {
    match state.engine.is_ready() {
        true => Ok(answer::ok(&json!({ "status": "ok" }))),
        false => Err(ApiError::starting()),
    }
}

async fn readyz(State(state): State<DoorState>) -> Result<Response, ApiError> {
    match (state.engine.is_ready(), state.engine.is_draining()) {
        (_, true) => Err(ApiError::draining()),
        (false, false) => Err(ApiError::starting()),
        (true, false) => Ok(answer::ok(&json!({ "status": "ready" }))),
    }
}

async fn unknown_path(uri: Uri) -> Response {
    if uri.path() == CHAT_COMPLETIONS {
        return chat_completions().into_response();
    }
    let message = format!("there is nothing at {}", spelling::shortened(uri.path()));
    let Some(meant) = with_version(uri.path()) else { return in_dialect(&uri, ApiError::not_found("unknown_path", message)) };
    let message = format!("{message}; did you mean {}? The base URL of this API ends in /v1", spelling::shortened(&meant));
    let error = ApiError::not_found("unknown_path", message);
    match is_responses_path(&meant) || meant == CHAT_COMPLETIONS {
        true => WireError::from(error).into_response(),
        false => error.into_response(),
    }
}

/// The path that was probably meant, if the base URL of the client lacks `/v1`.
fn with_version(path: &str) -> Option<String> {
    const FIRST: [&str; 7] = ["responses", "conversations", "models", "chat", "agents", "tools", "windlass"];
    let first = path.trim_start_matches('/').split('/').next()?;
    FIRST.contains(&first).then(|| format!("/v1/{}", path.trim_start_matches('/')))
}

/// The path of OpenAI's Chat Completions protocol, which this server does not serve.
const CHAT_COMPLETIONS: &str = "/v1/chat/completions";

fn chat_completions() -> WireError {
    let message = "this server does not serve Chat Completions yet; send the request as POST /v1/responses (in OpenAI's SDKs \
        client.responses.create, in the Agents SDK set_default_openai_api(\"responses\"))";
    WireError::not_found(message).with_code("chat_completions_not_served")
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    in_dialect(&uri, ApiError::wrong_method(format!("{} does not take {method}", spelling::shortened(uri.path()))))
}

/// The error as an answer in the shape that the door of the path uses.
fn in_dialect(uri: &Uri, error: ApiError) -> Response {
    match is_responses_path(uri.path()) {
        true => WireError::from(error).into_response(),
        false => error.into_response(),
    }
}
