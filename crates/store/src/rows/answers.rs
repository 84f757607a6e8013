//! The statements about what requests with a key were told.

use windlass_kernel::{CallNumber, RunId, Tenant};
use windlass_ports::{MessageId, RequestKey, codec};

use super::Outcome;

/// What a request was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRow {
    /// Whose request it was.
    pub tenant: Tenant,
    /// The hash of its key.
    pub key: String,
    /// A hash of it.
    pub asked: [u8; 16],
    /// The run it was about, with which this is erased.
    pub run: RunId,
    /// Its inbox row.
    pub message: Option<MessageId>,
    /// Calls that the asker did not hold any more.
    pub lost: Vec<(RunId, CallNumber)>,
}

impl AnswerRow {
    /// The record of a request with a key, about a run.
    pub fn new(tenant: &Tenant, request: &RequestKey, run: RunId) -> Self {
        let key = codec::key_hash(tenant, &request.key);
        AnswerRow { tenant: tenant.clone(), key, asked: request.asked, run, message: None, lost: Vec::new() }
    }
}

/// Calls as a database keeps them: sixteen bytes for the run and four for the number, one after the other.
pub fn pack_calls(calls: &[(RunId, CallNumber)]) -> Vec<u8> {
    calls.iter().flat_map(|(run, call)| run.as_bytes().iter().copied().chain(call.0.to_be_bytes())).collect()
}

/// The same, read.
pub fn unpack_calls(bytes: &[u8]) -> Vec<(RunId, CallNumber)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes).map(CallNumber);
    bytes.chunks_exact(20).filter_map(|call| Some((RunId::from_slice(&call[..16])?, number(&call[16..])?))).collect()
}

/// What a database can be asked about requests with a key.
pub trait AnswerReads {
    /// What the request was told whose key has this hash.
    fn answer(&self, tenant: &Tenant, key: &str) -> Outcome<Option<AnswerRow>>;

    /// What a request with the key of this one was answered.
    fn answer_to(&self, tenant: &Tenant, request: &RequestKey) -> Outcome<Option<AnswerRow>> {
        self.answer(tenant, &codec::key_hash(tenant, &request.key))
    }
}

/// What a database can be told about requests with a key.
pub trait AnswerRows: AnswerReads {
    /// Stores what a request was told.
    fn insert_answer(&mut self, row: &AnswerRow) -> Outcome<()>;
}
