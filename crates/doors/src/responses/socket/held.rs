//! Responses that are not stored, and kept because a socket may go on from them.
//!
//! The store erases one at the latest when the socket's longest time has passed after its end. Usually the socket is done with it
//! long before: then it is erased as soon as any other response that is not stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_engine::Engine;
use windlass_kernel::{EndReason, Phase, RunId, Tenant};

/// A pause between two looks at a response that is to be erased.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// How many sockets of this process hold which response.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<Mutex<BTreeMap<RunId, usize>>>);

/// A hold on a response. Without one left, it is erased in its time.
pub(super) struct Held {
    pub run: RunId,
    holders: Holders,
    engine: Engine,
    tenant: Tenant,
    /// How long after its end it is erased.
    erase: Duration,
}

impl Holders {
    pub(super) fn hold(&self, engine: &Engine, tenant: &Tenant, run: RunId, erase: Duration) -> Held {
        *self.lock().entry(run).or_default() += 1;
        Held { run, holders: self.clone(), engine: engine.clone(), tenant: tenant.clone(), erase }
    }

    fn is_held(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holders = self.holders.lock();
        let Some(count) = holders.get_mut(&self.run) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        holders.remove(&self.run);
        drop(holders);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (holders, engine, tenant, run, erase) = (self.holders.clone(), self.engine.clone(), self.tenant.clone(), self.run, self.erase);
        runtime.spawn(async move {
            while !is_done_with(&holders, &engine, &tenant, run, erase).await {
                tokio::time::sleep(erase.max(LOOK_MIN)).await;
            }
        });
    }
}

/// Erases a response if its time has come. Whether nothing is left to be done about it.
async fn is_done_with(holders: &Holders, engine: &Engine, tenant: &Tenant, run: RunId, erase: Duration) -> bool {
    let view = match engine.views().run(tenant, run).await {
        Ok(Some(view)) if view.note.is_some() && !holders.is_held(run) => view,
        Ok(_) => return true,
        Err(_) => return false,
    };
    let Phase::Ended { reason, .. } = &view.state.phase else { return false };
    // Its client may come back with what it was asked to do, wherever it comes back: the store has a time of its own for that.
    if *reason == EndReason::RequiresAction {
        return true;
    }
    let age_ms = view.ended_at.map_or(0, |at| engine.now().0.saturating_sub(at.0));
    if u128::try_from(age_ms).unwrap_or_default() < erase.as_millis() {
        return false;
    }
    engine.erase(tenant, run).await.is_ok()
}
