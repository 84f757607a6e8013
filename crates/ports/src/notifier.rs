//! Telling people outside that something waits for them.

use async_trait::async_trait;
use windlass_kernel::{AgentName, Cause, Tenant, Timestamp, ToolName};

use crate::interrupts::InterruptId;

/// That an interrupt was opened. It has ids and names, never content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The interrupt. It is the same in every delivery of the notice.
    pub interrupt: InterruptId,
    /// The agent of the run: its name, or the key of its head if the run has no named agent.
    pub agent: AgentName,
    /// Why a person must decide.
    pub cause: Cause,
    /// The tool of the held call, if a call is held.
    pub tool: Option<ToolName>,
    /// When the interrupt was opened.
    pub at: Timestamp,
}

/// Delivers notices. A notice whose delivery failed is delivered again.
#[async_trait]
pub trait Notifier: Send + Sync {
    /// Delivers a notice. After `Ok` the receiver has it; after an error it may have it. The error has no secrets.
    async fn notify(&self, notice: &Notice) -> Result<(), String>;
}
