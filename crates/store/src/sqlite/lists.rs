//! The statements for lists, in SQLite.

use bytes::Bytes;
use rusqlite::{Row, params};
use windlass_kernel::{BoxId, ItemKind, RunId, Tenant};
use windlass_ports::{AgentSummary, INSTRUCTION_BYTES_MAX, INSTRUCTION_ITEMS_MAX, RUNS_COUNTED_MAX, RunScan, RunSet};

use super::{
    columns::{count, limit as as_limit, time, variant},
    prepared::Prepared,
    reads::{brief_columns, run, run_columns},
    statements::SqliteRows,
};
use crate::{
    listing::RUNS_AT_ONCE_MAX,
    rows::{ListReads, Result, RunRow},
};

/// Greater than every id of a run.
const NO_BOUND: [u8; 17] = [0xff; 17];

impl<P: Prepared> ListReads for SqliteRows<P> {
    fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<Vec<RunRow>> {
        let below = scan.below.as_ref().map_or(NO_BOUND.as_slice(), |run| RunId::as_bytes(run));
        let (tenant, limit) = (tenant.as_str(), as_limit(scan.limit));
        match &scan.set {
            RunSet::All => {
                let sql = concat!(
                    "SELECT ",
                    run_columns!(),
                    " FROM runs INDEXED BY runs_listed WHERE tenant = ?1 AND run < ?2 AND unlisted = 0 ORDER BY run DESC LIMIT ?3"
                );
                self.all(sql, params![tenant, below, limit], run)
            }
            RunSet::Named(name) => {
                // Ordinals and ids of one head have the same order but for runs that were accepted at the same moment. Reading some rows
                // more keeps such runs on one page.
                let sql = concat!(
                    "SELECT ",
                    run_columns!(),
                    " FROM runs WHERE run IN (
                        SELECT run FROM (SELECT run FROM runs INDEXED BY runs_named WHERE tenant = ?1 AND agent_name = ?4
                                         AND agent_name <> agent AND unlisted = 0 AND run < ?2 ORDER BY run DESC LIMIT ?3)
                        UNION ALL
                        SELECT run FROM (SELECT run FROM runs INDEXED BY runs_ordinal
                                         WHERE tenant = ?1 AND agent = ?4 AND agent_name = ?4 AND run < ?2 AND ordinal < ?5 + coalesce(
                                            (SELECT ordinal FROM runs WHERE run = ?2 AND tenant = ?1 AND agent = ?4), 1 << 60)
                                         ORDER BY ordinal DESC LIMIT ?3 + ?5)
                      ) ORDER BY run DESC LIMIT ?3"
                );
                self.all(sql, params![tenant, below, limit, name.as_str(), RUNS_AT_ONCE_MAX], run)
            }
            RunSet::Children(parent) => {
                let sql = concat!(
                    "SELECT ",
                    run_columns!(),
                    " FROM runs INDEXED BY runs_children WHERE tenant = ?1 AND parent = ?4 AND run < ?2 ORDER BY run DESC LIMIT ?3"
                );
                self.all(sql, params![tenant, below, limit, parent.as_bytes()], run)
            }
            RunSet::Open => {
                let sql = concat!(
                    "SELECT ",
                    run_columns!(),
                    " FROM runs WHERE run IN (
                        SELECT run FROM (SELECT run FROM heads INDEXED BY heads_active WHERE tenant = ?1 AND run < ?2 AND run IS NOT NULL
                                         ORDER BY run DESC LIMIT ?3)
                        UNION ALL
                        SELECT run FROM (SELECT run FROM runs INDEXED BY runs_queued WHERE tenant = ?1 AND run < ?2 AND epoch IS NULL
                                         ORDER BY run DESC LIMIT ?3)
                      ) ORDER BY run DESC LIMIT ?3"
                );
                self.all(sql, params![tenant, below, limit], run)
            }
        }
    }

    fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>> {
        // Each name of `runs_named` is looked up as the next one in the index: what lies between two names is not read. Runs are counted
        // for the names of the page only.
        let sql = "WITH RECURSIVE others (name) AS (
                       SELECT min(agent_name) FROM runs INDEXED BY runs_named
                       WHERE tenant = ?1 AND agent_name > ?2 AND agent_name <> agent AND unlisted = 0
                       UNION ALL
                       SELECT (SELECT min(agent_name) FROM runs INDEXED BY runs_named
                               WHERE tenant = ?1 AND agent_name > name AND agent_name <> agent AND unlisted = 0)
                       FROM others WHERE name IS NOT NULL LIMIT ?3),
                   names (name) AS (
                       SELECT name FROM others WHERE name IS NOT NULL
                       UNION
                       SELECT agent FROM (SELECT agent FROM heads INDEXED BY heads_named WHERE tenant = ?1 AND agent > ?2 AND named = 1
                           AND EXISTS (SELECT 1 FROM (SELECT unlisted FROM runs INDEXED BY runs_ordinal
                               WHERE tenant = ?1 AND agent = heads.agent ORDER BY ordinal DESC LIMIT ?4) WHERE unlisted = 0)
                           ORDER BY agent LIMIT ?3)
                       ORDER BY 1 LIMIT ?3),
                   counted (name, runs, newest) AS (
                       SELECT name,
                           (SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_named
                               WHERE tenant = ?1 AND agent_name = name AND agent_name <> agent AND unlisted = 0 LIMIT ?4)) +
                           (SELECT count(*) FROM (SELECT unlisted FROM runs INDEXED BY runs_ordinal
                               WHERE tenant = ?1 AND agent = name ORDER BY ordinal DESC LIMIT ?4) WHERE unlisted = 0),
                           (SELECT max(created_at) FROM (
                               SELECT * FROM (SELECT created_at FROM runs INDEXED BY runs_named
                                   WHERE tenant = ?1 AND agent_name = name AND agent_name <> agent AND unlisted = 0 ORDER BY run DESC LIMIT 1)
                               UNION ALL
                               SELECT * FROM (SELECT created_at FROM (SELECT created_at, unlisted FROM runs INDEXED BY runs_ordinal
                                   WHERE tenant = ?1 AND agent = name ORDER BY ordinal DESC LIMIT ?4) WHERE unlisted = 0 LIMIT 1)))
                       FROM names)
                   SELECT name, min(runs, ?4), newest FROM counted ORDER BY name";
        let read = |row: &Row<'_>| {
            Ok(AgentSummary { name: variant(row, 0, |text| Some(text.into()))?, runs: count(row, 1)?, last_run_at: time(row, 2)? })
        };
        self.all(sql, params![tenant.as_str(), after, as_limit(limit), as_limit(RUNS_COUNTED_MAX)], read)
    }

    fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>> {
        let sql = "SELECT CAST(substr(i.content, 1, ?3) AS BLOB) FROM (
                       SELECT item, position FROM box_rows WHERE box = ?1 AND position >= 0 ORDER BY position DESC LIMIT ?4
                   ) AS r CROSS JOIN items AS i ON i.item = r.item
                   WHERE i.kind = ?5 AND i.tenant = ?2 ORDER BY r.position DESC LIMIT 1";
        let (bytes, items) = (as_limit(INSTRUCTION_BYTES_MAX), as_limit(INSTRUCTION_ITEMS_MAX));
        let params = params![id.as_bytes(), tenant.as_str(), bytes, items, ItemKind::Instruction.as_str()];
        Ok(self.one(sql, params, |row| row.get::<_, Vec<u8>>(0))?.map(Bytes::from))
    }
}
