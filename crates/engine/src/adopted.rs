//! Runs taken over from a lost process. Their readers were connected to that process and may reconnect here, which a door may have to
//! know.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, RunId};

/// The capacity of the channel. When it is full, further runs continue without notice to the door.
const WAITING_MAX: usize = 4_096;

/// Notifies one listener of each run that this process takes over, from the engine's start.
pub(crate) struct Adopted {
    sender: mpsc::Sender<(AgentKey, RunId)>,
    listener: Mutex<Option<mpsc::Receiver<(AgentKey, RunId)>>>,
}

impl Default for Adopted {
    fn default() -> Self {
        let (sender, listener) = mpsc::channel(WAITING_MAX);
        Adopted { sender, listener: Mutex::new(Some(listener)) }
    }
}

impl Adopted {
    pub fn notify(&self, agent: &AgentKey, run: RunId) {
        // If the channel is full or has no listener, the notice is dropped.
        let _ = self.sender.try_send((agent.clone(), run));
    }

    /// The receiver of the notices. Only the first caller gets it.
    pub fn listen(&self) -> Option<mpsc::Receiver<(AgentKey, RunId)>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
