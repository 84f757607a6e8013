//! Numbers about the whole database, for metrics. Each is read from an index or from a small table.

use windlass_kernel::{Cause, ToolName};
use windlass_ports::StoreTotals;

use super::{
    columns::{time, variant},
    statements::SqliteRows,
};
use crate::rows::Result;

impl SqliteRows {
    pub(super) fn totals(&self) -> Result<StoreTotals> {
        let count = |sql| self.one(sql, [], |row| row.get::<_, i64>(0)).map(|found| found.unwrap_or(0).unsigned_abs());
        // Two queries, so that each uses the index of its status.
        let calls = "SELECT tool, count(*) FROM calls WHERE status = 'waiting' GROUP BY tool
                     UNION ALL SELECT tool, count(*) FROM calls WHERE status = 'claimed' GROUP BY tool";
        let open_calls = self.all(calls, [], |row| {
            let (tool, count): (String, i64) = (row.get(0)?, row.get(1)?);
            Ok((ToolName::from(tool.as_str()), count.unsigned_abs()))
        })?;
        let causes = "SELECT cause, count(*), min(created_at) FROM interrupts INDEXED BY interrupts_causes WHERE verdict IS NULL
                      GROUP BY cause ORDER BY cause";
        let causes = self.all(causes, [], |row| Ok((variant(row, 0, Cause::parse)?, super::columns::count(row, 1)?, time(row, 2)?)))?;
        Ok(StoreTotals {
            oldest_interrupt: causes.iter().map(|(.., oldest)| *oldest).min(),
            open_interrupts: causes.into_iter().map(|(cause, count, _)| (cause, count)).collect(),
            open_runs: count("SELECT coalesce(sum(open), 0) FROM tenants")?,
            open_calls,
            outbox: count("SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT 100000)")?,
            bytes: count("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")?,
        })
    }
}
