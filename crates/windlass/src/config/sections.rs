//! The sections of `windlass.yaml`: their keys, the meaning of these, and how they constrain each other.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use windlass_kernel::{EffectClass, Timestamp};
use windlass_ports::Tenants;

use super::{
    Auth, Config, Limits, Model, Protocol, Provider, Responses, Scope, Secret, Store, Token, TokenHash, agents, approvals, doorbell,
    error::ConfigError,
    interrupts, log, mcp,
    node::Node,
    prices, quotas,
    reader::{Field, Keys, Section},
    retention, server,
    tenants::{self, KnownTenants},
};

/// The minimum length of a token: 22 characters of Base64 are 128 bits, which cannot be guessed.
pub const TOKEN_CHARS_MIN: usize = 22;

/// The shortest lease. A shorter one would be lost in the pauses that any machine has now and then.
const LEASE_MIN: Duration = Duration::from_millis(500);

const TOP: Keys = Keys {
    known: &[
        "server",
        "store",
        "doorbell",
        "auth",
        "models",
        "tools",
        "mcp",
        "agents",
        "agents_open",
        "approvals",
        "prices",
        "interrupts",
        "limits",
        "quotas",
        "usage",
        "retention",
        "egress",
        "responses",
        "log",
    ],
    later: &["plugins_dir", "plugins", "pipelines", "webhooks", "schedules"],
};
const STORE: Keys = Keys { known: &["url"], later: &[] };
const AUTH: Keys = Keys { known: &["tokens"], later: &[] };
const TOKEN: Keys = Keys { known: &["token", "tenant", "scopes", "name", "status", "expires"], later: &[] };
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
        "tenants",
    ],
    later: &[],
};
const TOOLS: Keys = Keys { known: &["external", "mcp"], later: &[] };
const RESPONSES: Keys =
    Keys { known: &["status", "store_false", "memory_bytes", "join_s", "erase_s", "heartbeat", "socket_limit"], later: &[] };
const LIMITS: Keys = Keys {
    known: &[
        "max_turns",
        "call_deadline",
        "body_bytes",
        "item_bytes",
        "prompt_bytes",
        "box_items",
        "box_bytes",
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
        "in_flight_bytes",
        "in_flight_bytes_per_tenant",
        "requests_per_tenant",
        "requests_per_token",
        "sockets_per_tenant",
        "sockets_per_token",
    ],
    later: &[],
};

/// The valid keys of all sections.
#[cfg(test)]
pub(super) const ALL: [&Keys; 25] = [
    &TOP,
    &server::SERVER,
    &STORE,
    &doorbell::DOORBELL,
    &AUTH,
    &TOKEN,
    &MODEL,
    &TOOLS,
    &agents::EXTERNAL,
    &agents::RETRY,
    &mcp::SERVER,
    &mcp::MCP,
    &mcp::EGRESS,
    &agents::AGENT,
    &agents::BUDGETS,
    &approvals::APPROVAL,
    &prices::PRICE,
    &interrupts::INTERRUPTS,
    &interrupts::NOTIFY,
    &RESPONSES,
    &log::LOG,
    &LIMITS,
    &quotas::QUOTA,
    &quotas::USAGE,
    &retention::RETENTION,
];

/// The effect classes by their names.
pub(super) const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("idempotent", EffectClass::Idempotent), ("write", EffectClass::Write)];

/// Whether there is a section of that name, in this version or a later one.
pub(super) fn is_top_level(key: &str) -> bool {
    TOP.known.contains(&key) || TOP.later.contains(&key)
}

/// Reads the whole tree into a [`Config`].
pub(super) fn read(root: Node) -> Result<Config, ConfigError> {
    let mut top = Field::root(root).section(&TOP)?;
    let limits = section_or_default(&mut top, "limits", &LIMITS, read_limits)?;
    let server = section_or_default(&mut top, "server", &server::SERVER, server::read_server)?;
    let store = section_or_default(&mut top, "store", &STORE, read_store)?;
    let doorbell = top.take("doorbell").map(|field| doorbell::read_doorbell(field.section(&doorbell::DOORBELL)?)).transpose()?;
    let auth = section_or_default(&mut top, "auth", &AUTH, read_auth)?;
    let known = KnownTenants::of(&auth);
    let mut models = elements(top.take("models"))?.into_iter().map(|field| read_model(field, &known)).collect::<Result<Vec<_>, _>>()?;
    if models.is_empty() {
        models.push(Model::offline());
    }
    let (tools, mcp) = match top.take("tools") {
        Some(field) => {
            let mut section = field.section(&TOOLS)?;
            (agents::read_tools(section.take("external"), &limits, &known)?, mcp::read_servers(section.take("mcp"), &known)?)
        }
        None => (Vec::new(), Vec::new()),
    };
    let default_approval = section_or_default(&mut top, "mcp", &mcp::MCP, mcp::read_mcp)?;
    let egress = section_or_default(&mut top, "egress", &mcp::EGRESS, mcp::read_egress)?;
    let agents = match top.take("agents") {
        Some(field) => {
            let names = tools.iter().map(|tool| (tool.name.as_str(), &tool.tenants));
            let tools: Vec<_> = names.chain(mcp.iter().map(|server| (server.label.as_str(), &server.tenants))).collect();
            agents::Reader { models: &models, tools: &tools, limits: &limits, known: &known }.read(field)?
        }
        None => BTreeMap::new(),
    };
    // If agents are configured, another name is most likely a typing mistake.
    let agents_open = top.read_or("agents_open", agents.is_empty(), Field::flag)?;
    let approvals = approvals::read_approvals(top.take("approvals"))?;
    let prices = prices::read_prices(top.take("prices"))?;
    let notify = section_or_default(&mut top, "interrupts", &interrupts::INTERRUPTS, interrupts::read_interrupts)?;
    let quotas = quotas::read_quotas(top.take("quotas"), &known)?;
    let usage_days = quotas::read_usage(top.take("usage"), &quotas)?;
    let retention = section_or_default(&mut top, "retention", &retention::RETENTION, retention::read_retention)?;
    let responses = section_or_default(&mut top, "responses", &RESPONSES, read_responses)?;
    let log = section_or_default(&mut top, "log", &log::LOG, log::read_log)?;
    Ok(Config {
        server,
        store,
        doorbell,
        auth,
        models,
        tools,
        mcp,
        default_approval,
        agents,
        agents_open,
        approvals,
        prices,
        notify,
        limits,
        quotas,
        usage_days,
        retention,
        egress,
        responses,
        log,
        exposed_secrets: Vec::new(),
    })
}

fn section_or_default<T: Default>(
    top: &mut Section,
    key: &str,
    keys: &Keys,
    read: impl FnOnce(Section) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    top.take(key).map_or_else(|| Ok(T::default()), |field| read(field.section(keys)?))
}

/// The elements of an optional list.
pub(super) fn elements(field: Option<Field>) -> Result<Vec<Field>, ConfigError> {
    field.map_or_else(|| Ok(Vec::new()), Field::list)
}

fn read_limits(mut section: Section) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let model_deadline = section.read_or("model_deadline", default.model_deadline, Field::duration)?;
    let max_turns = section.read("max_turns", |field| field.whole(1))?;
    let body_bytes = section.read_or("body_bytes", default.body_bytes, |field| field.whole(1))?;
    let (in_flight_bytes, in_flight_bytes_per_tenant) = read_in_flight(&mut section, body_bytes)?;
    Ok(Limits {
        max_turns: max_turns.unwrap_or(default.max_turns),
        turns_ceiling: max_turns.unwrap_or(default.turns_ceiling),
        call_deadline: section.read_or("call_deadline", default.call_deadline, Field::duration)?,
        body_bytes,
        item_bytes: section.read_or("item_bytes", default.item_bytes, |field| field.whole(1))?,
        prompt_bytes: section.read_or("prompt_bytes", default.prompt_bytes, |field| field.whole(1))?,
        box_items: section.read_or("box_items", default.box_items, |field| field.whole(1))?,
        box_bytes: section.read_or("box_bytes", default.box_bytes, |field| field.whole(1))?,
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
        in_flight_bytes,
        in_flight_bytes_per_tenant,
        requests_per_tenant: section.read("requests_per_tenant", |field| field.whole(1))?,
        requests_per_token: section.read("requests_per_token", |field| field.whole(1))?,
        sockets_per_tenant: section.read_or("sockets_per_tenant", default.sockets_per_tenant, |field| field.whole(1))?,
        sockets_per_token: section.read("sockets_per_token", |field| field.whole(1))?,
    })
}

/// Reads the limits on bytes in flight, over all tenants and per tenant. Both must fit one body, or such a body could never be sent.
fn read_in_flight(section: &mut Section, body_bytes: usize) -> Result<(usize, usize), ConfigError> {
    let read = |field: &Field| match field.whole(1)? {
        bytes if bytes < body_bytes => Err(field.expected(&format!("at least limits.body_bytes, which is {body_bytes}"))),
        bytes => Ok(bytes),
    };
    let all = section.read_or("in_flight_bytes", Limits::default().in_flight_bytes.max(body_bytes.saturating_mul(4)), read)?;
    let of_tenant = section.read_or("in_flight_bytes_per_tenant", (all / 2).max(body_bytes), read)?;
    Ok((all, of_tenant))
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

/// Reads a lease and checks its minimum.
fn read_lease(field: &Field) -> Result<Duration, ConfigError> {
    let lease = field.duration()?;
    if lease < LEASE_MIN { Err(field.expected("a time of at least 500ms")) } else { Ok(lease) }
}

fn read_store(mut section: Section) -> Result<Store, ConfigError> {
    let store = section.read("url", |field| {
        let url = field.some_text()?;
        // The address of a database often contains a password, so the error does not repeat it.
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
        None if text.chars().count() < TOKEN_CHARS_MIN => {
            return Err(field.fail("a token has at least 22 characters; `openssl rand -hex 32` makes one"));
        }
        None => TokenHash::of(&text),
    };
    let list = section.require("scopes")?;
    let none = list.fail("expected at least one scope, found none");
    let scopes = list.list()?.iter().map(read_scope).collect::<Result<Vec<_>, _>>()?;
    if scopes.is_empty() {
        return Err(none);
    }
    let tenant = section.read_or("tenant", tenants::DEFAULT.to_owned(), Field::name)?;
    let standard_status = section.read("status", read_status)?;
    let expires = section.read("expires", read_moment)?;
    Ok(Token { hash, tenant, scopes, name: section.read("name", Field::name)?, standard_status, expires })
}

fn read_moment(field: &Field) -> Result<Timestamp, ConfigError> {
    let moment = field.text()?.parse::<jiff::Timestamp>().map_err(|_| field.expected("a time such as 2027-01-31T00:00:00Z"))?;
    Ok(Timestamp(moment.as_millisecond()))
}

/// Reads whether a response that waits for its client has the status `completed`.
fn read_status(field: &Field) -> Result<bool, ConfigError> {
    field.choice("spelling", &[("hybrid", false), ("standard", true)], &[])
}

fn read_scope(field: &Field) -> Result<Scope, ConfigError> {
    let text = field.text()?;
    let kind = text.split_once(':').map(|(kind, _)| kind);
    // A misspelt `agents:read` must not be read as the scope of an agent named `read`.
    if let Some(("agent", verb)) = text.split_once(':')
        && Scope::parse(&format!("agents:{verb}")).is_ok()
    {
        return Err(field.unknown("scope", &Scope::SPELLINGS));
    }
    Scope::parse(&text).map_err(|_| match kind {
        // No nearest word is suggested: it could be `tools:*`, which is a wider scope than the operator meant.
        Some("tools") => field.expected("tools:<name> or tools:*"),
        Some("agent") => field.expected("agent:<name> with the name of one agent"),
        Some("use") => field.expected("use:<tool> with the name of one tool"),
        Some("mcp") => field.expected("mcp:<label> with the label of one MCP server"),
        Some(_) | None => field.unknown("scope", &Scope::SPELLINGS),
    })
}

/// The providers by name. The one without a protocol is the offline model.
const PROVIDERS: [(&str, Option<Protocol>); 4] = [
    ("scripted", None),
    ("openai-chat", Some(Protocol::OpenAiChat)),
    ("openai-responses", Some(Protocol::OpenAiResponses)),
    ("anthropic", Some(Protocol::Anthropic)),
];

fn read_model(field: Field, known: &KnownTenants) -> Result<Model, ConfigError> {
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
        tenants: section.take("tenants").map_or(Ok(Tenants::All), |field| known.read(field))?,
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
    // The address is printed and logged, so it must not contain a password.
    if host.contains('@') {
        return Err(field.fail("expected an address without a user or password in it; a key goes into api_key"));
    }
    if host.is_empty() || rest.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#')) {
        return Err(field.expected("an address such as https://api.example.com/v1"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}
