//! Two servers on one database.

use std::collections::BTreeSet;

use windlass_kernel::Epoch;
use windlass_ports::{Admission, Clock, Commit, NodeId};

use super::*;

const ROUNDS: usize = 20;

#[tokio::test]
async fn of_two_servers_commits_one_wins() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        kit.begin(&agent, START).await;
        let (held, reply) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
        let (_, takeover) = kit.prepare(&agent, Input::owner_changed(), START).await;
        let takeover = Commit { node: NodeId(2), ..takeover };
        let (first, second) = tokio::join!(one.commit(held.clone(), reply), two.commit(held, takeover));
        let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
        assert_eq!(won.unwrap().seq.0, 2);
        assert!(matches!(lost, Err(StoreError::Fenced)), "{lost:?}");
    }
}

#[tokio::test]
async fn two_servers_meet_at_a_new_agent() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        let new = || kit.entering(kit.new_run(&agent, START));
        let (first, second) = tokio::join!(one.enqueue(new()), two.enqueue(new()));
        let both = [first.unwrap(), second.unwrap()];
        let entered = both.iter().filter(|one| matches!(one, Enqueued::Entered { epoch: Epoch(1), .. })).count();
        let queued = both.iter().filter(|one| matches!(one, Enqueued::Queued { .. })).count();
        assert_eq!((entered, queued), (1, 1), "{both:?}");
        assert_eq!(one.head(&agent).await.unwrap().unwrap().queued, 1);
    }
}

#[tokio::test]
async fn deltas_of_one_server_are_seen_or_fenced_when_another_takes_over() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        let (run, _) = kit.begin(&agent, START).await;
        one.append_deltas(delta_batch(&agent, run, 1, 0, &["a"])).await.unwrap();
        let (held, takeover) = kit.prepare(&agent, Input::owner_changed(), START).await;
        let takeover = Commit { node: NodeId(2), ..takeover };
        let (stored, seen) = tokio::join!(one.append_deltas(delta_batch(&agent, run, 1, 1, &["b"])), async {
            two.commit(held, takeover).await.unwrap();
            two.streamed_text(&agent.tenant, run).await.unwrap().text
        });
        let is_fenced = matches!(stored, Err(StoreError::Fenced));
        assert_eq!((stored.is_ok(), seen.as_str()), (!is_fenced, if is_fenced { "a" } else { "ab" }));
        two.append_deltas(delta_batch(&agent, run, 2, if is_fenced { 1 } else { 2 }, &["c"])).await.unwrap();
        assert!(matches!(one.append_deltas(delta_batch(&agent, run, 1, 2, &["d"])).await, Err(StoreError::Fenced)));
    }
}

#[tokio::test]
async fn two_servers_inherit_the_same_calls() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for round in 0..ROUNDS {
        let (left, _) = kit.begin(&agent(&format!("a{round}")), START).await;
        let new = |name: &str| {
            let mut new = kit.entering(kit.new_run(&agent(&format!("{name} {round}")), START));
            new.takes = Some(left);
            new
        };
        let (mine, yours) = (new("mine"), new("yours"));
        let runs = [mine.run, yours.run];
        let (first, second) = tokio::join!(one.enqueue(mine), two.enqueue(yours));
        let both = [first.unwrap(), second.unwrap()];
        let winner = both.iter().position(|outcome| matches!(outcome, Enqueued::Entered { .. })).unwrap();
        assert_eq!(both[1 - winner], Enqueued::AlreadyInherited { by: runs[winner] });
    }
}

#[tokio::test]
async fn two_servers_meet_at_a_dedupe_key() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for round in 0..ROUNDS {
        let new = |name: &str| {
            let mut new = kit.entering(kit.new_run(&agent(name), START));
            new.dedupe = Some(format!("key {round}"));
            new
        };
        let (left, right) = (new(&format!("left {round}")), new(&format!("right {round}")));
        let runs = [left.run, right.run];
        let (first, second) = tokio::join!(one.enqueue(left), two.enqueue(right));
        let both = [first.unwrap(), second.unwrap()];
        let entered = both.iter().position(|one| matches!(one, Enqueued::Entered { .. })).unwrap();
        let Enqueued::Duplicate { run, .. } = &both[1 - entered] else { panic!("{both:?}") };
        assert_eq!(*run, runs[entered]);
    }
    assert_eq!(count(&database, "SELECT count(*) FROM runs").await, ROUNDS as i64);
    assert_eq!(count(&database, "SELECT sum(open)::bigint FROM tenants").await, ROUNDS as i64);
}

/// A server whose cache has a manifest begins a run with it after another server erased the last run that had it.
#[tokio::test]
async fn tm_05_a_run_has_the_manifest_that_another_server_erased() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    let mut last = None;
    for round in 0..ROUNDS {
        let (agent, own) = (agent(&format!("a{round}")), agent(&format!("b{round}")));
        let (new, meanwhile) = (instructed(&kit, &agent, "text"), instructed(&kit, &own, "text"));
        let (run, raced) = (new.run, meanwhile.run);
        // Once after the erasure, and once at the same time.
        if let Some(run) = last {
            two.erase(agent.tenant.clone(), run).await.unwrap();
        }
        one.enqueue(new).await.unwrap();
        assert_eq!(instructions(&two, &agent, run).await.as_deref(), Some("text"));
        kit.advance(&agent, final_reply("done"), START).await;
        let (erased, begun) = tokio::join!(two.erase(agent.tenant.clone(), run), one.enqueue(meanwhile));
        erased.unwrap();
        assert!(matches!(begun.unwrap(), Enqueued::Entered { .. }));
        assert_eq!(count(&database, "SELECT count(*) FROM manifests").await, 1);
        kit.advance(&own, final_reply("done"), START).await;
        last = Some(raced);
    }
    two.erase(agent("a").tenant, last.unwrap()).await.unwrap();
    assert_eq!(count(&database, "SELECT count(*) FROM manifests").await, 0);
}

/// All tables except those without a tenant.
#[tokio::test]
async fn tm_05_no_table_of_a_shared_database_has_a_row_of_an_erased_tenant() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let (kit, agent) = (Kit::new(&one), agent("a"));
    furnish(&one, &kit, &agent, "text").await;
    erase_whole(&two, &agent.tenant).await;
    let client = database.client().await;
    let sql = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
        AND table_name NOT IN ('nodes', 'schema_version', 'seal_canary', 'id_key')";
    let tables: Vec<String> = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(tables.len() > 15, "{tables:?}");
    for table in tables {
        assert_eq!(count(&database, &format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    furnish(&one, &kit, &agent, "text").await;
}

#[tokio::test]
async fn two_servers_share_the_waiting_calls() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    let mut expected = BTreeSet::new();
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        let (run, _) = kit.begin(&agent, START).await;
        kit.advance(&agent, calls(&[LOOKUP, LOOKUP, LOOKUP]), START).await;
        expected.extend((1..=3).map(|call| (run, call)));
    }
    let claim_all = |store: Arc<dyn Full>, worker: &'static str| {
        let claim = kit.claim(LOOKUP, worker, 4, START);
        async move {
            let mut taken = Vec::new();
            loop {
                let some = store.claim_calls(claim.clone()).await.unwrap();
                if some.is_empty() {
                    return taken;
                }
                taken.extend(some.into_iter().map(|call| (call.run, call.call.0)));
            }
        }
    };
    let (first, second) = tokio::join!(claim_all(one.clone(), "one"), claim_all(two.clone(), "two"));
    let taken: BTreeSet<_> = first.iter().chain(&second).copied().collect();
    assert_eq!(taken.len(), first.len() + second.len(), "no call is given twice");
    assert_eq!(taken, expected, "and none is left");
    assert_eq!(count(&database, "SELECT count(*) FROM heads WHERE wake_at IS NULL").await, 0, "the ends of leases are on the heads");
}

#[tokio::test]
async fn one_server_publishes_and_no_row_is_lost() {
    let database = Server::shared().database().await;
    let publishing = StoreOptions { publish: true, usage: false };
    let (one, two) = (node_with(&database, publishing).await, node_with(&database, publishing).await);
    let kit = Kit::new(&one);
    kit.begin(&agent("a"), START).await;
    assert_eq!(one.outbox(10).await.unwrap().len(), 1);
    assert!(two.outbox(10).await.unwrap().is_empty(), "one publishes at a time");
    // A transaction that reserved its number first and commits last.
    let slow = database.client().await;
    slow.batch_execute(
        "BEGIN; INSERT INTO outbox (tenant, agent, run, first, count) VALUES ('t', 'a', '\\x00000000000000000000000000000001', 0, 1)",
    )
    .await
    .unwrap();
    let store = two.clone();
    store.enqueue(kit.entering(kit.new_run(&agent("b"), START))).await.unwrap();
    let seen: Vec<u64> = one.outbox(10).await.unwrap().iter().map(|row| row.n).collect();
    assert_eq!(seen, [1, 3]);
    one.published(seen).await.unwrap();
    slow.batch_execute("COMMIT").await.unwrap();
    let late: Vec<u64> = one.outbox(10).await.unwrap().iter().map(|row| row.n).collect();
    assert_eq!(late, [2]);
    // The lock ends with the connection, and the next server that reads the outbox gets it.
    drop((kit, one));
    for _ in 0..200 {
        if !two.outbox(10).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no server publishes any more");
}

/// A database whose clock is set by hand: its sessions find this clock before the real one.
async fn with_a_clock() -> Database {
    let mut database = Server::shared().database().await;
    let clock = "CREATE TABLE clock AS SELECT interval '0' AS ahead;
                 CREATE FUNCTION clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
                 AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM clock'";
    database.client().await.batch_execute(clock).await.unwrap();
    database.url.push_str(",pg_catalog");
    database
}

async fn move_clock(database: &Database, ahead: &str) {
    database.client().await.execute(&format!("UPDATE clock SET ahead = interval '{ahead}'"), &[]).await.unwrap();
}

#[tokio::test]
async fn a_lease_ends_by_the_database_clock() {
    let database = with_a_clock().await;
    let open = async || Arc::new(PostgresStore::open(&database.url, StoreOptions::default()).await.unwrap());
    let (here, there) = (open().await, open().await);
    let (clock, one, two): (_, Arc<dyn Full>, Arc<dyn Full>) = (here.clock(), here, there);
    let (first, second) = (NodeId(1), NodeId(2));
    let kit = Kit::new(&one);
    kit.begin(&agent("a"), START).await;
    assert!(kit.load(&agent("a")).await.head.owner_lives, "a server lives from when it opened the store");
    let hour = 3_600_000;
    assert!(one.beat(first, hour).await.unwrap().is_empty());
    let before = clock.now();
    move_clock(&database, "59 minutes").await;
    assert!(two.beat(second, 2 * hour).await.unwrap().is_empty());
    assert!(two.orphans(second, None, 10).await.unwrap().is_empty());
    two.bury(vec![first]).await.unwrap();
    assert!(kit.load(&agent("a")).await.head.owner_lives, "no live server is deleted");
    // An hour passes in the database, and nowhere else.
    move_clock(&database, "61 minutes").await;
    assert!(!kit.load(&agent("a")).await.head.owner_lives);
    assert_eq!(two.orphans(second, None, 10).await.unwrap(), [agent("a")]);
    assert!(two.orphans(first, None, 10).await.unwrap().is_empty(), "no server's own agents are orphans");
    assert_eq!(two.beat(second, 2 * hour).await.unwrap(), [first]);
    two.bury(vec![first]).await.unwrap();
    assert!(two.beat(second, 2 * hour).await.unwrap().is_empty());
    assert_eq!(two.orphans(second, None, 10).await.unwrap(), [agent("a")], "what it owed is still found");
    one.beat(first, hour).await.unwrap();
    assert!(clock.now().0 - before.0 >= 3_600_000, "a heartbeat sets the clock");
    assert!(kit.load(&agent("a")).await.head.owner_lives, "who beats again is as good as new");
    assert!(two.orphans(second, None, 10).await.unwrap().is_empty());
    // And back: by the machine's clock the lease would have ended.
    move_clock(&database, "-1 hour").await;
    one.beat(first, 1).await.unwrap();
    move_clock(&database, "-2 hours").await;
    assert!(kit.load(&agent("a")).await.head.owner_lives, "by the database it is not over yet");
}

#[tokio::test]
async fn open_runs_are_counted_over_all_servers() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    for name in ["a", "b", "c"] {
        kit.begin(&agent(name), START).await;
    }
    let mut new = kit.new_run(&agent("d"), START);
    new.admission = Admission { queued_per_agent_max: 10, open_per_tenant_max: 3 };
    assert_eq!(two.enqueue(new.clone()).await.unwrap(), Enqueued::TenantFull);
    let (held, end) = kit.prepare(&agent("a"), final_reply("done"), START).await;
    two.commit(held, end).await.unwrap();
    assert!(matches!(two.enqueue(new).await.unwrap(), Enqueued::Dispatched { .. }));
    assert!(count(&database, "SELECT count(*) FROM tenants").await > 1, "every writer counts in a slot of its own");
}

#[tokio::test]
async fn an_agent_that_changes_all_the_time_is_read_whole() {
    let database = Server::shared().database().await;
    let (one, two) = (node(&database).await, node(&database).await);
    let kit = Kit::new(&one);
    let agent = agent("a");
    kit.begin(&agent, START).await;
    let reader = tokio::spawn({
        let agent = agent.clone();
        async move {
            let mut reads = 0;
            loop {
                let loaded = two.load(&agent).await.unwrap().unwrap();
                let Some(run) = loaded.run else { return reads };
                // The head and the run show the same status: they were read at one moment.
                assert_eq!(loaded.head.status, run.state.head_status());
                reads += 1;
            }
        }
    });
    for _ in 0..50 {
        kit.advance(&agent, calls(&[LOOKUP]), START).await;
        let run = kit.load(&agent).await.run.unwrap();
        let call = run.state.calls()[0].call.0;
        kit.report(&agent, run.id, call, START).await;
        kit.take_report(&agent, START).await;
    }
    kit.advance(&agent, final_reply("done"), START).await;
    assert!(reader.await.unwrap() > 0);
}
