//! A commit that was made and whose answer was lost is stored once, and its repetition succeeds.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use windlass_ports::{Commit, Guard};
use windlass_tests::Proxy;

use super::*;

/// The size of a group that fills both writers together; and the number of writers.
const MANY: usize = 24;
const WRITERS: u32 = 2;

/// A store behind a connection that can lose answers.
struct Stage {
    database: Database,
    proxy: Proxy,
    store: Arc<dyn Full>,
    kit: Kit,
}

impl Stage {
    async fn new() -> Self {
        let database = Server::shared().database().await;
        let (user, rest) = database.url.split_once('@').unwrap();
        let (target, name) = rest.split_once('/').unwrap();
        let proxy = Proxy::start(target).await;
        let store: Arc<dyn Full> =
            Arc::new(PostgresStore::open(&format!("{user}@{}/{name}", proxy.address()), StoreOptions::default()).await.unwrap());
        let kit = Kit::new(&store);
        Stage { database, proxy, store, kit }
    }

    /// Agents with that name, each with a run that waits for a call.
    async fn waiting(&self, name: &str, count: usize) -> Vec<(AgentKey, RunId)> {
        let agents: Vec<AgentKey> = (0..count).map(|number| agent(&format!("{name} {number}"))).collect();
        let mut waiting = Vec::new();
        for agent in agents {
            let (run, _) = self.kit.begin(&agent, START).await;
            self.kit.advance(&agent, calls(&[LOOKUP]), START).await;
            waiting.push((agent, run));
        }
        waiting
    }

    /// Sends everything at once while answers are lost. This test has one thread, so that everything is sent before a writer takes its
    /// first group.
    async fn ask<T, F: Future<Output = Result<T, StoreError>>>(&self, asked: impl IntoIterator<Item = F>) -> Vec<T> {
        let asked: Vec<F> = asked.into_iter().collect();
        let lost = if asked.len() == 1 { 1 } else { WRITERS };
        let before = self.proxy.kept_back();
        self.proxy.keep_back_commits(lost);
        let answers = join_all(asked).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(self.proxy.kept_back() - before, lost, "the commits were made and their answers were lost");
        answers
    }

    /// The rows of a table that were written under this name, and the number of transactions that wrote them.
    async fn written(&self, table: &str, name: &str) -> (i64, i64) {
        let sql = format!("SELECT count(*), count(DISTINCT xmin::text) FROM {table} WHERE agent LIKE '{name} %'");
        let row = self.database.client().await.query_one(&sql, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

/// The rows are those of the transactions whose answers were lost: nothing was written again, one by one.
fn as_first_written(count: usize) -> (i64, i64) {
    (count as i64, if count == 1 { 1 } else { i64::from(WRITERS) })
}

#[tokio::test]
async fn a_request_whose_commit_was_not_answered_is_one_run() {
    let stage = Stage::new().await;
    for (name, count) in [("alone", 1), ("group", MANY)] {
        let news: Vec<_> = (0..count).map(|n| stage.kit.entering(stage.kit.new_run(&agent(&format!("{name} {n}")), START))).collect();
        let answers = stage.ask(news.iter().map(|new| stage.store.enqueue(new.clone()))).await;
        for (answer, new) in answers.iter().zip(&news) {
            let is_ours =
                matches!(answer, Enqueued::Entered { .. }) || matches!(answer, Enqueued::Duplicate { run, .. } if *run == new.run);
            assert!(is_ours, "{name}: {answer:?}");
            assert_eq!(stage.kit.load(&new.agent).await.run.unwrap().id, new.run);
        }
        assert_eq!(stage.written("runs", name).await, as_first_written(count), "{name}");
        assert_eq!(stage.written("inbox", name).await, as_first_written(count), "{name}");
    }
    assert_eq!(count(&stage.database, "SELECT sum(open)::bigint FROM tenants").await, 1 + MANY as i64, "each is counted once");
}

#[tokio::test]
async fn a_report_whose_commit_was_not_answered_is_one_message() {
    let stage = Stage::new().await;
    for (name, count) in [("alone", 1), ("group", MANY)] {
        let waiting = stage.waiting(name, count).await;
        let reports = waiting.iter().map(|(agent, run)| stage.kit.new_report(agent, *run, 1, START));
        let answers = stage.ask(reports.map(|report| stage.store.report(report))).await;
        let id = |taken: &Taken| match taken {
            Taken::Recorded(id) | Taken::Duplicate(id) => id.0,
            Taken::Late(_) | Taken::UnknownRun | Taken::NotActive => panic!("{name}: {taken:?}"),
        };
        let ids: BTreeSet<u64> = answers.iter().map(id).collect();
        assert_eq!(ids.len(), count);
        assert_eq!(
            stage.written("(SELECT agent, xmin FROM inbox WHERE call IS NOT NULL) AS i", name).await,
            as_first_written(count),
            "{name}"
        );
        for (agent, _) in waiting {
            assert_eq!(stage.store.head(&agent).await.unwrap().unwrap().pending, 1);
            stage.kit.take_report(&agent, START).await;
        }
    }
}

#[tokio::test]
async fn a_commit_that_was_not_answered_is_applied_once() {
    let stage = Stage::new().await;
    for (name, count) in [("alone", 1), ("group", MANY)] {
        let mut prepared: Vec<(Guard, Commit)> = Vec::new();
        for number in 0..count {
            let agent = agent(&format!("{name} {number}"));
            stage.kit.begin(&agent, START).await;
            prepared.push(stage.kit.prepare(&agent, calls(&[LOOKUP]), START).await);
        }
        let answers = stage.ask(prepared.iter().map(|(guard, commit)| stage.store.commit(guard.clone(), commit.clone()))).await;
        for (answer, (guard, commit)) in answers.iter().zip(&prepared) {
            assert_eq!((answer.seq.0, answer.epoch), (guard.seq.0 + 1, guard.epoch), "{name}");
            let stands = stage.kit.load(&guard.agent).await;
            assert_eq!((stands.head.seq, &stands.run.unwrap().state), (answer.seq, &commit.state), "{name}");
        }
        assert_eq!(stage.written("calls", name).await, as_first_written(count), "{name}");
    }
}
