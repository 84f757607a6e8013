//! Removes each guard and names the promise that breaks without it.

use super::{
    configs::{Config, FaultBudget, LOCAL_WRITE, NOTHING, PLAIN, SERVED_READ, SERVED_WRITE, Tool, Ways},
    guards::Guard,
    promises::Promise,
};

/// One guard that is removed, together with those that cover for it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The guard.
    pub guard: Guard,
    /// Guards that keep the same promise. With any of them active, the guard is not missed.
    pub covered_by: &'static [Guard],
    /// The configuration that needs the guard.
    pub config: Config,
    /// The promise that breaks.
    pub breaks: Promise,
}

/// The trials of all guards.
pub fn trials() -> Vec<Trial> {
    [of_commits(), of_epochs(), of_rows(), of_the_sweep(), of_workers()].concat()
}

const SERVED: &[Tool] = &[SERVED_READ, SERVED_WRITE];
const WRITTEN: &[Tool] = &[LOCAL_WRITE, SERVED_READ];

fn trial(guard: Guard, breaks: Promise, config: Config) -> Trial {
    Trial { guard, covered_by: &[], config, breaks }
}

/// The fields of a commit's guard. The sequence number alone would suffice, because every commit raises it; the others back it up. So each
/// of them is removed together with its cover, and then something breaks that does not break without the cover alone.
fn of_commits() -> Vec<Trial> {
    let lost = Config { name: "a lost answer", keys: &[1], tools: SERVED, faults: FaultBudget { lost: 1, ..NOTHING }, ..PLAIN };
    let zombie = Config { name: "a zombie", faults: FaultBudget { pauses: 1, ..NOTHING }, ..PLAIN };
    vec![
        trial(Guard::Seq, Promise::RowsAgree, lost.clone()),
        Trial { covered_by: &[Guard::Seq], ..trial(Guard::Epoch, Promise::NoOldEpoch, Config { keys: &[1], ..zombie.clone() }) },
        Trial { covered_by: &[Guard::Seq, Guard::Epoch], ..trial(Guard::Run, Promise::OneActiveRun, zombie) },
        // With one call every commit changes the status, so that the status alone recognises a repeated commit.
        Trial { covered_by: &[Guard::Seq], ..trial(Guard::Status, Promise::RowsAgree, Config { tools: &[SERVED_READ], ..lost.clone() }) },
        Trial { covered_by: &[Guard::Seq], ..trial(Guard::JournalNumber, Promise::ResultOnce, lost) },
    ]
}

fn of_epochs() -> Vec<Trial> {
    let named = |name, faults| Config { name, faults, ..PLAIN };
    vec![
        trial(Guard::OwnerRaisesEpoch, Promise::OneOwnerPerEpoch, named("a crash", FaultBudget { crashes: 1, ..NOTHING })),
        trial(Guard::StopRaisesEpoch, Promise::OneOwnerPerEpoch, named("a stop", FaultBudget { stops: 1, ..NOTHING })),
        trial(Guard::LeaseRaisesEpoch, Promise::OneOwnerPerEpoch, named("two runs", NOTHING)),
    ]
}

fn of_rows() -> Vec<Trial> {
    let doubled = FaultBudget { duplicates: 1, ..NOTHING };
    vec![
        trial(Guard::LeaseFromIdle, Promise::OneActiveRun, Config { name: "two runs", ..PLAIN }),
        trial(Guard::UniqueDedupe, Promise::OneRunPerRequest, Config { name: "a key used twice", keys: &[1, 1], ..PLAIN }),
        trial(
            Guard::UniqueReport,
            Promise::OneReportRow,
            Config { name: "a duplicate", keys: &[1], tools: SERVED, faults: doubled, ..PLAIN },
        ),
        trial(Guard::ClaimWaiting, Promise::WriteOnce, Config { name: "two services", keys: &[1], tools: SERVED, ..PLAIN }),
    ]
}

fn of_the_sweep() -> Vec<Trial> {
    let one = Config { keys: &[1], tools: SERVED, ..PLAIN };
    let stuck = |guard, name, config: Config| trial(guard, Promise::NothingStuck, Config { name, ..config });
    let recorded = Config { reports: Ways::Inbox, ..one.clone() };
    let timed = Config { faults: FaultBudget { ticks: 2, ..NOTHING }, ..one.clone() };
    let failing = Config { faults: FaultBudget { ticks: 2, failures: 1, ..NOTHING }, ..one.clone() };
    vec![
        stuck(Guard::DispatchedIsDue, "no room", Config { is_full: true, ..one.clone() }),
        stuck(Guard::ReportIsDue, "no room for a report", recorded.clone()),
        stuck(Guard::PendingIsDue, "a report in between", recorded),
        stuck(Guard::DeadlineIsDue, "a deadline", timed),
        // At a later tick the deadline would cover for it.
        stuck(Guard::HoldEndIsDue, "a lost service", Config { faults: FaultBudget { ticks: 1, silences: 1, ..NOTHING }, ..one.clone() }),
        stuck(Guard::RetryIsDue, "a failing model", failing),
        stuck(Guard::OrphansAreFound, "a crash", Config { faults: FaultBudget { crashes: 1, ..NOTHING }, ..one }),
    ]
}

fn of_workers() -> Vec<Trial> {
    let one = Config { keys: &[1], tools: WRITTEN, ..PLAIN };
    let lost = Config { name: "a lost answer", faults: FaultBudget { lost: 1, ..NOTHING }, ..one.clone() };
    let crash = Config { name: "a crash", faults: FaultBudget { crashes: 1, ..NOTHING }, ..one.clone() };
    let back = Config { name: "a zombie comes back", faults: FaultBudget { crashes: 1, pauses: 1, ..NOTHING }, ..one.clone() };
    vec![
        trial(Guard::AppliedAlready, Promise::ParkOnlyUnknown, lost.clone()),
        trial(Guard::SameCommitAgain, Promise::ParkOnlyUnknown, lost),
        trial(Guard::EffectsAfterCommit, Promise::EffectFromRow, Config { name: "one run", ..one.clone() }),
        trial(Guard::TakeoverIsAnInput, Promise::WriteOnce, crash),
        trial(Guard::TakeOnlyFromLost, Promise::ParkOnlyUnknown, Config { name: "a report elsewhere", ..one.clone() }),
        trial(Guard::ReplyFitsIteration, Promise::IterationsByOne, back),
        trial(Guard::ResultInMemory, Promise::ParkOnlyUnknown, Config { name: "a look in between", reports: Ways::Inbox, ..one }),
    ]
}
