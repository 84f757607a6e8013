//! The record of a world: the last lines for people, a hash of all of them, and how often each fact was seen.

use std::{collections::VecDeque, fmt};

/// The lines that are kept for the report of a failure.
const LINES_MAX: usize = 48;

macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// Something that must happen from time to time, or the simulation would prove little.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fact { $($(#[$doc])* $name),+ }

        impl Fact {
            /// All of them.
            pub const ALL: &'static [Fact] = &[$(Fact::$name),+];

            /// The description.
            pub fn as_str(self) -> &'static str {
                match self { $(Fact::$name => $text),+ }
            }
        }
    };
}

facts! {
    /// A process whose lease had ended continued and was fenced.
    ZombieRejected = "zombie rejected",
    /// A result arrived before its call was made, and was applied afterwards.
    EarlyResultKept = "early result kept",
    /// A commit was sent again and found applied.
    AnswerLostAndRetried = "answer lost and retried",
    /// Another owner continued a run.
    Takeover = "takeover",
    /// A process without a valid lease got the answer to a commit, and started none of its effects.
    HeldBack = "effects held back",
    /// A write was parked for a person.
    WriteParked = "write parked",
    /// A whole run was parked for a person.
    RunParked = "run parked",
    /// A person let a write run again.
    Released = "write released",
    /// A run was stopped during a model call.
    StopWhileThinking = "stop while thinking",
    /// A result arrived twice.
    DuplicateReport = "duplicate report",
    /// A result arrived after the end of its run.
    LateReport = "late report",
    /// A result for the wrong run or call was refused.
    ForeignRefused = "foreign report refused",
    /// A call reached its deadline without a result.
    DeadlinePassed = "deadline passed",
    /// A service's lease on a call ended without a result.
    ClaimEnded = "claim ended",
    /// A model was called again after it had answered 429.
    RetryAfter429 = "retry after 429",
    /// A stream broke off.
    StreamCut = "stream cut",
    /// A model never answered.
    ModelStalled = "model stalled",
    /// A budget was exceeded.
    BudgetBreached = "budget breached",
    /// Everything that was not flushed was lost, and every process died.
    PowerLoss = "power loss",
    /// A write was lost before it was flushed.
    Forgotten = "verb forgotten",
    /// A process died at a crash point.
    Crash = "crash",
    /// A process was paused for longer than its lease.
    LongPause = "pause past the lease",
    /// A process's clock jumped.
    ClockJump = "clock jump",
    /// A process was drained.
    Drained = "drained",
    /// A ring was lost.
    RingLost = "ring lost",
    /// A ring arrived twice.
    RingDoubled = "ring doubled",
    /// A repeated request found its first run.
    RequestRepeated = "request repeated",
    /// A message was published more than once.
    PublishedAgain = "published again",
}

/// How often each fact was seen.
#[derive(Clone, Debug)]
pub struct FactCounts {
    counts: Vec<u64>,
}

impl Default for FactCounts {
    fn default() -> Self {
        FactCounts { counts: vec![0; Fact::ALL.len()] }
    }
}

impl FactCounts {
    /// How often a fact was seen.
    pub fn count(&self, fact: Fact) -> u64 {
        self.counts[fact as usize]
    }

    /// Adds the facts of another world.
    pub fn add(&mut self, other: &FactCounts) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// FactCounts that were never seen.
    pub fn missing(&self) -> Vec<&'static str> {
        Fact::ALL.iter().filter(|fact| self.count(**fact) == 0).map(|fact| fact.as_str()).collect()
    }
}

impl fmt::Display for FactCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = Fact::ALL.iter().map(|fact| format!("{} {}", fact.as_str(), self.count(*fact))).collect();
        f.write_str(&counts.join(", "))
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The number of the promise.
    pub promise: &'static str,
    /// How it was broken.
    pub text: String,
    /// The last lines before that.
    pub story: Vec<String>,
}

/// The record of one world.
#[derive(Default)]
pub(super) struct Record {
    lines: VecDeque<String>,
    hash: u64,
    pub facts: FactCounts,
    pub faults: u64,
    pub violation: Option<Violation>,
}

impl Record {
    pub fn log(&mut self, line: String) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn saw(&mut self, fact: Fact) {
        self.facts.counts[fact as usize] += 1;
    }

    /// Records a broken promise. Only the first one counts, because it may cause others.
    pub fn break_promise(&mut self, promise: &'static str, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { promise, text, story: self.lines.iter().cloned().collect() });
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
