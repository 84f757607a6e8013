//! A connection with its statements, and the state of its open transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use windlass_kernel::{Manifest, Tenant};
use windlass_ports::NodeId;

use super::{
    checkpointer::Checkpointer,
    columns::fault,
    deltas::{Deltas, Index},
    prepared::Prepared,
    truncation::Truncation,
};
use crate::rows::{Result, missing_row};

/// The most decoded manifests in the cache. There are few, and all runs of an agent share one.
const MANIFESTS_MAX: usize = 256;

/// The number of hashes that are remembered as stored. A forgotten one only causes an unnecessary write.
const KNOWN_MAX: usize = 4_096;

/// The cache of decoded manifests, shared by all connections.
pub(super) type Manifests = Arc<Mutex<BTreeMap<[u8; 32], Arc<Manifest>>>>;

pub(super) struct SqliteRows<P = Connection> {
    prepared: P,
    /// The number of this start of this process.
    pub(super) node: NodeId,
    manifests: Manifests,
    /// Tenants and hashes whose manifest is on disk.
    known: BTreeSet<(Tenant, [u8; 32])>,
    /// Tenants and hashes whose manifest is in the open transaction.
    staged: Vec<(Tenant, [u8; 32])>,
    /// What the open transaction adds to the numbers of runs that manifests have, as for `opened`.
    pinned: BTreeMap<(Tenant, [u8; 32]), i64>,
    /// What the open transaction adds to the counts of open runs. Every run changes its tenant's count twice, so a group writes the sum.
    opened: BTreeMap<Tenant, i32>,
    /// The index of the deltas.
    pub(super) deltas: Deltas,
    /// Whether the write-ahead log has to be emptied.
    pub(super) truncation: Truncation,
}

impl<P: Prepared> SqliteRows<P> {
    pub(super) fn new(prepared: P, node: NodeId, manifests: Manifests, index: Option<Index>) -> Self {
        let (known, staged, pinned, opened) = (BTreeSet::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        SqliteRows {
            prepared,
            node,
            manifests,
            known,
            staged,
            pinned,
            opened,
            deltas: Deltas::new(index),
            truncation: Truncation::default(),
        }
    }

    pub(super) fn begin(&self) -> rusqlite::Result<()> {
        self.execute("BEGIN IMMEDIATE", []).map(drop)
    }

    pub(super) fn begin_reading(&self) -> rusqlite::Result<()> {
        self.execute("BEGIN DEFERRED", []).map(drop)
    }

    /// Begins a new snapshot, with everything that is committed by now. False for a writer, which always sees everything.
    pub(super) fn begin_new_snapshot(&self) -> rusqlite::Result<bool> {
        if !self.connection().is_readonly("main")? {
            return Ok(false);
        }
        self.execute("COMMIT", [])?;
        self.begin_reading().map(|()| true)
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let count = "INSERT INTO tenants (tenant, open) VALUES (?1, max(?2, 0)) ON CONFLICT (tenant) DO UPDATE SET open = open + ?2";
        for (tenant, change) in self.opened.iter().filter(|(_, change)| **change != 0) {
            self.change(count, params![tenant.as_str(), change])?;
        }
        for (tenant, hash) in self.pinned.keys() {
            self.count_runs_of(tenant, hash)?;
        }
        self.sweep_deltas()?;
        self.deltas.withdraw();
        self.change("COMMIT", [])?;
        self.prepared.clear_bindings();
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(self.staged.drain(..));
        self.pinned.clear();
        self.opened.clear();
        self.deltas.commit();
        Ok(())
    }

    /// Runs statements with `secure_delete`: SQLite overwrites with zeros what they delete and the pages that they free. It is off
    /// otherwise, because it makes ordinary commits write more.
    pub(super) fn overwriting<T>(&mut self, delete: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // SQLite executes this when it prepares it, so that it can't be a prepared statement.
        self.connection().execute_batch("PRAGMA secure_delete = ON").map_err(fault)?;
        let outcome = delete(self);
        self.connection().execute_batch("PRAGMA secure_delete = OFF").map_err(fault)?;
        outcome
    }

    /// Makes a checkpoint if it is time for that.
    pub(super) fn checkpoint(&self, checkpointer: &mut Checkpointer) {
        checkpointer.after_commit(self.connection());
    }

    /// Rolls the transaction back, if SQLite has not done so itself.
    pub(super) fn roll_back(&mut self) {
        self.staged.clear();
        self.pinned.clear();
        self.opened.clear();
        self.deltas.roll_back();
        self.prepared.clear_bindings();
        if self.connection().is_autocommit() {
            return;
        }
        if let Err(error) = self.execute("ROLLBACK", []) {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        self.prepared.connection()
    }

    /// The row of a query that has at most one.
    pub(super) fn one<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.prepared.with(sql, |statement| statement.query_row(params, read).optional()).map_err(fault)
    }

    /// All rows of a query.
    pub(super) fn all<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.prepared.with(sql, |statement| statement.query_map(params, read)?.collect()).map_err(fault)
    }

    /// The number of rows that a change changed.
    pub(super) fn change(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        self.execute(sql, params).map_err(fault)
    }

    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepared.with(sql, |statement| statement.execute(params))
    }

    /// A change that must find its row.
    pub(super) fn change_one(&self, sql: &'static str, params: impl Params, what: &str) -> Result<()> {
        match self.change(sql, params)? {
            0 => Err(missing_row(what)),
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, ask: impl FnOnce(&Connection) -> T) -> T {
        ask(self.connection())
    }

    pub(super) fn last_number(&self) -> u64 {
        self.connection().last_insert_rowid().unsigned_abs()
    }

    /// Whether a manifest has to be stored. From here on it counts as stored in this transaction.
    pub(super) fn stage_manifest(&mut self, tenant: &Tenant, hash: &[u8; 32]) -> bool {
        let key = (tenant.clone(), *hash);
        let is_new = !self.known.contains(&key) && !self.staged.contains(&key);
        if is_new {
            self.staged.push(key);
        }
        is_new
    }

    /// Counts a run that has a manifest.
    pub(super) fn pin_manifest(&mut self, tenant: &Tenant, hash: [u8; 32]) {
        *self.pinned.entry((tenant.clone(), hash)).or_default() += 1;
    }

    /// Counts that a run has a manifest no longer. The manifest is deleted with its last run.
    pub(super) fn release_manifest(&mut self, tenant: &Tenant, hash: &[u8; 32]) -> Result<()> {
        *self.pinned.entry((tenant.clone(), *hash)).or_default() -= 1;
        self.count_runs_of(tenant, hash)?;
        self.pinned.remove(&(tenant.clone(), *hash));
        if self.change("DELETE FROM manifests WHERE tenant = ?1 AND hash = ?2 AND runs <= 0", params![tenant.as_str(), hash])? > 0 {
            self.forget_manifest(tenant, hash);
        }
        Ok(())
    }

    /// Writes what the open transaction adds to the number of runs of a manifest.
    fn count_runs_of(&self, tenant: &Tenant, hash: &[u8; 32]) -> Result<()> {
        let change = self.pinned.get(&(tenant.clone(), *hash)).copied().unwrap_or(0);
        self.change("UPDATE manifests SET runs = runs + ?3 WHERE tenant = ?1 AND hash = ?2", params![tenant.as_str(), hash, change])
            .map(drop)
    }

    /// Records that a manifest may be deleted, so that a run that needs it stores it again. This also holds after a rollback.
    pub(super) fn forget_manifest(&mut self, tenant: &Tenant, hash: &[u8; 32]) {
        let key = (tenant.clone(), *hash);
        self.known.remove(&key);
        self.staged.retain(|staged| *staged != key);
        if let Ok(mut decoded) = self.manifests.lock() {
            decoded.remove(hash);
        }
    }

    /// The same for all manifests of a tenant.
    pub(super) fn forget_manifests(&mut self, tenant: &Tenant) {
        let hashes: Vec<_> = self.known.iter().chain(&self.staged).filter(|(whose, _)| whose == tenant).cloned().collect();
        hashes.iter().for_each(|(tenant, hash)| self.forget_manifest(tenant, hash));
        // The cache of decoded manifests may have manifests of the tenant.
        if let Ok(mut decoded) = self.manifests.lock() {
            decoded.clear();
        }
    }

    /// Counts runs of a tenant that began or ended.
    pub(super) fn open_runs_change(&mut self, tenant: &Tenant, change: i32) {
        match self.opened.get_mut(tenant) {
            Some(opened) => *opened += change,
            None => drop(self.opened.insert(tenant.clone(), change)),
        }
    }

    /// What the open transaction adds to a tenant's count.
    pub(super) fn opened(&self, tenant: &Tenant) -> i32 {
        self.opened.get(tenant).copied().unwrap_or(0)
    }

    pub(super) fn decoded(&self, hash: &[u8; 32]) -> Option<Arc<Manifest>> {
        self.manifests.lock().ok()?.get(hash).cloned()
    }

    pub(super) fn keep_decoded(&self, hash: &[u8; 32], manifest: &Arc<Manifest>) {
        if let Ok(mut kept) = self.manifests.lock() {
            if kept.len() >= MANIFESTS_MAX {
                kept.clear();
            }
            kept.insert(*hash, Arc::clone(manifest));
        }
    }
}
