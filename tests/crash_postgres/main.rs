//! Death at every boundary, over the real binary, on PostgreSQL: the stories and checks of `tests/crash`, word for word.
//!
//! Without the test that reads from the system calls whether the log was flushed before anything was said: the log is not the
//! server's own here, and PostgreSQL answers a commit when it has flushed it. A store that would answer earlier is refused when it
//! is opened.

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
