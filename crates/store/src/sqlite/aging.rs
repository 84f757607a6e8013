//! The scan for runs that are old enough to be erased, in SQLite.

use std::collections::BTreeSet;

use rusqlite::{Row, params};
use windlass_kernel::{RunId, Tenant};
use windlass_ports::{AgedPage, AgedScan};

use super::{
    columns::{count, id, limit as as_limit, maybe_id, maybe_time, time},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::{
    aging::{ListedRun, OldRuns},
    rows::{ConversationReads, Result},
};

/// Less than every id.
const NO_LOWER_BOUND: [u8; 0] = [];

impl<P: Prepared> SqliteRows<P> {
    /// Ended runs of a tenant that are old enough to be erased and that nothing needs.
    pub(super) fn aged(&self, scan: &AgedScan) -> Result<AgedPage> {
        let after = scan.after.as_ref().map_or(NO_LOWER_BOUND.as_slice(), |run| RunId::as_bytes(run));
        let sql = "SELECT run, agent, created_at, ended_at, coalesce(length(note), 0) FROM runs INDEXED BY runs_listed
                   WHERE tenant = ?1 AND unlisted = 0 AND run > ?2 ORDER BY run LIMIT ?3";
        let read = |row: &Row<'_>| {
            let (run, agent) = (id(row, 0, RunId::from_slice)?, row.get(1)?);
            Ok(ListedRun { run, agent, created_at: time(row, 2)?, ended_at: maybe_time(row, 3)?, note_bytes: count(row, 4)? })
        };
        let listed = self.all(sql, params![scan.tenant.as_str(), after, as_limit(scan.looks)], read)?;
        let old = OldRuns::of(scan, &listed);
        if old.is_empty() {
            return Ok(old.page(&BTreeSet::new(), &BTreeSet::new()));
        }
        let mut existing = BTreeSet::new();
        for conversation in old.conversations() {
            if self.conversation(conversation)?.is_some() {
                existing.insert(conversation);
            }
        }
        Ok(old.page(&self.needed_runs(&scan.tenant)?, &existing))
    }

    /// The runs that open runs of a tenant continue, or whose calls they inherit.
    fn needed_runs(&self, tenant: &Tenant) -> Result<BTreeSet<RunId>> {
        let sql = "SELECT r.follows, r.takes FROM heads AS h INDEXED BY heads_active JOIN runs AS r ON r.run = h.run
                   WHERE h.tenant = ?1 AND h.run IS NOT NULL AND (r.follows IS NOT NULL OR r.takes IS NOT NULL)
                   UNION ALL SELECT follows, takes FROM runs INDEXED BY runs_queued
                   WHERE tenant = ?1 AND epoch IS NULL AND status = 'queued' AND (follows IS NOT NULL OR takes IS NOT NULL)";
        let read = |row: &Row<'_>| Ok([maybe_id(row, 0, RunId::from_slice)?, maybe_id(row, 1, RunId::from_slice)?]);
        let needed: Vec<[Option<RunId>; 2]> = self.all(sql, params![tenant.as_str()], read)?;
        Ok(needed.into_iter().flatten().flatten().collect())
    }
}
