//! The scan for runs that are old enough to be erased, in memory.

use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
};

use windlass_kernel::RunId;
use windlass_ports::{AgedPage, AgedScan, RunStatus};

use super::writes::MemoryRows;
use crate::{
    aging::{ListedRun, OldRuns},
    rows::RunRow,
};

impl MemoryRows {
    /// Ended runs of a tenant that are old enough to be erased and that nothing needs.
    pub(super) fn aged(&self, scan: &AgedScan) -> AgedPage {
        let is_own = |row: &&RunRow| row.brief.agent.tenant == scan.tenant;
        let later = self.runs.range((scan.after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, row)| row);
        let listed = later.filter(is_own).filter(|row| !row.unlisted).take(scan.looks).map(|row| ListedRun {
            run: row.brief.run,
            agent: row.brief.agent.agent.to_string(),
            created_at: row.created_at,
            ended_at: row.ended_at,
            note_bytes: row.note.as_ref().map_or(0, |note| note.len() as u64),
        });
        let old = OldRuns::of(scan, &listed.collect::<Vec<_>>());
        let all = self.runs.range(..).map(|(_, row)| row);
        let open = all.filter(is_own).filter(|row| row.brief.status != RunStatus::Ended);
        let needed: BTreeSet<RunId> = open.flat_map(|row| [row.follows, row.takes]).flatten().collect();
        let existing = old.conversations().into_iter().filter(|id| self.conversations.get(id).is_some()).collect();
        old.page(&needed, &existing)
    }
}
