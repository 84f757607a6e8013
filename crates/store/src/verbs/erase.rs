//! Erasing runs: when they are due, and what is deleted.

use windlass_kernel::{BoxId, EndReason, Phase, Run, RunId, Tenant};
use windlass_ports::RunStatus;

use crate::rows::{Erasure, NO_MANIFEST, Reads, Result, Rows, RunRow};

/// A run whose client has to make calls is kept for at least this long, because its follow-up may still need the content. The end of the
/// follow-up ends this wait.
pub(crate) const FOLLOW_UP_MS: u64 = 60 * 60 * 1_000;

/// The longest time until a run is erased. A longer one could overflow a timestamp.
const ERASE_MS_MAX: u64 = 1 << 50;

/// How long after its end a run is kept at least.
pub(super) fn held_ms(state: &Run) -> u64 {
    match &state.phase {
        Phase::Ended { reason: EndReason::RequiresAction, .. } => FOLLOW_UP_MS,
        Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. } | Phase::Ended { .. } => 0,
    }
}

/// How long after its end a new run is erased.
pub(super) fn erase_ms(asked: Option<u64>) -> Option<u64> {
    asked.map(|ms| ms.min(ERASE_MS_MAX))
}

/// Erases a run that has ended. Any other run, and one that was erased before, is left as it is.
pub(crate) fn erase<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, run: RunId) -> Result<()> {
    let is_over = |row: &RunRow| row.brief.agent.tenant == *tenant && row.brief.status == RunStatus::Ended;
    let Some(row) = rows.run(run)?.filter(is_over) else {
        return Ok(());
    };
    let (gone, kept) = split_boxes(rows, &row)?;
    rows.forget_deltas(run)?;
    // A client that continued this run could also continue the earlier one, and now it can do neither: so the runs of a conversation become
    // due from the last to the first.
    if let (Some(earlier), Some(ended_at)) = (row.follows, row.ended_at) {
        rows.release_run(tenant, earlier, ended_at)?;
    }
    let manifest = Some(row.manifest).filter(|hash| *hash != NO_MANIFEST);
    let pinned = manifest.map(|hash| rows.manifest(tenant, &hash)).transpose()?.flatten();
    let model = pinned.map(|manifest| manifest.model.clone());
    rows.erase_run(&Erasure { run, agent: row.brief.agent, gone, kept, manifest, model })
}

/// Whether the content of a run was erased: every other run has a first event.
pub(crate) fn is_erased<R: Reads + ?Sized>(rows: &R, run: RunId) -> Result<bool> {
    Ok(rows.journal(run, 0, 1)?.is_empty())
}

/// The boxes of a run that are deleted, and those that stay. What reads the output also reads the context before it.
fn split_boxes<R: Reads + ?Sized>(rows: &R, row: &RunRow) -> Result<(Vec<BoxId>, Vec<BoxId>)> {
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    let mut is_read = false;
    for id in [row.output, row.context] {
        let Some(found) = rows.find_box(id)? else { continue };
        is_read |= found.shared;
        if is_read { kept.push(id) } else { gone.push(id) }
    }
    Ok((gone, kept))
}
