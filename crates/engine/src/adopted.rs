//! Runs that this process has from one that is gone. Whoever read them there read them at that one: a door may have to know.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, RunId};

/// Runs that may wait to be told of. Beyond that they go on as if nobody had to know.
const WAITING_MAX: usize = 4_096;

/// Tells of runs as they are adopted, from the engine's start on.
pub(crate) struct Adopted {
    told: mpsc::Sender<(AgentKey, RunId)>,
    listener: Mutex<Option<mpsc::Receiver<(AgentKey, RunId)>>>,
}

impl Default for Adopted {
    fn default() -> Self {
        let (told, listener) = mpsc::channel(WAITING_MAX);
        Adopted { told, listener: Mutex::new(Some(listener)) }
    }
}

impl Adopted {
    pub fn tell(&self, agent: &AgentKey, run: RunId) {
        // Without room, or with nobody who listens, nobody hears of it.
        let _ = self.told.try_send((agent.clone(), run));
    }

    /// What is told, for the first who asks.
    pub fn listen(&self) -> Option<mpsc::Receiver<(AgentKey, RunId)>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
