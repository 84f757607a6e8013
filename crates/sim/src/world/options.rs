//! The options that are derived from a seed. Each seed leaves out some kinds of faults, so that the other kinds have more effect.

use super::rng::Rng;

/// The derived options. They are printed with every failure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Processes that run at the same time.
    pub nodes: usize,
    /// Agents, distributed over two tenants.
    pub agents: usize,
    /// Requests to each agent.
    pub requests: u64,
    /// How long faults last.
    pub chaos_ms: u64,
    /// Agents that a process works on at the same time.
    pub workers_max: usize,
    /// Iterations that a run may have.
    pub iterations_max: u32,
    /// Crashes per ten thousand visits of a crash point.
    pub crash: u64,
    /// Pauses per ten thousand visits of a crash point.
    pub pause: u64,
    /// Per hundred steps of the nemesis: a process is killed, paused or drained, its clock jumps, or the power fails.
    pub nemesis: [u64; 5],
    /// How far clocks may be off.
    pub skew_ms: u64,
    /// Lost rings per hundred.
    pub rings_lost: u64,
    /// Lost answers of the store per thousand.
    pub answers_lost: u64,
    /// Writes that the store refuses, per thousand.
    pub verbs_refused: u64,
    /// The longest time until a write is flushed.
    pub flush_ms: u64,
    /// Model calls that fail, per hundred.
    pub provider: u64,
    /// Calls of services and tools that fail, per hundred.
    pub services: u64,
    /// Stops per hundred requests.
    pub stops: u64,
    /// Whether a person decides about parked runs and calls.
    pub operator: bool,
}

impl Options {
    /// Derives the options from a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        Options {
            nodes: rng.between(2, 3) as usize,
            agents: rng.between(1, 3) as usize,
            requests: rng.between(1, 4),
            chaos_ms: rng.between(20, 70) * 1000,
            workers_max: rng.pick(&[1, 2, 1024, 1024, 1024]),
            iterations_max: rng.between(2, 5) as u32,
            crash: rng.pick(&[0, 0, 20, 60, 200, 1_000]),
            pause: rng.pick(&[0, 0, 20, 60, 200]),
            nemesis: [rng.pick(&[0, 10, 30]), rng.pick(&[0, 15, 40]), rng.pick(&[0, 0, 10]), rng.pick(&[0, 10, 30]), rng.pick(&[0, 0, 5])],
            skew_ms: rng.pick(&[0, 2_000, 30_000]),
            rings_lost: rng.pick(&[0, 20, 100]),
            answers_lost: rng.pick(&[0, 0, 20, 80]),
            verbs_refused: rng.pick(&[0, 0, 20, 80]),
            flush_ms: rng.pick(&[1, 5, 30, 500]),
            provider: rng.pick(&[0, 10, 40]),
            services: rng.pick(&[0, 10, 40]),
            stops: rng.pick(&[0, 20, 50]),
            operator: rng.chance(2, 3),
        }
    }
}
