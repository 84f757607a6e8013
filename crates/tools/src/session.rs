//! One MCP session, with a cache of the server's tools.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rmcp::{
    ClientHandler, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation, JsonObject,
        PaginatedRequestParams, ProtocolVersion, RequestMetaObject, Tool,
    },
    service::{
        ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, NotificationContext, RunningService, serve_client,
        serve_client_with_lifecycle,
    },
    transport::streamable_http_client::{StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig},
};
use serde_json::Value;

use crate::{
    Failure,
    http::Http,
    outcome,
    process::{Command, Process},
    secrets::{hide_query, shown_url},
    servers::Limits,
    single_flight::SingleFlight,
};

/// The metadata key under which the server gets the id of a call. It is the idempotency key of the call: the
/// same for every start, except that a repetition after a reported failure has a key of its own.
const CALL_ID: &str = "windlass/call_id";
/// Requests of one session that may be in progress at once; further ones wait.
const REQUESTS_MAX: usize = 128;

pub(crate) type Service = RunningService<RoleClient, Listener>;

/// The transport to a server.
#[derive(Clone)]
pub(crate) enum Transport {
    /// Over Streamable HTTP.
    Http { url: Arc<str>, http: Http },
    /// As a child process.
    Process(Arc<Command>),
}

impl Transport {
    /// Removes secrets of the server's configuration from the text.
    pub(crate) fn hide(&self, text: &str) -> String {
        match self {
            Transport::Http { url, http } => hide_query(url, &http.headers.hide(text)),
            Transport::Process(command) => command.hide(text),
        }
    }
}

/// A session with one server. Dropping its last reference ends it.
pub(crate) struct Session {
    service: Service,
    process: Option<Process>,
    tools: SingleFlight<Arc<Vec<Tool>>>,
    tools_changed: Arc<AtomicBool>,
    used: Mutex<Instant>,
}

impl Session {
    pub(crate) async fn open(transport: &Transport, limits: &Limits) -> Result<Arc<Self>, Failure> {
        let (service, process) = start(transport, limits).await.map_err(|why| Failure::Failed(transport.hide(&why)))?;
        Ok(Arc::new(Self::of(service, process).await))
    }

    pub(crate) async fn of(service: Service, process: Option<Process>) -> Self {
        // The crate's own cache is off; [`Session::tools`] caches instead.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let tools_changed = service.service().tools_changed.clone();
        Session { service, process, tools: SingleFlight::new(), tools_changed, used: Mutex::new(Instant::now()) }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.is_transport_closed() && self.process.as_ref().is_none_or(Process::lives)
    }

    /// Marks the session as used now.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools of the server, from the cache or by a request that concurrent callers share.
    pub(crate) async fn tools(&self, limits: &Limits) -> Result<Arc<Vec<Tool>>, Failure> {
        let is_good = |at: Instant, _: &Arc<Vec<Tool>>| at.elapsed() < limits.list_age && !self.tools_changed.load(Ordering::Acquire);
        let ask = async {
            // Reset before the request, so that a change during the request is not lost.
            self.tools_changed.store(false, Ordering::Release);
            tokio::time::timeout(limits.list, self.ask_for_tools(limits))
                .await
                .unwrap_or_else(|_| Err(Failure::Failed(format!("it did not list its tools within {:?}", limits.list))))
        };
        self.tools.get(is_good, ask).await
    }

    async fn ask_for_tools(&self, limits: &Limits) -> Result<Arc<Vec<Tool>>, Failure> {
        let mut tools: Vec<Tool> = Vec::new();
        let mut bytes = 0;
        let mut cursor = None;
        // A page may be empty, but a server may not send empty pages for ever.
        for _ in 0..=limits.tools_max {
            let page = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let page = match self.service.list_tools(page).await {
                Ok(page) => page,
                Err(error) => return Err(self.failure(outcome::error(&error)).await),
            };
            bytes += serde_json::to_vec(&page.tools).map_or(usize::MAX, |text| text.len());
            tools.extend(page.tools);
            if tools.len() > limits.tools_max {
                return Err(Failure::Failed(format!("it offers more than {} tools", limits.tools_max)));
            }
            if bytes > limits.answer_bytes_max {
                return Err(Failure::Failed(format!("its list of tools is larger than {} bytes", limits.answer_bytes_max)));
            }
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() {
                return Ok(Arc::new(tools));
            }
        }
        Err(Failure::Failed("its list of tools has no end".to_owned()))
    }

    /// Calls a tool. Dropping the future sends the server a cancellation.
    pub(crate) async fn call(&self, tool: &str, arguments: Option<JsonObject>, key: String) -> Result<CallToolResult, Failure> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments;
        params.meta = Some(RequestMetaObject::from(JsonObject::from_iter([(CALL_ID.to_owned(), Value::from(key))])));
        let answer = tokio::select! {
            biased;
            answer = self.service.call_tool_once(params) => answer,
            () = self.process_over() => Err(ServiceError::TransportClosed),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.failure(outcome::call_error(&error)).await),
        };
        if let CallToolResponse::Complete(result) = answer {
            return Ok(result);
        }
        Err(Failure::Failed("it wants more than an answer to give one, which this version does not support".to_owned()))
    }

    /// The failure, with facts about the process if the session was lost with it.
    async fn failure(&self, why: String) -> Failure {
        match self.process.as_ref().filter(|_| !self.is_open()) {
            Some(process) => Failure::Failed(format!("{why}; {}", process.evidence().await)),
            None => Failure::Failed(why),
        }
    }

    async fn process_over(&self) {
        match &self.process {
            Some(process) => process.over().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the session and waits until the server has been notified.
    pub(crate) async fn close(self) {
        // The result of the task does not matter, since the session is over either way.
        let _ = self.service.cancel().await;
        if let Some(process) = self.process {
            process.end().await;
        }
    }
}

async fn start(transport: &Transport, limits: &Limits) -> Result<(Service, Option<Process>), String> {
    let late = |_| format!("it did not open a session within {:?}", limits.connect);
    match transport {
        Transport::Http { url, http } => {
            let opened = tokio::time::timeout(limits.connect, open_http(http, url)).await.map_err(late);
            let service = opened.and_then(|opened| opened.map_err(|error| outcome::opening_error(&error)));
            service.map(|service| (service, None)).map_err(|why| format!("{why}; its address is {}", address_of(url)))
        }
        Transport::Process(command) => {
            let started = command.start(limits.answer_bytes_max);
            let (pipes, process) =
                started.map_err(|error| format!("its program {:?} cannot be started: {error}; check its `command`", command.program))?;
            let opened = tokio::time::timeout(limits.connect, serve_client(Listener::default(), pipes)).await.map_err(late);
            match opened.and_then(|opened| opened.map_err(|error| outcome::opening_error(&error))) {
                Ok(service) => Ok((service, Some(process))),
                Err(why) => Err(format!("{why}; {}", process.evidence().await)),
            }
        }
    }
}

/// Opens a session over HTTP. The oldest and the newest version of the protocol start sessions differently; the older way is tried first,
/// since most servers know it.
async fn open_http(http: &Http, url: &Arc<str>) -> Result<Service, ClientInitializeError> {
    match over_http(http, url, ClientLifecycleMode::Initialize).await {
        Err(ClientInitializeError::JsonRpcError(_)) => {
            let newest = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
            over_http(http, url, newest).await
        }
        started => started,
    }
}

/// The address without the parts that may be secret.
fn address_of(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(|_| "not a URL".to_owned(), |url| shown_url(&url))
}

pub(crate) async fn over_http<C: StreamableHttpClient + Sync>(
    http: &C,
    url: &Arc<str>,
    lifecycle: ClientLifecycleMode,
) -> Result<Service, ClientInitializeError> {
    let config = StreamableHttpClientTransportConfig::with_uri(url.clone()).max_concurrent_requests(REQUESTS_MAX);
    let transport = StreamableHttpClientTransport::with_client(http.clone(), config);
    serve_client_with_lifecycle(Listener::default(), transport, lifecycle).await
}

/// Handles notifications of the server.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    tools_changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("windlass", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Release);
    }
}
