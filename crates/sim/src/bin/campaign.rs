//! Many seeds on all cores, for as long as it takes: `campaign --seeds 1000000 [--from N]`.

use std::{
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use windlass_sim::world::run_seeds;

/// After this many failing seeds the campaign ends.
const BROKEN_MAX: usize = 10;
/// The pause between two lines about the progress.
const NEWS_EVERY: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(seeds), Some(from)) = (number(&arguments, "--seeds", 100_000), number(&arguments, "--from", 0)) else {
        eprintln!("usage: campaign [--seeds N] [--from N]");
        return ExitCode::FAILURE;
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let last = Mutex::new(began);
    let tally = run_seeds(from..from.saturating_add(seeds), threads, None, |tally| {
        if let Ok(mut last) = last.lock()
            && last.elapsed() >= NEWS_EVERY
        {
            *last = Instant::now();
            let broken: Vec<u64> = tally.broken.iter().map(|outcome| outcome.seed).collect();
            println!("{} of {seeds} seeds after {} s, broken: {broken:?}", tally.seeds, began.elapsed().as_secs());
        }
        tally.broken.len() < BROKEN_MAX
    });
    for outcome in &tally.broken {
        println!("{outcome}");
    }
    println!("{}", tally.facts);
    let seconds = began.elapsed().as_secs();
    println!(
        "campaign: {} seeds from {from}, {} runs, {} faults, {} violations, {seconds} s",
        tally.seeds,
        tally.runs,
        tally.faults,
        tally.broken.len()
    );
    // If these facts never happened, the campaign covered less than it seems.
    let missing = tally.facts.missing();
    if !missing.is_empty() {
        println!("never seen: {}", missing.join(", "));
    }
    if tally.broken.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number after a word; the default without the word, `None` if it is no number.
fn number(arguments: &[String], flag: &str, usual: u64) -> Option<u64> {
    match arguments.iter().position(|argument| argument == flag) {
        None => Some(usual),
        Some(place) => arguments.get(place + 1)?.replace('_', "").parse().ok(),
    }
}
