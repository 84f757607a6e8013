//! The statements for lists.

use bytes::Bytes;
use windlass_kernel::{BoxId, Tenant};
use windlass_ports::{AgentSummary, RunScan};

use super::{Result, RunRow};

/// The reads that lists need.
pub trait ListReads {
    /// Runs of a set, newest first, at most `scan.limit`. Rows that lists leave out may be among them: the caller drops them and continues
    /// below the last row.
    fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<Vec<RunRow>>;
    /// Names of agents that have listed runs, in order, after a name.
    fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>>;
    /// The first `INSTRUCTION_BYTES_MAX` bytes of the newest instruction among the last `INSTRUCTION_ITEMS_MAX` items of a box.
    fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>>;
}
