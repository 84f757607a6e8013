//! Retention: erasing ended runs by their age, a batch in each pass of the sweep, a round over all tenants at most once a minute.
//!
//! Runs are erased by the same verb as by a client's deletion. Erasing a run that another server has erased already changes nothing, so
//! servers of one database need not agree on who does it.

use std::{collections::VecDeque, sync::Arc};

use windlass_kernel::{RunId, Tenant, Timestamp};
use windlass_ports::{AgedScan, Cutoffs, Store, StoreError};

use crate::engine::Inner;

/// The largest number of runs that one batch erases.
const BATCH: usize = 64;
/// The largest number of runs that one batch looks at.
const LOOKS: usize = 1_024;
/// The largest number of batches in one pass of the sweep. Most tenants have nothing to erase, so a pass continues with the next tenant.
const BATCHES_MAX: usize = 16;
/// The shortest time between the beginnings of two rounds.
const ROUND_MS: i64 = 60_000;

/// How long after its end a run keeps its content. A kind of run without a time here keeps it until it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The time for runs of the Responses API, in milliseconds.
    pub responses_ms: Option<u64>,
    /// The time for runs of the agents API, in milliseconds.
    pub runs_ms: Option<u64>,
}

impl Retention {
    /// Whether any run is erased by its age.
    pub fn is_set(&self) -> bool {
        self.responses_ms.is_some() || self.runs_ms.is_some()
    }

    /// The cutoffs of both kinds: runs that ended before them are erased now.
    fn cutoffs(&self, now: Timestamp) -> Cutoffs {
        let before = |ms: u64| Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)));
        Cutoffs { responses: self.responses_ms.map(before), runs: self.runs_ms.map(before) }
    }
}

/// The result of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgedErasure {
    /// The number of runs that were erased.
    pub erased: u64,
    /// The number of runs that could not be erased. They are skipped, and the next round tries them again.
    pub failed: u64,
    /// The last run that was looked at, from which the next batch continues. `None` if the tenant has no further run that is old enough.
    pub next: Option<RunId>,
}

/// Erases a batch of a tenant's ended runs that are older than the retention allows.
pub async fn erase_aged(
    store: &dyn Store,
    retention: Retention,
    tenant: &Tenant,
    after: Option<RunId>,
    now: Timestamp,
) -> Result<AgedErasure, StoreError> {
    if !retention.is_set() {
        return Ok(AgedErasure::default());
    }
    let scan = AgedScan { tenant: tenant.clone(), cutoffs: retention.cutoffs(now), after, limit: BATCH, looks: LOOKS };
    let page = store.aged(&scan).await?;
    let mut done = AgedErasure { next: page.next, ..AgedErasure::default() };
    for run in page.due {
        match store.erase(tenant.clone(), run).await {
            Ok(()) => done.erased += 1,
            Err(error) => {
                tracing::warn!(%tenant, %run, %error, "a run that is older than `retention` could not be erased; the next round tries again");
                done.failed += 1;
            }
        }
    }
    Ok(done)
}

/// The part of the sweep that applies `retention`.
#[derive(Debug, Default)]
pub(crate) struct RetentionSweep {
    /// The round in progress.
    round: Option<Round>,
    /// When the last round began.
    began_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Round {
    /// The tenants that are not finished yet.
    tenants: VecDeque<Tenant>,
    /// The cursor within the first of these tenants: the last run that was looked at.
    after: Option<RunId>,
    erased: u64,
}

impl RetentionSweep {
    /// Continues the round, or begins one if it is time. A pass ends after the first batch that erases anything.
    pub async fn pass(&mut self, inner: &Arc<Inner>) -> Result<(), StoreError> {
        let (retention, now) = (inner.settings.retention, inner.clock.now());
        if !retention.is_set() {
            return Ok(());
        }
        let mut round = match self.round.take() {
            Some(round) => round,
            // A clock that was set back delays no round.
            None if self.began_at.is_some_and(|at| (0..ROUND_MS).contains(&now.0.saturating_sub(at.0))) => return Ok(()),
            None => {
                let tenants = inner.views.tenants().await?.into();
                self.began_at = Some(now);
                Round { tenants, after: None, erased: 0 }
            }
        };
        for _ in 0..BATCHES_MAX {
            let Some(tenant) = round.tenants.front() else {
                if round.erased > 0 {
                    tracing::info!(runs = round.erased, "erased runs that were older than `retention`");
                }
                return Ok(());
            };
            // If this fails, the round ends, and the next one starts from the beginning.
            let done = erase_aged(&*inner.store, retention, tenant, round.after, now).await?;
            round.erased += done.erased;
            round.after = done.next;
            if done.next.is_none() {
                round.tenants.pop_front();
            }
            if done.erased + done.failed > 0 {
                break;
            }
        }
        self.round = Some(round);
        Ok(())
    }
}
