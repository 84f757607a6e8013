//! The Responses door: OpenAI's Responses API over the engine's runs.
//!
//! A response is a run, and its event stream is a projection of the run's journal. This door stores only a note with the fields of the
//! request that the response object repeats. `docs/responses.md` lists the decisions for cases where the protocol and the engine disagree.

mod answered;
mod approval;
mod approval_answers;
mod body;
mod chain;
mod compact;
mod compaction;
mod conversations;
mod create;
mod deferred_calls;
mod error;
mod expected;
mod failed;
pub mod fuzzing;
mod header;
mod hosted;
mod items;
mod join;
mod manifest;
mod models;
mod note;
mod object;
mod project;
mod reader;
mod request;
mod request_identity;
mod restore_history;
mod retrieve;
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
pub(crate) use header::header;
pub(crate) use socket::Holders;

use crate::DoorState;

/// The operator's settings for this door.
#[derive(Clone, Copy, Debug)]
pub struct ResponsesSettings {
    /// Whether a response that waits for the client has the status `completed` instead of `requires_action`.
    pub standard_status: bool,
    /// How long after its end a response with `store: false` is erased.
    pub erase_ms: u64,
    /// How long a stream may be silent before the server sends a heartbeat.
    pub heartbeat_ms: u64,
    /// How long a socket may be open. A response in flight at that time is still streamed to its end.
    pub socket_ms: u64,
    /// Whether calls to a server that a request declares need approval if the request does not set `require_approval`.
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

/// Whether requests to this path get this door's error format.
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

/// Whether a run's note was written by this door, which makes the run a response.
pub(crate) fn is_response(note: &[u8]) -> bool {
    note::Note::read(note).is_some()
}
