//! Lists of runs, the same for all databases.

use windlass_kernel::Tenant;
use windlass_ports::{ListedRun, RunPage, RunScan, RunSet, RunStatus, RunView, StoreError, codec};

use crate::{
    reading::{state_of, view_of},
    rows::{Reads, Result, RunRow, missing_row},
};

/// The most runs of one head whose ids may be in another order than their ordinals.
pub(crate) const RUNS_AT_ONCE_MAX: i64 = 64;

/// One page of a tenant's runs. All reads about its rows are made before any of them may fail, so that a remote database can answer them in
/// one batch.
pub(crate) fn scan_runs<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, scan: &RunScan) -> Result<RunPage> {
    let found = rows.scan_runs(tenant, scan)?;
    let next = found.last().filter(|_| found.len() >= scan.limit).map(|row| row.brief.run);
    let is_open = |row: &RunRow| row.brief.status != RunStatus::Ended;
    // Who may see a run may also see its children.
    let is_shown = |row: &RunRow| !row.unlisted || matches!(scan.set, RunSet::Children(_));
    let wanted = found.into_iter().filter(|row| is_shown(row) && (scan.set != RunSet::Open || is_open(row)));
    let listed: Vec<Result<ListedRun>> = wanted.map(|row| listed(rows, row)).collect();
    Ok(RunPage { runs: listed.into_iter().collect::<Result<_>>()?, next })
}

fn listed<R: Reads + ?Sized>(rows: &R, row: RunRow) -> Result<ListedRun> {
    let brief = row.brief.clone();
    let (created_at, ended_at) = (row.created_at, row.ended_at);
    let view = match view(rows, row) {
        Ok(view) => Some(view),
        Err(StoreError::Corrupt(_)) => None,
        Err(error) => return Err(error),
    };
    let (id, agent, agent_name, status) = (brief.run, brief.agent, brief.agent_name, brief.status);
    Ok(ListedRun { id, agent, agent_name, status, created_at, ended_at, view })
}

/// Only an active run has events that came after its state was stored.
fn view<R: Reads + ?Sized>(rows: &R, row: RunRow) -> Result<RunView> {
    let state = match row.brief.status {
        RunStatus::Active => state_of(rows, &row)?,
        RunStatus::Queued | RunStatus::Ended => {
            codec::decode_run(row.state_version, &row.state)?.ok_or_else(|| missing_row("a run's state"))?
        }
    };
    view_of(rows, row, state)
}
