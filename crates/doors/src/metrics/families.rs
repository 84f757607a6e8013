//! The metric families of a server, with their names, labels and meaning. `docs/metrics.md` lists the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Instant,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::labels::{Label, Labels};

type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Paths that can become label values. The router has fewer.
const ROUTES_MAX: usize = 256;

pub(super) struct Families {
    pub registry: Registry,
    pub runs: Family<Labels<1>, Gauge>,
    pub runs_ended: Family<Labels<3>, Counter>,
    pub run_seconds: Histograms<2>,
    pub queue_wait_seconds: Histograms<1>,
    pub iterations: Family<Labels<1>, Counter>,
    pub takeovers: Family<Labels<1>, Counter>,
    pub fenced: Counter,
    pub calls_parked: Family<Labels<1>, Counter>,
    pub model_call_seconds: Histograms<1>,
    pub model_first_token_seconds: Histograms<1>,
    pub model_failures: Family<Labels<2>, Counter>,
    pub model_waiting: Family<Labels<1>, Gauge>,
    pub model_tokens: Family<Labels<3>, Counter>,
    pub tool_call_seconds: Histograms<2>,
    pub tool_calls: Family<Labels<3>, Counter>,
    pub calls_open: Family<Labels<1>, Gauge>,
    pub commit_seconds: Histogram,
    pub commit_group_size: Histogram,
    pub store_bytes: Gauge,
    pub outbox_pending: Gauge,
    pub interrupts: Family<Labels<1>, Gauge>,
    pub oldest_interrupt_age_seconds: Gauge,
    pub sweep_lag_seconds: Gauge<f64, AtomicU64>,
    pub store_errors: Family<Labels<1>, Counter>,
    pub streams: Family<Labels<1>, Gauge>,
    pub over_quota: Family<Labels<1>, Counter>,
    pub http_request_seconds: Histograms<3>,
    began: Instant,
    /// When the last pass of the sweep finished, in milliseconds after `began`.
    swept_ms: AtomicI64,
    routes: RwLock<BTreeMap<Arc<str>, Label>>,
}

impl Families {
    pub fn new() -> Self {
        let mut families = Families {
            registry: Registry::with_prefix("windlass"),
            runs: Family::default(),
            runs_ended: Family::default(),
            run_seconds: Family::new_with_constructor(long),
            queue_wait_seconds: Family::new_with_constructor(long),
            iterations: Family::default(),
            takeovers: Family::default(),
            fenced: Counter::default(),
            calls_parked: Family::default(),
            model_call_seconds: Family::new_with_constructor(long),
            model_first_token_seconds: Family::new_with_constructor(long),
            model_failures: Family::default(),
            model_waiting: Family::default(),
            model_tokens: Family::default(),
            tool_call_seconds: Family::new_with_constructor(long),
            tool_calls: Family::default(),
            calls_open: Family::default(),
            commit_seconds: short(),
            commit_group_size: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
            store_bytes: Gauge::default(),
            outbox_pending: Gauge::default(),
            interrupts: Family::default(),
            oldest_interrupt_age_seconds: Gauge::default(),
            sweep_lag_seconds: Gauge::default(),
            store_errors: Family::default(),
            streams: Family::default(),
            over_quota: Family::default(),
            http_request_seconds: Family::new_with_constructor(short),
            began: Instant::now(),
            swept_ms: AtomicI64::new(0),
            routes: RwLock::default(),
        };
        let mut registry = std::mem::take(&mut families.registry);
        families.register(&mut registry);
        families.registry = registry;
        families
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("runs", "Runs that have not ended", self.runs.clone());
        registry.register("runs_ended", "Runs that ended", self.runs_ended.clone());
        registry.register("run_seconds", "Time from the first iteration of a run to its end", self.run_seconds.clone());
        registry.register(
            "queue_wait_seconds",
            "Time from the acceptance of a run to its first iteration",
            self.queue_wait_seconds.clone(),
        );
        registry.register("iterations", "Iterations that began", self.iterations.clone());
        registry.register("takeovers", "Runs taken over from lost servers", self.takeovers.clone());
        registry.register("fenced", "Commits refused because another server had moved the run on", self.fenced.clone());
        registry.register("calls_parked", "Calls parked because their outcome is unknown", self.calls_parked.clone());
        registry.register("model_call_seconds", "Time of model calls", self.model_call_seconds.clone());
        registry.register("model_first_token_seconds", "Time to the first token of model calls", self.model_first_token_seconds.clone());
        registry.register("model_failures", "Attempts at model calls that failed", self.model_failures.clone());
        registry.register("model_waiting", "Model calls that wait for a permit of their provider", self.model_waiting.clone());
        registry.register("model_tokens", "Tokens as providers reported them", self.model_tokens.clone());
        registry.register("tool_call_seconds", "Time from the request of a tool call to its result", self.tool_call_seconds.clone());
        registry.register("tool_calls", "Tool calls that got a result", self.tool_calls.clone());
        registry.register("calls_open", "Calls that services have to run and that have no result", self.calls_open.clone());
        registry.register("commit_seconds", "Time of group commits, the flush included", self.commit_seconds.clone());
        registry.register("commit_group_size", "Requests in one group commit", self.commit_group_size.clone());
        registry.register("store_bytes", "Size of the database", self.store_bytes.clone());
        registry.register("interrupts", "Interrupts that wait for a person", self.interrupts.clone());
        let age = self.oldest_interrupt_age_seconds.clone();
        registry.register("oldest_interrupt_age_seconds", "Age of the oldest interrupt that waits; 0 if none does", age);
        registry.register("outbox_pending", "Outbox rows that are not published", self.outbox_pending.clone());
        registry.register("sweep_lag_seconds", "Time by which the sweep is late", self.sweep_lag_seconds.clone());
        registry.register("store_errors", "Requests that the store did not execute", self.store_errors.clone());
        registry.register("streams", "Open streams and sockets to clients", self.streams.clone());
        registry.register("over_quota", "Requests refused because their tenant was over a quota", self.over_quota.clone());
        registry.register("http_request_seconds", "Time from a request to the head of its answer", self.http_request_seconds.clone());
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let build: Family<[(&'static str, &'static str); 1], Gauge> = Family::default();
        build.get_or_create(&version).set(1);
        registry.register("build_info", "The version of this server", build);
    }

    /// The label of a route's path, created at its first use.
    pub fn route(&self, path: &str) -> Label {
        if let Some(known) = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(path) {
            return known.clone();
        }
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        if routes.len() >= ROUTES_MAX {
            return Label::OTHER;
        }
        let path: Arc<str> = path.into();
        routes.entry(path.clone()).or_insert(Label::Name(path)).clone()
    }

    /// Records that a pass of the sweep has finished.
    pub fn swept(&self) {
        self.swept_ms.store(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Seconds by which the sweep is late: the time since its last pass, minus the pause between two passes.
    pub fn sweep_lag(&self, pause_ms: u64) -> f64 {
        let passed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX) - self.swept_ms.load(Ordering::Relaxed);
        (passed as f64 - pause_ms as f64).max(0.0) / 1e3
    }
}

/// A histogram for durations from milliseconds to minutes.
fn long() -> Histogram {
    Histogram::new([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0])
}

/// A histogram for durations from microseconds to seconds.
fn short() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0])
}
