//! Usage in SQLite: the list of ended runs that are in no sum, the sums, and the measures for quotas.

use rusqlite::{Row, params};
use windlass_kernel::{ItemId, RunId, Tenant};
use windlass_ports::{Day, ItemBytes, ItemScan, NodeId, RunUsage, UsageGroup, UsageQuery, UsageRow, UsageSums};

use super::{
    columns::{count, id, int, limit as as_limit, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::{
    rows::{Result, UsageRows},
    usage::{Uncounted, usage_of},
};

/// Less than every id, and greater than every id.
const NO_LOWER_BOUND: [u8; 0] = [];
const NO_UPPER_BOUND: [u8; 17] = [0xff; 17];

impl<P: Prepared> UsageRows for SqliteRows<P> {
    fn insert_uncounted(&mut self, tenant: &Tenant, run: RunId) -> Result<()> {
        self.change("INSERT INTO usage_uncounted (run, tenant) VALUES (?1, ?2)", params![run.as_bytes(), tenant.as_str()]).map(drop)
    }
}

impl<P: Prepared> SqliteRows<P> {
    /// The usage of ended runs that are in no sum yet.
    pub(super) fn uncounted_usage(&self, node: NodeId, limit: usize) -> Result<Vec<RunUsage>> {
        // Items at positions below zero are copies from the parents.
        let sql = "SELECT u.tenant, u.run, (
                       SELECT coalesce(sum(length(i.content)), 0) FROM box_rows AS b JOIN items AS i ON i.item = b.item
                       WHERE b.box IN (r.context, r.output) AND b.position >= 0), u.model
                   FROM usage_uncounted AS u JOIN runs AS r ON r.run = u.run ORDER BY u.run LIMIT ?1";
        let read = |row: &Row<'_>| {
            let tenant = variant(row, 0, |text| Some(text.into()))?;
            Ok(Uncounted { tenant, run: id(row, 1, RunId::from_slice)?, bytes: count(row, 2)?, model: row.get(3)? })
        };
        usage_of(self, node, &self.all(sql, [as_limit(limit)], read)?)
    }

    /// Adds rows to the sums, if all these runs are still on the list.
    pub(super) fn add_usage(&self, runs: &[RunId], rows: &[UsageRow]) -> Result<bool> {
        // Read before writing: a verb that writes nothing does not make its group fail.
        for run in runs {
            if self.one("SELECT 1 FROM usage_uncounted WHERE run = ?1", [run.as_bytes()], |_| Ok(()))?.is_none() {
                return Ok(false);
            }
        }
        for run in runs {
            self.change("DELETE FROM usage_uncounted WHERE run = ?1", [run.as_bytes()])?;
        }
        let sql =
            "INSERT INTO usage (tenant, day, agent, model, node, input, cached, cache_written, output, reasoning, lost, runs, calls, bytes)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
                   ON CONFLICT (tenant, day, agent, model, node) DO UPDATE SET
                       input = input + excluded.input, cached = cached + excluded.cached,
                       cache_written = cache_written + excluded.cache_written, output = output + excluded.output,
                       reasoning = reasoning + excluded.reasoning, lost = lost + excluded.lost,
                       runs = runs + excluded.runs, calls = calls + excluded.calls, bytes = bytes + excluded.bytes";
        for UsageRow { key, sums } in rows {
            let UsageSums { input, cached, cache_written, output, reasoning, lost, runs, calls, bytes } = *sums;
            let numbers = [input, cached, cache_written, output, reasoning, lost, runs, calls, bytes].map(int);
            let [input, cached, cache_written, output, reasoning, lost, runs, calls, bytes] = numbers;
            let (tenant, agent, model) = (key.tenant.as_str(), key.agent.as_str(), key.model.as_str());
            self.change(
                sql,
                params![
                    tenant,
                    key.day.0,
                    agent,
                    model,
                    int(key.node.0),
                    input,
                    cached,
                    cache_written,
                    output,
                    reasoning,
                    lost,
                    runs,
                    calls,
                    bytes
                ],
            )?;
        }
        Ok(true)
    }

    pub(super) fn forget_usage(&self, before: Day) -> Result<()> {
        self.change("DELETE FROM usage WHERE day < ?1", [before.0]).map(drop)
    }

    pub(super) fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Result<Vec<UsageGroup>> {
        let sql = "SELECT CASE WHEN ?4 THEN day END, CASE WHEN ?5 THEN agent END, CASE WHEN ?6 THEN model END,
                       sum(input), sum(cached), sum(cache_written), sum(output), sum(reasoning), sum(lost), sum(runs), sum(calls), sum(bytes)
                   FROM usage WHERE tenant = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT ?7";
        let read = |row: &Row<'_>| {
            let sums = UsageSums {
                input: count(row, 3)?,
                cached: count(row, 4)?,
                cache_written: count(row, 5)?,
                output: count(row, 6)?,
                reasoning: count(row, 7)?,
                lost: count(row, 8)?,
                runs: count(row, 9)?,
                calls: count(row, 10)?,
                bytes: count(row, 11)?,
            };
            let day: Option<u32> = row.get(0)?;
            Ok(UsageGroup { day: day.map(Day), agent: row.get(1)?, model: row.get(2)?, sums })
        };
        let UsageQuery { from, to, by_day, by_agent, by_model, limit } = *query;
        self.all(sql, params![tenant.as_str(), from.0, to.0, by_day, by_agent, by_model, as_limit(limit)], read)
    }

    pub(super) fn tenants(&self) -> Result<Vec<Tenant>> {
        self.all("SELECT tenant FROM tenants ORDER BY tenant", [], |row| variant(row, 0, |text| Some(text.into())))
    }

    /// The length of a blob is in the header of its row, so that no content is read.
    pub(super) fn item_bytes(&self, scan: &ItemScan) -> Result<ItemBytes> {
        let after = scan.after.as_ref().map_or(NO_LOWER_BOUND.as_slice(), |item| ItemId::as_bytes(item));
        let up_to = scan.up_to.as_ref().map_or(NO_UPPER_BOUND.as_slice(), |item| ItemId::as_bytes(item));
        let sql = "SELECT tenant, sum(bytes), count(*), max(item) FROM (
                       SELECT item, tenant, length(content) AS bytes FROM items WHERE item > ?1 AND item <= ?2 ORDER BY item LIMIT ?3)
                   GROUP BY tenant";
        let read = |row: &Row<'_>| {
            let tenant: Tenant = variant(row, 0, |text| Some(text.into()))?;
            Ok((tenant, count(row, 1)?, count(row, 2)?, id(row, 3, ItemId::from_slice)?))
        };
        let mut found = ItemBytes::default();
        for (tenant, bytes, items, last) in self.all(sql, params![after, up_to, as_limit(scan.limit)], read)? {
            found.tenants.push((tenant, bytes));
            found.items += usize::try_from(items).unwrap_or(usize::MAX);
            found.last = found.last.max(Some(last));
        }
        Ok(found)
    }
}
