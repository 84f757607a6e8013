//! The part of migration 13 that SQL can't express: interrupts that an earlier version opened get rows. They are only in the journals of
//! their runs, as runs and calls that are parked. The statements name the columns of that version of the schema.

use rusqlite::{Connection, Row, params};
use windlass_kernel::{Interrupt, Run};
use windlass_ports::codec;

use crate::{
    journal_batch::JournalBatch,
    reading::state_after,
    rows::{Result, pack_names},
};

use super::columns::{count, int, maybe_epoch, time};

/// The number of that migration.
pub(super) const MIGRATION: u32 = 13;

/// The number of heads that are read at once.
const PAGE: i64 = 1_000;

/// A head whose run may be parked.
struct Suspended {
    tenant: String,
    agent: String,
    run: Vec<u8>,
    state: Result<Option<Run>>,
}

/// Stores the open interrupts of all active runs and marks the heads that they hold, in the transaction of the migration. A run that can't
/// be read is left out: its head is quarantined as soon as a worker looks at it.
pub(super) fn store_interrupts(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT h.tenant, h.agent, h.run, r.state_version, r.state FROM heads AS h JOIN runs AS r ON r.run = h.run
               WHERE h.status = 'suspended' AND (h.tenant, h.agent) > (?1, ?2) ORDER BY h.tenant, h.agent LIMIT ?3";
    let mut page = connection.prepare(sql)?;
    let (mut tenant, mut agent) = (String::new(), String::new());
    loop {
        let heads: Vec<Suspended> = page.query_map(params![tenant, agent, PAGE], suspended)?.collect::<rusqlite::Result<_>>()?;
        let Some(last) = heads.last() else { return Ok(()) };
        (tenant, agent) = (last.tenant.clone(), last.agent.clone());
        for head in heads {
            let next = head.state.as_ref().ok().and_then(Option::as_ref).map_or(0, |run| run.next_number);
            let batches = batches_from(connection, &head.run, next)?;
            match head.state.and_then(|stored| state_after(stored, &batches)) {
                Ok(state) => store(connection, (&head.tenant, &head.agent, &head.run), &state)?,
                Err(error) => tracing::warn!(%error, agent = head.agent, "the interrupts of a run cannot be read"),
            }
        }
    }
}

fn suspended(row: &Row<'_>) -> rusqlite::Result<Suspended> {
    let body: Vec<u8> = row.get(4)?;
    Ok(Suspended { tenant: row.get(0)?, agent: row.get(1)?, run: row.get(2)?, state: codec::decode_run(row.get(3)?, &body) })
}

/// A run's journal from the batch on that has this event.
fn batches_from(connection: &Connection, run: &[u8], next: u64) -> rusqlite::Result<Vec<(JournalBatch, String)>> {
    let sql = "SELECT first, epoch, at, version, events FROM stretches
               WHERE run = ?1 AND first >= coalesce((SELECT max(first) FROM stretches WHERE run = ?1 AND first <= ?2), ?2) ORDER BY first";
    let read = |row: &Row<'_>| {
        let batch = JournalBatch { first: count(row, 0)?, epoch: maybe_epoch(row, 1)?, at: time(row, 2)?, version: row.get(3)? };
        Ok((batch, row.get(4)?))
    };
    connection.prepare_cached(sql)?.query_map(params![run, int(next)], read)?.collect()
}

fn store(connection: &Connection, (tenant, agent, run): (&str, &str, &[u8]), state: &Run) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO interrupts (tenant, run, n, head, agent_name, cause, call, shows, created_at, until, on_timeout, needs, approvals)
               SELECT r.tenant, r.run, ?2, r.agent, r.agent_name, ?3, ?4, ?5, s.at, ?6, ?7, ?8, ?9
               FROM runs AS r JOIN stretches AS s ON s.run = r.run
               WHERE r.run = ?1 AND s.first = (SELECT max(first) FROM stretches WHERE run = ?1 AND first <= ?2)";
    for interrupt in &state.interrupts {
        let Interrupt { number, cause, call, shows, until, on_timeout, needs, approvals, budget: _, at: _ } = interrupt;
        let (call, shows, until) = (call.map(|call| call.0), shows.map(|item| *item.as_bytes()), until.map(|at| at.0));
        let (cause, reaction, approvals) = (cause.as_str(), on_timeout.as_str(), pack_names(approvals));
        connection.prepare_cached(sql)?.execute(params![run, int(*number), cause, call, shows, until, reaction, needs, approvals])?;
    }
    if state.is_held() {
        connection.execute("UPDATE heads SET held = 1 WHERE tenant = ?1 AND agent = ?2", params![tenant, agent])?;
    }
    Ok(())
}
