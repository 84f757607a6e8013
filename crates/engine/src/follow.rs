//! Reading along with a run while it goes on.

use std::sync::Arc;

use windlass_kernel::{AgentKey, RunId, Tenant};
use windlass_ports::StoreError;

use crate::{
    engine::{Engine, Inner},
    note::Note,
};

/// Words that were announced and stand in no item yet, in their pieces.
#[derive(Debug, Default)]
pub struct OpenWords {
    /// The pieces.
    pub pieces: Vec<String>,
    /// Whether all that happened to the run by now is in its tail: this process has it. Where others share the store, only new words
    /// show that it still does.
    pub tail_is_whole: bool,
}

impl Engine {
    /// The pieces of a run's open words after the first so many: announced, and not in an item yet. They are for a reader whose
    /// output has that length. Whoever reads the journal afterwards and finds the words settled there throws these away.
    pub async fn open_words(&self, tenant: &Tenant, run: RunId, output: u32, after: usize) -> Result<OpenWords, StoreError> {
        if let Some(words) = self.inner().live.find(run) {
            let pieces = words.after(output, after);
            let tail_is_whole = !pieces.is_empty() || self.inner().doorbell.is_none();
            return Ok(OpenWords { pieces, tail_is_whole });
        }
        let said = self.views().announced(tenant, run).await?;
        let pieces = said.chunks.split(&said.text).into_iter().skip(after).map(str::to_owned).collect();
        Ok(OpenWords { pieces, tail_is_whole: false })
    }

    /// Somebody who reads along has heard nothing for a while, since the journal had so many events: the run gives a sign of life,
    /// unless something has happened since.
    pub async fn quiet(&self, agent: &AgentKey, run: RunId, events: u64) {
        let inner = self.inner();
        inner.quiet(agent, run, events).await;
        if inner.live.find(run).is_none() {
            inner.ask_elsewhere(agent, run, events);
        }
    }
}

impl Inner {
    /// Has the run give a sign of life, if it is this process's or nobody's.
    pub async fn quiet(self: &Arc<Self>, agent: &AgentKey, run: RunId, events: u64) {
        match self.live.find(run) {
            // While the model speaks, its words are the stream, and the sign of life is one of them.
            Some(words) => words.quiet.notify_one(),
            None => {
                if let Some(desk) = self.desk(agent, self.settings.workers_max) {
                    desk.leave(Note::Quiet(run, events)).await;
                }
            }
        }
    }
}
