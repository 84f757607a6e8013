//! What runs used, summed by day, and the data that quotas and retention need.

use windlass_kernel::{ItemId, RunId, Tenant, Timestamp};

use crate::store::NodeId;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// A day of UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// The day that a time is on.
    pub fn of(at: Timestamp) -> Self {
        Day(u32::try_from(at.0.div_euclid(DAY_MS)).unwrap_or(0))
    }

    /// When the day begins.
    pub fn start(self) -> Timestamp {
        Timestamp(i64::from(self.0) * DAY_MS)
    }

    /// The day after it.
    pub fn next(self) -> Self {
        Day(self.0.saturating_add(1))
    }

    /// The day `days` days earlier.
    pub fn minus(self, days: u32) -> Self {
        Day(self.0.saturating_sub(days))
    }
}

/// The usage of an ended run that is in no sum yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUsage {
    /// The run.
    pub run: RunId,
    /// The row that it is added to. Its node is the one that reads it.
    pub key: UsageKey,
    /// The amounts that are added.
    pub sums: UsageSums,
}

/// The key of a row of sums.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// The tenant that owns the runs.
    pub tenant: Tenant,
    /// The day on which the runs ended.
    pub day: Day,
    /// The name of their agent; empty for runs without a named agent.
    pub agent: String,
    /// The model as the runs asked for it.
    pub model: String,
    /// The server process that summed the runs.
    pub node: NodeId,
}

/// One row of sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The key of the row.
    pub key: UsageKey,
    /// The sums.
    pub sums: UsageSums,
}

/// A question for sums, and the fields by which they are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// The first day.
    pub from: Day,
    /// The last day.
    pub to: Day,
    /// Whether each day has groups of its own.
    pub by_day: bool,
    /// Whether each agent has groups of its own.
    pub by_agent: bool,
    /// Whether each model has groups of its own.
    pub by_model: bool,
    /// The number of groups that are read at most.
    pub limit: usize,
}

impl UsageQuery {
    /// Everything from `from` to `to`, both included, in one group.
    pub fn whole(from: Day, to: Day) -> Self {
        UsageQuery { from, to, by_day: false, by_agent: false, by_model: false, limit: 1 }
    }
}

/// The sums of one group; a field by which the query does not group is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// The day.
    pub day: Option<Day>,
    /// The name of the agent; empty text for runs without a named one.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The sums.
    pub sums: UsageSums,
}

/// Sums over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Tokens that models read.
    pub input: u64,
    /// Of these, tokens that a provider had in its cache.
    pub cached: u64,
    /// Of these, tokens that a provider wrote into its cache.
    pub cache_written: u64,
    /// Tokens that models wrote.
    pub output: u64,
    /// Of these, tokens of reasoning.
    pub reasoning: u64,
    /// An estimate for attempts whose provider reported nothing.
    pub lost: u64,
    /// The number of runs.
    pub runs: u64,
    /// The number of tool calls.
    pub calls: u64,
    /// Bytes of content that the runs were given and produced.
    pub bytes: u64,
}

impl UsageSums {
    /// Adds another row's sums.
    pub fn add(&mut self, other: &UsageSums) {
        let fields = [
            (&mut self.input, other.input),
            (&mut self.cached, other.cached),
            (&mut self.cache_written, other.cache_written),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
            (&mut self.lost, other.lost),
            (&mut self.runs, other.runs),
            (&mut self.calls, other.calls),
            (&mut self.bytes, other.bytes),
        ];
        for (sum, more) in fields {
            *sum = sum.saturating_add(more);
        }
    }

    /// The tokens that count against `tokens_per_day`: read, written and lost.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.lost)
    }
}

/// A range of stored items, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemScan {
    /// Only items above this id.
    pub after: Option<ItemId>,
    /// Only items up to this id.
    pub up_to: Option<ItemId>,
    /// The number of items that are read at most.
    pub limit: usize,
}

/// The bytes of content in a range of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemBytes {
    /// The bytes of each tenant that has items in the range.
    pub tenants: Vec<(Tenant, u64)>,
    /// The number of items that were read.
    pub items: usize,
    /// The last item that was read.
    pub last: Option<ItemId>,
}
