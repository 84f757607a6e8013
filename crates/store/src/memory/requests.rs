//! Open requests in memory.

use windlass_kernel::{Tenant, Timestamp};
use windlass_ports::{LostRequest, NodeId, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};

use super::writes::{MemoryRows, must};
use crate::rows::{Reads, RequestReads, RequestRows, Result};

impl RequestReads for MemoryRows {
    fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>> {
        let all = self.requests.range(..).map(|(_, request)| request);
        Ok(all.filter(|request| request.tenant == *tenant && request.hash == hash).cloned().collect())
    }
}

impl MemoryRows {
    pub(super) fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>> {
        let mut lost = Vec::new();
        for (_, request) in self.requests.range(..) {
            if request.node != node && !self.lives(request.node)? && lost.len() < limit {
                // The store does not record when a node was lost. With the earliest possible time, every end counts as recent.
                let lost_at = self.runs.get(&request.run).map_or(Timestamp(0), |run| run.created_at);
                lost.push(LostRequest { request: request.clone(), lost_at });
            }
        }
        Ok(lost)
    }

    pub(super) fn adopt_request(&mut self, request: &OpenRequest, node: NodeId) -> bool {
        let key = (request.tenant.clone(), request.hash, request.run);
        let Some(found) = self.requests.get(&key).filter(|found| found.node == request.node) else { return false };
        let adopted = OpenRequest { node, left_at: None, ..found.clone() };
        self.requests.put(key, adopted);
        true
    }
}

impl RequestRows for MemoryRows {
    fn insert_request(&mut self, request: &OpenRequest) -> Result<()> {
        must(self.requests.insert((request.tenant.clone(), request.hash, request.run), request.clone()), "an open request")
    }

    fn record_reader(&mut self, record: &ReaderRecord) -> Result<()> {
        let key = (record.request.tenant.clone(), record.request.hash, record.request.run);
        let Some(found) = self.requests.get(&key).filter(|found| found.node == record.request.node) else { return Ok(()) };
        match record.outcome {
            ReaderOutcome::Closed => self.requests.remove(&key),
            ReaderOutcome::Left(at) => {
                let left = OpenRequest { left_at: Some(at), ..found.clone() };
                self.requests.put(key, left);
            }
        }
        Ok(())
    }
}
