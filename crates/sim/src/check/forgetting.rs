//! Whether fingerprints may leave out what they leave out: two states with one fingerprint must have the same successors.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    actions::{Action, perform, possible},
    configs::Config,
    fingerprint::{fingerprint, whole_fingerprint},
    guards::Guards,
    promises::Promise,
    state::State,
    worker::Rules,
};

/// The successors of a state: their fingerprints, and the promises that the steps break.
type Ways = (BTreeSet<u128>, BTreeSet<Promise>);

/// The number of states, once with everything compared and once by fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// States that differ in anything.
    pub whole: usize,
    /// States that differ in their fingerprint.
    pub kept: usize,
}

/// Explores a configuration with nothing left out, and compares every state with the first one of its fingerprint.
pub fn forgets_nothing(config: &Config) -> Result<Forgotten, String> {
    let manifest = config.manifest();
    let rules = Rules { config, manifest: &manifest, guards: Guards::all() };
    let first = State::first(config);
    let mut known = HashSet::from([whole_fingerprint(&first)]);
    let mut ways: HashMap<u128, Ways> = HashMap::new();
    let mut level = vec![first];
    while let Some(state) = level.pop() {
        let own = fingerprint(&state);
        let mut here = Ways::default();
        for action in possible(&state, &rules) {
            let after = go(&state, action, &rules, own, &mut here);
            if known.insert(whole_fingerprint(&after)) {
                level.push(after);
            }
        }
        match ways.get(&own) {
            None => drop(ways.insert(own, here)),
            Some(there) if *there == here => {}
            Some(there) => {
                return Err(format!("{}: one fingerprint, {} ways and {}: {state:?}", config.name, there.0.len(), here.0.len()));
            }
        }
    }
    Ok(Forgotten { whole: known.len(), kept: ways.len() })
}

fn go(state: &State, action: Action, rules: &Rules<'_>, own: u128, ways: &mut Ways) -> State {
    let (after, seen) = perform(state, action, rules);
    let print = fingerprint(&after);
    if print != own {
        ways.0.insert(print);
    }
    ways.1.extend(seen.broken.map(|(promise, _)| promise));
    after
}
