//! Usage in PostgreSQL: the list of ended runs that are in no sum, the sums, and the measures for quotas.

use tokio_postgres::error::SqlState;
use windlass_kernel::{ItemId, RunId, Tenant};
use windlass_ports::{Day, ItemBytes, ItemScan, UsageGroup, UsageKey, UsageQuery, UsageRow, UsageSums};

use super::{
    columns::{Columns, Text, int, limit as as_limit},
    flush::{Part, Sent, Writes, column},
    overlay::TransactionOverlay,
    pg_error::PgError,
    session::Session,
};
use crate::{
    rows::{Result, UsageRows},
    usage::Uncounted,
};

/// Greater than every id.
const NO_UPPER_BOUND: [u8; 17] = [0xff; 17];

/// Items at positions below zero are copies from the parents.
const UNCOUNTED: &str = "SELECT u.tenant, u.run, (
        SELECT coalesce(sum(octet_length(i.content)), 0)::bigint FROM box_rows b JOIN items i ON i.item = b.item
        WHERE b.box = ANY(ARRAY[r.context, r.output]) AND b.position >= 0), u.model
    FROM usage_uncounted u JOIN runs r ON r.run = u.run ORDER BY u.run LIMIT $1";

/// One statement, so that the sums and the list change together. If another server has counted one of the runs, the statement divides by
/// zero, which undoes all of it.
const ADD: &str = "WITH gone AS (DELETE FROM usage_uncounted WHERE run = ANY($1::bytea[]) RETURNING 1),
    whole AS (SELECT 1 / (count(*) = cardinality($1))::int AS yes FROM gone)
    INSERT INTO usage AS u (tenant, day, agent, model, node, input, cached, cache_written, output, reasoning, lost, runs, calls, bytes)
    SELECT q.* FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
        $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[]) AS q, whole WHERE whole.yes = 1
    ON CONFLICT (tenant, day, agent, model, node) DO UPDATE SET
        input = u.input + excluded.input, cached = u.cached + excluded.cached, cache_written = u.cache_written + excluded.cache_written,
        output = u.output + excluded.output, reasoning = u.reasoning + excluded.reasoning, lost = u.lost + excluded.lost,
        runs = u.runs + excluded.runs, calls = u.calls + excluded.calls, bytes = u.bytes + excluded.bytes";

/// Sums of the type `bigint` are of the type `numeric`.
const USAGE: &str = "SELECT CASE WHEN $4 THEN day END, CASE WHEN $5 THEN agent END, CASE WHEN $6 THEN model END,
        sum(input)::bigint, sum(cached)::bigint, sum(cache_written)::bigint, sum(output)::bigint, sum(reasoning)::bigint,
        sum(lost)::bigint, sum(runs)::bigint, sum(calls)::bigint, sum(bytes)::bigint
    FROM usage WHERE tenant = $1 AND day BETWEEN $2 AND $3 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT $7";

/// The length of a value outside its row (TOAST) is stored in the row, so that no content is read.
const ITEM_BYTES: &str = "WITH page AS MATERIALIZED (
        SELECT item, tenant, octet_length(content)::bigint AS bytes FROM items WHERE item > $1 AND item <= $2 ORDER BY item LIMIT $3)
    SELECT tenant, sum(bytes)::bigint, count(*), (SELECT item FROM page ORDER BY item DESC LIMIT 1) FROM page GROUP BY tenant";

pub(super) async fn uncounted(session: &Session, limit: usize) -> Result<Vec<Uncounted>, PgError> {
    let read = |columns: Columns| {
        let tenant = Tenant::from(columns.text()?.as_str());
        Ok(Uncounted { tenant, run: columns.id(RunId::from_slice)?, bytes: columns.count()?, model: columns.maybe_text()? })
    };
    session.client.query(UNCOUNTED, &[&as_limit(limit)]).await?.into_iter().map(|row| read(Columns::of(row))).collect()
}

/// Adds rows to the sums, if all these runs are still on the list. All servers use the same order, so that they can't deadlock.
pub(super) async fn add(session: &Session, runs: &[RunId], rows: &[UsageRow]) -> Result<bool, PgError> {
    let mut rows: Vec<&UsageRow> = rows.iter().collect();
    rows.sort_unstable_by_key(|row| &row.key);
    let runs: Vec<&[u8]> = runs.iter().map(|run| run.as_bytes().as_slice()).collect();
    let texts = |of: fn(&UsageKey) -> &str| rows.iter().map(|row| Text(of(&row.key))).collect::<Vec<_>>();
    let keys = |of: fn(&UsageKey) -> u64| rows.iter().map(|row| int(of(&row.key))).collect::<Vec<_>>();
    let sums = |of: fn(&UsageSums) -> u64| rows.iter().map(|row| int(of(&row.sums))).collect::<Vec<_>>();
    let added = session
        .client
        .execute(
            ADD,
            &[
                &runs,
                &texts(|key| key.tenant.as_str()),
                &keys(|key| key.day.0.into()),
                &texts(|key| &key.agent),
                &texts(|key| &key.model),
                &keys(|key| key.node.0),
                &sums(|sums| sums.input),
                &sums(|sums| sums.cached),
                &sums(|sums| sums.cache_written),
                &sums(|sums| sums.output),
                &sums(|sums| sums.reasoning),
                &sums(|sums| sums.lost),
                &sums(|sums| sums.runs),
                &sums(|sums| sums.calls),
                &sums(|sums| sums.bytes),
            ],
        )
        .await;
    match added {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn forget(session: &Session, before: Day) -> Result<(), PgError> {
    Ok(session.client.execute("DELETE FROM usage WHERE day < $1", &[&i64::from(before.0)]).await.map(drop)?)
}

pub(super) async fn usage(session: &Session, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>, PgError> {
    let read = |columns: Columns| {
        let day = columns.maybe_number()?.map(|day| Day(u32::try_from(day).unwrap_or(u32::MAX)));
        let (agent, model) = (columns.maybe_text()?, columns.maybe_text()?);
        let sums = UsageSums {
            input: columns.count()?,
            cached: columns.count()?,
            cache_written: columns.count()?,
            output: columns.count()?,
            reasoning: columns.count()?,
            lost: columns.count()?,
            runs: columns.count()?,
            calls: columns.count()?,
            bytes: columns.count()?,
        };
        Ok(UsageGroup { day, agent, model, sums })
    };
    let UsageQuery { from, to, by_day, by_agent, by_model, limit } = query;
    let (from, to, limit) = (i64::from(from.0), i64::from(to.0), as_limit(*limit));
    let rows = session.client.query(USAGE, &[&Text(tenant.as_str()), &from, &to, by_day, by_agent, by_model, &limit]).await?;
    rows.into_iter().map(|row| read(Columns::of(row))).collect()
}

pub(super) async fn tenants(session: &Session) -> Result<Vec<Tenant>, PgError> {
    let rows = session.client.query("SELECT DISTINCT tenant FROM tenants ORDER BY tenant", &[]).await?;
    rows.into_iter().map(|row| Ok(Tenant::from(Columns::of(row).text()?.as_str()))).collect()
}

pub(super) async fn item_bytes(session: &Session, scan: &ItemScan) -> Result<ItemBytes, PgError> {
    let after: &[u8] = scan.after.as_ref().map_or(&[], |item| ItemId::as_bytes(item));
    let up_to: &[u8] = scan.up_to.as_ref().map_or(&NO_UPPER_BOUND, |item| ItemId::as_bytes(item));
    let mut found = ItemBytes::default();
    for row in session.client.query(ITEM_BYTES, &[&after, &up_to, &as_limit(scan.limit)]).await? {
        let columns = Columns::of(row);
        found.tenants.push((Tenant::from(columns.text()?.as_str()), columns.count()?));
        found.items += usize::try_from(columns.count()?).unwrap_or(usize::MAX);
        found.last = Some(columns.id(ItemId::from_slice)?);
    }
    Ok(found)
}

impl UsageRows for TransactionOverlay<'_> {
    fn insert_uncounted(&mut self, tenant: &Tenant, run: RunId) -> Result<()> {
        self.write_set.uncounted.push((run, tenant.clone()));
        Ok(())
    }
}

impl Writes<'_> {
    /// The statement about runs whose usage is to be counted.
    pub(super) fn counting(&self) -> Option<Sent<'_>> {
        let rows: Vec<&(RunId, Tenant)> = self.all(|write_set| &write_set.uncounted);
        let columns = [column(&rows, |(run, _)| run.as_bytes().as_slice()), column(&rows, |(_, tenant)| Text(tenant.as_str()))];
        let is_needed = !rows.is_empty();
        is_needed.then(|| self.send(&self.session.statements.insert_uncounted, [Part::of(&rows, columns)], None))
    }
}
