//! This process's own lease: as long as it holds, no other process takes over what this one works on.
//!
//! The store's clock decides for the others; for this process it is its own monotonic clock, counted from before the store was
//! asked, so that it always gives up first. A process that was paused for too long finds out here, before it starts anything.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use windlass_ports::NodeId;

use crate::engine::Inner;

/// Stores give a process that opens them a first lease of at least so long, whatever it is going to ask for afterwards.
const FIRST_MS: u64 = 10_000;

/// How far this process is trusted to be alive.
pub(crate) struct Lease {
    until: Mutex<Instant>,
    /// Whether it was given up. Locked while the store is asked, so that no beat comes after the last one.
    given_up: tokio::sync::Mutex<bool>,
    lost: watch::Sender<Vec<NodeId>>,
}

impl Lease {
    /// The first lease: whoever opened the store for this process has taken it.
    pub fn new(lease_ms: u64) -> Self {
        let until = Mutex::new(Instant::now() + Duration::from_millis(lease_ms.min(FIRST_MS)));
        Lease { until, given_up: tokio::sync::Mutex::new(false), lost: watch::Sender::default() }
    }

    /// Whether nobody can have taken this process for dead.
    pub fn holds(&self) -> bool {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }

    /// Nodes that were lost, told with every beat until they are buried.
    pub fn lost(&self) -> watch::Receiver<Vec<NodeId>> {
        self.lost.subscribe()
    }

    fn prolong(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Prolongs the lease until it is given up.
pub(crate) async fn keep(inner: Arc<Inner>) {
    loop {
        let given_up = inner.lease.given_up.lock().await;
        if *given_up {
            return;
        }
        beat(&inner).await;
        drop(given_up);
        tokio::time::sleep(inner.beat_pause()).await;
    }
}

async fn beat(inner: &Inner) {
    let asked = Instant::now();
    match inner.store.beat(inner.node, inner.settings.lease_ms).await {
        Ok(lost) => {
            inner.lease.prolong(asked + Duration::from_millis(inner.settings.lease_ms));
            let _ = inner.lease.lost.send(lost);
        }
        Err(error) => tracing::warn!(%error, "the lease could not be prolonged; trying again"),
    }
}

/// Gives the lease up, so that nobody has to wait for its end.
pub(crate) async fn give_up(inner: &Inner) {
    *inner.lease.given_up.lock().await = true;
    inner.lease.prolong(Instant::now());
    if let Err(error) = inner.store.beat(inner.node, 0).await {
        tracing::warn!(%error, "the lease could not be given up; it runs out by itself");
    }
}

impl Inner {
    /// The pause between two beats: some may be lost before the lease is.
    pub fn beat_pause(&self) -> Duration {
        Duration::from_millis((self.settings.lease_ms / 4).max(1))
    }
}
