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

use crate::worker_message::WorkerMessage;

/// The capacity of a mailbox. A sender waits when it is full. A worker never sends to its own mailbox.
const MAILBOX_CAPACITY: usize = 64;

/// A tenant may have this many workers for each worker that is still free, beyond one. However many of its runs wait for their provider,
/// other tenants find room.
const SHARE: usize = 8;

/// The live workers.
#[derive(Default)]
pub(crate) struct Workers {
    live: Mutex<LiveWorkers>,
    /// Whether an agent was refused a worker. The next worker that ends then wakes the sweep.
    turned_away: AtomicBool,
}

#[derive(Default)]
struct LiveWorkers {
    mailboxes: BTreeMap<AgentKey, mpsc::Sender<WorkerMessage>>,
    /// The number of workers of each tenant that has any.
    tenants: BTreeMap<Tenant, usize>,
}

impl LiveWorkers {
    /// Whether a tenant may have one more worker. The last free ones are for tenants that have none.
    fn has_room(&self, tenant: &Tenant, limit: usize) -> bool {
        let free = limit.saturating_sub(self.mailboxes.len());
        match self.tenants.get(tenant) {
            None => free > 0,
            // Without a limit, because a person waits for the answer.
            Some(_) if limit == usize::MAX => true,
            Some(own) => *own < free.saturating_sub(1).saturating_mul(SHARE),
        }
    }
}

/// The mailbox of an agent, as the list of workers gives it.
pub(crate) enum Slot {
    /// It has a worker.
    Existing(mpsc::Sender<WorkerMessage>),
    /// It was created now. The caller starts a worker that receives from it.
    Created(mpsc::Sender<WorkerMessage>, mpsc::Receiver<WorkerMessage>),
    /// There are too many workers.
    NoRoom,
}

impl Workers {
    /// The agent's mailbox, created if it has none. `limit` holds for new workers only.
    pub fn mailbox(&self, agent: &AgentKey, limit: usize) -> Slot {
        let mut workers = self.lock();
        if let Some(taken) = workers.mailboxes.get(agent) {
            return Slot::Existing(taken.clone());
        }
        if !workers.has_room(&agent.tenant, limit) {
            self.turned_away.store(true, Ordering::Relaxed);
            return Slot::NoRoom;
        }
        let (sender, messages) = mpsc::channel(MAILBOX_CAPACITY);
        workers.mailboxes.insert(agent.clone(), sender.clone());
        *workers.tenants.entry(agent.tenant.clone()).or_default() += 1;
        Slot::Created(sender, messages)
    }

    /// Closes the mailbox and forgets the worker, unless a message has arrived. Returns false in that case. A message sent before the
    /// close is still in the mailbox, and the ending worker passes it on.
    pub fn close(&self, agent: &AgentKey, messages: &mut mpsc::Receiver<WorkerMessage>) -> bool {
        let mut workers = self.lock();
        if !messages.is_empty() {
            return false;
        }
        messages.close();
        if workers.mailboxes.remove(agent).is_some()
            && let Entry::Occupied(mut own) = workers.tenants.entry(agent.tenant.clone())
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
        self.lock().mailboxes.contains_key(agent)
    }

    /// The number of workers.
    pub fn count(&self) -> usize {
        self.lock().mailboxes.len()
    }

    fn lock(&self) -> MutexGuard<'_, LiveWorkers> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an agent was refused a worker since the last call. Resets it.
    pub fn take_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }
}
