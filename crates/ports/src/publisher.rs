//! Messages for the world outside, and whoever sends them.

use std::fmt;

use async_trait::async_trait;
use windlass_kernel::{AgentName, RunId, Tenant, ToolName};

/// Where a message goes, within its tenant. Its name may have any characters: a publisher spells it as its wire allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `cmd.agent.<agent>.wakeup`: there is a turn for the agent.
    Wakeup(AgentName),
    /// `cmd.tool.<tool>`: there is a call to be claimed.
    Tool(ToolName),
    /// `evt.agent.<agent>.task`: a turn is over.
    Task(AgentName),
    /// `evt.agent.<agent>.step`: a lap has moved on.
    Step(AgentName),
    /// `evt.agent.<agent>.state`: the agent's status.
    State(AgentName),
}

impl Subject {
    /// The words before the name, the name, and the words after it.
    pub fn parts(&self) -> (&'static str, &str, &'static str) {
        match self {
            Subject::Wakeup(agent) => ("cmd.agent.", agent.as_str(), ".wakeup"),
            Subject::Tool(tool) => ("cmd.tool.", tool.as_str(), ""),
            Subject::Task(agent) => ("evt.agent.", agent.as_str(), ".task"),
            Subject::Step(agent) => ("evt.agent.", agent.as_str(), ".step"),
            Subject::State(agent) => ("evt.agent.", agent.as_str(), ".state"),
        }
    }

    /// Whether it tells what happened, rather than what should be done.
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

/// One message for the world outside: a projection of the journal, with an id that is the same however often it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Whose it is: the publisher puts the tenant before the subject.
    pub tenant: Tenant,
    /// Where to, within the tenant.
    pub subject: Subject,
    /// What it says: pointers, never content.
    pub body: serde_json::Value,
    /// The same for every delivery of this message.
    pub id: String,
    /// The run it is about.
    pub run: RunId,
    /// The trace that run belongs to.
    pub trace: [u8; 16],
    /// The step that asked for the run.
    pub parent_step: Option<String>,
}

/// Sends messages out. What it fails to send stays in the outbox and is sent again.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Sends messages in their order. `Ok` means that the other side has all of them; after an error it may have any.
    async fn publish(&self, messages: &[Published]) -> Result<(), String>;
}
