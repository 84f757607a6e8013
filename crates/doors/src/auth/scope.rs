//! Scopes: the rights of a token.

use std::fmt;

use windlass_kernel::{AgentName, ToolName};

/// One right of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything: `*`.
    All,
    /// Read agents, their inboxes and events: `agents:read`.
    AgentsRead,
    /// Enqueue, report and act: `agents:write`.
    AgentsWrite,
    /// Stop runs: `agents:stop`.
    AgentsStop,
    /// Give an agent another model, other instructions or more tools for one run: `agents:configure`.
    AgentsConfigure,
    /// Use one configured agent: `agent:<name>`. A token with a scope of this kind or of the two below may use only what they name.
    UseAgent(AgentName),
    /// Use one configured tool: `use:<tool>`.
    UseTool(ToolName),
    /// Use one configured MCP server: `mcp:<label>`.
    UseServer(String),
    /// Claim and report the calls of one tool: `tools:<name>`.
    Tool(ToolName),
    /// Claim and report the calls of every tool: `tools:*`.
    AllTools,
    /// Use the Responses API: `responses`.
    Responses,
    /// Read runs, items and boxes: `runs:read`.
    RunsRead,
    /// Decide about parked runs and calls: `approvals:answer`.
    ApprovalsAnswer,
    /// Read the metrics: `metrics`.
    Metrics,
    /// Operate the server: `admin`.
    Admin,
}

/// The text does not spell a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope {0:?}")]
pub struct UnknownScope(pub String);

impl Scope {
    /// The spellings of all scopes. One with a name in angle brackets stands for a scope per name.
    pub const SPELLINGS: [&'static str; 15] = [
        "*",
        "agents:read",
        "agents:write",
        "agents:stop",
        "agents:configure",
        "agent:<name>",
        "use:<tool>",
        "mcp:<label>",
        "tools:<name>",
        "tools:*",
        "responses",
        "runs:read",
        "approvals:answer",
        "metrics",
        "admin",
    ];

    /// Reads a scope as a configuration spells it.
    pub fn parse(text: &str) -> Result<Self, UnknownScope> {
        Ok(match text {
            "*" => Scope::All,
            "agents:read" => Scope::AgentsRead,
            "agents:write" => Scope::AgentsWrite,
            "agents:stop" => Scope::AgentsStop,
            "agents:configure" => Scope::AgentsConfigure,
            "tools:*" => Scope::AllTools,
            "responses" => Scope::Responses,
            "runs:read" => Scope::RunsRead,
            "approvals:answer" => Scope::ApprovalsAnswer,
            "metrics" => Scope::Metrics,
            "admin" => Scope::Admin,
            other => return Scope::parse_named(other).ok_or_else(|| UnknownScope(other.to_owned())),
        })
    }

    /// Reads a scope that ends in a name, such as `tools:<name>`.
    fn parse_named(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        if name.is_empty() || name.contains(['*', ':']) || name.contains(char::is_whitespace) {
            return None;
        }
        match kind {
            "tools" => Some(Scope::Tool(name.into())),
            "agent" => Some(Scope::UseAgent(name.into())),
            "use" => Some(Scope::UseTool(name.into())),
            "mcp" => Some(Scope::UseServer(name.to_owned())),
            _ => None,
        }
    }

    /// Whether this scope restricts its token to the agents, tools and servers that the token's scopes name.
    pub(super) fn restricts_use(&self) -> bool {
        matches!(self, Scope::UseAgent(_) | Scope::UseTool(_) | Scope::UseServer(_))
    }

    /// Whether this scope includes the rights of `other`.
    pub fn covers(&self, other: &Scope) -> bool {
        match self {
            Scope::All => true,
            Scope::AllTools => other.is_about_tools(),
            Scope::Admin => matches!(other, Scope::Admin | Scope::Metrics),
            Scope::AgentsRead
            | Scope::AgentsWrite
            | Scope::AgentsStop
            | Scope::AgentsConfigure
            | Scope::UseAgent(_)
            | Scope::UseTool(_)
            | Scope::UseServer(_)
            | Scope::Tool(_)
            | Scope::Responses
            | Scope::RunsRead
            | Scope::ApprovalsAnswer
            | Scope::Metrics => self == other,
        }
    }

    pub(super) fn is_about_tools(&self) -> bool {
        matches!(self, Scope::Tool(_) | Scope::AllTools)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("*"),
            Scope::AgentsRead => f.write_str("agents:read"),
            Scope::AgentsWrite => f.write_str("agents:write"),
            Scope::AgentsStop => f.write_str("agents:stop"),
            Scope::AgentsConfigure => f.write_str("agents:configure"),
            Scope::UseAgent(agent) => write!(f, "agent:{agent}"),
            Scope::UseTool(tool) => write!(f, "use:{tool}"),
            Scope::UseServer(label) => write!(f, "mcp:{label}"),
            Scope::Tool(tool) => write!(f, "tools:{tool}"),
            Scope::AllTools => f.write_str("tools:*"),
            Scope::Responses => f.write_str("responses"),
            Scope::RunsRead => f.write_str("runs:read"),
            Scope::ApprovalsAnswer => f.write_str("approvals:answer"),
            Scope::Metrics => f.write_str("metrics"),
            Scope::Admin => f.write_str("admin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_back_as_they_are_spelled() {
        let spellings = [
            "*",
            "agents:read",
            "agents:write",
            "agents:stop",
            "agents:configure",
            "agent:alice",
            "use:echo",
            "mcp:files",
            "tools:echo",
            "tools:*",
            "responses",
            "runs:read",
            "approvals:answer",
            "metrics",
            "admin",
        ];
        for spelling in spellings {
            assert_eq!(Scope::parse(spelling).unwrap().to_string(), spelling);
        }
        for spelling in ["", "agents", "agents:*", "tools:", "tools:a b", "tools:a*", "agent:", "use:*", "mcp:a b", "AGENTS:READ", "root"] {
            assert!(Scope::parse(spelling).is_err(), "{spelling}");
        }
    }

    #[test]
    fn a_scope_covers_itself_and_no_more() {
        let echo = Scope::Tool("echo".into());
        assert!(Scope::All.covers(&Scope::Admin));
        assert!(Scope::AllTools.covers(&echo));
        assert!(echo.covers(&echo));
        assert!(!echo.covers(&Scope::Tool("other".into())));
        assert!(!echo.covers(&Scope::AllTools));
        assert!(!Scope::AllTools.covers(&Scope::AgentsWrite));
        assert!(Scope::Admin.covers(&Scope::Metrics) && Scope::All.covers(&Scope::Metrics));
        assert!(!Scope::Metrics.covers(&Scope::Admin) && !Scope::RunsRead.covers(&Scope::Metrics));
        assert!(!Scope::Admin.covers(&Scope::AgentsRead));
        assert!(!Scope::AgentsWrite.covers(&Scope::AgentsRead));
    }
}
