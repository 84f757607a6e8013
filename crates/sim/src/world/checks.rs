//! Checks the promises, after every flush and once more at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::SeqCst},
};

use windlass_kernel::{
    AgentKey, CallKey, CallNumber, Cause, EndReason, Epoch, Event, Phase, Run, RunId, TaskStatus, Verdict, apply, budget::limits,
};
use windlass_ports::{Commit, Committed, Guard, JournalEntry, Loaded, RunView, StoreError, Views};

use super::{Fact, World, node::Node};

/// What is known of everything that was flushed and acknowledged.
#[derive(Default)]
pub(super) struct Checks {
    runs: BTreeMap<RunId, Track>,
    heads: BTreeMap<AgentKey, Epoch>,
    /// Requests by key, each with the run of its answer, once it has one.
    pub requests: BTreeMap<(AgentKey, String), Option<RunId>>,
    /// Calls whose result was acknowledged as the first one.
    pub acknowledged: BTreeSet<CallKey>,
    /// The number of clients that are not finished.
    pub busy: usize,
}

/// A run, as far as its journal was read.
struct Track {
    agent: AgentKey,
    state: Option<Run>,
    next: u64,
    epoch: Option<Epoch>,
    reported: BTreeSet<CallNumber>,
    releases: BTreeMap<CallNumber, u32>,
    /// Every entry as it was first read.
    entries: Vec<JournalEntry>,
    calls_allowed: Option<u32>,
}

impl Checks {
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    pub fn agent_of(&self, run: RunId) -> Option<AgentKey> {
        self.runs.get(&run).map(|track| track.agent.clone())
    }

    /// The runs of an agent, in the order of their ids.
    pub fn runs_of(&self, agent: &AgentKey) -> Vec<RunId> {
        self.runs.iter().filter(|(_, track)| track.agent == *agent).map(|(run, _)| *run).collect()
    }

    pub fn releases_of(&self, key: CallKey) -> u32 {
        self.runs.get(&key.run).and_then(|track| track.releases.get(&key.call)).copied().unwrap_or(0)
    }

    /// The number of calls that a run may start.
    pub fn calls_allowed(&self, run: RunId) -> Option<u32> {
        self.runs.get(&run).and_then(|track| track.calls_allowed)
    }

    pub fn entries_of(&self, run: RunId) -> Vec<JournalEntry> {
        self.runs.get(&run).map(|track| track.entries.clone()).unwrap_or_default()
    }

    pub fn state_of(&self, run: RunId) -> Option<Run> {
        self.runs.get(&run).and_then(|track| track.state.clone())
    }
}

/// Checks a commit that was flushed or refused.
pub(super) async fn committed(
    world: &Arc<World>,
    node: &Node,
    before: Option<Loaded>,
    guard: &Guard,
    commit: &Commit,
    done: &Result<Committed, StoreError>,
) {
    match done {
        Ok(done) => {
            let seq = before.as_ref().map(|before| before.head.seq);
            if seq == Some(done.seq) {
                world.log(&node.name, format_args!("commits {} of {} again: applied already", commit.kind.as_str(), commit.run));
                return world.saw(Fact::AnswerLostAndRetried);
            }
            // S6, the other direction: a live process does not take its own calls for lost, and parks no write that is in progress.
            let is_own = before.as_ref().is_some_and(|before| before.head.owner == Some(node.id));
            if is_own && commit.events.iter().any(|event| matches!(event, Event::OwnerChanged { .. })) && !node.is_drained.load(SeqCst) {
                world.break_promise("S6", format_args!("{} takes {} over from itself: {:?}", node.name, commit.run, commit.events));
            }
            let kinds: Vec<&str> = commit.events.iter().map(Event::kind).collect();
            world.log(&node.name, format_args!("commits {} to {}: {}", commit.kind.as_str(), commit.run, kinds.join(", ")));
            follow(world, &guard.agent, commit.run).await;
        }
        Err(StoreError::Fenced) => {
            world.log(&node.name, format_args!("is fenced, {} of {}", commit.kind.as_str(), commit.run));
            let owner = before.and_then(|before| before.head.owner);
            if owner != Some(node.id) && node.was_lost.load(SeqCst) {
                world.saw(Fact::ZombieRejected);
            }
        }
        Err(StoreError::Unavailable(why) | StoreError::Corrupt(why)) => {
            world.break_promise("S8", format_args!("a commit of {} to {} makes no sense to the store: {why}", node.name, commit.run));
        }
    }
}

/// Reads what was flushed for a run since the last reading.
pub(super) async fn follow(world: &Arc<World>, agent: &AgentKey, run: RunId) {
    let next = world.checks.lock().runs.get(&run).map_or(0, |track| track.next);
    let Ok(entries) = world.data.journal(&agent.tenant, run, next, usize::MAX).await else {
        return world.break_promise("S8", format_args!("the journal of {run} cannot be read"));
    };
    let Ok(Some(view)) = world.data.run(&agent.tenant, run).await else {
        return world.break_promise("S8", format_args!("{run} cannot be read"));
    };
    for entry in entries {
        let mut checks = world.checks.lock();
        let track = checks.runs.entry(run).or_insert_with(|| Track::new(agent));
        if let Err((promise, text)) = track.add(world, &view, entry, run) {
            return world.break_promise(promise, text);
        }
    }
    check_state(world, agent, run, &view);
    check_head(world, agent).await;
}

/// S8: the fold of the journal is the state.
fn check_state(world: &World, agent: &AgentKey, run: RunId, view: &RunView) {
    let checks = world.checks.lock();
    let folded = checks.runs.get(&run).and_then(|track| track.state.as_ref());
    if folded != Some(&view.state) {
        world.break_promise("S8", format_args!("{run}: folded {folded:?}, stored {:?}", view.state));
    }
    let is_active = |state: &Run| !matches!(state.phase, Phase::Accepted | Phase::Ended { .. });
    let active = checks.runs.values().filter(|track| track.agent == *agent && track.state.as_ref().is_some_and(is_active));
    let count = active.count();
    if count > 1 {
        world.break_promise("S1", format_args!("{} has {count} active runs", agent.agent));
    }
}

async fn check_head(world: &World, agent: &AgentKey) {
    let Ok(Some(head)) = world.data.head(agent).await else {
        return world.break_promise("S1", format_args!("{} has no head", agent.agent));
    };
    let earlier = world.checks.lock().heads.insert(agent.clone(), head.epoch);
    if earlier.is_some_and(|earlier| earlier > head.epoch) {
        world.break_promise("S2", format_args!("the epoch of {} went back from {earlier:?} to {:?}", agent.agent, head.epoch));
    }
    if head.run.is_none() && head.queued > 0 {
        world.break_promise("L1", format_args!("{} is idle and has {} runs queued", agent.agent, head.queued));
    }
}

/// What is wrong with an entry: the promise that it breaks, and a text.
type BrokenPromise = (&'static str, String);

impl Track {
    fn new(agent: &AgentKey) -> Self {
        Track {
            agent: agent.clone(),
            state: None,
            next: 0,
            epoch: None,
            reported: BTreeSet::new(),
            releases: BTreeMap::new(),
            entries: Vec::new(),
            calls_allowed: None,
        }
    }

    fn add(&mut self, world: &World, view: &RunView, entry: JournalEntry, run: RunId) -> Result<(), BrokenPromise> {
        if entry.number != self.next {
            return Err(("S7", format!("{run}: event {} follows event {}", entry.number, self.next)));
        }
        if entry.epoch < self.epoch {
            return Err(("S2", format!("{run}: event {} has epoch {:?} after {:?}", entry.number, entry.epoch, self.epoch)));
        }
        // Inputs in the same commit that came after the end are recorded as ignored.
        if self.state.as_ref().is_some_and(Run::has_ended) && !matches!(entry.event, Event::Ignored { .. }) {
            return Err(("S4", format!("{run}: {} after the end", entry.event.kind())));
        }
        self.event(world, &entry.event, run)?;
        let before = self.state.take();
        self.state = apply(before, &entry.event);
        self.calls_allowed = self.state.as_ref().and_then(|state| limits(state, &view.manifest.budgets).calls);
        self.budgets(view, &entry.event, run)?;
        self.next += 1;
        self.epoch = entry.epoch;
        self.entries.push(entry);
        Ok(())
    }

    fn event(&mut self, world: &World, event: &Event, run: RunId) -> Result<(), BrokenPromise> {
        match event {
            Event::IterationStarted { iteration, .. } => {
                let last = self.state.as_ref().map_or(0, |state| state.iteration);
                if *iteration != last + 1 {
                    return Err(("S3", format!("{run}: iteration {iteration} follows iteration {last}")));
                }
            }
            Event::Reported { call, status, item, .. } => {
                if !self.reported.insert(*call) {
                    return Err(("S5", format!("{run}: a second result for call {}", call.0)));
                }
                if *status == TaskStatus::Timeout {
                    world.saw(Fact::DeadlinePassed);
                }
                if world.ledger.lock().early.contains(item) {
                    world.saw(Fact::EarlyResultKept);
                }
            }
            Event::Resolved { verdict: Verdict::Released, call: Some(call), .. } => {
                *self.releases.entry(*call).or_default() += 1;
                world.saw(Fact::Released);
            }
            Event::Interrupted(interrupt) => match interrupt.cause {
                Cause::Panicked => return Err(("S8", format!("{run}: something panicked"))),
                Cause::OwnersLost => world.saw(Fact::RunParked),
                Cause::UnknownOutcome => world.saw(Fact::WriteParked),
                Cause::Approval | Cause::Question | Cause::Budget => {}
            },
            Event::OwnerChanged { .. } => world.saw(Fact::Takeover),
            Event::LeaseEnded { .. } => world.saw(Fact::ClaimEnded),
            Event::BudgetBreached { .. } => world.saw(Fact::BudgetBreached),
            Event::Ended { reason: EndReason::Stopped, .. } => {
                if self.state.as_ref().is_some_and(|state| matches!(state.phase, Phase::Thinking { .. })) {
                    world.saw(Fact::StopWhileThinking);
                }
            }
            Event::Accepted { .. }
            | Event::Leased
            | Event::ActionStarted { .. }
            | Event::AttemptFailed { .. }
            | Event::CallsInherited { .. }
            | Event::Cut { .. }
            | Event::Heartbeat
            | Event::Reasoned { .. }
            | Event::Compacting { .. }
            | Event::Compacted { .. }
            | Event::Replied { .. }
            | Event::Approved { .. }
            | Event::Edited { .. }
            | Event::Resolved { .. }
            | Event::ChildBegun { .. }
            | Event::CallParked { .. }
            | Event::CallReleased { .. }
            | Event::Parked { .. }
            | Event::Unparked
            | Event::Steered { .. }
            | Event::CallRetried { .. }
            | Event::Ignored { .. }
            | Event::Ended { .. } => {}
        }
        Ok(())
    }

    /// S10: an iteration starts only within the budgets. Calls are counted where they start, because refused calls never start.
    fn budgets(&self, view: &RunView, event: &Event, run: RunId) -> Result<(), BrokenPromise> {
        let Some(state) = &self.state else {
            return Err(("S8", format!("{run}: its journal begins with {}", event.kind())));
        };
        let Event::IterationStarted { iteration, .. } = event else { return Ok(()) };
        let budgets = limits(state, &view.manifest.budgets);
        let is_over = *iteration > budgets.iterations || budgets.tokens.is_some_and(|limit| state.tokens() >= limit);
        if is_over { Err(("S10", format!("{run}: {} beyond {budgets:?}", event.kind()))) } else { Ok(()) }
    }
}

/// Whether only a person can continue the run.
pub(super) fn waits_for_person(state: &Run) -> bool {
    let is_settled = !state.calls().iter().any(|call| state.is_free(call));
    state.is_held() || (is_settled && state.is_interrupted())
}
