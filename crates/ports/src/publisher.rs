//! Messages to consumers outside, and the trait that sends them.

use std::fmt;

use async_trait::async_trait;
use windlass_kernel::{AgentName, RunId, Tenant, ToolName};

/// The destination of a message, within its tenant. The name may have any characters: a publisher encodes it as its wire allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `cmd.agent.<agent>.wakeup`: there is a request for the agent.
    Wakeup(AgentName),
    /// `cmd.tool.<tool>`: there is a call to be claimed.
    Tool(ToolName),
    /// `evt.agent.<agent>.task`: a run has ended.
    Task(AgentName),
    /// `evt.agent.<agent>.step`: an iteration has progressed.
    Step(AgentName),
    /// `evt.agent.<agent>.state`: the agent's status changed.
    State(AgentName),
}

impl Subject {
    /// The part before the name, the name, and the part after it.
    pub fn parts(&self) -> (&'static str, &str, &'static str) {
        match self {
            Subject::Wakeup(agent) => ("cmd.agent.", agent.as_str(), ".wakeup"),
            Subject::Tool(tool) => ("cmd.tool.", tool.as_str(), ""),
            Subject::Task(agent) => ("evt.agent.", agent.as_str(), ".task"),
            Subject::Step(agent) => ("evt.agent.", agent.as_str(), ".step"),
            Subject::State(agent) => ("evt.agent.", agent.as_str(), ".state"),
        }
    }

    /// Whether it reports an event, and is no command.
    pub fn is_event(&self) -> bool {
        match self {
            Subject::Wakeup(_) | Subject::Tool(_) => false,
            Subject::Task(_) | Subject::Step(_) | Subject::State(_) => true,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, name, after) = self.parts();
        write!(f, "{before}{name}{after}")
    }
}

/// A message to consumers outside. It is derived from the journal, and its id is the same every time it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The tenant. The publisher puts it before the subject.
    pub tenant: Tenant,
    /// The destination, within the tenant.
    pub subject: Subject,
    /// The body: pointers and numbers, never content.
    pub body: serde_json::Value,
    /// The same for every delivery of this message.
    pub id: String,
    /// The run it is about.
    pub run: RunId,
    /// The trace that the run belongs to.
    pub trace: [u8; 16],
    /// The step of another run that asked for the run.
    pub parent_step: Option<String>,
}

/// Sends messages. A message that it fails to send stays in the outbox and is sent again.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Sends messages in their order. After `Ok` the receiver has all of them; after an error it may have some.
    async fn publish(&self, messages: &[Published]) -> Result<(), String>;
}
