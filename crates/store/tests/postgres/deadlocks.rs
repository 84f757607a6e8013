//! Transactions that wait for each other's locks.

use futures_util::future::join_all;
use windlass_ports::{Commit, Guard};

use super::*;

/// The number of the store's connections that wait for a lock.
const OURS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'windlass' AND wait_event_type = 'Lock'";

/// The number of deadlocks that PostgreSQL has found. A connection reports it when it is idle or ends.
async fn deadlocks(database: &Database) -> i64 {
    count(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await
}

/// Waits until a query gives this number.
async fn comes_true(database: &Database, sql: &str, wanted: i64) {
    for _ in 0..1_000 {
        if count(database, sql).await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{sql} is never {wanted}");
}

/// The next step of each agent, to be committed at once.
async fn prepare(kit: &Kit, agents: &[AgentKey]) -> Vec<(Guard, Commit)> {
    let mut prepared = Vec::new();
    for agent in agents {
        prepared.push(kit.prepare(agent, Input::owner_changed(), START).await);
    }
    prepared
}

/// A transaction from outside locks heads in another order. PostgreSQL ends the store's transaction, and the store tries again.
#[tokio::test]
async fn a_deadlock_with_a_connection_from_outside_loses_nothing() {
    let database = Server::shared().database_alone().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let agents: Vec<AgentKey> = (0..8).map(|number| agent(&format!("a{number}"))).collect();
    for agent in &agents {
        kit.begin(agent, START).await;
    }
    let outside = database.client().await;
    // With this timeout the store's connection looks for a deadlock first.
    outside.batch_execute("SET deadlock_timeout = '30s'").await.unwrap();
    let mut steps = 0;
    while deadlocks(&database).await == 0 {
        steps += 1;
        assert!(steps <= 10, "there is no deadlock");
        let prepared = prepare(&kit, &agents).await;
        outside.batch_execute("BEGIN; SELECT FROM heads WHERE agent = 'a7' FOR UPDATE").await.unwrap();
        let ours = tokio::spawn({
            let store = store.clone();
            async move { join_all(prepared.into_iter().map(|(guard, commit)| store.commit(guard, commit))).await }
        });
        comes_true(&database, OURS, 1).await;
        // The transaction that waits for the last head holds the others of its group.
        outside.batch_execute("SELECT FROM heads ORDER BY agent FOR UPDATE; COMMIT").await.unwrap();
        for outcome in ours.await.unwrap() {
            outcome.unwrap();
        }
        // A connection reports its counts a second later, or when it next has something to do.
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        store.beat(windlass_ports::NodeId(1), 60_000).await.unwrap();
        kit.advance(&agents[0], Input::owner_changed(), START).await;
        kit.advance(&agents[7], Input::owner_changed(), START).await;
    }
    let takeovers = "SELECT count(*) FROM journal WHERE kind = 'taken_over'";
    assert_eq!(count(&database, takeovers).await, steps * (8 + 2), "each step is stored once");
    let gaps = "SELECT count(*) FROM (SELECT number, row_number() OVER (PARTITION BY run ORDER BY number) AS place FROM journal) AS j
                WHERE number <> place - 1";
    assert_eq!(count(&database, gaps).await, 0, "journals are dense");
}

/// Two servers commit for the same agents at once, one in ascending order and the other in descending order. A connection from outside
/// locks an agent in the middle until both have begun, so that they do meet. With one thread, each sends everything before its writers take
/// their groups.
#[tokio::test]
async fn two_servers_that_commit_for_the_same_agents_never_deadlock() {
    const ROUNDS: usize = 3;
    let database = Server::shared().database_alone().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    let agents: Vec<AgentKey> = (0..50).map(|number| agent(&format!("a{number:02}"))).collect();
    for agent in &agents {
        kit.begin(agent, START).await;
    }
    let outside = database.client().await;
    for _ in 0..ROUNDS {
        let prepared = prepare(&kit, &agents).await;
        let takeover = |(guard, commit): &(Guard, Commit)| (guard.clone(), Commit { node: windlass_ports::NodeId(2), ..commit.clone() });
        let other: Vec<(Guard, Commit)> = prepared.iter().rev().map(takeover).collect();
        outside.batch_execute("BEGIN; SELECT FROM heads WHERE agent = 'a25' FOR UPDATE").await.unwrap();
        let both = tokio::spawn({
            let (one, two) = (one.clone(), two.clone());
            async move {
                let forth = join_all(prepared.into_iter().map(|(guard, commit)| one.commit(guard, commit)));
                let back = join_all(other.into_iter().map(|(guard, commit)| two.commit(guard, commit)));
                tokio::join!(forth, back)
            }
        });
        comes_true(&database, OURS, 2).await;
        outside.batch_execute("COMMIT").await.unwrap();
        let (forth, mut back) = both.await.unwrap();
        back.reverse();
        for (mine, yours) in forth.iter().zip(&back) {
            let (won, lost) = if mine.is_ok() { (mine, yours) } else { (yours, mine) };
            assert!(won.is_ok() && matches!(lost, Err(StoreError::Fenced)), "{mine:?} {yours:?}");
        }
    }
    let takeovers = "SELECT count(*) FROM journal WHERE kind = 'taken_over'";
    assert_eq!(count(&database, takeovers).await, (ROUNDS * agents.len()) as i64);
    drop((kit, one, two));
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'windlass'";
    comes_true(&database, connected, 0).await;
    assert_eq!(deadlocks(&database).await, 0, "heads are locked in the order of their keys");
}
