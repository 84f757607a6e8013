//! The part of migration 13 that SQL can't express: interrupts that an earlier version opened get rows. They are only in the journals of
//! their runs, as runs and calls that are parked. The statements name the columns of that version of the schema.

use tokio_postgres::{Row, Transaction};
use windlass_kernel::{Epoch, Interrupt, Run, Timestamp};
use windlass_ports::codec;

use super::{columns::int, open::PostgresOpenError};
use crate::{journal_batch::JournalBatch, reading::state_after, rows::pack_names};

/// The number of that migration.
pub(super) const MIGRATION: i64 = 13;

/// The number of heads that are read at once.
const PAGE: i64 = 1_000;

/// Stores the open interrupts of all active runs and marks the heads that they hold, in the transaction of the migration. A run that can't
/// be read is left out: its head is quarantined as soon as a worker looks at it.
pub(super) async fn store_interrupts(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    let page = "SELECT h.tenant, h.agent, h.run, r.state_version, r.state FROM heads h JOIN runs r ON r.run = h.run
                WHERE h.status = 'suspended' AND (h.tenant, h.agent) > ($1, $2) ORDER BY h.tenant, h.agent LIMIT $3";
    let mut last = (String::new(), String::new());
    loop {
        let heads = transaction.query(page, &[&last.0, &last.1, &PAGE]).await?;
        let Some(end) = heads.last() else { return Ok(()) };
        last = (end.try_get(0)?, end.try_get(1)?);
        for head in &heads {
            let (agent, run): (&str, &[u8]) = (head.try_get(1)?, head.try_get(2)?);
            let version = u16::try_from(head.try_get::<_, i64>(3)?).unwrap_or(u16::MAX);
            let stored = codec::decode_run(version, head.try_get(4)?);
            let next = stored.as_ref().ok().and_then(Option::as_ref).map_or(0, |run| run.next_number);
            let batches = batches_from(transaction, run, next).await?;
            match stored.and_then(|stored| state_after(stored, &batches)) {
                Ok(state) => store(transaction, run, &state).await?,
                Err(error) => tracing::warn!(%error, agent, "the interrupts of a run cannot be read"),
            }
        }
    }
}

/// A run's journal from the batch on that has this event.
async fn batches_from(transaction: &Transaction<'_>, run: &[u8], next: u64) -> Result<Vec<(JournalBatch, String)>, PostgresOpenError> {
    let sql = "SELECT s.first, s.epoch, s.at, s.version, s.events FROM stretches s
               WHERE s.run = $1 AND s.first >= coalesce((SELECT max(b.first) FROM stretches b WHERE b.run = $1 AND b.first <= $2), $2)
               ORDER BY s.first";
    transaction.query(sql, &[&run, &int(next)]).await?.iter().map(batch).collect()
}

fn batch(row: &Row) -> Result<(JournalBatch, String), PostgresOpenError> {
    let epoch: Option<i64> = row.try_get(1)?;
    let batch = JournalBatch {
        first: row.try_get::<_, i64>(0)?.unsigned_abs(),
        epoch: epoch.map(|number| Epoch(number.unsigned_abs())),
        at: Timestamp(row.try_get(2)?),
        version: u16::try_from(row.try_get::<_, i64>(3)?).unwrap_or(u16::MAX),
    };
    Ok((batch, row.try_get(4)?))
}

async fn store(transaction: &Transaction<'_>, run: &[u8], state: &Run) -> Result<(), PostgresOpenError> {
    let sql =
        "INSERT INTO interrupts (tenant, run, n, head, agent_name, cause, call, shows, created_at, until, on_timeout, needs, approvals)
               SELECT r.tenant, r.run, $2::bigint, r.agent, r.agent_name, $3::text, $4::bigint, $5::bytea, s.at, $6::bigint, $7::text,
                   $8::bigint, $9::text
               FROM runs r JOIN stretches s ON s.run = r.run
               WHERE r.run = $1 AND s.first = (SELECT max(b.first) FROM stretches b WHERE b.run = $1 AND b.first <= $2)";
    for interrupt in &state.interrupts {
        let Interrupt { number, cause, call, shows, until, on_timeout, needs, approvals, budget: _, at: _ } = interrupt;
        let (number, call, needs) = (int(*number), call.map(|call| i64::from(call.0)), i64::from(*needs));
        let (shows, until) = (shows.as_ref().map(|item| item.as_bytes().as_slice()), until.map(|at| at.0));
        let (cause, reaction, approvals) = (cause.as_str(), on_timeout.as_str(), pack_names(approvals));
        transaction.execute(sql, &[&run, &number, &cause, &call, &shows, &until, &reaction, &needs, &approvals]).await?;
    }
    if state.is_held() {
        transaction.execute("UPDATE heads SET held = true WHERE run = $1", &[&run]).await?;
    }
    Ok(())
}
