//! Numbers about the whole database, for metrics. Each is read from an index or from a small table.

use windlass_kernel::ToolName;
use windlass_ports::StoreTotals;

use super::{pg_error::PgError, session::Session};

const COUNTS: &str = "SELECT (SELECT coalesce(sum(open), 0)::bigint FROM tenants), \
                             (SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT 100000) o), \
                             pg_database_size(current_database())";

const CALLS: &str = "SELECT tool, count(*) FROM calls WHERE status = 'waiting' GROUP BY tool \
                     UNION ALL SELECT tool, count(*) FROM calls WHERE status = 'claimed' GROUP BY tool";

pub(super) async fn totals(session: &Session) -> Result<StoreTotals, PgError> {
    let counts = session.client.query_one(COUNTS, &[]).await?;
    let count = |column: usize| Ok::<_, PgError>(counts.try_get::<_, i64>(column)?.unsigned_abs());
    let calls = session.client.query(CALLS, &[]).await?;
    let open_calls = calls.iter().map(|row| {
        let (tool, count): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok::<_, PgError>((ToolName::from(tool), count.unsigned_abs()))
    });
    Ok(StoreTotals {
        open_interrupts: Vec::new(),
        oldest_interrupt: None,
        open_runs: count(0)?,
        open_calls: open_calls.collect::<Result<_, _>>()?,
        outbox: count(1)?,
        bytes: count(2)?,
    })
}
