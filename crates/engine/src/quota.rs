//! Quotas: the limits of each tenant, and the refusal of requests that would exceed them.
//!
//! Requests are counted in the memory of this process. Open runs are counted by the store, in the commit that records a run. Tokens come
//! from the sums that the sweep adds up and that this process reads again every two seconds. Stored bytes come from the count of the
//! sweep.

mod bucket;
mod lines;
mod used;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_kernel::{Tenant, Timestamp};
use windlass_ports::{Admission, Day, Fact, QuotaKind, StoreError, UsageQuery};

pub use bucket::Rate;

use crate::{api::EngineError, engine::Engine, stored::StoredBytes};
use bucket::Bucket;
use lines::Lines;
use used::Used;

/// The retry time given to a tenant with too many open runs.
const RUNS_RETRY_S: u32 = 5;

/// The retry time given to a tenant with too much stored content, by which a new count may be lower.
const BYTES_RETRY_S: u32 = 60;

/// The limits of one tenant. A field that is not set has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The rate of requests of any kind to this process.
    pub requests: Option<Rate>,
    /// The number of runs that were accepted and have not ended.
    pub runs_queued: Option<u32>,
    /// The tokens of runs that ended on one day, in UTC.
    pub tokens_per_day: Option<u64>,
    /// The bytes of all stored items of the tenant.
    pub bytes_stored: Option<u64>,
}

/// The quotas of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// The quota of tenants that have none of their own.
    pub default: Quota,
    /// The quotas of single tenants.
    pub tenants: BTreeMap<Tenant, Quota>,
}

impl Quotas {
    /// The quota of a tenant.
    pub fn of(&self, tenant: &Tenant) -> &Quota {
        self.tenants.get(tenant).unwrap_or(&self.default)
    }

    /// Whether a quota of some tenant needs the sums of usage.
    pub fn need_usage(&self) -> bool {
        self.all().any(|quota| quota.tokens_per_day.is_some())
    }

    /// Whether a quota of some tenant needs the sums of stored bytes.
    pub fn need_bytes(&self) -> bool {
        self.all().any(|quota| quota.bytes_stored.is_some())
    }

    fn all(&self) -> impl Iterator<Item = &Quota> {
        self.tenants.values().chain([&self.default])
    }
}

/// The refusal of a request that would exceed a quota of its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// The quota that would be exceeded.
    pub kind: QuotaKind,
    /// The limit of that quota.
    pub limit: u64,
    /// Seconds after which another attempt may be accepted.
    pub retry_after_s: u32,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverQuota { kind, limit, retry_after_s } = self;
        match kind {
            QuotaKind::Requests => {
                let rate = *limit as f64 / 1e3;
                write!(f, "this tenant sends more than {rate} requests per second; try again in {retry_after_s} s")
            }
            QuotaKind::Runs => write!(f, "this tenant has {limit} runs that have not ended, which is its quota; try again when some have"),
            QuotaKind::Tokens => {
                write!(f, "this tenant has used its quota of {limit} tokens for today (UTC); try again in {retry_after_s} s")
            }
            QuotaKind::Bytes => write!(
                f,
                "this tenant has stored its quota of {limit} bytes of content; delete responses and conversations, or ask the operator for a \
                 `retention` by age; deleted content stops counting after the next count, so try again in {retry_after_s} s"
            ),
        }
    }
}

/// The use of quotas, as this process knows it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The map is bounded: only tenants with a quota are in it, and tenants come from the tokens of the configuration.
    buckets: Mutex<BTreeMap<Tenant, Bucket>>,
    /// The tokens that tenants used today.
    pub(crate) tokens: Used,
    /// The bytes of content that tenants have stored.
    pub(crate) stored: StoredBytes,
    lines: Lines,
}

impl Ledger {
    fn buckets(&self) -> MutexGuard<'_, BTreeMap<Tenant, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_request(&self, tenant: &Tenant, rate: Rate, now: Timestamp) -> Result<(), OverQuota> {
        let mut buckets = self.buckets();
        if !buckets.contains_key(tenant) {
            buckets.insert(tenant.clone(), Bucket::full(rate, now));
        }
        let Some(bucket) = buckets.get_mut(tenant) else { return Ok(()) };
        let refused = |retry_after_s| OverQuota { kind: QuotaKind::Requests, limit: rate.per_1000_s, retry_after_s };
        bucket.take(rate, now).map_err(refused)
    }
}

impl Engine {
    /// Counts a request of a tenant. Refuses it if the tenant is over its rate.
    pub fn admit_request(&self, tenant: &Tenant) -> Result<(), EngineError> {
        let inner = self.inner();
        let Some(rate) = inner.settings.quotas.of(tenant).requests else { return Ok(()) };
        inner.ledger.take_request(tenant, rate, inner.clock.now()).map_err(|over| self.over_quota(tenant, over))
    }

    /// Refuses a new run of a tenant that has used up a quota. A request under a key that has a run already starts no new one, and is
    /// admitted.
    pub async fn admit_run(&self, tenant: &Tenant, key: Option<&str>) -> Result<(), EngineError> {
        let Some(over) = self.used_up(tenant).await? else { return Ok(()) };
        if let Some(key) = key
            && self.views().run_by_key(tenant, key).await?.is_some()
        {
            return Ok(());
        }
        Err(self.over_quota(tenant, over))
    }

    /// Refuses new content of a tenant that has used up its quota of stored bytes.
    pub(crate) fn admit_content(&self, tenant: &Tenant) -> Result<(), EngineError> {
        self.stored_too_much(tenant).map_or(Ok(()), |over| Err(self.over_quota(tenant, over)))
    }

    fn stored_too_much(&self, tenant: &Tenant) -> Option<OverQuota> {
        let inner = self.inner();
        let limit = inner.settings.quotas.of(tenant).bytes_stored.filter(|limit| inner.ledger.stored.of(tenant) >= *limit)?;
        Some(OverQuota { kind: QuotaKind::Bytes, limit, retry_after_s: BYTES_RETRY_S })
    }

    async fn used_up(&self, tenant: &Tenant) -> Result<Option<OverQuota>, EngineError> {
        if let Some(over) = self.stored_too_much(tenant) {
            return Ok(Some(over));
        }
        let inner = self.inner();
        let Some(limit) = inner.settings.quotas.of(tenant).tokens_per_day else { return Ok(None) };
        let now = inner.clock.now();
        let today = Day::of(now);
        let read = || async {
            let found = inner.views.usage(tenant, &UsageQuery::whole(today, today)).await?;
            Ok::<_, StoreError>(found.iter().map(|group| group.sums.tokens()).sum())
        };
        if inner.ledger.tokens.of(tenant, now, read).await? < limit {
            return Ok(None);
        }
        let left_ms = today.next().start().0.saturating_sub(now.0);
        let retry_after_s = u32::try_from(left_ms.div_euclid(1_000) + 1).unwrap_or(1);
        Ok(Some(OverQuota { kind: QuotaKind::Tokens, limit, retry_after_s }))
    }

    /// The limits on open runs under which the store records one more run of this tenant.
    pub(crate) fn admission(&self, tenant: &Tenant) -> Admission {
        let settings = self.settings();
        let quota = settings.quotas.of(tenant).runs_queued.unwrap_or(u32::MAX);
        Admission { open_per_tenant_max: settings.admission.open_per_tenant_max.min(quota), ..settings.admission }
    }

    /// The error for a tenant with too many open runs: its own quota, or the limit of all tenants.
    pub(crate) fn tenant_full(&self, tenant: &Tenant) -> EngineError {
        let settings = self.settings();
        match settings.quotas.of(tenant).runs_queued {
            Some(limit) if limit <= settings.admission.open_per_tenant_max => {
                let over = OverQuota { kind: QuotaKind::Runs, limit: limit.into(), retry_after_s: RUNS_RETRY_S };
                self.over_quota(tenant, over)
            }
            Some(_) | None => EngineError::TenantFull,
        }
    }

    /// Counts and logs a refusal.
    fn over_quota(&self, tenant: &Tenant, over: OverQuota) -> EngineError {
        let inner = self.inner();
        inner.meter.record(Fact::OverQuota(over.kind));
        if let Some(suppressed) = inner.ledger.lines.admit(inner.clock.now()) {
            tracing::warn!(%tenant, quota = over.kind.name(), limit = over.limit, suppressed, "a request was refused: the tenant is over its quota");
        }
        EngineError::OverQuota(over)
    }
}
