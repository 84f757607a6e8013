//! The model check of trees: a run and its child runs, with the real kernel and a model of the parts of the store that concern two runs.
//!
//! [`check`](crate::check) explores one head; here each run has a head of its own. A world is small: one parent, one or two children, and a
//! few faults. Every order of all steps is explored.

mod state;

use std::collections::{BTreeSet, HashSet, VecDeque};

pub use self::state::Step;
use self::state::TreeState;

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $shown:literal);+ $(;)?) => {
        /// One thing that keeps a promise about trees. The comment of each names its place in the product.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum TreeGuard { $($(#[$doc])* $name),+ }

        impl TreeGuard {
            /// All of them.
            pub const ALL: &'static [TreeGuard] = &[$(TreeGuard::$name),+];

            /// A description of the guard.
            pub fn as_str(self) -> &'static str {
                match self { $(TreeGuard::$name => $text),+ }
            }

            /// The test that shows the product enforcing it: its folder below `crates`, and its name.
            pub fn shown_by(self) -> (&'static str, &'static str) {
                let shown = match self { $(TreeGuard::$name => $shown),+ };
                shown.split_once("::").unwrap_or(("", shown))
            }
        }
    };
}

guards! {
    /// `enqueue::recorded_already`: a start that is repeated finds the run by its id.
    OneChildPerCall = "a call has one child", "store/src/conformance::a_child_is_recorded_once";
    /// `children::has_parent`: a child is recorded only while its call is open.
    ParentGone = "a child of a run that does not wait is refused", "store/src/conformance::a_child_of_a_run_that_does_not_wait_is_refused";
    /// `children::tell_tree`: the child's last commit carries the result.
    ReportInEnd = "the result is in the commit that ends the child", "store/src/conformance::the_end_of_a_child_is_the_result_of_a_call";
    /// `children::count`: no guard on the parent's head.
    ReportOnlyCounts = "a result has no guard but the child's", "store/src/conformance::a_result_that_races_the_parents_commit_is_counted";
    /// `children::count`: a result makes a suspended parent due.
    ReportIsDue = "a result wakes the parent", "store/src/conformance::a_child_may_end_as_it_is_entered";
    /// `children::tell_tree`: the commit that ends a parent stops its children.
    StopsInEnd = "the end of a parent stops its children", "store/src/conformance::the_end_of_a_parent_stops_its_children";
    /// `children::count`: a stop makes a running head due, too.
    StopWakesRunning = "a stop wakes a running head", "engine/tests/engine::s_15_a_stop_reaches_a_child_that_runs_on_another_server";
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TreePromise {
    /// A call has at most one child run.
    OneChild,
    /// S15: once nothing moves any more, no child of an ended parent is open.
    NoOrphan,
    /// L1: once nothing moves any more, a parent whose children have ended has ended as well.
    ParentEnds,
}

/// The bounds of a world.
#[derive(Clone, Debug)]
pub struct TreeWorld {
    /// The name in the summary.
    pub name: &'static str,
    /// The children that the parent asks for in its first iteration.
    pub children: usize,
    /// Whether the model of the children never answers.
    pub hangs: bool,
    /// Processes that die with what they have in memory.
    pub crashes: u8,
    /// Requests to stop the parent, each handled by another process than the owner's.
    pub stops: u8,
    /// Commits whose answer is lost.
    pub lost_answers: u8,
}

/// What an exploration found.
#[derive(Debug)]
pub struct TreeExplored {
    /// The number of states.
    pub states: usize,
    /// The broken promises, and the steps to the first of them.
    pub broken: BTreeSet<TreePromise>,
    /// The steps that lead to the first broken promise.
    pub story: Vec<Step>,
}

/// The worlds that are explored.
pub fn tree_worlds() -> Vec<TreeWorld> {
    let world = |name, children, hangs, crashes, stops, lost_answers| TreeWorld { name, children, hangs, crashes, stops, lost_answers };
    vec![
        world("a child and two crashes", 1, false, 2, 0, 0),
        world("a child and a stop", 1, true, 0, 1, 0),
        world("a child, a stop and a crash", 1, true, 1, 1, 0),
        world("a child that may end, a stop and a lost answer", 1, false, 0, 1, 1),
        world("two children and a lost answer", 2, false, 0, 0, 1),
        world("two children, a crash and a stop", 2, false, 1, 1, 0),
    ]
}

/// A guard, and the promise that breaks without it in some world.
pub fn tree_trials() -> Vec<(TreeGuard, TreePromise)> {
    vec![
        (TreeGuard::OneChildPerCall, TreePromise::OneChild),
        (TreeGuard::ParentGone, TreePromise::NoOrphan),
        (TreeGuard::ReportInEnd, TreePromise::ParentEnds),
        (TreeGuard::ReportOnlyCounts, TreePromise::ParentEnds),
        (TreeGuard::ReportIsDue, TreePromise::ParentEnds),
        (TreeGuard::StopsInEnd, TreePromise::NoOrphan),
        (TreeGuard::StopWakesRunning, TreePromise::NoOrphan),
    ]
}

/// Explores every order of steps of a world, without the guard `removed` if there is one.
pub fn explore_tree(world: &TreeWorld, removed: Option<TreeGuard>) -> TreeExplored {
    let begin = TreeState::begin(world);
    let mut known: HashSet<TreeState> = HashSet::from([begin.clone()]);
    let mut open: VecDeque<(TreeState, Vec<Step>)> = VecDeque::from([(begin, Vec::new())]);
    let mut found = TreeExplored { states: 0, broken: BTreeSet::new(), story: Vec::new() };
    while let Some((state, story)) = open.pop_front() {
        found.states += 1;
        let steps = state.steps(world);
        let broken = state.broken(world, steps.iter().all(Step::is_fault));
        if found.broken.is_empty() && !broken.is_empty() {
            found.story.clone_from(&story);
        }
        found.broken.extend(broken);
        for step in steps {
            let next = state.after(&step, world, removed);
            if known.insert(next.clone()) {
                let mut story = story.clone();
                story.push(step);
                open.push_back((next, story));
            }
        }
    }
    found
}
