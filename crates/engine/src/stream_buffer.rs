//! The text that models are streaming: stored as deltas, and not yet in an item.
//!
//! Readers in this process take the text from here, so that a stream costs the store no reads. All text here is on disk: the store keeps
//! a delta batch first, and it is published here afterwards.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;
use windlass_kernel::{RunId, StreamedText};

/// The streamed text of one run.
#[derive(Default)]
pub(crate) struct StreamBuffer {
    state: Mutex<BufferState>,
    /// Locked while a delta batch is being written: who holds the lock knows that no batch is in flight.
    pub write_lock: Arc<tokio::sync::Mutex<IsOpen>>,
    /// Notified when a reader requests a heartbeat.
    pub heartbeat_requested: Notify,
}

/// The text, and where it belongs in the output.
#[derive(Default)]
struct BufferState {
    /// The length of the run's output when the text began: the text will be the item at this position.
    position: u32,
    text: StreamedText,
}

/// Whether more text may be streamed.
pub(crate) struct IsOpen(pub bool);

impl Default for IsOpen {
    fn default() -> Self {
        IsOpen(true)
    }
}

impl StreamBuffer {
    /// A buffer for text at `position` of the output, with the text that an earlier attempt streamed there.
    pub fn resumed(position: u32, text: StreamedText) -> Self {
        StreamBuffer { state: Mutex::new(BufferState { position, text }), ..StreamBuffer::default() }
    }

    /// Empties the buffer: the text so far is in an item, and the next text belongs at `position`.
    pub fn restart(&self, position: u32) {
        *self.lock() = BufferState { position, text: StreamedText::default() };
    }

    /// The position in the run's output at which the text belongs.
    pub fn position(&self) -> u32 {
        self.lock().position
    }

    /// The text streamed so far.
    pub fn streamed_text(&self) -> StreamedText {
        self.lock().text.clone()
    }

    /// The number of chunks streamed so far.
    pub fn chunk_count(&self) -> usize {
        self.lock().text.chunks.0.len()
    }

    /// The chunks after the first `count` ones. Empty if the buffer is at another position: the journal may have shown the reader that
    /// the text is settled before the worker clears the buffer.
    pub fn chunks_after(&self, position: u32, count: usize) -> Vec<String> {
        let state = self.lock();
        if state.position != position {
            return Vec::new();
        }
        let text = &state.text;
        let newest = text.chunks.0.get(count..).unwrap_or_default();
        // Lengths are counted from the end, because a long message is asked for its newest chunks again and again.
        let length: usize = newest.iter().map(|length| *length as usize).sum();
        let mut rest = text.text.get(text.text.len().saturating_sub(length)..).unwrap_or_default();
        let mut after = Vec::with_capacity(newest.len());
        for length in newest {
            let Some((chunk, others)) = rest.split_at_checked(*length as usize) else { break };
            after.push(chunk.to_owned());
            rest = others;
        }
        after
    }

    /// Adds text that is on disk, for readers in this process.
    pub fn append(&self, more: &StreamedText) {
        let text = &mut self.lock().text;
        text.text.push_str(&more.text);
        text.chunks.0.extend(&more.chunks.0);
    }

    /// Ends streaming. Waits for the delta batch being written, and returns all text streamed.
    pub async fn close(&self) -> StreamedText {
        let mut is_open = self.write_lock.lock().await;
        is_open.0 = false;
        self.streamed_text()
    }

    fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream buffers of the runs that have a worker here. They are weak: a buffer ends with its worker.
#[derive(Default)]
pub(crate) struct StreamBuffers {
    runs: Mutex<BufferMap>,
}

#[derive(Default)]
struct BufferMap {
    buffers: BTreeMap<RunId, Weak<StreamBuffer>>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

impl StreamBuffers {
    /// The run's stream buffer, if the run streams in this process.
    pub fn find(&self, run: RunId) -> Option<Arc<StreamBuffer>> {
        self.lock().buffers.get(&run)?.upgrade()
    }

    /// Registers the run's stream buffer, in place of an earlier one.
    pub fn insert(&self, run: RunId, buffer: &Arc<StreamBuffer>) {
        let mut runs = self.lock();
        runs.buffers.insert(run, Arc::downgrade(buffer));
        if runs.buffers.len() > runs.sweep_at {
            runs.buffers.retain(|_, buffer| buffer.strong_count() > 0);
            runs.sweep_at = runs.buffers.len() * 2 + 64;
        }
    }

    /// Removes the run's stream buffer, because the text is settled and must not be read any more.
    pub fn remove(&self, run: RunId) {
        self.lock().buffers.remove(&run);
    }

    fn lock(&self) -> MutexGuard<'_, BufferMap> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::ChunkLengths;

    use super::*;

    #[test]
    fn chunks_are_for_readers_at_the_same_position() {
        let buffer = StreamBuffer::resumed(1, StreamedText { text: "one two ".into(), chunks: ChunkLengths(vec![4]) });
        buffer.append(&StreamedText { text: "three".into(), chunks: ChunkLengths(vec![5]) });
        assert_eq!(buffer.chunks_after(1, 0).len(), 2);
        assert_eq!(buffer.chunks_after(1, 1), ["three"]);
        assert!(buffer.chunks_after(2, 0).is_empty(), "a reader that has the text from the journal gets it once");
        assert!(buffer.chunks_after(0, 0).is_empty());
        buffer.restart(2);
        assert_eq!((buffer.position(), buffer.chunk_count()), (2, 0));
        buffer.append(&StreamedText { text: "four".into(), chunks: ChunkLengths(vec![4]) });
        assert_eq!((buffer.chunks_after(2, 0), buffer.chunks_after(1, 0).len()), (vec!["four".to_owned()], 0));
    }
}
