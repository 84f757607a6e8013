//! How many bytes of content each tenant has stored, for the quota `bytes_stored`.
//!
//! No sum is stored, because every commit would have to change it. Each pass of the sweep reads the lengths of the items that are new
//! since the pass before. Erasures, and items that were committed behind the end of a pass, are found by a recount of everything, a
//! bounded part of it with each pass. All of it is in memory: a server counts everything once after its start.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_kernel::{ItemId, Tenant, Timestamp};
use windlass_ports::{ItemBytes, ItemScan, StoreError};

use crate::engine::Inner;

/// Items whose lengths one query reads.
const STRETCH: usize = 8_192;
/// Queries of one pass for items that are not counted yet.
const NEW_STRETCHES_MAX: usize = 16;
/// The pause between two recounts.
const RECOUNT_PAUSE_MS: i64 = 60_000;

/// The sums by which requests are admitted.
#[derive(Debug, Default)]
pub(crate) struct StoredBytes(Mutex<Sums>);

type Sums = BTreeMap<Tenant, u64>;

impl StoredBytes {
    /// The bytes that a tenant has stored, as far as the sweep has counted.
    pub fn of(&self, tenant: &Tenant) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).copied().unwrap_or(0)
    }

    fn set(&self, sums: Sums) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sums;
    }
}

/// The state of the count between passes of the sweep.
#[derive(Debug, Default)]
pub(crate) struct BytesCounter {
    sums: Sums,
    /// The last item that is in the sums.
    last: Option<ItemId>,
    recount: Option<Recount>,
    recounted_at: Option<Timestamp>,
}

/// A recount in progress.
#[derive(Debug)]
struct Recount {
    /// The sums of the items up to `after`.
    sums: Sums,
    after: Option<ItemId>,
    /// The last item of the recount. Later ones are counted as new.
    up_to: Option<ItemId>,
    /// The sums of the items that are new since the recount began.
    newer: Sums,
}

fn add(sums: &mut Sums, found: &ItemBytes) {
    for (tenant, bytes) in &found.tenants {
        let sum = sums.entry(tenant.clone()).or_default();
        *sum = sum.saturating_add(*bytes);
    }
}

impl BytesCounter {
    /// Counts the new items, and a part of the recount. Does nothing if no tenant has a quota of bytes.
    pub async fn count(&mut self, inner: &Arc<Inner>) -> Result<(), StoreError> {
        if !inner.settings.quotas.need_bytes() {
            return Ok(());
        }
        let is_whole = self.count_new(inner).await?;
        if is_whole {
            self.recount(inner).await?;
        }
        inner.ledger.stored.set(self.sums.clone());
        Ok(())
    }

    /// Counts new items. Returns true if none is left.
    async fn count_new(&mut self, inner: &Inner) -> Result<bool, StoreError> {
        for _ in 0..NEW_STRETCHES_MAX {
            let found = inner.views.item_bytes(&ItemScan { after: self.last, up_to: None, limit: STRETCH }).await?;
            add(&mut self.sums, &found);
            if let Some(recount) = &mut self.recount {
                add(&mut recount.newer, &found);
            }
            self.last = found.last.or(self.last);
            if found.items < STRETCH {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn recount(&mut self, inner: &Inner) -> Result<(), StoreError> {
        let now = inner.clock.now();
        let is_early = |at: Timestamp| (0..RECOUNT_PAUSE_MS).contains(&now.0.saturating_sub(at.0));
        let mut recount = match self.recount.take() {
            Some(recount) => recount,
            // The first count of new items after the start was a count of everything.
            None if self.recounted_at.is_none() => {
                self.recounted_at = Some(now);
                return Ok(());
            }
            None if self.recounted_at.is_some_and(is_early) => return Ok(()),
            None => Recount { sums: Sums::new(), after: None, up_to: self.last, newer: Sums::new() },
        };
        // If this fails, the recount is dropped, and the next pass starts a new one.
        let found = inner.views.item_bytes(&ItemScan { after: recount.after, up_to: recount.up_to, limit: STRETCH }).await?;
        add(&mut recount.sums, &found);
        recount.after = found.last.or(recount.after);
        if found.items < STRETCH {
            for (tenant, bytes) in recount.newer {
                *recount.sums.entry(tenant).or_default() += bytes;
            }
            (self.sums, self.recounted_at) = (recount.sums, Some(now));
        } else {
            self.recount = Some(recount);
        }
        Ok(())
    }
}
