//! The configuration: `windlass.yaml`, overridden by the environment, as plain typed data.
//!
//! Reading has four steps, each in its own module: the file is parsed into a tree that knows its lines (`node`), environment variables are
//! applied to it (`environment`), small readers take values out of it (`reader`), and the sections define which keys there are and how they
//! constrain each other (`sections`). Nothing is guessed: an unknown key is an error.
//!
//! Deliberately absent: any I/O except for reading the one file, and any way to print a secret.

mod agents;
mod approvals;
mod doorbell;
mod environment;
mod error;
mod interrupts;
mod literal;
mod log;
mod mcp;
mod node;
mod prices;
mod quotas;
mod reader;
mod retention;
mod secret;
mod sections;
mod server;
mod tenants;
pub use tenants::DEFAULT as DEFAULT_TENANT;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use windlass_kernel::{AfterExecution, Budgets, CallRetries, EffectClass, Gate, PolicyName, Prices, Timestamp};

pub use error::{ConfigError, Origin};
pub use log::{Log, LogFormat};
pub use secret::{Secret, TokenHash};
pub use sections::TOKEN_CHARS_MIN;
pub use server::Server;
pub use windlass_doors::{DefaultApproval, Scope};
pub use windlass_engine::{Quotas, Retention};
pub use windlass_ports::Tenants;
pub use windlass_tools::Allowed;

use environment::Environment;
use node::Node;

/// All settings, checked and complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `server`: the listener and its limits.
    pub server: Server,
    /// `store`: the database.
    pub store: Store,
    /// `doorbell`: NATS, if it is configured.
    pub doorbell: Option<Doorbell>,
    /// `auth`: the tokens of clients.
    pub auth: Auth,
    /// `models`, never empty. The first model of a name is called first; later ones with that name are its fallbacks.
    pub models: Vec<Model>,
    /// `tools.external`. Names are unique.
    pub tools: Vec<ExternalTool>,
    /// `tools.mcp`: the MCP servers. Labels are unique.
    pub mcp: Vec<McpServer>,
    /// `mcp.default_approval`: whether calls of a server that a request declares need approval where the request does not say.
    pub default_approval: DefaultApproval,
    /// The agents by name. Every model and tool they name exists.
    pub agents: BTreeMap<String, Agent>,
    /// `agents_open`: whether agents that are not configured accept requests.
    pub agents_open: bool,
    /// `approvals`: the rules by which calls wait for a person's approval. The first rule that matches a call counts.
    pub approvals: Vec<Gate>,
    /// `interrupts.notify`: the webhook that gets notices of opened interrupts.
    pub notify: Option<Notify>,
    /// `prices`: prices of models by the names that providers know, or by configured names.
    pub prices: BTreeMap<String, Prices>,
    /// `limits`: limits on sizes, counts and times.
    pub limits: Limits,
    /// `quotas`: what each tenant may use.
    pub quotas: Quotas,
    /// `usage`: for how many days sums of usage are kept, if usage is counted.
    pub usage_days: Option<u32>,
    /// `retention`: after what time ended runs are erased.
    pub retention: Retention,
    /// `egress.allow`: the addresses that a request may name beyond the public internet.
    pub egress: Vec<Allowed>,
    /// `responses`: the settings of the Responses API.
    pub responses: Responses,
    /// `log`: the format of the log.
    pub log: Log,
    /// Settings with a literal secret in a file that every user of the machine can read.
    pub exposed_secrets: Vec<String>,
}

impl Config {
    /// Reads the file, if a path is given, and the environment. The file must then exist. Without a file the defaults apply: loopback, the
    /// embedded store, the offline model.
    pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
        let Some(path) = path else {
            return Config::read(Node::nothing(Origin::Default), env);
        };
        let origin = Origin::File { file: path.display().to_string().into(), line: None };
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(&origin, format!("the configuration cannot be read: {error}")))?;
        let mut config = Config::read(Node::parse(&text, &origin)?, env)?;
        if !is_readable_by_all(path) {
            config.exposed_secrets.clear();
        }
        Ok(config)
    }

    fn read(mut root: Node, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
        let environment = Environment::new(env);
        // Overrides are applied first: references inside a value that a variable replaces are then not resolved.
        environment.overlay(&mut root)?;
        environment.fill(&mut root, "")?;
        let exposed_secrets = literal::literal_secrets(&root);
        Ok(Config { exposed_secrets, ..sections::read(root)? })
    }
}

/// Whether users other than the file's owner and group can read it.
fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
}

/// `responses`: the settings of the Responses API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responses {
    /// `status: standard`: a response that waits for its client has the status `completed`.
    pub standard_status: bool,
    /// `store_false: memory`: responses with `store: false` stay in memory, at most this number of bytes.
    pub memory_bytes: Option<u64>,
    /// `join_s`: how long a response with `store: false` waits for a client that disconnected.
    pub join: Duration,
    /// `erase_s`: how long after its end a response with `store: false` is erased.
    pub erase: Duration,
    /// `heartbeat`: how long a stream may be silent before the server sends a heartbeat.
    pub heartbeat: Duration,
    /// `socket_limit`: how long a socket may be open.
    pub socket_limit: Duration,
}

impl Default for Responses {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        let heartbeat = Duration::from_secs(15);
        Self { standard_status: false, memory_bytes: None, join: minute, erase: minute, heartbeat, socket_limit: 60 * minute }
    }
}

/// `store`: the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// `windlass.db` in the data folder.
    #[default]
    Own,
    /// The file of `sqlite:<file>`.
    Sqlite(PathBuf),
    /// The address of a PostgreSQL database. There may be a password in it.
    Postgres(Secret),
}

impl Store {
    /// The place of the database for this data folder.
    pub fn place(&self, data: &Path) -> Place<'_> {
        match self {
            Store::Own => Place::File(data.join("windlass.db")),
            Store::Sqlite(file) => Place::File(file.clone()),
            Store::Postgres(url) => Place::Postgres(url),
        }
    }
}

/// The place of a database. Its `Display` shows no secret.
pub enum Place<'a> {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL server.
    Postgres(&'a Secret),
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(file) => write!(f, "{}", file.display()),
            Place::Postgres(url) => match windlass_store::postgres_address(url.expose()) {
                Some(address) => write!(f, "PostgreSQL at {address}"),
                None => f.write_str("PostgreSQL"),
            },
        }
    }
}

/// `doorbell`: NATS, which carries the notifications between processes and the published commands and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// The address, which may contain a password.
    pub url: Secret,
    /// The first part of every subject.
    pub prefix: String,
}

/// `auth`: the tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// The tokens, without duplicates.
    pub tokens: Vec<Token>,
}

/// One token and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub hash: TokenHash,
    /// The tenant whose data it gives access to.
    pub tenant: String,
    /// The rights of the token, at least one.
    pub scopes: Vec<Scope>,
    /// The name of the token in logs.
    pub name: Option<String>,
    /// `status`: overrides `responses.status` for this token.
    pub standard_status: Option<bool>,
    /// `expires`: the time from which the token is refused.
    pub expires: Option<Timestamp>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name in requests; `*` accepts every name and passes it on.
    pub name: String,
    /// The provider of the model.
    pub provider: Provider,
    /// Calls that may be open at once, over all models on the same server. If their settings differ, the smallest applies.
    pub concurrency: usize,
    /// The time limit for connecting.
    pub connect_timeout: Duration,
    /// The time limit between two events of an answer.
    pub idle_timeout: Duration,
    /// Whether the model can continue a text that it is given as the beginning of its answer.
    pub prefill: bool,
    /// The size of its context window in tokens. Runs with compaction summarise before they reach it.
    pub context: Option<u64>,
    pub tenants: Tenants,
}

impl Model {
    /// The default model: offline and without a key.
    pub fn offline() -> Self {
        Self {
            name: "offline".to_owned(),
            provider: Provider::Scripted { script: None },
            concurrency: 64,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            prefill: false,
            context: None,
            tenants: Tenants::All,
        }
    }
}

/// The provider of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The offline model, with a script or by keywords in the input.
    Scripted {
        /// The YAML file with the script.
        script: Option<PathBuf>,
    },
    /// A service over HTTP.
    Remote {
        /// The protocol of the service.
        protocol: Protocol,
        /// The address before the path that the protocol appends, without a slash at the end.
        base_url: String,
        /// The API key, if the service needs one.
        api_key: Option<Secret>,
        /// The service's name of the model; `None` sends the requested name.
        model: Option<String>,
    },
}

/// The protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI's chat completions, below `/chat/completions`.
    OpenAiChat,
    /// OpenAI's responses, below `/responses`.
    OpenAiResponses,
    /// Anthropic's messages, below `/v1/messages`.
    Anthropic,
}

impl Protocol {
    /// The address of the service that the protocol comes from. Chat Completions has too many services for a default.
    pub fn usual_base_url(self) -> Option<&'static str> {
        match self {
            Protocol::OpenAiChat => None,
            Protocol::OpenAiResponses => Some("https://api.openai.com/v1"),
            Protocol::Anthropic => Some("https://api.anthropic.com"),
        }
    }
}

/// One tool that an external tool service runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalTool {
    /// The name that the model uses.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: serde_json::Value,
    /// What a second start of a call would do.
    pub effect: EffectClass,
    /// How the run continues after a result.
    pub after_execution: AfterExecution,
    /// The time limit for a result; `limits.call_deadline` by default.
    pub deadline: Duration,
    /// Whether calls are repeated if the tool reports a failure.
    pub retry: Option<CallRetries>,
    pub tenants: Tenants,
}

/// `interrupts.notify`: a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The address.
    pub url: Secret,
    /// The secret with which requests are signed.
    pub secret: Secret,
}

/// One MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// The name of the server in requests.
    pub label: String,
    /// The address or the command.
    pub place: McpPlace,
    /// The effect classes of its tools, which take precedence over the server's annotations.
    pub effects: BTreeMap<String, EffectClass>,
    /// Whether calls of its tools, except writes, are repeated if a tool reports a failure.
    pub retry: Option<CallRetries>,
    pub tenants: Tenants,
    /// Whether all tenants share one session or process.
    pub shared: bool,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpPlace {
    /// Over HTTP.
    Http {
        url: String,
        /// Headers of every request, by lower-case name.
        headers: BTreeMap<String, Secret>,
        /// The value of `Authorization`: a bearer token, or a scheme with its credentials.
        authorization: Option<Secret>,
    },
    /// As a child process.
    Command {
        program: String,
        /// The arguments, which may contain secrets.
        arguments: Vec<Secret>,
        /// Variables of its environment.
        env: BTreeMap<String, Secret>,
    },
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The policy, which decides what an iteration does next.
    pub policy: PolicyName,
    /// The name of its model; `None` is the default model.
    pub model: Option<String>,
    /// The system prompt.
    pub instructions: Option<String>,
    /// The tools that it may call, without duplicates.
    pub tools: Vec<String>,
    /// The budgets of one run. Without a setting, the budget of iterations is `limits.max_turns`.
    pub budgets: Budgets,
    /// `budgets.cost_usd`, in micro-dollars.
    pub cost_limit: Option<u64>,
    /// `budgets.parks`: whether a run that would exceed a budget waits for a person instead of ending.
    pub budgets_park: bool,
    /// Whether its model may ask a person.
    pub ask: bool,
    /// Whether the agent's responses run one after the other.
    pub serial: bool,
    /// What models read about the agent if they may ask it.
    pub description: Option<String>,
    /// JSON Schema of the arguments with which models ask it; `None` is a text.
    pub parameters: Option<serde_json::Value>,
    /// How many levels of child runs there may be below its runs.
    pub max_depth: u32,
    pub tenants: Tenants,
}

/// `limits`: limits on sizes, counts and times, all above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Iterations of a run whose agent sets no budget.
    pub max_turns: u32,
    /// The largest number of iterations that a request can ask for: `max_turns` if that is set.
    pub turns_ceiling: u32,
    /// The time limit of a tool call whose tool sets none.
    pub call_deadline: Duration,
    /// Bytes of one request's body.
    pub body_bytes: usize,
    /// Bytes of one item.
    pub item_bytes: usize,
    /// Bytes of one prompt, its history included.
    pub prompt_bytes: u64,
    /// Items of one packed box.
    pub box_items: u64,
    /// Bytes of content of one packed box.
    pub box_bytes: u64,
    /// Runs that may be queued for one agent.
    pub queued_per_agent: u32,
    /// Runs of one tenant that have not ended.
    pub open_per_tenant: u32,
    /// Runs that this process executes at once.
    pub workers: usize,
    /// The interval of the sweep.
    pub sweep_interval: Duration,
    /// How long other servers on the same store wait for a heartbeat before they take over this server's runs.
    pub lease: Duration,
    /// Attempts at one model call before the run fails.
    pub attempts: u32,
    /// The pause between the first two attempts. It doubles after each attempt.
    pub backoff: Duration,
    /// The time limit of one attempt at a model call.
    pub model_deadline: Duration,
    /// The time limit for the first event of an answer; `model_deadline` by default.
    pub first_byte: Duration,
    /// The time limit for a tool server to list its tools.
    pub tool_list: Duration,
    /// Bytes of request bodies and WebSocket messages that all clients together may have in flight.
    pub in_flight_bytes: usize,
    /// Bytes of request bodies and WebSocket messages that one tenant may have in flight.
    pub in_flight_bytes_per_tenant: usize,
    /// Requests that one tenant may have open; `None` is four fifths of `server.connections`.
    pub requests_per_tenant: Option<usize>,
    /// Requests that one token may have open; `None` is the limit of its tenant.
    pub requests_per_token: Option<usize>,
    /// WebSockets that one tenant may have open.
    pub sockets_per_tenant: usize,
    /// WebSockets that one token may have open; `None` is the limit of its tenant.
    pub sockets_per_token: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: 10,
            turns_ceiling: 100,
            call_deadline: Duration::from_secs(10 * 60),
            body_bytes: 8 << 20,
            item_bytes: 4 << 20,
            prompt_bytes: 64 << 20,
            box_items: 20_000,
            box_bytes: 32 << 20,
            queued_per_agent: 1_000,
            open_per_tenant: 100_000,
            workers: 1024,
            sweep_interval: Duration::from_millis(500),
            lease: Duration::from_secs(10),
            attempts: 5,
            backoff: Duration::from_millis(500),
            model_deadline: Duration::from_secs(10 * 60),
            first_byte: Duration::from_secs(10 * 60),
            tool_list: Duration::from_secs(30),
            in_flight_bytes: 256 << 20,
            in_flight_bytes_per_tenant: 128 << 20,
            requests_per_tenant: None,
            requests_per_token: None,
            sockets_per_tenant: 8_000,
            sockets_per_token: None,
        }
    }
}
