//! The store that several servers share, with a real PostgreSQL server: the whole suite, and cases that only concern PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

mod answers;
mod deadlocks;
mod dealt;
mod faults;
mod nodes;
mod opening;
mod parked;

use std::{sync::Arc, time::Duration};

use windlass_kernel::{AgentKey, Input, RunId};
use windlass_ports::{Enqueued, Loaded, Store, StoreError, Taken};
use windlass_store::{
    PostgresStore, StoreOptions,
    conformance::{
        Full, Subject,
        erasing_tenants::{erase_whole, furnish},
        fixtures::{Kit, LOOKUP, START, agent, calls, delta_batch, final_reply, guard, report_input},
        keys::{KEYS, check_keys, use_keys},
        lists::{check_names_of_earlier_runs, runs_without_names},
        manifests::{check_manifests_of_earlier_runs, instructed, instructions, runs_with_one_manifest},
    },
};

use windlass_tests::postgres::{Database, Server};

mod suite {
    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        let database = Server::shared().database().await;
        Subject::new(opened(&database, options).await, database)
    }

    windlass_store::conformance!(make);
}

async fn opened(database: &Database, options: StoreOptions) -> PostgresStore {
    let store = PostgresStore::open(&database.url, options).await.unwrap();
    // Cases that lose an owner use other nodes than this one. Its own lease is ended, because they need it to be dead.
    store.beat(store.node(), 0).await.unwrap();
    store
}

/// One server process on a database.
async fn node(database: &Database) -> Arc<dyn Full> {
    node_with(database, StoreOptions::default()).await
}

async fn node_with(database: &Database, options: StoreOptions) -> Arc<dyn Full> {
    Arc::new(PostgresStore::open(&database.url, options).await.unwrap())
}

/// The number that a query gives, read without the store.
async fn count(database: &Database, sql: &str) -> i64 {
    database.client().await.query_one(sql, &[]).await.unwrap().get(0)
}

/// What must hold in a database in which every run that began has ended.
async fn check_whole(database: &Database, runs: i64) {
    assert_eq!(count(database, "SELECT count(*) FROM runs WHERE status = 'ended'").await, runs);
    assert_eq!(count(database, "SELECT count(*) FROM runs").await, runs);
    assert_eq!(count(database, "SELECT count(*) FROM heads WHERE status <> 'idle' OR queued <> 0 OR pending <> 0").await, 0);
    assert_eq!(count(database, "SELECT coalesce(sum(open), 0)::bigint FROM tenants").await, 0, "every open run was closed once");
    assert_eq!(count(database, "SELECT count(*) FROM calls WHERE status <> 'applied'").await, 0);
    let gaps = "SELECT count(*) FROM (SELECT run, number, row_number() OVER (PARTITION BY run ORDER BY number) AS place FROM journal) AS j
                WHERE number <> place - 1";
    assert_eq!(count(database, gaps).await, 0, "journals are dense");
    let lengths = "SELECT count(*) FROM (SELECT count(*) AS events FROM journal GROUP BY run) AS j GROUP BY events";
    assert!(database.client().await.query(lengths, &[]).await.unwrap().len() <= 1, "runs of one script have journals of one length");
}

/// A run of one iteration with one call, as its owner makes it. Every verb that failed is sent again, as the engine does it.
async fn one_run(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey) -> RunId {
    let new = kit.entering(kit.new_run(agent, START));
    let run = new.run;
    let enqueued = again(|| store.enqueue(new.clone())).await;
    assert!(matches!(enqueued, Enqueued::Entered { .. } | Enqueued::Duplicate { .. }), "{enqueued:?}");
    step(store, kit, agent, |_| calls(&[LOOKUP])).await;
    let report = kit.new_report(agent, run, 1, START);
    let taken_in = again(|| store.report(report.clone())).await;
    assert!(matches!(taken_in, Taken::Recorded(_) | Taken::Duplicate(_)), "{taken_in:?}");
    step(store, kit, agent, |loaded| report_input(&loaded.pending[0])).await;
    step(store, kit, agent, |_| final_reply("done")).await;
    run
}

/// Loads, decides once, and sends the commit until there is an answer.
async fn step(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, decide: impl Fn(&Loaded) -> Input) {
    let loaded = again(|| store.load(agent)).await.unwrap();
    let run = loaded.run.as_ref().unwrap();
    let mut commit = kit.commit(run.id, &run.state, decide(&loaded), START);
    commit.consumed.extend(loaded.pending.iter().map(|message| message.id));
    let guard = guard(agent, &loaded);
    again(|| store.commit(guard.clone(), commit.clone())).await;
}

/// Sends a request until the store answers. Being fenced would be an answer, and a wrong one here.
async fn again<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    for _ in 0..100 {
        match ask().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store does not answer");
}

/// A group assumes that the keys of its verbs are free. Here half of them are not.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_runs_are_recognised_in_a_group_with_new_ones() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let news: Vec<_> = (0..40).map(|n| kit.entering(kit.new_run(&agent(&format!("a{n}")), START))).collect();
    for new in news.iter().step_by(2) {
        assert!(matches!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Entered { .. }));
    }
    let answers = futures_util::future::join_all(news.iter().map(|new| store.enqueue(new.clone()))).await;
    for (index, (answer, new)) in answers.into_iter().zip(&news).enumerate() {
        let answer = answer.unwrap();
        let is_right = match index % 2 {
            0 => matches!(answer, Enqueued::Duplicate { run, .. } if run == new.run),
            _ => matches!(answer, Enqueued::Entered { .. }),
        };
        assert!(is_right, "{index}: {answer:?}");
    }
    assert_eq!(count(&database, "SELECT count(*) FROM runs WHERE status = 'active'").await, 40);
    assert_eq!(count(&database, "SELECT sum(open)::bigint FROM tenants").await, 40, "each is counted once");
}
