//! Following a run while it is active.

use std::sync::Arc;

use windlass_kernel::{AgentKey, RunId, Tenant};
use windlass_ports::StoreError;

use crate::{
    engine::{Engine, Inner},
    worker_message::WorkerMessage,
};

/// Text that was streamed and is not in an item yet, in its chunks.
#[derive(Debug, Default)]
pub struct StreamedChunks {
    /// The chunks.
    pub pieces: Vec<String>,
    /// Whether the journal cache has everything committed for the run so far, because this process owns it. Where other processes share
    /// the store, only new chunks prove that.
    pub tail_is_whole: bool,
}

impl Engine {
    /// The chunks of a run's streamed text after the first `after` ones that no item contains yet, for a reader whose output has length
    /// `output`. If the reader then finds in the journal that the text was settled, it discards these chunks.
    pub async fn streamed_chunks(&self, tenant: &Tenant, run: RunId, output: u32, after: usize) -> Result<StreamedChunks, StoreError> {
        if let Some(buffer) = self.inner().stream_buffers.find(run) {
            let pieces = buffer.chunks_after(output, after);
            let tail_is_whole = !pieces.is_empty() || self.inner().doorbell.is_none();
            return Ok(StreamedChunks { pieces, tail_is_whole });
        }
        let streamed = self.views().streamed_text(tenant, run).await?;
        let pieces = streamed.chunks.split(&streamed.text).into_iter().skip(after).map(str::to_owned).collect();
        Ok(StreamedChunks { pieces, tail_is_whole: false })
    }

    /// Requests a heartbeat from the run, because a reader has received nothing since the journal had `events` entries. Nothing happens
    /// if the journal has grown since.
    pub async fn quiet(&self, agent: &AgentKey, run: RunId, events: u64) {
        let inner = self.inner();
        inner.request_heartbeat(agent, run, events).await;
        if inner.stream_buffers.find(run).is_none() {
            inner.request_heartbeat_elsewhere(agent, run, events);
        }
    }
}

impl Inner {
    /// Requests a heartbeat from the run, if this process owns it or no live process does.
    pub async fn request_heartbeat(self: &Arc<Self>, agent: &AgentKey, run: RunId, events: u64) {
        match self.stream_buffers.find(run) {
            // While the model streams text, the heartbeat is an empty delta of that stream.
            Some(buffer) => buffer.heartbeat_requested.notify_one(),
            None => {
                if let Some(mailbox) = self.mailbox(agent, self.settings.workers_max) {
                    mailbox.send(WorkerMessage::Heartbeat(run, events)).await;
                }
            }
        }
    }
}
