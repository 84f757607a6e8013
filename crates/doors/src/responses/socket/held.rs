//! Responses that are not stored, and kept because a socket may go on from them.
//!
//! The store erases one at the latest when the socket's longest time has passed after its end. Usually the socket is done with it
//! long before: then it is erased as soon as any other response that is not stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_engine::{Engine, EngineError};
use windlass_kernel::{EndReason, Phase, RunId, Tenant};
use windlass_ports::RunView;

/// A pause between two looks at a response that is to be erased.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// How many sockets of this process hold which response.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<Mutex<BTreeMap<RunId, usize>>>);

/// A hold on a response. Without one left, it is erased in its time.
pub(super) struct Held(Kept);

/// A response that is to be erased, and what is known of it.
#[derive(Clone)]
struct Kept {
    run: RunId,
    /// The newest response that goes on from it, or from one that does.
    next: Option<RunId>,
    holders: Holders,
    engine: Engine,
    tenant: Tenant,
    /// How long after its end it is erased.
    erase: Duration,
}

impl Holders {
    pub(super) fn hold(&self, engine: &Engine, tenant: &Tenant, run: RunId, erase: Duration) -> Held {
        *self.lock().entry(run).or_default() += 1;
        Held(Kept { run, next: None, holders: self.clone(), engine: engine.clone(), tenant: tenant.clone(), erase })
    }

    fn is_held(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    pub(super) fn run(&self) -> RunId {
        self.0.run
    }

    /// A response goes on from another one: then it goes on from all that came before that one, too.
    pub(super) fn is_gone_on_from(&mut self, from: RunId, next: RunId) {
        if self.0.run == from || self.0.next == Some(from) {
            self.0.next = Some(next);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holders = self.0.holders.lock();
        let Some(count) = holders.get_mut(&self.0.run) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        holders.remove(&self.0.run);
        drop(holders);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let kept = self.0.clone();
        runtime.spawn(async move {
            while !kept.is_done_with().await.unwrap_or(false) {
                tokio::time::sleep(kept.erase.max(LOOK_MIN)).await;
            }
        });
    }
}

impl Kept {
    /// Erases the response if its time has come. Whether nothing is left to be done about it.
    async fn is_done_with(&self) -> Result<bool, EngineError> {
        let view = self.engine.views().run(&self.tenant, self.run).await?;
        let Some(view) = view.filter(|view| view.note.is_some() && !self.holders.is_held(self.run)) else { return Ok(true) };
        if !view.state.has_ended() {
            return Ok(false);
        }
        // Its client may come back with what it was asked to do, wherever it comes back: the store has a time of its own for that.
        if awaits_its_client(&view) && !self.is_answered().await? {
            return Ok(true);
        }
        let age_ms = view.ended_at.map_or(0, |at| self.engine.now().0.saturating_sub(at.0));
        if u128::try_from(age_ms).unwrap_or_default() < self.erase.as_millis() {
            return Ok(false);
        }
        self.engine.erase(&self.tenant, self.run).await.map(|()| true)
    }

    /// Whether its client came back, and was not asked for anything more.
    async fn is_answered(&self) -> Result<bool, EngineError> {
        let Some(next) = self.next else { return Ok(false) };
        let view = self.engine.views().run(&self.tenant, next).await?;
        Ok(view.is_none_or(|view| view.state.has_ended() && !awaits_its_client(&view)))
    }
}

fn awaits_its_client(view: &RunView) -> bool {
    matches!(&view.state.phase, Phase::Ended { reason: EndReason::RequiresAction, .. })
}
