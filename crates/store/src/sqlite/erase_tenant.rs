//! Erasing a whole tenant, in batches.

use rusqlite::params;
use windlass_kernel::{RunId, Tenant};
use windlass_ports::{TenantCursor, TenantErasure};

use super::{
    columns::{id, limit as as_limit},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{Reads, Result};

/// Tables that are read in the order of their keys, because none of their indexes begins with the tenant: how a page of keys is read, and
/// what is deleted for each key of the tenant.
const LOOKED_THROUGH: [(&str, &[&str]); 3] = [
    (
        "SELECT conversation, tenant = ?1 FROM conversations WHERE conversation > ?2 ORDER BY conversation LIMIT ?3",
        &["DELETE FROM conversation_parts WHERE conversation = ?1", "DELETE FROM conversations WHERE conversation = ?1"],
    ),
    (
        "SELECT box, tenant = ?1 FROM boxes WHERE box > ?2 ORDER BY box LIMIT ?3",
        &["DELETE FROM box_rows WHERE box = ?1", "DELETE FROM boxes WHERE box = ?1"],
    ),
    ("SELECT item, tenant = ?1 FROM items WHERE item > ?2 ORDER BY item LIMIT ?3", &["DELETE FROM items WHERE item = ?1"]),
];

/// What is changed and deleted with each run.
const OF_RUN: [&str; 8] = [
    "DELETE FROM stretches WHERE run = ?1",
    "DELETE FROM calls WHERE run = ?1",
    "DELETE FROM interrupts WHERE run = ?1",
    "DELETE FROM inbox INDEXED BY inbox_run WHERE run = ?1",
    "DELETE FROM answers WHERE run = ?1",
    "DELETE FROM usage_uncounted WHERE run = ?1",
    "UPDATE manifests SET runs = runs - 1 WHERE (tenant, hash) = (SELECT tenant, manifest FROM runs WHERE run = ?1)",
    "DELETE FROM runs WHERE run = ?1",
];

/// Tables that are found by the tenant: at most this many rows of each.
const BY_TENANT: [&str; 8] = [
    "DELETE FROM inbox WHERE n IN (SELECT n FROM inbox WHERE tenant = ?1 AND run IS NULL LIMIT ?2)",
    "DELETE FROM answers WHERE tenant = ?1 AND key IN (SELECT key FROM answers WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM requests WHERE tenant = ?1 AND hash IN (SELECT hash FROM requests WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM outbox WHERE n IN (SELECT n FROM outbox WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM manifests WHERE tenant = ?1 AND hash IN (SELECT hash FROM manifests WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM usage WHERE tenant = ?1 AND day IN (SELECT day FROM usage WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM heads WHERE tenant = ?1 AND agent IN (SELECT agent FROM heads WHERE tenant = ?1 LIMIT ?2)",
    "DELETE FROM tenants WHERE tenant = ?1 AND ?2 > 0",
];

/// The stages: the runs, each table of `LOOKED_THROUGH`, and the rest.
const LAST_STAGE: u8 = 1 + LOOKED_THROUGH.len() as u8;

impl<P: Prepared> SqliteRows<P> {
    /// Erases a batch of a tenant's rows. What is deleted is overwritten.
    pub(super) fn erase_tenant(&mut self, tenant: &Tenant, from: &TenantCursor, limit: usize) -> Result<TenantErasure> {
        // Runs that begin or end in this transaction count too, so that no content of an open run is deleted.
        let open = self.open_runs(tenant)?;
        if open > 0 {
            return Ok(TenantErasure::OpenRuns(open));
        }
        self.truncation.mark();
        let limit = limit.max(1);
        self.overwriting(|rows| match from.stage {
            0 => rows.erase_runs_of(tenant, from, limit),
            LAST_STAGE.. => rows.erase_rest_of(tenant, from, limit),
            stage => rows.erase_page_of(tenant, from, limit, LOOKED_THROUGH[usize::from(stage) - 1]),
        })
    }

    fn erase_runs_of(&mut self, tenant: &Tenant, from: &TenantCursor, limit: usize) -> Result<TenantErasure> {
        let sql = "SELECT run FROM runs INDEXED BY runs_ordinal WHERE tenant = ?1 LIMIT ?2";
        let runs = self.all(sql, params![tenant.as_str(), as_limit(limit)], |row| id(row, 0, RunId::from_slice))?;
        for run in &runs {
            self.delete_deltas(*run)?;
            OF_RUN.iter().try_for_each(|sql| self.change(sql, [run.as_bytes()]).map(drop))?;
        }
        let next = if runs.is_empty() { from.next_stage() } else { from.clone() };
        Ok(TenantErasure::Erased { rows: runs.len() as u64, next: Some(next) })
    }

    fn erase_page_of(
        &mut self,
        tenant: &Tenant,
        from: &TenantCursor,
        limit: usize,
        (page, deletes): (&'static str, &'static [&'static str]),
    ) -> Result<TenantErasure> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, bool>(1)?));
        let keys = self.all(page, params![tenant.as_str(), from.after, as_limit(limit)], read)?;
        let mut rows = 0;
        for (key, _) in keys.iter().filter(|(_, is_own)| *is_own) {
            deletes.iter().try_for_each(|sql| self.change(sql, [key]).map(drop))?;
            rows += 1;
        }
        let next = match keys.into_iter().last() {
            Some((after, _)) => TenantCursor { stage: from.stage, after },
            None => from.next_stage(),
        };
        Ok(TenantErasure::Erased { rows, next: Some(next) })
    }

    fn erase_rest_of(&mut self, tenant: &Tenant, from: &TenantCursor, limit: usize) -> Result<TenantErasure> {
        let mut rows = 0;
        for sql in BY_TENANT {
            rows += self.change(sql, params![tenant.as_str(), as_limit(limit)])? as u64;
        }
        self.forget_manifests(tenant);
        Ok(TenantErasure::Erased { rows, next: (rows > 0).then(|| from.clone()) })
    }
}
