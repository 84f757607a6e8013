//! A server with all doors over a real engine, and a client for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower::ServiceExt;
use windlass_doors::{Configured, DoorState, Limits, Metrics, PeerRules, Scope, Token, Tokens, router};
use windlass_engine::{AgentCatalog, AgentSpec, CrashPoints, Engine, Parts, Settings};
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, Budgets, EffectClass, Gate, PolicyName, Route, Tenant, Timestamp, ToolName, ToolSpec,
};
use windlass_models::{Entry, Registry, Scripted};
use windlass_ports::{Clock, Ids, Model, Sealing, Tenants};
use windlass_store::{MemoryStore, StoreOptions};

pub const BODY_BYTES_MAX: usize = 3 << 20;
pub const ITEM_BYTES_MAX: usize = 2 << 20;

/// A clock that shows real time plus an offset, which tests can move forward.
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_millisecond() + self.0.load(Ordering::SeqCst))
    }
}

struct FreshIds;

impl Ids for FreshIds {
    fn fresh(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }
}

/// A server with a client.
pub struct World {
    pub engine: Engine,
    pub router: Router,
    pub metrics: Arc<Metrics>,
    pub state: DoorState,
    clock: Arc<TestClock>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The status and the code of an error.
    pub fn refusal(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), code)
    }

    /// The body of an answer that must have the status `status`.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self.json()
    }
}

pub fn token(text: &str, tenant: &str, scopes: &[&str]) -> Token {
    Token {
        hash: Sha256::digest(text.as_bytes()).into(),
        tenant: tenant.into(),
        scopes: scopes.iter().map(|scope| Scope::parse(scope).unwrap()).collect(),
        name: format!("{text}-name"),
        standard_status: None,
        expires: None,
    }
}

fn tokens() -> Tokens {
    let in_an_hour = Timestamp(jiff::Timestamp::now().as_millisecond() + 3_600_000);
    Tokens::new(vec![
        token("all", "t", &["*"]),
        token("other", "u", &["*"]),
        token("reader", "t", &["agents:read", "runs:read"]),
        token("writer", "t", &["agents:write"]),
        token("stopper", "t", &["agents:stop"]),
        token("echoer", "t", &["tools:echo"]),
        token("toolman", "t", &["tools:*"]),
        token("payer", "t", &["tools:pay"]),
        token("judge", "t", &["approvals:answer"]),
        token("runner", "t", &["agents:read", "agents:write", "responses"]),
        token("named", "t", &["agents:read", "agents:write", "responses", "runs:read", "agent:alice", "use:echo"]),
        token("admin", "t", &["admin"]),
        token("scraper", "t", &["metrics"]),
        Token { expires: Some(in_an_hour), ..token("brief", "t", &["*"]) },
    ])
}

fn tool(name: &str, effect: EffectClass) -> (ToolName, ToolSpec) {
    let spec = ToolSpec {
        name: name.into(),
        description: "for tests".into(),
        parameters: json!({ "type": "object", "properties": { "sum": { "type": "integer" } } }),
        route: Route::External,
        effect,
        after_execution: AfterExecution::Suspend,
        deadline_ms: 600_000,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    (name.into(), spec)
}

fn alice() -> AgentSpec {
    AgentSpec {
        policy: PolicyName::Respond,
        model: None,
        instructions: Some("Be brief.".into()),
        tools: vec!["echo".into(), "pay".into()],
        budgets: Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None },
        cost_limit: None,
        budgets_park: false,
        ask: false,
        serial: false,
        description: None,
        parameters: None,
        levels: 1,
        tenants: Tenants::All,
    }
}

fn roster() -> AgentCatalog {
    let alice = alice();
    let serial = AgentSpec { serial: true, ..alice.clone() };
    let dear = AgentSpec { cost_limit: Some(1_000_000), ..alice.clone() };
    let asker = AgentSpec { ask: true, tools: vec!["echo".into()], ..alice.clone() };
    let agents = [("alice", alice), ("one-at-a-time", serial), ("asker", asker), ("dear", dear)];
    let agents = agents.map(|(name, spec)| (AgentName::from(name), spec)).into();
    let tools = [tool("echo", EffectClass::Read), tool("pay", EffectClass::Write), tool("spare", EffectClass::Read)]
        .into_iter()
        .chain([tool("wire", EffectClass::Write), tool("vault", EffectClass::Write)])
        .collect();
    AgentCatalog::new(agents, tools, Vec::new()).with_gates(vec![
        Gate { tool: Some("wire".into()), ..Gate::default() },
        Gate { tool: Some("vault".into()), approvers: 2, until_ms: Some(60_000), ..Gate::default() },
    ])
}

/// Leaves texts unsealed: sealing is not what these tests are about.
struct Unsealed;

impl Sealing for Unsealed {
    fn seal(&self, _: &Tenant, _: &str, text: &str) -> String {
        text.to_owned()
    }

    fn open(&self, _: &Tenant, sealed: &str) -> Option<String> {
        Some(sealed.to_owned())
    }
}

impl World {
    pub fn start() -> Self {
        Self::with(Settings { sweep_ms: 20, item_bytes_max: ITEM_BYTES_MAX, ..Settings::default() })
    }

    pub fn with(settings: Settings) -> Self {
        Self::with_model(settings, Arc::new(Scripted::by_words("offline")))
    }

    pub fn with_model(settings: Settings, model: Arc<dyn Model>) -> Self {
        Self::with_models(settings, vec![Entry::new("offline", model)])
    }

    pub fn with_models(settings: Settings, models: Vec<Entry>) -> Self {
        Self::with_roster(settings, models, roster())
    }

    /// A server whose only agent is `alice`.
    pub fn closed() -> Self {
        let model = Entry::new("offline", Arc::new(Scripted::by_words("offline")));
        Self::with_roster(Settings { sweep_ms: 20, ..Settings::default() }, vec![model], roster().closed())
    }

    /// A server whose agent `boss` may ask `alice`, and whose agent `guest` may ask an agent of another tenant.
    pub fn of_a_tree() -> Self {
        let asking = |agent: &str| AgentSpec { tools: vec![agent.into()], ..alice() };
        let others = AgentSpec { tenants: Tenants::Only([Tenant::from("u")].into()), ..alice() };
        let agents = [("alice", alice()), ("boss", asking("agent/alice")), ("guest", asking("agent/theirs")), ("theirs", others)];
        let agents = agents.into_iter().map(|(name, spec)| (AgentName::from(name), spec)).collect();
        let roster =
            AgentCatalog::new(agents, BTreeMap::from([tool("echo", EffectClass::Read), tool("pay", EffectClass::Write)]), Vec::new());
        let model = Entry::new("offline", Arc::new(Scripted::by_words("offline")));
        Self::with_roster(Settings { sweep_ms: 20, ..Settings::default() }, vec![model], roster)
    }

    /// A server whose agents, tools and first model belong to the tenant `t`.
    pub fn of_one_tenant() -> Self {
        let of_t = Tenants::Only([Tenant::from("t")].into());
        let model = Arc::new(Scripted::by_words("offline"));
        let models = vec![Entry { tenants: of_t.clone(), ..Entry::new("offline", model.clone()) }, Entry::new("shared", model)];
        let spec = AgentSpec { tenants: of_t.clone(), ..alice() };
        let agents = BTreeMap::from([(AgentName::from("alice"), spec)]);
        let tools = BTreeMap::from([tool("echo", EffectClass::Read), tool("pay", EffectClass::Write)]);
        let of_tools = BTreeMap::from([("echo".into(), of_t.clone()), ("pay".into(), of_t)]);
        let roster = AgentCatalog::new(agents, tools, Vec::new()).with_tool_tenants(of_tools).closed();
        Self::with_roster(Settings { sweep_ms: 20, ..Settings::default() }, models, roster)
    }

    /// A server with these limits.
    pub fn limited(limits: Limits) -> Self {
        let model = Entry::new("offline", Arc::new(Scripted::by_words("offline")));
        Self::with_all(Settings { sweep_ms: 20, ..Settings::default() }, vec![model], roster(), limits)
    }

    fn with_roster(settings: Settings, models: Vec<Entry>, roster: AgentCatalog) -> Self {
        Self::with_all(settings, models, roster, Limits { body_bytes_max: BODY_BYTES_MAX, ..Limits::default() })
    }

    fn with_all(settings: Settings, models: Vec<Entry>, roster: AgentCatalog, limits: Limits) -> Self {
        let store = Arc::new(MemoryStore::new(StoreOptions { publish: false, usage: settings.usage_days.is_some() }));
        let clock = Arc::new(TestClock(AtomicI64::new(0)));
        let names = |name: &str| vec![name.to_owned()];
        let metrics = Metrics::new(Configured { agents: names("alice"), models: names("offline"), tools: names("echo") });
        let engine = Engine::start(Parts {
            node: store.node(),
            views: store.clone(),
            store,
            models: Arc::new(Registry::new(models).unwrap()),
            roster,
            servers: None,
            doorbell: None,
            bells: None,
            notifications: None,
            publisher: None,
            clock: clock.clone(),
            ids: Arc::new(FreshIds),
            crash: CrashPoints::default(),
            settings,
            reader: Arc::new(windlass_doors::WireReader),
            meter: metrics.clone(),
            life: None,
        });
        let state = DoorState::new(engine.clone(), tokens(), limits, Arc::new(Unsealed)).with_metrics(metrics.clone());
        World { engine, router: router(state.clone()), metrics, state, clock }
    }

    /// The same server behind a proxy.
    pub fn behind_proxy(self) -> Self {
        self.behind_proxies(&[])
    }

    /// The same server behind a proxy with one of the addresses `proxies`.
    pub fn behind_proxies(self, proxies: &[&str]) -> Self {
        let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        World { router: router(self.state.clone().with_peers(PeerRules { behind_proxy: true, proxies })), ..self }
    }

    /// Moves the engine's clock forward.
    pub fn pass_s(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        self.engine.ready().await;
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.post_as("all", path, body).await
    }

    pub async fn post_as(&self, token: &str, path: &str, body: impl Into<Body>) -> Answer {
        self.send(request("POST", token, path).body(body.into()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.get_as("all", path).await
    }

    pub async fn get_as(&self, token: &str, path: &str) -> Answer {
        self.send(request("GET", token, path).body(Body::empty()).unwrap()).await
    }

    /// Enqueues the text and returns the run.
    pub async fn enqueue(&self, agent: &str, input: &str) -> String {
        let body = json!({ "input": input }).to_string();
        let taken = self.post(&format!("/v1/agents/{agent}/enqueue"), body).await.expect(202);
        taken["agent_turn_id"].as_str().unwrap().to_owned()
    }

    /// Polls a path until its answer is as wanted.
    pub async fn until(&self, agent: &str, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.engine.watch_agent(&AgentKey { tenant: "t".into(), agent: agent.into() });
        let mut seen = Value::Null;
        for _ in 0..500 {
            let answer = self.get(path).await;
            if answer.status == StatusCode::OK {
                seen = answer.json();
                if is_wanted(&seen) {
                    return seen;
                }
            }
            let _ = tokio::time::timeout(Duration::from_millis(20), watch.changed()).await;
        }
        panic!("it never came: {seen:#}");
    }

    pub async fn until_status(&self, agent: &str, status: &str) -> Value {
        self.until(agent, &format!("/v1/agents/{agent}"), |head| head["status"] == status).await
    }

    /// Starts a run whose call of `tool` is held by a rule, and returns its interrupt.
    pub async fn held(&self, tool: &str, arguments: &str) -> Value {
        let body = json!({ "input": format!("call {tool} {arguments}"), "tools": [tool] }).to_string();
        let run = self.post("/v1/agents/guarded/enqueue", body).await.expect(202)["run_id"].as_str().unwrap().to_owned();
        for _ in 0..500 {
            let listed = self.get(&format!("/v1/windlass/interrupts?run={run}")).await.expect(200);
            if let Some(interrupt) = listed["interrupts"].get(0) {
                return interrupt.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no interrupt of {run}");
    }

    /// Waits until a run has ended and returns its answer.
    pub async fn ended(&self, agent: &str, run: &str) -> Value {
        self.until(agent, &format!("/v1/windlass/runs/{run}"), |run| run["status"] == "ended").await
    }

    /// Claims a call of the tool, waiting for it.
    pub async fn claim(&self, tool: &str) -> Value {
        let body = json!({ "worker": "w1", "wait_s": 10 }).to_string();
        let claimed = self.post(&format!("/v1/tools/{tool}/claim"), body).await.expect(200);
        assert_eq!(claimed["calls"].as_array().map(Vec::len), Some(1), "{claimed}");
        claimed["calls"][0].clone()
    }

    /// The content of an item.
    pub async fn item(&self, id: &Value) -> Answer {
        self.get(&format!("/v1/windlass/items/{}", id.as_str().unwrap())).await
    }
}

pub fn request(method: &str, token: &str, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"))
}

/// The body of a report on a claimed call, with `result` as raw JSON.
pub fn report(call: &Value, result: &str) -> String {
    format!(
        r#"{{"agent_turn_id":{},"tool_call_id":{},"status":"success","result":{result},"turn_epoch":{}}}"#,
        call["agent_turn_id"], call["tool_call_id"], call["turn_epoch"]
    )
}
