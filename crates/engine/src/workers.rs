//! Who is being worked on. An agent has at most one worker in this process, and only while there is something to do:
//! a run that waits for the outside costs no memory.

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

/// Notes a worker may have waiting; whoever has more waits. A worker never writes into its own queue.
const NOTES_MAX: usize = 64;

/// A tenant may have so many workers for each place that it leaves free, beyond one: however many of its runs wait for their
/// provider, there is room for others.
const SHARE: usize = 8;

/// The live workers.
#[derive(Default)]
pub(crate) struct Workers {
    live: Mutex<Live>,
    /// Set when somebody was turned away; the next worker to leave has the sweep look at once.
    turned_away: AtomicBool,
}

#[derive(Default)]
struct Live {
    desks: BTreeMap<AgentKey, mpsc::Sender<Note>>,
    /// How many workers each tenant has, if any.
    tenants: BTreeMap<Tenant, usize>,
}

impl Live {
    /// Whether a tenant may have one more worker. The last places are for tenants that have none.
    fn has_room(&self, tenant: &Tenant, limit: usize) -> bool {
        let free = limit.saturating_sub(self.desks.len());
        match self.tenants.get(tenant) {
            None => free > 0,
            // Beyond every limit somebody waits for an answer.
            Some(_) if limit == usize::MAX => true,
            Some(own) => *own < free.saturating_sub(1).saturating_mul(SHARE),
        }
    }
}

/// Where to leave a note for an agent.
pub(crate) enum Desk {
    /// It has a worker.
    Taken(mpsc::Sender<Note>),
    /// A worker has to be started on these notes.
    Fresh(mpsc::Sender<Note>, mpsc::Receiver<Note>),
    /// There are too many workers already.
    NoRoom,
}

impl Workers {
    /// The agent's desk. `limit` holds for new workers only.
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

    /// Leaves, unless a note came in the meantime. Afterwards the queue takes nothing more; what slipped in before it closed
    /// is still in it, and is the leaving worker's to pass on.
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

    /// Whether the agent is being worked on.
    pub fn has(&self, agent: &AgentKey) -> bool {
        self.lock().desks.contains_key(agent)
    }

    /// How many agents are being worked on.
    pub fn count(&self) -> usize {
        self.lock().desks.len()
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody was turned away since this was last asked.
    pub fn take_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }
}
