//! The newest journal entries of the runs that have followers in this process, so that following a run costs the store no reads.
//!
//! All entries here are on disk: a worker publishes them after its commit. This is a cache and never the source of truth, because another
//! process may own the run. A follower that finds an entry missing reads the store.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use windlass_kernel::{Epoch, Event, ItemId, NewItem, Run, RunId, apply};
use windlass_ports::{Commit, Item, JournalEntry, NewRun, Passage};

/// The limits of one run's cache: entries, and bytes of their content. Older entries are in the store.
const PASSAGES_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 10;

/// A follower's access to the newest journal entries of a run.
#[derive(Clone, Debug)]
pub struct Tail {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    passages: VecDeque<Passage>,
    bytes: usize,
    /// The number of the next event. `None` before the first one is known.
    next: Option<u64>,
}

impl Tail {
    /// The entries from event `number` on, as far as this process knows them. `None` if the cache does not reach back to that event.
    pub fn from(&self, number: u64) -> Option<Vec<Passage>> {
        let kept = self.lock();
        let first = kept.next?.checked_sub(kept.passages.len() as u64)?;
        let skipped = usize::try_from(number.checked_sub(first)?).ok()?;
        (skipped <= kept.passages.len()).then(|| kept.passages.iter().skip(skipped).cloned().collect())
    }

    /// The entries of a run that is accepted and entered in one commit. `None` if it is not entered.
    pub(crate) fn beginning(&self, new: &NewRun) -> Option<Vec<Passage>> {
        let accepted = JournalEntry { number: 0, epoch: None, at: new.now, event: new.accepted.clone() };
        let mut passages = vec![Passage { entry: accepted, appended: Vec::new(), result: None }];
        passages.extend(self.passages(&new.state, new.enter.as_ref()?)?);
        Some(passages)
    }

    /// The entries of a commit to a run whose state was `before`. `None` if an item was written by an earlier commit and is not in the
    /// cache any more.
    pub(crate) fn passages(&self, before: &Run, commit: &Commit) -> Option<Vec<Passage>> {
        let mut state = Some(before.clone());
        let mut appended = commit.appended.iter();
        let mut length = before.output.length;
        let mut passages: Vec<Passage> = Vec::with_capacity(commit.events.len());
        for (number, event) in (before.next_number..).zip(&commit.events) {
            state = apply(state, event);
            let after = state.as_ref()?.output.length;
            let ids = appended.by_ref().take(after.saturating_sub(length) as usize);
            let appended = ids.map(|id| self.item(*id, &commit.items)).collect::<Option<Vec<_>>>()?;
            let mut result = None;
            if let Event::Reported { item, .. } = event {
                result = Some(self.item(*item, &commit.items)?);
            }
            length = after;
            let entry = JournalEntry { number, epoch: None, at: commit.now, event: event.clone() };
            passages.push(Passage { entry, appended, result });
        }
        Some(passages)
    }

    /// Invalidates the cache after a commit that it cannot represent. Followers read that commit from the store.
    pub(crate) fn forget(&self) {
        *self.lock() = Kept::default();
    }

    /// An item that is new in this commit, or a result that was reported a moment ago.
    fn item(&self, id: ItemId, fresh: &[NewItem]) -> Option<Item> {
        if let Some(item) = fresh.iter().find(|item| item.id == id) {
            return Some(Item { id, kind: item.kind, content: item.content.clone() });
        }
        self.lock().passages.iter().rev().filter_map(|passage| passage.result.as_ref()).find(|item| item.id == id).cloned()
    }

    /// Publishes entries that were committed under this epoch.
    pub(crate) fn show(&self, passages: Vec<Passage>, epoch: Epoch) {
        let mut kept = self.lock();
        for mut passage in passages {
            passage.entry.epoch = Some(epoch);
            if kept.next.is_some_and(|next| next != passage.entry.number) {
                *kept = Kept::default();
            }
            kept.next = Some(passage.entry.number + 1);
            kept.bytes += bytes_of(&passage);
            kept.passages.push_back(passage);
        }
        while kept.passages.len() > PASSAGES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.passages.pop_front() else { break };
            kept.bytes -= bytes_of(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(passage: &Passage) -> usize {
    passage.appended.iter().chain(&passage.result).map(|item| item.content.len()).sum()
}

/// The caches of all runs that have followers in this process.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    followed: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    runs: BTreeMap<RunId, Weak<Mutex<Kept>>>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

impl Tails {
    /// The cache of a run, created if the run has no follower yet.
    pub fn follow(&self, run: RunId) -> Tail {
        let mut followed = self.lock();
        if let Some(kept) = followed.runs.get(&run).and_then(Weak::upgrade) {
            return Tail { kept };
        }
        let kept = Arc::<Mutex<Kept>>::default();
        followed.runs.insert(run, Arc::downgrade(&kept));
        if followed.runs.len() > followed.sweep_at {
            followed.runs.retain(|_, kept| kept.strong_count() > 0);
            followed.sweep_at = followed.runs.len() * 2 + 64;
        }
        Tail { kept }
    }

    /// The run's cache, if the run has a follower.
    pub fn find(&self, run: RunId) -> Option<Tail> {
        let kept = self.lock().runs.get(&run)?.upgrade()?;
        Some(Tail { kept })
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(number: u64, bytes: usize) -> Passage {
        let item = Item { id: ItemId(uuid::Uuid::nil()), kind: windlass_kernel::ItemKind::Thought, content: vec![0; bytes].into() };
        let entry = JournalEntry { number, epoch: None, at: windlass_kernel::Timestamp(0), event: Event::Heartbeat };
        Passage { entry, appended: vec![item], result: None }
    }

    fn numbers(tail: &Tail, from: u64) -> Option<Vec<u64>> {
        tail.from(from).map(|found| found.iter().map(|passage| passage.entry.number).collect())
    }

    #[test]
    fn only_what_follows_on_is_known() {
        let tail = Tails::default().follow(RunId(uuid::Uuid::nil()));
        assert_eq!(numbers(&tail, 0), None, "nothing was seen yet");
        tail.show(vec![quiet(3, 1), quiet(4, 1)], Epoch(1));
        assert_eq!(numbers(&tail, 2), None, "what came before is not here");
        assert_eq!(numbers(&tail, 4), Some(vec![4]));
        assert_eq!(numbers(&tail, 5), Some(vec![]));
        assert_eq!(numbers(&tail, 6), None, "the reader knows more than this process");
        tail.show(vec![quiet(9, 1)], Epoch(1));
        assert_eq!((numbers(&tail, 5), numbers(&tail, 9)), (None, Some(vec![9])), "somebody else wrote in between");
    }

    #[test]
    fn after_what_could_not_be_shown_nothing_is_known() {
        let tail = Tails::default().follow(RunId(uuid::Uuid::nil()));
        tail.show(vec![quiet(0, 1)], Epoch(1));
        tail.forget();
        assert_eq!((numbers(&tail, 0), numbers(&tail, 1)), (None, None));
        tail.show(vec![quiet(2, 1)], Epoch(1));
        assert_eq!((numbers(&tail, 1), numbers(&tail, 2)), (None, Some(vec![2])));
    }

    #[test]
    fn it_stays_small() {
        let tail = Tails::default().follow(RunId(uuid::Uuid::nil()));
        tail.show((0..1_000).map(|number| quiet(number, 1)).collect(), Epoch(1));
        assert_eq!(numbers(&tail, 1_000 - PASSAGES_MAX as u64).map(|found| found.len()), Some(PASSAGES_MAX));
        tail.show(vec![quiet(1_000, BYTES_MAX), quiet(1_001, 1)], Epoch(1));
        assert_eq!((numbers(&tail, 1_000), numbers(&tail, 1_001)), (None, Some(vec![1_001])));
    }

    #[test]
    fn a_run_is_followed_as_long_as_somebody_does() {
        let (tails, run) = (Tails::default(), RunId(uuid::Uuid::nil()));
        assert!(tails.find(run).is_none());
        let (first, second) = (tails.follow(run), tails.follow(run));
        first.show(vec![quiet(0, 1)], Epoch(1));
        assert_eq!(numbers(&second, 0), Some(vec![0]));
        drop((first, second));
        assert!(tails.find(run).is_none());
    }
}
