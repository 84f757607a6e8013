//! Who reads which response in this process. A response that is not kept ends when nobody is left who could want it.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_engine::{Engine, Stop};
use windlass_kernel::{AgentKey, RunId, Tenant};

use super::note::Note;
use crate::DoorState;

/// How long a reader is waited for that may be gone already: a connection that broke is noticed a moment later.
const GRACE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Readers of responses, by run.
#[derive(Clone, Default)]
pub(crate) struct Attended {
    readers: Arc<Mutex<BTreeMap<RunId, Readers>>>,
    /// Requests on their way to a reader, by their keys.
    arriving: Arc<Mutex<BTreeSet<(Tenant, String)>>>,
}

#[derive(Default)]
struct Readers {
    count: usize,
    /// How often the last one has left.
    leaves: u64,
    /// Whether one of them got the last event.
    served: bool,
}

/// A request on its way to a reader. While it is, no other of the same key is.
pub(super) struct Arrival {
    attended: Attended,
    key: (Tenant, String),
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.attended.arriving().remove(&self.key);
    }
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

    /// A run was read at a process that is gone, if it was read at all: its reader may come back here.
    pub(super) fn expect(&self, engine: &Engine, agent: &AgentKey, run: RunId, patience: Duration) {
        match self.lock().entry(run) {
            // It is here, or waited for already.
            Entry::Occupied(_) => return,
            Entry::Vacant(unread) => drop(unread.insert(Readers { leaves: 1, ..Readers::default() })),
        }
        self.give_up_later(engine, agent, run, 1, patience);
    }

    /// Stops a run in a while, unless somebody comes back.
    fn give_up_later(&self, engine: &Engine, agent: &AgentKey, run: RunId, leaves: u64, patience: Duration) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (attended, engine, agent) = (self.clone(), engine.clone(), agent.clone());
        runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            if !attended.is_given_up(run, leaves) {
                return;
            }
            let stop = Stop { agent, run, reason: "its client went away".into(), epoch: None, source: None, key: None };
            if let Err(error) = engine.stop(stop).await {
                tracing::debug!(%run, %error, "a response without a reader was over before it could be stopped");
            }
        });
    }

    /// A request is on its way to a reader. `None` if another of that key is.
    pub(super) fn arrive(&self, tenant: &Tenant, key: &str) -> Option<Arrival> {
        let key = (tenant.clone(), key.to_owned());
        let is_first = self.arriving().insert(key.clone());
        is_first.then(|| Arrival { attended: self.clone(), key })
    }

    /// Whether no reader is there, or none is after a while.
    pub(super) async fn is_left(&self, run: RunId) -> bool {
        let is_left = async {
            while self.is_read(run) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(GRACE, is_left).await.is_ok()
    }

    /// Whether nobody came back since the last reader left, so many times. Whoever did and left again has all the time once more.
    fn is_given_up(&self, run: RunId, leaves: u64) -> bool {
        let mut readers = self.lock();
        let is_given_up = readers.get(&run).is_some_and(|readers| readers.count == 0 && readers.leaves == leaves);
        if is_given_up {
            readers.remove(&run);
        }
        is_given_up
    }

    fn is_read(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|readers| readers.count > 0)
    }

    fn arriving(&self) -> MutexGuard<'_, BTreeSet<(Tenant, String)>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(patience) = self.patience.filter(|_| !left.served) else {
            readers.remove(&self.run);
            return;
        };
        left.leaves += 1;
        let leaves = left.leaves;
        drop(readers);
        self.attended.give_up_later(&self.engine, &self.agent, self.run, leaves, patience);
    }
}

/// Waits for the readers of responses that are not kept, and whose process is gone, as if they had just left.
pub(crate) fn expect_readers(state: &DoorState) {
    let (Ok(runtime), Some(mut adopted)) = (tokio::runtime::Handle::try_current(), state.engine.adopted()) else { return };
    let state = state.clone();
    runtime.spawn(async move {
        while let Some((agent, run)) = adopted.recv().await {
            let view = match state.engine.views().run(&agent.tenant, run).await {
                Ok(view) => view,
                Err(error) => {
                    tracing::warn!(%run, %error, "nobody knows whether a response is kept; it goes on");
                    continue;
                }
            };
            let note = view.and_then(|view| Note::read(&view.note?));
            if note.is_some_and(|note| !note.store) {
                state.attended.expect(&state.engine, &agent, run, Duration::from_millis(state.responses.join_ms));
            }
        }
    });
}
