//! Measures the durable tool loop through the engine, and the ceiling program in the same execution, and compares the two.
//!
//! `durable [DIR]` prints one JSON line for the ceiling and one for the engine with an in-process tool, in each of `ROUNDS` (3) rounds,
//! because the speed of a shared machine changes from one minute to the next. Then it prints one line for the engine with a claimed tool,
//! and one with the ratios, each the median of its rounds. `durable postgres` does the same on a private PostgreSQL, with a new database
//! for each measurement.

use std::{
    ffi::OsStr,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use windlass_bench::{
    ITERATIONS, Measured, Meter, Place,
    engine::{self, TENANT},
    model_reply, resumed_after_us, round, setting, tool_result,
};
use windlass_engine::{ClaimRequest, Engine, ToolResult};
use windlass_kernel::{AgentKey, EffectClass, RequestedCall, TaskStatus, ToolName};
use windlass_ports::{Executor, Model, ModelEvent, ModelMessage, ModelRequest, ModelStream, OfferedTool, ToolCall, ToolReport};
use windlass_tests::postgres;

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A model that replies immediately: with a call in each of the first iterations, then with the end. It records how long each result took
/// to reach it.
#[derive(Default)]
struct Loop {
    tool: String,
    resumes: Mutex<Vec<u64>>,
}

impl Model for Loop {
    fn call(&self, request: ModelRequest) -> ModelStream {
        if let Some(ModelMessage::ToolResult { output, .. }) = request.messages.last() {
            self.resumes.lock().unwrap_or_else(PoisonError::into_inner).push(resumed_after_us(output));
        }
        let results = request.messages.iter().filter(|message| matches!(message, ModelMessage::ToolResult { .. })).count();
        let mut events = vec![Ok(ModelEvent::Text(model_reply()))];
        if results < ITERATIONS {
            let provider_id = format!("c{results}");
            events.push(Ok(ModelEvent::Call(RequestedCall { provider_id, tool: self.tool.clone(), arguments: "{}".into() })));
        }
        Box::pin(futures_util::stream::iter(events))
    }

    fn provider(&self) -> &str {
        "bench"
    }

    fn concurrency(&self) -> usize {
        usize::MAX
    }
}

/// A tool that does its work in a separate job, as the ceiling program does.
struct Jobs(mpsc::UnboundedSender<oneshot::Sender<String>>);

#[async_trait]
impl Executor for Jobs {
    fn offers(&self) -> Vec<OfferedTool> {
        vec![OfferedTool::plain("job", EffectClass::Read)]
    }

    async fn run(&self, _call: ToolCall) -> ToolReport {
        let (reply, replied) = oneshot::channel();
        let _ = self.0.send(reply);
        let result = replied.await.expect("the tool answers every job");
        ToolReport { status: TaskStatus::Success, result: Bytes::from(format!("\"{result}\"")), after: None, failure: None }
    }
}

/// An engine on its own database, and its model.
#[derive(Clone)]
struct Bench {
    engine: Engine,
    model: Arc<Loop>,
    tool: &'static str,
}

impl Bench {
    fn open(folder: &Path, tool: &'static str) -> Self {
        let (model, jobs) = Self::parts(tool);
        let engine = engine::open(folder, model.clone(), jobs, 10);
        Bench { engine, model, tool }
    }

    async fn connect(url: &str, tool: &'static str) -> Self {
        let (model, jobs) = Self::parts(tool);
        let engine = engine::connect(url, model.clone(), jobs).await;
        Bench { engine, model, tool }
    }

    fn parts(tool: &'static str) -> (Arc<Loop>, Arc<Jobs>) {
        let (jobs, mut taken) = mpsc::unbounded_channel::<oneshot::Sender<String>>();
        tokio::spawn(async move {
            while let Some(reply) = taken.recv().await {
                let _ = reply.send(tool_result());
            }
        });
        (Arc::new(Loop { tool: tool.to_owned(), ..Loop::default() }), Arc::new(Jobs(jobs)))
    }

    /// One run from the request to its last commit, in microseconds.
    async fn run(&self, agent: &AgentKey) -> u64 {
        let began = Instant::now();
        let mut ended = self.engine.watch_settled(agent);
        engine::enqueue(&self.engine, agent, self.tool).await;
        ended.changed().await;
        began.elapsed().as_micros() as u64
    }

    fn take_resumes(&self) -> Vec<u64> {
        std::mem::take(&mut *self.model.resumes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Claims and reports for the tool `claimed`, as a service would.
    async fn serve_claims(self) {
        let tool = ToolName::from("claimed");
        let mut news = self.engine.watch_tool(&TENANT.into(), &tool);
        loop {
            let request = ClaimRequest {
                tenant: TENANT.into(),
                tool: tool.clone(),
                worker: "w".into(),
                max: 64,
                lease_ms: 60_000,
                key: None,
                request: None,
            };
            let calls = self.engine.claim(request).await.expect("the engine gives calls");
            if calls.is_empty() {
                news.changed().await;
            }
            for call in calls {
                let engine = self.engine.clone();
                let result = Bytes::from(format!("\"{}\"", tool_result()));
                let report = ToolResult {
                    agent: call.agent,
                    run: call.run,
                    call: call.call,
                    retry: call.retry,
                    status: TaskStatus::Success,
                    result,
                    after: None,
                    source: None,
                    key: None,
                };
                tokio::spawn(async move { engine.report(report).await.expect("the engine takes the result") });
            }
        }
    }

    async fn measure(&self, folder: &Path) -> Measured {
        let agent = |n: usize| engine::agent(&format!("agent-{n}"));
        for _ in 0..20 {
            self.run(&agent(0)).await;
        }
        self.take_resumes();
        let (meter, began, mut alone_us) = (Meter::start(folder), Instant::now(), Vec::new());
        while began.elapsed().as_secs() < setting("SECS1", 5) {
            alone_us.push(self.run(&agent(0)).await);
        }
        let alone = meter.stop();
        let resume_alone_us = self.take_resumes();
        let concurrency = setting("CONC", 64) as usize;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let drivers: Vec<_> = (0..concurrency)
            .map(|n| {
                let (bench, stop, done, agent) = (self.clone(), stop.clone(), done.clone(), agent(n));
                tokio::spawn(async move {
                    while !stop.load(Relaxed) {
                        bench.run(&agent).await;
                        done.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.take_resumes();
        let (before, meter) = (done.load(Relaxed), Meter::start(folder));
        tokio::time::sleep(Duration::from_secs(setting("SECS", 10))).await;
        let runs = done.load(Relaxed) - before;
        let busy = meter.stop();
        let resume_busy_us = self.take_resumes();
        stop.store(true, Relaxed);
        for driver in drivers {
            driver.await.expect("a driver ends");
        }
        Measured { concurrency, runs, busy, alone_us, alone, resume_alone_us, resume_busy_us }
    }
}

/// Runs the ceiling program beside this one and reads its line.
fn ceiling(place: &OsStr) -> Map<String, Value> {
    let program = std::env::current_exe().expect("this program has a path").with_file_name("ceiling");
    let out = Command::new(program).arg(place).output().expect("the ceiling program runs");
    let line = String::from_utf8_lossy(&out.stdout).into_owned();
    println!("{}", line.trim());
    serde_json::from_str(&line).expect("the ceiling prints one JSON object")
}

/// The name of a figure, its value, the direction of its bound (`min`, `max`), and the bound.
type Check = (&'static str, f64, &'static str, f64);

fn number(fields: &Map<String, Value>, name: &str) -> f64 {
    fields.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The checks that hold on both databases.
fn common_checks(ceiling: &Map<String, Value>, engine: &Map<String, Value>) -> Vec<Check> {
    let ratio = |name: &str| number(engine, name) / number(ceiling, name);
    vec![("runs_per_s_of_ceiling", ratio("runs_per_s"), "min", 1.0 / 3.0), ("alone_p50_of_ceiling", ratio("run_c1_p50_ms"), "max", 2.5)]
}

fn sqlite_checks(ceiling: &Map<String, Value>, engine: &Map<String, Value>, claimed: &Map<String, Value>) -> Vec<Check> {
    let ratio = |name: &str| number(engine, name) / number(ceiling, name);
    let mut checks = common_checks(ceiling, engine);
    checks.extend([
        ("cpu_ms_per_run", number(engine, "cpu_ms_per_run"), "max", 0.5),
        ("resume_busy_p99_of_ceiling", ratio("resume_cN_p99_ms"), "max", 3.0),
        ("flushes_in_process", number(engine, "flushes_per_run_c1"), "max", 8.3),
        ("flushes_by_claim", number(claimed, "flushes_per_run_c1"), "max", 11.3),
        ("disk_bytes_per_run", number(engine, "disk_bytes_per_run"), "max", 11_000.0),
    ]);
    checks
}

/// The ratios of engine to ceiling and whether they pass: every round makes the same checks, and the medians are judged.
fn verdict(rounds: &[Vec<Check>]) -> Value {
    let mut fields = Map::from_iter([("peer".to_owned(), json!("ratios"))]);
    let mut all_hold = true;
    for (index, (name, _, direction, bound)) in rounds[0].iter().copied().enumerate() {
        let mut values: Vec<f64> = rounds.iter().map(|checks| checks[index].1).collect();
        values.sort_by(f64::total_cmp);
        let value = values[values.len() / 2];
        let holds = if direction == "min" { value >= bound } else { value <= bound };
        all_hold &= holds;
        let rounded: Vec<f64> = values.iter().map(|value| round(*value, 3)).collect();
        fields.insert(name.to_owned(), json!({ "value": round(value, 3), "rounds": rounded, direction: round(bound, 3), "holds": holds }));
    }
    fields.insert("all_hold".to_owned(), json!(all_hold));
    Value::Object(fields)
}

/// Measures each variant on a database created immediately before, so that the planner has no statistics of an earlier one.
async fn on_postgres() {
    let server = postgres::Server::shared();
    let mut rounds = Vec::new();
    for _ in 0..setting("ROUNDS", 3) {
        let (below, beside) = (server.database_alone().await, server.database_alone().await);
        let ceiling_fields = ceiling(below.url.as_ref());
        let bench = Bench::connect(&beside.url, "job").await;
        let engine_fields = bench.measure(Path::new("")).await.fields("windlass", "postgres/in-process tool");
        println!("{}", Value::Object(engine_fields.clone()));
        rounds.push(common_checks(&ceiling_fields, &engine_fields));
    }
    println!("{}", verdict(&rounds));
}

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("postgres") {
        return on_postgres().await;
    }
    let place = Place::from_arguments();
    let mut rounds = Vec::new();
    for nth in 1..=setting("ROUNDS", 3) {
        let ceiling_fields = ceiling(place.below(&format!("ceiling-{nth}")).join("ceiling.db").as_ref());
        let in_process = place.below(&format!("in-process-{nth}"));
        let engine_fields = Bench::open(&in_process, "job").measure(&in_process).await.fields("windlass", "sqlite/in-process tool");
        println!("{}", Value::Object(engine_fields.clone()));
        rounds.push((ceiling_fields, engine_fields));
    }
    let by_claim = place.below("by-claim");
    let bench = Bench::open(&by_claim, "claimed");
    tokio::spawn(bench.clone().serve_claims());
    let claimed_fields = bench.measure(&by_claim).await.fields("windlass", "sqlite/tool by claim");
    println!("{}", Value::Object(claimed_fields.clone()));
    let rounds: Vec<_> = rounds.iter().map(|(ceiling, engine)| sqlite_checks(ceiling, engine, &claimed_fields)).collect();
    println!("{}", verdict(&rounds));
}
