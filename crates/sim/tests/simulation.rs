//! Runs the real engine under 2,000 seeds of faults. Every promise must hold in each of them, and all of them together must show every
//! fact.
//!
//! A failure prints its seed, the derived options, and the last events. To repeat it alone:
//!
//! ```text
//! SEED=123 cargo test -p windlass-sim --test simulation -- one_seed --nocapture
//! ```
//!
//! For many more seeds: `cargo run --release -p windlass-sim --bin campaign -- --seeds 100000 --from 2000`.

use std::io::Write;

use windlass_sim::world::{PlantedBug, run_seeds, simulate};

/// The seeds of one test run.
const SEEDS: u64 = 2_000;
/// The seeds of `scripts/test quick`, which are too few to show every fact.
const QUICK_SEEDS: u64 = 200;
/// Worlds that run at the same time: one for each core of the smallest machine on which the tests run.
const THREADS: usize = 2;

/// Prints a line that is shown even if the test passes.
fn print(line: &str) {
    std::io::stderr().lock().write_all(format!("{line}\n").as_bytes()).expect("stderr is open");
}

#[test]
fn every_promise_holds_under_every_seed() {
    let is_quick = std::env::var_os("WINDLASS_QUICK").is_some();
    let seeds = if is_quick { QUICK_SEEDS } else { SEEDS };
    let tally = run_seeds(0..seeds, THREADS, None, |tally| tally.broken.len() < 3);
    tally.broken.iter().for_each(|outcome| print(&outcome.to_string()));
    let broken = tally.broken.len();
    print(&format!("simulation: {} seeds, {} runs, {} faults, {broken} violations", tally.seeds, tally.runs, tally.faults));
    print(&format!("simulation: {}", tally.facts));
    assert!(tally.broken.is_empty(), "promises were broken; the seeds are above");
    let missing = tally.facts.missing();
    assert!(is_quick || missing.is_empty(), "the simulation is asleep where these never happen: {missing:?}");
}

/// Seeds that once broke a promise, each with what was wrong.
#[test]
fn what_was_found_stays_found() {
    for (seed, story) in [
        (83, "a write that had ended was started again when a lost answer came"),
        (77_424, "of two requests whose answers were lost, the first was forgotten, and its call taken for lost"),
        (80_726, "a worker left before it knew whether it had entered its run"),
        (94_914, "a call that a person released was not started, for an old result of it lay beside"),
    ] {
        let outcome = simulate(seed, None);
        assert!(outcome.violation.is_none(), "{story}: {outcome}");
    }
}

/// The checks notice bugs that are planted on purpose.
#[test]
fn planted_bugs_are_found() {
    let mut found = 0;
    for planted_bug in PlantedBug::ALL {
        let tally = run_seeds(0..SEEDS, THREADS, Some(planted_bug), |tally| tally.broken.is_empty());
        match tally.broken.first().and_then(|outcome| Some((outcome.seed, outcome.violation.as_ref()?))) {
            None => print(&format!("{planted_bug:?} was not found")),
            Some((seed, violation)) => {
                found += 1;
                print(&format!("{planted_bug:?}: found after {} seeds, in {seed}: {}, {}", tally.seeds, violation.promise, violation.text));
            }
        }
    }
    print(&format!("planted bugs: {}, found: {found}", PlantedBug::ALL.len()));
    assert_eq!(found, PlantedBug::ALL.len());
}

#[test]
fn a_seed_is_a_run_byte_for_byte() {
    for seed in 0..40 {
        let (first, second) = (simulate(seed, None), simulate(seed, None));
        assert_eq!((first.hash, first.runs, first.faults), (second.hash, second.runs, second.faults), "seed {seed}");
    }
}

/// Runs the seed in the variable `SEED`, to see what happened.
#[test]
fn one_seed() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let outcome = simulate(seed, None);
    print(&outcome.to_string());
    assert!(outcome.violation.is_none());
}
