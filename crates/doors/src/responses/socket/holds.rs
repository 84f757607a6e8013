//! Responses with `store: false` that are kept because their socket may continue them.
//!
//! The store erases such a response when the socket's maximum age has passed after the response's end. Usually its sockets release it much
//! earlier: then it is erased after the same delay as any other response that is not stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use windlass_engine::{Engine, EngineError};
use windlass_kernel::{EndReason, Phase, RunId, Tenant};
use windlass_ports::RunView;

/// The shortest pause between two checks of a response that is to be erased.
const CHECK_PAUSE_MIN: Duration = Duration::from_secs(1);

/// The number of holds on each response by sockets of this process.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<Mutex<BTreeMap<RunId, usize>>>);

/// A hold on a response. When the last hold is dropped, a task erases the response after its delay.
pub(super) struct ResponseHold(HeldResponse);

/// A response that is erased when no socket holds it any more.
#[derive(Clone)]
struct HeldResponse {
    run: RunId,
    /// The newest response in the chain that continues it.
    next: Option<RunId>,
    holders: Holders,
    engine: Engine,
    tenant: Tenant,
    /// The delay between the response's end and its erasure.
    erase: Duration,
}

impl Holders {
    pub(super) fn hold(&self, engine: &Engine, tenant: &Tenant, run: RunId, erase: Duration) -> ResponseHold {
        *self.lock().entry(run).or_default() += 1;
        ResponseHold(HeldResponse { run, next: None, holders: self.clone(), engine: engine.clone(), tenant: tenant.clone(), erase })
    }

    fn is_held(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseHold {
    pub(super) fn run(&self) -> RunId {
        self.0.run
    }

    /// Records that the response `next` continues `from`, if `from` is this response or the newest one in its chain.
    pub(super) fn record_continuation(&mut self, from: RunId, next: RunId) {
        if self.0.run == from || self.0.next == Some(from) {
            self.0.next = Some(next);
        }
    }
}

impl Drop for ResponseHold {
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
        let response = self.0.clone();
        runtime.spawn(async move {
            while !response.erase_if_due().await.unwrap_or(false) {
                tokio::time::sleep(response.erase.max(CHECK_PAUSE_MIN)).await;
            }
        });
    }
}

impl HeldResponse {
    /// Erases the response if it is due. Returns `true` if nothing is left to do, and `false` to be called again later.
    async fn erase_if_due(&self) -> Result<bool, EngineError> {
        let view = self.engine.views().run(&self.tenant, self.run).await?;
        let Some(view) = view.filter(|view| view.note.is_some() && !self.holders.is_held(self.run)) else { return Ok(true) };
        if !view.state.has_ended() {
            return Ok(false);
        }
        // The client may still send the outputs of its calls, on any connection. The store erases the response later by itself.
        if awaits_client(&view) && !self.is_answered().await? {
            return Ok(true);
        }
        let age_ms = view.ended_at.map_or(0, |at| self.engine.now().0.saturating_sub(at.0));
        if u128::try_from(age_ms).unwrap_or_default() < self.erase.as_millis() {
            return Ok(false);
        }
        self.engine.erase(&self.tenant, self.run).await.map(|()| true)
    }

    /// Whether the client has continued the response, and the newest response in the chain does not wait for the client.
    async fn is_answered(&self) -> Result<bool, EngineError> {
        let Some(next) = self.next else { return Ok(false) };
        let view = self.engine.views().run(&self.tenant, next).await?;
        Ok(view.is_none_or(|view| view.state.has_ended() && !awaits_client(&view)))
    }
}

fn awaits_client(view: &RunView) -> bool {
    matches!(&view.state.phase, Phase::Ended { reason: EndReason::RequiresAction, .. })
}
