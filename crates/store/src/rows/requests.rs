//! The statements about open requests.

use windlass_kernel::Tenant;
use windlass_ports::{OpenRequest, ReaderRecord, RequestHash};

use super::Result;

/// The reads of open requests.
pub trait RequestReads {
    /// The open requests with this hash, those of the oldest runs first.
    fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>>;
}

/// The writes of open requests.
pub trait RequestRows {
    /// Stores an open request.
    fn insert_request(&mut self, request: &OpenRequest) -> Result<()>;
    /// Stores what happened to a request's client. A request that does not exist or belongs to another node is left as it is.
    fn record_reader(&mut self, record: &ReaderRecord) -> Result<()>;
}
