//! Servers that share one store, each of which may be killed, stopped or started again, and a client that sends requests to any of them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;
use windlass_tests::{Answer, Server, ServerBuilder, SseStream};

/// The configuration of every server, besides its store and its limits. Another line of `tools` may follow.
pub const CONFIG: &str = "
models: [ { name: script, provider: scripted, script: script.yaml, concurrency: 1000 } ]
tools:
  external:
    - { name: echo, effect: read }
    - { name: write, effect: write }
";

/// A lease of one second, so that dead servers are noticed soon; deadlines of a day, which no fault exceeds.
const LIMITS: &str = "lease: 1s, call_deadline: 24h";

/// Three iterations: two calls at once; a text and one more call; the end.
pub const SCRIPT: &str = "
rules:
  - when: { input: work, iteration: 1 }
    reply: { text: first, calls: [ { tool: echo, arguments: { n: 1 } }, { tool: write, arguments: { n: 2 } } ] }
  - when: { input: work, iteration: 2 }
    reply: { delay_ms: 40, calls: [ { tool: echo, arguments: { n: 3 } } ] }
  - when: { input: work, iteration: 3 }
    reply: { text: done }
  - when: { input: note, iteration: 1 }
    reply: { calls: [ { tool: write_note, arguments: { text: a note } } ] }
  - when: { input: note, iteration: 2 }
    reply: { text: noted }
  - when: { input: wait, iteration: 1 }
    reply: { calls: [ { tool: echo, arguments: { n: 1 } } ] }
  - when: { input: wait, iteration: 2 }
    reply: { text: done }
";

/// The number of calls of one turn with that script.
pub const CALLS: usize = 3;

/// The timeout of a request before it is sent again to another server. A stopped server keeps its connections open.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// The time after which a request without an answer counts as wedged.
const ROAD_PATIENCE: Duration = Duration::from_secs(120);
/// The largest number of requests in flight.
const REQUESTS_MAX: usize = 200;

/// The client of all servers. A request goes to any of them, and to another one if no answer comes.
pub struct Roads {
    bases: Mutex<Vec<Option<String>>>,
    client: reqwest::Client,
    turn: AtomicU64,
    room: tokio::sync::Semaphore,
    /// Answers that no server may ever give.
    pub odd: Mutex<Vec<String>>,
    /// The number of refusals that are temporary.
    pub refused: AtomicU64,
    /// The number of requests that had to be sent again.
    pub repeated: AtomicU64,
}

impl Roads {
    fn new(count: usize) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(REQUEST_PATIENCE).build().expect("a client");
        Roads {
            bases: Mutex::new(vec![None; count]),
            client,
            turn: AtomicU64::new(0),
            room: tokio::sync::Semaphore::new(REQUESTS_MAX),
            odd: Mutex::default(),
            refused: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
        }
    }

    fn set(&self, member: usize, base: Option<String>) {
        self.bases.lock().expect("the lock is not poisoned")[member] = base;
    }

    /// One of the running servers, in an arbitrary order.
    fn any(&self) -> Option<String> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let bases = self.bases.lock().expect("the lock is not poisoned");
        let there: Vec<&String> = bases.iter().flatten().collect();
        if there.is_empty() { None } else { Some(there[turn as usize % there.len()].clone()) }
    }

    /// Sends a request once. `None` if there was no answer, or a temporary refusal.
    pub async fn once(&self, method: &Method, path: &str, body: Option<&Value>, key: Option<&str>) -> Option<Answer> {
        let base = self.any()?;
        let mut request = self.client.request(method.clone(), format!("{base}{path}")).bearer_auth("test-token-of-22-characters");
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let _room = self.room.acquire().await.expect("it is never closed");
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let body = serde_json::from_slice(&response.bytes().await.ok()?).unwrap_or(Value::Null);
        if status == 500 {
            self.odd.lock().expect("the lock is not poisoned").push(format!("{method} {path} was answered with {status} {body}"));
        }
        self.refused.fetch_add(u64::from(status == 503), Ordering::Relaxed);
        (status != 503 && status != 500).then_some(Answer { status, body })
    }

    /// Sends a request until there is an answer: unchanged, with the same key, to any server.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>, key: Option<&str>) -> Answer {
        let began = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            if let Some(answer) = self.once(&method, path, body, key).await {
                return answer;
            }
            assert!(began.elapsed() < ROAD_PATIENCE, "{method} {path}: no server answers for {ROAD_PATIENCE:?}");
            self.repeated.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Sends a GET request until there is an answer.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.send(Method::GET, path, None, None).await;
        assert!(answer.status == 200, "GET {path}: {} {}", answer.status, answer.body);
        answer.body
    }

    /// Sends a POST request until there is an answer.
    pub async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> Answer {
        self.send(Method::POST, path, Some(body), key).await
    }

    /// The stream of an agent's events from the beginning.
    pub async fn events(&self, agent: &str) -> SseStream {
        let began = Instant::now();
        loop {
            if let Some(base) = self.any() {
                let request =
                    self.client.get(format!("{base}/v1/agents/{agent}/events?from=start")).bearer_auth("test-token-of-22-characters");
                if let Ok(response) = request.timeout(ROAD_PATIENCE).send().await
                    && response.status() == 200
                {
                    return SseStream::new(response);
                }
            }
            assert!(began.elapsed() < ROAD_PATIENCE, "the events of {agent} cannot be read");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Member {
    /// Absent only during a restart.
    server: Option<Server>,
    env: Vec<(String, String)>,
    /// The logs of earlier processes of this member.
    logged: Vec<String>,
}

/// The servers.
pub struct Cluster {
    members: Vec<Member>,
    /// The client of the servers.
    pub roads: Arc<Roads>,
}

impl Cluster {
    /// Starts three servers on one store.
    pub async fn three(config: &str) -> Self {
        Self::start((0..3).map(|_| (builder(config), Vec::new())).collect()).await
    }

    /// Starts any number of servers, each with environment variables of its own.
    pub async fn start(builders: Vec<(ServerBuilder, Vec<(String, String)>)>) -> Self {
        let roads = Arc::new(Roads::new(builders.len()));
        let mut members = Vec::new();
        for (at, (builder, env)) in builders.into_iter().enumerate() {
            let builder = env.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
            let server = builder.start().await;
            roads.set(at, Some(server.base().to_owned()));
            members.push(Member { server: Some(server), env, logged: Vec::new() });
        }
        Cluster { members, roads }
    }

    /// The number of servers.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The server of a member.
    pub fn server(&self, member: usize) -> &Server {
        self.members[member].server.as_ref().expect("there is a server")
    }

    /// Kills a server without warning.
    pub fn kill(&mut self, member: usize) {
        self.roads.set(member, None);
        let member = &mut self.members[member];
        let server = member.server.as_mut().expect("there is a server");
        server.kill();
        member.logged.push(server.log());
    }

    /// Starts a killed server again.
    pub async fn revive(&mut self, member: usize) {
        let server = self.members[member].server.take().expect("there is a server");
        let env = self.members[member].env.clone();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let server = server.restart(&env).await;
        self.roads.set(member, Some(server.base().to_owned()));
        self.members[member].server = Some(server);
    }

    /// Stops a server with SIGSTOP in the middle of its work. Its connections stay open, and the other servers get no notice.
    pub fn freeze(&self, member: usize) {
        self.server(member).signal(Signal::STOP);
    }

    /// Continues a stopped server.
    pub fn thaw(&self, member: usize) {
        self.server(member).signal(Signal::CONT);
    }

    /// Log lines that must not appear: faults of the server itself, and data that it could not interpret.
    pub fn complaints(&self) -> Vec<String> {
        let patterns = ["panicked", "by our own fault", "makes no sense", "quarantine"];
        let now = self.members.iter().filter_map(|member| member.server.as_ref()).map(Server::log);
        let logs: Vec<String> = self.members.iter().flat_map(|member| member.logged.clone()).chain(now).collect();
        let lines = logs.iter().flat_map(|log| log.lines());
        lines.filter(|line| patterns.iter().any(|pattern| line.contains(pattern))).map(|line| format!("a server logged: {line}")).collect()
    }
}

/// A builder with this configuration in addition to the common one.
pub fn builder(config: &str) -> ServerBuilder {
    limited(LIMITS, config)
}

/// A builder with other limits, such as another lease and other deadlines.
pub fn limited(limits: &str, config: &str) -> ServerBuilder {
    let limits = format!("limits: {{ sweep_interval: 250ms, backoff: 100ms, {limits} }}\n");
    ServerBuilder::new(&format!("{CONFIG}{config}{limits}")).file("script.yaml", SCRIPT)
}
