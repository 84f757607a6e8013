//! The sessions that are open, one for each server and credentials.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Failure, flight::Flight, session::Session};

/// Which sessions are one and the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// By label: the configuration has each once.
    Configured(String),
    /// By a digest of tenant, address and headers: no tenant speaks with another one's credentials.
    Declared([u8; 32]),
}

type Slot = Arc<Flight<Arc<Session>>>;

pub(crate) struct Pool {
    slots: Mutex<HashMap<Key, Slot>>,
    /// How many sessions that requests declared may be open. Those of the configuration are few and always welcome.
    declared_max: usize,
    idle: Duration,
    is_swept: AtomicBool,
}

impl Pool {
    pub(crate) fn new(declared_max: usize, idle: Duration) -> Self {
        Pool { slots: Mutex::default(), declared_max, idle, is_swept: AtomicBool::new(false) }
    }

    /// The open session, or the one that `open` gives. Whoever comes while it is being opened waits for it.
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

    /// How many sessions are open or being opened.
    pub(crate) fn len(&self) -> usize {
        self.slots().len()
    }

    /// Ends all sessions that nobody uses and waits until their servers were told.
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
        let is_declared = |key: &Key| matches!(key, Key::Declared(_));
        if is_declared(key) && slots.keys().filter(|key| is_declared(key)).count() >= self.declared_max {
            let idle = slots.iter().filter(|(key, slot)| is_declared(key) && is_idle(slot));
            let oldest = idle.min_by_key(|(_, slot)| last_use(slot)).map(|(key, _)| key.clone());
            let oldest = oldest.ok_or_else(|| Failure::Failed("too many tool servers are in use at once".to_owned()))?;
            slots.remove(&oldest);
        }
        let slot = Slot::new(Flight::new());
        slots.insert(key.clone(), slot.clone());
        Ok(slot)
    }

    /// Starts to look for idle sessions, once, and as long as the pool lives.
    fn keep_swept(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let (pool, pause) = (Arc::downgrade(self), self.idle / 4);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(pool) = pool.upgrade() else {
                    return;
                };
                let Some(long_ago) = Instant::now().checked_sub(pool.idle) else {
                    continue;
                };
                pool.slots().retain(|_, slot| !(is_idle(slot) && last_use(slot).is_none_or(|used| used < long_ago)));
            }
        });
    }
}

/// Whether nobody speaks with the server, opens a session with it, or is about to.
fn is_idle(slot: &Slot) -> bool {
    Arc::strong_count(slot) == 1 && slot.look(|session| session.is_none_or(|session| Arc::strong_count(session) == 1)).unwrap_or(false)
}

/// When somebody last wanted the session; nothing if there is none, which goes first.
fn last_use(slot: &Slot) -> Option<Instant> {
    slot.look(|session| session.map(|session| session.used())).flatten()
}
