//! The steps between states, and the search for a cycle among them.

use super::actions::Action;

/// Every step of an exploration. States are named by their indexes, and are expanded in that order.
#[derive(Default)]
pub(super) struct Graph {
    /// The index of each state's first step.
    first: Vec<u32>,
    /// The state that each step leads to, and the step.
    steps: Vec<(u32, Action)>,
}

/// A cycle: a state on it, and the steps that lead back to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) place: u32,
    pub(super) steps: Vec<Action>,
}

impl Graph {
    /// Begins the steps of the next state.
    pub(super) fn expand(&mut self) {
        self.first.push(self.steps.len() as u32);
    }

    /// Adds a step of that state.
    pub(super) fn step(&mut self, to: u32, action: Action) {
        self.steps.push((to, action));
    }

    /// A cycle, if there is one: depth first, with a path on the heap, because the graph is too deep for the call stack.
    pub(super) fn round(&self) -> Option<Round> {
        let mut visits = vec![Visit::New; self.first.len()];
        for root in 0..self.first.len() {
            if visits[root] == Visit::New
                && let Some(round) = self.round_from(root, &mut visits)
            {
                return Some(round);
            }
        }
        None
    }

    fn round_from(&self, root: usize, visits: &mut [Visit]) -> Option<Round> {
        // Each state of the path, with the index of its next step.
        let mut path = vec![(root, self.first[root] as usize)];
        visits[root] = Visit::OnPath;
        while let Some((place, next)) = path.last_mut() {
            let end = self.first.get(*place + 1).map_or(self.steps.len(), |end| *end as usize);
            if *next == end {
                visits[*place] = Visit::Done;
                path.pop();
                continue;
            }
            let to = self.steps[*next].0 as usize;
            *next += 1;
            match visits[to] {
                Visit::Done => {}
                Visit::New => {
                    visits[to] = Visit::OnPath;
                    path.push((to, self.first[to] as usize));
                }
                Visit::OnPath => {
                    let round = path.iter().skip_while(|(place, _)| *place != to);
                    return Some(Round { place: to as u32, steps: round.map(|(_, next)| self.steps[next - 1].1).collect() });
                }
            }
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    OnPath,
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(all: &[&[(u32, Action)]]) -> Graph {
        let mut graph = Graph::default();
        for steps in all {
            graph.expand();
            steps.iter().for_each(|(to, action)| graph.step(*to, *action));
        }
        graph
    }

    #[test]
    fn ways_that_meet_again_are_no_way_round() {
        let met =
            graph(&[&[(1, Action::Tick), (2, Action::Arrive)], &[(3, Action::Arrive)], &[(1, Action::Early), (3, Action::Tick)], &[]]);
        assert_eq!(met.round(), None);
    }

    #[test]
    fn two_states_that_lead_to_each_other_are_found() {
        let round = graph(&[&[(1, Action::Tick)], &[(3, Action::Arrive), (2, Action::Pause(0))], &[(1, Action::Wake(0))], &[]]);
        assert_eq!(round.round(), Some(Round { place: 1, steps: vec![Action::Pause(0), Action::Wake(0)] }));
    }
}
