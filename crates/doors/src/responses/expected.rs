//! Responses with `store: false` whose server was lost. After the takeover, their runs wait for their readers for the join window.

use super::note::Note;
use crate::DoorState;

/// Starts a task that treats each run which this process has taken over as if its reader had just left, if the response is not stored.
pub(crate) fn expect_readers(state: &DoorState) {
    let (Ok(runtime), Some(mut adopted)) = (tokio::runtime::Handle::try_current(), state.engine.adopted()) else { return };
    let state = state.clone();
    runtime.spawn(async move {
        while let Some((agent, run)) = adopted.recv().await {
            let view = match state.engine.views().run(&agent.tenant, run).await {
                Ok(view) => view,
                Err(error) => {
                    tracing::warn!(%run, %error, "a run was taken over, and the store did not say whether its response is stored; it goes on");
                    continue;
                }
            };
            let note = view.and_then(|view| Note::read(&view.note?));
            if note.is_some_and(|note| !note.store) {
                state.engine.expect_reader(&agent, run);
            }
        }
    });
}
