//! The real engine in a world that is derived from a seed: virtual time, a store that loses what was not flushed, processes that crash,
//! pause and have wrong clocks, a provider and services that fail, and clients that retry.
//!
//! No promise may break while faults last. Then the faults end, and all work must end in bounded time. Everything runs in one thread on
//! paused time with one source of random numbers, so that a seed determines the run, byte for byte.

mod checks;
mod clients;
mod final_checks;
mod ledger;
mod model;
mod nemesis;
mod node;
mod operator;
mod options;
mod planted;
mod publisher;
mod record;
mod rng;
mod run_seeds;
mod services;
mod store;
mod tools;
mod views;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use windlass_kernel::AgentKey;
use windlass_store::{MemoryStore, StoreOptions};

pub use options::Options;
pub use planted::PlantedBug;
pub use record::{Fact, FactCounts, Violation};
pub use run_seeds::{Tally, run_seeds};

use checks::Checks;
use ledger::Ledger;
use node::Slots;
use record::Record;
use rng::Rng;

/// The lease of a process.
const LEASE_MS: u64 = 10_000;
/// How long all work may take to end after the last fault: deadlines, leases and wrong clocks included.
const CALM_MS_MAX: u64 = 900_000;

/// The outcome of one seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The options that were derived from it.
    pub options: Options,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// The facts that were seen.
    pub facts: FactCounts,
    /// The runs that were made.
    pub runs: usize,
    /// The faults that were injected.
    pub faults: u64,
    /// A hash over everything that happened.
    pub hash: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(violation) = &self.violation else {
            return write!(f, "seed {}: {} runs, {} faults, nothing broken", self.seed, self.runs, self.faults);
        };
        writeln!(f, "seed {}: {} is broken: {}", self.seed, violation.promise, violation.text)?;
        writeln!(f, "{:?}", self.options)?;
        violation.story.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Runs one seed, with or without a planted bug.
pub fn simulate(seed: u64, planted: Option<PlantedBug>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing that could be missing");
    runtime.block_on(run_world(seed, planted))
}

async fn run_world(seed: u64, planted: Option<PlantedBug>) -> Outcome {
    let world = Arc::new(World::new(seed, planted));
    tokio::select! {
        biased;
        () = world.broken.notified() => {}
        () = unfold(&world) => {}
    }
    world.slots.lock().kill_all();
    let (runs, record) = (world.checks.lock().runs(), world.record());
    Outcome {
        seed,
        options: world.options.clone(),
        violation: record.violation.clone(),
        facts: record.facts.clone(),
        runs,
        faults: record.faults,
        hash: record.hash(),
    }
}

/// The time of faults, then a time without faults, then the last checks.
async fn unfold(world: &Arc<World>) {
    nemesis::raise_nodes(world);
    clients::begin(world);
    services::begin(world);
    operator::begin(world);
    nemesis::inject_faults(world).await;
    world.is_calm.store(true, SeqCst);
    world.log("world", "the faults are over");
    nemesis::heal(world);
    final_checks::await_end(world).await;
}

/// A lock that stays usable after a panic in another task: that panic is what the test reports.
#[derive(Default)]
struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that outlives a process.
struct World {
    options: Options,
    planted: Option<PlantedBug>,
    data: Arc<MemoryStore>,
    began: Instant,
    agents: Vec<AgentKey>,
    rng: Lock<Rng>,
    record: Lock<Record>,
    slots: Lock<Slots>,
    ledger: Lock<Ledger>,
    checks: Lock<Checks>,
    /// Counts power losses. A write that was not flushed before the last one is lost.
    power: AtomicU64,
    is_calm: AtomicBool,
    /// Notified when a promise was broken, which ends the world.
    broken: Notify,
}

impl World {
    fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let options = Options::of(seed);
        let tenants = ["acme", "umbrella"];
        let agents = (0..options.agents).map(|n| AgentKey { tenant: tenants[n % 2].into(), agent: format!("agent{n}").as_str().into() });
        World {
            agents: agents.collect(),
            options,
            planted,
            data: Arc::new(MemoryStore::new(StoreOptions { publish: true, usage: false })),
            began: Instant::now(),
            rng: Lock(Mutex::new(Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1)))),
            record: Lock::default(),
            slots: Lock::default(),
            ledger: Lock::default(),
            checks: Lock::default(),
            power: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
            broken: Notify::new(),
        }
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(SeqCst)
    }

    fn has(&self, planted: PlantedBug) -> bool {
        self.planted == Some(planted)
    }

    fn between(&self, low: u64, high: u64) -> u64 {
        self.rng.lock().between(low, high)
    }

    fn chance(&self, n: u64, of: u64) -> bool {
        self.rng.lock().chance(n, of)
    }

    /// Random, but always false once the time of faults is over.
    fn fault(&self, n: u64, of: u64) -> bool {
        let is_due = !self.is_calm() && self.chance(n, of);
        if is_due {
            self.record.lock().faults += 1;
        }
        is_due
    }

    fn pick<T: Copy>(&self, from: &[T]) -> T {
        self.rng.lock().pick(from)
    }

    fn elapsed_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn log(&self, who: &str, what: impl fmt::Display) {
        let line = format!("{:>8.3} {who}: {what}", self.elapsed_ms() as f64 / 1000.0);
        self.record.lock().log(line);
    }

    fn saw(&self, fact: Fact) {
        self.record.lock().saw(fact);
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    /// Records a broken promise and ends this world.
    fn break_promise(&self, promise: &'static str, text: impl fmt::Display) {
        self.record.lock().break_promise(promise, text.to_string());
        self.broken.notify_one();
    }
}

/// Lets virtual time pass.
async fn pass_ms(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
