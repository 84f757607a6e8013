//! The pool of open sessions, one for each tenant, server and credentials.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use windlass_kernel::Tenant;

use crate::{Failure, session::Session, single_flight::SingleFlight};

/// The key by which sessions are shared. Tenants share none, because a server may remember in a session what a client sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The tenant of the session; `None` if the operator has marked the server as shared.
    pub(crate) tenant: Option<Tenant>,
    pub(crate) server: ServerKey,
}

/// The server's part of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerKey {
    /// A configured server, by its label, which is unique.
    Configured { label: String, is_process: bool },
    /// A declared server, by a digest of address and headers: other credentials have another session.
    Declared([u8; 32]),
}

impl Key {
    fn is_declared(&self) -> bool {
        matches!(self.server, ServerKey::Declared(_))
    }

    fn is_process(&self) -> bool {
        matches!(self.server, ServerKey::Configured { is_process: true, .. })
    }
}

type Slot = Arc<SingleFlight<Arc<Session>>>;

pub(crate) struct Pool {
    slots: Mutex<HashMap<Key, Slot>>,
    limits: PoolLimits,
    is_swept: AtomicBool,
}

/// The limits on open sessions. Those of configured servers over HTTP are not counted: a tenant has at most one with each.
#[derive(Clone, Copy)]
pub(crate) struct PoolLimits {
    /// Sessions with declared servers, over all tenants.
    pub(crate) declared_max: usize,
    /// Sessions with declared servers, per tenant.
    pub(crate) declared_per_tenant_max: usize,
    /// Processes of configured servers, over all tenants.
    pub(crate) processes_max: usize,
    /// How long an unused session stays open.
    pub(crate) idle: Duration,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Pool { slots: Mutex::default(), limits, is_swept: AtomicBool::new(false) }
    }

    /// The open session for `key`, or the result of `open`. Concurrent callers wait for one opening.
    pub(crate) async fn session(
        self: &Arc<Self>,
        key: &Key,
        open: impl Future<Output = Result<Arc<Session>, Failure>>,
    ) -> Result<Arc<Session>, Failure> {
        self.keep_swept();
        let slot = self.slot(key)?;
        let session = slot.get(|_, session| session.is_open(), open).await?;
        session.touch();
        Ok(session)
    }

    /// The number of sessions that are open or being opened.
    pub(crate) fn len(&self) -> usize {
        self.slots().len()
    }

    /// Ends all unused sessions and waits until their servers have been notified.
    pub(crate) async fn close(&self) {
        let slots: Vec<Slot> = self.slots().drain().map(|(_, slot)| slot).collect();
        let sessions = slots.iter().filter_map(|slot| slot.take()).filter_map(Arc::into_inner);
        futures_util::future::join_all(sessions.map(Session::close)).await;
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, key: &Key) -> Result<Slot, Failure> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(key) {
            return Ok(slot.clone());
        }
        let PoolLimits { declared_max, declared_per_tenant_max, processes_max, .. } = self.limits;
        if key.is_declared() {
            admit(&mut slots, key, Key::is_declared, declared_max, declared_per_tenant_max)?;
        }
        if key.is_process() {
            admit(&mut slots, key, Key::is_process, processes_max, processes_max)?;
        }
        let slot = Slot::new(SingleFlight::new());
        slots.insert(key.clone(), slot.clone());
        Ok(slot)
    }

    /// Starts the task that closes idle sessions, once per pool. It ends with the pool.
    fn keep_swept(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let (pool, pause) = (Arc::downgrade(self), self.limits.idle / 4);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(pool) = pool.upgrade() else {
                    return;
                };
                let Some(long_ago) = Instant::now().checked_sub(pool.limits.idle) else {
                    continue;
                };
                pool.slots().retain(|_, slot| !(is_idle(slot) && last_use(slot).is_none_or(|used| used < long_ago)));
            }
        });
    }
}

/// Makes room for one more session of this kind. At a limit, it closes the tenant's session that has been unused for the longest time; it
/// never closes another tenant's.
fn admit(slots: &mut HashMap<Key, Slot>, key: &Key, is_kind: fn(&Key) -> bool, max: usize, own_max: usize) -> Result<(), Failure> {
    let is_own = |other: &Key| is_kind(other) && other.tenant == key.tenant;
    let (all, own) = (slots.keys().filter(|other| is_kind(other)).count(), slots.keys().filter(|other| is_own(other)).count());
    if all < max && own < own_max {
        return Ok(());
    }
    let idle = slots.iter().filter(|(other, slot)| is_own(other) && is_idle(slot));
    let oldest = idle.min_by_key(|(_, slot)| last_use(slot)).map(|(key, _)| key.clone());
    let Some(oldest) = oldest else {
        let whose = if own < own_max { "of all tenants together" } else { "of this tenant" };
        return Err(Failure::Busy(format!("too many tool servers {whose} are in use at once; try again later")));
    };
    slots.remove(&oldest);
    Ok(())
}

/// Whether no caller uses the session, opens it, or has just asked for it.
fn is_idle(slot: &Slot) -> bool {
    Arc::strong_count(slot) == 1 && slot.peek(|session| session.is_none_or(|session| Arc::strong_count(session) == 1)).unwrap_or(false)
}

/// When the session was last requested; `None` if there is none, which sorts first.
fn last_use(slot: &Slot) -> Option<Instant> {
    slot.peek(|session| session.map(|session| session.used())).flatten()
}
