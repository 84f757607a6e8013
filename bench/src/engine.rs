//! An engine on a database of its own, for programs that drive it from inside the process.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use uuid::Uuid;
use windlass_engine::{AgentCatalog, CrashPoints, Engine, Enqueue, Parts, Settings};
use windlass_kernel::{
    AfterExecution, AgentKey, Budgets, EffectClass, ItemKind, PolicyName, Route, RunId, Tenant, Timestamp, ToolSpec, content,
};
use windlass_ports::{Clock, Executor, Ids, Lineage, Model, Models, NodeId, Store, Views};
use windlass_store::{PostgresStore, SqliteStore, StoreOptions};

use crate::now_us;

/// The tenant of all benchmark runs.
pub const TENANT: &str = "bench";

struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp((now_us() / 1000) as i64)
    }
}

struct RealIds;

impl Ids for RealIds {
    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }
}

struct OneModel(Arc<dyn Model>);

impl Models for OneModel {
    fn resolve(&self, _: &Tenant, _name: &str) -> Option<Arc<dyn Model>> {
        Some(self.0.clone())
    }

    fn names(&self, tenant: &Tenant) -> Vec<String> {
        self.default_name(tenant).map(str::to_owned).into_iter().collect()
    }

    fn default_name(&self, _: &Tenant) -> Option<&str> {
        Some("bench")
    }
}

/// The key of an agent of the benchmark.
pub fn agent(name: &str) -> AgentKey {
    AgentKey { tenant: TENANT.into(), agent: name.into() }
}

/// Opens an engine in this folder, with this model, this executor, the external tool `claimed`, and this limit of iterations per run.
pub fn open(folder: &Path, model: Arc<dyn Model>, executor: Arc<dyn Executor>, iterations: u32) -> Engine {
    let store = Arc::new(SqliteStore::open(folder.join("windlass.db"), StoreOptions::default()).expect("a new database opens"));
    let node = store.node();
    start(store.clone(), store, node, model, executor, iterations)
}

/// Opens the same engine on a PostgreSQL database.
pub async fn connect(url: &str, model: Arc<dyn Model>, executor: Arc<dyn Executor>) -> Engine {
    let store = Arc::new(PostgresStore::open(url, StoreOptions::default()).await.expect("a new database opens"));
    let node = store.node();
    start(store.clone(), store, node, model, executor, 10)
}

fn start(
    store: Arc<dyn Store>,
    views: Arc<dyn Views>,
    node: NodeId,
    model: Arc<dyn Model>,
    executor: Arc<dyn Executor>,
    iterations: u32,
) -> Engine {
    let external = ToolSpec {
        name: "claimed".into(),
        description: String::new(),
        parameters: serde_json::json!({ "type": "object" }),
        route: Route::External,
        effect: EffectClass::Read,
        after_execution: AfterExecution::Suspend,
        deadline_ms: 600_000,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    let long = windlass_engine::AgentSpec {
        policy: PolicyName::Respond,
        model: None,
        instructions: None,
        tools: vec!["job".into()],
        budgets: Budgets { iterations, calls: None, tokens: None, wall_ms: None, children: None, cost: None },
        cost_limit: None,
        budgets_park: false,
        ask: false,
        serial: false,
        description: None,
        parameters: None,
        levels: 1,
        tenants: windlass_ports::Tenants::All,
    };
    Engine::start(Parts {
        node,
        views,
        store,
        models: Arc::new(OneModel(model)),
        roster: AgentCatalog::new(
            BTreeMap::from([("long".into(), long)]),
            BTreeMap::from([(external.name.clone(), external)]),
            vec![executor],
        ),
        servers: None,
        doorbell: None,
        bells: None,
        notifications: None,
        publisher: None,
        clock: Arc::new(RealClock),
        ids: Arc::new(RealIds),
        crash: CrashPoints::default(),
        settings: Settings::default(),
        reader: Arc::new(windlass_ports::NoReader),
        meter: Arc::new(windlass_ports::NoMeter),
        life: None,
    })
}

/// Enqueues 200 bytes of input with one tool.
pub async fn enqueue(engine: &Engine, agent: &AgentKey, tool: &str) -> RunId {
    let text = content::encode(&content::Instruction::Text("i".repeat(200)));
    let request = Enqueue {
        agent: agent.clone(),
        input: vec![(ItemKind::Instruction, text)],
        model: None,
        instructions: None,
        tools: Some(vec![tool.into()]),
        context_box: None,
        result_fields: Vec::new(),
        key: None,
        lineage: Lineage::default(),
    };
    engine.enqueue(request).await.expect("the engine takes the run").run
}
