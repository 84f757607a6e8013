//! One run of 500 iterations with a 1 KB result each: how much it stores per byte of content, and how the cost of reading its context
//! grows.

use std::{path::Path, sync::Arc, time::Instant};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use windlass_bench::{Place, engine, model_reply, round};
use windlass_engine::Engine;
use windlass_kernel::{AgentKey, BoxRange, EffectClass, HeadStatus, RequestedCall, RunId, TaskStatus};
use windlass_ports::{Executor, Model, ModelEvent, ModelMessage, ModelRequest, ModelStream, OfferedTool, ToolCall, ToolReport};
use windlass_store::{SqliteStore, StoreOptions};

/// A model that calls its tool in every iteration but the last.
struct LongRun(usize);

impl Model for LongRun {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let results = request.messages.iter().filter(|message| matches!(message, ModelMessage::ToolResult { .. })).count();
        let mut events = vec![Ok(ModelEvent::Text(model_reply()))];
        if results + 1 < self.0 {
            events.push(Ok(ModelEvent::Call(RequestedCall {
                provider_id: format!("c{results}"),
                tool: "job".into(),
                arguments: "{}".into(),
            })));
        }
        Box::pin(futures_util::stream::iter(events))
    }

    fn provider(&self) -> &str {
        "bench"
    }

    fn concurrency(&self) -> usize {
        1
    }
}

/// A tool that returns 1 KB immediately.
struct Kilobyte;

#[async_trait]
impl Executor for Kilobyte {
    fn offers(&self) -> Vec<OfferedTool> {
        vec![OfferedTool::plain("job", EffectClass::Read)]
    }

    async fn run(&self, call: ToolCall) -> ToolReport {
        let result = format!("\"{:08}{}\"", call.key.call.0, "t".repeat(1016));
        ToolReport { status: TaskStatus::Success, result: Bytes::from(result), after: None, failure: None }
    }
}

/// Drives one run with this number of iterations to its end.
async fn drive(folder: &Path, iterations: usize) -> (Engine, AgentKey, RunId) {
    std::fs::create_dir_all(folder).expect("a folder for the data");
    let engine = engine::open(folder, Arc::new(LongRun(iterations)), Arc::new(Kilobyte), iterations as u32);
    let agent = engine::agent("long");
    let mut watch = engine.watch_agent(&agent);
    let run = engine::enqueue(&engine, &agent, "job").await;
    while engine.views().head(&agent).await.expect("the store can be read").is_none_or(|head| head.status != HeadStatus::Idle) {
        watch.changed().await;
    }
    (engine, agent, run)
}

/// The best of many measurements of reading a run's whole context, in nanoseconds per item.
async fn read_ns(engine: &Engine, agent: &AgentKey, range: BoxRange) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let began = Instant::now();
        let items = engine.views().range_items(&agent.tenant, range).await.expect("the context can be read");
        best = best.min(began.elapsed().as_nanos() as f64 / items.len() as f64);
    }
    best
}

/// The bytes that the rows of the tables take, each row counted once, and the part of them that is content. Pages, free space and indexes
/// are not included.
fn row_bytes(db: &rusqlite::Connection) -> rusqlite::Result<(i64, i64)> {
    let tables = "SELECT sum(payload) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE type = 'table')";
    let rows = db.query_row(tables, [], |row| row.get(0))?;
    let content = db.query_row("SELECT sum(octet_length(content)) FROM items", [], |row| row.get(0))?;
    Ok((rows, content))
}

/// The size of a database after a checkpoint of its WAL.
fn settled_bytes(folder: &Path) -> (rusqlite::Connection, u64) {
    let file = folder.join("windlass.db");
    let db = rusqlite::Connection::open(&file).expect("the database opens");
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("the log can be folded back");
    (db, std::fs::metadata(&file).expect("the database is there").len())
}

#[tokio::main]
async fn main() {
    let place = Place::from_arguments();
    let folder = place.path();
    let mut per_item = Vec::new();
    for iterations in [50, 500] {
        let below = folder.join(iterations.to_string());
        let (engine, agent, run) = drive(&below, iterations).await;
        let view = engine.views().run(&agent.tenant, run).await.expect("the store can be read").expect("the run is there");
        assert_eq!(view.state.iteration as usize, iterations, "every iteration was run");
        per_item.push(read_ns(&engine, &agent, view.state.output).await);
        engine.drain().await;
    }
    let empty = folder.join("empty");
    drop(SqliteStore::open(empty.join("windlass.db"), StoreOptions::default()).expect("a new database opens"));
    let (_, empty_bytes) = settled_bytes(&empty);
    let (db, all_bytes) = settled_bytes(&folder.join("500"));
    let stored = all_bytes - empty_bytes;
    let (rows, content) = row_bytes(&db).expect("the database can be read");
    let (of_rows, growth) = (stored as f64 / rows as f64, per_item[1] / per_item[0]);
    println!(
        "{}",
        json!({
            "peer": "laps", "laps": 500, "stored_bytes": stored, "unique_bytes": rows, "content_bytes": content,
            "stored_of_unique": { "value": round(of_rows, 3), "max": 1.3, "holds": of_rows <= 1.3 },
            "stored_of_content": round(stored as f64 / content as f64, 3),
            "read_ns_per_item": { "at_50": round(per_item[0], 0), "at_500": round(per_item[1], 0) },
            "read_growth": { "value": round(growth, 2), "max": 2.0, "holds": growth <= 2.0 },
        })
    );
}
