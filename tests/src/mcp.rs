//! A handwritten MCP server over Streamable HTTP: it records its requests, and the test determines how it misbehaves. It runs in the test's
//! process, so its records outlive every server under test.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::until;

/// The behaviour of the server. The default is correct.
#[derive(Clone, Debug)]
pub struct McpManners {
    /// Answers are streams of events instead of JSON.
    pub streams: bool,
    /// The number of tools on one page of the list; all are on one page if there is none.
    pub page: Option<usize>,
    /// The number of unused tools in addition to the others.
    pub more_tools: usize,
    /// The delay of a list of tools.
    pub list_ms: u64,
    /// The number of megabytes by which the list of tools is padded.
    pub list_megabytes: usize,
    /// The delay of a new session.
    pub open_ms: u64,
    /// The required `Authorization` header. A request with another one is refused, and the refusal repeats the header that came.
    pub authorization: Option<String>,
    /// Only the protocol version without sessions is supported.
    pub only_newest: bool,
    /// A request with an unknown session is answered with 400 and an error without an id, instead of 404.
    pub loses_badly: bool,
    /// Every request is redirected to this address.
    pub redirect: Option<String>,
    /// Whether it offers a stream for its own notifications.
    pub announces: bool,
    /// The delay of a note.
    pub write_ms: u64,
    /// The start of a tool, counted from 1, that gets no answer for as long as this is set.
    pub holds: Option<(&'static str, usize)>,
    /// Calls of this tool are answered in groups of this size: none of a group before all of it have started.
    pub gathers: Option<(&'static str, usize)>,
}

impl Default for McpManners {
    fn default() -> Self {
        McpManners {
            streams: false,
            page: None,
            more_tools: 0,
            list_ms: 0,
            list_megabytes: 0,
            open_ms: 0,
            authorization: None,
            only_newest: false,
            loses_badly: false,
            redirect: None,
            announces: true,
            write_ms: 0,
            holds: None,
            gathers: None,
        }
    }
}

/// One start of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct McpStart {
    /// The name of the tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// The key the call was sent with.
    pub call_id: Option<String>,
}

#[derive(Default)]
struct Book {
    opened: usize,
    open: BTreeSet<String>,
    lists: usize,
    starts: Vec<McpStart>,
    running: BTreeMap<String, usize>,
    cancelled: usize,
    requests: usize,
    seen: BTreeMap<String, BTreeSet<String>>,
}

struct Desk {
    manners: Mutex<McpManners>,
    book: Mutex<Book>,
    news: broadcast::Sender<String>,
}

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("the lock is not poisoned")
    }

    fn manners(&self) -> McpManners {
        self.manners.lock().expect("the lock is not poisoned").clone()
    }
}

/// The key under which the query of the URL is recorded among the headers.
pub const QUERY: &str = ":query";

/// The server. It listens until it is dropped.
pub struct McpServer {
    desk: Arc<Desk>,
    /// The address, for `url`.
    pub url: String,
    server: tokio::task::JoinHandle<()>,
}

impl McpServer {
    /// The number of its own tools.
    pub const TOOLS: usize = 11;

    /// Starts a server with correct behaviour.
    pub async fn start() -> Self {
        Self::with(McpManners::default()).await
    }

    /// Starts a server with this behaviour.
    pub async fn with(manners: McpManners) -> Self {
        let desk = Arc::new(Desk { manners: Mutex::new(manners), book: Mutex::default(), news: broadcast::channel(16).0 });
        let router =
            Router::new().route("/mcp", post(ask).get(listen).delete(end)).layer(DefaultBodyLimit::disable()).with_state(desk.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("it has an address"));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        McpServer { desk, url, server }
    }

    /// Changes the behaviour.
    pub fn behave(&self, change: impl FnOnce(&mut McpManners)) {
        change(&mut self.desk.manners.lock().expect("the lock is not poisoned"));
    }

    /// A `tools:` entry for a configuration.
    pub fn config(&self, label: &str) -> String {
        format!("tools: {{ mcp: [ {{ label: {label}, url: '{}' }} ] }}\n", self.url)
    }

    /// The number of sessions opened so far.
    pub fn sessions(&self) -> usize {
        self.desk.book().opened
    }

    /// The number of open sessions.
    pub fn open_sessions(&self) -> usize {
        self.desk.book().open.len()
    }

    /// The number of requests for a page of its tools.
    pub fn lists(&self) -> usize {
        self.desk.book().lists
    }

    /// The number of requests of any kind.
    pub fn requests(&self) -> usize {
        self.desk.book().requests
    }

    /// Every start of the tool, in order.
    pub fn starts(&self, tool: &str) -> Vec<McpStart> {
        self.desk.book().starts.iter().filter(|start| start.tool == tool).cloned().collect()
    }

    /// The number of calls of the tool that are running.
    pub fn running(&self, tool: &str) -> usize {
        self.desk.book().running.get(tool).copied().unwrap_or(0)
    }

    /// The number of cancelled calls.
    pub fn cancelled(&self) -> usize {
        self.desk.book().cancelled
    }

    /// All values of this header so far, or of the URL's query: [`QUERY`].
    pub fn seen(&self, header: &str) -> Vec<String> {
        self.desk.book().seen.get(header).into_iter().flatten().cloned().collect()
    }

    /// Forgets its sessions, as a restart would.
    pub fn forget_sessions(&self) {
        self.desk.book().open.clear();
    }

    /// Notifies its clients that its tools have changed.
    pub async fn announce(&self) {
        until("a client listens", || async { self.desk.news.send(changed()).ok() }).await;
    }

    /// Waits until this number of calls of the tool are running.
    pub async fn runs(&self, tool: &str, count: usize) {
        until(&format!("{count} calls of {tool} run"), || async { (self.running(tool) == count).then_some(()) }).await;
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn changed() -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }).to_string()
}

/// Counts a call as running until it ends or its client closes the connection.
struct Running(Arc<Desk>, String);

impl Running {
    fn new(desk: &Arc<Desk>, tool: &str) -> Self {
        *desk.book().running.entry(tool.to_owned()).or_default() += 1;
        Running(desk.clone(), tool.to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(count) = self.0.book().running.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

/// Runs before every answer; it refuses some requests.
fn at_the_door(desk: &Desk, manners: &McpManners, headers: &HeaderMap) -> Option<Response> {
    {
        let mut book = desk.book();
        book.requests += 1;
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            book.seen.entry(name.to_string()).or_default().insert(value);
        }
    }
    if let Some(elsewhere) = &manners.redirect {
        return Some((StatusCode::TEMPORARY_REDIRECT, [("location", elsewhere.clone())]).into_response());
    }
    let shown = headers.get("authorization").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if manners.authorization.is_some() && shown != manners.authorization {
        let message = format!("what you show is not enough: {}", shown.unwrap_or_default());
        return Some((StatusCode::UNAUTHORIZED, message).into_response());
    }
    None
}

async fn ask(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    axum::Json(message): axum::Json<Value>,
) -> Response {
    let manners = desk.manners();
    if let Some(query) = query {
        desk.book().seen.entry(QUERY.to_owned()).or_default().insert(query);
    }
    if let Some(turned_away) = at_the_door(&desk, &manners, &headers) {
        return turned_away;
    }
    let method = message["method"].as_str().unwrap_or_default();
    let id = message["id"].clone();
    if method == "initialize" {
        return initialize(&desk, &manners, &message).await;
    }
    let session = headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !manners.only_newest && !desk.book().open.contains(session) {
        return match (manners.loses_badly, id.is_null()) {
            (true, false) => fault(StatusCode::BAD_REQUEST, Value::Null, "Bad Request: no valid session"),
            _ => StatusCode::NOT_FOUND.into_response(),
        };
    }
    if id.is_null() {
        if method == "notifications/cancelled" {
            desk.book().cancelled += 1;
        }
        return StatusCode::ACCEPTED.into_response();
    }
    match method {
        "ping" => answer(&manners, id, json!({})),
        "server/discover" if manners.only_newest => {
            let found = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                "ttlMs": 0, "cacheScope": "private",
            });
            answer(&manners, id, found)
        }
        "tools/list" => {
            desk.book().lists += 1;
            tokio::time::sleep(Duration::from_millis(manners.list_ms)).await;
            if manners.list_megabytes > 0 {
                return flood(Running::new(&desk, method), &id, manners.list_megabytes);
            }
            answer(&manners, id, list(&manners, &message["params"]["cursor"]))
        }
        "tools/call" => call(&desk, &manners, id, &message["params"]).await,
        _ => fault(StatusCode::OK, id, "no such method"),
    }
}

async fn initialize(desk: &Desk, manners: &McpManners, message: &Value) -> Response {
    if manners.only_newest {
        return fault(StatusCode::BAD_REQUEST, message["id"].clone(), "no such method");
    }
    tokio::time::sleep(Duration::from_millis(manners.open_ms)).await;
    let session = {
        let mut book = desk.book();
        book.opened += 1;
        let session = format!("session-{}", book.opened);
        book.open.insert(session.clone());
        session
    };
    let result = json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": { "tools": { "listChanged": true } },
        "serverInfo": { "name": "test", "version": "1" },
    });
    let mut response = answer(manners, message["id"].clone(), result);
    response.headers_mut().insert("mcp-session-id", session.parse().expect("a header"));
    response
}

/// The stream of the server's own notifications.
async fn listen(State(desk): State<Arc<Desk>>) -> Response {
    if !desk.manners().announces {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let news = desk.news.subscribe();
    let pieces = futures_util::stream::unfold(news, |mut news| async move {
        let text = news.recv().await.ok()?;
        Some((Ok::<_, Infallible>(format!("data: {text}\n\n")), news))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

async fn end(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> StatusCode {
    let session = headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if desk.book().open.remove(session) { StatusCode::OK } else { StatusCode::NOT_FOUND }
}

fn answer(manners: &McpManners, id: Value, result: Value) -> Response {
    send(manners, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn send(manners: &McpManners, message: &Value) -> Response {
    if manners.streams {
        // A progress notification first: the client must not take it for the answer.
        let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 0, "progress": 1 } });
        let text = format!(": hello\n\ndata: {progress}\n\nevent: message\ndata: {message}\n\n");
        return ([("content-type", "text/event-stream")], text).into_response();
    }
    axum::Json(message.clone()).into_response()
}

fn fault(status: StatusCode, id: Value, message: &str) -> Response {
    let message = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": message } });
    (status, axum::Json(message)).into_response()
}

fn list(manners: &McpManners, cursor: &Value) -> Value {
    let own: [(&str, &str, Value); McpServer::TOOLS] = [
        ("echo", "gives the text back", json!({ "readOnlyHint": true })),
        ("add", "adds a and b", json!({ "readOnlyHint": true })),
        ("sleep_ms", "waits", json!({ "readOnlyHint": true })),
        ("write_note", "writes the note down", json!({ "destructiveHint": true })),
        ("put_note", "writes the note down once", json!({ "idempotentHint": true })),
        ("fail", "fails", json!({ "readOnlyHint": true })),
        ("big", "gives so many bytes", json!({ "readOnlyHint": true })),
        ("endless", "never stops", json!({ "readOnlyHint": true })),
        ("flood", "gives so many megabytes, faster than they could be made", json!({ "readOnlyHint": true })),
        ("parts", "gives text and a picture", json!({ "readOnlyHint": true })),
        ("table", "gives a structure", json!(null)),
    ];
    let definition = |(name, description, annotations): (&str, &str, Value)| {
        let mut tool = json!({ "name": name, "description": description, "inputSchema": { "type": "object" } });
        if !annotations.is_null() {
            tool["annotations"] = annotations;
        }
        tool
    };
    let mut tools: Vec<Value> = own.into_iter().map(definition).collect();
    tools.extend((0..manners.more_tools).map(|index| json!({ "name": format!("more_{index}"), "inputSchema": { "type": "object" } })));
    let from = cursor.as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let page = manners.page.unwrap_or(tools.len());
    let here: Vec<Value> = tools.iter().skip(from).take(page).cloned().collect();
    let mut result = json!({ "tools": here });
    if from + page < tools.len() {
        result["nextCursor"] = (from + page).to_string().into();
    }
    result
}

async fn call(desk: &Arc<Desk>, manners: &McpManners, id: Value, params: &Value) -> Response {
    let tool = params["name"].as_str().unwrap_or_default().to_owned();
    let arguments = params["arguments"].clone();
    let call_id = params["_meta"]["windlass/call_id"].as_str().map(str::to_owned);
    let nth = {
        let mut book = desk.book();
        book.starts.push(McpStart { tool: tool.clone(), arguments: arguments.clone(), call_id });
        book.starts.iter().filter(|start| start.tool == tool).count()
    };
    let running = Running::new(desk, &tool);
    while desk.manners().holds == Some((tool.as_str(), nth)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    if let Some((_, group)) = manners.gathers.filter(|(name, _)| *name == tool) {
        let last = nth.div_ceil(group) * group;
        while desk.book().starts.iter().filter(|start| start.tool == tool).count() < last {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let result = match tool.as_str() {
        "echo" => text(arguments["text"].as_str().unwrap_or_default().to_owned()),
        "add" => text((arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0)).to_string()),
        "sleep_ms" => {
            tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))).await;
            text("slept".to_owned())
        }
        "write_note" | "put_note" => {
            tokio::time::sleep(Duration::from_millis(manners.write_ms)).await;
            text("written".to_owned())
        }
        "fail" => json!({ "content": [{ "type": "text", "text": "it did not work" }], "isError": true }),
        "big" => text("x".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap_or(0)).unwrap_or(0))),
        "endless" => return endless(running),
        "flood" => return flood(running, &id, usize::try_from(arguments["megabytes"].as_u64().unwrap_or(0)).unwrap_or(0)),
        "parts" => json!({ "content": [
            { "type": "text", "text": "look" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
        ] }),
        "table" => json!({ "content": [], "structuredContent": { "rows": 2 } }),
        _ => return fault(StatusCode::OK, id, &format!("there is no tool {tool}")),
    };
    answer(manners, id, result)
}

/// Events without an end, as fast as the client reads them.
fn endless(running: Running) -> Response {
    let pieces = futures_util::stream::unfold(running, |running| async move {
        let params = json!({ "progressToken": 0, "progress": 1, "message": "x".repeat(60_000) });
        let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        Some((Ok::<_, Infallible>(format!("id: 1\ndata: {progress}\n\n")), running))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

/// A text as a JSON answer that is never in memory as a whole.
fn flood(running: Running, id: &Value, megabytes: usize) -> Response {
    let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"");
    let megabyte = axum::body::Bytes::from("x".repeat(1 << 20));
    let pieces = std::iter::once(head.into()).chain(std::iter::repeat_n(megabyte, megabytes)).chain(["\"}]}}".into()]);
    // The call counts as running for as long as the client reads.
    let pieces = pieces.map(move |piece: axum::body::Bytes| {
        let _ = &running;
        Ok::<_, Infallible>(piece)
    });
    ([("content-type", "application/json")], Body::from_stream(futures_util::stream::iter(pieces))).into_response()
}
