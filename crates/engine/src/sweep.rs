//! The pass that makes doorbells a matter of speed alone: it finds what is due, stranded or owned by nobody, and has it looked at.
//!
//! One agent that cannot be read never stops a pass: each is looked at by a worker of its own.

use std::{sync::Arc, time::Duration};

use windlass_kernel::AgentKey;
use windlass_ports::StoreError;

use crate::{engine::Inner, note::Note};

/// Looks around until the engine is told to stop.
pub(crate) async fn run(inner: Arc<Inner>) {
    adopt(&inner).await;
    let mut draining = inner.draining.subscribe();
    let pause = Duration::from_millis(inner.settings.sweep_ms);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = inner.room.notified() => {}
            _ = draining.wait_for(|draining| *draining) => return,
        }
        if let Err(error) = pass(&inner).await {
            tracing::warn!(%error, "a pass of the sweep failed; the next one tries again");
        }
    }
}

/// Has everything looked at that is due.
async fn pass(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let due = inner.store.due(inner.clock.now(), inner.settings.sweep_page).await?;
    for agent in due {
        // Without room the rest stays due, and the next worker to leave brings the sweep back.
        if !inner.look(&agent) {
            return Ok(());
        }
    }
    Ok(())
}

/// Takes over what lost owners left: at start, every owner before this process is lost.
async fn adopt(inner: &Arc<Inner>) {
    let mut after: Option<AgentKey> = None;
    loop {
        let page = match inner.store.orphans(inner.node, after.clone(), inner.settings.sweep_page).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "lost owners' runs could not be listed; trying again");
                tokio::time::sleep(Duration::from_millis(inner.settings.sweep_ms)).await;
                continue;
            }
        };
        let Some(last) = page.last() else { return };
        after = Some(last.clone());
        for agent in page {
            // A run that was in the middle of something waits for nobody: room is waited for.
            inner.tell_when_room(&agent, Note::Look).await;
        }
    }
}
