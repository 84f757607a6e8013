//! The statements that erase runs, and those that find the runs that are due.

use rusqlite::params;
use windlass_kernel::{BoxId, RunId, Tenant, Timestamp};

use super::{
    columns::{id, limit as as_limit, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{Erasure, NO_MANIFEST, Result};

impl<P: Prepared> SqliteRows<P> {
    /// Runs whose time to be erased has passed, oldest first.
    pub(super) fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>> {
        let sql = "SELECT tenant, run FROM runs INDEXED BY runs_erasable WHERE erase_at <= ?1 ORDER BY erase_at, run LIMIT ?2";
        let read = |row: &rusqlite::Row<'_>| Ok((variant(row, 0, |text| Some(text.into()))?, id(row, 1, RunId::from_slice)?));
        self.all(sql, params![now.0, as_limit(limit)], read)
    }

    /// Erases a run. What is deleted is overwritten.
    pub(super) fn erase(&mut self, erasure: &Erasure) -> Result<()> {
        self.truncation.mark();
        self.overwriting(|rows| rows.delete_run(erasure))
    }

    fn delete_run(&mut self, erasure: &Erasure) -> Result<()> {
        let run = erasure.run.as_bytes();
        // A run has two boxes. Giving the same one twice does no harm, and an empty id finds none.
        let nth = |boxes: &[BoxId], index: usize| boxes.get(index).map(|id| *id.as_bytes());
        let of = |boxes: &[BoxId]| (nth(boxes, 0), nth(boxes, 1));
        let (gone, kept) = (of(&erasure.gone), of(&erasure.kept));
        // Copies from the parents have positions below zero: those items do not belong to the run.
        let items = "DELETE FROM items WHERE item IN (
                         SELECT item FROM inbox INDEXED BY inbox_run WHERE run = ?1 AND item IS NOT NULL
                         UNION SELECT item FROM calls WHERE run = ?1
                         UNION SELECT result FROM calls WHERE run = ?1 AND result IS NOT NULL
                         UNION SELECT item FROM box_rows WHERE box IN (?2, ?3) AND position >= 0
                         EXCEPT SELECT item FROM box_rows WHERE box IN (?4, ?5))";
        self.change(items, params![run, gone.0, gone.1, kept.0, kept.1])?;
        self.change("DELETE FROM box_rows WHERE box IN (?1, ?2)", params![gone.0, gone.1])?;
        self.change("DELETE FROM boxes WHERE box IN (?1, ?2)", params![gone.0, gone.1])?;
        self.change("DELETE FROM stretches WHERE run = ?1", [run])?;
        self.change("DELETE FROM calls WHERE run = ?1", [run])?;
        self.change("DELETE FROM interrupts WHERE run = ?1", [run])?;
        self.change("UPDATE inbox INDEXED BY inbox_run SET item = NULL, reason = NULL WHERE run = ?1", [run])?;
        self.change("DELETE FROM answers WHERE run = ?1", [run])?;
        self.delete_deltas(erasure.run)?;
        self.change("UPDATE usage_uncounted SET model = coalesce(?2, model) WHERE run = ?1", params![run, erasure.model])?;
        let sql = "UPDATE runs SET note = NULL, deliverable = NULL, erase_ms = NULL, unlisted = 1, parent_step = NULL, manifest = ?2
                   WHERE run = ?1";
        self.change_one(sql, params![run, NO_MANIFEST], "a run that is erased")?;
        match &erasure.manifest {
            Some(hash) => self.release_manifest(&erasure.agent.tenant, hash),
            None => Ok(()),
        }
    }
}
