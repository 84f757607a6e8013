//! The wire dialects over the engine: the agents door, and what the command line needs.
//!
//! A door reads a request, asks the engine, and spells the answer. It decides nothing about runs and stores nothing of its
//! own. Everything a client sends is bounded and checked here, so that no input can reach the engine that the engine would
//! have to call its own fault.

mod agents;
mod answer;
mod auth;
mod error;
mod limits;
mod metrics;
mod openapi;
mod request;
mod requests;
mod responses;
mod spelling;
mod waiting;
mod windlass_api;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{Method, Uri},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::sync::Semaphore;
use windlass_engine::Engine;
use windlass_ports::Sealing;

pub use auth::{Scope, Token, Tokens, UnknownScope};
pub use limits::Limits;
pub use metrics::{Configured, Metrics};
pub use requests::Peer;
pub use responses::ResponsesSettings;
#[doc(hidden)]
pub use responses::fuzzing;

use auth::RefusedLogins;
use error::ApiError;
use metrics::Scrape;
use responses::{Holders, WireError, expect_readers, is_ours as is_responses_path};

/// What every handler has at hand. Cheap to clone.
#[derive(Clone)]
pub struct DoorState {
    engine: Engine,
    tokens: Arc<Tokens>,
    limits: Limits,
    responses: ResponsesSettings,
    /// Seals what clients keep for us.
    sealing: Arc<dyn Sealing>,
    holders: Holders,
    scrape: Scrape,
    refused_logins: Arc<RefusedLogins>,
    /// Whether a proxy stands in front, so that a peer's address says nothing about the client.
    behind_proxy: bool,
    /// Places for sockets. One that is open is no connection to the server any more, and not counted with them.
    sockets: Arc<Semaphore>,
}

impl DoorState {
    /// Doors over this engine, for whoever holds one of these tokens.
    pub fn new(engine: Engine, tokens: Tokens, limits: Limits, sealing: Arc<dyn Sealing>) -> Self {
        let (responses, holders) = (ResponsesSettings::default(), Holders::default());
        let sockets = Arc::new(Semaphore::new(limits::SOCKETS_MAX));
        let (scrape, refused_logins) = (Scrape::new(Metrics::new(Configured::default())), Arc::default());
        DoorState {
            engine,
            tokens: Arc::new(tokens),
            limits,
            responses,
            sealing,
            holders,
            scrape,
            refused_logins,
            behind_proxy: false,
            sockets,
        }
    }

    /// The same with these metrics, which the engine and the store report to.
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        DoorState { scrape: Scrape::new(metrics), ..self }
    }

    /// The same behind a proxy or not: behind one, `/metrics` always needs a token.
    pub fn behind_proxy(self, behind_proxy: bool) -> Self {
        DoorState { behind_proxy, ..self }
    }

    /// The same, with these decisions about the Responses door.
    pub fn with_responses(self, responses: ResponsesSettings) -> Self {
        DoorState { responses, ..self }
    }
}

/// All doors as one service. Everything but `/healthz` and `/readyz` needs a token, unknown paths included; `/metrics`
/// needs none from this machine.
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
        .layer(middleware::from_fn_with_state(state.clone(), auth::authenticate))
        .layer(middleware::from_fn_with_state(state.clone(), requests::observe))
        .with_state(state)
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

/// The path that a client means whose base URL lacks the version.
fn with_version(path: &str) -> Option<String> {
    const FIRST: [&str; 7] = ["responses", "conversations", "models", "chat", "agents", "tools", "windlass"];
    let first = path.trim_start_matches('/').split('/').next()?;
    FIRST.contains(&first).then(|| format!("/v1/{}", path.trim_start_matches('/')))
}

/// Where clients of another protocol than ours post.
const CHAT_COMPLETIONS: &str = "/v1/chat/completions";

fn chat_completions() -> WireError {
    let message = "this server does not serve Chat Completions yet; send the request as POST /v1/responses (in OpenAI's SDKs \
        client.responses.create, in the Agents SDK set_default_openai_api(\"responses\"))";
    WireError::not_found(message).named("chat_completions_not_served")
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    in_dialect(&uri, ApiError::wrong_method(format!("{} does not take {method}", spelling::shortened(uri.path()))))
}

/// A refusal in the shape that the path's door gives it.
fn in_dialect(uri: &Uri, error: ApiError) -> Response {
    match is_responses_path(uri.path()) {
        true => WireError::from(error).into_response(),
        false => error.into_response(),
    }
}
