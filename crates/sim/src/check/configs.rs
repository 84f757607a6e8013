//! The configurations that are explored: small worlds, each with a budget for every kind of fault.

use serde_json::json;
use windlass_kernel::{AfterExecution, Budgets, EffectClass, Manifest, Route, ToolSpec};

pub use super::state::FaultBudget;

/// A tool of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Who executes it.
    pub route: Route,
    /// What repeating a call would do.
    pub effect: EffectClass,
}

/// One small world.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name that failures show.
    pub name: &'static str,
    /// The number of processes.
    pub workers: u8,
    /// The requests, by their keys. An equal key is a repeated request.
    pub keys: &'static [u8],
    /// The tools that the model calls in the first iteration.
    pub tools: &'static [Tool],
    /// Whether only the first run calls tools; the others answer at once.
    pub is_only_first: bool,
    /// Whether the model calls tools in every iteration.
    pub is_greedy: bool,
    /// Whether no process has room when a request comes, so that the run waits for the sweep.
    pub is_full: bool,
    /// Whether services report to a process, to the store, or both.
    pub reports: Ways,
    /// The faults that may happen.
    pub faults: FaultBudget,
}

/// The way in which a result arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// In the mailbox of one of the processes.
    Mailbox,
    /// In the inbox, because no process had room.
    Inbox,
    /// In either way.
    Both,
}

/// The most iterations of a run.
pub(super) const ITERATIONS_MAX: u32 = 2;

/// Ticks until the deadline of a call.
pub(super) const DEADLINE_TICKS: u64 = 2;

/// Ticks that a service may hold a call, and that a failed model call waits.
pub(super) const HOLD_TICKS: u64 = 1;

impl Config {
    /// The manifest of the runs.
    pub(super) fn manifest(&self) -> Manifest {
        let tool = |(index, tool): (usize, &Tool)| ToolSpec {
            name: tool_name(index).into(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
            route: tool.route,
            effect: tool.effect,
            after_execution: AfterExecution::Suspend,
            deadline_ms: DEADLINE_TICKS,
            remote: None,
            retry: None,
            strict: None,
            untrusted: false,
            agent: None,
        };
        let budgets = Budgets {
            iterations: ITERATIONS_MAX,
            calls: Some(self.tools.len() as u32),
            tokens: None,
            wall_ms: None,
            children: None,
            cost: None,
        };
        Manifest { tools: self.tools.iter().enumerate().map(tool).collect(), ..Manifest::plain("checked", budgets) }
    }
}

/// The name of the tool with this index.
pub(super) fn tool_name(index: usize) -> &'static str {
    ["first", "second", "third"][index.min(2)]
}

pub(super) const LOCAL_READ: Tool = Tool { route: Route::InProcess, effect: EffectClass::Read };
pub(super) const LOCAL_WRITE: Tool = Tool { route: Route::InProcess, effect: EffectClass::Write };
pub(super) const SERVED_READ: Tool = Tool { route: Route::External, effect: EffectClass::Read };
pub(super) const SERVED_WRITE: Tool = Tool { route: Route::External, effect: EffectClass::Write };

pub(super) const NOTHING: FaultBudget =
    FaultBudget { crashes: 0, pauses: 0, lost: 0, delays: 0, duplicates: 0, early: 0, silences: 0, stops: 0, failures: 0, ticks: 0 };

pub(super) const PLAIN: Config = Config {
    name: "",
    workers: 2,
    keys: &[1, 2],
    tools: &[LOCAL_READ, SERVED_WRITE],
    is_only_first: true,
    is_greedy: false,
    is_full: false,
    reports: Ways::Mailbox,
    faults: NOTHING,
};

/// All configurations. Together they show every fact.
pub fn configurations() -> Vec<Config> {
    let everything = FaultBudget { crashes: 1, pauses: 1, lost: 1, duplicates: 1, stops: 1, ..NOTHING };
    let served = &[SERVED_READ, SERVED_WRITE];
    let written = &[LOCAL_WRITE, SERVED_READ];
    vec![
        Config { name: "everything once", reports: Ways::Inbox, faults: everything, ..PLAIN },
        Config { name: "a write of this process", keys: &[1], tools: written, reports: Ways::Both, faults: everything, ..PLAIN },
        Config {
            name: "services and time",
            keys: &[1],
            tools: served,
            faults: FaultBudget { ticks: 3, duplicates: 1, silences: 1, ..NOTHING },
            ..PLAIN
        },
        Config {
            name: "a zombie and a crash",
            keys: &[1],
            tools: written,
            faults: FaultBudget { crashes: 1, pauses: 1, failures: 1, ticks: 2, ..NOTHING },
            ..PLAIN
        },
        Config { name: "a delayed commit", tools: served, faults: FaultBudget { delays: 1, lost: 1, pauses: 1, ..NOTHING }, ..PLAIN },
        Config {
            name: "an early result",
            keys: &[1],
            tools: served,
            reports: Ways::Both,
            faults: FaultBudget { early: 1, crashes: 1, duplicates: 1, lost: 1, ..NOTHING },
            ..PLAIN
        },
        Config { name: "two stops", is_full: true, faults: FaultBudget { stops: 2, crashes: 1, ..NOTHING }, ..PLAIN },
        Config { name: "a key used twice", keys: &[1, 1], faults: FaultBudget { lost: 1, crashes: 1, ..NOTHING }, ..PLAIN },
        Config { name: "a greedy model", keys: &[1], is_greedy: true, faults: FaultBudget { crashes: 1, ticks: 2, ..NOTHING }, ..PLAIN },
    ]
}
