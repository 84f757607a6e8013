//! Which ended runs are old enough to be erased, decided in the same way for all databases.
//!
//! There is no index for this. An index over the time of the end would change with the commit that ends a run, and on PostgreSQL with it
//! every other index of the row. The scan uses the index of the lists, which has runs in the order in which they were accepted, and ends at
//! the first run that was accepted too late.

use std::collections::BTreeSet;

use windlass_kernel::{ConversationId, RunId, Timestamp};
use windlass_ports::{AgedPage, AgedScan};

/// The columns of a listed run that the scan reads.
#[derive(Clone, Debug)]
pub(crate) struct ListedRun {
    pub run: RunId,
    /// The agent of its head.
    pub agent: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The length of its note; 0 if it has none.
    pub note_bytes: u64,
}

/// Runs that are old enough. Whether something needs them is not known yet.
#[derive(Debug)]
pub(crate) struct OldRuns {
    due: Vec<(RunId, Option<ConversationId>)>,
    next: Option<RunId>,
}

impl OldRuns {
    /// Chooses among the listed runs after `scan.after`, at most the first `scan.looks` of them.
    pub fn of(scan: &AgedScan, listed: &[ListedRun]) -> Self {
        let mut old = OldRuns { due: Vec::new(), next: None };
        let newest = scan.cutoffs.newest();
        for row in listed {
            if newest.is_none_or(|newest| row.created_at > newest) {
                return old;
            }
            if row.ended_at.is_some_and(|ended_at| scan.cutoffs.is_due(row.note_bytes, ended_at)) {
                old.due.push((row.run, row.agent.parse().ok()));
                if old.due.len() >= scan.limit {
                    old.next = Some(row.run);
                    return old;
                }
            }
        }
        old.next = listed.last().filter(|_| listed.len() >= scan.looks).map(|row| row.run);
        old
    }

    /// Whether there are no such runs.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The conversations that these runs may belong to.
    pub fn conversations(&self) -> BTreeSet<ConversationId> {
        self.due.iter().filter_map(|(_, conversation)| *conversation).collect()
    }

    /// Leaves out the runs that open runs need, and the runs of conversations that exist.
    pub fn page(self, needed: &BTreeSet<RunId>, existing: &BTreeSet<ConversationId>) -> AgedPage {
        let is_free = |(run, conversation): &(RunId, Option<ConversationId>)| {
            !needed.contains(run) && conversation.is_none_or(|conversation| !existing.contains(&conversation))
        };
        AgedPage { due: self.due.into_iter().filter(is_free).map(|(run, _)| run).collect(), next: self.next }
    }
}
