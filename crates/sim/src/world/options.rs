//! What a seed makes of a world. Each seed leaves out some kinds of faults, so that others get the room to unfold.

use super::rng::Rng;

/// The derived options; printed with every failure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Processes at a time.
    pub nodes: usize,
    /// Agents, shared out over two tenants.
    pub agents: usize,
    /// Requests to each agent.
    pub requests: u64,
    /// How long faults last.
    pub chaos_ms: u64,
    /// Agents a process works on at the same time.
    pub workers_max: usize,
    /// Laps a run may take.
    pub iterations_max: u32,
    /// Crashes in ten thousand points reached.
    pub crash: u64,
    /// Pauses in ten thousand points reached.
    pub pause: u64,
    /// Out of a hundred moments of the nemesis: a process is killed, paused, drained, its clock jumps, the power fails.
    pub nemesis: [u64; 5],
    /// How far clocks may be off.
    pub skew_ms: u64,
    /// Rings lost, out of a hundred.
    pub rings_lost: u64,
    /// Answers of the store lost, out of a thousand.
    pub answers_lost: u64,
    /// Verbs the store refuses, out of a thousand.
    pub verbs_refused: u64,
    /// The longest time until a verb is flushed.
    pub flush_ms: u64,
    /// Model calls that go wrong, out of a hundred.
    pub provider: u64,
    /// Calls of services and tools that go wrong, out of a hundred.
    pub services: u64,
    /// Stops, out of a hundred requests.
    pub stops: u64,
    /// Whether a person decides about what is parked.
    pub operator: bool,
}

impl Options {
    /// The options of a seed.
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
