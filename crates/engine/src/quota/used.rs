//! Caches sums of the store by tenant, which are read at most once every two seconds.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_kernel::{Tenant, Timestamp};
use windlass_ports::{Day, StoreError};

/// The age up to which a cached number is used.
const AGE_MS: i64 = 2_000;

/// The use of today, by tenant. Only tenants with a quota are in it.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<BTreeMap<Tenant, CachedUse>>);

#[derive(Clone, Copy, Debug)]
struct CachedUse {
    at: Timestamp,
    used: u64,
}

impl Used {
    fn cache(&self) -> MutexGuard<'_, BTreeMap<Tenant, CachedUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a tenant used today. If the cached number is too old, this request reads it again; concurrent requests use the old number
    /// meanwhile.
    pub async fn of<R: Future<Output = Result<u64, StoreError>>>(
        &self,
        tenant: &Tenant,
        now: Timestamp,
        read: impl FnOnce() -> R,
    ) -> Result<u64, StoreError> {
        if let Some(cached) = self.cache().get_mut(tenant)
            && Day::of(cached.at) == Day::of(now)
        {
            if (0..AGE_MS).contains(&now.0.saturating_sub(cached.at.0)) {
                return Ok(cached.used);
            }
            cached.at = now;
        }
        let used = read().await?;
        self.cache().insert(tenant.clone(), CachedUse { at: now, used });
        Ok(used)
    }

    /// Empties the cache, because the sums have grown.
    pub fn forget(&self) {
        self.cache().clear();
    }
}
