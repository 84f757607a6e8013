//! Bugs put in on purpose, to see that the checkers are awake. All of them are in the simulation's own store handle: the
//! product has no bug code in it.

/// A bug in the way a process and its store talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The guard of a commit does not look at `seq` and status: a commit whose answer was lost may be applied again.
    GuardWithoutSeq,
    /// A fenced commit is taken for one that was applied already: a zombie goes on.
    FencedIsSuccess,
    /// Results are acknowledged a second or so before they are flushed.
    AnswerBeforeFlush,
    /// A service gets calls that somebody else holds.
    ClaimedTwice,
    /// A sign of life is acknowledged that never arrived: the process believes in a lease it does not have.
    LeaseOfAir,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 5] =
        [Plant::GuardWithoutSeq, Plant::FencedIsSuccess, Plant::AnswerBeforeFlush, Plant::ClaimedTwice, Plant::LeaseOfAir];
}
