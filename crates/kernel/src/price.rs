//! Prices of tokens, and what tokens cost. All amounts are integers: a micro-dollar is a millionth of a dollar.

use serde::{Deserialize, Serialize};

use crate::budget::Spent;

/// A limit on what the tokens of a run may cost, with the prices that were in force when the run started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostBudget {
    /// The limit in micro-dollars.
    pub limit: u64,
    /// The prices of the run's model.
    pub prices: Prices,
}

/// Prices of a million tokens each, in micro-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Tokens that the model reads.
    pub input: u64,
    /// Tokens that the model writes.
    pub output: u64,
    /// Tokens that the provider has in its cache.
    pub cached: u64,
    /// Tokens that the provider writes into its cache.
    pub cache_written: u64,
}

/// The number of tokens that a price is for.
const UNIT: u128 = 1_000_000;

impl Prices {
    /// What these tokens cost, in micro-dollars, rounded up. Tokens that a provider did not report are priced as tokens that were read,
    /// which most of them are.
    pub fn of(&self, spent: Spent) -> u64 {
        let usage = spent.usage;
        let special = usage.cached.saturating_add(usage.cache_written);
        let plain = usage.tokens_in.saturating_sub(special).saturating_add(spent.lost);
        let parts =
            [(plain, self.input), (usage.cached, self.cached), (usage.cache_written, self.cache_written), (usage.tokens_out, self.output)];
        let sum = parts.into_iter().fold(0_u128, |sum, (tokens, price)| sum.saturating_add(u128::from(tokens) * u128::from(price)));
        u64::try_from(sum.div_ceil(UNIT)).unwrap_or(u64::MAX)
    }

    /// The higher of each two prices.
    pub fn dearer(self, other: Prices) -> Prices {
        Prices {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cached: self.cached.max(other.cached),
            cache_written: self.cache_written.max(other.cache_written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Usage;

    const PRICES: Prices = Prices { input: 3_000_000, output: 15_000_000, cached: 300_000, cache_written: 3_750_000 };

    fn cost(usage: Usage, lost: u64) -> u64 {
        PRICES.of(Spent { usage, lost })
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let usage = Usage { tokens_in: 1_000, tokens_out: 10, cached: 600, cache_written: 100, reasoning: 5 };
        assert_eq!(cost(usage, 0), 300 * 3 + 600 * 3 / 10 + 375 + 150);
        assert_eq!(cost(Usage::default(), 1_000), 3_000);
        assert_eq!(cost(Usage::default(), 0), 0);
    }

    #[test]
    fn a_part_of_a_micro_dollar_counts_as_one_and_nothing_overflows() {
        assert_eq!(cost(Usage { tokens_in: 1, cached: 1, ..Usage::default() }, 0), 1);
        let huge = Usage { tokens_in: u64::MAX, tokens_out: u64::MAX, ..Usage::default() };
        assert_eq!(cost(huge, u64::MAX), u64::MAX);
        assert_eq!(
            Prices { input: u64::MAX, output: u64::MAX, cached: u64::MAX, cache_written: u64::MAX }.of(Spent { usage: huge, lost: 0 }),
            u64::MAX
        );
    }
}
