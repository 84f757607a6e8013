//! `prices`: prices of models, in dollars for a million tokens.

use std::collections::BTreeMap;

use windlass_kernel::Prices;

use super::{
    error::ConfigError,
    reader::{Field, Keys},
};

pub(super) const PRICE: Keys = Keys { known: &["input", "output", "cached", "cache_written"], later: &[] };

pub(super) fn read_prices(field: Option<Field>) -> Result<BTreeMap<String, Prices>, ConfigError> {
    let entries = field.map_or_else(|| Ok(Vec::new()), Field::named)?;
    entries.into_iter().map(|(name, field)| Ok((name, read_price(field)?))).collect()
}

/// Tokens in the provider's cache cost as much as others, unless they have prices of their own.
fn read_price(field: Field) -> Result<Prices, ConfigError> {
    let mut section = field.section(&PRICE)?;
    let (input, output) = (section.require("input")?.micros()?, section.require("output")?.micros()?);
    Ok(Prices {
        input,
        output,
        cached: section.read_or("cached", input, Field::micros)?,
        cache_written: section.read_or("cache_written", input, Field::micros)?,
    })
}
