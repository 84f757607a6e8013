//! Erasing runs in PostgreSQL: which are due, the statements, and the checks against concurrent changes.
//!
//! A transaction that makes a box from another one takes no lock that an eraser takes. So both state what they found, and fail if it has
//! changed: a box that is shared must exist, and a box that is deleted must not be shared. Then the transaction is rolled back, and the
//! verb reads again.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Statement, types::ToSql};
use windlass_kernel::{BoxId, RunId, Tenant, Timestamp};

use super::{
    columns::{Columns, Text, int, limit as as_limit},
    flush::{Failure, Sent, Writes},
    member::pin,
    pg_error::PgError,
    session::Session,
    write_set::RunWrite,
};
use crate::rows::{Erasure, NO_MANIFEST};

/// Runs whose time to be erased has passed, oldest first.
pub(super) async fn erasable(session: &Session, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, PgError> {
    let rows = session.client.query(&session.statements.erasable, &[&now.0, &as_limit(limit)]).await?;
    let read = |columns: Columns| Ok((columns.agent()?.tenant, columns.id(RunId::from_slice)?));
    rows.into_iter().map(|row| read(Columns::of(row))).collect()
}

impl Writes<'_> {
    /// The statements that few transactions need. They come after the others, whose rows they change.
    pub(super) fn erasing(&self) -> Vec<Sent<'_>> {
        let mut sent: Vec<Sent<'_>> = vec![Box::pin(self.share_boxes()), Box::pin(self.keep_runs()), Box::pin(self.release_runs())];
        sent.push(Box::pin(self.erase_boxes()));
        for erasure in self.write_sets.iter().flat_map(|write_set| &write_set.erased) {
            sent.push(Box::pin(self.erase_run(erasure)));
        }
        sent
    }

    /// Deletes the manifests of erased runs that no other run has. It comes before all other statements: a transaction that waits for one
    /// of these locks has changed no row that others wait for.
    pub(super) fn dropping(&self) -> Vec<Sent<'_>> {
        let erased = self.write_sets.iter().flat_map(|write_set| &write_set.erased);
        let dropped = erased.filter_map(|erasure| erasure.manifest.as_ref().map(|hash| self.drop_manifest(erasure, hash)));
        dropped.map(|sent| -> Sent<'_> { Box::pin(sent) }).collect()
    }

    async fn drop_manifest(&self, erasure: &Erasure, hash: &[u8; 32]) -> Result<(), Failure> {
        let tenant = &erasure.agent.tenant;
        let (run, pin) = (erasure.run.as_bytes().as_slice(), pin(tenant, hash));
        self.change(&self.session.statements.drop_manifest, &[&Text(tenant.as_str()), &hash.as_slice(), &run, &!pin, &pin]).await
    }

    /// Rows that differ from what was read mean that another transaction was faster, not that they are missing.
    async fn change(&self, statement: &Statement, params: &[&(dyn ToSql + Sync)]) -> Result<(), Failure> {
        self.session.client.execute(statement, params).await.map(drop).map_err(|error| Failure { error, missing: None })
    }

    async fn share_boxes(&self) -> Result<(), Failure> {
        // Each box once, and in the same order on all servers, so that they can't deadlock.
        let boxes: BTreeSet<BoxId> = self.write_sets.iter().flat_map(|write_set| &write_set.shared).copied().collect();
        if boxes.is_empty() {
            return Ok(());
        }
        self.change(&self.session.statements.share_boxes, &[&ids(&boxes)]).await
    }

    async fn erase_boxes(&self) -> Result<(), Failure> {
        let boxes: BTreeSet<BoxId> = self.write_sets.iter().flat_map(|write_set| &write_set.conversations.gone).copied().collect();
        if boxes.is_empty() {
            return Ok(());
        }
        self.change(&self.session.statements.erase_boxes, &[&ids(&boxes)]).await
    }

    async fn keep_runs(&self) -> Result<(), Failure> {
        let changes = self.write_sets.iter().flat_map(|write_set| write_set.runs.values().filter_map(RunWrite::changed));
        let (runs, times): (Vec<&[u8]>, Vec<i64>) =
            changes.filter(|change| change.held_ms > 0).map(|change| (change.run.as_bytes().as_slice(), int(change.held_ms))).unzip();
        if runs.is_empty() {
            return Ok(());
        }
        self.change(&self.session.statements.keep_runs, &[&runs, &times]).await
    }

    async fn release_runs(&self) -> Result<(), Failure> {
        // In the same order on all servers, because the head's lock does not cover these runs.
        let released: BTreeMap<RunId, &(Tenant, Timestamp)> =
            self.write_sets.iter().flat_map(|write_set| &write_set.released).map(|(run, by)| (*run, by)).collect();
        if released.is_empty() {
            return Ok(());
        }
        let runs: Vec<&[u8]> = released.keys().map(|run| run.as_bytes().as_slice()).collect();
        let tenants: Vec<&str> = released.values().map(|(tenant, _)| tenant.as_str()).collect();
        let times: Vec<i64> = released.values().map(|(_, now)| now.0).collect();
        self.change(&self.session.statements.release_runs, &[&runs, &tenants, &times]).await
    }

    async fn erase_run(&self, erasure: &Erasure) -> Result<(), Failure> {
        let run = erasure.run.as_bytes().as_slice();
        let (gone, kept, model) = (ids(&erasure.gone), ids(&erasure.kept), erasure.model.as_deref().map(Text));
        self.change(&self.session.statements.erase_run, &[&run, &gone, &kept, &NO_MANIFEST.as_slice(), &model]).await
    }
}

fn ids<'a>(boxes: impl IntoIterator<Item = &'a BoxId>) -> Vec<&'a [u8]> {
    boxes.into_iter().map(|id| id.as_bytes().as_slice()).collect()
}
