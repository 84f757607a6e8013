//! Tests for PostgreSQL only: every other test of the turn machine runs on both stores. These show no numbered requirement.
//!
//! - A database of a newer version: for SQLite every byte is compared instead (`tests/turns/only_sqlite.rs`).
//! - The store of the harness's servers: without this test, the others could run on SQLite twice.

use windlass_tests::{ServerBuilder, Store};

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_its_rows_are_left_alone() {
    let mut server = ServerBuilder::new("").start().await;
    let run = server.enqueue("a", "hello").await;
    server.ended(&run).await;
    let database = server.database();
    database.all_published();
    server.kill();
    assert_eq!(
        database.execute("UPDATE schema_version SET version = version + 1 WHERE version = (SELECT max(version) FROM schema_version)"),
        Ok(1),
        "a later version"
    );
    let before = database.snapshot();
    let (status, stderr) = server.refuses();
    assert!(!status.success());
    assert!(stderr.contains("schema version"), "{stderr}");
    assert_eq!(database.snapshot(), before);
}

#[tokio::test]
async fn these_tests_run_on_postgres_and_nats() {
    let server = ServerBuilder::new("").start().await;
    assert_eq!(server.database().store(), Store::Postgres);
    let run = server.enqueue("a", "hello").await;
    server.ended(&run).await;
    assert_eq!(server.number("SELECT count(*) FROM runs"), 1, "this is the server's database");
    server.database().all_published();
    assert!(!server.folder().join(".windlass/windlass.db").exists(), "and no file is");
    assert!(!server.log().contains("NATS cannot be reached"), "{}", server.log());
}
