//! Runs many seeds on several threads. Each world has an async runtime of its own.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use super::{FactCounts, Outcome, PlantedBug, simulate};

/// The sums over many seeds.
#[derive(Debug, Default)]
pub struct Tally {
    /// The seeds that were run.
    pub seeds: u64,
    /// The runs that were made.
    pub runs: u64,
    /// The faults that were injected.
    pub faults: u64,
    /// The facts that were seen.
    pub facts: FactCounts,
    /// Worlds in which a promise was broken.
    pub broken: Vec<Outcome>,
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.runs += outcome.runs as u64;
        self.faults += outcome.faults;
        self.facts.add(&outcome.facts);
        if outcome.violation.is_some() {
            self.broken.push(outcome);
            self.broken.sort_by_key(|outcome| outcome.seed);
        }
    }
}

/// Runs these seeds. `continues` is called after each of them and ends everything by returning false.
pub fn run_seeds(seeds: Range<u64>, threads: usize, planted: Option<PlantedBug>, continues: impl Fn(&Tally) -> bool + Sync) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let is_over = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let walk = || {
        while !is_over.load(SeqCst) {
            let seed = next.fetch_add(1, SeqCst);
            if seed >= seeds.end {
                return;
            }
            let outcome = simulate(seed, planted);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(outcome);
            if !continues(&tally) {
                is_over.store(true, SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(walk);
        }
    });
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}
