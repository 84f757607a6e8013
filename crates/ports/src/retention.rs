//! Erasing ended runs by their age, a bounded batch at a time.

use windlass_kernel::{RunId, Tenant, Timestamp};

/// The longest note of a run that came over the agents API: the hash of its request. Notes of responses are longer. That is how a store
/// tells runs of the two APIs apart.
pub const AGENTS_NOTE_BYTES_MAX: u64 = 16;

/// Runs that ended at these times or before are erased. What is not set is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cutoffs {
    /// For runs of the Responses API.
    pub responses: Option<Timestamp>,
    /// For runs of the agents API.
    pub runs: Option<Timestamp>,
}

impl Cutoffs {
    /// A run that was accepted later is too young for both.
    pub fn newest(&self) -> Option<Timestamp> {
        self.responses.max(self.runs)
    }

    /// Whether a run is old enough, by the length of its note and by the time of its end.
    pub fn is_due(&self, note_bytes: u64, ended_at: Timestamp) -> bool {
        let cutoff = if note_bytes > AGENTS_NOTE_BYTES_MAX { self.responses } else { self.runs };
        cutoff.is_some_and(|cutoff| ended_at <= cutoff)
    }
}

/// A question for runs of a tenant that are old enough to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgedScan {
    /// Whose runs.
    pub tenant: Tenant,
    /// How old they must be.
    pub cutoffs: Cutoffs,
    /// Only runs that were accepted after this one.
    pub after: Option<RunId>,
    /// Runs that are returned at the most.
    pub limit: usize,
    /// Runs that are looked at for them at the most.
    pub looks: usize,
}

/// Runs that are old enough to be erased, the one that was accepted first before the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgedPage {
    /// The runs.
    pub due: Vec<RunId>,
    /// Where the next page goes on. `None` if no other run can be old enough.
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
