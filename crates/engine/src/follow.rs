//! Reading along with a run while it goes on.

use windlass_kernel::{AgentKey, RunId, Tenant};
use windlass_ports::StoreError;

use crate::{engine::Engine, note::Note};

impl Engine {
    /// The pieces of a run's open words after the first so many: announced, and not in an item yet. Whoever reads the journal
    /// afterwards and finds the words settled there throws these away.
    pub async fn open_words(&self, tenant: &Tenant, run: RunId, after: usize) -> Result<Vec<String>, StoreError> {
        if let Some(words) = self.inner().live.find(run) {
            return Ok(words.after(after));
        }
        let said = self.views().announced(tenant, run).await?;
        Ok(said.pieces.cut(&said.text).into_iter().skip(after).map(str::to_owned).collect())
    }

    /// Somebody who reads along has heard nothing for a while, since the journal had so many events: the run gives a sign of life,
    /// unless something has happened since.
    pub async fn quiet(&self, agent: &AgentKey, run: RunId, events: u64) {
        let inner = self.inner();
        match inner.live.find(run) {
            // While the model speaks, its words are the stream, and the sign of life is one of them.
            Some(words) => words.quiet.notify_one(),
            None => {
                if let Some(desk) = inner.desk(agent, inner.settings.workers_max) {
                    desk.leave(Note::Quiet(run, events)).await;
                }
            }
        }
    }
}
