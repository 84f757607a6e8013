//! The server: wires all parts together from a configuration, and runs until a signal stops it.

use std::{collections::BTreeSet, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::net::TcpListener;
use windlass_doors::{Configured, DoorState, Hosts, InboxIds, Limits as DoorLimits, Metrics, ResponsesSettings, WireReader};
use windlass_engine::{AgentCatalog, AgentSpec, CrashPoints, Engine, Notifications, Parts, PriceTable, Settings};
use windlass_kernel::{Route, Tenant, ToolName, ToolSpec};
use windlass_models::{Anthropic, Entry, OpenAiChat, OpenAiResponses, Registry, RemoteConfig, Scripted};
use windlass_ports::{Admission, Clock, ContextSize, Meter, Model};
use windlass_store::StoreOptions;
use windlass_tools::{Egress, Limits as ToolLimits, Seal, ServerConfig, Servers, Webhook};

use crate::{
    bell::Bell,
    cli,
    config::{self, Config, Place, Protocol, Provider, TokenHash},
    connections::{self, ConnectionLimits},
    login,
    signals::{Hangup, Replaceable, Signals},
    storage,
    tls::Certificate,
    world::OrderedIds,
};

/// How long open connections may continue once the engine has stopped. Streams never end by themselves.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A server that listens and is about to answer.
pub(crate) struct Ready<'a> {
    /// The address on which it listens, with the actual port.
    pub address: SocketAddr,
    pub place: &'a Place<'a>,
    pub config: &'a Config,
    /// The token of the data folder, if the configuration has none.
    pub own_token: Option<&'a str>,
    pub servers: &'a Arc<Servers>,
}

/// Serves until SIGTERM or SIGINT; `hangup` is the reaction to SIGHUP. `ready` is called just before the first request is answered.
/// `observe` makes the engine's meter from the metrics.
pub(crate) async fn serve(
    config: Config,
    data: &Path,
    hangup: Hangup,
    observe: impl FnOnce(Arc<Metrics>) -> Arc<dyn Meter>,
    ready: impl FnOnce(&Ready<'_>),
) -> anyhow::Result<()> {
    // rustls supports several crypto providers, and the process must choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    warn_of_exposed_secrets(&config);
    let (crash, models) = (crash_points(&config)?, Arc::new(registry(&config)?));
    let place = config.store.place(data);
    let (options, metrics) = (store_options(&config), metrics(&config));
    let (tokens, own_token) = login::tokens(&config, data)?;
    let own_hash = own_token.as_deref().map(|token| *TokenHash::of(token).as_bytes());
    let seal = seal(&config, data)?;
    let mut storage = storage::open(&place, options, own_hash, &seal, metrics.clone()).await?;
    if let Some(bytes_max) = config.responses.memory_bytes {
        storage = storage.with_unlisted_in_memory(options, bytes_max);
    }
    let certificate = config.server.tls.as_ref().map(Certificate::read).transpose()?;
    let listener = TcpListener::bind(config.server.listen).await.with_context(|| format!("cannot listen on {}", config.server.listen))?;
    let address = listener.local_addr()?;
    let bell = Bell::connect(config.doorbell.as_ref(), &place, storage.node).await?;
    let seal_key = seal.key_id();
    let servers = Arc::new(tool_servers(&config, seal.clone(), storage.clock.clone())?);
    let engine = Engine::start(Parts {
        node: storage.node,
        views: storage.views,
        store: storage.store,
        models,
        roster: roster(&config),
        servers: Some(servers.clone()),
        doorbell: bell.doorbell,
        bells: bell.bells,
        notifications: notifications(&config, storage.clock.clone())?,
        publisher: bell.publisher,
        clock: storage.clock,
        ids: Arc::new(OrderedIds),
        crash,
        settings: settings(&config),
        reader: Arc::new(WireReader),
        meter: observe(metrics.clone()),
        life: None,
    });
    let state = DoorState::new(engine.clone(), tokens, door_limits(&config), Arc::new(seal)).with_responses(responses(&config));
    let hosts = Hosts::new(address, config.server.peers.behind_proxy, config.server.hosts.clone());
    let state = state.with_inbox_ids(InboxIds::new(storage.id_key)).with_metrics(metrics);
    let state = state.with_peers(config.server.peers.clone()).with_hosts(hosts);
    let tokens_in_use = state.tokens();
    let router = windlass_doors::router(state);
    // A process that reads the line about readiness may stop the server at that moment.
    let tls = certificate.as_ref().map(Certificate::acceptor);
    let signals = Signals::listen(hangup, Replaceable { tokens: tokens_in_use, certificate })?;
    write_server_file(data, config.server.url(address));
    let stopped = Arc::new(tokio::sync::Notify::new());
    let is_stopped = stopped.clone();
    let server = connections::serve(listener, router, connection_limits(&config), tls, async move { is_stopped.notified().await });
    let announced = async {
        // Until then `/healthz` answers that the server is starting.
        engine.ready().await;
        tracing::info!(%address, store = %place, seal_key = %seal_key, model = %config.models[0].name, "serving");
        ready(&Ready { address, place: &place, config: &config, own_token: own_token.as_deref(), servers: &servers });
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = server => {}
        () = announced => {}
        () = async {
            signals.stop().await;
            tracing::info!("stopping: no new work, running calls may finish");
            engine.drain().await;
            stopped.notify_one();
            tokio::time::sleep(CLOSE_TIMEOUT).await;
        } => {}
    }
    tracing::info!("stopped");
    Ok(())
}

fn store_options(config: &Config) -> StoreOptions {
    StoreOptions { publish: config.doorbell.is_some(), usage: config.usage_days.is_some() }
}

/// Writes the file by which the command line finds the server. A failure is only logged, because the server works without it.
fn write_server_file(data: &Path, url: String) {
    if let Err(error) = cli::write_server_file(data, url) {
        tracing::warn!(%error, folder = %data.display(), "server.json cannot be written; `windlass ls` needs --server");
    }
}

fn warn_of_exposed_secrets(config: &Config) {
    for setting in &config.exposed_secrets {
        tracing::warn!(
            setting,
            "every user of this machine can read a secret in the configuration; run chmod 600 on the file, or write ${{NAME}} and set the variable"
        );
    }
}

fn door_limits(config: &Config) -> DoorLimits {
    let limits = &config.limits;
    let requests_per_tenant = limits.requests_per_tenant.unwrap_or((config.server.connections * 4 / 5).max(1));
    DoorLimits {
        body_bytes_max: limits.body_bytes,
        body_ms_max: millis(config.server.body),
        in_flight_bytes_max: limits.in_flight_bytes,
        tenant_in_flight_bytes_max: limits.in_flight_bytes_per_tenant,
        requests_per_tenant,
        requests_per_token: limits.requests_per_token.unwrap_or(requests_per_tenant),
        sockets_per_tenant: limits.sockets_per_tenant,
        sockets_per_token: limits.sockets_per_token.unwrap_or(limits.sockets_per_tenant),
    }
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    let server = &config.server;
    let (connections, per_peer) = (server.connections, server.connections_per_peer);
    ConnectionLimits { connections, per_peer, head: server.head, peers: server.peers.clone() }
}

fn responses(config: &Config) -> ResponsesSettings {
    ResponsesSettings {
        standard_status: config.responses.standard_status,
        erase_ms: millis(config.responses.erase),
        heartbeat_ms: millis(config.responses.heartbeat),
        socket_ms: millis(config.responses.socket_limit),
        default_approval: config.default_approval,
    }
}

/// Metrics with the names of the configuration as labels. The tools of MCP servers are counted as `other`, because the servers choose their
/// names.
fn metrics(config: &Config) -> Arc<Metrics> {
    Metrics::new(Configured {
        agents: config.agents.keys().cloned().collect(),
        models: config.models.iter().map(|model| model.name.clone()).collect(),
        tools: config.tools.iter().map(|tool| tool.name.clone()).collect(),
    })
}

fn crash_points(config: &Config) -> anyhow::Result<CrashPoints> {
    let Ok(point) = std::env::var("WINDLASS_CRASH_AT") else {
        return Ok(CrashPoints::default());
    };
    anyhow::ensure!(!config.server.peers.behind_proxy, "WINDLASS_CRASH_AT is for tests and refused together with server.behind_proxy");
    let points = CrashPoints::parse(&point)?;
    tracing::warn!(%point, "THIS SERVER WILL KILL ITSELF: WINDLASS_CRASH_AT is set");
    Ok(points)
}

fn registry(config: &Config) -> anyhow::Result<Registry> {
    let models = config.models.iter().enumerate();
    let entries = models.map(|(index, _)| entry(config, index)).collect::<anyhow::Result<Vec<_>>>()?;
    Registry::new(entries).context("no models are configured")
}

/// The name of a provider in messages. Models of the same name are numbered.
fn provider_name(before: &[config::Model], name: &str) -> String {
    match before.iter().filter(|model| model.name == name).count() {
        0 => name.to_owned(),
        earlier => format!("{name}#{}", earlier + 1),
    }
}

fn entry(config: &Config, index: usize) -> anyhow::Result<Entry> {
    let model = &config.models[index];
    let name = provider_name(&config.models[..index], &model.name);
    let first_byte = config.limits.first_byte;
    let (made, upstream): (Arc<dyn Model>, Option<String>) = match &model.provider {
        Provider::Scripted { script } => {
            let scripted = match script {
                Some(path) => Scripted::from_file(name, path)?,
                None => Scripted::by_words(name),
            };
            (Arc::new(scripted.with_concurrency(model.concurrency)), None)
        }
        Provider::Remote { protocol, base_url, api_key, model: upstream } => {
            let mut config = RemoteConfig::new(name, base_url);
            config.api_key = api_key.as_ref().map(|key| key.expose().to_owned());
            config.model.clone_from(upstream);
            config.concurrency = model.concurrency;
            config.connect_timeout_ms = millis(model.connect_timeout);
            config.first_byte_timeout_ms = millis(first_byte);
            config.idle_timeout_ms = millis(model.idle_timeout);
            config.setting = Some(format!("models[{index}]"));
            config.prefill = model.prefill;
            let made: Arc<dyn Model> = match protocol {
                Protocol::OpenAiChat => Arc::new(OpenAiChat::new(config)?),
                Protocol::OpenAiResponses => Arc::new(OpenAiResponses::new(config)?),
                Protocol::Anthropic => Arc::new(Anthropic::new(config)?),
            };
            (made, upstream.clone())
        }
    };
    Ok(Entry { name: model.name.clone(), upstream, context: model.context, tenants: model.tenants.clone(), model: made })
}

/// The seal for credentials of declared servers and for data that clients keep. All processes on one store need the same key. Earlier keys
/// can only open.
fn seal(config: &Config, data: &Path) -> anyhow::Result<Seal> {
    match std::env::var("WINDLASS_SEAL_KEY") {
        Ok(keys) => Seal::from_hex(&keys).context("WINDLASS_SEAL_KEY cannot be used"),
        Err(_) => {
            // With the database elsewhere, no other code creates the folder.
            windlass_store::create_private_folder(data).with_context(|| format!("the data folder {} cannot be made", data.display()))?;
            if let Place::Postgres(_) = config.store.place(data) {
                tracing::warn!(
                    "WINDLASS_SEAL_KEY is not set: another server on this database is refused at its start unless it has this one's seal.key"
                );
            }
            Ok(Seal::from_file(&data.join("seal.key"))?)
        }
    }
}

fn tool_servers(config: &Config, seal: Seal, clock: Arc<dyn Clock>) -> anyhow::Result<Servers> {
    let configured = config.mcp.iter().map(ServerConfig::from).collect();
    let limits = ToolLimits { list: config.limits.tool_list, ..ToolLimits::default() };
    Ok(Servers::new(configured, Egress::new(config.egress.iter().cloned()), seal, clock, limits)?)
}

/// Where notices of opened interrupts go.
fn notifications(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Option<Notifications>> {
    let Some(notify) = &config.notify else { return Ok(None) };
    let egress = Egress::new(config.egress.iter().cloned());
    let webhook = Webhook::new(notify.url.expose(), notify.secret.expose(), egress, clock);
    let webhook = webhook.map_err(|why| anyhow::anyhow!("interrupts.notify cannot be used: {why}"))?;
    // Without any tokens the server has one of its own.
    let named: BTreeSet<Tenant> = config.auth.tokens.iter().map(|token| Tenant::from(token.tenant.as_str())).collect();
    let tenants = if named.is_empty() { [Tenant::from(config::DEFAULT_TENANT)].into() } else { named };
    Ok(Some(Notifications { notifier: Arc::new(webhook), tenants: tenants.into_iter().collect() }))
}

/// The prices of all configured models. Models whose names are passed on have the prices of those names.
fn price_table(config: &Config) -> PriceTable {
    let mut table = PriceTable::new(config.prices.clone());
    for model in config.models.iter().filter(|model| model.name != "*") {
        let upstream = match &model.provider {
            Provider::Remote { model: Some(upstream), .. } => upstream,
            Provider::Remote { model: None, .. } | Provider::Scripted { .. } => &model.name,
        };
        table.add_model(&model.name, upstream);
    }
    table
}

fn roster(config: &Config) -> AgentCatalog {
    let agents = config.agents.iter().map(|(name, agent)| {
        let spec = AgentSpec {
            policy: agent.policy,
            model: agent.model.clone(),
            instructions: agent.instructions.clone(),
            tools: agent.tools.iter().map(|tool| ToolName::from(tool.as_str())).collect(),
            budgets: agent.budgets,
            cost_limit: agent.cost_limit,
            budgets_park: agent.budgets_park,
            ask: agent.ask,
            serial: agent.serial,
            description: agent.description.clone(),
            parameters: agent.parameters.clone(),
            levels: agent.max_depth,
            tenants: agent.tenants.clone(),
        };
        (name.as_str().into(), spec)
    });
    let tools = config.tools.iter().map(|tool| {
        let spec = ToolSpec {
            name: tool.name.as_str().into(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            route: Route::External,
            effect: tool.effect,
            after_execution: tool.after_execution,
            deadline_ms: millis(tool.deadline.min(config.limits.call_deadline)),
            remote: None,
            retry: tool.retry,
            strict: None,
            untrusted: false,
            agent: None,
        };
        (spec.name.clone(), spec)
    });
    let tenants = config.tools.iter().map(|tool| (ToolName::from(tool.name.as_str()), tool.tenants.clone()));
    let roster = AgentCatalog::new(agents.collect(), tools.collect(), Vec::new())
        .with_tool_tenants(tenants.collect())
        .with_gates(config.approvals.clone())
        .with_prices(price_table(config));
    if config.agents_open { roster } else { roster.closed() }
}

fn settings(config: &Config) -> Settings {
    let limits = &config.limits;
    Settings {
        workers_max: limits.workers,
        sweep_ms: millis(limits.sweep_interval),
        lease_ms: millis(limits.lease),
        iterations_max: limits.max_turns,
        iterations_ceiling: limits.turns_ceiling,
        call_deadline_ms: millis(limits.call_deadline),
        model_deadline_ms: millis(limits.model_deadline),
        attempts_max: limits.attempts,
        backoff_ms: millis(limits.backoff),
        item_bytes_max: limits.item_bytes,
        context_max: ContextSize { items: limits.box_items, bytes: limits.box_bytes },
        prompt_bytes_max: limits.prompt_bytes,
        join_ms: millis(config.responses.join),
        drain_ms: millis(config.server.drain),
        admission: Admission { queued_per_agent_max: limits.queued_per_agent, open_per_tenant_max: limits.open_per_tenant },
        quotas: config.quotas.clone(),
        usage_days: config.usage_days,
        retention: config.retention,
        ..Settings::default()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
