//! What must hold in every state, and what must be seen at least once so that this means something.

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// In words.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

spelled! {
    /// What must hold, always. The numbers are those of the design.
    Promise {
        /// S1.
        OneActiveRun = "S1: at most one run of an agent is active, and it is the head's",
        /// S2, for what is written.
        NoOldEpoch = "S2: nothing is written under an old epoch",
        /// S2, for what an epoch means.
        OneOwnerPerEpoch = "S2: an epoch has one run and one owner, and a stop is above all that was before",
        /// S2, for what is started.
        EffectFromRow = "S2: an effect starts from a committed row",
        /// S3.
        LapsByOne = "S3: a lap is one more than the last, and its reply was asked for in it",
        /// S4, at the beginning.
        OneRunPerRequest = "S4: one request is one run",
        /// S4, at the end.
        OneEnd = "S4: a run ends once",
        /// S5, in the run.
        ResultOnce = "S5: a result is applied once, to the call that waits for it",
        /// S5, in the inbox.
        OneReportRow = "S5: a duplicate report changes nothing",
        /// S6.
        WriteOnce = "S6: no write is started twice",
        /// S6, the other side: a person is asked only if nobody knows.
        ParkOnlyUnknown = "S6: what this process knows is not parked for a person",
        /// S8.
        FoldIsState = "S8: folding the journal gives the state",
        /// S10.
        WithinBudget = "S10: a budget is not passed",
        /// The rows of the store agree with each other.
        RowsAgree = "rows: no commit meets a row of its own, and the head counts what waits",
        /// L1.
        NothingStuck = "L1: with nothing left to happen every run has ended, or waits before its deadline, or for a person",
    }
}

spelled! {
    /// What must be seen at least once.
    Fact {
        /// An owner that was taken for dead came back, and its commit was refused.
        ZombieFenced = "a zombie was fenced",
        /// An owner that was taken for dead started what it had committed before.
        ZombieStarted = "a zombie started what it had committed",
        /// A result came before its call was made, and was taken after.
        EarlyKept = "an early result was kept",
        /// A commit was applied, its answer lost, and it was asked for again.
        AnswerLost = "a lost answer was asked for again",
        /// The same for a request.
        EnqueueLost = "a request whose answer was lost was made again",
        /// A request that stands on the line lands after its repetition.
        LateRequest = "a delayed commit landed late and changed nothing",
        /// A lost owner's run went on.
        TakenOver = "a run was taken over",
        /// A run was stopped in the middle of a model call.
        StoppedThinking = "a model call was stopped",
        /// A queued run was stopped.
        Withdrawn = "a queued run was withdrawn",
        /// A write waits for a person.
        WriteParked = "a write was parked",
        /// A write that a service held waits for a person.
        HeldWriteParked = "a claimed write was parked",
        /// A read was started again.
        ReadAgain = "a read was started again",
        /// A deadline passed.
        TimedOut = "a deadline passed",
        /// A service lost its hold on a call.
        HoldEnded = "a hold on a call ended",
        /// A second report of a call came.
        DuplicateReport = "a duplicate report came",
        /// A report came after the end.
        LateReport = "a report came after the end",
        /// A key was used twice.
        DuplicateKey = "a key was used twice",
        /// A run was leased by the end of the one before it.
        NextLeased = "a queued run was leased",
        /// A budget ended a run.
        BudgetEnded = "a budget ended a run",
        /// A model call failed and was tried again.
        Retried = "a model call was tried again",
        /// A parked run waits though everything else is over.
        ParkedAtTheEnd = "a run waits for a person at the end",
    }
}

/// Facts that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(u32);

impl Facts {
    /// Adds one.
    pub fn add(&mut self, fact: Fact) {
        self.0 |= 1 << fact as u32;
    }

    /// Adds others.
    pub fn join(&mut self, other: Facts) {
        self.0 |= other.0;
    }

    /// Whether one was seen.
    pub fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u32) != 0
    }
}

/// What a step showed: facts, and the first promise it broke.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The facts.
    pub facts: Facts,
    /// The broken promise, and how.
    pub broken: Option<(Promise, String)>,
}

impl Seen {
    /// A fact.
    pub fn fact(&mut self, fact: Fact) {
        self.facts.add(fact);
    }

    /// Something that must hold.
    pub fn holds(&mut self, is_so: bool, promise: Promise, how: impl FnOnce() -> String) {
        if !is_so && self.broken.is_none() {
            self.broken = Some((promise, how()));
        }
    }
}
