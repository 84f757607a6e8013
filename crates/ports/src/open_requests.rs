//! Create requests whose client has no answer on record. They decide whether a repeated request joins the run of the first one.

use windlass_kernel::{RunId, Tenant, Timestamp};

use crate::store::NodeId;

/// SHA-256 of a create request's canonical body and of its token: equal for a request and its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestHash(pub [u8; 32]);

/// A create request whose client has no answer on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The tenant of the request's token.
    pub tenant: Tenant,
    /// Identifies the request.
    pub hash: RequestHash,
    /// The run that the request started.
    pub run: RunId,
    /// The server process that the client reads from.
    pub node: NodeId,
    /// When the client closed its connection before it had its answer. `None` while it reads, or if its server was lost first.
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

/// What became of the client of an open request. It counts only while the request still belongs to `request.node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderRecord {
    /// The request, as its server knows it; its `left_at` is not read.
    pub request: OpenRequest,
    /// What became of the client.
    pub outcome: ReaderOutcome,
}

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderOutcome {
    /// The client has its answer, or nothing can join the request any more: the request is forgotten.
    Closed,
    /// The client closed its connection before it had its answer.
    Left(Timestamp),
}
