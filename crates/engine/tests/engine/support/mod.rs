//! A stage: one store, one model and some tools, on which processes start and end.

pub mod gauge;
pub mod model;
pub mod outside;
pub mod reader;
pub mod store;
pub mod tools;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use reader::TestReader;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use windlass_engine::{
    AgentCatalog, AgentSpec, ClaimRequest, CrashPoints, Engine, Enqueue, Enqueued, Notifications, Parts, PriceTable, Settings, ToolResult,
};
use windlass_kernel::{AgentKey, AgentName, Budgets, CallNumber, Gate, ItemKind, PolicyName, RunId, TaskStatus, content};
use windlass_ports::{
    CallStatus, CallView, Clock, Doorbell, HeadView, Item, JournalEntry, Lineage, Meter, ModelRequest, NoMeter, NodeId, Publisher, RunScan,
    RunSet, RunView, ToolCall,
};
use windlass_store::{MemoryStore, StoreOptions, conformance::Full};

pub use gauge::Latch;
pub use model::{RequestExt, Script, Turn, call, say};
pub use outside::{Counter, Line, LostBell, TestClock, TestNotifier, TestPublisher};
pub use store::Faulty;
pub use tools::{Act, CHARGE, FETCH, FLAKY, LOOK, LOOKUP, PAUSE_MS, SERVICE_MS, TOUCH, Tools, WRITE, give};

/// An agent of the tenant that most tests use.
pub fn agent(name: &str) -> AgentKey {
    of_tenant("acme", name)
}

pub fn of_tenant(tenant: &str, name: &str) -> AgentKey {
    AgentKey { tenant: tenant.into(), agent: name.into() }
}

/// Waits until no task can run before time advances.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Lets `ms` milliseconds pass.
pub async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Everything that outlives a process.
pub struct Stage {
    pub data: Arc<dyn Full>,
    pub store: Arc<Faulty>,
    pub model: Arc<Script>,
    pub tools: Arc<Tools>,
    pub clock: Arc<TestClock>,
    pub ids: Arc<Counter>,
    pub settings: Settings,
    pub agents: BTreeMap<AgentName, AgentSpec>,
    pub gates: Vec<Gate>,
    pub prices: PriceTable,
    pub notifier: Option<Arc<TestNotifier>>,
    pub bell: Option<Arc<LostBell>>,
    pub publisher: Option<Arc<TestPublisher>>,
    pub meter: Arc<dyn Meter>,
}

impl Stage {
    /// A store in memory, this model, and tools that give `1`.
    pub fn new(play: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Self::on(Arc::new(MemoryStore::new(StoreOptions::default())), play)
    }

    /// The same, with an outbox and a publisher.
    pub fn publishing(play: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        let stage = Self::on(Arc::new(MemoryStore::new(StoreOptions { publish: true, usage: false })), play);
        Stage { publisher: Some(Arc::default()), ..stage }
    }

    /// A stage on another store.
    pub fn on(data: Arc<dyn Full>, play: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Stage {
            store: Arc::new(Faulty::new(data.clone())),
            data,
            model: Arc::new(Script::new(1000, play)),
            tools: Arc::new(Tools::new(|_| give("1"))),
            clock: Arc::new(TestClock::new()),
            ids: Arc::default(),
            settings: Settings { sweep_ms: 100, backoff_ms: 500, ..Settings::default() },
            agents: BTreeMap::new(),
            gates: Vec::new(),
            prices: PriceTable::default(),
            notifier: None,
            bell: None,
            publisher: None,
            meter: Arc::new(NoMeter),
        }
    }

    /// The stage of the next process. Its ids come after those of the last one, as they do in production.
    pub fn after(self, ids: Arc<Counter>) -> Self {
        Stage { ids, ..self }
    }

    pub fn with_tools(self, play: impl Fn(&ToolCall) -> Act + Send + Sync + 'static) -> Self {
        Stage { tools: Arc::new(Tools::new(play)), ..self }
    }

    pub fn with_settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// A rule that holds calls of this tool.
    pub fn with_gate(mut self, tool: &str, change: impl FnOnce(&mut Gate)) -> Self {
        let mut gate = Gate { tool: Some(tool.to_owned()), ..Gate::default() };
        change(&mut gate);
        self.gates.push(gate);
        self
    }

    /// An agent with budgets of its own.
    pub fn with_budgets(mut self, name: &str, budgets: Budgets) -> Self {
        let spec = AgentSpec {
            policy: PolicyName::Respond,
            model: None,
            instructions: None,
            tools: Vec::new(),
            budgets,
            cost_limit: None,
            budgets_park: false,
            ask: false,
            serial: false,
            description: None,
            parameters: None,
            levels: 1,
            tenants: windlass_ports::Tenants::All,
        };
        self.agents.insert(name.into(), spec);
        self
    }

    /// An agent with these tools, below which there may be `levels` levels of child runs.
    pub fn with_agent(self, name: &str, tools: &[&str], levels: u32) -> Self {
        let none = Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
        self.with_budgets(name, none).change_agent(name, |spec| {
            spec.tools = tools.iter().map(|tool| (*tool).into()).collect();
            spec.levels = levels;
        })
    }

    /// The same stage with a change of an agent.
    pub fn change_agent(mut self, name: &str, change: impl FnOnce(&mut AgentSpec)) -> Self {
        change(self.agents.get_mut(&AgentName::from(name)).expect("an agent of that name"));
        self
    }

    /// The child runs of a run, the first one first.
    pub async fn children(&self, agent: &AgentKey, run: RunId) -> Vec<RunView> {
        let scan = RunScan { set: RunSet::Children(run), below: None, limit: 1_000 };
        let page = self.data.scan_runs(&agent.tenant, &scan).await.unwrap();
        page.runs.into_iter().rev().map(|run| run.view.unwrap()).collect()
    }

    fn notifications(&self) -> Option<Notifications> {
        let notifier = self.notifier.clone()?;
        Some(Notifications { notifier, tenants: vec!["acme".into()] })
    }

    /// A process with this node's number, in the caller's runtime.
    pub fn engine(&self, node: u64) -> Engine {
        self.mortal(node, None)
    }

    /// The same, ended at once when the token is cancelled.
    pub fn mortal(&self, node: u64, life: Option<CancellationToken>) -> Engine {
        Engine::start(Parts { life, ..self.parts(node) })
    }

    /// A process that ends at the `nth` crash point which it reaches, counted from 0.
    pub fn dying(&self, node: u64, nth: usize, life: &CancellationToken) -> Engine {
        let (reached, end) = (std::sync::atomic::AtomicUsize::new(0), life.clone());
        let crash = CrashPoints::watched(move |_, _, _| {
            if reached.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == nth {
                end.cancel();
            }
        });
        Engine::start(Parts { life: Some(life.clone()), crash, ..self.parts(node) })
    }

    /// A process that is connected to the doorbells of the others.
    pub fn wired(&self, node: u64, line: &Line) -> Engine {
        let (doorbell, bells) = line.hang(node);
        Engine::start(Parts { doorbell: Some(doorbell), bells: Some(bells), ..self.parts(node) })
    }

    fn parts(&self, node: u64) -> Parts {
        self.clock.rebase();
        Parts {
            store: self.store.clone(),
            views: self.data.clone(),
            node: NodeId(node),
            models: Arc::new(model::Only(self.model.clone())),
            roster: AgentCatalog::new(self.agents.clone(), tools::services(), vec![self.tools.clone()])
                .with_gates(self.gates.clone())
                .with_prices(self.prices.clone()),
            servers: None,
            doorbell: self.bell.clone().map(|bell| bell as Arc<dyn Doorbell>),
            bells: None,
            notifications: self.notifications(),
            publisher: self.publisher.clone().map(|publisher| publisher as Arc<dyn Publisher>),
            clock: self.clock.clone() as Arc<dyn Clock>,
            ids: self.ids.clone(),
            crash: CrashPoints::default(),
            settings: self.settings.clone(),
            reader: Arc::new(TestReader),
            meter: self.meter.clone(),
            life: None,
        }
    }

    pub async fn run(&self, agent: &AgentKey, run: RunId) -> RunView {
        self.data.run(&agent.tenant, run).await.unwrap().unwrap()
    }

    pub async fn head(&self, agent: &AgentKey) -> HeadView {
        self.data.head(agent).await.unwrap().unwrap()
    }

    pub async fn journal(&self, agent: &AgentKey, run: RunId) -> Vec<JournalEntry> {
        self.data.journal(&agent.tenant, run, 0, 10_000).await.unwrap()
    }

    /// The journal as the kinds of its events.
    pub async fn story(&self, agent: &AgentKey, run: RunId) -> Vec<&'static str> {
        self.journal(agent, run).await.iter().map(|entry| entry.event.kind()).collect()
    }

    pub async fn calls(&self, agent: &AgentKey, run: RunId) -> Vec<CallView> {
        self.data.calls(&agent.tenant, run, CallNumber(0), 10_000).await.unwrap()
    }

    pub async fn call_statuses(&self, agent: &AgentKey, run: RunId) -> Vec<CallStatus> {
        self.calls(agent, run).await.iter().map(|call| call.status).collect()
    }

    pub async fn output(&self, agent: &AgentKey, run: RunId) -> Vec<Item> {
        let view = self.run(agent, run).await;
        self.data.box_items(&agent.tenant, view.state.output.id, 0, 10_000).await.unwrap()
    }

    /// Waits for the end of a run, checks that exactly one end and one deliverable are stored, and returns the deliverable's text.
    pub async fn ended(&self, agent: &AgentKey, run: RunId) -> String {
        for _ in 0..200_000 {
            let view = self.run(agent, run).await;
            if view.state.has_ended() {
                return self.deliverable(agent, run).await;
            }
            pass_ms(5).await;
        }
        panic!("the run never ended: {:?}, {:?}", self.run(agent, run).await.state, self.head(agent).await);
    }

    async fn deliverable(&self, agent: &AgentKey, run: RunId) -> String {
        let view = self.run(agent, run).await;
        let events: Vec<_> = self.journal(agent, run).await.into_iter().map(|entry| entry.event).collect();
        assert_eq!(windlass_kernel::fold(&events).as_ref(), Some(&view.state), "folding the journal gives the state");
        assert_eq!(events.iter().filter(|event| event.kind() == "ended").count(), 1, "one end");
        let items = self.output(agent, run).await;
        let deliverables: Vec<&Item> = items.iter().filter(|item| item.kind == ItemKind::Deliverable).collect();
        assert_eq!(deliverables.len(), 1, "one deliverable");
        assert_eq!(view.deliverable, Some(deliverables[0].id));
        match serde_json::from_slice(&deliverables[0].content).unwrap() {
            content::Deliverable::Text(text) => text,
            content::Deliverable::Fields(_) | content::Deliverable::Summary(_) => {
                String::from_utf8(deliverables[0].content.to_vec()).unwrap()
            }
        }
    }
}

/// A process in a runtime of its own. Killing it loses everything it had in memory.
pub struct Process {
    pub engine: Engine,
    runtime: Runtime,
}

impl Process {
    pub fn start(stage: &Stage, node: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let engine = runtime.block_on(async { stage.engine(node) });
        Process { engine, runtime }
    }

    /// Runs the process until `what` is done.
    pub fn does<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    pub fn kill(self) {
        drop(self.runtime);
    }
}

/// Runs `what` with real time, for tests on a real disk: a paused clock would run ahead of the disk. The process has ended when this
/// returns.
pub fn in_real_time<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), what).await.expect("it does not hang") })
}

/// The requests that doors send.
pub trait Doors {
    async fn begin(&self, agent: &AgentKey, task: &str) -> Enqueued;
    async fn answer(&self, agent: &AgentKey, run: RunId, call: u32, result: &str);
    async fn serve(&self, tool: &str, result: &str) -> usize;
}

impl Doors for Engine {
    /// Enqueues a turn with all tools.
    async fn begin(&self, agent: &AgentKey, task: &str) -> Enqueued {
        self.enqueue(request(agent, task)).await.unwrap()
    }

    /// Reports a call's result.
    async fn answer(&self, agent: &AgentKey, run: RunId, call: u32, result: &str) {
        let reported = self.report(result_of(agent, run, call, result)).await.unwrap();
        assert!(!reported.is_duplicate);
    }

    /// Claims all calls that wait for a service of this tool, and reports a result for each.
    async fn serve(&self, tool: &str, result: &str) -> usize {
        let calls = self.claim(claim(tool)).await.unwrap();
        for call in &calls {
            self.answer(&call.agent, call.run, call.call.0, result).await;
        }
        calls.len()
    }
}

pub fn claim(tool: &str) -> ClaimRequest {
    ClaimRequest { tenant: "acme".into(), tool: tool.into(), worker: "w".into(), max: 1000, lease_ms: 10_000, key: None, request: None }
}

pub fn request(agent: &AgentKey, task: &str) -> Enqueue {
    let text = content::encode(&content::Instruction::Text(task.to_owned()));
    Enqueue {
        agent: agent.clone(),
        input: vec![(ItemKind::Instruction, text)],
        model: None,
        instructions: None,
        tools: Some([LOOK, TOUCH, WRITE, LOOKUP, CHARGE].map(Into::into).into()),
        context_box: None,
        result_fields: Vec::new(),
        key: None,
        lineage: Lineage::default(),
    }
}

pub fn result_of(agent: &AgentKey, run: RunId, call: u32, result: &str) -> ToolResult {
    ToolResult {
        agent: agent.clone(),
        run,
        call: CallNumber(call),
        retry: 0,
        status: TaskStatus::Success,
        result: result.to_owned().into(),
        after: None,
        source: Some("service".into()),
        key: None,
    }
}
