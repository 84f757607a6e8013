//! The workers of this process. An agent has at most one, and only while it has something in progress: a run that waits for results from
//! outside uses no memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, Tenant};

use crate::note::Note;

/// The capacity of a mailbox. A sender waits when it is full. A worker never sends to its own mailbox.
const NOTES_MAX: usize = 64;

/// A tenant may have this many workers for each worker that is still free, beyond one. However many of its runs wait for their provider,
/// other tenants find room.
const SHARE: usize = 8;

/// The live workers.
#[derive(Default)]
pub(crate) struct Workers {
    live: Mutex<Live>,
    /// Whether an agent was refused a worker. The next worker that ends then wakes the sweep.
    turned_away: AtomicBool,
}

#[derive(Default)]
struct Live {
    desks: BTreeMap<AgentKey, mpsc::Sender<Note>>,
    /// The number of workers of each tenant that has any.
    tenants: BTreeMap<Tenant, usize>,
}

impl Live {
    /// Whether a tenant may have one more worker. The last free ones are for tenants that have none.
    fn has_room(&self, tenant: &Tenant, limit: usize) -> bool {
        let free = limit.saturating_sub(self.desks.len());
        match self.tenants.get(tenant) {
            None => free > 0,
            // Without a limit, because a person waits for the answer.
            Some(_) if limit == usize::MAX => true,
            Some(own) => *own < free.saturating_sub(1).saturating_mul(SHARE),
        }
    }
}

/// The mailbox of an agent, as the list of workers gives it.
pub(crate) enum Desk {
    /// It has a worker.
    Taken(mpsc::Sender<Note>),
    /// It was created now. The caller starts a worker that receives from it.
    Fresh(mpsc::Sender<Note>, mpsc::Receiver<Note>),
    /// There are too many workers.
    NoRoom,
}

impl Workers {
    /// The agent's mailbox, created if it has none. `limit` holds for new workers only.
    pub fn desk(&self, agent: &AgentKey, limit: usize) -> Desk {
        let mut live = self.lock();
        if let Some(taken) = live.desks.get(agent) {
            return Desk::Taken(taken.clone());
        }
        if !live.has_room(&agent.tenant, limit) {
            self.turned_away.store(true, Ordering::Relaxed);
            return Desk::NoRoom;
        }
        let (sender, notes) = mpsc::channel(NOTES_MAX);
        live.desks.insert(agent.clone(), sender.clone());
        *live.tenants.entry(agent.tenant.clone()).or_default() += 1;
        Desk::Fresh(sender, notes)
    }

    /// Closes the mailbox and forgets the worker, unless a message has arrived. Returns false in that case. A message sent before the
    /// close is still in the mailbox, and the ending worker passes it on.
    pub fn leave(&self, agent: &AgentKey, notes: &mut mpsc::Receiver<Note>) -> bool {
        let mut live = self.lock();
        if !notes.is_empty() {
            return false;
        }
        notes.close();
        if live.desks.remove(agent).is_some()
            && let Entry::Occupied(mut own) = live.tenants.entry(agent.tenant.clone())
        {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        true
    }

    /// Whether the agent has a worker in this process.
    pub fn has(&self, agent: &AgentKey) -> bool {
        self.lock().desks.contains_key(agent)
    }

    /// The number of workers.
    pub fn count(&self) -> usize {
        self.lock().desks.len()
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an agent was refused a worker since the last call. Resets it.
    pub fn take_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }
}
