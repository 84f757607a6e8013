//! Deltas: a log that is only appended to, with its index in memory.
//!
//! Rows that are keyed by their run would dirty a page for every stream in every group, which was measured at twenty times the bytes. So
//! the log has no key but its number. This process knows which run has which rows: from one scan when the database is opened, and from
//! every group that was committed since.
//!
//! For the same reason settled deltas are not deleted one by one, each from a page of its own. A tombstone row is appended after them, and
//! when there are more settled rows than others they are deleted in the order of the log, page by page.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, Row, params};
use windlass_kernel::{AgentKey, ChunkLengths, Epoch, RunId};
use windlass_ports::{DeltaBatch, StoreError};

use super::{
    columns::{fault, id, int, small, text, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{Announces, DeltaRow, Result, missing_row};

/// How often deltas are read again because they were settled or continued during the read.
const READS_MAX: usize = 100;

/// Fewer settled rows are not worth a deletion.
const SWEEP_MIN: usize = 4_096;

/// The most rows that are deleted with one commit, so that no request is delayed.
const SWEEP_MAX: usize = 256;

/// The index, shared by all connections of a store.
pub(super) type Index = Arc<Mutex<Committed>>;

/// The content of the log, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Committed {
    runs: HashMap<RunId, StoredDeltas>,
    /// The number of rows that are not settled.
    unsettled: usize,
    /// Settled rows and their tombstones. An erasure deletes rows that stay listed here: the later deletion then finds none.
    settled: Vec<(i64, RunId)>,
    /// The settled rows that are being deleted, from the last one on.
    sweeping: Vec<(i64, RunId)>,
    /// The highest number that was ever used. Numbers are never used again, so that an index that is a moment old never points at other
    /// deltas.
    last: i64,
}

/// The deltas of one run.
#[derive(Debug, Default)]
struct StoredDeltas {
    rows: Vec<i64>,
    pieces: u32,
}

impl Committed {
    fn add(&mut self, run: RunId, deltas: StoredDeltas) {
        let unsettled = self.runs.entry(run).or_default();
        self.unsettled += deltas.rows.len();
        unsettled.rows.extend(deltas.rows);
        unsettled.pieces += deltas.pieces;
    }

    /// Puts withdrawn deltas back.
    fn put_back(&mut self, run: RunId, withdrawn: StoredDeltas) {
        if !withdrawn.rows.is_empty() {
            self.runs.insert(run, withdrawn);
        }
    }

    fn settle(&mut self, run: RunId) {
        let rows = self.runs.remove(&run).unwrap_or_default().rows;
        self.unsettled -= rows.len();
        self.settled.extend(rows.into_iter().map(|n| (n, run)));
    }
}

/// Reads the log once.
pub(super) fn scan(connection: &Connection) -> rusqlite::Result<Index> {
    let mut found = Committed::default();
    let mut statement = connection.prepare("SELECT n, run, first, pieces FROM deltas ORDER BY n")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.last = row.get(0)?;
        let (n, run) = (found.last, id(row, 1, RunId::from_slice)?);
        if row.get::<_, Option<u32>>(2)?.is_none() {
            found.settle(run);
            found.settled.push((n, run));
        } else {
            let pieces = variant(row, 3, ChunkLengths::decode)?.0.len() as u32;
            found.add(run, StoredDeltas { rows: vec![n], pieces });
        }
    }
    Ok(Arc::new(Mutex::new(found)))
}

/// One connection's view of the index, and what its open transaction changes in it.
pub(super) struct Deltas {
    /// `None` for a reader of another process's database.
    index: Option<Index>,
    staged: HashMap<RunId, Staged>,
    /// Runs that were found active and whose head has not changed hands since, because a stream asks a thousand times.
    fences: HashMap<RunId, (AgentKey, Epoch)>,
    /// The number of rows that the open transaction has deleted.
    swept: usize,
}

/// What the open transaction changes in the deltas of one run.
#[derive(Default)]
struct Staged {
    /// Whether the earlier deltas are settled.
    is_settled: bool,
    /// The earlier deltas, from the moment on at which readers may find their commit in the journal.
    withdrawn: StoredDeltas,
    added: StoredDeltas,
    /// Rows of this transaction that are settled too, and their tombstones.
    settled: Vec<i64>,
}

impl Deltas {
    pub(super) fn new(index: Option<Index>) -> Self {
        Deltas { index, staged: HashMap::new(), fences: HashMap::new(), swept: 0 }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Committed>> {
        Some(self.index.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called before the transaction is committed. The deltas that it settles leave the index first, because a reader that finds their text
    /// in the journal must not find it here as well. A reader that for a moment finds it in neither place is notified of the commit.
    pub(super) fn withdraw(&mut self) {
        let Some(index) = self.index.as_ref().filter(|_| self.staged.values().any(|staged| staged.is_settled)) else { return };
        let mut committed = index.lock().unwrap_or_else(PoisonError::into_inner);
        for (run, staged) in self.staged.iter_mut().filter(|(_, staged)| staged.is_settled) {
            staged.withdrawn = committed.runs.remove(run).unwrap_or_default();
        }
    }

    /// Called when the transaction is on disk.
    pub(super) fn commit(&mut self) {
        let swept = std::mem::take(&mut self.swept);
        if self.staged.is_empty() && swept == 0 {
            return;
        }
        let staged = std::mem::take(&mut self.staged);
        let Some(mut committed) = self.lock() else { return };
        let left = committed.sweeping.len() - swept;
        committed.sweeping.truncate(left);
        for (run, Staged { is_settled, withdrawn, added, settled }) in staged {
            if is_settled {
                committed.put_back(run, withdrawn);
                committed.settle(run);
                committed.settled.extend(settled.into_iter().map(|n| (n, run)));
            }
            if !added.rows.is_empty() {
                committed.add(run, added);
            }
        }
    }

    /// Called when the transaction was rolled back.
    pub(super) fn roll_back(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        if !staged.is_empty()
            && let Some(mut committed) = self.lock()
        {
            for (run, Staged { withdrawn, .. }) in staged {
                committed.put_back(run, withdrawn);
            }
        }
        self.swept = 0;
        // They may have been found active by the transaction that was rolled back.
        self.fences.clear();
    }

    /// Called before a head shows another run or another owner.
    pub(super) fn fence(&mut self, run: Option<RunId>) {
        if let Some(run) = run {
            self.fences.remove(&run);
        }
    }

    fn pieces(&self, run: RunId) -> u32 {
        let committed = || self.lock().and_then(|committed| Some(committed.runs.get(&run)?.pieces)).unwrap_or(0);
        match self.staged.get(&run) {
            None => committed(),
            Some(staged) if staged.is_settled => staged.added.pieces,
            Some(staged) => committed() + staged.added.pieces,
        }
    }

    /// The numbers of a run's rows; `None` if there is no index.
    fn rows(&self, run: RunId) -> Option<Vec<i64>> {
        let committed = self.lock()?;
        let staged = self.staged.get(&run);
        let unsettled = committed.runs.get(&run).filter(|_| staged.is_none_or(|staged| !staged.is_settled));
        Some(unsettled.into_iter().chain(staged.map(|staged| &staged.added)).flat_map(|deltas| &deltas.rows).copied().collect())
    }

    fn next(&self) -> Option<i64> {
        let mut committed = self.lock()?;
        committed.last += 1;
        Some(committed.last)
    }

    fn add(&mut self, run: RunId, n: i64, pieces: u32) {
        let added = &mut self.staged.entry(run).or_default().added;
        added.rows.push(n);
        added.pieces += pieces;
    }

    fn settle(&mut self, run: RunId, n: i64) {
        let staged = self.staged.entry(run).or_default();
        staged.is_settled = true;
        staged.settled.append(&mut staged.added.rows);
        staged.settled.push(n);
        staged.added = StoredDeltas::default();
    }

    /// The numbers of all rows of a run: not settled, settled, and those of the open transaction.
    fn all_rows(&self, run: RunId) -> Vec<i64> {
        let Some(committed) = self.lock() else { return Vec::new() };
        let settled = committed.settled.iter().chain(&committed.sweeping).filter(|(_, of)| *of == run).map(|(n, _)| n);
        let unsettled = committed.runs.get(&run).into_iter().flat_map(|deltas| &deltas.rows);
        let staged = self.staged.get(&run).into_iter().flat_map(|staged| staged.added.rows.iter().chain(&staged.settled));
        settled.chain(unsettled).chain(staged).copied().collect()
    }

    /// The next rows to be deleted, as ranges of numbers.
    fn sweep(&mut self) -> Vec<(i64, i64)> {
        let Some(mut committed) = self.lock() else { return Vec::new() };
        if committed.sweeping.is_empty() && committed.settled.len() >= committed.unsettled.max(SWEEP_MIN) {
            committed.sweeping = std::mem::take(&mut committed.settled);
            // The lowest come first: a tombstone is deleted after the rows that it settles.
            committed.sweeping.sort_unstable_by(|one, other| other.cmp(one));
        }
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        let next = committed.sweeping.iter().rev().take(SWEEP_MAX);
        for (n, _) in next {
            match ranges.last_mut().filter(|(_, last)| *last + 1 == *n) {
                Some((_, last)) => *last = *n,
                None => ranges.push((*n, *n)),
            }
        }
        let swept = committed.sweeping.len().min(SWEEP_MAX);
        drop(committed);
        self.swept = swept;
        ranges
    }
}

fn delta(row: &Row<'_>) -> rusqlite::Result<DeltaRow> {
    Ok(DeltaRow { first: small(row, 0)?, pieces: variant(row, 1, ChunkLengths::decode)?, text: text(row, 2)? })
}

impl<P: Prepared> SqliteRows<P> {
    pub(super) fn read_deltas(&self, run: RunId) -> Result<Vec<DeltaRow>> {
        for _ in 0..READS_MAX {
            let Some(numbers) = self.deltas.rows(run) else {
                let sql = "SELECT first, pieces, text FROM deltas
                           WHERE run = ?1 AND n > coalesce((SELECT max(n) FROM deltas WHERE run = ?1 AND first IS NULL), 0) ORDER BY n";
                return self.all(sql, [run.as_bytes()], delta);
            };
            let read = |n: i64| self.one("SELECT first, pieces, text FROM deltas WHERE n = ?1", [n], delta);
            let found: Vec<Option<DeltaRow>> = numbers.into_iter().map(read).collect::<Result<_>>()?;
            if let Some(whole) = found.into_iter().collect() {
                return Ok(whole);
            }
            // The index and the snapshot of this transaction are not from the same moment.
            if !self.begin_new_snapshot().map_err(fault)? {
                return Err(missing_row("a batch of words"));
            }
        }
        Err(StoreError::Unavailable("words change faster than they can be read".into()))
    }

    pub(super) fn settle_deltas(&mut self, run: RunId) -> Result<()> {
        if self.deltas.pieces(run) == 0 {
            return Ok(());
        }
        let n = self.next_delta()?;
        self.change("INSERT INTO deltas (n, run, first, pieces, text) VALUES (?1, ?2, NULL, '', x'')", params![n, run.as_bytes()])?;
        self.deltas.settle(run, n);
        Ok(())
    }

    /// Deletes all rows of a run whose deltas are settled or have just been.
    pub(super) fn delete_deltas(&mut self, run: RunId) -> Result<()> {
        self.settle_deltas(run)?;
        self.deltas.all_rows(run).into_iter().try_for_each(|n| self.change("DELETE FROM deltas WHERE n = ?1", [n]).map(drop))
    }

    /// Deletes some of the settled rows from the log, if it is time to.
    pub(super) fn sweep_deltas(&mut self) -> Result<()> {
        let ranges = self.deltas.sweep();
        if ranges.is_empty() {
            return Ok(());
        }
        let sql = "DELETE FROM deltas WHERE n BETWEEN ?1 AND ?2";
        self.overwriting(|rows| ranges.iter().try_for_each(|(first, last)| rows.change(sql, [first, last]).map(drop)))
    }

    #[cfg(test)]
    fn scan_deltas(&self) -> rusqlite::Result<Index> {
        self.with_connection(scan)
    }

    fn next_delta(&self) -> Result<i64> {
        self.deltas.next().ok_or_else(|| missing_row("the index of announced words"))
    }
}

impl<P: Prepared> Announces for SqliteRows<P> {
    fn is_active(&mut self, agent: &AgentKey, run: RunId, epoch: Epoch) -> Result<bool> {
        if self.deltas.fences.get(&run).is_some_and(|(owner, fence)| owner == agent && *fence == epoch) {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM heads WHERE tenant = ?1 AND agent = ?2 AND run = ?3 AND epoch = ?4";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), run.as_bytes(), int(epoch.0)];
        let is_active = self.one(sql, params, |_| Ok(()))?.is_some();
        if is_active {
            self.deltas.fences.insert(run, (agent.clone(), epoch));
        }
        Ok(is_active)
    }

    fn stored_chunks(&self, run: RunId) -> Result<u32> {
        Ok(self.deltas.pieces(run))
    }

    fn insert_delta(&mut self, batch: &DeltaBatch) -> Result<()> {
        let n = self.next_delta()?;
        let sql = "INSERT INTO deltas (n, run, first, pieces, text) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.change(sql, params![n, batch.run.as_bytes(), batch.first, batch.pieces.encode(), batch.text.as_bytes()])?;
        self.deltas.add(batch.run, n, batch.pieces.0.len() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
