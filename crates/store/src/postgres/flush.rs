//! What verbs wrote on their sheets, on its way to the database: one statement a table, and the commit right behind them.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio_postgres::{Statement, error::SqlState, types::ToSql};
use windlass_kernel::{AgentKey, ItemId, Tenant};
use windlass_ports::codec;

use super::{
    columns::{Text, int},
    log::{CallWrite, HeadWrite, Log, RunWrite},
    session::Session,
    trouble::Trouble,
};
use crate::{
    rows::{RunRow, is_missing},
    spelling,
};

/// Everything the members of a transaction wrote.
pub(super) struct Writes<'a> {
    pub(super) session: &'a Session,
    pub(super) logs: &'a [Log],
    /// Hashes of new content, taken before any lock was.
    pub(super) hashes: &'a BTreeMap<ItemId, [u8; 16]>,
    /// The slot for counts of open runs.
    pub(super) slot: i64,
    /// Manifests that are not known to be stored.
    pub(super) manifests: &'a BTreeMap<[u8; 32], Bytes>,
}

/// How a statement went that was sent. `missing` is what it means if a row was not found.
struct Failure {
    error: tokio_postgres::Error,
    missing: Option<&'static str>,
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

impl Writes<'_> {
    /// Writes everything and commits, in one round trip. Trust what the statements say, not the commit: behind an error it
    /// becomes a rollback and says nothing about it.
    pub(super) async fn commit(&self) -> Result<(), Trouble> {
        let mut sent: Vec<Sent<'_>> = vec![
            Box::pin(self.insert_heads()),
            Box::pin(self.update_heads()),
            Box::pin(self.insert_runs()),
            Box::pin(self.update_runs()),
            Box::pin(self.activate_runs()),
            Box::pin(self.insert_manifests()),
            Box::pin(self.add_open_runs()),
            Box::pin(self.insert_stretches()),
            Box::pin(self.insert_messages()),
            Box::pin(self.update_messages()),
            Box::pin(self.insert_calls()),
            Box::pin(self.update_calls()),
            Box::pin(self.move_calls()),
            Box::pin(self.insert_items()),
            Box::pin(self.insert_boxes()),
            Box::pin(self.insert_box_rows()),
            Box::pin(self.insert_outbox()),
            Box::pin(self.forget_outbox()),
        ];
        // The first poll sends. A statement that could not even be sent must not be missing from a commit.
        let mut outcomes: Vec<Option<Result<(), Failure>>> = sent.iter().map(|_| None).collect();
        poll_fn(|context| {
            for (future, outcome) in sent.iter_mut().zip(&mut outcomes) {
                if let Poll::Ready(done) = future.as_mut().poll(context) {
                    *outcome = Some(done);
                }
            }
            Poll::Ready(())
        })
        .await;
        let is_whole = outcomes.iter().flatten().all(Result::is_ok);
        let end = self.session.client.batch_execute(if is_whole { "COMMIT" } else { "ROLLBACK" });
        let (waiting, done): (Vec<_>, Vec<_>) = sent.into_iter().zip(outcomes).partition(|(_, outcome)| outcome.is_none());
        let waited = futures_util::future::join(join_all(waiting.into_iter().map(|(future, _)| future)), end);
        let (waited, ended) = waited.await;
        let failures: Vec<Failure> = done.into_iter().filter_map(|(_, outcome)| outcome).chain(waited).filter_map(Result::err).collect();
        let Some(first) = failures.into_iter().find(|failure| !Trouble::is_echo(&failure.error)) else {
            return Ok(ended?);
        };
        Err(trouble(first))
    }

    fn all<'s, T>(&'s self, of: impl Fn(&'s Log) -> T) -> Vec<T::Item>
    where
        T: IntoIterator + 's,
    {
        self.logs.iter().flat_map(of).collect()
    }

    async fn execute(&self, statement: &Statement, params: &[&(dyn ToSql + Sync)], missing: Option<&'static str>) -> Result<(), Failure> {
        self.session.client.execute(statement, params).await.map(drop).map_err(|error| Failure { error, missing })
    }

    async fn insert_heads(&self) -> Result<(), Failure> {
        self.heads(&self.session.statements.insert_heads, true).await
    }

    async fn update_heads(&self) -> Result<(), Failure> {
        self.heads(&self.session.statements.update_heads, false).await
    }

    async fn heads(&self, statement: &Statement, is_new: bool) -> Result<(), Failure> {
        let mut rows: Vec<(&AgentKey, &HeadWrite)> = self.all(|log| log.heads.iter().filter(move |(_, write)| write.is_new == is_new));
        if rows.is_empty() {
            return Ok(());
        }
        // In one order for everybody, so that servers which make the same heads at once never wait in a circle.
        rows.sort_unstable_by_key(|(agent, _)| *agent);
        let tenants = column(&rows, |(agent, _)| Text(agent.tenant.as_str()));
        let agents = column(&rows, |(agent, _)| Text(agent.agent.as_str()));
        let statuses = column(&rows, |(_, write)| write.head.status.as_str());
        let epochs = column(&rows, |(_, write)| int(write.head.epoch.0));
        let seqs = column(&rows, |(_, write)| int(write.head.seq.0));
        let runs = column(&rows, |(_, write)| write.head.run.as_ref().map(|run| run.as_bytes().as_slice()));
        let owners = column(&rows, |(_, write)| write.head.owner.map(|node| int(node.0)));
        let waiting = column(&rows, |(_, write)| i64::from(write.head.waiting));
        let deadlines = column(&rows, |(_, write)| write.head.deadline.map(|at| at.0));
        let wakes = column(&rows, |(_, write)| write.head.wake_at.map(|at| at.0));
        let pending = column(&rows, |(_, write)| i64::from(write.head.pending));
        let queued = column(&rows, |(_, write)| i64::from(write.head.queued));
        let ordinals = column(&rows, |(_, write)| int(write.head.runs));
        let local = column(&rows, |(_, write)| i64::from(write.head.local));
        let quarantined = column(&rows, |(_, write)| write.head.quarantined.as_deref().map(Text));
        let params: [&(dyn ToSql + Sync); 15] = [
            &tenants,
            &agents,
            &statuses,
            &epochs,
            &seqs,
            &runs,
            &owners,
            &waiting,
            &deadlines,
            &wakes,
            &pending,
            &queued,
            &ordinals,
            &local,
            &quarantined,
        ];
        self.execute(statement, &params, None).await
    }

    async fn insert_runs(&self) -> Result<(), Failure> {
        let mut rows: Vec<&RunRow> = self.all(|log| log.new_runs.values());
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort_unstable_by_key(|row| (&row.brief.agent.tenant, &row.dedupe));
        let ids = column(&rows, |row| row.brief.run.as_bytes().as_slice());
        let tenants = column(&rows, |row| Text(row.brief.agent.tenant.as_str()));
        let agents = column(&rows, |row| Text(row.brief.agent.agent.as_str()));
        let ordinals = column(&rows, |row| int(row.brief.ordinal));
        let statuses = column(&rows, |row| row.brief.status.as_str());
        let epochs = column(&rows, |row| row.brief.epoch.map(|epoch| int(epoch.0)));
        let messages = column(&rows, |row| int(row.brief.message.0));
        let kinds = column(&rows, |row| row.kind.as_str());
        let dedupes = column(&rows, |row| row.dedupe.as_deref().map(Text));
        let manifests = column(&rows, |row| row.manifest.as_slice());
        let contexts = column(&rows, |row| row.context.as_bytes().as_slice());
        let outputs = column(&rows, |row| row.output.as_bytes().as_slice());
        let versions = column(&rows, |row| i64::from(row.state_version));
        let states = column(&rows, |row| row.state.as_ref());
        let iterations = column(&rows, |row| i64::from(row.iteration));
        let traces = column(&rows, |row| row.lineage.trace.as_slice());
        let steps = column(&rows, |row| row.lineage.parent_step.as_deref().map(Text));
        let sources = column(&rows, |row| row.lineage.source.as_deref().map(Text));
        let depths = column(&rows, |row| i64::from(row.lineage.depth));
        let deliverables = column(&rows, |row| row.deliverable.as_ref().map(|item| item.as_bytes().as_slice()));
        let created = column(&rows, |row| row.created_at.0);
        let ended = column(&rows, |row| row.ended_at.map(|at| at.0));
        let params: [&(dyn ToSql + Sync); 22] = [
            &ids,
            &tenants,
            &agents,
            &ordinals,
            &statuses,
            &epochs,
            &messages,
            &kinds,
            &dedupes,
            &manifests,
            &contexts,
            &outputs,
            &versions,
            &states,
            &iterations,
            &traces,
            &steps,
            &sources,
            &depths,
            &deliverables,
            &created,
            &ended,
        ];
        self.execute(&self.session.statements.insert_runs, &params, None).await
    }

    async fn update_runs(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.runs.values().filter_map(RunWrite::changed));
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |change| change.run.as_bytes().as_slice());
        let statuses = column(&rows, |change| change.status.as_str());
        let epochs = column(&rows, |change| change.epoch.map(|epoch| int(epoch.0)));
        let versions = column(&rows, |_| i64::from(codec::VERSION));
        let states = column(&rows, |change| change.state.as_ref());
        let iterations = column(&rows, |change| i64::from(change.iteration));
        let deliverables = column(&rows, |change| change.deliverable.as_ref().map(|item| item.as_bytes().as_slice()));
        let ended = column(&rows, |change| change.ended_at.map(|at| at.0));
        let params: [&(dyn ToSql + Sync); 8] = [&ids, &statuses, &epochs, &versions, &states, &iterations, &deliverables, &ended];
        self.execute(&self.session.statements.update_runs, &params, Some("a run that changes")).await
    }

    async fn activate_runs(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.runs.iter().filter_map(|(run, write)| Some((run, write.activated()?))));
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |(run, _)| run.as_bytes().as_slice());
        let epochs = column(&rows, |(_, epoch)| int(epoch.0));
        self.execute(&self.session.statements.activate_runs, &[&ids, &epochs], Some("a run that is leased")).await
    }

    async fn insert_manifests(&self) -> Result<(), Failure> {
        if self.manifests.is_empty() {
            return Ok(());
        }
        let hashes: Vec<&[u8]> = self.manifests.keys().map(<[u8; 32]>::as_slice).collect();
        let bodies: Vec<&[u8]> = self.manifests.values().map(Bytes::as_ref).collect();
        self.execute(&self.session.statements.insert_manifests, &[&hashes, &bodies], None).await
    }

    async fn add_open_runs(&self) -> Result<(), Failure> {
        let mut changes: BTreeMap<&Tenant, i64> = BTreeMap::new();
        for (tenant, change) in self.logs.iter().flat_map(|log| &log.open_runs) {
            *changes.entry(tenant).or_default() += change;
        }
        changes.retain(|_, change| *change != 0);
        if changes.is_empty() {
            return Ok(());
        }
        let tenants: Vec<Text<'_>> = changes.keys().map(|tenant| Text(tenant.as_str())).collect();
        let counts: Vec<i64> = changes.into_values().collect();
        self.execute(&self.session.statements.add_open_runs, &[&tenants, &self.slot, &counts], None).await
    }

    async fn insert_stretches(&self) -> Result<(), Failure> {
        let rows = self.all(|log| &log.stretches);
        if rows.is_empty() {
            return Ok(());
        }
        let runs = column(&rows, |(run, ..)| run.as_bytes().as_slice());
        let firsts = column(&rows, |(_, stretch, _)| int(stretch.first));
        let epochs = column(&rows, |(_, stretch, _)| stretch.epoch.map(|epoch| int(epoch.0)));
        let times = column(&rows, |(_, stretch, _)| stretch.at.0);
        let versions = column(&rows, |(_, stretch, _)| i64::from(stretch.version));
        let events = column(&rows, |(.., events)| events.as_str());
        let params: [&(dyn ToSql + Sync); 6] = [&runs, &firsts, &epochs, &times, &versions, &events];
        self.execute(&self.session.statements.insert_stretches, &params, None).await
    }

    async fn insert_messages(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.messages.iter().filter_map(|(id, write)| write.inserted().map(|(agent, row)| (id, agent, row))));
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |(id, ..)| int(id.0));
        let tenants = column(&rows, |(_, agent, _)| Text(agent.tenant.as_str()));
        let agents = column(&rows, |(_, agent, _)| Text(agent.agent.as_str()));
        let kinds = column(&rows, |(.., row)| row.kind.as_str());
        let statuses = column(&rows, |(.., row)| row.status.as_str());
        let runs = column(&rows, |(.., row)| row.run.as_ref().map(|run| run.as_bytes().as_slice()));
        let epochs = column(&rows, |(.., row)| row.epoch.map(|epoch| int(epoch.0)));
        let calls = column(&rows, |(.., row)| row.call.map(|call| i64::from(call.0)));
        let items = column(&rows, |(.., row)| row.item.as_ref().map(|item| item.as_bytes().as_slice()));
        let outcomes = column(&rows, |(.., row)| row.outcome.map(|outcome| outcome.as_str()));
        let afters = column(&rows, |(.., row)| row.after.map(spelling::after));
        let sources = column(&rows, |(.., row)| row.source.as_deref().map(Text));
        let reasons = column(&rows, |(.., row)| row.reason.as_deref().map(Text));
        let created = column(&rows, |(.., row)| row.created_at.0);
        let processed = column(&rows, |(.., row)| row.processed_at.map(|at| at.0));
        let params: [&(dyn ToSql + Sync); 15] = [
            &ids, &tenants, &agents, &kinds, &statuses, &runs, &epochs, &calls, &items, &outcomes, &afters, &sources, &reasons, &created,
            &processed,
        ];
        self.execute(&self.session.statements.insert_messages, &params, None).await
    }

    async fn update_messages(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.messages.iter().filter_map(|(id, write)| write.changed().map(|(agent, change)| (id, agent, change))));
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |(id, ..)| int(id.0));
        let tenants = column(&rows, |(_, agent, _)| Text(agent.tenant.as_str()));
        let agents = column(&rows, |(_, agent, _)| Text(agent.agent.as_str()));
        let statuses = column(&rows, |(.., change)| change.status.as_str());
        let epochs = column(&rows, |(.., change)| change.epoch.map(|epoch| int(epoch.0)));
        let processed = column(&rows, |(.., change)| change.processed_at.map(|at| at.0));
        let reasons = column(&rows, |(.., change)| change.reason.as_deref().map(Text));
        let params: [&(dyn ToSql + Sync); 7] = [&ids, &tenants, &agents, &statuses, &epochs, &processed, &reasons];
        self.execute(&self.session.statements.update_messages, &params, Some("a message that changes")).await
    }

    async fn insert_calls(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.calls.values().filter_map(CallWrite::inserted));
        if rows.is_empty() {
            return Ok(());
        }
        let tenants = column(&rows, |row| Text(row.agent.tenant.as_str()));
        let agents = column(&rows, |row| Text(row.agent.agent.as_str()));
        let runs = column(&rows, |row| row.run.as_bytes().as_slice());
        let calls = column(&rows, |row| i64::from(row.call.0));
        let iterations = column(&rows, |row| i64::from(row.iteration));
        let tools = column(&rows, |row| Text(row.tool.as_str()));
        let routes = column(&rows, |row| spelling::route(row.route));
        let effects = column(&rows, |row| spelling::effect(row.effect));
        let statuses = column(&rows, |row| row.status.as_str());
        let created = column(&rows, |row| row.created_at.0);
        let deadlines = column(&rows, |row| row.deadline.0);
        let items = column(&rows, |row| row.item.as_bytes().as_slice());
        let results = column(&rows, |row| row.result.as_ref().map(|item| item.as_bytes().as_slice()));
        let workers = column(&rows, |row| row.worker.as_deref().map(Text));
        let leases = column(&rows, |row| row.lease_until.map(|at| at.0));
        let attempts = column(&rows, |row| i64::from(row.attempt));
        let keys = column(&rows, |row| row.claim_key.as_deref().map(Text));
        let params: [&(dyn ToSql + Sync); 17] = [
            &tenants,
            &agents,
            &runs,
            &calls,
            &iterations,
            &tools,
            &routes,
            &effects,
            &statuses,
            &created,
            &deadlines,
            &items,
            &results,
            &workers,
            &leases,
            &attempts,
            &keys,
        ];
        self.execute(&self.session.statements.insert_calls, &params, None).await
    }

    async fn update_calls(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.calls.values().filter_map(CallWrite::updated));
        if rows.is_empty() {
            return Ok(());
        }
        let runs = column(&rows, |row| row.run.as_bytes().as_slice());
        let calls = column(&rows, |row| i64::from(row.call.0));
        let statuses = column(&rows, |row| row.status.as_str());
        let deadlines = column(&rows, |row| row.deadline.0);
        let results = column(&rows, |row| row.result.as_ref().map(|item| item.as_bytes().as_slice()));
        let workers = column(&rows, |row| row.worker.as_deref().map(Text));
        let leases = column(&rows, |row| row.lease_until.map(|at| at.0));
        let attempts = column(&rows, |row| i64::from(row.attempt));
        let keys = column(&rows, |row| row.claim_key.as_deref().map(Text));
        let params: [&(dyn ToSql + Sync); 9] = [&runs, &calls, &statuses, &deadlines, &results, &workers, &leases, &attempts, &keys];
        self.execute(&self.session.statements.update_calls, &params, Some("a call that changes")).await
    }

    async fn move_calls(&self) -> Result<(), Failure> {
        let rows = self.all(|log| log.calls.iter().filter_map(|(key, write)| Some((key, write.moved()?))));
        if rows.is_empty() {
            return Ok(());
        }
        let runs = column(&rows, |((run, _), _)| run.as_bytes().as_slice());
        let calls = column(&rows, |((_, call), _)| i64::from(call.0));
        let statuses = column(&rows, |(_, moved)| moved.status.as_str());
        let results = column(&rows, |(_, moved)| moved.result.as_ref().map(|item| item.as_bytes().as_slice()));
        let deadlines = column(&rows, |(_, moved)| moved.deadline.map(|at| at.0));
        let params: [&(dyn ToSql + Sync); 5] = [&runs, &calls, &statuses, &results, &deadlines];
        self.execute(&self.session.statements.move_calls, &params, Some("a call that moves")).await
    }

    async fn insert_items(&self) -> Result<(), Failure> {
        let rows = self.all(|log| &log.items);
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |(_, item)| item.id.as_bytes().as_slice());
        let tenants = column(&rows, |(tenant, _)| Text(tenant.as_str()));
        let kinds = column(&rows, |(_, item)| item.kind.as_str());
        let hash =
            |item: &windlass_kernel::NewItem| self.hashes.get(&item.id).copied().unwrap_or_else(|| codec::content_hash(&item.content));
        let taken = column(&rows, |(_, item)| hash(item));
        let hashes = column(&taken, |hash| hash.as_slice());
        let contents = column(&rows, |(_, item)| item.content.as_ref());
        self.execute(&self.session.statements.insert_items, &[&ids, &tenants, &kinds, &hashes, &contents], None).await
    }

    async fn insert_boxes(&self) -> Result<(), Failure> {
        let rows = self.all(|log| &log.boxes);
        if rows.is_empty() {
            return Ok(());
        }
        let ids = column(&rows, |row| row.id.as_bytes().as_slice());
        let tenants = column(&rows, |row| Text(row.tenant.as_str()));
        let parents = column(&rows, |row| row.parent.as_ref().map(|parent| parent.id.as_bytes().as_slice()));
        let lengths = column(&rows, |row| row.parent.map(|parent| i64::from(parent.length)));
        let depths = column(&rows, |row| i64::from(row.depth));
        let inherited = column(&rows, |row| i64::from(row.inherited));
        let params: [&(dyn ToSql + Sync); 6] = [&ids, &tenants, &parents, &lengths, &depths, &inherited];
        self.execute(&self.session.statements.insert_boxes, &params, None).await
    }

    async fn insert_box_rows(&self) -> Result<(), Failure> {
        let rows = self.all(|log| &log.box_rows);
        if rows.is_empty() {
            return Ok(());
        }
        let boxes = column(&rows, |(id, ..)| id.as_bytes().as_slice());
        let positions = column(&rows, |(_, position, _)| *position);
        let items = column(&rows, |(.., item)| item.as_bytes().as_slice());
        self.execute(&self.session.statements.insert_box_rows, &[&boxes, &positions, &items], None).await
    }

    async fn insert_outbox(&self) -> Result<(), Failure> {
        let rows = self.all(|log| &log.outbox);
        if rows.is_empty() {
            return Ok(());
        }
        let tenants = column(&rows, |(agent, ..)| Text(agent.tenant.as_str()));
        let agents = column(&rows, |(agent, ..)| Text(agent.agent.as_str()));
        let runs = column(&rows, |(_, run, ..)| run.as_bytes().as_slice());
        let firsts = column(&rows, |(_, _, first, _)| int(*first));
        let counts = column(&rows, |(.., count)| i64::from(*count));
        self.execute(&self.session.statements.insert_outbox, &[&tenants, &agents, &runs, &firsts, &counts], None).await
    }

    async fn forget_outbox(&self) -> Result<(), Failure> {
        let rows: Vec<i64> = self.logs.iter().flat_map(|log| &log.published).map(|n| int(*n)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.execute(&self.session.statements.forget_outbox, &[&rows], None).await
    }
}

fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// A count that is not as it must be was made an error by the statement. For new heads it means that another server made one
/// at the same time; for everything else, that a row is not there.
fn trouble(failure: Failure) -> Trouble {
    if failure.error.code() != Some(&SqlState::DIVISION_BY_ZERO) {
        return failure.error.into();
    }
    match failure.missing {
        Some(what) => Trouble::Failed(is_missing(what)),
        None => Trouble::Again("another server made the same agent".into()),
    }
}
