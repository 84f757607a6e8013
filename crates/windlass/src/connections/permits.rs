//! Permits for connections, limited in all and per peer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use windlass_doors::{PeerKey, PeerRules};

use super::ConnectionLimits;

/// The default limit of connections per peer. Peers on this machine then have no limit of their own, because tests, benchmarks and proxies
/// connect from there.
const PER_PEER: usize = 1_000;

/// The minimum time between two warnings about missing permits.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// Counts the open connections.
pub(super) struct ConnectionPermits {
    connections_max: usize,
    per_peer: Option<usize>,
    rules: PeerRules,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    connections: usize,
    /// Only peers with an open connection have an entry, so the map cannot outgrow `connections_max`.
    by_peer: HashMap<PeerKey, usize>,
    warned: Option<Instant>,
    /// Connections without a permit since the last warning.
    unplaced: u64,
}

/// The permit of a connection. Dropping it releases the permit.
pub(super) struct ConnectionPermit {
    permits: Arc<ConnectionPermits>,
    peer: Option<PeerKey>,
}

impl ConnectionPermits {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        let ConnectionLimits { connections, per_peer, peers, .. } = limits;
        ConnectionPermits { connections_max: *connections, per_peer: *per_peer, rules: peers.clone(), open: Mutex::default() }
    }

    /// A permit for a connection from this address, or `None` if all permits are taken, or all of this peer's.
    pub(super) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<ConnectionPermit> {
        let limited = self.per_peer_of(ip).map(|max| (PeerKey::of(ip), max));
        let mut open = self.lock();
        if open.connections >= self.connections_max {
            open.warn(|unplaced| {
                let connections = self.connections_max;
                tracing::warn!(connections, unplaced, "all places for connections are taken: only /healthz and /readyz are answered");
            });
            return None;
        }
        if let Some((peer, max)) = limited {
            let count = open.by_peer.get(&peer).copied().unwrap_or(0);
            if count >= max {
                open.warn(|unplaced| tracing::warn!(%peer, connections = max, unplaced, "a peer has as many connections as it may have"));
                return None;
            }
            open.by_peer.insert(peer, count + 1);
        }
        open.connections += 1;
        Some(ConnectionPermit { permits: self.clone(), peer: limited.map(|(peer, _)| peer) })
    }

    /// The limit for the peer with this address, or `None` if its connections are not counted.
    fn per_peer_of(&self, ip: IpAddr) -> Option<usize> {
        if !self.rules.is_client(ip) {
            return None;
        }
        self.per_peer.or_else(|| (!ip.to_canonical().is_loopback()).then_some(PER_PEER))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Logs that a connection got no permit, unless that was logged a short time ago.
    fn warn(&mut self, log: impl FnOnce(u64)) {
        self.unplaced += 1;
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            log(std::mem::take(&mut self.unplaced));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.permits.lock();
        open.connections -= 1;
        let Some(peer) = self.peer else { return };
        match open.by_peer.get_mut(&peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.by_peer.remove(&peer)),
        }
    }
}
