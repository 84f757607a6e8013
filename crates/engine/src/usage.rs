//! Adds up the usage of ended runs, for the quotas of tokens and for `GET /v1/windlass/usage`. This is a part of the sweep.
//!
//! The commit that ends a run puts a row on a list. A pass reads a batch of the list, sums it, and has the store add the sums and delete
//! the rows in one transaction. So each run is counted once, whichever server reads it and wherever a server ends.

use std::{collections::BTreeMap, sync::Arc};

use windlass_ports::{Day, RunUsage, StoreError, UsageKey, UsageRow, UsageSums};

use crate::engine::Inner;

/// Runs that one transaction adds up.
const BATCH: usize = 256;
/// Batches of one pass of the sweep.
const BATCHES_MAX: usize = 16;

/// The state of the count between passes of the sweep.
#[derive(Debug, Default)]
pub(crate) struct UsageCounter {
    /// The last day on which old sums were deleted.
    forgot_on: Option<Day>,
}

impl UsageCounter {
    /// Adds up ended runs, as many as one pass may, and deletes old sums once a day. Does nothing if usage is not counted.
    pub async fn count(&mut self, inner: &Arc<Inner>) -> Result<(), StoreError> {
        let Some(days) = inner.settings.usage_days else { return Ok(()) };
        for _ in 0..BATCHES_MAX {
            let counted = inner.store.uncounted_usage(BATCH).await?;
            let is_last = counted.len() < BATCH;
            // Another server may be counting the same runs. The rest is left to the next pass, so that the two do not race.
            if !counted.is_empty() && !add(inner, counted).await? || is_last {
                break;
            }
        }
        let today = Day::of(inner.clock.now());
        if self.forgot_on != Some(today) {
            inner.store.forget_usage(today.minus(days)).await?;
            self.forgot_on = Some(today);
        }
        Ok(())
    }
}

async fn add(inner: &Inner, counted: Vec<RunUsage>) -> Result<bool, StoreError> {
    let mut sums: BTreeMap<UsageKey, UsageSums> = BTreeMap::new();
    let mut runs = Vec::with_capacity(counted.len());
    for RunUsage { run, key, sums: used } in counted {
        runs.push(run);
        sums.entry(key).or_default().add(&used);
    }
    let rows = sums.into_iter().map(|(key, sums)| UsageRow { key, sums }).collect();
    let is_added = inner.store.add_usage(runs, rows).await?;
    if is_added {
        inner.ledger.tokens.forget();
    }
    Ok(is_added)
}
