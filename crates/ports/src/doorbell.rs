//! A hint that there is work. It carries no meaning: losing every ring costs latency, never work.

use windlass_kernel::{AgentKey, RunId, Tenant, ToolName};

/// What one process tells the others. Equal rings say no more than one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// Something was committed for the agent: whoever follows it may read on, and whoever holds its run may have lost it.
    Agent(AgentKey),
    /// Somebody should look at the agent: the one who rings will not.
    Work(AgentKey),
    /// A call of the tool may have become claimable.
    Tool(Tenant, ToolName),
    /// Somebody who follows the agent's run has heard nothing for a while, since its journal had so many events: whoever works on it
    /// should give a sign of life.
    Quiet(AgentKey, RunId, u64),
}

/// Reaches the other processes that share this one's store.
pub trait Doorbell: Send + Sync {
    /// Rings. Never blocks and never fails: a ring that cannot be delivered is dropped.
    fn ring(&self, ring: Ring);
}
