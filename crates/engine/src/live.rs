//! Words of models on their way: announced, and not yet in an item.
//!
//! A reader in this process takes them from here, so that a stream costs the store no reads. What is here is on disk: words are
//! kept by the store first, and shown after.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;
use windlass_kernel::{RunId, StreamedText};

/// The open words of one run.
#[derive(Default)]
pub(crate) struct Words {
    open: Mutex<Spoken>,
    /// Held while words are being kept: whoever has it knows that none are under way.
    pub turn: Arc<tokio::sync::Mutex<Open>>,
    /// Rings when a reader has heard nothing for a while.
    pub quiet: Notify,
}

/// Words and where they stand.
#[derive(Default)]
struct Spoken {
    /// How much stood in the run's output before them: what is said later stands behind it.
    place: u32,
    said: StreamedText,
}

/// Whether more may be announced.
pub(crate) struct Open(pub bool);

impl Default for Open {
    fn default() -> Self {
        Open(true)
    }
}

impl Words {
    /// Words for a place in the output, with those that were announced before.
    pub fn resumed(place: u32, said: StreamedText) -> Self {
        Words { open: Mutex::new(Spoken { place, said }), ..Words::default() }
    }

    /// What was said so far is settled, and the rest stands at another place.
    pub fn begin_again(&self, place: u32) {
        *self.lock() = Spoken { place, said: StreamedText::default() };
    }

    /// How much stood in the run's output before them.
    pub fn place(&self) -> u32 {
        self.lock().place
    }

    /// What was announced so far.
    pub fn said(&self) -> StreamedText {
        self.lock().said.clone()
    }

    /// In how many pieces.
    pub fn count(&self) -> usize {
        self.lock().said.chunks.0.len()
    }

    /// What comes after the first so many pieces, as pieces. Nothing if it stands at another place: a reader may know from the
    /// journal that words are settled before their worker does.
    pub fn after(&self, place: u32, pieces: usize) -> Vec<String> {
        let open = self.lock();
        if open.place != place {
            return Vec::new();
        }
        let said = &open.said;
        let fresh = said.chunks.0.get(pieces..).unwrap_or_default();
        // Counted from the end: a long message is asked for its newest words over and over.
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

    /// Shows words that are on disk.
    pub fn show(&self, more: &StreamedText) {
        let said = &mut self.lock().said;
        said.text.push_str(&more.text);
        said.chunks.0.extend(&more.chunks.0);
    }

    /// Lets nothing more be announced, and returns what was once nothing is under way.
    pub async fn close(&self) -> StreamedText {
        let mut open = self.turn.lock().await;
        open.0 = false;
        self.said()
    }

    fn lock(&self) -> MutexGuard<'_, Spoken> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open words of all runs that are worked on here. A worker that leaves takes its words along.
#[derive(Default)]
pub(crate) struct Live {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    words: BTreeMap<RunId, Weak<Words>>,
    /// How many there may be before those that are gone are looked for.
    sweep_at: usize,
}

impl Live {
    /// The run's open words, if it is worked on here.
    pub fn find(&self, run: RunId) -> Option<Arc<Words>> {
        self.lock().words.get(&run)?.upgrade()
    }

    /// Holds these words of the run from here on.
    pub fn hold(&self, run: RunId, words: &Arc<Words>) {
        let mut runs = self.lock();
        runs.words.insert(run, Arc::downgrade(words));
        if runs.words.len() > runs.sweep_at {
            runs.words.retain(|_, words| words.strong_count() > 0);
            runs.sweep_at = runs.words.len() * 2 + 64;
        }
    }

    /// The run's words are settled: whoever still holds them has nothing to show any more.
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
