//! Many concurrent streams: how long a delta waits for the flush before the reader gets it, and what the flushes cost.
//!
//! `streams [DIR]` follows `STREAMS` runs (1,000) that stream `RATE` deltas per second (50), each with a reader, and prints one JSON line
//! about `SECS` seconds (30) in which all of them stream. Every delta contains the time at which the model sent it.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use windlass_bench::{
    Meter, Place,
    engine::{self, TENANT},
    now_us, percentile, round, setting, stat_cpu_s,
};
use windlass_engine::{Engine, Respond, Responded};
use windlass_kernel::{Budgets, ItemKind, Manifest, TaskStatus, content};
use windlass_ports::{Executor, Lineage, Model, ModelEvent, ModelRequest, ModelStream, OfferedTool, ToolCall, ToolReport};

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A model that sends deltas at a constant rate. The starts of the runs are spread, so that no two begin at the same moment.
struct StreamingModel {
    deltas: u64,
    pause: Duration,
    begun: AtomicU64,
    streams: u64,
}

impl Model for StreamingModel {
    fn call(&self, _request: ModelRequest) -> ModelStream {
        let shift = self.pause.mul_f64(self.begun.fetch_add(1, Relaxed) as f64 / self.streams as f64);
        let mut beat = tokio::time::interval_at(Instant::now() + shift, self.pause);
        beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let deltas = stream::unfold((beat, self.deltas), |(mut beat, left)| async move {
            if left == 0 {
                return None;
            }
            beat.tick().await;
            Some((Ok(ModelEvent::Text(format!("{:016x} ", now_us()))), (beat, left - 1)))
        });
        deltas.boxed()
    }

    fn provider(&self) -> &str {
        "bench"
    }

    fn concurrency(&self) -> usize {
        usize::MAX
    }
}

/// An executor without tools.
struct Nothing;

#[async_trait]
impl Executor for Nothing {
    fn offers(&self) -> Vec<OfferedTool> {
        Vec::new()
    }

    async fn run(&self, _call: ToolCall) -> ToolReport {
        ToolReport { status: TaskStatus::Failed, result: "\"no tools\"".into(), after: None, failure: None }
    }
}

/// Seconds of streaming before and after the measured interval. Starting a thousand runs takes about one second.
const MARGIN_S: u64 = 2;

async fn begin(engine: &Engine) -> Responded {
    let budgets = Budgets { iterations: 1, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
    let request = Respond {
        tenant: TENANT.into(),
        agent: None,
        serial: false,
        manifest: Manifest { announced: true, ..Manifest::plain("bench", budgets) },
        input: vec![(ItemKind::Instruction, content::encode(&content::Instruction::Text("speak".into())))],
        parent: None,
        conversation: None,
        left: None,
        note: "{}".into(),
        erase_ms: None,
        dedupe: None,
        request: None,
        lineage: Lineage::default(),
    };
    engine.respond(request).await.expect("the engine takes the run")
}

/// The time at which the model sent a delta, and the delay until a reader had it.
type Seen = (u64, u64);

/// Follows a run as a door does. The final answer also contains the last deltas.
async fn follow(engine: Engine, taken: Responded) -> Vec<Seen> {
    let mut news = engine.watch_agent(&taken.agent).from_before();
    let mut rests = taken.begun.expect("no key was used").rests;
    let mut seen = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = rests.changed() => return seen,
            () = news.changed() => {}
        }
        let deltas = engine.streamed_chunks(&taken.agent.tenant, taken.run, 0, seen.len()).await.expect("words can be read").pieces;
        let now = now_us();
        let sent_at = deltas.iter().filter_map(|word| u64::from_str_radix(word.trim(), 16).ok());
        seen.extend(sent_at.map(|sent_at| (sent_at, now.saturating_sub(sent_at))));
    }
}

/// Measures how late this machine wakes a thread that sleeps for a millisecond. No other delay here can be shorter.
fn wakes_late(stop: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<u64>> {
    let nap = Duration::from_millis(1);
    std::thread::spawn(move || {
        let mut late = Vec::new();
        while !stop.load(Relaxed) {
            let began = Instant::now();
            std::thread::sleep(nap);
            late.push(began.elapsed().saturating_sub(nap).as_micros() as u64);
        }
        late
    })
}

/// Processor seconds of the writer thread.
fn writer_cpu_s() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter(|stat| stat.contains("(windlass-writer)")).map(|stat| stat_cpu_s(&stat)).sum()
}

async fn measure(folder: &Path) -> Value {
    let (streams, rate, seconds) = (setting("STREAMS", 1_000), setting("RATE", 50), setting("SECS", 30));
    let pause = Duration::from_secs_f64(1.0 / rate as f64);
    let model = StreamingModel { deltas: rate * (seconds + 2 * MARGIN_S), pause, begun: AtomicU64::new(0), streams };
    let engine = engine::open(folder, Arc::new(model), Arc::new(Nothing), 1);
    let mut readers = Vec::new();
    for _ in 0..streams {
        let taken = begin(&engine).await;
        readers.push(tokio::spawn(follow(engine.clone(), taken)));
    }
    tokio::time::sleep(Duration::from_secs(MARGIN_S)).await;
    let (meter, writer, began) = (Meter::start(folder), writer_cpu_s(), now_us());
    let stop = Arc::new(AtomicBool::new(false));
    let sleeper = wakes_late(stop.clone());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Relaxed);
    let mut late = sleeper.join().expect("the sleeper ends");
    let (used, writer, ended) = (meter.stop(), writer_cpu_s() - writer, now_us());
    let mut waits = Vec::new();
    for reader in readers {
        let seen = reader.await.expect("a reader ends");
        waits.extend(seen.into_iter().filter(|(sent_at, _)| (began..ended).contains(sent_at)).map(|(_, wait)| wait));
    }
    let (p50, p99) = (percentile(&mut waits, 0.50), percentile(&mut waits, 0.99));
    let (written, writer) = (used.written as f64 / used.seconds / 1e6, writer / used.seconds);
    json!({
        "peer": "windlass", "variant": "sqlite/streams", "streams": streams, "words_per_s": rate, "seconds": round(used.seconds, 1),
        "words": waits.len(),
        "machine_wakes_late_p99_ms": round(percentile(&mut late, 0.99), 2), "announce_p50_ms": round(p50, 2), "announce_p99_ms": { "value": round(p99, 2), "max": 10.0, "holds": p99 <= 10.0 },
        "device_mb_per_s": { "value": round(written, 1), "max": 60.0, "holds": written <= 60.0 },
        "writer_cores": { "value": round(writer, 3), "max": 0.25, "holds": writer <= 0.25 },
        "flushes_per_s": round(used.flushes as f64 / used.seconds, 0), "cores": round(used.cores, 2), "cores_others": round(used.cores_others, 2), "cores_stolen": round(used.cores_stolen, 2),
    })
}

#[tokio::main]
async fn main() {
    println!("{}", measure(Place::from_arguments().path()).await);
}
