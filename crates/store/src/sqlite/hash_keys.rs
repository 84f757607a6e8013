//! The part of migration 8 that SQL can't express: keys of requests and claims that an earlier version stored in clear become hashes.

use rusqlite::{Connection, params};
use windlass_ports::codec::key_hash;

/// The number of that migration.
pub(super) const MIGRATION: u32 = 8;

/// The number of keys that are read at once.
const PAGE: i64 = 1_000;

/// Replaces the keys of `runs` and `calls`, and fills `answers` from `clear_answers`, in the transaction of the migration.
pub(super) fn hash_keys(connection: &Connection) -> rusqlite::Result<()> {
    hash_runs(connection)?;
    hash_calls(connection)?;
    hash_answers(connection)
}

fn hash_runs(connection: &Connection) -> rusqlite::Result<()> {
    let mut page =
        connection.prepare("SELECT rowid, tenant, dedupe FROM runs WHERE dedupe IS NOT NULL AND rowid > ?1 ORDER BY rowid LIMIT ?2")?;
    let mut update = connection.prepare("UPDATE runs SET dedupe = ?2 WHERE rowid = ?1")?;
    let mut last = i64::MIN;
    loop {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows: Vec<(i64, String, String)> = page.query_map(params![last, PAGE], read)?.collect::<Result<_, _>>()?;
        let Some((end, ..)) = rows.last() else { return Ok(()) };
        last = *end;
        for (row, tenant, key) in &rows {
            update.execute(params![row, key_hash(&tenant.as_str().into(), key)])?;
        }
    }
}

fn hash_calls(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT run, call, tenant, claim_key FROM calls WHERE claim_key IS NOT NULL AND (run, call) > (?1, ?2)
               ORDER BY run, call LIMIT ?3";
    let mut page = connection.prepare(sql)?;
    let mut update = connection.prepare("UPDATE calls SET claim_key = ?3 WHERE run = ?1 AND call = ?2")?;
    let mut last: (Vec<u8>, i64) = (Vec::new(), 0);
    loop {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let rows: Vec<(Vec<u8>, i64, String, String)> = page.query_map(params![last.0, last.1, PAGE], read)?.collect::<Result<_, _>>()?;
        let Some((run, call, ..)) = rows.last() else { return Ok(()) };
        last = (run.clone(), *call);
        for (run, call, tenant, key) in &rows {
            update.execute(params![run, call, key_hash(&tenant.as_str().into(), key)])?;
        }
    }
}

fn hash_answers(connection: &Connection) -> rusqlite::Result<()> {
    {
        let mut all = connection.prepare("SELECT tenant, key FROM clear_answers")?;
        let mut copy = connection.prepare(
            "INSERT INTO answers (tenant, key, asked, run, message, lost)
             SELECT tenant, ?3, asked, run, message, lost FROM clear_answers WHERE tenant = ?1 AND key = ?2",
        )?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let (tenant, key): (String, String) = (row.get(0)?, row.get(1)?);
            copy.execute(params![tenant, key, key_hash(&tenant.as_str().into(), &key)])?;
        }
    }
    connection.execute_batch("DROP TABLE clear_answers")
}
