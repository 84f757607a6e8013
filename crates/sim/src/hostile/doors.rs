//! Any requests to all doors, one after the other, with the engine behind them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody},
    http::{Method, Request, Uri},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tower::ServiceExt;
use uuid::Uuid;
use windlass_doors::{DoorState, Limits, Scope, Token, Tokens, router};
use windlass_engine::{AgentCatalog, AgentSpec, CrashPoints, Engine, Parts, Settings};
use windlass_kernel::{AfterExecution, AgentName, Budgets, EffectClass, PolicyName, Route, Timestamp, ToolName, ToolSpec};
use windlass_models::{Entry, Registry, Scripted};
use windlass_ports::{Clock, Ids};
use windlass_store::{MemoryStore, StoreOptions};
use windlass_tools::Seal;

use super::{BETWEEN, BYTES_MAX, run};

/// The route of a body, by its first byte. The last one takes the rest as a path with its query, the one before as an id to delete.
const ROUTES: [(u8, &str); 14] = [
    (b'r', "/v1/responses"),
    (b'e', "/v1/agents/alice/enqueue"),
    (b'p', "/v1/agents/alice/report"),
    (b's', "/v1/agents/alice/stop"),
    (b'a', "/v1/agents/alice/actions"),
    (b'c', "/v1/tools/echo/claim"),
    (b'n', "/v1/tools/echo/renew"),
    (b'l', "/v1/tools/echo/release"),
    (b'b', "/v1/windlass/boxes"),
    (b'k', "/v1/windlass/reconcile"),
    (b'P', "/"),
    (b'D', "/v1/responses/"),
    (b'X', "/v1/responses/"),
    (b'G', "/"),
];

/// The most requests of one input.
const REQUESTS_MAX: usize = 6;
/// How long an answer is awaited, in virtual time.
const PATIENCE: Duration = Duration::from_secs(90);
/// The limit of one answer: the text of the offline model and of the request, in many events.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Sends the parts of the bytes as requests. The first byte of each chooses the route.
pub fn door_requests(bytes: &[u8]) -> bool {
    if bytes.len() > BYTES_MAX {
        return false;
    }
    run(async {
        let router = doors().await;
        let mut is_taken = false;
        for part in bytes.split(|byte| *byte == BETWEEN).take(REQUESTS_MAX) {
            let Some(request) = request(part) else { continue };
            let is_read = request.method() == Method::GET;
            is_taken |= send(&router, request).await && !is_read;
        }
        is_taken
    })
}

fn request(part: &[u8]) -> Option<Request<Body>> {
    let (first, rest) = part.split_first()?;
    let (_, path) = ROUTES.iter().find(|(letter, _)| letter == first)?;
    let given = || Some(format!("{path}{}", std::str::from_utf8(rest).ok()?));
    let (method, uri, body) = match first {
        b'G' => (Method::GET, given()?, &[][..]),
        b'P' => (Method::POST, given()?, &[][..]),
        b'D' => (Method::DELETE, given()?, &[][..]),
        b'X' => (Method::POST, format!("{}/cancel", given()?), &[][..]),
        _ => (Method::POST, (*path).to_owned(), rest),
    };
    let uri: Uri = uri.parse().ok()?;
    let request = Request::builder().method(method).uri(uri).header("authorization", "Bearer all");
    request.body(Body::from(body.to_vec())).ok()
}

/// Whether the request succeeded.
async fn send(router: &Router, request: Request<Body>) -> bool {
    let shown = format!("{} {}", request.method(), request.uri());
    let patience = Instant::now() + PATIENCE;
    let Ok(answered) = tokio::time::timeout_at(patience, router.clone().oneshot(request)).await else {
        // A response that waits for a person has no end, and its client asked to wait.
        return true;
    };
    let answer = answered.expect("a router does not fail");
    let status = answer.status().as_u16();
    assert!(status < 500, "{shown}: {status}");
    let is_json = answer.headers().get("content-type").is_some_and(|kind| kind.as_bytes() == b"application/json");
    let mut body = answer.into_body();
    let mut text = Vec::new();
    // An event stream of an agent has no end.
    while let Ok(Some(frame)) = tokio::time::timeout_at(patience, body.frame()).await {
        text.extend_from_slice(&frame.expect("an answer does not break").into_data().unwrap_or_default());
        assert!(text.len() <= ANSWER_BYTES_MAX, "{shown}: an answer without end");
    }
    if is_json && body.is_end_stream() {
        serde_json::from_slice::<Value>(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
    assert!(is_json || status < 300, "{shown}: a refusal is JSON");
    status < 300
}

/// A clock that follows the virtual time.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000 + i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

/// The same ids every time, so that bytes can name a run.
#[derive(Default)]
struct CountedIds(AtomicU64);

impl Ids for CountedIds {
    fn fresh(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

fn roster() -> AgentCatalog {
    let tool = ToolSpec {
        name: "echo".into(),
        description: "gives the text back".into(),
        parameters: json!({ "type": "object" }),
        route: Route::External,
        effect: EffectClass::Read,
        after_execution: AfterExecution::Suspend,
        deadline_ms: 60_000,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    let alice = AgentSpec {
        policy: PolicyName::Respond,
        model: None,
        instructions: Some("Be brief.".into()),
        tools: vec!["echo".into()],
        budgets: Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None },
        cost_limit: None,
        budgets_park: false,
        ask: false,
        serial: false,
        description: None,
        parameters: None,
        levels: 1,
        tenants: windlass_ports::Tenants::All,
    };
    let agents = BTreeMap::from([(AgentName::from("alice"), alice)]);
    AgentCatalog::new(agents, BTreeMap::from([(ToolName::from("echo"), tool)]), Vec::new())
}

async fn doors() -> Router {
    let store = Arc::new(MemoryStore::new(StoreOptions { publish: false, usage: false }));
    let model = Entry::new("offline", Arc::new(Scripted::by_words("offline")));
    let engine = Engine::start(Parts {
        node: store.node(),
        views: store.clone(),
        store,
        models: Arc::new(Registry::new(vec![model]).expect("one model")),
        roster: roster(),
        servers: None,
        doorbell: None,
        bells: None,
        notifications: None,
        publisher: None,
        clock: Arc::new(PausedClock(Instant::now())),
        ids: Arc::new(CountedIds::default()),
        crash: CrashPoints::default(),
        settings: Settings::default(),
        reader: Arc::new(windlass_doors::WireReader),
        meter: Arc::new(windlass_ports::NoMeter),
        life: None,
    });
    engine.ready().await;
    let scopes = vec![Scope::parse("*").expect("a scope")];
    let hash = Sha256::digest(b"all").into();
    let all = Token { hash, tenant: "t".into(), scopes, name: "all".into(), standard_status: None, expires: None };
    let seal = Seal::from_hex(&"5e".repeat(32)).expect("a key");
    router(DoorState::new(engine, Tokens::new(vec![all]), Limits::default(), Arc::new(seal)))
}
