//! The configuration: `windlass.yaml`, with the environment over it, as plain typed data.
//!
//! Reading goes in four steps, each in its own module: the file becomes a tree that knows its lines (`node`), variables
//! are put over it and filled into it (`environment`), small readers take values out of it (`reader`), and the sections
//! say which keys there are and what must fit together (`sections`). Nothing is guessed: an unknown key is an error.
//!
//! What is deliberately absent: any I/O but reading the one file, and any way to print a secret.

mod agents;
mod doorbell;
mod environment;
mod error;
mod literal;
mod log;
mod mcp;
mod node;
mod quotas;
mod reader;
mod retention;
mod secret;
mod sections;
mod server;
mod tenants;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use windlass_kernel::{AfterExecution, Budgets, EffectClass, PolicyName, Timestamp};

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

/// Everything an operator can set, checked and complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The server's door.
    pub server: Server,
    /// Where the truth is kept.
    pub store: Store,
    /// NATS, if processes ring each other over it.
    pub doorbell: Option<Doorbell>,
    /// Who may come in.
    pub auth: Auth,
    /// The models, never empty. The first of a name is asked first, later ones of that name are its fallbacks.
    pub models: Vec<Model>,
    /// The external tools, each name once.
    pub tools: Vec<ExternalTool>,
    /// The servers of MCP, each label once.
    pub mcp: Vec<McpServer>,
    /// `mcp.default_approval`: whether calls of a server that a request declares need approval where the request does not say.
    pub default_approval: DefaultApproval,
    /// The agents by name. Every model and tool they name exists.
    pub agents: BTreeMap<String, Agent>,
    /// Whether agents that are not configured can be enqueued to.
    pub agents_open: bool,
    /// What nobody may go beyond.
    pub limits: Limits,
    /// `quotas`: what each tenant may use.
    pub quotas: Quotas,
    /// `usage`: for how many days sums of usage are kept, if usage is counted.
    pub usage_days: Option<u32>,
    /// `retention`: after what time ended runs are erased.
    pub retention: Retention,
    /// `egress.allow`: what a request may name beyond the public internet.
    pub egress: Vec<Allowed>,
    /// The Responses door.
    pub responses: Responses,
    /// How log lines look.
    pub log: Log,
    /// Settings whose secrets are written out in a file that every user of the machine can read.
    pub exposed_secrets: Vec<String>,
}

impl Config {
    /// Reads the file, if one is given, and the environment. A given file must exist; without one the defaults stand:
    /// loopback, the embedded store, the offline model.
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
        // Settings first: a value that a variable replaces needs no other variable filled in.
        environment.overlay(&mut root)?;
        environment.fill(&mut root, "")?;
        let exposed_secrets = literal::literal_secrets(&root);
        Ok(Config { exposed_secrets, ..sections::read(root)? })
    }
}

/// Whether users who are neither the owner nor in the group of the file can read it.
fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
}

/// `responses`: how the Responses door behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responses {
    /// `status: standard`: a response that waits for its client is called `completed`.
    pub standard_status: bool,
    /// `store_false: memory`: what is not to be stored lives in memory alone, in `memory_bytes` at the most.
    pub memory_bytes: Option<u64>,
    /// `join_s`: how long a response that is not stored waits for a client that went away.
    pub join: Duration,
    /// `erase_s`: how long after its end a response is erased that is not stored.
    pub erase: Duration,
    /// `heartbeat`: how long a stream may be silent before it gives a sign of life.
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
    /// Where the database is, given the data folder.
    pub fn place(&self, data: &Path) -> Place<'_> {
        match self {
            Store::Own => Place::File(data.join("windlass.db")),
            Store::Sqlite(file) => Place::File(file.clone()),
            Store::Postgres(url) => Place::Postgres(url),
        }
    }
}

/// Where a database is. It can be printed.
pub enum Place<'a> {
    /// A file of SQLite.
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

/// `doorbell`: NATS, for rings between processes and for whoever wants the commands and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// The address, which may have a password in it.
    pub url: Secret,
    /// What every subject begins with.
    pub prefix: String,
}

/// `auth`: the tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Each token once.
    pub tokens: Vec<Token>,
}

/// One token and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The hash of the token.
    pub hash: TokenHash,
    /// The tenant that it speaks for.
    pub tenant: String,
    /// What it may do, at least one thing.
    pub scopes: Vec<Scope>,
    /// What logs call it.
    pub name: Option<String>,
    /// `status`: what `responses.status` says, for this token alone.
    pub standard_status: Option<bool>,
    /// `expires`: from when on it is refused.
    pub expires: Option<Timestamp>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name that runs ask for; `*` takes every name and passes it on.
    pub name: String,
    /// Who answers.
    pub provider: Provider,
    /// How many calls may be open at once, from all models of the same server. Where they differ, the least holds.
    pub concurrency: usize,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long the provider may be silent in the middle of an answer.
    pub idle_timeout: Duration,
    /// Whether it can be given words to go on from.
    pub prefill: bool,
    /// How many tokens it can read at once; runs that may are summed up before it is more.
    pub context: Option<u64>,
    /// The tenants that may use it.
    pub tenants: Tenants,
}

impl Model {
    /// The model there is when none is configured: offline, needs no key.
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

/// Who answers a model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// A script, or without one the words in the input.
    Scripted {
        /// The YAML file of the script.
        script: Option<PathBuf>,
    },
    /// A service over HTTP.
    Remote {
        /// What it speaks.
        protocol: Protocol,
        /// The address up to and without what the protocol puts behind it, without a slash at its end.
        base_url: String,
        /// The key, if the service wants one.
        api_key: Option<Secret>,
        /// The service's name of the model; `None` is the name that was asked for.
        model: Option<String>,
    },
}

/// What a service speaks.
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
    /// Where the service is that the protocol is named after. Chat completions are spoken by so many that there is no such place.
    pub fn usual_base_url(self) -> Option<&'static str> {
        match self {
            Protocol::OpenAiChat => None,
            Protocol::OpenAiResponses => Some("https://api.openai.com/v1"),
            Protocol::Anthropic => Some("https://api.anthropic.com"),
        }
    }
}

/// One tool that a service of the user's runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalTool {
    /// What the model calls it.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: serde_json::Value,
    /// What a repeated start would do.
    pub effect: EffectClass,
    /// What the run does once the result is there.
    pub after_execution: AfterExecution,
    /// How long a result may take; `limits.call_deadline` if the tool says nothing.
    pub deadline: Duration,
    /// The tenants that may use it.
    pub tenants: Tenants,
}

/// One server of MCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// What requests call it.
    pub label: String,
    /// Where it is.
    pub place: McpPlace,
    /// What a second start of a tool would do, whatever the server says of it.
    pub effects: BTreeMap<String, EffectClass>,
    /// The tenants that may use it.
    pub tenants: Tenants,
    /// Whether all tenants use one session, or one process.
    pub shared: bool,
}

/// Where a server of MCP is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpPlace {
    /// Behind an address.
    Http {
        /// The address.
        url: String,
        /// Headers it is sent with every request, by their names in small letters.
        headers: BTreeMap<String, Secret>,
        /// A bearer's token, or a scheme and what belongs to it.
        authorization: Option<Secret>,
    },
    /// A process of ours.
    Command {
        /// The program.
        program: String,
        /// What it is started with, which may be secrets.
        arguments: Vec<Secret>,
        /// Variables it is given.
        env: BTreeMap<String, Secret>,
    },
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Which policy decides the laps.
    pub policy: PolicyName,
    /// The model; `None` is the default one.
    pub model: Option<String>,
    /// What the model is told before everything else.
    pub instructions: Option<String>,
    /// The tools it may call, each once.
    pub tools: Vec<String>,
    /// What one run may use up; laps are `limits.max_turns` if the agent says nothing.
    pub budgets: Budgets,
    /// Whether responses of the agent run one after the other.
    pub serial: bool,
    /// The tenants that may use it.
    pub tenants: Tenants,
}

/// `limits`: what nobody may go beyond, all above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Laps of a run whose agent sets no budget.
    pub max_turns: u32,
    /// Iterations that a request can ask for: `max_turns` where that is written.
    pub turns_ceiling: u32,
    /// How long a tool call may take if its tool says nothing.
    pub call_deadline: Duration,
    /// Bytes of one request's body.
    pub body_bytes: usize,
    /// Bytes of one item.
    pub item_bytes: usize,
    /// Bytes that one prompt reads, its history included.
    pub prompt_bytes: u64,
    /// Items of one packed box.
    pub box_items: u64,
    /// Bytes of content of one packed box.
    pub box_bytes: u64,
    /// Runs that may wait for one agent.
    pub queued_per_agent: u32,
    /// Runs of one tenant that have not ended.
    pub open_per_tenant: u32,
    /// Runs that this process works on at once.
    pub workers: usize,
    /// How often overdue and orphaned work is looked for.
    pub sweep_interval: Duration,
    /// How long other servers on the same store wait for a sign of life before they take over this one's runs.
    pub lease: Duration,
    /// Tries of one model call before the run fails.
    pub attempts: u32,
    /// The first pause between two tries; it doubles.
    pub backoff: Duration,
    /// How long one try of a model call may take.
    pub model_deadline: Duration,
    /// How long a model may take until its answer begins; `model_deadline` unless it is set.
    pub first_byte: Duration,
    /// How long a tool server may take to list its tools.
    pub tool_list: Duration,
    /// Bytes of request bodies and WebSocket messages that all clients together may have in flight.
    pub in_flight_bytes: usize,
    /// The same of one tenant.
    pub in_flight_bytes_per_tenant: usize,
    /// Requests of one tenant that are open at once; `None` is four fifths of `server.connections`.
    pub requests_per_tenant: Option<usize>,
    /// The same of one token; `None` is as many as its tenant may have.
    pub requests_per_token: Option<usize>,
    /// WebSockets of one tenant that are open at once.
    pub sockets_per_tenant: usize,
    /// The same of one token; `None` is as many as its tenant may have.
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
