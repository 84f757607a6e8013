//! A hint that there is work. It carries no meaning: losing every ring costs latency, never work.

use async_trait::async_trait;
use windlass_kernel::{AgentKey, Tenant};

/// Wakes whoever may be able to work on an agent.
pub trait Doorbell: Send + Sync {
    /// Rings for an agent. Never blocks and never fails: a ring that cannot be delivered is dropped.
    fn ring(&self, agent: &AgentKey);
}

/// One message for the world outside: a projection of the journal, with an id that is the same however often it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Whose it is: the publisher puts the tenant before the subject.
    pub tenant: Tenant,
    /// Where to, within the tenant: `evt.agent.<agent>.task` and the like.
    pub subject: String,
    /// What it says.
    pub body: serde_json::Value,
    /// The same for every delivery of this message.
    pub id: String,
}

/// Sends messages out. What it fails to send stays in the outbox and is sent again.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Sends one message. `Ok` means the other side has it.
    async fn publish(&self, message: &Published) -> Result<(), String>;
}
