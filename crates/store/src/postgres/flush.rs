//! Sends what verbs wrote to their overlays: a few statements for all tables, and the commit right behind them.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio_postgres::{Statement, error::SqlState, types::ToSql};
use windlass_kernel::{AgentKey, Below, ItemId, NewItem, Tenant};
use windlass_ports::{MessageId, codec};

use super::{
    columns::{Text, int},
    pg_error::PgError,
    session::Session,
    write_set::{CallWrite, HeadWrite, RunWrite, WriteSet},
};
use crate::{
    rows::{RunRow, missing_row},
    spelling,
};

/// All writes of the members of a transaction.
pub(super) struct Writes<'a> {
    pub(super) session: &'a Session,
    pub(super) write_sets: &'a [WriteSet],
    /// Hashes of new content, which were computed before any lock was taken.
    pub(super) hashes: &'a BTreeMap<ItemId, [u8; 16]>,
    /// The slot of this connection for counts of open runs.
    pub(super) slot: i64,
    /// Manifests that are not known to be stored.
    pub(super) manifests: &'a BTreeMap<(Tenant, [u8; 32]), Bytes>,
}

/// The failure of a statement. `missing` is its meaning if a row was not found.
pub(super) struct Failure {
    pub(super) error: tokio_postgres::Error,
    pub(super) missing: Option<&'static str>,
}

pub(super) type Sent<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A column of rows, as the array that a statement takes.
type Array<'a> = Box<dyn ToSql + Send + Sync + 'a>;

/// Rows for one table, column by column.
pub(super) struct Part<'a> {
    arrays: Vec<Array<'a>>,
    has_rows: bool,
}

impl<'a> Part<'a> {
    pub(super) fn of<R>(rows: &[R], arrays: impl Into<Vec<Array<'a>>>) -> Self {
        Part { arrays: arrays.into(), has_rows: !rows.is_empty() }
    }
}

impl Writes<'_> {
    /// Writes everything and commits, in one round trip. The results of the statements count, not that of the commit: after an error a
    /// commit becomes a rollback and reports no error.
    pub(super) async fn commit(&self) -> Result<(), PgError> {
        let statements = &self.session.statements;
        let begun_and_ended = [self.new_runs(), self.changed_runs(), self.boxes(), self.open_runs()];
        let iterations = [
            self.heads(false),
            self.journal_batches(),
            self.items(),
            self.box_rows(),
            self.new_messages(),
            self.new_calls(),
            self.moved_calls(),
            self.retries(),
        ];
        let mut sent: Vec<Sent<'_>> = self.dropping();
        sent.extend([
            // Before the runs, whose statement looks for the manifests.
            self.send(&statements.insert_manifests, [self.manifests()], None),
            self.send(&statements.insert_heads, [self.heads(true)], None),
            self.send(&statements.delete_heads, [self.gone_heads()], Some("a head that is forgotten")),
            self.send(&statements.write_ends, begun_and_ended, Some("a run that changes")),
            self.send(&statements.mark_children, [self.child_runs()], Some("a child run that begins")),
            self.send(&statements.activate_runs, [self.activated_runs()], Some("a run that is leased")),
            self.send(&statements.write_iterations, iterations, Some("a call that moves")),
            self.send(&statements.forget_deltas, [self.settled()], None),
            self.send(&statements.mark_below, [self.child_results()], Some("the result of a child run")),
            self.send(&statements.update_messages, [self.changed_messages()], Some("a message that changes")),
            self.send(&statements.update_calls, [self.changed_calls()], Some("a call that changes")),
            self.send(&statements.insert_outbox, [self.outbox()], None),
            self.send(&statements.forget_outbox, [self.published()], None),
        ]);
        sent.extend(self.interrupting());
        sent.extend(self.answering());
        sent.extend(self.requesting());
        sent.extend(self.counting());
        sent.extend(self.conversing());
        sent.extend(self.erasing());
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
        let Some(first) = failures.into_iter().find(|failure| !PgError::is_echo(&failure.error)) else {
            return Ok(ended?);
        };
        Err(to_pg_error(first))
    }

    pub(super) fn all<'s, T>(&'s self, of: impl Fn(&'s WriteSet) -> T) -> Vec<T::Item>
    where
        T: IntoIterator + 's,
    {
        self.write_sets.iter().flat_map(of).collect()
    }

    /// One statement, which may write several tables. It is not sent if there are no rows.
    pub(super) fn send<'s, const N: usize>(
        &'s self,
        statement: &'s Statement,
        parts: [Part<'s>; N],
        missing: Option<&'static str>,
    ) -> Sent<'s> {
        Box::pin(async move {
            if !parts.iter().any(|part| part.has_rows) {
                return Ok(());
            }
            let arrays: Vec<&(dyn ToSql + Sync)> = parts.iter().flat_map(|part| &part.arrays).map(|array| &**array as _).collect();
            self.session.client.execute(statement, &arrays).await.map(drop).map_err(|error| Failure { error, missing })
        })
    }

    fn heads(&self, is_new: bool) -> Part<'_> {
        let mut rows: Vec<(&AgentKey, &HeadWrite)> =
            self.all(|write_set| write_set.heads.iter().filter(move |(_, write)| write.is_new == is_new));
        // All servers insert in the same order, so that servers which make the same heads at once can't deadlock.
        rows.sort_unstable_by_key(|(agent, _)| *agent);
        Part::of(
            &rows,
            [
                column(&rows, |(agent, _)| Text(agent.tenant.as_str())),
                column(&rows, |(agent, _)| Text(agent.agent.as_str())),
                column(&rows, |(_, write)| write.head.status.as_str()),
                column(&rows, |(_, write)| int(write.head.epoch.0)),
                column(&rows, |(_, write)| int(write.head.seq.0)),
                column(&rows, |(_, write)| write.head.run.as_ref().map(|run| run.as_bytes().as_slice())),
                column(&rows, |(_, write)| write.head.owner.map(|node| int(node.0))),
                column(&rows, |(_, write)| i64::from(write.head.waiting)),
                column(&rows, |(_, write)| write.head.deadline.map(|at| at.0)),
                column(&rows, |(_, write)| write.head.wake_at.map(|at| at.0)),
                column(&rows, |(_, write)| i64::from(write.head.pending)),
                column(&rows, |(_, write)| i64::from(write.head.queued)),
                column(&rows, |(_, write)| int(write.head.runs)),
                column(&rows, |(_, write)| i64::from(write.head.local)),
                column(&rows, |(_, write)| write.head.quarantined.as_deref().map(Text)),
                column(&rows, |(_, write)| write.head.held),
            ],
        )
    }

    fn gone_heads(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.gone_heads);
        Part::of(&rows, [column(&rows, |agent| Text(agent.tenant.as_str())), column(&rows, |agent| Text(agent.agent.as_str()))])
    }

    fn new_runs(&self) -> Part<'_> {
        let mut rows: Vec<&RunRow> = self.all(|write_set| write_set.new_runs.values());
        rows.sort_unstable_by_key(|row| (&row.brief.agent.tenant, &row.dedupe));
        Part::of(
            &rows,
            [
                column(&rows, |row| row.brief.run.as_bytes().as_slice()),
                column(&rows, |row| Text(row.brief.agent.tenant.as_str())),
                column(&rows, |row| Text(row.brief.agent.agent.as_str())),
                column(&rows, |row| int(row.brief.ordinal)),
                column(&rows, |row| row.brief.status.as_str()),
                column(&rows, |row| row.brief.epoch.map(|epoch| int(epoch.0))),
                column(&rows, |row| int(row.brief.message.0)),
                column(&rows, |row| row.kind.as_str()),
                column(&rows, |row| row.dedupe.as_deref().map(Text)),
                column(&rows, |row| row.manifest.as_slice()),
                column(&rows, |row| row.context.as_bytes().as_slice()),
                column(&rows, |row| row.output.as_bytes().as_slice()),
                column(&rows, |row| i64::from(row.state_version)),
                column(&rows, |row| row.state.as_ref()),
                column(&rows, |row| i64::from(row.iteration)),
                column(&rows, |row| row.lineage.trace.as_slice()),
                column(&rows, |row| row.lineage.parent_step.as_deref().map(Text)),
                column(&rows, |row| row.lineage.source.as_deref().map(Text)),
                column(&rows, |row| i64::from(row.lineage.depth)),
                column(&rows, |row| row.deliverable.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |row| row.created_at.0),
                column(&rows, |row| row.ended_at.map(|at| at.0)),
                column(&rows, |row| row.note.as_deref()),
                column(&rows, |row| row.takes.as_ref().map(|run| run.as_bytes().as_slice())),
                column(&rows, |row| row.erase_ms.map(int)),
                column(&rows, |row| int(row.held_ms)),
                column(&rows, |row| row.follows.as_ref().map(|run| run.as_bytes().as_slice())),
                column(&rows, |row| row.brief.agent_name.as_ref().map(|name| Text(name.as_str()))),
                column(&rows, |row| row.unlisted),
            ],
        )
    }

    fn child_runs(&self) -> Part<'_> {
        let rows: Vec<&RunRow> = self.all(|write_set| write_set.new_runs.values().filter(|row| row.parent.is_some()));
        Part::of(
            &rows,
            [
                column(&rows, |row| row.brief.run.as_bytes().as_slice()),
                column(&rows, |row| row.parent.as_ref().map(|parent| parent.run.as_bytes().as_slice())),
                column(&rows, |row| row.parent.as_ref().map(|parent| Text(parent.head.as_str()))),
                column(&rows, |row| row.parent.as_ref().map(|parent| i64::from(parent.call.0))),
            ],
        )
    }

    fn child_results(&self) -> Part<'_> {
        let inserted = |write_set: &'_ WriteSet| {
            let rows = write_set.messages.iter().filter_map(|(id, write)| Some((*id, write.inserted()?.1.below?)));
            rows.collect::<Vec<_>>()
        };
        let rows: Vec<(MessageId, Below)> = self.all(inserted);
        Part::of(&rows, [column(&rows, |(id, _)| int(id.0)), column(&rows, |(_, below)| codec::encode_below(&below))])
    }

    fn changed_runs(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.runs.values().filter_map(RunWrite::changed));
        Part::of(
            &rows,
            [
                column(&rows, |change| change.run.as_bytes().as_slice()),
                column(&rows, |change| change.status.as_str()),
                column(&rows, |change| change.epoch.map(|epoch| int(epoch.0))),
                column(&rows, |_| i64::from(codec::VERSION)),
                column(&rows, |change| change.state.as_ref()),
                column(&rows, |change| i64::from(change.iteration)),
                column(&rows, |change| change.deliverable.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |change| change.ended_at.map(|at| at.0)),
            ],
        )
    }

    fn activated_runs(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.runs.iter().filter_map(|(run, write)| Some((run, write.activated()?))));
        Part::of(&rows, [column(&rows, |(run, _)| run.as_bytes().as_slice()), column(&rows, |(_, epoch)| int(epoch.0))])
    }

    fn manifests(&self) -> Part<'_> {
        let rows: Vec<(&(Tenant, [u8; 32]), &Bytes)> = self.manifests.iter().collect();
        Part::of(
            &rows,
            [
                column(&rows, |((tenant, _), _)| Text(tenant.as_str())),
                column(&rows, |((_, hash), _)| hash.as_slice()),
                column(&rows, |(_, body)| body.as_ref()),
            ],
        )
    }

    fn open_runs(&self) -> Part<'_> {
        let mut changes: BTreeMap<&Tenant, i64> = BTreeMap::new();
        for (tenant, change) in self.write_sets.iter().flat_map(|write_set| &write_set.open_runs) {
            *changes.entry(tenant).or_default() += change;
        }
        let rows: Vec<(&Tenant, i64)> = changes.into_iter().filter(|(_, change)| *change != 0).collect();
        Part::of(&rows, [column(&rows, |(tenant, _)| Text(tenant.as_str())), column(&rows, |(_, change)| change), Box::new(self.slot)])
    }

    fn journal_batches(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.journal_batches);
        Part::of(
            &rows,
            [
                column(&rows, |(run, ..)| run.as_bytes().as_slice()),
                column(&rows, |(_, batch, _)| int(batch.first)),
                column(&rows, |(_, batch, _)| batch.epoch.map(|epoch| int(epoch.0))),
                column(&rows, |(_, batch, _)| batch.at.0),
                column(&rows, |(_, batch, _)| i64::from(batch.version)),
                column(&rows, |(.., events)| events.as_str()),
            ],
        )
    }

    fn settled(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.settled);
        Part::of(&rows, [column(&rows, |run| run.as_bytes().as_slice())])
    }

    fn new_messages(&self) -> Part<'_> {
        let rows =
            self.all(|write_set| write_set.messages.iter().filter_map(|(id, write)| write.inserted().map(|(agent, row)| (id, agent, row))));
        Part::of(
            &rows,
            [
                column(&rows, |(id, ..)| int(id.0)),
                column(&rows, |(_, agent, _)| Text(agent.tenant.as_str())),
                column(&rows, |(_, agent, _)| Text(agent.agent.as_str())),
                column(&rows, |(.., row)| row.kind.as_str()),
                column(&rows, |(.., row)| row.status.as_str()),
                column(&rows, |(.., row)| row.run.as_ref().map(|run| run.as_bytes().as_slice())),
                column(&rows, |(.., row)| row.epoch.map(|epoch| int(epoch.0))),
                column(&rows, |(.., row)| row.call.map(|call| i64::from(call.0))),
                column(&rows, |(.., row)| row.item.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |(.., row)| row.outcome.map(|outcome| outcome.as_str())),
                column(&rows, |(.., row)| row.after.map(spelling::after)),
                column(&rows, |(.., row)| row.source.as_deref().map(Text)),
                column(&rows, |(.., row)| row.reason.as_deref().map(Text)),
                column(&rows, |(.., row)| row.created_at.0),
                column(&rows, |(.., row)| row.processed_at.map(|at| at.0)),
            ],
        )
    }

    /// The numbers of repetitions of the new messages, and then of the calls that move.
    fn retries(&self) -> Part<'_> {
        let messages = self.all(|write_set| write_set.messages.values().filter_map(|write| Some(write.inserted()?.1.retry)));
        let calls = self.all(|write_set| write_set.calls.values().filter_map(|write| Some(write.moved()?.retry)));
        Part::of(&messages, [column(&messages, i64::from), column(&calls, |retry: Option<u32>| retry.map(i64::from))])
    }

    fn changed_messages(&self) -> Part<'_> {
        let rows = self.all(|write_set| {
            write_set.messages.iter().filter_map(|(id, write)| write.changed().map(|(agent, change)| (id, agent, change)))
        });
        Part::of(
            &rows,
            [
                column(&rows, |(id, ..)| int(id.0)),
                column(&rows, |(_, agent, _)| Text(agent.tenant.as_str())),
                column(&rows, |(_, agent, _)| Text(agent.agent.as_str())),
                column(&rows, |(.., change)| change.status.as_str()),
                column(&rows, |(.., change)| change.epoch.map(|epoch| int(epoch.0))),
                column(&rows, |(.., change)| change.processed_at.map(|at| at.0)),
                column(&rows, |(.., change)| change.reason.as_deref().map(Text)),
            ],
        )
    }

    fn new_calls(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.calls.values().filter_map(CallWrite::inserted));
        Part::of(
            &rows,
            [
                column(&rows, |row| Text(row.agent.tenant.as_str())),
                column(&rows, |row| Text(row.agent.agent.as_str())),
                column(&rows, |row| row.run.as_bytes().as_slice()),
                column(&rows, |row| i64::from(row.call.0)),
                column(&rows, |row| i64::from(row.iteration)),
                column(&rows, |row| Text(row.tool.as_str())),
                column(&rows, |row| spelling::route(row.route)),
                column(&rows, |row| spelling::effect(row.effect)),
                column(&rows, |row| row.status.as_str()),
                column(&rows, |row| row.created_at.0),
                column(&rows, |row| row.deadline.0),
                column(&rows, |row| row.item.as_bytes().as_slice()),
                column(&rows, |row| row.result.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |row| row.worker.as_deref().map(Text)),
                column(&rows, |row| row.lease_until.map(|at| at.0)),
                column(&rows, |row| i64::from(row.attempt)),
                column(&rows, |row| row.claim_key.as_deref().map(Text)),
            ],
        )
    }

    fn changed_calls(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.calls.values().filter_map(CallWrite::updated));
        Part::of(
            &rows,
            [
                column(&rows, |row| row.run.as_bytes().as_slice()),
                column(&rows, |row| i64::from(row.call.0)),
                column(&rows, |row| row.status.as_str()),
                column(&rows, |row| row.deadline.0),
                column(&rows, |row| row.result.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |row| row.worker.as_deref().map(Text)),
                column(&rows, |row| row.lease_until.map(|at| at.0)),
                column(&rows, |row| i64::from(row.attempt)),
                column(&rows, |row| row.claim_key.as_deref().map(Text)),
            ],
        )
    }

    fn moved_calls(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.calls.iter().filter_map(|(key, write)| Some((key, write.moved()?))));
        Part::of(
            &rows,
            [
                column(&rows, |((run, _), _)| run.as_bytes().as_slice()),
                column(&rows, |((_, call), _)| i64::from(call.0)),
                column(&rows, |(_, moved)| moved.status.as_str()),
                column(&rows, |(_, moved)| moved.result.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |(_, moved)| moved.deadline.map(|at| at.0)),
                column(&rows, |(_, moved)| moved.item.as_ref().map(|item| item.as_bytes().as_slice())),
            ],
        )
    }

    fn items(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.items);
        let hash = |item: &NewItem| match self.hashes.get(&item.id) {
            Some(taken) => Cow::Borrowed(taken.as_slice()),
            None => Cow::Owned(codec::content_hash(&item.content).to_vec()),
        };
        Part::of(
            &rows,
            [
                column(&rows, |(_, item)| item.id.as_bytes().as_slice()),
                column(&rows, |(tenant, _)| Text(tenant.as_str())),
                column(&rows, |(_, item)| item.kind.as_str()),
                column(&rows, |(_, item)| hash(item)),
                column(&rows, |(_, item)| item.content.as_ref()),
                column(&rows, |(_, item)| codec::encode_header(item.header.as_ref())),
            ],
        )
    }

    fn boxes(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.boxes);
        Part::of(
            &rows,
            [
                column(&rows, |row| row.id.as_bytes().as_slice()),
                column(&rows, |row| Text(row.tenant.as_str())),
                column(&rows, |row| row.parent.as_ref().map(|parent| parent.id.as_bytes().as_slice())),
                column(&rows, |row| row.parent.map(|parent| i64::from(parent.length))),
                column(&rows, |row| i64::from(row.depth)),
                column(&rows, |row| i64::from(row.inherited)),
            ],
        )
    }

    fn box_rows(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.box_rows);
        Part::of(
            &rows,
            [
                column(&rows, |(id, ..)| id.as_bytes().as_slice()),
                column(&rows, |(_, position, _)| *position),
                column(&rows, |(.., item)| item.as_bytes().as_slice()),
            ],
        )
    }

    fn outbox(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.outbox);
        Part::of(
            &rows,
            [
                column(&rows, |(agent, ..)| Text(agent.tenant.as_str())),
                column(&rows, |(agent, ..)| Text(agent.agent.as_str())),
                column(&rows, |(_, run, ..)| run.as_bytes().as_slice()),
                column(&rows, |(_, _, first, _)| int(*first)),
                column(&rows, |(.., count)| i64::from(*count)),
            ],
        )
    }

    fn published(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.published);
        Part::of(&rows, [column(&rows, |n| int(*n))])
    }
}

pub(super) fn column<'a, R: Copy, T>(rows: &[R], value: impl Fn(R) -> T) -> Array<'a>
where
    Vec<T>: ToSql + Send + Sync + 'a,
{
    Box::new(rows.iter().copied().map(value).collect::<Vec<T>>())
}

/// The statements turn an unexpected number of rows into an error. For new heads and for boxes it means that another server was faster; for
/// everything else, that a row is missing.
fn to_pg_error(failure: Failure) -> PgError {
    if failure.error.code() == Some(&SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION) {
        return PgError::Again("a manifest was erased after it was stored".into());
    }
    if failure.error.code() != Some(&SqlState::DIVISION_BY_ZERO) {
        return failure.error.into();
    }
    match failure.missing {
        Some(what) => PgError::Failed(missing_row(what)),
        None => PgError::Again("somebody else made or changed the same rows".into()),
    }
}
