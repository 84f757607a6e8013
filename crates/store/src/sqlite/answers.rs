//! Recorded answers to requests with a key, in SQLite.

use rusqlite::{Row, params};
use windlass_kernel::{RunId, Tenant};
use windlass_ports::MessageId;

use super::{
    columns::{bytes, id, int, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{AnswerReads, AnswerRow, AnswerRows, Result, pack_calls, unpack_calls};

fn answer(row: &Row<'_>) -> rusqlite::Result<AnswerRow> {
    Ok(AnswerRow {
        tenant: variant(row, 0, |text| Some(text.into()))?,
        key: row.get(1)?,
        asked: bytes(row, 2)?,
        run: id(row, 3, RunId::from_slice)?,
        message: row.get::<_, Option<i64>>(4)?.map(|number| MessageId(number.unsigned_abs())),
        lost: unpack_calls(&row.get::<_, Vec<u8>>(5)?),
    })
}

impl<P: Prepared> AnswerReads for SqliteRows<P> {
    fn answer(&self, tenant: &Tenant, key: &str) -> Result<Option<AnswerRow>> {
        let sql = "SELECT tenant, key, asked, run, message, lost FROM answers WHERE tenant = ?1 AND key = ?2";
        self.one(sql, params![tenant.as_str(), key], answer)
    }
}

impl<P: Prepared> AnswerRows for SqliteRows<P> {
    fn insert_answer(&mut self, row: &AnswerRow) -> Result<()> {
        let sql = "INSERT INTO answers (tenant, key, asked, run, message, lost) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let message = row.message.map(|message| int(message.0));
        let params = params![row.tenant.as_str(), row.key, row.asked, row.run.as_bytes(), message, pack_calls(&row.lost)];
        self.change(sql, params).map(drop)
    }
}
