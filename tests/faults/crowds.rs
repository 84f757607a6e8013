//! Many agents at once on three servers: the load itself is the fault.

use std::time::Duration;

use windlass_tests::{NatsServer, postgres::Server as Postgres};

use crate::{Trial, cluster::Cluster, load::Load};

async fn crowd(name: &'static str, agents: usize, turns: usize) {
    let mut trial = Trial::begin(name).await;
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n{}", database.url, nats.config())).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask(agents, turns, Duration::ZERO).await;
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_001_sixteen_agents_at_once_are_never_wedged() {
    crowd("16 agents at once", 16, 10).await;
}

/// The doorbell over PostgreSQL itself, which is used when none is configured.
#[tokio::test(flavor = "multi_thread")]
async fn sixteen_agents_at_once_with_the_bell_of_the_database() {
    let mut trial = Trial::begin("16 agents at once, with LISTEN and NOTIFY").await;
    let database = Postgres::shared().database_alone().await;
    let cluster = Cluster::three(&format!("store: {{ url: '{}' }}\n", database.url)).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask(16, 10, Duration::ZERO).await;
    trial.judge(&cluster, &load, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_001_a_thousand_agents_at_once_are_never_wedged() {
    crowd("1,000 agents at once", 1000, 1).await;
}
