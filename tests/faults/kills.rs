//! Servers that are killed or stopped in the middle of their work.

use std::time::{Duration, Instant};

use windlass_tests::{NatsServer, postgres::Server as Postgres};

use crate::{
    Trial,
    cluster::{Cluster, builder},
    load::Load,
    notes::Notes,
};

/// Agents that always have a turn.
const AGENTS: usize = 16;
/// The pause after each turn.
const PAUSE: Duration = Duration::from_millis(300);
/// The time between two kills.
const EVERY: Duration = Duration::from_secs(2);
/// A service abandons one call in this number.
const ABANDON_ONE_IN: u64 = 37;

/// How long servers are killed: a third of the time unless `WINDLASS_LONG=1`.
fn how_long() -> Duration {
    let is_long = std::env::var("WINDLASS_LONG").is_ok_and(|long| long == "1");
    Duration::from_secs(if is_long { 60 } else { 20 })
}

/// Kills one server after the other. Each is started again when the next one is killed.
async fn massacre(trial: &mut Trial, cluster: &mut Cluster, until: Instant) {
    let mut dead = None;
    for victim in (0..cluster.len()).cycle() {
        if Instant::now() >= until {
            break;
        }
        tokio::time::sleep(EVERY).await;
        cluster.kill(victim);
        trial.faults += 1;
        if let Some(dead) = dead.replace(victim) {
            cluster.revive(dead).await;
        }
    }
    if let Some(dead) = dead {
        cluster.revive(dead).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_servers_killed_every_two_seconds_loses_and_doubles_nothing() {
    let mut trial = Trial::begin("a server killed every 2 s").await;
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let notes = Notes::start().await;
    let config = format!("{}store: {{ url: '{}' }}\n{}", notes.config(), database.url, nats.config());
    let mut cluster = Cluster::three(&config).await;
    let roads = cluster.roads.clone();
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let until = Instant::now() + how_long();
    let killing = massacre(&mut trial, &mut cluster, until);
    tokio::join!(load.ask_until(AGENTS, until, PAUSE), notes.ask_until(&roads, until), killing);
    let wrong = notes.check(&roads).await;
    load.wrong.lock().expect("the lock is not poisoned").extend(wrong);
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_servers_killed_every_two_seconds_with_nats_never_there() {
    let mut trial = Trial::begin("a server killed every 2 s, without NATS").await;
    let nats = NatsServer::down(&[]);
    trial.faults += 1;
    let database = Postgres::shared().database_alone().await;
    let mut cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n{}", database.url, nats.config())).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let until = Instant::now() + how_long();
    tokio::join!(load.ask_until(AGENTS, until, PAUSE), massacre(&mut trial, &mut cluster, until));
    trial.judge(&cluster, &load, None).await;
}

/// The doorbell over PostgreSQL itself, which is used when none is configured.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_servers_killed_every_two_seconds_with_the_bell_of_the_database() {
    let mut trial = Trial::begin("a server killed every 2 s, with LISTEN and NOTIFY").await;
    let database = Postgres::shared().database_alone().await;
    let mut cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n", database.url)).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let until = Instant::now() + how_long() / 3;
    tokio::join!(load.ask_until(AGENTS, until, PAUSE), massacre(&mut trial, &mut cluster, until));
    trial.judge(&cluster, &load, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_sqlite_killed_under_load_loses_and_doubles_nothing() {
    let mut trial = Trial::begin("a server on SQLite killed").await;
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let mut cluster = Cluster::start(vec![(builder(&nats.config()), Vec::new())]).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let until = Instant::now() + Duration::from_secs(8);
    let kills = async {
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(700)).await;
            cluster.kill(0);
            trial.faults += 1;
            cluster.revive(0).await;
        }
    };
    tokio::join!(load.ask_until(AGENTS, until, PAUSE), kills);
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

/// Stopped for three leases, in which other servers take over its runs. Then it continues in the middle of its work.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_stopped_past_its_lease_doubles_nothing_afterwards() {
    let mut trial = Trial::begin("a server stopped past its lease").await;
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let notes = Notes::start().await;
    let config = format!("{}store: {{ url: '{}' }}\n{}", notes.config(), database.url, nats.config());
    let cluster = Cluster::three(&config).await;
    let load = Load::start(&cluster.roads, ABANDON_ONE_IN);
    let until = Instant::now() + Duration::from_secs(14);
    let stops = async {
        for victim in (0..cluster.len()).cycle() {
            if Instant::now() >= until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
            notes.busy(until).await;
            cluster.freeze(victim);
            trial.faults += 1;
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.thaw(victim);
        }
    };
    tokio::join!(load.ask_until(AGENTS, until, PAUSE), notes.ask_until(&cluster.roads, until), stops);
    let wrong = notes.check(&cluster.roads).await;
    load.wrong.lock().expect("the lock is not poisoned").extend(wrong);
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}
