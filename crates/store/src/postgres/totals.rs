//! Numbers about the whole database, for metrics. Each is read from an index or from a small table.

use windlass_kernel::{Cause, Timestamp, ToolName};
use windlass_ports::StoreTotals;

use super::{columns::Columns, pg_error::PgError, session::Session};

const COUNTS: &str = "SELECT (SELECT coalesce(sum(open), 0)::bigint FROM tenants), \
                             (SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT 100000) o), \
                             pg_database_size(current_database())";

const CALLS: &str = "SELECT tool, count(*) FROM calls WHERE status = 'waiting' GROUP BY tool \
                     UNION ALL SELECT tool, count(*) FROM calls WHERE status = 'claimed' GROUP BY tool";

const CAUSES: &str = "SELECT cause, count(*), min(created_at) FROM interrupts WHERE verdict IS NULL GROUP BY cause ORDER BY cause";

pub(super) async fn totals(session: &Session) -> Result<StoreTotals, PgError> {
    let counts = session.client.query_one(COUNTS, &[]).await?;
    let count = |column: usize| Ok::<_, PgError>(counts.try_get::<_, i64>(column)?.unsigned_abs());
    let calls = session.client.query(CALLS, &[]).await?;
    let open_calls = calls.iter().map(|row| {
        let (tool, count): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok::<_, PgError>((ToolName::from(tool), count.unsigned_abs()))
    });
    let causes = causes(session).await?;
    Ok(StoreTotals {
        oldest_interrupt: causes.iter().map(|(.., oldest)| *oldest).min(),
        open_interrupts: causes.into_iter().map(|(cause, count, _)| (cause, count)).collect(),
        open_runs: count(0)?,
        open_calls: open_calls.collect::<Result<_, _>>()?,
        outbox: count(1)?,
        bytes: count(2)?,
    })
}

/// The open interrupts of each cause, with the time of the oldest.
async fn causes(session: &Session) -> Result<Vec<(Cause, u64, Timestamp)>, PgError> {
    let rows = session.client.query(CAUSES, &[]).await?;
    rows.into_iter().map(|row| Ok(Columns::of(row).cause_count()?)).collect()
}
