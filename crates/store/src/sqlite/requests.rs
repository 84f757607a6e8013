//! Open requests in SQLite.

use rusqlite::{Row, params};
use windlass_kernel::{RunId, Tenant, Timestamp};
use windlass_ports::{NodeId, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};

use super::{
    columns::{bytes, id, int, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{RequestReads, RequestRows, Result};

fn request(row: &Row<'_>) -> rusqlite::Result<OpenRequest> {
    Ok(OpenRequest {
        tenant: variant(row, 0, |text| Some(text.into()))?,
        hash: RequestHash(bytes(row, 1)?),
        run: id(row, 2, RunId::from_slice)?,
        node: NodeId(row.get::<_, i64>(3)?.unsigned_abs()),
        left_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
    })
}

impl<P: Prepared> RequestReads for SqliteRows<P> {
    fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>> {
        let sql = "SELECT tenant, hash, run, node, left_at FROM requests WHERE tenant = ?1 AND hash = ?2 ORDER BY run";
        self.all(sql, params![tenant.as_str(), hash.0], request)
    }
}

impl<P: Prepared> SqliteRows<P> {
    /// Open requests of every other node: with SQLite only one node is alive.
    pub(super) fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<OpenRequest>> {
        let sql = "SELECT tenant, hash, run, node, left_at FROM requests WHERE node <> ?1 LIMIT ?2";
        self.all(sql, params![int(node.0), int(limit as u64)], request)
    }

    pub(super) fn adopt_request(&self, request: &OpenRequest, node: NodeId) -> Result<bool> {
        let sql = "UPDATE requests SET node = ?5, left_at = NULL WHERE tenant = ?1 AND hash = ?2 AND run = ?3 AND node = ?4";
        let OpenRequest { tenant, hash, run, node: from, .. } = request;
        let changed = self.change(sql, params![tenant.as_str(), hash.0, run.as_bytes(), int(from.0), int(node.0)])?;
        Ok(changed > 0)
    }
}

impl<P: Prepared> RequestRows for SqliteRows<P> {
    fn insert_request(&mut self, request: &OpenRequest) -> Result<()> {
        let sql = "INSERT INTO requests (tenant, hash, run, node, left_at) VALUES (?1, ?2, ?3, ?4, ?5)";
        let OpenRequest { tenant, hash, run, node, left_at } = request;
        self.change(sql, params![tenant.as_str(), hash.0, run.as_bytes(), int(node.0), left_at.map(|at| at.0)]).map(drop)
    }

    fn record_reader(&mut self, record: &ReaderRecord) -> Result<()> {
        let OpenRequest { tenant, hash, run, node, .. } = &record.request;
        let (tenant, run, node) = (tenant.as_str(), run.as_bytes(), int(node.0));
        let changed = match record.outcome {
            ReaderOutcome::Closed => {
                let sql = "DELETE FROM requests WHERE tenant = ?1 AND hash = ?2 AND run = ?3 AND node = ?4";
                self.change(sql, params![tenant, hash.0, run, node])
            }
            ReaderOutcome::Left(at) => {
                let sql = "UPDATE requests SET left_at = ?5 WHERE tenant = ?1 AND hash = ?2 AND run = ?3 AND node = ?4";
                self.change(sql, params![tenant, hash.0, run, node, at.0])
            }
        };
        changed.map(drop)
    }
}
