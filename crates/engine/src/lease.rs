//! The lease of this process. While it holds, no other process takes over the runs that this one works on.
//!
//! Other processes judge the lease by the store's clock. This process judges it by its own monotonic clock, counted from before the
//! request to the store, so that it always considers its lease lost first. A process that was suspended for too long sees that here,
//! before it starts an effect.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use windlass_ports::NodeId;

use crate::engine::Inner;

/// The least time for which a store leases a process that opens it, whatever lease time the process asks for afterwards.
const FIRST_MS: u64 = 10_000;

/// The state of this process's lease.
pub(crate) struct Lease {
    until: Mutex<Instant>,
    /// Whether the lease was given up. Locked during each request to the store, so that no heartbeat follows the last one.
    given_up: tokio::sync::Mutex<bool>,
    lost: watch::Sender<Vec<NodeId>>,
}

impl Lease {
    /// The first lease, which the store granted when it was opened for this process.
    pub fn new(lease_ms: u64) -> Self {
        let until = Mutex::new(Instant::now() + Duration::from_millis(lease_ms.min(FIRST_MS)));
        Lease { until, given_up: tokio::sync::Mutex::new(false), lost: watch::Sender::default() }
    }

    /// Whether no other process can have taken over this one's runs yet.
    pub fn holds(&self) -> bool {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }

    /// The lost nodes, as every heartbeat returns them until the store has deleted them.
    pub fn lost(&self) -> watch::Receiver<Vec<NodeId>> {
        self.lost.subscribe()
    }

    fn prolong(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Renews the lease until it is given up.
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

/// Gives the lease up, so that other processes can take over without waiting for it to expire.
pub(crate) async fn give_up(inner: &Inner) {
    *inner.lease.given_up.lock().await = true;
    inner.lease.prolong(Instant::now());
    if let Err(error) = inner.store.beat(inner.node, 0).await {
        tracing::warn!(%error, "the lease could not be given up; it runs out by itself");
    }
}

impl Inner {
    /// The pause between two heartbeats. A few may fail before the lease expires.
    pub fn beat_pause(&self) -> Duration {
        Duration::from_millis((self.settings.lease_ms / 4).max(1))
    }
}
