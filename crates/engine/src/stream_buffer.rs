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
pub(crate) struct Words {
    open: Mutex<Spoken>,
    /// Locked while a delta batch is being written: who holds the lock knows that no batch is in flight.
    pub turn: Arc<tokio::sync::Mutex<Open>>,
    /// Notified when a reader requests a heartbeat.
    pub quiet: Notify,
}

/// The text, and where it belongs in the output.
#[derive(Default)]
struct Spoken {
    /// The length of the run's output when the text began: the text will be the item at this position.
    place: u32,
    said: StreamedText,
}

/// Whether more text may be streamed.
pub(crate) struct Open(pub bool);

impl Default for Open {
    fn default() -> Self {
        Open(true)
    }
}

impl Words {
    /// A buffer for text at `position` of the output, with the text that an earlier attempt streamed there.
    pub fn resumed(place: u32, said: StreamedText) -> Self {
        Words { open: Mutex::new(Spoken { place, said }), ..Words::default() }
    }

    /// Empties the buffer: the text so far is in an item, and the next text belongs at `position`.
    pub fn begin_again(&self, place: u32) {
        *self.lock() = Spoken { place, said: StreamedText::default() };
    }

    /// The position in the run's output at which the text belongs.
    pub fn place(&self) -> u32 {
        self.lock().place
    }

    /// The text streamed so far.
    pub fn said(&self) -> StreamedText {
        self.lock().said.clone()
    }

    /// The number of chunks streamed so far.
    pub fn count(&self) -> usize {
        self.lock().said.chunks.0.len()
    }

    /// The chunks after the first `count` ones. Empty if the buffer is at another position: the journal may have shown the reader that
    /// the text is settled before the worker clears the buffer.
    pub fn after(&self, place: u32, pieces: usize) -> Vec<String> {
        let open = self.lock();
        if open.place != place {
            return Vec::new();
        }
        let said = &open.said;
        let fresh = said.chunks.0.get(pieces..).unwrap_or_default();
        // Lengths are counted from the end, because a long message is asked for its newest chunks again and again.
        let length: usize = fresh.iter().map(|length| *length as usize).sum();
        let mut rest = said.text.get(said.text.len().saturating_sub(length)..).unwrap_or_default();
        let mut after = Vec::with_capacity(fresh.len());
        for length in fresh {
            let Some((piece, others)) = rest.split_at_checked(*length as usize) else { break };
            after.push(piece.to_owned());
            rest = others;
        }
        after
    }

    /// Adds text that is on disk, for readers in this process.
    pub fn show(&self, more: &StreamedText) {
        let said = &mut self.lock().said;
        said.text.push_str(&more.text);
        said.chunks.0.extend(&more.chunks.0);
    }

    /// Ends streaming. Waits for the delta batch being written, and returns all text streamed.
    pub async fn close(&self) -> StreamedText {
        let mut open = self.turn.lock().await;
        open.0 = false;
        self.said()
    }

    fn lock(&self) -> MutexGuard<'_, Spoken> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream buffers of the runs that have a worker here. They are weak: a buffer ends with its worker.
#[derive(Default)]
pub(crate) struct Live {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    words: BTreeMap<RunId, Weak<Words>>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

impl Live {
    /// The run's stream buffer, if the run streams in this process.
    pub fn find(&self, run: RunId) -> Option<Arc<Words>> {
        self.lock().words.get(&run)?.upgrade()
    }

    /// Registers the run's stream buffer, in place of an earlier one.
    pub fn hold(&self, run: RunId, words: &Arc<Words>) {
        let mut runs = self.lock();
        runs.words.insert(run, Arc::downgrade(words));
        if runs.words.len() > runs.sweep_at {
            runs.words.retain(|_, words| words.strong_count() > 0);
            runs.sweep_at = runs.words.len() * 2 + 64;
        }
    }

    /// Removes the run's stream buffer, because the text is settled and must not be read any more.
    pub fn forget(&self, run: RunId) {
        self.lock().words.remove(&run);
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::ChunkLengths;

    use super::*;

    #[test]
    fn words_are_for_whoever_is_at_their_place() {
        let words = Words::resumed(1, StreamedText { text: "one two ".into(), chunks: ChunkLengths(vec![4]) });
        words.show(&StreamedText { text: "three".into(), chunks: ChunkLengths(vec![5]) });
        assert_eq!(words.after(1, 0).len(), 2);
        assert_eq!(words.after(1, 1), ["three"]);
        assert!(words.after(2, 0).is_empty(), "who has them in the journal gets them once");
        assert!(words.after(0, 0).is_empty());
        words.begin_again(2);
        assert_eq!((words.place(), words.count()), (2, 0));
        words.show(&StreamedText { text: "four".into(), chunks: ChunkLengths(vec![4]) });
        assert_eq!((words.after(2, 0), words.after(1, 0).len()), (vec!["four".to_owned()], 0));
    }
}
