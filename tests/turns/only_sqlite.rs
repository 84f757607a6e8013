//! Tests for SQLite only: every other test of the turn machine runs on both stores. These show no numbered requirement.
//!
//! - A second server on the same folder is refused, because a file has one server. On PostgreSQL a second one is allowed
//!   (`tests/nats/bells.rs`).
//! - A database of a newer version stays unchanged to the last byte. The files of PostgreSQL are not ours;
//!   `tests/turns_postgres/only_postgres.rs` shows that its rows stay unchanged.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

use serde_json::json;
use windlass_tests::{ServerBuilder, binary};

const CONFIG: &str = "
tools: { external: [ { name: echo, effect: read } ] }
agents: { a: { tools: [echo] } }
";

/// Starts a server in a folder in which it must refuse to run.
fn serve_in(folder: &Path) -> Output {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder).env_remove("WINDLASS_CRASH_AT");
    command.output().expect("the binary runs")
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused_and_the_first_continues() {
    let server = ServerBuilder::new(CONFIG).start().await;
    let run = server.enqueue("a", "call echo").await;
    server.suspended("a", &run).await;
    let before = server.snapshot();
    let second = serve_in(server.folder());
    assert!(!second.status.success());
    assert!(output_text(&second).contains("in use by another server"), "{}", output_text(&second));
    assert_eq!(server.snapshot(), before);
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
}

/// The content of every file of the data folder, without the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder.join(".windlass")).expect("the data folder");
    let read = entries.map(|entry| entry.expect("an entry").path());
    let kept = read.filter(|path| path.extension().is_none_or(|end| end != "lock"));
    kept.map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file"))).collect()
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_untouched() {
    let mut server = ServerBuilder::new(CONFIG).start().await;
    let run = server.enqueue("a", "hello").await;
    server.ended(&run).await;
    server.kill();
    let database = server.database();
    assert_eq!(
        database.execute("UPDATE schema_version SET version = version + 1 WHERE version = (SELECT max(version) FROM schema_version)"),
        Ok(1),
        "a later version"
    );
    // Once with the change still in the log, once with everything in the database file.
    let before = files(server.folder());
    let refused = serve_in(server.folder());
    assert!(!refused.status.success());
    assert!(output_text(&refused).contains("schema version"), "{}", output_text(&refused));
    let unchanged = |name: &String, bytes: &Vec<u8>| name.ends_with("-shm") || before.get(name) == Some(bytes);
    assert!(files(server.folder()).iter().all(|(name, bytes)| unchanged(name, bytes)), "with a log beside it");
    database.rows("PRAGMA wal_checkpoint(TRUNCATE)");
    drop(database);
    let before = files(server.folder());
    let refused = serve_in(server.folder());
    assert!(!refused.status.success());
    assert_eq!(files(server.folder()), before);
}
