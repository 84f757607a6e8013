//! Connections that break in the middle, and servers that crash.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::{sync::MutexGuard, task::JoinSet};

use super::*;

const AGENTS: u64 = 8;
const RUNS: u64 = 10;

/// A server that tests may break, one test at a time.
async fn fragile() -> MutexGuard<'static, Server> {
    static FRAGILE: std::sync::OnceLock<tokio::sync::Mutex<Server>> = std::sync::OnceLock::new();
    FRAGILE.get_or_init(|| tokio::sync::Mutex::new(Server::start())).lock().await
}

/// Agents that make run after run.
fn work(store: &Arc<dyn Full>) -> JoinSet<()> {
    let mut agents = JoinSet::new();
    for number in 0..AGENTS {
        let store = Arc::clone(store);
        agents.spawn(async move {
            let kit = Kit::starting_at(&store, number * 1_000_000);
            for _ in 0..RUNS {
                one_run(&store, &kit, &agent(&format!("agent {number}"))).await;
            }
        });
    }
    agents
}

/// Ends connections of the store, whatever they are doing, until `is_over` is set. Returns how many.
async fn kill_connections(database: &Database, is_over: Arc<AtomicBool>) -> i64 {
    let client = database.client().await;
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'windlass'";
    let mut killed = 0;
    let mut pause = 50;
    while !is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        pause = 50 + pause * 7 % 241;
        killed += client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    }
    killed
}

/// Every batch of deltas is sent until there is an answer, and is stored once.
#[tokio::test]
async fn deltas_are_stored_once_over_lost_connections() {
    let database = Server::shared().database_alone().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let mut streams = JoinSet::new();
    for number in 0..AGENTS {
        let agent = agent(&format!("agent {number}"));
        let (run, _) = kit.begin(&agent, START).await;
        let store = Arc::clone(&store);
        streams.spawn(async move {
            let pieces: Vec<String> = (0..200).map(|number| format!("{number} ")).collect();
            for (first, piece) in (0..).zip(&pieces) {
                again(|| store.append_deltas(delta_batch(&agent, run, 1, first, &[piece]))).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let streamed = again(|| store.streamed_text(&agent.tenant, run)).await;
            assert_eq!(streamed.text, pieces.concat());
            assert_eq!(streamed.chunks.0.len(), pieces.len());
        });
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let killer = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move { kill_connections(&database, is_over).await }
    });
    while let Some(done) = streams.join_next().await {
        done.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(killer.await.unwrap() > 0);
}

#[tokio::test]
async fn lost_connections_lose_nothing_and_repeat_nothing() {
    let database = Server::shared().database_alone().await;
    let store = node(&database).await;
    let mut agents = work(&store);
    let is_over = Arc::new(AtomicBool::new(false));
    let killer = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let killed = kill_connections(&database, is_over).await;
            (killed, database)
        }
    });
    while let Some(done) = agents.join_next().await {
        done.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let (killed, database) = killer.await.unwrap();
    assert!(killed > 3, "{killed} connections were lost");
    check_whole(&database, (AGENTS * RUNS) as i64).await;
}

#[tokio::test]
async fn a_server_that_falls_and_rises_has_kept_everything() {
    let server = fragile().await;
    let database = server.database().await;
    let store = node(&database).await;
    let mut agents = work(&store);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.cut();
        server.begin();
    }
    while let Some(done) = agents.join_next().await {
        done.unwrap();
    }
    check_whole(&database, (AGENTS * RUNS) as i64).await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_until_it_returns() {
    let server = fragile().await;
    let database = server.database().await;
    let store = node(&database).await;
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    let (held, commit) = kit.prepare(&agent, final_reply("done"), START).await;
    server.cut();
    let (read, written, claimed) =
        tokio::join!(store.head(&agent), store.commit(held.clone(), commit.clone()), store.claim_calls(kit.claim(LOOKUP, "w", 1, START)));
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    assert!(matches!(claimed, Err(StoreError::Unavailable(_))), "{claimed:?}");
    server.begin();
    again(|| store.commit(held.clone(), commit.clone())).await;
    assert!(again(|| store.load(&agent)).await.unwrap().run.is_none());
}

#[tokio::test]
async fn a_server_that_does_not_flush_is_refused() {
    let server = fragile().await;
    let database = server.database().await;
    let client = database.client().await;
    for (change, setting) in [("fsync = off", "fsync"), ("synchronous_commit = off", "none")] {
        client.batch_execute(&format!("ALTER SYSTEM SET {change}")).await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let opened = PostgresStore::open(&database.url, StoreOptions::default()).await;
        client.batch_execute("ALTER SYSTEM RESET ALL").await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        match opened {
            Err(error) => assert!(error.to_string().contains(setting), "{error}"),
            // Settings that a session can change for itself are changed by the store's sessions.
            Ok(_) => assert_eq!(setting, "none"),
        }
    }
}

#[tokio::test]
async fn a_lock_from_outside_is_waited_for() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    kit.begin(&agent("a"), START).await;
    kit.begin(&agent("b"), START).await;
    let outside = database.client().await;
    outside.batch_execute("BEGIN; SELECT * FROM heads WHERE agent = 'a' FOR UPDATE").await.unwrap();
    let (held, commit) = kit.prepare(&agent("a"), final_reply("done"), START).await;
    let committing = tokio::spawn({
        let store = store.clone();
        async move { store.commit(held, commit).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!committing.is_finished());
    outside.batch_execute("COMMIT").await.unwrap();
    committing.await.unwrap().unwrap();
}

#[tokio::test]
async fn content_that_changed_on_disk_is_corrupt() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let (run, _) = kit.begin(&agent("a"), START).await;
    let context = kit.load(&agent("a")).await.run.unwrap().state.context;
    let outside = database.client().await;
    for damage in ["UPDATE items SET content = '\\x00'", "DELETE FROM items"] {
        outside.batch_execute(damage).await.unwrap();
        let read = store.range_items(&agent("a").tenant, context).await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{damage}: {read:?}");
    }
    for damage in ["UPDATE stretches SET events = '['", "UPDATE runs SET state = '\\x7b'"] {
        outside.batch_execute(damage).await.unwrap();
        let journal = store.journal(&agent("a").tenant, run, 0, 10).await;
        assert!(matches!(journal, Err(StoreError::Corrupt(_))), "{damage}: {journal:?}");
    }
    let loaded = store.load(&agent("a")).await;
    assert!(matches!(loaded, Err(StoreError::Corrupt(_))), "{loaded:?}");
}
