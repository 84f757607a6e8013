//! Erasing ended runs by their age, in bounded batches.

use windlass_kernel::{RunId, Tenant, Timestamp};

/// The longest note of a run that came over the agents API: the hash of its request. Notes of the Responses API are longer. That is how a
/// store distinguishes runs of the two APIs.
pub const AGENTS_NOTE_BYTES_MAX: u64 = 16;

/// Runs that ended at these times or earlier are erased. A run whose API has no time is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cutoffs {
    /// The time for runs of the Responses API.
    pub responses: Option<Timestamp>,
    /// The time for runs of the agents API.
    pub runs: Option<Timestamp>,
}

impl Cutoffs {
    /// The later of the two times. A run that was accepted later is too young for both.
    pub fn newest(&self) -> Option<Timestamp> {
        self.responses.max(self.runs)
    }

    /// Whether a run is old enough, by the length of its note and the time of its end.
    pub fn is_due(&self, note_bytes: u64, ended_at: Timestamp) -> bool {
        let cutoff = if note_bytes > AGENTS_NOTE_BYTES_MAX { self.responses } else { self.runs };
        cutoff.is_some_and(|cutoff| ended_at <= cutoff)
    }
}

/// A question for the runs of a tenant that are old enough to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgedScan {
    /// The tenant that owns the runs.
    pub tenant: Tenant,
    /// The ages from which on runs are erased.
    pub cutoffs: Cutoffs,
    /// Only runs that were accepted after this one.
    pub after: Option<RunId>,
    /// The number of runs that are returned at most.
    pub limit: usize,
    /// The number of runs that are examined at most.
    pub looks: usize,
}

/// Runs that are old enough to be erased, in the order in which they were accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgedPage {
    /// The runs.
    pub due: Vec<RunId>,
    /// Where the next page continues. `None` if no other run can be old enough.
    pub next: Option<RunId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_a_cutoff_of_its_own() {
        let cutoffs = Cutoffs { responses: Some(Timestamp(10)), runs: Some(Timestamp(5)) };
        assert_eq!(cutoffs.newest(), Some(Timestamp(10)));
        assert!(cutoffs.is_due(17, Timestamp(10)) && !cutoffs.is_due(17, Timestamp(11)));
        assert!(cutoffs.is_due(16, Timestamp(5)) && !cutoffs.is_due(0, Timestamp(6)));
        let none = Cutoffs::default();
        assert!(none.newest().is_none() && !none.is_due(0, Timestamp(0)) && !none.is_due(100, Timestamp(0)));
    }
}
