//! The sections of `windlass.yaml`: which keys each has, what they mean, and what must fit together.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use windlass_kernel::{AfterExecution, Budgets, EffectClass, PolicyName, SUBMIT_RESULT};

use super::{
    Agent, Auth, Config, Doorbell, ExternalTool, Limits, Model, Protocol, Provider, Responses, Scope, Secret, Server, Store, Token,
    TokenHash,
    error::ConfigError,
    log, mcp,
    node::Node,
    reader::{Field, Keys, Section},
};

/// What subjects begin with.
const DEFAULT_PREFIX: &str = "windlass";

/// A shorter one would be lost to a pause that any machine makes now and then.
const LEASE_MIN: Duration = Duration::from_millis(500);

const TOP: Keys = Keys {
    known: &["server", "store", "doorbell", "auth", "models", "tools", "agents", "agents_open", "limits", "egress", "responses", "log"],
    later: &["plugins_dir", "plugins", "pipelines", "webhooks", "schedules", "retention"],
};
const SERVER: Keys = Keys { known: &["listen", "behind_proxy", "drain_s", "head", "body"], later: &[] };
const STORE: Keys = Keys { known: &["url"], later: &[] };
const DOORBELL: Keys = Keys { known: &["url", "prefix"], later: &[] };
const AUTH: Keys = Keys { known: &["tokens"], later: &[] };
const TOKEN: Keys = Keys { known: &["token", "tenant", "scopes", "name", "status"], later: &[] };
const MODEL: Keys = Keys {
    known: &[
        "name",
        "provider",
        "base_url",
        "api_key",
        "model",
        "script",
        "concurrency",
        "connect_timeout",
        "idle_timeout",
        "prefill",
        "context",
    ],
    later: &[],
};
const TOOLS: Keys = Keys { known: &["external", "mcp"], later: &[] };
const EXTERNAL: Keys = Keys { known: &["name", "description", "parameters", "effect", "after_execution", "deadline"], later: &[] };
const AGENT: Keys = Keys { known: &["policy", "model", "instructions", "tools", "budgets", "serial"], later: &[] };
const BUDGETS: Keys = Keys { known: &["iterations", "calls", "tokens", "wall_time"], later: &[] };
const RESPONSES: Keys =
    Keys { known: &["status", "store_false", "memory_bytes", "join_s", "erase_s", "heartbeat", "socket_limit"], later: &[] };
const LIMITS: Keys = Keys {
    known: &[
        "max_turns",
        "call_deadline",
        "body_bytes",
        "item_bytes",
        "queued_per_agent",
        "open_per_tenant",
        "workers",
        "sweep_interval",
        "lease",
        "attempts",
        "backoff",
        "model_deadline",
        "first_byte",
        "tool_list",
    ],
    later: &[],
};

/// Every section, by the keys it may have.
#[cfg(test)]
pub(super) const ALL: [&Keys; 16] = [
    &TOP,
    &SERVER,
    &STORE,
    &DOORBELL,
    &AUTH,
    &TOKEN,
    &MODEL,
    &TOOLS,
    &EXTERNAL,
    &mcp::SERVER,
    &mcp::EGRESS,
    &AGENT,
    &BUDGETS,
    &RESPONSES,
    &log::LOG,
    &LIMITS,
];

/// What a second start of a tool would do.
pub(super) const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("idempotent", EffectClass::Idempotent), ("write", EffectClass::Write)];

/// Whether a section of that name exists, in this version or a later one.
pub(super) fn is_top_level(key: &str) -> bool {
    TOP.known.contains(&key) || TOP.later.contains(&key)
}

/// Gives the tree its meaning.
pub(super) fn read(root: Node) -> Result<Config, ConfigError> {
    let mut top = Field::root(root).section(&TOP)?;
    let limits = section_or_default(&mut top, "limits", &LIMITS, read_limits)?;
    let server = section_or_default(&mut top, "server", &SERVER, read_server)?;
    let store = section_or_default(&mut top, "store", &STORE, read_store)?;
    let doorbell = top.take("doorbell").map(|field| read_doorbell(field.section(&DOORBELL)?)).transpose()?;
    let auth = section_or_default(&mut top, "auth", &AUTH, read_auth)?;
    let mut models = elements(top.take("models"))?.into_iter().map(read_model).collect::<Result<Vec<_>, _>>()?;
    if models.is_empty() {
        models.push(Model::offline());
    }
    let (tools, mcp) = match top.take("tools") {
        Some(field) => {
            let mut section = field.section(&TOOLS)?;
            (read_tools(section.take("external"), &limits)?, mcp::read_servers(section.take("mcp"))?)
        }
        None => (Vec::new(), Vec::new()),
    };
    let egress = section_or_default(&mut top, "egress", &mcp::EGRESS, mcp::read_egress)?;
    let agents = match top.take("agents") {
        Some(field) => {
            let names = tools.iter().map(|tool| tool.name.as_str()).chain(mcp.iter().map(|server| server.label.as_str()));
            read_agents(field, &models, &names.collect::<Vec<_>>(), &limits)?
        }
        None => BTreeMap::new(),
    };
    // Where agents are configured, another name is most likely a typing mistake.
    let agents_open = top.read_or("agents_open", agents.is_empty(), Field::flag)?;
    let responses = section_or_default(&mut top, "responses", &RESPONSES, read_responses)?;
    let log = section_or_default(&mut top, "log", &log::LOG, log::read_log)?;
    Ok(Config { server, store, doorbell, auth, models, tools, mcp, agents, agents_open, limits, egress, responses, log })
}

fn section_or_default<T: Default>(
    top: &mut Section,
    key: &str,
    keys: &Keys,
    read: impl FnOnce(Section) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    top.take(key).map_or_else(|| Ok(T::default()), |field| read(field.section(keys)?))
}

/// A list that may be left out.
pub(super) fn elements(field: Option<Field>) -> Result<Vec<Field>, ConfigError> {
    field.map_or_else(|| Ok(Vec::new()), Field::list)
}

fn read_limits(mut section: Section) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let model_deadline = section.read_or("model_deadline", default.model_deadline, Field::duration)?;
    Ok(Limits {
        max_turns: section.read_or("max_turns", default.max_turns, |field| field.whole(1))?,
        call_deadline: section.read_or("call_deadline", default.call_deadline, Field::duration)?,
        body_bytes: section.read_or("body_bytes", default.body_bytes, |field| field.whole(1))?,
        item_bytes: section.read_or("item_bytes", default.item_bytes, |field| field.whole(1))?,
        queued_per_agent: section.read_or("queued_per_agent", default.queued_per_agent, |field| field.whole(1))?,
        open_per_tenant: section.read_or("open_per_tenant", default.open_per_tenant, |field| field.whole(1))?,
        workers: section.read_or("workers", default.workers, |field| field.whole(1))?,
        sweep_interval: section.read_or("sweep_interval", default.sweep_interval, Field::duration)?,
        lease: section.read_or("lease", default.lease, read_lease)?,
        attempts: section.read_or("attempts", default.attempts, |field| field.whole(1))?,
        backoff: section.read_or("backoff", default.backoff, Field::duration)?,
        model_deadline,
        first_byte: section.read_or("first_byte", model_deadline, Field::duration)?,
        tool_list: section.read_or("tool_list", default.tool_list, Field::duration)?,
    })
}

fn read_responses(mut section: Section) -> Result<Responses, ConfigError> {
    let default = Responses::default();
    let is_in_memory = section.read_or("store_false", false, |field| field.choice("way", &[("journal", false), ("memory", true)], &[]))?;
    let memory_bytes = section.read_or("memory_bytes", 256 << 20, |field| field.whole(1))?;
    let standard_status = section.read("status", read_status)?.unwrap_or(default.standard_status);
    let join_s: u32 = section.read_or("join_s", 60, |field| field.whole(0))?;
    let erase_s: u32 = section.read_or("erase_s", 60, |field| field.whole(0))?;
    let heartbeat = section.read_or("heartbeat", default.heartbeat, Field::duration)?;
    let socket_limit = section.read_or("socket_limit", default.socket_limit, Field::duration)?;
    Ok(Responses {
        standard_status,
        memory_bytes: is_in_memory.then_some(memory_bytes),
        join: Duration::from_secs(join_s.into()),
        erase: Duration::from_secs(erase_s.into()),
        heartbeat,
        socket_limit,
    })
}

/// A shorter one would be lost to a pause that any machine makes now and then.
fn read_lease(field: &Field) -> Result<Duration, ConfigError> {
    let lease = field.duration()?;
    if lease < LEASE_MIN { Err(field.expected("a time of at least 500ms")) } else { Ok(lease) }
}

fn read_server(mut section: Section) -> Result<Server, ConfigError> {
    let default = Server::default();
    let behind_proxy = section.read_or("behind_proxy", default.behind_proxy, Field::flag)?;
    let drain_s: u32 = section.read_or("drain_s", 10, |field| field.whole(0))?;
    let listen = section.read_or("listen", default.listen, |field| {
        let address = field.text()?.parse().map_err(|_| field.expected(ADDRESS_WANTED))?;
        check_address(address, behind_proxy).map_err(|message| field.fail(message))?;
        Ok(address)
    })?;
    let head = section.read_or("head", default.head, Field::duration)?;
    let body = section.read_or("body", default.body, Field::duration)?;
    Ok(Server { listen, behind_proxy, drain: Duration::from_secs(drain_s.into()), head, body })
}

/// What an address looks like, for errors.
pub(super) const ADDRESS_WANTED: &str = "an IP address with a port, such as 127.0.0.1:7600";

/// Tokens travel in the clear over plain HTTP, so other machines reach the server through TLS only.
pub(super) fn check_address(address: SocketAddr, behind_proxy: bool) -> Result<(), String> {
    if address.ip().to_canonical().is_loopback() || behind_proxy {
        return Ok(());
    }
    Err(format!(
        "{address} can be reached from other machines without TLS; listen on {}:{}, or put a proxy with TLS in front \
         and set server.behind_proxy: true",
        Ipv4Addr::LOCALHOST,
        address.port()
    ))
}

fn read_store(mut section: Section) -> Result<Store, ConfigError> {
    let store = section.read("url", |field| {
        let url = field.some_text()?;
        // The address of a database often has a password in it, so that it is not repeated.
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Store::Postgres(Secret::new(url)));
        }
        let Some(path) = url.strip_prefix("sqlite:") else {
            return Err(
                field.fail("expected sqlite:<file>, such as sqlite:.windlass/windlass.db, or postgres://user:password@host/database")
            );
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('?') || path.starts_with(':') {
            return Err(field.fail("expected a file after sqlite:, without options"));
        }
        Ok(Store::Sqlite(PathBuf::from(path)))
    })?;
    Ok(store.unwrap_or_default())
}

fn read_doorbell(mut section: Section) -> Result<Doorbell, ConfigError> {
    let url = section.require("url")?;
    let text = url.some_text()?;
    // The address may have a password in it, so that it is not repeated.
    if !text.split(',').all(|one| one.trim().starts_with("nats://") || one.trim().starts_with("tls://")) {
        return Err(url.fail("expected the address of a NATS server, such as nats://127.0.0.1:4222"));
    }
    let prefix = section.read_or("prefix", DEFAULT_PREFIX.to_owned(), |field| {
        let prefix = field.name()?;
        // A dot parts the words of a subject, and no word can be empty.
        if prefix.split('.').any(str::is_empty) { Err(field.expected("words with dots between them")) } else { Ok(prefix) }
    })?;
    Ok(Doorbell { url: Secret::new(text), prefix })
}

fn read_auth(mut section: Section) -> Result<Auth, ConfigError> {
    let mut tokens: Vec<Token> = Vec::new();
    for field in elements(section.take("tokens"))? {
        let twice = field.fail("this token is given twice");
        let token = read_token(field.section(&TOKEN)?)?;
        if tokens.iter().any(|known| known.hash == token.hash) {
            return Err(twice);
        }
        tokens.push(token);
    }
    Ok(Auth { tokens })
}

fn read_token(mut section: Section) -> Result<Token, ConfigError> {
    let field = section.require("token")?;
    let text = field.some_text()?;
    let hash = match text.strip_prefix("sha256:") {
        Some(hex) => TokenHash::from_hex(hex).ok_or_else(|| field.fail("expected 64 hexadecimal digits after sha256:"))?,
        None => TokenHash::of(&text),
    };
    let list = section.require("scopes")?;
    let none = list.fail("expected at least one scope, found none");
    let scopes = list.list()?.iter().map(read_scope).collect::<Result<Vec<_>, _>>()?;
    if scopes.is_empty() {
        return Err(none);
    }
    let tenant = section.read_or("tenant", "default".to_owned(), Field::name)?;
    let standard_status = section.read("status", read_status)?;
    Ok(Token { hash, tenant, scopes, name: section.read("name", Field::name)?, standard_status })
}

/// Whether a response that waits for its client is called `completed`.
fn read_status(field: &Field) -> Result<bool, ConfigError> {
    field.choice("spelling", &[("hybrid", false), ("standard", true)], &[])
}

fn read_scope(field: &Field) -> Result<Scope, ConfigError> {
    let text = field.text()?;
    Scope::parse(&text).map_err(|_| match text.starts_with("tools:") {
        // The nearest word could be `tools:*`, and nobody should be talked into a wider scope.
        true => field.expected("tools:<name> or tools:*"),
        false => field.unknown("scope", &Scope::SPELLINGS),
    })
}

/// The providers by their names; the one without a protocol is offline.
const PROVIDERS: [(&str, Option<Protocol>); 4] = [
    ("scripted", None),
    ("openai-chat", Some(Protocol::OpenAiChat)),
    ("openai-responses", Some(Protocol::OpenAiResponses)),
    ("anthropic", Some(Protocol::Anthropic)),
];

fn read_model(field: Field) -> Result<Model, ConfigError> {
    let mut section = field.section(&MODEL)?;
    let name = section.require("name")?;
    let name = if name.text()? == "*" { "*".to_owned() } else { name.name()? };
    let protocol = section.require("provider")?.choice("provider", &PROVIDERS, &[])?;
    let default = Model::offline();
    Ok(Model {
        name,
        provider: match protocol {
            None => read_scripted(&mut section)?,
            Some(protocol) => read_remote(&mut section, protocol)?,
        },
        concurrency: section.read_or("concurrency", default.concurrency, |field| field.whole(1))?,
        connect_timeout: section.read_or("connect_timeout", default.connect_timeout, Field::duration)?,
        idle_timeout: section.read_or("idle_timeout", default.idle_timeout, Field::duration)?,
        prefill: read_prefill(&mut section, protocol)?,
        context: section.read("context", |field| field.whole(1))?,
    })
}

fn read_prefill(section: &mut Section, protocol: Option<Protocol>) -> Result<bool, ConfigError> {
    let Some(field) = section.take("prefill") else { return Ok(false) };
    let is_wanted = field.flag()?;
    match protocol {
        Some(Protocol::OpenAiChat | Protocol::Anthropic) => Ok(is_wanted),
        Some(Protocol::OpenAiResponses) | None if !is_wanted => Ok(false),
        Some(Protocol::OpenAiResponses) | None => {
            Err(field.fail("only the providers openai-chat and anthropic can be given words to go on from"))
        }
    }
}

fn read_scripted(section: &mut Section) -> Result<Provider, ConfigError> {
    for key in ["base_url", "api_key", "model"] {
        if let Some(field) = section.take(key) {
            return Err(field.fail("the provider scripted is offline and has no use for this"));
        }
    }
    Ok(Provider::Scripted { script: section.read("script", Field::some_text)?.map(PathBuf::from) })
}

fn read_remote(section: &mut Section, protocol: Protocol) -> Result<Provider, ConfigError> {
    if let Some(field) = section.take("script") {
        return Err(field.fail("only the provider scripted has a script"));
    }
    let base_url = match protocol.usual_base_url() {
        Some(usual) => section.read("base_url", read_base_url)?.unwrap_or_else(|| usual.to_owned()),
        None => read_base_url(&section.require("base_url")?)?,
    };
    Ok(Provider::Remote {
        protocol,
        base_url,
        api_key: section.read("api_key", Field::some_text)?.map(Secret::new),
        model: section.read("model", Field::some_text)?,
    })
}

fn read_base_url(field: &Field) -> Result<String, ConfigError> {
    let url = field.some_text()?;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    // The address is printed and logged, so that a password in it would be too.
    if host.contains('@') {
        return Err(field.fail("expected an address without a user or password in it; a key goes into api_key"));
    }
    if host.is_empty() || rest.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#')) {
        return Err(field.expected("an address such as https://api.example.com/v1"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn read_tools(external: Option<Field>, limits: &Limits) -> Result<Vec<ExternalTool>, ConfigError> {
    let mut tools: Vec<ExternalTool> = Vec::new();
    for field in elements(external)? {
        let mut section = field.section(&EXTERNAL)?;
        let name_field = section.require("name")?;
        let name = name_field.name()?;
        if name == SUBMIT_RESULT {
            return Err(name_field.fail(format!("the name {name} is taken by Windlass itself")));
        }
        if tools.iter().any(|known| known.name == name) {
            return Err(name_field.fail(format!("a tool named {name} is given above")));
        }
        tools.push(read_tool(name, section, limits)?);
    }
    Ok(tools)
}

fn read_tool(name: String, mut section: Section, limits: &Limits) -> Result<ExternalTool, ConfigError> {
    let endings = [("suspend", AfterExecution::Suspend), ("terminate", AfterExecution::Terminate)];
    Ok(ExternalTool {
        name,
        description: section.read_or("description", String::new(), Field::text)?,
        parameters: section.read_or("parameters", serde_json::json!({"type": "object"}), Field::object)?,
        // Who says nothing gets the class that is never started twice.
        effect: section.read_or("effect", EffectClass::Write, |field| field.choice("effect", &EFFECTS, &[]))?,
        after_execution: section
            .read_or("after_execution", AfterExecution::Suspend, |field| field.choice("after_execution", &endings, &[]))?,
        deadline: section.read_or("deadline", limits.call_deadline, Field::duration)?,
    })
}

fn read_agents(field: Field, models: &[Model], tools: &[&str], limits: &Limits) -> Result<BTreeMap<String, Agent>, ConfigError> {
    let read = |(name, field): (String, Field)| Ok((name, read_agent(field.section(&AGENT)?, models, tools, limits)?));
    field.named()?.into_iter().map(read).collect()
}

fn read_agent(mut section: Section, models: &[Model], tools: &[&str], limits: &Limits) -> Result<Agent, ConfigError> {
    let policies = [("respond", PolicyName::Respond)];
    let later = ["pursue", "supervise", "route"];
    Ok(Agent {
        policy: section.read_or("policy", PolicyName::Respond, |field| field.choice("policy", &policies, &later))?,
        model: section.read("model", |field| read_model_name(field, models))?,
        instructions: section.read("instructions", Field::text)?,
        tools: read_tool_names(section.take("tools"), tools)?,
        budgets: match section.take("budgets") {
            Some(field) => read_budgets(field.section(&BUDGETS)?, limits)?,
            None => default_budgets(limits),
        },
        serial: section.read_or("serial", false, Field::flag)?,
    })
}

/// A model that the configuration can resolve: one of that name, or any if one passes names on.
fn read_model_name(field: &Field, models: &[Model]) -> Result<String, ConfigError> {
    let name = field.some_text()?;
    if models.iter().any(|model| model.name == name || model.name == "*") {
        return Ok(name);
    }
    let mut valid: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    valid.dedup();
    Err(field.unknown("model", &valid))
}

/// Tools, and servers whose tools are all meant.
fn read_tool_names(field: Option<Field>, valid: &[&str]) -> Result<Vec<String>, ConfigError> {
    let mut names: Vec<String> = Vec::new();
    for field in elements(field)? {
        let name = field.text()?;
        if valid.is_empty() {
            return Err(field.expected("the name of a tool or of a tool server, but `tools` has none"));
        }
        if !valid.contains(&name.as_str()) {
            return Err(field.unknown("tool", valid));
        }
        if names.contains(&name) {
            return Err(field.fail(format!("the tool {name} is given above")));
        }
        names.push(name);
    }
    Ok(names)
}

fn default_budgets(limits: &Limits) -> Budgets {
    Budgets { iterations: limits.max_turns, calls: None, tokens: None, wall_ms: None }
}

fn read_budgets(mut section: Section, limits: &Limits) -> Result<Budgets, ConfigError> {
    let default = default_budgets(limits);
    let wall_time = section.read("wall_time", Field::duration)?;
    Ok(Budgets {
        iterations: section.read_or("iterations", default.iterations, |field| field.whole(1))?,
        calls: section.read("calls", |field| field.whole(1))?,
        tokens: section.read("tokens", |field| field.whole(1))?,
        wall_ms: wall_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    })
}
