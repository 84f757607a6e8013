//! The services that the servers depend on become unavailable in the middle of work: NATS, PostgreSQL, and the connection to it.

use std::time::Duration;

use windlass_tests::{NatsServer, Proxy, postgres::Server as Postgres};

use crate::{Trial, cluster::Cluster, load::Load};

/// Agents that always have a turn.
const AGENTS: usize = 16;
/// The pause after each turn.
const PAUSE: Duration = Duration::from_millis(200);
/// A service abandons one call in this number.
const ABANDON_ONE_IN: u64 = 37;

#[tokio::test(flavor = "multi_thread")]
async fn nats_killed_and_started_again() {
    let mut trial = Trial::begin("NATS killed and started again").await;
    let mut nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n{}", database.url, nats.config())).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let faults = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(1000)).await;
            nats.kill();
            trial.faults += 1;
            tokio::time::sleep(Duration::from_millis(700)).await;
            nats.up().await;
        }
        tokio::time::sleep(Duration::from_millis(1000)).await;
    };
    load.ask_beside(AGENTS, PAUSE, faults).await;
    // Core NATS delivers nothing to a subscriber that is not connected.
    trial.judge(&cluster, &load, Some((&listener, false))).await;
}

/// PostgreSQL loses everything that it has not flushed, and is down for a while.
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_cut_off_in_the_middle_of_commits() {
    let mut trial = Trial::begin("PostgreSQL cut off").await;
    let postgres = Postgres::start();
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = postgres.database_alone().await;
    let cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n{}", database.url, nats.config())).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let faults = async {
        // The last outage is longer than the time for which a commit is retried, and longer than every lease.
        for away in [0, 300, 1500, 7000] {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            tokio::task::block_in_place(|| postgres.cut());
            trial.faults += 1;
            tokio::time::sleep(Duration::from_millis(away)).await;
            tokio::task::block_in_place(|| postgres.begin());
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
    };
    load.ask_beside(AGENTS, PAUSE, faults).await;
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_postgresql_cut_also_in_the_middle_of_a_reply() {
    let mut trial = Trial::begin("connections to PostgreSQL cut").await;
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let (user, rest) = database.url.split_once('@').expect("a user comes before the address");
    let (target, name) = rest.split_once('/').expect("a database comes after the address");
    let proxy = Proxy::start(target).await;
    let url = format!("{user}@{}/{name}", proxy.address());
    let cluster = Cluster::three(&format!("store: {{ url: '{url}' }}\n{}", nats.config())).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let faults = async {
        for round in 0..14 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            proxy.refuse(round % 4 == 3);
            match round % 2 {
                0 => proxy.cut(),
                _ => proxy.cut_in_reply(),
            }
            trial.faults += 1;
            if round % 4 == 3 {
                // Longer than a lease: every server counts as dead, and none can take over.
                tokio::time::sleep(Duration::from_millis(1500)).await;
                proxy.refuse(false);
            }
        }
        tokio::time::sleep(Duration::from_millis(1000)).await;
    };
    load.ask_beside(AGENTS, PAUSE, faults).await;
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}
