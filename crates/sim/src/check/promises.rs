//! The promises that must hold in every state, and the facts that must be seen at least once, or the check would prove little.

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The description.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

spelled! {
    /// A promise. The numbers are those of the design.
    Promise {
        /// S1.
        OneActiveRun = "S1: at most one run of an agent is active, and it is the head's",
        /// S2, for writes.
        NoOldEpoch = "S2: nothing is written under an old epoch",
        /// S2, for the meaning of an epoch.
        OneOwnerPerEpoch = "S2: an epoch has one run and one owner, and a stop is above all that was before",
        /// S2, for effects.
        EffectFromRow = "S2: an effect starts from a committed row",
        /// S3.
        IterationsByOne = "S3: an iteration is one more than the last, and its reply was asked for in it",
        /// S4, at the beginning of a run.
        OneRunPerRequest = "S4: one request is one run",
        /// S4, at the end of a run.
        OneEnd = "S4: a run ends once",
        /// S5, in the run.
        ResultOnce = "S5: a result is applied once, to the call that waits for it",
        /// S5, in the inbox.
        OneReportRow = "S5: a duplicate report changes nothing",
        /// S6.
        WriteOnce = "S6: no write is started twice",
        /// S6, the other direction: a person is asked only if the outcome is unknown.
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
    /// A fact that must be seen at least once.
    Fact {
        /// An owner whose lease had ended came back, and its commit was refused.
        ZombieFenced = "a zombie was fenced",
        /// An owner whose lease had ended started the effects of its last commit.
        ZombieStarted = "a zombie started what it had committed",
        /// A result arrived before its call was made, and was applied afterwards.
        EarlyKept = "an early result was kept",
        /// A commit was applied, its answer was lost, and it was sent again.
        AnswerLost = "a lost answer was asked for again",
        /// The same for a request.
        EnqueueLost = "a request whose answer was lost was made again",
        /// A delayed commit arrived after its repetition.
        LateRequest = "a delayed commit landed late and changed nothing",
        /// The run of a lost owner was continued.
        TakenOver = "a run was taken over",
        /// A run was stopped during a model call.
        StoppedThinking = "a model call was stopped",
        /// A queued run was stopped.
        Withdrawn = "a queued run was withdrawn",
        /// A write was parked for a person.
        WriteParked = "a write was parked",
        /// A write that a service held was parked for a person.
        HeldWriteParked = "a claimed write was parked",
        /// A read was started again.
        ReadAgain = "a read was started again",
        /// A deadline passed.
        TimedOut = "a deadline passed",
        /// The lease of a service on a call ended.
        HoldEnded = "a hold on a call ended",
        /// A second report for a call arrived.
        DuplicateReport = "a duplicate report came",
        /// A report arrived after the end of its run.
        LateReport = "a report came after the end",
        /// A key was used twice.
        DuplicateKey = "a key was used twice",
        /// A run was leased by the end of the one before it.
        NextLeased = "a queued run was leased",
        /// A budget ended a run.
        BudgetEnded = "a budget ended a run",
        /// A model call failed and was attempted again.
        Retried = "a model call was tried again",
        /// A parked run waits for a person although everything else has ended.
        ParkedAtTheEnd = "a run waits for a person at the end",
    }
}

/// A set of facts that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(u64);

impl Facts {
    /// Adds one fact.
    pub fn add(&mut self, fact: Fact) {
        self.0 |= 1 << fact as u64;
    }

    /// Adds the facts of another set.
    pub fn join(&mut self, other: Facts) {
        self.0 |= other.0;
    }

    /// Whether a fact was seen.
    pub fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u64) != 0
    }
}

/// What a step showed: facts, and the first promise that it broke.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The facts.
    pub facts: Facts,
    /// The broken promise, and how it was broken.
    pub broken: Option<(Promise, String)>,
}

impl Seen {
    /// Records a fact.
    pub fn fact(&mut self, fact: Fact) {
        self.facts.add(fact);
    }

    /// Records a broken promise unless `is_so` holds.
    pub fn holds(&mut self, is_so: bool, promise: Promise, how: impl FnOnce() -> String) {
        if !is_so && self.broken.is_none() {
            self.broken = Some((promise, how()));
        }
    }
}
