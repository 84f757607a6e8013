//! The least a correct engine must do for the durable tool loop, and nothing else: what is left is storage.
//!
//! `ceiling FILE` makes eight ordered durable writes per run: start, 3 × (model reply + tool job), 3 × result, end. The writer
//! takes whatever is waiting into one transaction.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use windlass_bench::{ITERATIONS, Measured, Meter, model_reply, resumed_after_us, setting, tool_result};

/// Writes taken into one transaction.
const GROUP_MAX: usize = 256;

const SCHEMA: &str = "CREATE TABLE runs(id BIGINT PRIMARY KEY, state INT NOT NULL, input TEXT, output TEXT);
CREATE TABLE events(run BIGINT, seq BIGINT, body TEXT, PRIMARY KEY(run, seq));
CREATE TABLE jobs(run BIGINT, seq BIGINT, PRIMARY KEY(run, seq));";

enum Row {
    Start { run: i64, input: String },
    Event { run: i64, seq: i64, body: String },
    Job { run: i64, seq: i64 },
    JobDone { run: i64, seq: i64 },
    End { run: i64, output: String },
}

struct Write {
    rows: Vec<Row>,
    done: oneshot::Sender<()>,
}

fn write_all(path: &Path, mut writes: mpsc::UnboundedReceiver<Write>) -> rusqlite::Result<()> {
    let db = rusqlite::Connection::open(path)?;
    db.execute_batch(&format!("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {SCHEMA}"))?;
    db.set_prepared_statement_cache_capacity(16);
    let mut group = Vec::new();
    while let Some(first) = writes.blocking_recv() {
        group.push(first);
        while group.len() < GROUP_MAX
            && let Ok(next) = writes.try_recv()
        {
            group.push(next);
        }
        db.execute_batch("BEGIN IMMEDIATE")?;
        for row in group.iter().flat_map(|write| &write.rows) {
            match row {
                Row::Start { run, input } => db.prepare_cached("INSERT INTO runs VALUES(?,0,?,NULL)")?.execute((run, input)),
                Row::Event { run, seq, body } => db.prepare_cached("INSERT INTO events VALUES(?,?,?)")?.execute((run, seq, body)),
                Row::Job { run, seq } => db.prepare_cached("INSERT INTO jobs VALUES(?,?)")?.execute((run, seq)),
                Row::JobDone { run, seq } => db.prepare_cached("DELETE FROM jobs WHERE run=? AND seq=?")?.execute((run, seq)),
                Row::End { run, output } => db.prepare_cached("UPDATE runs SET state=1, output=? WHERE id=?")?.execute((output, run)),
            }?;
        }
        db.execute_batch("COMMIT")?;
        for write in group.drain(..) {
            let _ = write.done.send(());
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Ceiling {
    writer: mpsc::UnboundedSender<Write>,
    tools: mpsc::UnboundedSender<oneshot::Sender<String>>,
    ids: Arc<AtomicU64>,
    resumes: Arc<Mutex<Vec<u64>>>,
}

impl Ceiling {
    async fn write(&self, rows: Vec<Row>) {
        let (done, written) = oneshot::channel();
        let _ = self.writer.send(Write { rows, done });
        written.await.expect("the writer lives as long as the program");
    }

    async fn run(&self) -> u64 {
        let began = Instant::now();
        let run = self.ids.fetch_add(1, Relaxed) as i64;
        self.write(vec![Row::Start { run, input: "i".repeat(200) }]).await;
        for lap in 0..ITERATIONS as i64 {
            let seq = 2 * lap;
            self.write(vec![Row::Event { run, seq, body: model_reply() }, Row::Job { run, seq }]).await;
            let (reply, replied) = oneshot::channel();
            let _ = self.tools.send(reply);
            let result = replied.await.expect("the tool answers every job");
            let head = result[..20].to_owned();
            self.write(vec![Row::JobDone { run, seq }, Row::Event { run, seq: seq + 1, body: result }]).await;
            self.resumes.lock().unwrap_or_else(PoisonError::into_inner).push(resumed_after_us(&head));
        }
        self.write(vec![Row::End { run, output: model_reply() }]).await;
        began.elapsed().as_micros() as u64
    }

    fn take_resumes(&self) -> Vec<u64> {
        std::mem::take(&mut *self.resumes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[tokio::main]
async fn main() {
    let path = PathBuf::from(std::env::args().nth(1).expect("usage: ceiling FILE"));
    let data = path.parent().map(Path::to_owned).unwrap_or_default();
    let (writer, writes) = mpsc::unbounded_channel();
    std::thread::spawn(move || write_all(&path, writes).expect("the ceiling's own database takes its writes"));
    let (tools, mut jobs) = mpsc::unbounded_channel::<oneshot::Sender<String>>();
    tokio::spawn(async move {
        while let Some(reply) = jobs.recv().await {
            let _ = reply.send(tool_result());
        }
    });
    let ceiling = Ceiling { writer, tools, ids: Arc::new(AtomicU64::new(1)), resumes: Arc::default() };
    for _ in 0..20 {
        ceiling.run().await;
    }
    ceiling.take_resumes();
    let (meter, began, mut alone_us) = (Meter::start(&data), Instant::now(), Vec::new());
    while began.elapsed().as_secs() < setting("SECS1", 5) {
        alone_us.push(ceiling.run().await);
    }
    let alone = meter.stop();
    let resume_alone_us = ceiling.take_resumes();
    let concurrency = setting("CONC", 64) as usize;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for _ in 0..concurrency {
        let (ceiling, stop, done) = (ceiling.clone(), stop.clone(), done.clone());
        tokio::spawn(async move {
            while !stop.load(Relaxed) {
                ceiling.run().await;
                done.fetch_add(1, Relaxed);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    ceiling.take_resumes();
    let (before, meter) = (done.load(Relaxed), Meter::start(&data));
    tokio::time::sleep(Duration::from_secs(setting("SECS", 10))).await;
    let runs = done.load(Relaxed) - before;
    let busy = meter.stop();
    let resume_busy_us = ceiling.take_resumes();
    stop.store(true, Relaxed);
    let measured = Measured { concurrency, runs, busy, alone_us, alone, resume_alone_us, resume_busy_us };
    println!("{}", serde_json::Value::Object(measured.fields("ceiling", "sqlite/8 writes/group")));
}
