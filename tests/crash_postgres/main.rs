//! The server dies at every crash point, with the real binary, on PostgreSQL: the scenarios and checks of `tests/crash`, unchanged. Each
//! point is tried in one scenario; with `WINDLASS_LONG=1` each is tried in every scenario, as often as on SQLite.
//!
//! It does not include the test that reads from the system calls whether the log was flushed before an announcement: the log is not the
//! server's own here, and PostgreSQL confirms a commit after it has flushed it. The store refuses to open a database that confirms a commit
//! earlier.

#[path = "../crash/checks.rs"]
mod checks;
#[path = "../crash/damage.rs"]
mod damage;
#[path = "../crash/matrix.rs"]
mod matrix;
#[path = "../crash/scenarios.rs"]
mod scenarios;
#[path = "../crash/service.rs"]
mod service;
#[path = "../crash/world.rs"]
mod world;
#[path = "../crash/wreck.rs"]
mod wreck;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_anywhere_loses_nothing_and_repeats_nothing() {
    matrix::run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_promise_would_be_noticed() {
    damage::run().await;
}
