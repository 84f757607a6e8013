//! Who is being worked on. An agent has at most one worker in this process, and only while there is something to do:
//! a run that waits for the outside costs no memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;
use windlass_kernel::AgentKey;

use crate::note::Note;

/// Notes a worker may have waiting; whoever has more waits. A worker never writes into its own queue.
const NOTES_MAX: usize = 64;

/// The live workers.
#[derive(Default)]
pub(crate) struct Workers {
    live: Mutex<BTreeMap<AgentKey, mpsc::Sender<Note>>>,
    /// Set when somebody was turned away; the next worker to leave has the sweep look at once.
    turned_away: AtomicBool,
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
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let count = live.len();
        match live.entry(agent.clone()) {
            Entry::Occupied(taken) => Desk::Taken(taken.get().clone()),
            Entry::Vacant(_) if count >= limit => {
                self.turned_away.store(true, Ordering::Relaxed);
                Desk::NoRoom
            }
            Entry::Vacant(vacant) => {
                let (sender, notes) = mpsc::channel(NOTES_MAX);
                vacant.insert(sender.clone());
                Desk::Fresh(sender, notes)
            }
        }
    }

    /// Leaves, unless a note came in the meantime. Afterwards the queue takes nothing more; what slipped in before it closed
    /// is still in it, and is the leaving worker's to pass on.
    pub fn leave(&self, agent: &AgentKey, notes: &mut mpsc::Receiver<Note>) -> bool {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.is_empty() {
            return false;
        }
        notes.close();
        live.remove(agent);
        true
    }

    /// Whether the agent is being worked on.
    pub fn has(&self, agent: &AgentKey) -> bool {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).contains_key(agent)
    }

    /// How many agents are being worked on.
    pub fn count(&self) -> usize {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether somebody was turned away since this was last asked.
    pub fn take_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }
}
