//! Budgets: what a run may use. The kernel checks them for every policy. A breach is one event, followed by the ending that the policy chooses.

use serde::{Deserialize, Serialize};

use crate::{ids::Timestamp, price::CostBudget, run::Run};

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
    /// Milliseconds since the first iteration started. Waiting for people does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Child runs, with those that they start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<u32>,
    /// What the tokens may cost, runs below included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostBudget>,
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
    /// What the tokens cost, in micro-dollars, if the runs have cost budgets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: u64,
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
        self.cost = self.cost.saturating_add(other.cost);
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
    /// Cost in micro-dollars.
    CostMicroUsd,
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
            BudgetKind::CostMicroUsd => "cost_micro_usd",
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
    /// How long the run waited for people until then. This is no wall time.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// How long the run waited for people.
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
            BudgetKind::CostMicroUsd => self.cost = Some(raised.limit),
        }
        self.wait(raised.waited_ms);
    }

    /// Adds a time for which the run waited for people.
    pub(crate) fn wait(&mut self, ms: u64) {
        self.waited_ms = self.waited_ms.saturating_add(ms);
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
        cost: budgets.cost.map(|cost| CostBudget { limit: raised.cost.unwrap_or(cost.limit), ..cost }),
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
        wall_ms: wall_end(run, budgets, now).map(|end| end.0.saturating_sub(now.0).max(0).unsigned_abs()),
        children: small(limits.children, run.children_used.saturating_add(run.below.children)),
        cost: limits.cost.map(|cost| CostBudget { limit: cost.limit.saturating_sub(cost_of(run, &cost)) / each, ..cost }),
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
            cost: match (self.cost, other.cost) {
                // Each run has the prices of its own model.
                (Some(own), Some(other)) => Some(CostBudget { limit: own.limit.min(other.limit), ..own }),
                (own, other) => own.or(other),
            },
        }
    }
}

/// When the wall time of a run is over, if it has a limit. Waiting for people does not count, so that the end moves while the run waits.
pub fn wall_end(run: &Run, budgets: &Budgets, now: Timestamp) -> Option<Timestamp> {
    let limit = limits(run, budgets).wall_ms?;
    Some(run.started_at?.plus_ms(limit).plus_ms(run.raised.waited_ms).plus_ms(waiting_ms(run, now)))
}

/// How long the run has waited for people since it last waited for none. Zero, if it waits for none now or has not started.
pub(crate) fn waiting_ms(run: &Run, now: Timestamp) -> u64 {
    let (Some(since), Some(started)) = (run.waiting_since, run.started_at) else { return 0 };
    passed_ms(since.max(started), now)
}

/// The milliseconds from one time to another, or zero if that is earlier.
fn passed_ms(from: Timestamp, to: Timestamp) -> u64 {
    to.0.saturating_sub(from.0).max(0).unsigned_abs()
}

/// The budget that another iteration would exceed, checked before the model is called.
pub fn before_iteration(run: &Run, budgets: &Budgets, now: Timestamp) -> Option<Breach> {
    let budgets = &limits(run, budgets);
    let next = u64::from(run.iteration) + 1;
    if next > u64::from(budgets.iterations) {
        return Some(Breach { kind: BudgetKind::Iterations, limit: budgets.iterations.into(), observed: next });
    }
    used_up(run, budgets, Spent::default(), now)
}

/// The budget that another attempt of the iteration's model call would exceed if it started at `starts_at`.
pub fn before_attempt(run: &Run, budgets: &Budgets, starts_at: Timestamp) -> Option<Breach> {
    used_up(run, &limits(run, budgets), Spent::default(), starts_at)
}

/// The budget that starting the `wanted` calls would exceed, with what the reply that asks for them used included.
pub fn before_calls(run: &Run, budgets: &Budgets, reply: Spent, wanted: Wanted, now: Timestamp) -> Option<Breach> {
    let budgets = &limits(run, budgets);
    let passes = |kind, limit: Option<u32>, used: u32, below: u32, wanted: usize| {
        let observed = u64::from(used).saturating_add(below.into()).saturating_add(wanted as u64);
        let limit = u64::from(limit?);
        (observed > limit).then_some(Breach { kind, limit, observed })
    };
    passes(BudgetKind::Calls, budgets.calls, run.calls_used, run.below.calls, wanted.calls)
        .or_else(|| passes(BudgetKind::Children, budgets.children, run.children_used, run.below.children, wanted.children))
        .or_else(|| used_up(run, budgets, reply, now))
}

/// What a run and the ended runs below it cost, in micro-dollars. `None` if the run has no cost budget: then its prices are not known.
pub fn cost(run: &Run, budgets: &Budgets) -> Option<u64> {
    budgets.cost.map(|budget| cost_of(run, &budget))
}

fn cost_of(run: &Run, budget: &CostBudget) -> u64 {
    budget.prices.of(Spent { usage: run.usage, lost: run.lost }).saturating_add(run.below.cost)
}

/// A budget that is used up once `spent` is counted too, which the run does not contain yet.
fn used_up(run: &Run, budgets: &Budgets, spent: Spent, now: Timestamp) -> Option<Breach> {
    let tokens = run.tokens().saturating_add(spent.total());
    let of_cost = |budget: CostBudget| {
        // Rounded once, so that the sum is the same before and after the run contains what was spent.
        let mut own = Spent { usage: run.usage, lost: run.lost };
        own.add(spent);
        let observed = budget.prices.of(own).saturating_add(run.below.cost);
        (observed >= budget.limit).then_some(Breach { kind: BudgetKind::CostMicroUsd, limit: budget.limit, observed })
    };
    if let Some(breach) = budgets.cost.and_then(of_cost) {
        return Some(breach);
    }
    if let Some(limit) = budgets.tokens.filter(|limit| tokens >= *limit) {
        return Some(Breach { kind: BudgetKind::Tokens, limit, observed: tokens });
    }
    let limit = budgets.wall_ms?;
    let passed = run.started_at.map_or(0, |start| passed_ms(start, now));
    let observed = passed.saturating_sub(run.raised.waited_ms).saturating_sub(waiting_ms(run, now));
    // Nothing is later than the highest timestamp.
    let is_over = wall_end(run, budgets, now).map_or(limit == 0, |end| now >= end && end < Timestamp(i64::MAX));
    is_over.then_some(Breach { kind: BudgetKind::WallMs, limit, observed })
}
