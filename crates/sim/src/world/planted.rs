//! Bugs that are planted on purpose, to prove that the checks notice them. All of them are in the simulation's own handle of the store: the
//! product has no code for them.

/// A bug between a process and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The guard of a commit ignores `seq` and the status: a commit whose answer was lost may be applied twice.
    GuardWithoutSeq,
    /// A fenced commit is reported as applied: a process that lost its lease continues.
    FencedIsSuccess,
    /// Results are acknowledged about a second before they are flushed.
    AnswerBeforeFlush,
    /// A service gets calls that another service holds.
    ClaimedTwice,
    /// A heartbeat is acknowledged that never arrived: the process believes in a lease that it does not have.
    LeaseOfAir,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [PlantedBug; 5] = [
        PlantedBug::GuardWithoutSeq,
        PlantedBug::FencedIsSuccess,
        PlantedBug::AnswerBeforeFlush,
        PlantedBug::ClaimedTwice,
        PlantedBug::LeaseOfAir,
    ];
}
