//! Fingerprints of states: 128 bits over everything that can still make a difference.
//!
//! A fingerprint leaves out what is only ever compared for being the same or the next (sequence numbers and epochs are hashed as the
//! distance between a worker and its head, journal numbers likewise), what nothing depends on (sizes of boxes, the start of a run), which
//! of two equal processes is which, and the rows of runs that have ended and that no worker holds. Two states with one fingerprint have the
//! same future.

use std::hash::{Hash, Hasher};

use windlass_kernel::{Event, Interrupt, Run};

use super::state::{ActiveRun, Commit, Head, Named, RunNo, RunRow, RunStatus, SentCommit, Stage, State, Store, Worker};

/// The fingerprint of a state.
pub(super) fn fingerprint(state: &State) -> u128 {
    let mut mixer = Mixer::new();
    hash_state(state, &mut mixer);
    mixer.whole()
}

/// A hash of the whole state, with nothing left out.
pub(super) fn whole_fingerprint(state: &State) -> u128 {
    let mut mixer = Mixer::new();
    state.hash(&mut mixer);
    mixer.whole()
}

/// Two lanes of multiply-and-fold, each with its own constants.
struct Mixer {
    low: u64,
    high: u64,
}

impl Mixer {
    fn new() -> Self {
        Mixer { low: 0x243f_6a88_85a3_08d3, high: 0x1319_8a2e_0370_7344 }
    }

    fn whole(&self) -> u128 {
        (u128::from(fold(self.high, 0x9e37_79b9_7f4a_7c15)) << 64) | u128::from(fold(self.low, 0xbf58_476d_1ce4_e5b9))
    }
}

fn fold(word: u64, by: u64) -> u64 {
    let product = u128::from(word) * u128::from(by);
    (product >> 64) as u64 ^ product as u64
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.low ^ self.high
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ ((chunk.len() as u64) << 56));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.low = fold(self.low ^ word, 0xa076_1d64_78bd_642f).rotate_left(23) ^ word;
        self.high = fold(self.high.rotate_left(31) ^ word, 0xe703_7ed1_a0b4_28db) ^ word.rotate_left(17);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word) | 0x0100);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word) | 0x0200_0000_0000);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64 | 0x0300_0000_0000_0000);
    }
}

fn hash_state(state: &State, mixer: &mut Mixer) {
    let State { clock, store, workers, floating, requests, faults } = state;
    let Store { head, runs, inbox, calls } = store;
    let Head { status, epoch: _, seq: _, run, owner, wake_at, pending, queued } = head;
    (clock, status, run, owner.is_some(), wake_at, pending, queued).hash(mixer);
    (requests, faults).hash(mixer);
    let has_future = |run: RunNo| store.run(run).status != RunStatus::Ended || is_held(state, run);
    for (number, RunRow { key, status, state }) in runs.iter().enumerate() {
        (key, status).hash(mixer);
        if has_future(number as RunNo) {
            hash_run(state, 0, mixer);
        }
    }
    for message in inbox.iter().filter(|message| has_future(message.run)) {
        message.hash(mixer);
    }
    for call in calls.iter().filter(|call| has_future(call.run)) {
        // No promise limits how often a read is started.
        let starts = if call.is_write { call.starts } else { 0 };
        (call.run, call.call, call.status, starts, call.is_ready).hash(mixer);
    }
    let mut apart: Vec<u128> = workers.iter().map(|worker| hash_worker(worker, state)).collect();
    apart.sort_unstable();
    apart.hash(mixer);
    if let Some(floating) = floating {
        hash_named(&floating.0, head, mixer);
        hash_commit(&floating.1, store, mixer);
    }
}

/// Whether a worker or a delayed commit can still write to a run.
fn is_held(state: &State, run: RunNo) -> bool {
    let asks = |stage: &Stage| matches!(stage, Stage::Committing(sent) if sent.commit.run == run);
    let holds = |worker: &Worker| worker.active.as_ref().is_some_and(|active| active.run == run) || asks(&worker.stage);
    state.workers.iter().any(holds) || state.floating.as_ref().is_some_and(|floating| floating.1.run == run)
}

/// Hashes a worker by itself, so that two workers can be exchanged.
fn hash_worker(worker: &Worker, state: &State) -> u128 {
    let mut mixer = Mixer::new();
    let Worker { node, is_paused, active, in_flight, messages, stage } = worker;
    let head = &state.store.head;
    let floats = state.floating.as_ref().is_some_and(|floating| floating.1.node == *node);
    (head.owner == Some(*node), floats, is_paused).hash(&mut mixer);
    (in_flight, messages).hash(&mut mixer);
    if let Some(ActiveRun { run, state: own, status, epoch, seq }) = active {
        (1u8, run, status, behind(head.epoch, *epoch), behind(head.seq, *seq)).hash(&mut mixer);
        hash_run(own, state.store.run(*run).state.next_number, &mut mixer);
    }
    match stage {
        Stage::Free => 2u8.hash(&mut mixer),
        Stage::Committing(sent) => {
            let SentCommit { named, commit, taken, is_applied } = sent.as_ref();
            hash_named(named, head, &mut mixer);
            (3u8, taken, is_applied).hash(&mut mixer);
            hash_commit(commit, &state.store, &mut mixer);
        }
        Stage::Starting { taken, again } => (4u8, taken, again).hash(&mut mixer),
    }
    mixer.whole()
}

fn hash_commit(commit: &Commit, store: &Store, mixer: &mut Mixer) {
    let Commit { run, node: _, raise_epoch, state, events, reports, consumed } = commit;
    (5u8, run, raise_epoch, reports, consumed).hash(mixer);
    events.iter().for_each(|event| hash_event(event, mixer));
    hash_run(state, store.run(*run).state.next_number, mixer);
}

fn hash_named(named: &Named, head: &Head, mixer: &mut Mixer) {
    let Named { status, epoch, run, seq } = named;
    (6u8, status, run, behind(head.epoch, *epoch), behind(head.seq, *seq)).hash(mixer);
}

/// Hashes an event. The number of an interrupt is that of its event, which is counted from the stored row like all others.
fn hash_event(event: &Event, mixer: &mut Mixer) {
    if let Event::Interrupted(interrupt) = event { hash_interrupt(interrupt, mixer) } else { event.hash(mixer) }
}

/// Hashes an interrupt without its number, which is never compared with anything but itself.
fn hash_interrupt(interrupt: &Interrupt, mixer: &mut Mixer) {
    (7u8, interrupt.cause, interrupt.call, interrupt.until, interrupt.needs, &interrupt.approvals).hash(mixer);
}

/// Hashes a run. The length of its journal is counted from that of the stored row.
fn hash_run(run: &Run, stored: u64, mixer: &mut Mixer) {
    let Run {
        phase,
        origin: _,
        iteration,
        next_number,
        calls_used,
        context: _,
        output: _,
        usage: _,
        lost: _,
        model: _,
        caller: _,
        started_at: _,
        takeovers: _,
        compacting,
        compacted_in,
        interrupts,
        raised: _,
        tainted: _,
        waiting_since: _,
        steering,
        steered: _,
        parent: _,
        children_used: _,
        below: _,
    } = run;
    let ahead = if stored == 0 { 0 } else { next_number.wrapping_sub(stored) };
    interrupts.iter().for_each(|interrupt| hash_interrupt(interrupt, mixer));
    (phase, iteration, calls_used, compacting, compacted_in, interrupts.len(), steering.len(), ahead).hash(mixer);
}

/// How far `now` is ahead of `then`. Two and more are equal, because only "the same" and "the next" make a difference.
fn behind(now: u8, then: u8) -> u8 {
    now.wrapping_sub(then).min(2)
}
