//! Who reads which response in this process. A response that is not kept ends when nobody is left who could want it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_engine::{Engine, Stop};
use windlass_kernel::{AgentKey, RunId};

/// Readers of responses, by run.
#[derive(Clone, Default)]
pub(crate) struct Attended {
    readers: Arc<Mutex<BTreeMap<RunId, Readers>>>,
}

#[derive(Default)]
struct Readers {
    count: usize,
    /// Whether one of them got the last event.
    served: bool,
}

/// One reader. When the last one of a response that is not kept goes before its end, the run is stopped after a while.
pub(super) struct Attendance {
    attended: Attended,
    engine: Engine,
    agent: AgentKey,
    run: RunId,
    /// How long a response waits for its reader to come back; `None` if it is kept and goes on without one.
    patience: Option<Duration>,
}

impl Attended {
    /// Somebody begins to read.
    pub(super) fn attend(&self, engine: &Engine, agent: &AgentKey, run: RunId, patience: Option<Duration>) -> Attendance {
        self.lock().entry(run).or_default().count += 1;
        Attendance { attended: self.clone(), engine: engine.clone(), agent: agent.clone(), run, patience }
    }

    /// Whether a reader is there.
    pub(super) fn is_read(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|readers| readers.count > 0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Readers>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attendance {
    /// The last event is out.
    pub fn served(&mut self) {
        if let Some(readers) = self.attended.lock().get_mut(&self.run) {
            readers.served = true;
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut readers = self.attended.lock();
        let Some(left) = readers.get_mut(&self.run) else { return };
        left.count -= 1;
        if left.count > 0 {
            return;
        }
        if self.patience.is_none() || left.served {
            readers.remove(&self.run);
            return;
        }
        drop(readers);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (attended, engine, agent, run) = (self.attended.clone(), self.engine.clone(), self.agent.clone(), self.run);
        let patience = self.patience.unwrap_or_default();
        runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            if attended.is_read(run) {
                return;
            }
            attended.lock().remove(&run);
            let stop = Stop { agent, run, reason: "its client went away".into(), epoch: None, source: None };
            if let Err(error) = engine.stop(stop).await {
                tracing::debug!(%run, %error, "a response without a reader was over before it could be stopped");
            }
        });
    }
}
