//! The minimum of work that a correct engine must do for the durable tool loop. Everything but storage is left out.
//!
//! `ceiling FILE` and `ceiling postgres://…` make eight ordered durable writes per run: start, 3 × (model reply + tool job), 3 × result,
//! end. A writer puts all waiting writes into one transaction. On PostgreSQL there are two writers, and each transaction is one statement.

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

/// The largest number of writes in one transaction.
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

const WRITE_ARRAYS: &str = "
WITH a AS (INSERT INTO runs SELECT id, 0, input, NULL FROM unnest($1::bigint[], $2::text[]) AS t(id, input)),
     b AS (INSERT INTO events SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::text[])),
     c AS (INSERT INTO jobs SELECT * FROM unnest($6::bigint[], $7::bigint[])),
     d AS (DELETE FROM jobs AS j USING unnest($8::bigint[], $9::bigint[]) AS t(run, seq) WHERE j.run = t.run AND j.seq = t.seq)
UPDATE runs AS r SET state = 1, output = t.output FROM unnest($10::bigint[], $11::text[]) AS t(id, output) WHERE r.id = t.id";

type Waiting = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Write>>>;

async fn take_waiting(waiting: &Waiting) -> Vec<Write> {
    let mut writes = waiting.lock().await;
    let Some(first) = writes.recv().await else { return Vec::new() };
    let mut group = vec![first];
    while group.len() < GROUP_MAX
        && let Ok(next) = writes.try_recv()
    {
        group.push(next);
    }
    group
}

/// A writer with a connection of its own. Each group is one statement over arrays, so it costs one round trip and one commit.
async fn write_arrays(url: String, waiting: Waiting) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let statement = client.prepare(WRITE_ARRAYS).await?;
    loop {
        let group = take_waiting(&waiting).await;
        if group.is_empty() {
            return Ok(());
        }
        let (mut starts, mut events, mut jobs) = ((vec![], vec![]), (vec![], vec![], vec![]), (vec![], vec![]));
        let (mut jobs_done, mut ends) = ((vec![], vec![]), (vec![], vec![]));
        for row in group.iter().flat_map(|write| &write.rows) {
            match row {
                Row::Start { run, input } => {
                    starts.0.push(*run);
                    starts.1.push(input.as_str());
                }
                Row::Event { run, seq, body } => {
                    events.0.push(*run);
                    events.1.push(*seq);
                    events.2.push(body.as_str());
                }
                Row::Job { run, seq } => {
                    jobs.0.push(*run);
                    jobs.1.push(*seq);
                }
                Row::JobDone { run, seq } => {
                    jobs_done.0.push(*run);
                    jobs_done.1.push(*seq);
                }
                Row::End { run, output } => {
                    ends.0.push(*run);
                    ends.1.push(output.as_str());
                }
            }
        }
        let arrays: [&(dyn tokio_postgres::types::ToSql + Sync); 11] =
            [&starts.0, &starts.1, &events.0, &events.1, &events.2, &jobs.0, &jobs.1, &jobs_done.0, &jobs_done.1, &ends.0, &ends.1];
        client.execute(&statement, &arrays).await?;
        for write in group {
            let _ = write.done.send(());
        }
    }
}

async fn make_tables(url: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(SCHEMA).await
}

/// Starts the writers for this database. Returns the folder whose bytes are counted.
async fn start_writers(place: &str, writes: mpsc::UnboundedReceiver<Write>) -> PathBuf {
    if !place.starts_with("postgres") {
        let path = PathBuf::from(place);
        let data = path.parent().map(Path::to_owned).unwrap_or_default();
        std::thread::spawn(move || write_all(&path, writes).expect("the ceiling's own database takes its writes"));
        return data;
    }
    make_tables(place).await.expect("the ceiling's own tables can be made");
    let waiting = Arc::new(tokio::sync::Mutex::new(writes));
    for _ in 0..2 {
        let (url, waiting) = (place.to_owned(), waiting.clone());
        tokio::spawn(async move { write_arrays(url, waiting).await.expect("the ceiling's own database takes its writes") });
    }
    PathBuf::from(std::env::args().nth(2).unwrap_or_default())
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
        for iteration in 0..ITERATIONS as i64 {
            let seq = 2 * iteration;
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
    let place = std::env::args().nth(1).expect("usage: ceiling FILE | ceiling postgres://… [DATA]");
    let (writer, writes) = mpsc::unbounded_channel();
    let data = start_writers(&place, writes).await;
    let variant = if place.starts_with("postgres") { "postgres/8 writes/group" } else { "sqlite/8 writes/group" };
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
    println!("{}", serde_json::Value::Object(measured.fields("ceiling", variant)));
}
