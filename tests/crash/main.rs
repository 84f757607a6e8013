//! The server dies at every crash point, with the real binary: nothing is lost, nothing is executed twice, and nothing is reported before
//! it is on disk. `tests/crash_postgres` has the same on PostgreSQL.

mod checks;
mod damage;
mod flush;
mod matrix;
mod scenarios;
mod service;
mod trace;
mod world;
mod wreck;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_anywhere_loses_nothing_and_repeats_nothing() {
    matrix::run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_announced_before_it_is_on_disk() {
    flush::run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_promise_would_be_noticed() {
    damage::run().await;
}
