//! Tool servers.

use async_trait::async_trait;
use serde_json::Value;
use windlass_kernel::{CallRetries, EffectClass, Tenant, ToolServer};

use crate::executor::{ToolCall, ToolReport};

/// Tool servers: those of the configuration and those that a request declares.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// Whether the configuration has a server with that label for the tenant.
    fn is_configured(&self, tenant: &Tenant, label: &str) -> bool;

    /// The labels of the configured servers that the tenant may use.
    fn labels(&self, tenant: &Tenant) -> Vec<String>;

    /// Accepts a server that a request declares: checks its address and seals its secrets for the tenant.
    fn declare(&self, tenant: &Tenant, declared: DeclaredServer) -> Result<ToolServer, ServerError>;

    /// The tools of a server. Called once per request, when the tools of the run are recorded.
    async fn list(&self, tenant: &Tenant, server: &ToolServer) -> Result<Vec<OfferedTool>, ServerError>;

    /// Runs a call of the server's tool `name`. A failure is data for the model. Dropping the future cancels the call.
    async fn run(&self, server: &ToolServer, name: &str, call: ToolCall) -> ToolReport;
}

/// A server as a request declares it.
#[derive(Clone)]
pub struct DeclaredServer {
    /// The label of the server in the request.
    pub label: String,
    /// The address.
    pub url: String,
    /// Headers that are sent with every request to the server. They may have credentials.
    pub headers: Vec<(String, String)>,
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// The name of the tool on the server.
    pub name: String,
    /// The description that the model reads.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// The annotations that the server gives the tool, as they came.
    pub annotations: Option<Value>,
    /// What repeating a call would do: as configured, or else as the server's annotations say, or else a write.
    pub effect: EffectClass,
    /// Whether its calls are repeated if it reports a failure.
    pub retry: Option<CallRetries>,
}

impl OfferedTool {
    /// A tool without a description, which takes any object.
    pub fn plain(name: &str, effect: EffectClass) -> Self {
        let parameters = serde_json::json!({ "type": "object" });
        OfferedTool { name: name.to_owned(), description: String::new(), parameters, annotations: None, effect, retry: None }
    }
}

/// Why a tool server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The configuration has no server with that label.
    #[error("there is no configured tool server {0:?}")]
    Unknown(String),
    /// A request may not declare a server with that address.
    #[error("the address of the tool server is refused: {0}")]
    Refused(String),
    /// The server does not answer as the protocol demands.
    #[error("the tool server {label:?} does not answer as it should: {why}")]
    Failed {
        /// The label of the server.
        label: String,
        /// The reason, without secrets.
        why: String,
    },
    /// The server was not called, because too many sessions are open: of all servers, or of the tenant's.
    #[error("{0}")]
    Busy(String),
}
