//! Erasing ended runs by their age: a batch with each pass of the sweep, a round over all tenants at most once a minute.
//!
//! Runs are erased by the same verb as by a client's deletion. An erasure that another server was faster with changes nothing, so that
//! servers of one database need not agree on who does it.

use std::{collections::VecDeque, sync::Arc};

use windlass_kernel::{RunId, Tenant, Timestamp};
use windlass_ports::{AgedScan, CommitKind, Cutoffs, Store, StoreError};

use crate::{crash::CrashPoints, engine::Inner};

/// Runs that one batch erases at the most.
const BATCH: usize = 64;
/// Runs that one batch looks at for them at the most.
const LOOKS: usize = 1_024;
/// Batches of one pass of the sweep: most tenants have nothing to erase, and a pass goes past them.
const BATCHES_MAX: usize = 16;
/// The shortest time between the beginnings of two rounds.
const ROUND_MS: i64 = 60_000;

/// How long after its end a run keeps its content. A run of a kind without a time keeps it until it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Milliseconds, for runs of the Responses API.
    pub responses_ms: Option<u64>,
    /// Milliseconds, for runs of the agents API.
    pub runs_ms: Option<u64>,
}

impl Retention {
    /// Whether any run is erased by its age.
    pub fn is_set(&self) -> bool {
        self.responses_ms.is_some() || self.runs_ms.is_some()
    }

    /// The times at which the youngest runs ended that are erased now.
    fn cutoffs(&self, now: Timestamp) -> Cutoffs {
        let before = |ms: u64| Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)));
        Cutoffs { responses: self.responses_ms.map(before), runs: self.runs_ms.map(before) }
    }
}

/// What a batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgedErasure {
    /// Runs that were erased.
    pub erased: u64,
    /// Runs that could not be erased. They are passed over and tried again by the next round.
    pub failed: u64,
    /// The last run that was looked at. `None` if the tenant has no other run that is old enough.
    pub next: Option<RunId>,
}

/// Erases a batch of a tenant's ended runs that are older than the retention says.
pub async fn erase_aged(
    store: &dyn Store,
    retention: Retention,
    tenant: &Tenant,
    after: Option<RunId>,
    now: Timestamp,
) -> Result<AgedErasure, StoreError> {
    erase_batch(store, &CrashPoints::default(), retention, tenant, after, now).await
}

pub(crate) async fn erase_batch(
    store: &dyn Store,
    crash: &CrashPoints,
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
        crash.before_commit(CommitKind::Erase);
        match store.erase(tenant.clone(), run).await {
            Ok(()) => {
                crash.after_commit(CommitKind::Erase);
                done.erased += 1;
            }
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
    /// The round that goes on.
    round: Option<Round>,
    /// When the last round began.
    began_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Round {
    /// The tenants that are not done yet.
    tenants: VecDeque<Tenant>,
    /// The last run of the first of them that was looked at.
    after: Option<RunId>,
    erased: u64,
}

impl RetentionSweep {
    /// Goes on with the round, or begins one if it is time. At most one batch erases anything.
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
            // If this fails, the round is over, and the next one begins anew.
            let done = erase_batch(&*inner.store, &inner.crash, retention, tenant, round.after, now).await?;
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
