//! A process: the real engine, with its own clock, ids and store handle. It can die, and it can be paused.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use windlass_engine::{AgentCatalog, AgentSpec, CrashPoints, Engine, Parts, Settings};
use windlass_kernel::{AgentName, Budgets, PolicyName, Timestamp};
use windlass_ports::{Clock, Doorbell, Ids, NodeId, Ring};

use super::{
    Fact, LEASE_MS, Lock, World,
    model::SimModels,
    pass_ms,
    publisher::SimPublisher,
    store::{self, SimStore},
    tools,
};

/// The time at which the world begins, by a correct clock.
const BEGINNING: i64 = 1_700_000_000_000;

/// The processes, and the leases that the store gave them.
#[derive(Default)]
pub(super) struct Slots {
    live: BTreeMap<usize, Arc<Node>>,
    last: u64,
    /// The end of each process's lease, by the store's clock.
    pub leases: BTreeMap<NodeId, Instant>,
}

impl Slots {
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.live.values().cloned().collect()
    }

    /// Ends everything, and drops what is kept of each process.
    pub fn kill_all(&mut self) {
        for node in std::mem::take(&mut self.live).into_values() {
            node.end();
        }
    }

    pub fn holds_lease(&self, node: NodeId) -> bool {
        self.leases.get(&node).is_some_and(|until| *until > Instant::now())
    }
}

/// Rings that may wait for a process. Further ones are lost.
const RINGS_MAX: usize = 64;

/// One start of one process.
pub(super) struct Node {
    pub id: NodeId,
    pub name: String,
    slot: usize,
    world: Arc<World>,
    life: CancellationToken,
    engine: Lock<Option<Engine>>,
    /// The channel for the rings of other processes.
    bell: Lock<Option<mpsc::Sender<Ring>>>,
    is_dead: AtomicBool,
    is_paused: AtomicBool,
    /// Whether it was ever paused beyond its lease: then its commits may be fenced.
    pub was_lost: AtomicBool,
    /// Whether it was asked to stop: then it must start nothing any more.
    pub is_drained: AtomicBool,
    changed: Notify,
    offset_ms: AtomicI64,
}

impl Node {
    /// Starts a process in a free slot.
    pub fn start(world: &Arc<World>, slot: usize) -> Arc<Node> {
        let id = {
            let mut slots = world.slots.lock();
            slots.last += 1;
            NodeId(slots.last)
        };
        let skew = world.options.skew_ms;
        let offset = if world.is_calm() { 0 } else { world.between(0, 2 * skew) as i64 - skew as i64 };
        let node = Arc::new(Node {
            id,
            name: format!("node{}", id.0),
            slot,
            world: world.clone(),
            life: CancellationToken::new(),
            engine: Lock::default(),
            bell: Lock::default(),
            is_dead: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            was_lost: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            changed: Notify::new(),
            offset_ms: AtomicI64::new(offset),
        });
        world.log(&node.name, format_args!("starts, its clock off by {offset} ms"));
        // The caller that opens a store for a process takes the first lease, as the engine expects.
        store::prolong(world, id, LEASE_MS);
        *node.engine.lock() = Some(Engine::start(parts(world, &node)));
        world.slots.lock().live.insert(slot, node.clone());
        node
    }

    pub fn engine(&self) -> Option<Engine> {
        self.engine.lock().clone()
    }

    /// Takes a ring. If too many wait, it is lost.
    fn take_ring(&self, ring: Ring) {
        if let Some(bell) = self.bell.lock().as_ref() {
            let _ = bell.try_send(ring);
        }
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(SeqCst)
    }

    /// Continues once the process runs. Never, if it is dead.
    pub async fn wait_until_running(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_dead() && !self.is_paused.load(SeqCst) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the process has died.
    pub async fn died(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_dead() {
                return;
            }
            changed.await;
        }
    }

    /// Ends all tasks of the process at once.
    pub fn kill(&self, why: &str) {
        if self.is_dead() {
            return;
        }
        self.world.log(&self.name, format_args!("dies {why}"));
        self.world.slots.lock().live.remove(&self.slot);
        self.end();
    }

    fn end(&self) {
        self.is_dead.store(true, SeqCst);
        self.life.cancel();
        *self.engine.lock() = None;
        self.changed.notify_waiters();
    }

    /// Pauses the whole process: what it knows becomes outdated.
    pub fn pause(self: &Arc<Self>, ms: u64) {
        if self.is_dead() || self.is_paused.swap(true, SeqCst) {
            return;
        }
        self.world.log(&self.name, format_args!("is paused for {ms} ms"));
        if ms > LEASE_MS {
            self.was_lost.store(true, SeqCst);
            self.world.saw(Fact::LongPause);
        }
        let node = self.clone();
        tokio::spawn(async move {
            pass_ms(ms).await;
            node.wake();
        });
    }

    pub fn wake(&self) {
        if !self.is_dead() && self.is_paused.swap(false, SeqCst) {
            self.world.log(&self.name, "wakes");
            self.changed.notify_waiters();
        }
    }

    /// Sets its clock off by this much.
    pub fn set_clock(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, SeqCst);
        self.world.log(&self.name, format_args!("has its clock off by {offset_ms} ms"));
    }

    /// The engine reached a crash point: the process may die or pause here.
    fn reach(self: &Arc<Self>, what: &str, kind: &str, when: &str) {
        if self.is_dead() {
            return;
        }
        let options = &self.world.options;
        if self.world.fault(options.crash, 10_000) {
            self.world.saw(Fact::Crash);
            self.kill(&format!("at {what}.{kind}.{when}"));
        } else if self.world.fault(options.pause, 10_000) {
            let ms = self.world.between(500, 3 * LEASE_MS);
            self.pause(ms);
        }
    }
}

fn parts(world: &Arc<World>, node: &Arc<Node>) -> Parts {
    let store = Arc::new(SimStore::new(world, node));
    let watcher = node.clone();
    let (bell, bells) = mpsc::channel(RINGS_MAX);
    *node.bell.lock() = Some(bell);
    Parts {
        store: store.clone(),
        views: store,
        node: node.id,
        models: Arc::new(SimModels::new(world, node)),
        roster: AgentCatalog::new(specs(world), tools::services(), vec![Arc::new(tools::SimTools::new(world, node))]),
        servers: None,
        doorbell: Some(Arc::new(SimBell { world: world.clone(), node: node.clone() })),
        bells: Some(bells),
        notifications: None,
        publisher: Some(Arc::new(SimPublisher::new(world, node))),
        clock: Arc::new(SimClock { node: node.clone() }),
        ids: Arc::new(SimIds { node: node.id, last: AtomicU64::new(0) }),
        crash: CrashPoints::watched(move |what, kind, when| watcher.reach(what, kind, when)),
        settings: settings(world),
        reader: Arc::new(windlass_ports::NoReader),
        meter: Arc::new(windlass_ports::NoMeter),
        life: Some(node.life.clone()),
    }
}

fn settings(world: &World) -> Settings {
    Settings {
        workers_max: world.options.workers_max,
        sweep_ms: 500,
        lease_ms: LEASE_MS,
        // Small, so that passes over many agents take several pages.
        sweep_page: 2,
        iterations_max: world.options.iterations_max,
        call_deadline_ms: tools::DEADLINE_MS,
        model_deadline_ms: 20_000,
        attempts_max: 4,
        backoff_ms: 200,
        backoff_ms_max: 8_000,
        drain_ms: 3_000,
        ..Settings::default()
    }
}

/// The agents. The first one has budgets that its runs can exceed.
fn specs(world: &World) -> BTreeMap<AgentName, AgentSpec> {
    let Some(first) = world.agents.first() else { return BTreeMap::new() };
    let budgets = Budgets {
        iterations: world.options.iterations_max,
        calls: Some(5),
        tokens: Some(150),
        wall_ms: Some(45_000),
        children: None,
        cost: None,
    };
    let spec = AgentSpec {
        policy: PolicyName::Respond,
        model: None,
        instructions: None,
        tools: Vec::new(),
        budgets,
        cost_limit: None,
        budgets_park: world.options.operator,
        ask: false,
        serial: false,
        description: None,
        parameters: None,
        levels: 1,
        tenants: windlass_ports::Tenants::All,
    };
    [(first.agent.clone(), spec)].into()
}

/// A clock that may be wrong.
struct SimClock {
    node: Arc<Node>,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(BEGINNING + self.node.world.elapsed_ms() as i64 + self.node.offset_ms.load(SeqCst))
    }
}

/// Ids in order, different from those of every other process.
struct SimIds {
    node: NodeId,
    last: AtomicU64,
}

impl Ids for SimIds {
    fn fresh(&self) -> Uuid {
        let n = self.last.fetch_add(1, SeqCst) + 1;
        Uuid::from_u128(u128::from(self.node.0) << 64 | u128::from(n))
    }
}

/// A doorbell whose rings may be lost, doubled and late.
struct SimBell {
    world: Arc<World>,
    node: Arc<Node>,
}

impl Doorbell for SimBell {
    fn ring(&self, ring: Ring) {
        if self.node.is_dead() {
            return;
        }
        if self.world.fault(self.world.options.rings_lost, 100) {
            return self.world.saw(Fact::RingLost);
        }
        let is_doubled = self.world.fault(10, 100);
        if is_doubled {
            self.world.saw(Fact::RingDoubled);
        }
        for _ in 0..=u8::from(is_doubled) {
            // Each ring has a delay of its own, so that rings overtake each other.
            let (world, own, ring) = (self.world.clone(), self.node.id, ring.clone());
            let delay = if world.is_calm() { 1 } else { world.between(1, 3_000) };
            tokio::spawn(async move {
                pass_ms(delay).await;
                let others = world.slots.lock().all();
                for other in others.into_iter().filter(|node| node.id != own) {
                    other.take_ring(ring.clone());
                }
            });
        }
    }
}
