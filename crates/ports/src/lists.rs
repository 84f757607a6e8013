//! The data that lists of runs and agents consist of.

use windlass_kernel::{AgentKey, AgentName, RunId, Timestamp};

use crate::views::{RunStatus, RunView};

/// The bytes of an instruction that a list reads at most.
pub const INSTRUCTION_BYTES_MAX: usize = 2_048;

/// The newest instruction is looked for among this many items at the end of a box.
pub const INSTRUCTION_ITEMS_MAX: usize = 16;

/// The number of an agent's newest runs among which the listed ones are counted.
pub const RUNS_COUNTED_MAX: usize = 10_000;

/// A question for one page of a tenant's runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunScan {
    /// The set of runs that are read.
    pub set: RunSet,
    /// Only runs with an id below this one are read. Ids are ordered by time, so these runs are older.
    pub below: Option<RunId>,
    /// The number of rows that are read at most.
    pub limit: usize,
}

/// A set of runs that an index supports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSet {
    /// All runs of the tenant.
    All,
    /// The runs that have not ended.
    Open,
    /// The runs of a named agent.
    Named(AgentName),
    /// The child runs of a run.
    Children(RunId),
}

/// A page of runs.
#[derive(Clone, Debug)]
pub struct RunPage {
    /// The runs, newest first. There may be fewer than rows were read, because unlisted runs are left out.
    pub runs: Vec<ListedRun>,
    /// The last run that was read, if there may be older ones. The next page begins below it.
    pub next: Option<RunId>,
}

/// A run on a list. What all runs have in common is in its fields; the rest is in `view`.
#[derive(Clone, Debug)]
pub struct ListedRun {
    /// The id of the run.
    pub id: RunId,
    /// The head that the run belongs to.
    pub agent: AgentKey,
    /// The name of the run's agent, if the run has a named one.
    pub agent_name: Option<AgentName>,
    /// Whether the run is queued, active or ended.
    pub status: RunStatus,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When the run ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// The run. `None` if its stored rows can't be read: one such run must not hide the others.
    pub view: Option<RunView>,
}

/// An agent on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSummary {
    /// The name of the agent.
    pub name: AgentName,
    /// Its listed runs, counted among its newest [`RUNS_COUNTED_MAX`].
    pub runs: u64,
    /// When the newest of these runs was accepted.
    pub last_run_at: Timestamp,
}
