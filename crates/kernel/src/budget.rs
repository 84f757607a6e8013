//! Budgets: what a run may use. The kernel checks them for every policy. A breach is one event, followed by the ending that the policy chooses.

use serde::{Deserialize, Serialize};

use crate::{ids::Timestamp, run::Run};

/// The limits of one run. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Iterations of the loop.
    pub iterations: u32,
    /// Tool calls over the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Tokens in and out, attempts that failed or were lost included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Milliseconds since the first iteration started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Child runs, with those that they start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<u32>,
}

/// Tokens of one model call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    #[serde(rename = "in", default, skip_serializing_if = "is_zero")]
    pub tokens_in: u64,
    /// Tokens written.
    #[serde(rename = "out", default, skip_serializing_if = "is_zero")]
    pub tokens_out: u64,
    /// Of the tokens read, those the provider had in its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Of the tokens read, those the provider wrote into its cache. Providers charge more for them than for the others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// Of the tokens written, those of reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

impl Usage {
    /// Whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Usage::default()
    }

    /// Adds another call's tokens.
    pub fn add(&mut self, other: Usage) {
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }

    /// Tokens in and out together.
    pub fn total(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }
}

pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What attempts used that gave no reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens as the provider reported them.
    pub usage: Usage,
    /// An estimate of tokens that the provider did not report.
    pub lost: u64,
}

impl Spent {
    /// Adds what another attempt used.
    pub fn add(&mut self, other: Spent) {
        self.usage.add(other.usage);
        self.lost = self.lost.saturating_add(other.lost);
    }

    /// Tokens in and out together.
    pub fn total(&self) -> u64 {
        self.usage.total().saturating_add(self.lost)
    }
}

/// What the ended runs below a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Below {
    /// Tokens as providers reported them.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// An estimate of tokens that providers did not report.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "is_none_used")]
    pub calls: u32,
    /// Child runs.
    #[serde(default, skip_serializing_if = "is_none_used")]
    pub children: u32,
    /// Whether one of them read results of untrusted tools.
    #[serde(default, skip_serializing_if = "crate::run::is_false")]
    pub tainted: bool,
}

fn is_none_used(n: &u32) -> bool {
    *n == 0
}

impl Below {
    /// Whether nothing was used, which stored records leave out.
    pub fn is_empty(&self) -> bool {
        *self == Below::default()
    }

    /// Adds what another run used.
    pub fn add(&mut self, other: Below) {
        self.usage.add(other.usage);
        self.lost = self.lost.saturating_add(other.lost);
        self.calls = self.calls.saturating_add(other.calls);
        self.children = self.children.saturating_add(other.children);
        self.tainted |= other.tainted;
    }

    /// Tokens in and out together, with the estimated ones.
    pub fn tokens(&self) -> u64 {
        self.usage.total().saturating_add(self.lost)
    }
}

/// Calls that are about to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All calls.
    pub calls: usize,
    /// Those that start child runs.
    pub children: usize,
}

/// A limit that continuing would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Breach {
    /// The budget.
    #[serde(rename = "budget")]
    pub kind: BudgetKind,
    /// Its limit.
    pub limit: u64,
    /// What has been used, or would be with the next call.
    pub observed: u64,
}

/// The budgets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// Iterations.
    Iterations,
    /// Tool calls.
    Calls,
    /// Tokens.
    Tokens,
    /// Wall time in milliseconds.
    WallMs,
    /// Child runs.
    Children,
}

impl BudgetKind {
    /// The budget as the journal and the deliverable spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            BudgetKind::Iterations => "iterations",
            BudgetKind::Calls => "calls",
            BudgetKind::Tokens => "tokens",
            BudgetKind::WallMs => "wall_ms",
            BudgetKind::Children => "children",
        }
    }
}

/// A higher limit that a person gave a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RaisedBudget {
    /// The budget.
    #[serde(rename = "budget")]
    pub kind: BudgetKind,
    /// The new limit.
    pub limit: u64,
    /// How long the run waited for it. This is no wall time.
    pub waited_ms: u64,
}

/// The limits that people gave a run instead of those of its manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RaisedLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iterations: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    children: Option<u32>,
    /// How long the run waited for higher limits.
    #[serde(default, skip_serializing_if = "is_zero")]
    waited_ms: u64,
}

impl RaisedLimits {
    /// Whether nothing was raised, which stored records leave out.
    pub(crate) fn is_empty(&self) -> bool {
        *self == RaisedLimits::default()
    }

    /// Takes over a higher limit.
    pub(crate) fn raise(&mut self, raised: RaisedBudget) {
        let small = u32::try_from(raised.limit).unwrap_or(u32::MAX);
        match raised.kind {
            BudgetKind::Iterations => self.iterations = Some(small),
            BudgetKind::Calls => self.calls = Some(small),
            BudgetKind::Tokens => self.tokens = Some(raised.limit),
            BudgetKind::WallMs => self.wall_ms = Some(raised.limit),
            BudgetKind::Children => self.children = Some(small),
        }
        self.waited_ms = self.waited_ms.saturating_add(raised.waited_ms);
    }
}

/// The limits of a run: those of its manifest, or the higher ones that people gave it.
pub fn limits(run: &Run, budgets: &Budgets) -> Budgets {
    let raised = &run.raised;
    Budgets {
        iterations: raised.iterations.unwrap_or(budgets.iterations),
        calls: raised.calls.or(budgets.calls),
        tokens: raised.tokens.or(budgets.tokens),
        wall_ms: raised.wall_ms.or(budgets.wall_ms),
        children: raised.children.or(budgets.children),
    }
}

/// The share of a run's budgets for each of `children` runs that it starts together. A run that waits for its children uses nothing itself,
/// so that they may have all that is left. `None` is no limit; iterations are counted by each run for itself.
pub fn share(run: &Run, budgets: &Budgets, children: u32, now: Timestamp) -> Budgets {
    let limits = limits(run, budgets);
    let each = u64::from(children.max(1));
    let small = |limit: Option<u32>, used: u32| limit.map(|limit| limit.saturating_sub(used) / children.max(1));
    Budgets {
        iterations: u32::MAX,
        calls: small(limits.calls, run.calls_used.saturating_add(run.below.calls)),
        tokens: limits.tokens.map(|limit| limit.saturating_sub(run.tokens()) / each),
        wall_ms: wall_end(run, budgets).map(|end| end.0.saturating_sub(now.0).max(0).unsigned_abs()),
        children: small(limits.children, run.children_used.saturating_add(run.below.children)),
    }
}

impl Budgets {
    /// The smaller of each two limits.
    pub fn within(self, other: Budgets) -> Budgets {
        fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Budgets {
            iterations: self.iterations.min(other.iterations),
            calls: smaller(self.calls, other.calls),
            tokens: smaller(self.tokens, other.tokens),
            wall_ms: smaller(self.wall_ms, other.wall_ms),
            children: smaller(self.children, other.children),
        }
    }
}

/// When the wall time of a run is over, if it has a limit. Waiting for higher limits does not count.
pub fn wall_end(run: &Run, budgets: &Budgets) -> Option<Timestamp> {
    let limit = limits(run, budgets).wall_ms?;
    Some(run.started_at?.plus_ms(limit).plus_ms(run.raised.waited_ms))
}

/// The budget that another iteration would exceed, checked before the model is called.
pub fn before_iteration(run: &Run, budgets: &Budgets, now: Timestamp) -> Option<Breach> {
    let budgets = &limits(run, budgets);
    let next = u64::from(run.iteration) + 1;
    if next > u64::from(budgets.iterations) {
        return Some(Breach { kind: BudgetKind::Iterations, limit: budgets.iterations.into(), observed: next });
    }
    used_up(run, budgets, run.tokens(), now)
}

/// The budget that another attempt of the iteration's model call would exceed if it started at `starts_at`.
pub fn before_attempt(run: &Run, budgets: &Budgets, starts_at: Timestamp) -> Option<Breach> {
    used_up(run, &limits(run, budgets), run.tokens(), starts_at)
}

/// The budget that starting the `wanted` calls would exceed, with the `reply` tokens of the reply that asks for them included.
pub fn before_calls(run: &Run, budgets: &Budgets, reply: u64, wanted: Wanted, now: Timestamp) -> Option<Breach> {
    let budgets = &limits(run, budgets);
    let passes = |kind, limit: Option<u32>, used: u32, below: u32, wanted: usize| {
        let observed = u64::from(used).saturating_add(below.into()).saturating_add(wanted as u64);
        let limit = u64::from(limit?);
        (observed > limit).then_some(Breach { kind, limit, observed })
    };
    passes(BudgetKind::Calls, budgets.calls, run.calls_used, run.below.calls, wanted.calls)
        .or_else(|| passes(BudgetKind::Children, budgets.children, run.children_used, run.below.children, wanted.children))
        .or_else(|| used_up(run, budgets, run.tokens().saturating_add(reply), now))
}

fn used_up(run: &Run, budgets: &Budgets, tokens: u64, now: Timestamp) -> Option<Breach> {
    if let Some(limit) = budgets.tokens.filter(|limit| tokens >= *limit) {
        return Some(Breach { kind: BudgetKind::Tokens, limit, observed: tokens });
    }
    let limit = budgets.wall_ms?;
    let passed = run.started_at.map_or(0, |start| now.0.saturating_sub(start.0).max(0).unsigned_abs());
    let observed = passed.saturating_sub(run.raised.waited_ms);
    // Nothing is later than the highest timestamp.
    let is_over = wall_end(run, budgets).map_or(limit == 0, |end| now >= end && end < Timestamp(i64::MAX));
    is_over.then_some(Breach { kind: BudgetKind::WallMs, limit, observed })
}
