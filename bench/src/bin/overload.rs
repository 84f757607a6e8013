//! One tenant at its limits, and another whose requests are timed. Compares the second tenant's p99 under that load with its p99 without
//! the load, in one execution.
//!
//! `overload BINARY` starts that binary in a folder of its own. The first tenant holds streams of waiting runs, sockets with half a frame,
//! unfinished bodies and silent connections, and `LOUD` (16) clients send requests as fast as they get answers, most of which are refusals.
//! The second tenant sends requests from `CLIENTS` (4) clients for `SECS` (5) seconds, without the load and with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use windlass_bench::{backend, percentile, round, setting, stolen_s};

const ADDRESS: &str = "127.0.0.1:7690";
const LOUD_TOKEN: &str = "token-of-the-loud-tenant";
const OTHER_TOKEN: &str = "token-of-the-other-tenant";
/// Limits of one tenant.
const REQUESTS: usize = 200;
const SOCKETS: usize = 50;
const OPEN_RUNS: usize = 100;
const SILENT: usize = 200;

fn start(binary: &Path, folder: &Path, backend: &str) -> Child {
    let config = format!(
        "auth:
  tokens:
    - {{ token: {LOUD_TOKEN}, scopes: ['*'], tenant: loud }}
    - {{ token: {OTHER_TOKEN}, scopes: ['*'], tenant: other }}
server: {{ connections: 1000, head: 5m, body: 5m }}
models: [ {{ name: '*', provider: openai-chat, base_url: '{backend}/v1' }} ]
tools: {{ external: [ {{ name: look_up, description: finds things, effect: read, tenants: ['*'] }} ] }}
limits:
  body_bytes: 1048576
  in_flight_bytes: 16777216
  workers: 64
  requests_per_tenant: {REQUESTS}
  sockets_per_tenant: {SOCKETS}
  open_per_tenant: {OPEN_RUNS}
"
    );
    fs::write(folder.join("windlass.yaml"), config).expect("the configuration is written");
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", ADDRESS]).current_dir(folder).env("WINDLASS_LOG", "error").stdin(Stdio::null());
    command.spawn().expect("the binary starts")
}

/// A client of one tenant.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    token: &'static str,
}

impl Client {
    fn new(token: &'static str) -> Self {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("a client is made");
        Client { http, token }
    }

    /// Sends a request and returns the status and the answer.
    async fn respond(&self, body: &Value) -> (u16, String) {
        let request = self.http.post(format!("http://{ADDRESS}/v1/responses")).bearer_auth(self.token).json(body);
        let answer = request.send().await.expect("the server answers");
        (answer.status().as_u16(), answer.text().await.expect("the answer is whole"))
    }

    /// Opens a connection and sends the head of a request without its end.
    async fn begin(&self, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(ADDRESS).await.expect("a connection");
        let head = format!("{head}\r\nhost: {ADDRESS}\r\nauthorization: Bearer {}\r\n", self.token);
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        stream
    }

    /// Runs this many clients, each of which sends its next request when it has its answer. Returns the microseconds of every request.
    async fn times(&self, clients: u64, phase: Duration) -> Vec<u64> {
        let began = Instant::now();
        let one = || async {
            let mut times = Vec::new();
            while began.elapsed() < phase {
                let sent = Instant::now();
                let (status, answer) = self.respond(&json!({ "model": "fake", "input": "hi" })).await;
                assert!(status == 200 && answer.contains("\"completed\""), "{status} {answer}");
                times.push(sent.elapsed().as_micros() as u64);
            }
            times
        };
        join_all((0..clients).map(|_| one())).await.concat()
    }
}

/// The connections and streams that the first tenant holds open until this is dropped.
struct Held {
    _connections: Vec<TcpStream>,
    _streams: Vec<reqwest::Response>,
}

/// Brings the first tenant to its limits.
async fn hold(loud: &Client) -> Held {
    let mut waiting = String::new();
    let body = json!({ "model": "fake-t1", "input": "wait", "windlass": { "tools": ["look_up"] }, "background": true });
    loop {
        let (status, answer) = loud.respond(&body).await;
        if status == 429 {
            break;
        }
        let answer: Value = serde_json::from_str(&answer).expect("a response is JSON");
        answer["id"].as_str().expect("a response has an id").clone_into(&mut waiting);
    }
    let mut connections = Vec::new();
    for number in 0..SOCKETS {
        let mut socket = loud.begin("GET /v1/responses HTTP/1.1").await;
        let rest = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        socket.write_all(rest.as_bytes()).await.expect("the server reads");
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.expect("the server answers");
        assert_eq!(&answer, b"HTTP/1.1 101", "socket {number}");
        let mut frame = vec![0x81, 0x80 | 127];
        frame.extend(500_000_u64.to_be_bytes());
        frame.resize(100_000, 0);
        socket.write_all(&frame).await.expect("the server reads");
        connections.push(socket);
    }
    for _ in 0..3 {
        let mut stream = loud.begin("POST /v1/responses HTTP/1.1").await;
        stream.write_all(b"content-type: application/json\r\ncontent-length: 1000001\r\n\r\n").await.expect("the server reads");
        stream.write_all(&vec![b' '; 1_000_000]).await.expect("the server reads");
        connections.push(stream);
    }
    for _ in 0..SILENT {
        connections.push(TcpStream::connect(ADDRESS).await.expect("a connection"));
    }
    let mut streams = Vec::new();
    // Some permits are left for the requests that the tenant sends meanwhile.
    while streams.len() < REQUESTS / 2 {
        let url = format!("http://{ADDRESS}/v1/responses/{waiting}?stream=true");
        let stream = loud.http.get(url).bearer_auth(loud.token).send().await.expect("the server answers");
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    Held { _connections: connections, _streams: streams }
}

async fn measure(binary: PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for the data");
    let backend = backend::start();
    let mut server = start(&binary, folder.path(), &backend);
    let (loud, other) = (Client::new(LOUD_TOKEN), Client::new(OTHER_TOKEN));
    while !other.http.get(format!("http://{ADDRESS}/healthz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (clients, phase) = (setting("CLIENTS", 4), Duration::from_secs(setting("SECS", 5)));
    other.times(clients, Duration::from_secs(1)).await;
    let mut alone = other.times(clients, phase).await;

    let held = hold(&loud).await;
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = (0..setting("LOUD", 16))
        .map(|_| {
            let (loud, is_over, sent) = (loud.clone(), is_over.clone(), sent.clone());
            tokio::spawn(async move {
                while !is_over.load(Relaxed) {
                    let (status, answer) = loud.respond(&json!({ "model": "fake", "input": "x".repeat(10_000) })).await;
                    assert!(status == 200 || status == 429, "{status} {answer}");
                    sent.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let (stolen, began) = (stolen_s(), Instant::now());
    let mut loaded = other.times(clients, phase).await;
    let seconds = began.elapsed().as_secs_f64();
    is_over.store(true, Relaxed);
    for task in load {
        task.await.expect("the load runs to its end");
    }
    drop(held);
    server.kill().and_then(|()| server.wait()).expect("the server stops");

    let (alone_count, loaded_count) = (alone.len(), loaded.len());
    let (alone_p99, loaded_p99) = (percentile(&mut alone, 0.99), percentile(&mut loaded, 0.99));
    println!(
        "{}",
        json!({
            "peer": "windlass", "variant": "overload", "clients": clients, "requests_alone": alone_count, "requests_loaded": loaded_count,
            "loud_requests_per_s": round(sent.load(Relaxed) as f64 / seconds, 1),
            "p50_alone_ms": percentile(&mut alone, 0.50), "p50_loaded_ms": percentile(&mut loaded, 0.50),
            "p99_alone_ms": alone_p99, "p99_loaded_ms": loaded_p99, "p99_ratio": round(loaded_p99 / alone_p99, 2),
            "cores_stolen": round((stolen_s() - stolen) / seconds, 2),
        })
    );
}

#[tokio::main]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().expect("no other provider is there");
    let binary = std::env::args().nth(1).expect("usage: overload BINARY");
    measure(fs::canonicalize(binary).expect("the binary is there")).await;
}
