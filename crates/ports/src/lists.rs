//! What lists of runs and agents are made of.

use windlass_kernel::{AgentKey, AgentName, RunId, Timestamp};

use crate::views::{RunStatus, RunView};

/// Bytes of an instruction that a list reads.
pub const INSTRUCTION_BYTES_MAX: usize = 2_048;

/// Items at the end of a box among which the newest instruction is looked for.
pub const INSTRUCTION_ITEMS_MAX: usize = 16;

/// Runs of one agent that are counted at the most.
pub const RUNS_COUNTED_MAX: usize = 10_000;

/// Which runs are read, and how many.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunScan {
    /// Which of the tenant's runs.
    pub set: RunSet,
    /// Only runs whose id is below this one: ids are ordered by time, so these are older.
    pub below: Option<RunId>,
    /// Rows that are read at the most.
    pub limit: usize,
}

/// A set of runs that an index leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSet {
    /// All of them.
    All,
    /// Those that have not ended.
    Open,
    /// Those of a named agent.
    Named(AgentName),
}

/// A page of runs.
#[derive(Clone, Debug)]
pub struct RunPage {
    /// The runs, newest first. There may be fewer than were read.
    pub runs: Vec<ListedRun>,
    /// The last run that was read, if there may be older ones: the next page begins below it.
    pub next: Option<RunId>,
}

/// A run on a list. What every run has stands here; the rest is in the view.
#[derive(Clone, Debug)]
pub struct ListedRun {
    /// Its id.
    pub id: RunId,
    /// The head it runs under.
    pub agent: AgentKey,
    /// The name of its agent, if it has a named one.
    pub agent_name: Option<AgentName>,
    /// Whether it is queued, active or over.
    pub status: RunStatus,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The run. `None` if what is stored of it cannot be read: one such run must not hide the others.
    pub view: Option<RunView>,
}

/// An agent on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSummary {
    /// Its name.
    pub name: AgentName,
    /// Its listed runs, counted up to `RUNS_COUNTED_MAX`.
    pub runs: u64,
    /// When the newest of them was accepted.
    pub last_run_at: Timestamp,
}
