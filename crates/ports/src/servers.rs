//! Servers elsewhere that offer tools.

use async_trait::async_trait;
use serde_json::Value;
use windlass_kernel::{EffectClass, Tenant, ToolServer};

use crate::executor::{ToolCall, ToolReport};

/// Tool servers: those of the configuration, and those a request brings along.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// Whether the configuration has a server of that label for the tenant.
    fn is_configured(&self, tenant: &Tenant, label: &str) -> bool;

    /// The labels of the configured servers that the tenant may use.
    fn labels(&self, tenant: &Tenant) -> Vec<String>;

    /// Takes a server that a request declares: its address is checked, its secrets are sealed for the tenant.
    fn declare(&self, tenant: &Tenant, declared: DeclaredServer) -> Result<ToolServer, ServerError>;

    /// What the server offers. Asked once per request, when its tools are pinned.
    async fn list(&self, tenant: &Tenant, server: &ToolServer) -> Result<Vec<OfferedTool>, ServerError>;

    /// Runs one call of the server's tool `name`. A failure is data for the model. Dropping the future calls it off.
    async fn run(&self, server: &ToolServer, name: &str, call: ToolCall) -> ToolReport;
}

/// A server as a request declares it.
#[derive(Clone)]
pub struct DeclaredServer {
    /// What the request calls it.
    pub label: String,
    /// Its address.
    pub url: String,
    /// Headers it is sent with every request, credentials among them.
    pub headers: Vec<(String, String)>,
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// What the server calls it.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// What the server says of itself about it, as it came.
    pub annotations: Option<Value>,
    /// What a second start would do: by the configuration, else by what the server says, else a write.
    pub effect: EffectClass,
}

/// Why a server is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The configuration has no server of that label.
    #[error("there is no configured tool server {0:?}")]
    Unknown(String),
    /// Its address is not one that a request may name.
    #[error("the address of the tool server is refused: {0}")]
    Refused(String),
    /// It does not answer as it should.
    #[error("the tool server {label:?} does not answer as it should: {why}")]
    Failed {
        /// Which.
        label: String,
        /// In words without secrets.
        why: String,
    },
    /// It was not asked: too many sessions are open, of all servers or of the tenant's.
    #[error("{0}")]
    Busy(String),
}
