//! The implementation of the port: declares servers, lists their tools and calls them.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::{ClientBuilder, Url, redirect};
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use windlass_kernel::{CallRetries, EffectClass, ServerSource, Tenant, ToolServer};
use windlass_ports::{Clock, DeclaredServer, OfferedTool, ServerError, Tenants, ToolCall, ToolReport, ToolServers};

use crate::{
    Failure,
    egress::{Egress, Guard, check_credentials},
    headers::{Headers, digest_of},
    http::Http,
    outcome,
    pool::{Key, Pool, PoolLimits, ServerKey},
    process::Command,
    seal::Seal,
    secrets::{Secrets, shown_url},
    session::{Session, Transport},
};

/// A server of the configuration. Its address is not checked by the egress rules, since the operator chose it.
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// The name of the server in requests.
    pub label: String,
    /// The address of the server. Ignored if there is a command.
    pub url: String,
    /// The program and its arguments, if the server is a child process.
    pub command: Vec<String>,
    /// Variables for the process, in addition to the few that every process inherits.
    pub environment: BTreeMap<String, String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// The value of `Authorization`: a token, or a scheme with its credentials.
    pub authorization: Option<String>,
    /// The effect classes of tools, which take precedence over the server's annotations.
    pub effects: BTreeMap<String, EffectClass>,
    /// Whether calls of its tools, except writes, are repeated if a tool reports a failure.
    pub retry: Option<CallRetries>,
    /// The tenants that may use the server.
    pub tenants: Tenants,
    /// Whether all tenants share one session or process. Only for servers that keep no state about their clients.
    pub shared: bool,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = f.debug_struct("ServerConfig");
        // Arguments, variables and the query of the address may be secrets.
        let url = Url::parse(&self.url).map(|url| shown_url(&url)).unwrap_or_default();
        shown.field("label", &self.label).field("url", &url).field("program", &self.command.first());
        shown.field("headers", &headers).field("effects", &self.effects);
        shown.finish_non_exhaustive()
    }
}

/// The limits on servers and sessions.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time in which a session must open.
    pub connect: Duration,
    /// The time in which a server must list its tools.
    pub list: Duration,
    /// How long a list of tools is cached.
    pub list_age: Duration,
    /// Bytes of one answer.
    pub answer_bytes_max: usize,
    /// Tools that a server may offer.
    pub tools_max: usize,
    /// How long an unused session stays open.
    pub idle: Duration,
    /// Open sessions with declared servers, over all tenants.
    pub declared_sessions_max: usize,
    /// Open sessions with declared servers, per tenant.
    pub declared_sessions_per_tenant_max: usize,
    /// Running processes of configured servers. Each tenant has one per server, unless the server is shared.
    pub processes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(10),
            list: Duration::from_secs(30),
            list_age: Duration::from_secs(60),
            answer_bytes_max: 4 << 20,
            tools_max: 1_000,
            idle: Duration::from_secs(5 * 60),
            declared_sessions_max: 1_024,
            declared_sessions_per_tenant_max: 64,
            processes_max: 256,
        }
    }
}

/// The client of all tool servers.
pub struct Servers {
    configured: BTreeMap<String, Configured>,
    /// The HTTP client for declared servers. It connects only to addresses that the egress rules allow.
    guarded: reqwest::Client,
    egress: Arc<Egress>,
    seal: Seal,
    clock: Arc<dyn Clock>,
    limits: Limits,
    pool: Arc<Pool>,
}

struct Configured {
    server: ServerKey,
    transport: Transport,
    effects: BTreeMap<String, EffectClass>,
    retry: Option<CallRetries>,
    shared: bool,
    tenants: Tenants,
}

impl Configured {
    fn target(&self, tenant: &Tenant) -> Target {
        let tenant = if self.shared { None } else { Some(tenant.clone()) };
        Target { key: Key { tenant, server: self.server.clone() }, transport: self.transport.clone() }
    }
}

/// A server with its transport and its key in the pool.
#[derive(Clone)]
struct Target {
    key: Key,
    transport: Transport,
}

impl Servers {
    /// Creates the client. `egress` restricts the servers that requests may declare; no session is opened yet.
    pub fn new(
        configured: Vec<ServerConfig>,
        egress: Egress,
        seal: Seal,
        clock: Arc<dyn Clock>,
        limits: Limits,
    ) -> Result<Self, SetupError> {
        // The HTTP client panics without a TLS provider, and a library should return an error instead.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(SetupError::NoTlsProvider);
        }
        let egress = Arc::new(egress);
        // A proxy from the environment would resolve names itself and so bypass the egress check.
        let guarded = client(&limits).no_proxy().dns_resolver(Guard(egress.clone())).build().map_err(SetupError::Client)?;
        let mut servers = BTreeMap::new();
        for config in configured {
            let server = configure(&config, &limits)?;
            if servers.insert(config.label.clone(), server).is_some() {
                return Err(SetupError::Server { label: config.label, why: "there is another one of that label".to_owned() });
            }
        }
        let pool = Arc::new(Pool::new(PoolLimits {
            declared_max: limits.declared_sessions_max,
            declared_per_tenant_max: limits.declared_sessions_per_tenant_max,
            processes_max: limits.processes_max,
            idle: limits.idle,
        }));
        Ok(Servers { configured: servers, guarded, egress, seal, clock, limits, pool })
    }

    /// The number of sessions that are open or being opened.
    pub fn sessions(&self) -> usize {
        self.pool.len()
    }

    /// Ends all unused sessions and waits until their servers have been notified.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The configured server with this label, if the tenant may use it.
    fn configured(&self, tenant: &Tenant, label: &str) -> Option<&Configured> {
        self.configured.get(label).filter(|server| server.tenants.admit(tenant))
    }

    fn target(&self, tenant: &Tenant, server: &ToolServer) -> Result<Target, ServerError> {
        let (shown, sealed) = match &server.source {
            ServerSource::Configured => {
                // Checked again, because the configuration may have changed since the run was accepted.
                let configured = self.configured(tenant, &server.label).ok_or_else(|| ServerError::Unknown(server.label.clone()))?;
                return Ok(configured.target(tenant));
            }
            ServerSource::Declared { url, sealed } => (url, sealed),
        };
        let failed = |why: String| ServerError::Failed { label: server.label.clone(), why };
        let secrets = match sealed {
            Some(sealed) => {
                let opened = self.seal.open(tenant, shown, sealed).map_err(|_| failed("its headers cannot be opened here".to_owned()))?;
                Secrets::from_bytes(&opened).map_err(failed)?
            }
            None => Secrets::default(),
        };
        let Secrets { url, headers } = secrets;
        let url = url.as_ref().unwrap_or(shown);
        // Checked again, because the operator's rules may have changed since the run was accepted.
        let parsed = self.egress.check_url(url).map_err(ServerError::Refused)?;
        if !headers.is_empty() {
            check_credentials(&parsed).map_err(ServerError::Refused)?;
        }
        let key = Key { tenant: Some(tenant.clone()), server: ServerKey::Declared(digest_of(&[url], &headers)) };
        let http = Http { client: self.guarded.clone(), headers, answer_bytes_max: self.limits.answer_bytes_max, is_trusted: false };
        Ok(Target { key, transport: Transport::Http { url: url.as_str().into(), http } })
    }

    async fn session(&self, target: &Target) -> Result<Arc<Session>, Failure> {
        let open = async {
            if let Transport::Http { url, http } = &target.transport
                && !http.is_trusted
            {
                // The connector checks its addresses again; a refusal here gives the better message.
                let url = self.egress.check_url(url).map_err(Failure::Refused)?;
                self.egress.check_names(&url).await.map_err(Failure::Refused)?;
            }
            Session::open(&target.transport, &self.limits).await
        };
        self.pool.session(&target.key, open).await
    }

    async fn call(&self, server: &ToolServer, name: &str, call: &ToolCall) -> Result<ToolReport, CallFailure> {
        let arguments = arguments(&call.arguments).map_err(|why| CallFailure { class: "bad_arguments", why })?;
        let target = self.target(&call.tenant, server).map_err(|error| CallFailure::of(&error, error.to_string()))?;
        let result = match self.session(&target).await {
            Ok(session) => session.call(name, arguments, call.idempotency_key()).await,
            Err(failure) => Err(failure),
        };
        result.map(outcome::report).map_err(|failure| {
            let error = named(&server.label, failure);
            CallFailure::of(&error, target.transport.hide(&error.to_string()))
        })
    }
}

/// Why a call failed.
struct CallFailure {
    /// For the log.
    class: &'static str,
    /// For the model.
    why: String,
}

impl CallFailure {
    fn of(error: &ServerError, why: String) -> Self {
        CallFailure { class: outcome::class_of(error), why }
    }
}

#[async_trait]
impl ToolServers for Servers {
    fn is_configured(&self, tenant: &Tenant, label: &str) -> bool {
        self.configured(tenant, label).is_some()
    }

    fn labels(&self, tenant: &Tenant) -> Vec<String> {
        self.configured.iter().filter(|(_, server)| server.tenants.admit(tenant)).map(|(label, _)| label.clone()).collect()
    }

    fn declare(&self, tenant: &Tenant, declared: DeclaredServer) -> Result<ToolServer, ServerError> {
        let DeclaredServer { label, url, headers } = declared;
        let parsed = self.egress.check_url(&url).map_err(ServerError::Refused)?;
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = Headers::new(pairs).map_err(ServerError::Refused)?;
        if !headers.is_empty() {
            check_credentials(&parsed).map_err(ServerError::Refused)?;
        }
        // A query may contain a credential, so it is sealed like one.
        let has_secrets = parsed.query().is_some() || parsed.fragment().is_some();
        let (shown, url) = if has_secrets { (shown_url(&parsed), Some(url)) } else { (url, None) };
        let secrets = Secrets { url, headers };
        let seal = |text: Vec<u8>| self.seal.seal(tenant, &shown, &text).map_err(|error| error.to_string());
        let sealed = if secrets.is_empty() { None } else { Some(secrets.to_bytes().and_then(seal).map_err(ServerError::Refused)?) };
        Ok(ToolServer { label, source: ServerSource::Declared { url: shown, sealed } })
    }

    async fn list(&self, tenant: &Tenant, server: &ToolServer) -> Result<Vec<OfferedTool>, ServerError> {
        let target = self.target(tenant, server)?;
        let fail = |failure| match named(&server.label, failure) {
            ServerError::Failed { label, why } => ServerError::Failed { label, why: target.transport.hide(&why) },
            other @ (ServerError::Refused(_) | ServerError::Unknown(_) | ServerError::Busy(_)) => other,
        };
        let mut session = self.session(&target).await.map_err(fail)?;
        let mut tools = session.tools(&self.limits).await;
        if tools.is_err() && !session.is_open() {
            // The session was lost during the request. Listing tools twice is harmless.
            session = self.session(&target).await.map_err(fail)?;
            tools = session.tools(&self.limits).await;
        }
        let configured = match &target.key.server {
            ServerKey::Configured { label, .. } => self.configured.get(label),
            ServerKey::Declared(_) => None,
        };
        let offer = |tool: &Tool| {
            let effect = configured.and_then(|configured| configured.effects.get(tool.name.as_ref()).copied());
            let offered = offered(tool, effect);
            // A write is repeated by no setting of a whole server.
            let retry = configured.and_then(|configured| configured.retry).filter(|_| offered.effect != EffectClass::Write);
            OfferedTool { retry, ..offered }
        };
        Ok(tools.map_err(fail)?.iter().map(offer).collect())
    }

    async fn run(&self, server: &ToolServer, name: &str, call: ToolCall) -> ToolReport {
        let left_ms = call.deadline.0.saturating_sub(self.clock.now().0);
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        match tokio::time::timeout(left, self.call(server, name, &call)).await {
            Ok(Ok(report)) => report,
            Ok(Err(CallFailure { class, why })) => outcome::failed(class, &why),
            Err(_) => {
                let why = format!("the tool server {:?} did not answer in time; the call may have had its effect", server.label);
                outcome::failed("timed_out", &why)
            }
        }
    }
}

/// The tool as runs record it. The operator's effect class takes precedence over the server's.
pub(crate) fn offered(tool: &Tool, effect: Option<EffectClass>) -> OfferedTool {
    OfferedTool {
        name: tool.name.to_string(),
        description: tool.description.as_deref().unwrap_or_default().to_owned(),
        parameters: Value::Object((*tool.input_schema).clone()),
        annotations: tool.annotations.as_ref().and_then(|annotations| serde_json::to_value(annotations).ok()),
        effect: effect.unwrap_or_else(|| outcome::effect(tool.annotations.as_ref())),
        retry: None,
    }
}

fn named(label: &str, failure: Failure) -> ServerError {
    match failure {
        Failure::Refused(why) => ServerError::Refused(why),
        Failure::Failed(why) => ServerError::Failed { label: label.to_owned(), why },
        Failure::Busy(why) => ServerError::Busy(why),
    }
}

/// The arguments as MCP wants them: an object or none.
fn arguments(text: &str) -> Result<Option<JsonObject>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(Some(arguments)),
        Ok(Value::Null) => Ok(None),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            Err("the arguments must be a JSON object".to_owned())
        }
    }
}

fn client(limits: &Limits) -> ClientBuilder {
    reqwest::Client::builder().redirect(redirect::Policy::none()).connect_timeout(limits.connect)
}

fn configure(config: &ServerConfig, limits: &Limits) -> Result<Configured, SetupError> {
    let fail = |why: String| SetupError::Server { label: config.label.clone(), why };
    let configured = |transport: Transport| {
        let server = ServerKey::Configured { label: config.label.clone(), is_process: matches!(transport, Transport::Process(_)) };
        let (effects, tenants) = (config.effects.clone(), config.tenants.clone());
        Configured { server, transport, effects, retry: config.retry, shared: config.shared, tenants }
    };
    if let Some((program, arguments)) = config.command.split_first() {
        let environment = config.environment.clone();
        let label = config.label.clone();
        let command = Command { label, program: program.clone(), arguments: arguments.to_vec(), environment };
        return Ok(configured(Transport::Process(Arc::new(command))));
    }
    let url = Url::parse(&config.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| fail("its url must begin with http:// or https://".to_owned()))?;
    let authorization = config.authorization.as_deref().map(authorization);
    let pairs = config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    if authorization.is_some() && config.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        return Err(fail("the header authorization is given twice".to_owned()));
    }
    let headers = Headers::new(pairs.chain(authorization.as_deref().map(|value| ("authorization", value)))).map_err(fail)?;
    let is_near = url.host_str().is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]");
    let client = if is_near { client(limits).no_proxy() } else { client(limits) };
    let http =
        Http { client: client.build().map_err(SetupError::Client)?, headers, answer_bytes_max: limits.answer_bytes_max, is_trusted: true };
    Ok(configured(Transport::Http { url: url.as_str().into(), http }))
}

/// The value of `Authorization`. A token without a scheme becomes `Bearer`.
fn authorization(value: &str) -> String {
    if value.contains(' ') { value.to_owned() } else { format!("Bearer {value}") }
}

/// Why the client of tool servers cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No process-wide TLS provider is installed. The binary must install one at its start.
    #[error("no TLS provider is installed in this process")]
    NoTlsProvider,
    /// The HTTP client cannot be built.
    #[error("the HTTP client for tool servers cannot be made: {0}")]
    Client(reqwest::Error),
    /// A server of the configuration is invalid.
    #[error("the tool server {label:?}: {why}")]
    Server {
        /// The label of the server.
        label: String,
        /// The reason, without secrets.
        why: String,
    },
}
