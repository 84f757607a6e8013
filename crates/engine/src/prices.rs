//! Prices of models. A model without a price has an unknown cost, which is never taken for zero.

use std::collections::BTreeMap;

use windlass_kernel::Prices;

/// Prices by the names of models.
#[derive(Clone, Debug, Default)]
pub struct PriceTable {
    /// By the name that providers know.
    upstream: BTreeMap<String, Prices>,
    /// By the configured name. `None` if one of the models with that name has no price.
    configured: BTreeMap<String, Option<Prices>>,
}

impl PriceTable {
    /// A table with these prices, by the names of providers. They take precedence over the built-in ones.
    pub fn new(upstream: BTreeMap<String, Prices>) -> Self {
        PriceTable { upstream, configured: BTreeMap::new() }
    }

    /// Adds a configured model that is `upstream` at its provider. Of several models with one configured name, any may answer, so that the
    /// dearest prices of them count.
    pub fn add_model(&mut self, name: &str, upstream: &str) {
        let own = self.upstream.get(name).copied().or_else(|| self.of_upstream(upstream));
        let all = self.configured.entry(name.to_owned()).or_insert(Some(Prices::default()));
        *all = all.zip(own).map(|(all, own)| all.dearer(own));
    }

    /// The prices of a configured model, or of a model whose name is passed on to a provider.
    pub fn of(&self, name: &str) -> Option<Prices> {
        self.configured.get(name).copied().unwrap_or_else(|| self.of_upstream(name))
    }

    fn of_upstream(&self, name: &str) -> Option<Prices> {
        self.upstream.get(name).copied().or_else(|| built_in(name))
    }
}

/// The list prices of well-known models: dollars for a million tokens read, written, read from the provider's cache and written into it, in
/// thousandths of a dollar.
const BUILT_IN: &[(&str, [u64; 4])] = &[
    ("claude-haiku-4-5", [1_000, 5_000, 100, 1_250]),
    ("claude-opus-4-1", [15_000, 75_000, 1_500, 18_750]),
    ("claude-sonnet-4-5", [3_000, 15_000, 300, 3_750]),
    ("gpt-4.1", [2_000, 8_000, 500, 2_000]),
    ("gpt-4.1-mini", [400, 1_600, 100, 400]),
    ("gpt-4.1-nano", [100, 400, 25, 100]),
    ("gpt-4o", [2_500, 10_000, 1_250, 2_500]),
    ("gpt-4o-mini", [150, 600, 75, 150]),
    ("gpt-5", [1_250, 10_000, 125, 1_250]),
    ("gpt-5-mini", [250, 2_000, 25, 250]),
    ("gpt-5-nano", [50, 400, 5, 50]),
];

fn built_in(name: &str) -> Option<Prices> {
    let (_, [input, output, cached, cache_written]) = BUILT_IN.iter().find(|(known, _)| *known == undated(name))?;
    let micro = |thousandths: &u64| thousandths * 1_000;
    Some(Prices { input: micro(input), output: micro(output), cached: micro(cached), cache_written: micro(cache_written) })
}

/// The name of an Anthropic model without the date of its snapshot, which has the same price.
fn undated(name: &str) -> &str {
    let is_date = |date: &str| date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('-') {
        Some((model, date)) if is_date(date) && name.starts_with("claude-") => model,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(input: u64) -> Prices {
        Prices { input, ..Prices::default() }
    }

    #[test]
    fn a_snapshot_has_the_price_of_its_model_and_other_names_have_none() {
        let sonnet = built_in("claude-sonnet-4-5").unwrap();
        assert_eq!((sonnet.input, sonnet.output, sonnet.cached, sonnet.cache_written), (3_000_000, 15_000_000, 300_000, 3_750_000));
        assert_eq!(built_in("claude-sonnet-4-5-20250929"), Some(sonnet));
        for name in ["claude-sonnet", "gpt-4o-2024-05-13", "gpt-4o-20240513", "offline", ""] {
            assert_eq!(built_in(name), None, "{name}");
        }
    }

    #[test]
    fn the_dearest_of_the_models_with_one_name_counts_and_an_unpriced_one_makes_the_cost_unknown() {
        let mut table = PriceTable::new([("a".to_owned(), prices(1)), ("b".to_owned(), prices(2)), ("alias".to_owned(), prices(9))].into());
        table.add_model("both", "a");
        table.add_model("both", "b");
        table.add_model("half", "a");
        table.add_model("half", "unknown");
        table.add_model("alias", "unknown");
        assert_eq!((table.of("both"), table.of("half"), table.of("alias")), (Some(prices(2)), None, Some(prices(9))));
        assert_eq!((table.of("b"), table.of("unknown")), (Some(prices(2)), None), "a name that is passed on");
    }
}
