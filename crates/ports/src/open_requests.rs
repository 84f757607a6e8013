//! Open requests: create requests whose client has no recorded answer. They decide whether a repeated request joins the run of the first
//! one.

use windlass_kernel::{RunId, Tenant, Timestamp};

use crate::store::NodeId;

/// SHA-256 of a create request's canonical body and of its token: equal for a request and its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestHash(pub [u8; 32]);

/// A create request whose client has no recorded answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The tenant of the request's token.
    pub tenant: Tenant,
    /// The hash that identifies the request.
    pub hash: RequestHash,
    /// The run that the request started.
    pub run: RunId,
    /// The server process that the client reads from.
    pub node: NodeId,
    /// When the client closed its connection before it had its answer. `None` while it reads, and if its server was lost first.
    pub left_at: Option<Timestamp>,
}

/// An open request whose server process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRequest {
    /// The request.
    pub request: OpenRequest,
    /// When its server gave its last heartbeat, as far as the store knows.
    pub lost_at: Timestamp,
}

/// What happened to the client of an open request. It only has an effect while the request still belongs to `request.node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderRecord {
    /// The request, as its server knows it. Its `left_at` is not read.
    pub request: OpenRequest,
    /// What happened to the client.
    pub outcome: ReaderOutcome,
}

/// What happened to the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderOutcome {
    /// The client has its answer, or no request can join the run any more: the open request is deleted.
    Closed,
    /// The client closed its connection before it had its answer.
    Left(Timestamp),
}
