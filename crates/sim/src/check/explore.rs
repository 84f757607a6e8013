//! Explores every state, breadth first: the first broken promise that is found has a shortest history.

use std::collections::{HashMap, hash_map::Entry};

use super::{
    actions::{Action, judge_end, perform, possible},
    configs::Config,
    fingerprint::fingerprint,
    graph::Graph,
    guards::Guards,
    promises::{Facts, Promise, Seen},
    state::State,
    worker::Rules,
};

/// No configuration may have more states. A configuration that reaches this limit is unbounded by mistake.
const STATES_MAX: usize = 20_000_000;

/// The outcome of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps between them.
    pub steps: usize,
    /// The longest of the shortest paths to a state.
    pub depth: usize,
    /// The facts that were seen.
    pub facts: Facts,
    /// The first broken promise, of those that were looked for.
    pub broken: Option<Broken>,
    /// Other promises that were broken.
    pub also: Vec<Promise>,
    /// A way to continue for ever, if no promise was broken.
    pub livelock: Option<Livelock>,
}

/// A cycle of steps. Whether anything is stuck is only checked in states without a next step, so that a cycle would never be checked.
#[derive(Debug)]
pub struct Livelock {
    /// The steps that lead to the cycle.
    pub story: Vec<Action>,
    /// The steps of the cycle.
    pub round: Vec<Action>,
}

/// A broken promise and the steps that led to it.
#[derive(Debug)]
pub struct Broken {
    /// The promise.
    pub promise: Promise,
    /// What was found.
    pub how: String,
    /// The steps, in order.
    pub story: Vec<Action>,
}

/// The state before, and the step from there.
#[derive(Clone, Copy)]
struct Origin {
    parent: u32,
    action: Action,
}

/// Explores a configuration. Ends where the wanted promise is broken first; without a wanted one, where any is.
pub fn explore(config: &Config, guards: Guards, wanted: Option<Promise>) -> Explored {
    let manifest = config.manifest();
    let rules = Rules { config, manifest: &manifest, guards };
    let first = State::first(config);
    let mut search = Search {
        known: HashMap::from([(fingerprint(&first), 0)]),
        origins: vec![Origin { parent: 0, action: Action::Tick }],
        graph: Graph::default(),
        found: Explored { states: 1, steps: 0, depth: 0, facts: Facts::default(), broken: None, also: Vec::new(), livelock: None },
        wanted,
    };
    let mut level = vec![(0u32, first)];
    while !level.is_empty() && search.found.broken.is_none() && search.found.states < STATES_MAX {
        let mut next = Vec::new();
        for (place, state) in level {
            search.expand(place, &state, &rules, &mut next);
            if search.found.broken.is_some() {
                break;
            }
        }
        level = next;
        search.found.depth += 1;
    }
    assert!(search.found.states < STATES_MAX, "{} has no end in sight", config.name);
    if search.found.broken.is_none() {
        search.found.livelock = search.livelock();
    }
    search.found
}

struct Search {
    /// The indexes of all states, by fingerprint.
    known: HashMap<u128, u32>,
    origins: Vec<Origin>,
    graph: Graph,
    found: Explored,
    wanted: Option<Promise>,
}

impl Search {
    fn expand(&mut self, place: u32, state: &State, rules: &Rules<'_>, next: &mut Vec<(u32, State)>) {
        let own = fingerprint(state);
        self.graph.expand();
        let mut is_last = true;
        for action in possible(state, rules) {
            let (after, seen) = perform(state, action, rules);
            let print = fingerprint(&after);
            self.found.facts.join(seen.facts);
            if print == own && seen.broken.is_none() {
                continue;
            }
            is_last = false;
            self.found.steps += 1;
            if let Some((promise, how)) = seen.broken {
                // What follows a broken promise proves nothing.
                self.broke(promise, how, place, Some(action));
                continue;
            }
            let to = match self.known.entry(print) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let to = *new.insert(self.origins.len() as u32);
                    self.found.states += 1;
                    next.push((to, after));
                    self.origins.push(Origin { parent: place, action });
                    to
                }
            };
            self.graph.step(to, action);
        }
        if is_last {
            let mut seen = Seen::default();
            judge_end(state, &mut seen);
            self.found.facts.join(seen.facts);
            if let Some((promise, how)) = seen.broken {
                self.broke(promise, how, place, None);
            }
        }
    }

    fn livelock(&self) -> Option<Livelock> {
        let round = self.graph.round()?;
        Some(Livelock { story: self.story(round.place, None), round: round.steps })
    }

    fn broke(&mut self, promise: Promise, how: String, place: u32, last: Option<Action>) {
        if self.wanted.is_some_and(|wanted| wanted != promise) {
            if !self.found.also.contains(&promise) {
                self.found.also.push(promise);
            }
            return;
        }
        if self.found.broken.is_none() {
            self.found.broken = Some(Broken { promise, how, story: self.story(place, last) });
        }
    }

    fn story(&self, mut place: u32, last: Option<Action>) -> Vec<Action> {
        let mut story: Vec<Action> = last.into_iter().collect();
        while place != 0 {
            let origin = self.origins[place as usize];
            story.push(origin.action);
            place = origin.parent;
        }
        story.reverse();
        story
    }
}
