//! The statements about recorded answers to requests with an idempotency key.

use windlass_kernel::{CallNumber, RunId, Tenant};
use windlass_ports::{MessageId, RequestKey, codec};

use super::Result;

/// The recorded answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRow {
    /// The tenant that made the request.
    pub tenant: Tenant,
    /// The hash of its key.
    pub key: String,
    /// The hash of the request.
    pub asked: [u8; 16],
    /// The run that the request is about. The answer is erased with it.
    pub run: RunId,
    /// The inbox row that the request made.
    pub message: Option<MessageId>,
    /// Calls that the worker did not hold any more.
    pub lost: Vec<(RunId, CallNumber)>,
}

impl AnswerRow {
    /// The answer to a request about a run.
    pub fn new(tenant: &Tenant, request: &RequestKey, run: RunId) -> Self {
        let key = codec::key_hash(tenant, &request.key);
        AnswerRow { tenant: tenant.clone(), key, asked: request.asked, run, message: None, lost: Vec::new() }
    }
}

/// Encodes calls as a database keeps them: sixteen bytes for the run and four for the number of each.
pub fn pack_calls(calls: &[(RunId, CallNumber)]) -> Vec<u8> {
    calls.iter().flat_map(|(run, call)| run.as_bytes().iter().copied().chain(call.0.to_be_bytes())).collect()
}

/// Decodes what `pack_calls` made.
pub fn unpack_calls(bytes: &[u8]) -> Vec<(RunId, CallNumber)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes).map(CallNumber);
    bytes.chunks_exact(20).filter_map(|call| Some((RunId::from_slice(&call[..16])?, number(&call[16..])?))).collect()
}

/// The reads of recorded answers.
pub trait AnswerReads {
    /// The answer to the request whose key has this hash.
    fn answer(&self, tenant: &Tenant, key: &str) -> Result<Option<AnswerRow>>;

    /// The answer to the request with the same key as this one.
    fn answer_to(&self, tenant: &Tenant, request: &RequestKey) -> Result<Option<AnswerRow>> {
        self.answer(tenant, &codec::key_hash(tenant, &request.key))
    }
}

/// The writes of recorded answers.
pub trait AnswerRows: AnswerReads {
    /// Stores an answer.
    fn insert_answer(&mut self, row: &AnswerRow) -> Result<()>;
}
