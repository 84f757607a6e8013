//! The part of migration 8 that SQL can't express: keys of requests and claims that an earlier version stored in clear become hashes. They
//! are decoded here, because text is stored escaped.

use tokio_postgres::{Row, Transaction};
use windlass_ports::codec::key_hash;

use super::{columns::unescaped, open::PostgresOpenError};

/// The number of that migration.
pub(super) const MIGRATION: i64 = 8;

/// The number of keys that are read at once.
const PAGE: i64 = 1_000;

/// Replaces the keys of `runs` and `calls`, and fills `answers` from `clear_answers`, in the transaction of the migration.
pub(super) async fn hash_keys(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    hash_runs(transaction).await?;
    hash_calls(transaction).await?;
    hash_answers(transaction).await
}

/// The hash of a key, from a row that has the tenant and the key in two columns.
fn hash_at(row: &Row, tenant: usize, key: usize) -> Result<String, PostgresOpenError> {
    let (tenant, key): (&str, &str) = (row.try_get(tenant)?, row.try_get(key)?);
    Ok(key_hash(&unescaped(tenant).as_ref().into(), &unescaped(key)))
}

fn hashes(rows: &[Row], tenant: usize, key: usize) -> Result<Vec<String>, PostgresOpenError> {
    rows.iter().map(|row| hash_at(row, tenant, key)).collect()
}

async fn hash_runs(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    let page = "SELECT run, tenant, dedupe FROM runs WHERE dedupe IS NOT NULL AND run > $1 ORDER BY run LIMIT $2";
    let update = "UPDATE runs r SET dedupe = q.hash FROM unnest($1::bytea[], $2::text[]) AS q(run, hash) WHERE r.run = q.run";
    let mut last: Vec<u8> = Vec::new();
    loop {
        let rows = transaction.query(page, &[&last, &PAGE]).await?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = end.try_get(0)?;
        let runs: Vec<&[u8]> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        transaction.execute(update, &[&runs, &hashes(&rows, 1, 2)?]).await?;
    }
}

async fn hash_calls(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    let page = "SELECT run, call, tenant, claim_key FROM calls WHERE claim_key IS NOT NULL AND (run, call) > ($1, $2)
                ORDER BY run, call LIMIT $3";
    let update = "UPDATE calls c SET claim_key = q.hash FROM unnest($1::bytea[], $2::bigint[], $3::text[]) AS q(run, call, hash)
                  WHERE c.run = q.run AND c.call = q.call";
    let mut last: (Vec<u8>, i64) = (Vec::new(), 0);
    loop {
        let rows = transaction.query(page, &[&last.0, &last.1, &PAGE]).await?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = (end.try_get(0)?, end.try_get(1)?);
        let runs: Vec<&[u8]> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let calls: Vec<i64> = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
        transaction.execute(update, &[&runs, &calls, &hashes(&rows, 2, 3)?]).await?;
    }
}

async fn hash_answers(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    let page = "SELECT tenant, key FROM clear_answers WHERE (tenant, key) > ($1, $2) ORDER BY tenant, key LIMIT $3";
    let copy = "INSERT INTO answers (tenant, key, asked, run, message, lost)
                SELECT a.tenant, q.hash, a.asked, a.run, a.message, a.lost
                FROM unnest($1::text[], $2::text[], $3::text[]) AS q(tenant, key, hash)
                JOIN clear_answers a ON a.tenant = q.tenant AND a.key = q.key";
    let mut last = (String::new(), String::new());
    loop {
        let rows = transaction.query(page, &[&last.0, &last.1, &PAGE]).await?;
        let Some(end) = rows.last() else { break };
        last = (end.try_get(0)?, end.try_get(1)?);
        let tenants: Vec<&str> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let keys: Vec<&str> = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
        transaction.execute(copy, &[&tenants, &keys, &hashes(&rows, 0, 1)?]).await?;
    }
    Ok(transaction.batch_execute("DROP TABLE clear_answers").await?)
}
