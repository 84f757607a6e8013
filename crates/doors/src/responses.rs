//! The Responses door: the loop of runs as OpenAI's clients speak to it.
//!
//! A response is a run, and its stream a projection of the run's journal: this door stores nothing but what it has to repeat of
//! the request. Where the protocol and the engine disagree, `docs/responses.md` says what was decided.

mod answered;
mod approval;
mod body;
mod chain;
mod compact;
mod compaction;
mod conversations;
mod create;
mod error;
mod expected;
mod failed;
pub mod fuzzing;
mod hosted;
mod items;
mod join;
mod left;
mod manifest;
mod models;
mod note;
mod object;
mod project;
mod reader;
mod recall;
mod request;
mod retrieve;
mod said;
mod socket;
mod stream;
mod tokens;
mod wire;

use axum::{
    Router,
    routing::{get, post},
};

pub use approval::DefaultApproval;
pub(crate) use error::WireError;
pub(crate) use expected::expect_readers;
pub(crate) use socket::Holders;

use crate::DoorState;

/// What an operator decides about this door.
#[derive(Clone, Copy, Debug)]
pub struct ResponsesSettings {
    /// Whether a response that waits for the client is called `completed`.
    pub standard_status: bool,
    /// How long after its end a response is erased that was not to be stored.
    pub erase_ms: u64,
    /// How long a stream may be silent before it gives a sign of life.
    pub heartbeat_ms: u64,
    /// How long a socket may be open; the response in flight is told to its end.
    pub socket_ms: u64,
    /// Whether calls of a server that a request declares need approval where the request does not say.
    pub default_approval: DefaultApproval,
}

impl Default for ResponsesSettings {
    fn default() -> Self {
        ResponsesSettings {
            standard_status: false,
            erase_ms: 60_000,
            heartbeat_ms: 15_000,
            socket_ms: 3_600_000,
            default_approval: DefaultApproval::default(),
        }
    }
}

/// The paths that speak this door's dialect, errors included.
pub(crate) fn is_ours(path: &str) -> bool {
    let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    under("/v1/responses") || under("/v1/models") || under("/v1/conversations")
}

pub(crate) fn routes() -> Router<DoorState> {
    Router::new()
        .route("/v1/responses", get(socket::open).post(create::create))
        .route("/v1/responses/compact", post(compact::compact))
        .route("/v1/responses/input_tokens", post(tokens::count))
        .route("/v1/responses/{id}", get(retrieve::retrieve).delete(retrieve::delete))
        .route("/v1/responses/{id}/cancel", post(retrieve::cancel))
        .route("/v1/responses/{id}/input_items", get(retrieve::input_items))
        .merge(conversations::routes())
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::retrieve))
}

/// Whether a run's note is one of this API: then the run is a response.
pub(crate) fn is_response(note: &[u8]) -> bool {
    note::Note::read(note).is_some()
}
