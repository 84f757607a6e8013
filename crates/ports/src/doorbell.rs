//! Doorbells: hints that there is work. A ring carries no meaning; losing it costs time, never work.

use windlass_kernel::{AgentKey, RunId, Tenant, ToolName};

/// What a process rings to the others. Several equal rings have the effect of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// Something was committed for the agent. A reader that follows it can read on, and a worker that has its run in memory may no longer
    /// own it.
    Agent(AgentKey),
    /// The agent needs a worker, and the process that rings will not start one.
    Work(AgentKey),
    /// A call of the tool may be claimable now.
    Tool(Tenant, ToolName),
    /// A reader that follows the agent's run has received nothing for a while. The number is the length of the journal that it knows. The
    /// worker that owns the run should send a heartbeat.
    Quiet(AgentKey, RunId, u64),
}

/// Reaches the other processes that use the same store.
pub trait Doorbell: Send + Sync {
    /// Rings. Never blocks and never fails: a ring that can't be delivered is dropped.
    fn ring(&self, ring: Ring);
}
