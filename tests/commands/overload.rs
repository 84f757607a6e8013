//! One tenant at all of its limits at once, and another tenant that is served meanwhile. Also a prompt over its limit, whose content is not
//! read.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use windlass_tests::{FakeModel, McpServer, PATIENCE, Scene, Server, ServerBuilder, until};

const MIB: u64 = 1 << 20;

/// The limits of the server under load.
const BODY: u64 = MIB;
const IN_FLIGHT: u64 = 8 * MIB;
const PROMPT: u64 = MIB / 4;
const WORKERS: u64 = 32;
const CONNECTIONS: u64 = 400;
const PER_PEER: usize = 300;
const REQUESTS: usize = 120;
const SOCKETS: usize = 20;
const OPEN_RUNS: usize = 80;
/// The largest number of sessions with declared servers per tenant.
const SESSIONS: u64 = 64;

/// The memory limit that docs/threat-model.md, TM-26, promises for these limits.
const MEMORY: u64 = 64 * MIB + 3 * IN_FLIGHT + 8 * WORKERS * PROMPT + CONNECTIONS * MIB / 16 + SESSIONS * MIB / 4;

const SCRIPT: &str = "
rules:
  - { when: { input: wait }, reply: { calls: [ { tool: look_up, arguments: {} } ] } }
  - { reply: { text: done } }
";

/// A client of one tenant, at an IP address of its own, because the server counts connections per address.
struct Client {
    http: reqwest::Client,
    address: SocketAddr,
    token: &'static str,
}

impl Client {
    fn new(server: &Server, from: [u8; 4], token: &'static str) -> Self {
        let http = reqwest::Client::builder().no_proxy().local_address(IpAddr::from(from)).build().expect("a client");
        Client { http, address: server.base().trim_start_matches("http://").parse().expect("an address"), token }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        self.http.get(format!("http://{}{path}", self.address)).bearer_auth(self.token).send().await.expect("the server answers")
    }

    /// Sends a body and returns the status and the answer.
    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.http.post(format!("http://{}{path}", self.address)).bearer_auth(self.token).body(body);
        let answer = request.header("content-type", "application/json").send().await.expect("the server answers");
        (answer.status().as_u16(), answer.json().await.expect("the answer is JSON"))
    }

    async fn respond(&self, body: Value) -> (u16, Value) {
        self.post("/v1/responses", body.to_string()).await
    }

    /// Opens a connection and sends the beginning of a request.
    async fn begin(&self, what: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let head = format!("{what}\r\nhost: {}\r\nauthorization: Bearer {}\r\n", self.address, self.token);
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        stream
    }

    /// Asks for a WebSocket; returns it, or the status of the refusal.
    async fn socket(&self) -> Result<TcpStream, u16> {
        let mut stream = self.begin("GET /v1/responses HTTP/1.1").await;
        let rest = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(rest.as_bytes()).await.expect("the server reads");
        match status(&mut stream).await {
            101 => Ok(stream),
            refused => Err(refused),
        }
    }

    /// Sends a part of a body and never the rest.
    async fn unfinished_body(&self, sent: usize) -> TcpStream {
        let mut stream = self.begin("POST /v1/responses HTTP/1.1").await;
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", sent + 1);
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        stream.write_all(&vec![b' '; sent]).await.expect("the server reads");
        stream
    }
}

/// Reads the head of an answer. Returns its status.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer in time").expect("an answer"));
    }
    String::from_utf8_lossy(&head[9..12]).parse().expect("a status")
}

/// Sends the first fragment of a message that never ends, and then a ping. The pong shows that the server has read the fragment.
async fn send_fragment(socket: &mut TcpStream, length: usize) {
    let mut frames = vec![0x01, 0x80 | 127];
    frames.extend((length as u64).to_be_bytes());
    frames.extend([0; 4]);
    frames.resize(frames.len() + length, b' ');
    frames.extend([0x89, 0x80, 0, 0, 0, 0]);
    socket.write_all(&frames).await.expect("the server reads");
    let mut pong = [0; 2];
    tokio::time::timeout(PATIENCE, socket.read_exact(&mut pong)).await.expect("a pong in time").expect("a pong");
    assert_eq!(pong, [0x8a, 0]);
}

async fn server(slow: &FakeModel) -> Server {
    let config = format!(
        "auth:
  tokens:
    - {{ token: token-of-the-loud-tenant, scopes: ['*'], tenant: loud }}
    - {{ token: token-of-the-other-tenant, scopes: ['*'], tenant: other }}
server: {{ connections: {CONNECTIONS}, connections_per_peer: {PER_PEER}, head: 5m, body: 5m }}
models:
  - {{ name: m, provider: scripted, script: script.yaml }}
  - {{ name: slow, provider: openai-chat, base_url: '{}' }}
tools: {{ external: [ {{ name: look_up, description: finds things, effect: read, tenants: ['*'] }} ] }}
mcp: {{ default_approval: never }}
egress: {{ allow: ['127.0.0.1'] }}
limits:
  body_bytes: {BODY}
  in_flight_bytes: {IN_FLIGHT}
  prompt_bytes: {PROMPT}
  workers: {WORKERS}
  requests_per_tenant: {REQUESTS}
  sockets_per_tenant: {SOCKETS}
  open_per_tenant: {OPEN_RUNS}
",
        slow.base_url
    );
    ServerBuilder::new(&config).file("script.yaml", SCRIPT).start().await
}

/// Opens sessions with declared servers until the tenant's oldest ones make room for new ones.
async fn declare_servers(loud: &Client, tools: &McpServer) {
    let declared = |number: usize| {
        json!({ "type": "mcp", "server_label": format!("s{number}"), "server_url": tools.url, "headers": { "x-number": number.to_string() },
            "allowed_tools": ["echo"] })
    };
    for first in [0, 16, 32, 48, 64] {
        let servers: Vec<Value> = (first..first + 16).map(declared).collect();
        let (status, made) = loud.respond(json!({ "model": "m", "input": "hi", "tools": servers })).await;
        assert_eq!((status, &made["status"]), (200, &json!("completed")), "{made}");
    }
    until("only as many sessions are left as a tenant may have", || async { (tools.open_sessions() as u64 == SESSIONS).then_some(()) })
        .await;
    assert_eq!(tools.sessions() as u64, SESSIONS + 16);
}

/// Starts runs until the limit of open runs is reached: half of them wait for a tool, the others for a model that does not answer. Returns
/// a response that waits.
async fn start_runs(loud: &Client, slow: &FakeModel) -> String {
    let mut waiting = String::new();
    for number in 0.. {
        let is_slow = number >= OPEN_RUNS / 2;
        let body = match is_slow {
            true => json!({ "model": "slow", "input": "x".repeat(PROMPT as usize - 2_000), "background": true }),
            false => json!({ "model": "m", "input": "wait", "windlass": { "tools": ["look_up"] }, "background": true }),
        };
        let (status, answer) = loud.respond(body).await;
        if status == 429 {
            assert_eq!(number, OPEN_RUNS, "{answer}");
            break;
        }
        assert_eq!(status, 200, "{answer}");
        if !is_slow {
            answer["id"].as_str().expect("a response has an id").clone_into(&mut waiting);
        }
        if number + 1 == OPEN_RUNS / 2 {
            until("the runs wait for their tool", || async {
                let list: Value = loud.get("/v1/windlass/runs?state=waiting&limit=200").await.json().await.expect("a list");
                (list["runs"].as_array().map(Vec::len) == Some(OPEN_RUNS / 2)).then_some(())
            })
            .await;
        }
    }
    // A tenant can't occupy all workers; a share is left for others.
    let share = WORKERS as usize * 3 / 4;
    until("the tenant has its share of the workers", || async { (slow.hanging() >= share).then_some(()) }).await;
    waiting
}

/// Opens sockets until one is refused, and fills the tenant's share of bytes in flight with messages and unfinished bodies until one is
/// refused.
async fn fill_bytes_in_flight(loud: &Client) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    let refused = loop {
        match loud.socket().await {
            Ok(socket) => sockets.push(socket),
            Err(status) => break status,
        }
    };
    assert_eq!((sockets.len(), refused), (SOCKETS, 429));
    for socket in sockets.iter_mut().take(SOCKETS / 2) {
        send_fragment(socket, 100_000).await;
    }
    // A megabyte of messages is in flight and the limit is four, so one of four bodies is refused.
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(loud.unfinished_body(1_000_000).await);
    }
    let answers = bodies.iter_mut().map(|body| Box::pin(status(body)));
    let (refused, number, _) = futures_util::future::select_all(answers).await;
    assert_eq!(refused, 429);
    bodies.remove(number);
    sockets.extend(bodies);
    sockets
}

/// Opens streams of a waiting response until one is refused.
async fn open_streams(loud: &Client, waiting: &str) -> Vec<reqwest::Response> {
    let mut streams = Vec::new();
    loop {
        let stream = loud.get(&format!("/v1/responses/{waiting}?stream=true")).await;
        match stream.status().as_u16() {
            200 => streams.push(stream),
            refused => {
                assert_eq!(refused, 429);
                assert!(streams.len() >= REQUESTS / 2 && streams.len() <= REQUESTS, "{}", streams.len());
                return streams;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tm_26_a_tenant_at_all_its_limits_leaves_another_served_and_memory_bounded() {
    let (slow, tools) = (FakeModel::start(vec![Scene::Hang]).await, McpServer::start().await);
    let server = server(&slow).await;
    let loud = Client::new(&server, [127, 0, 0, 1], "token-of-the-loud-tenant");
    let other = Client::new(&server, [127, 0, 0, 2], "token-of-the-other-tenant");
    declare_servers(&loud, &tools).await;
    let waiting = start_runs(&loud, &slow).await;
    let held = fill_bytes_in_flight(&loud).await;
    let streams = open_streams(&loud, &waiting).await;
    let mut silent = Vec::new();
    for _ in 0..PER_PEER {
        silent.push(TcpStream::connect(loud.address).await.expect("a connection"));
    }
    until("the address has all its connections", || async {
        let mut stream = loud.begin("GET /v1/models HTTP/1.1").await;
        stream.write_all(b"\r\n").await.expect("the server reads");
        (status(&mut stream).await == 503).then_some(())
    })
    .await;

    for number in 0..20 {
        let (status, made) = other.respond(json!({ "model": "m", "input": format!("hello {number}") })).await;
        assert_eq!((status, &made["output"][0]["content"][0]["text"]), (200, &json!("done")), "{made}");
        assert_eq!(other.get("/healthz").await.status(), 200);
    }
    let mut padded = json!({ "model": "m", "input": "hello", "stream": true }).to_string().into_bytes();
    padded.resize(1_000_000, b' ');
    let request = other.http.post(format!("http://{}/v1/responses", other.address)).bearer_auth(other.token).body(padded);
    let streamed = request.header("content-type", "application/json").send().await.expect("the server answers");
    let events = streamed.text().await.expect("the whole stream");
    assert!(events.contains("response.completed") && events.contains("done"), "a large body and a stream: {events}");
    let mut health = loud.begin("GET /healthz HTTP/1.1").await;
    health.write_all(b"\r\n").await.expect("the server reads");
    assert_eq!(status(&mut health).await, 200, "health is answered to the address that has all its connections");

    assert!(slow.hanging() >= WORKERS as usize / 2, "the load is still there");
    let peak = server.peak_bytes();
    assert!(peak < MEMORY, "{} MiB at the peak, {} MiB are promised", peak / MIB, MEMORY / MIB);
    println!("{} MiB at the peak, {} MiB are promised", peak / MIB, MEMORY / MIB);
    drop((held, streams, silent));
}

#[tokio::test]
async fn tm_04_a_prompt_over_its_limit_is_refused_without_reading_any_of_it() {
    let config = "models: [ { name: m, provider: scripted, script: script.yaml } ]
tools: { external: [ { name: look_up, description: finds things, effect: read } ] }
limits: { sweep_interval: 50ms, attempts: 1 }";
    let mut server = ServerBuilder::new(config).file("script.yaml", SCRIPT).start().await;
    let long = "x".repeat(20_000);
    let first = server.post("/v1/responses", json!({ "model": "m", "input": long })).await.ok();
    let body = json!({ "model": "m", "input": format!("wait {long}"), "windlass": { "tools": ["look_up"] }, "background": true });
    let runs: Vec<Value> = [server.post("/v1/responses", body.clone()).await.ok(), server.post("/v1/responses", body).await.ok()].into();
    let calls = [server.claim("look_up").await, server.claim("look_up").await];
    server.kill();
    // A read of this content now fails with a different error.
    let damaged = server.database().execute("UPDATE items SET content = zeroblob(length(content)) WHERE length(content) > 20000");
    assert_eq!(damaged, Ok(3));

    let server = server.restart(&[("WINDLASS_LIMITS__PROMPT_BYTES", "10000")]).await;
    let follow_up = json!({ "model": "m", "input": "go on", "previous_response_id": first["id"] });
    let refused = server.post("/v1/responses", follow_up).await;
    assert_eq!((refused.status, refused.code()), (413, "prompt_too_large"), "{}", refused.body);
    server.report(&calls[0], json!("found")).await.ok();
    let of = |call: &Value| runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).find(|id| response_of(call) == *id);
    let failed = server.over(&of(&calls[0]).expect("the call is of a response")).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("prompt_too_large")), "{}", failed["error"]);

    // With the limit as before, the server reads the content and finds the damage.
    let server = server.restart(&[]).await;
    server.report(&calls[1], json!("found")).await.ok();
    let failed = server.over(&of(&calls[1]).expect("the call is of a response")).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("server_error")), "{}", failed["error"]);
}

/// The id of the response that a call belongs to.
fn response_of(call: &Value) -> String {
    call["agent_turn_id"].as_str().expect("a call has a run").replace("run_", "resp_")
}
