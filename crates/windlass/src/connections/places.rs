//! Places for connections: so many in all, and so many for one peer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use windlass_doors::{PeerKey, PeerRules};

use super::ConnectionLimits;

/// Connections of one peer where none are configured. Peers on this machine then have no limit of their own: tests, benchmarks and
/// proxies connect from there.
const PER_PEER: usize = 1_000;

/// How long a warning about taken places silences the next one.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// The open connections, counted.
pub(super) struct Places {
    connections_max: usize,
    per_peer: Option<usize>,
    rules: PeerRules,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    connections: usize,
    /// Only peers with an open connection are in it, so that it cannot outgrow `connections_max`.
    by_peer: HashMap<PeerKey, usize>,
    warned: Option<Instant>,
    /// Connections without a place since the last warning.
    unplaced: u64,
}

/// A connection's place. Dropping it gives the place back.
pub(super) struct Place {
    places: Arc<Places>,
    peer: Option<PeerKey>,
}

impl Places {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        let ConnectionLimits { connections, per_peer, peers, .. } = limits;
        Places { connections_max: *connections, per_peer: *per_peer, rules: peers.clone(), open: Mutex::default() }
    }

    /// A place for a connection from this address, unless all are taken or all of this peer's.
    pub(super) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
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
        Some(Place { places: self.clone(), peer: limited.map(|(peer, _)| peer) })
    }

    /// How many connections the peer with this address may have, if they are counted.
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
    /// Logs that a connection got no place, unless that was logged a short time ago.
    fn warn(&mut self, log: impl FnOnce(u64)) {
        self.unplaced += 1;
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            log(std::mem::take(&mut self.unplaced));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.lock();
        open.connections -= 1;
        let Some(peer) = self.peer else { return };
        match open.by_peer.get_mut(&peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.by_peer.remove(&peer)),
        }
    }
}
