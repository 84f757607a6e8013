//! The statements about open requests.

use windlass_kernel::Tenant;
use windlass_ports::{OpenRequest, ReaderRecord, RequestHash};

use super::Outcome;

/// What can be read about open requests.
pub trait RequestReads {
    /// The open requests that have a hash, those of the oldest runs first.
    fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Outcome<Vec<OpenRequest>>;
}

/// What a verb can write about open requests.
pub trait RequestRows {
    /// Stores an open request.
    fn insert_request(&mut self, request: &OpenRequest) -> Outcome<()>;
    /// Stores what became of a request's client. A request that is not there, or belongs to another node, is left alone.
    fn record_reader(&mut self, record: &ReaderRecord) -> Outcome<()>;
}
