//! One server that may die at any moment, the supervisor that starts it again, and people and clients that retry.
//!
//! All of them behave as the documentation asks of a client: a request without an answer is sent again unchanged, with the same key, until
//! there is an answer.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, NatsServer, PATIENCE, Server, ServerBuilder, SseEvent, SseStream, bytes};

use crate::{scenarios, service::Start, wreck};

/// The environment variable that names the crash point.
const CRASH_AT: &str = "WINDLASS_CRASH_AT";

/// At which start the server gets a crash point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Never.
    Never,
    /// At its first start.
    FirstStart(String),
    /// At its second start, after the scenario has killed the first process.
    SecondStart(String),
}

/// One request for a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The scenario's name for the request, which is also its key.
    pub name: String,
    /// The agent.
    pub agent: String,
    /// The run that every answer named: always the same one.
    pub run: String,
    /// Whether the scenario made the stored state of the run unreadable.
    pub is_spoiled: bool,
}

/// A server, its services and its clients.
pub struct World {
    server: Option<Server>,
    order: Order,
    /// The number of deaths at the crash point.
    pub deaths: u32,
    /// The number of restarts.
    pub restarts: u32,
    /// Every start of a call by a service.
    pub ledger: Vec<Start>,
    /// The number of claims, which numbers their keys.
    pub claims: u32,
    /// All requests for runs.
    pub asked: Vec<RunRequest>,
    /// The number of messages that were put into inboxes without a run.
    pub strays: usize,
    /// Everything that went wrong so far.
    pub violations: Vec<String>,
    readers: BTreeMap<String, Reader>,
}

impl World {
    /// Starts the server, with a NATS server.
    pub async fn start(order: Order, nats: &NatsServer) -> Self {
        // Every server has a prefix of its own, because the doorbell of another server would make it look for work at other times.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("world-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let doorbell = format!("doorbell: {{ url: '{}', prefix: {prefix} }}\n", nats.url());
        let mut builder = ServerBuilder::new(&format!("{}{doorbell}", scenarios::CONFIG)).file("script.yaml", scenarios::SCRIPT);
        if let Order::FirstStart(point) = &order {
            builder = builder.env(CRASH_AT, point);
        }
        let server = builder.start().await;
        World {
            server: Some(server),
            order,
            deaths: 0,
            restarts: 0,
            ledger: Vec::new(),
            claims: 0,
            asked: Vec::new(),
            strays: 0,
            violations: Vec::new(),
            readers: BTreeMap::new(),
        }
    }

    /// The running server.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("there is a server")
    }

    /// Sends a request until there is an answer. Also returns whether an answer was lost on the way.
    pub async fn send(&mut self, method: Method, path: &str, body: Option<&Value>, key: Option<&str>) -> (Answer, bool) {
        let mut is_repeated = false;
        loop {
            let mut request = self.server().request(method.clone(), path);
            if let Some(body) = body {
                request = request.json(body);
            }
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            match self.server().try_send(request).await {
                Ok(answer) => return (answer, is_repeated),
                Err(_) => self.revive().await,
            }
            is_repeated = true;
        }
    }

    /// Sends a GET request until there is an answer.
    pub async fn get(&mut self, path: &str) -> Value {
        self.send(Method::GET, path, None, None).await.0.ok()
    }

    /// Sends a POST request with a key until there is an answer.
    pub async fn post_once(&mut self, path: &str, body: Value, key: &str) -> Value {
        self.send(Method::POST, path, Some(&body), Some(key)).await.0.ok()
    }

    /// Sends a POST request until there is an answer.
    pub async fn post(&mut self, path: &str, body: Value) -> Value {
        self.send(Method::POST, path, Some(&body), None).await.0.ok()
    }

    /// Repeats a GET request until the reader accepts the answer.
    pub async fn wait<T>(&mut self, what: &str, path: &str, read: impl Fn(&Value) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            let view = self.get(path).await;
            if let Some(found) = read(&view) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: it did not happen within {PATIENCE:?}; last seen: {view}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Enqueues a run to an agent, with the name as its key.
    pub async fn enqueue(&mut self, name: &str, agent: &str, input: &str) -> String {
        self.read_events(agent);
        let body = json!({ "input": input, "idempotency_key": name });
        let answer = self.post(&format!("/v1/agents/{agent}/enqueue"), body).await;
        self.taken(name, agent, &answer)
    }

    /// Enqueues a person's action.
    pub async fn act(&mut self, name: &str, agent: &str, tool: &str) -> String {
        self.read_events(agent);
        let body = json!({ "action_id": name, "tool": tool, "args": { "by": "a person" } });
        let answer = self.post(&format!("/v1/agents/{agent}/actions"), body).await;
        self.taken(name, agent, &answer)
    }

    fn taken(&mut self, name: &str, agent: &str, answer: &Value) -> String {
        let run = answer["run_id"].as_str().expect("a request that is taken has a run").to_owned();
        self.asked.push(RunRequest { name: name.to_owned(), agent: agent.to_owned(), run: run.clone(), is_spoiled: false });
        run
    }

    /// Stops a run that may have ended already.
    pub async fn stop(&mut self, agent: &str, run: &str) {
        let body = json!({ "agent_turn_id": run, "reason": "enough" });
        self.post(&format!("/v1/agents/{agent}/stop"), body).await;
    }

    /// Decides about a parked call. Without an answer it repeats the decision with the same key.
    pub async fn reconcile(&mut self, run: &str, call: &str, action: &str) {
        let mut body = json!({ "run_id": run, "tool_call_id": call, "action": action });
        if action == "record" {
            body["status"] = "success".into();
            body["result"] = json!({ "found": "in the books" });
        }
        self.decide(&body, &format!("{call} {action}")).await;
    }

    /// Gives up a turn that can't be read.
    pub async fn abandon(&mut self, run: &str) {
        self.decide(&json!({ "run_id": run, "action": "abandon" }), &format!("{run} abandon")).await;
    }

    async fn decide(&mut self, body: &Value, key: &str) {
        let (answer, _) = self.send(Method::POST, "/v1/windlass/reconcile", Some(body), Some(key)).await;
        assert_eq!(answer.status, 200, "{key}: {}", answer.body);
    }

    /// Waits until a run has ended.
    pub async fn ended(&mut self, run: &str) {
        let path = format!("/v1/windlass/runs/{run}");
        self.wait(&format!("{run} ends"), &path, |view| (view["status"] == "ended").then_some(())).await;
    }

    /// Kills the server in the middle of its work. The next start is the second one.
    pub async fn kill(&mut self) {
        let mut server = self.server.take().expect("there is a server");
        server.kill();
        self.start_again(server).await;
    }

    /// Kills the server, and makes the state of all runs requested so far unreadable before the next start.
    pub async fn kill_and_spoil(&mut self) {
        let mut server = self.server.take().expect("there is a server");
        server.kill();
        for asked in &mut self.asked {
            let sql = format!("UPDATE runs SET state = unhex('7b7d') WHERE run = {}", bytes(&asked.run));
            assert_eq!(server.database().execute(&sql), Ok(1), "{}: there is something to spoil", asked.name);
            asked.is_spoiled = true;
        }
        self.start_again(server).await;
    }

    async fn start_again(&mut self, server: Server) {
        self.restarts += 1;
        let point = match &self.order {
            Order::SecondStart(point) => Some(point.clone()),
            Order::Never | Order::FirstStart(_) => None,
        };
        let env: Vec<(&str, &str)> = point.iter().map(|point| (CRASH_AT, point.as_str())).collect();
        match server.restart_or_die(&env).await {
            Ok(server) => self.server = Some(server),
            // It may reach the crash point before it logs that it serves.
            Err(dead) => self.bury(dead.0, dead.1).await,
        }
    }

    /// The supervisor: the process has ended, and it starts another one without a crash point.
    async fn revive(&mut self) {
        let mut server = self.server.take().expect("there is a server");
        let status = server.gone().await;
        self.bury(server, status).await;
    }

    async fn bury(&mut self, server: Server, status: ExitStatus) {
        if status.signal() != Some(9) {
            self.violations.push(format!("the server died otherwise than by SIGKILL: {status}\n{}", server.log()));
        }
        self.deaths += 1;
        self.restarts += 1;
        let spoiled: Vec<&str> = self.asked.iter().filter(|asked| asked.is_spoiled).map(|asked| asked.run.as_str()).collect();
        self.violations.extend(wreck::inspect(&server, &spoiled));
        self.server = Some(server.restart(&[]).await);
    }

    /// The end of a scenario: the crash point was reached or is reached now, and a new server reads what is there.
    pub async fn close(&mut self) {
        let is_ordered = self.order != Order::Never;
        let mut server = self.server.take().expect("there is a server");
        if is_ordered && self.deaths == 0 {
            let began = Instant::now();
            while server.is_running() && began.elapsed() < Duration::from_secs(2) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        if !server.is_running() {
            let status = server.gone().await;
            return self.bury(server, status).await;
        }
        self.server = Some(server.restart(&[]).await);
    }

    /// Reads an agent's events from now on, as a client does that must not miss any.
    fn read_events(&mut self, agent: &str) {
        let base = self.server().base().to_owned();
        self.readers.entry(agent.to_owned()).or_insert_with(|| Reader::start(base, agent.to_owned()));
    }

    /// The events that an agent's reader has, once it has this number of them.
    pub async fn seen(&self, agent: &str, count: usize) -> Vec<SseEvent> {
        let reader = self.readers.get(agent).expect("every agent has a reader");
        let began = Instant::now();
        while reader.seen.lock().expect("the lock is not poisoned").len() < count && began.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        reader.seen.lock().expect("the lock is not poisoned").clone()
    }
}

/// A client that reads an agent's events and reconnects after each death of the server.
struct Reader {
    seen: Arc<Mutex<Vec<SseEvent>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Reader {
    fn start(base: String, agent: String) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(read(base, agent, seen.clone()));
        Reader { seen, task }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(base: String, agent: String, seen: Arc<Mutex<Vec<SseEvent>>>) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    loop {
        let last = seen.lock().expect("the lock is not poisoned").last().map(|event: &SseEvent| event.id.clone());
        let mut request = client.get(format!("{base}/v1/agents/{agent}/events?from=start")).bearer_auth("test-token-of-22-characters");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        if let Ok(response) = request.send().await
            && response.status() == 200
        {
            let mut stream = SseStream::new(response);
            while let Some(event) = stream.next().await {
                seen.lock().expect("the lock is not poisoned").push(event);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
