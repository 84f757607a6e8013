//! The newest journal entries of the runs that have followers in this process, so that following a run costs the store no reads.
//!
//! All entries here are on disk: a worker publishes them after its commit. This is a cache and never the source of truth, because another
//! process may own the run. A follower that finds an entry missing reads the store.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use windlass_kernel::{Epoch, Event, ItemId, NewItem, Run, RunId, apply};
use windlass_ports::{Commit, Item, JournalEntry, JournalRecord, NewRun};

/// The limits of one run's cache: entries, and bytes of their content. Older entries are in the store.
const RECORDS_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 10;

/// A follower's access to the newest journal entries of a run.
#[derive(Clone, Debug)]
pub struct JournalCache {
    state: Arc<Mutex<CacheState>>,
}

#[derive(Debug, Default)]
struct CacheState {
    records: VecDeque<JournalRecord>,
    bytes: usize,
    /// The number of the next event. `None` before the first one is known.
    next: Option<u64>,
}

impl JournalCache {
    /// The entries from event `number` on, as far as this process knows them. `None` if the cache does not reach back to that event.
    pub fn from(&self, number: u64) -> Option<Vec<JournalRecord>> {
        let state = self.lock();
        let first = state.next?.checked_sub(state.records.len() as u64)?;
        let skipped = usize::try_from(number.checked_sub(first)?).ok()?;
        (skipped <= state.records.len()).then(|| state.records.iter().skip(skipped).cloned().collect())
    }

    /// The entries of a run that is accepted and entered in one commit. `None` if it is not entered.
    pub(crate) fn records_of_new(&self, new: &NewRun) -> Option<Vec<JournalRecord>> {
        let accepted = JournalEntry { number: 0, epoch: None, at: new.now, event: new.accepted.clone() };
        let mut records = vec![JournalRecord { entry: accepted, appended: Vec::new(), result: None }];
        records.extend(self.records(&new.state, new.enter.as_ref()?)?);
        Some(records)
    }

    /// The entries of a commit to a run whose state was `before`. `None` if an item was written by an earlier commit and is not in the
    /// cache any more.
    pub(crate) fn records(&self, before: &Run, commit: &Commit) -> Option<Vec<JournalRecord>> {
        let mut state = Some(before.clone());
        let mut appended = commit.appended.iter();
        let mut length = before.output.length;
        let mut records: Vec<JournalRecord> = Vec::with_capacity(commit.events.len());
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
            records.push(JournalRecord { entry, appended, result });
        }
        Some(records)
    }

    /// Invalidates the cache after a commit that it cannot represent. Followers read that commit from the store.
    pub(crate) fn invalidate(&self) {
        *self.lock() = CacheState::default();
    }

    /// An item that is new in this commit, or a result that was reported a moment ago.
    fn item(&self, id: ItemId, new_items: &[NewItem]) -> Option<Item> {
        if let Some(item) = new_items.iter().find(|item| item.id == id) {
            return Some(Item::from(item));
        }
        self.lock().records.iter().rev().filter_map(|record| record.result.as_ref()).find(|item| item.id == id).cloned()
    }

    /// Publishes entries that were committed under this epoch.
    pub(crate) fn publish(&self, records: Vec<JournalRecord>, epoch: Epoch) {
        let mut state = self.lock();
        for mut record in records {
            record.entry.epoch = Some(epoch);
            if state.next.is_some_and(|next| next != record.entry.number) {
                *state = CacheState::default();
            }
            state.next = Some(record.entry.number + 1);
            state.bytes += content_bytes(&record);
            state.records.push_back(record);
        }
        while state.records.len() > RECORDS_MAX || state.bytes > BYTES_MAX {
            let Some(oldest) = state.records.pop_front() else { break };
            state.bytes -= content_bytes(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn content_bytes(record: &JournalRecord) -> usize {
    record.appended.iter().chain(&record.result).map(|item| item.content.len()).sum()
}

/// The caches of all runs that have followers in this process.
#[derive(Debug, Default)]
pub(crate) struct JournalCaches {
    caches: Mutex<CacheMap>,
}

#[derive(Debug, Default)]
struct CacheMap {
    runs: BTreeMap<RunId, Weak<Mutex<CacheState>>>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

impl JournalCaches {
    /// The cache of a run, created if the run has no follower yet.
    pub fn follow(&self, run: RunId) -> JournalCache {
        let mut caches = self.lock();
        if let Some(state) = caches.runs.get(&run).and_then(Weak::upgrade) {
            return JournalCache { state };
        }
        let state = Arc::<Mutex<CacheState>>::default();
        caches.runs.insert(run, Arc::downgrade(&state));
        if caches.runs.len() > caches.sweep_at {
            caches.runs.retain(|_, state| state.strong_count() > 0);
            caches.sweep_at = caches.runs.len() * 2 + 64;
        }
        JournalCache { state }
    }

    /// The run's cache, if the run has a follower.
    pub fn find(&self, run: RunId) -> Option<JournalCache> {
        let state = self.lock().runs.get(&run)?.upgrade()?;
        Some(JournalCache { state })
    }

    fn lock(&self) -> MutexGuard<'_, CacheMap> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(number: u64, bytes: usize) -> JournalRecord {
        let (id, kind, content) = (ItemId(uuid::Uuid::nil()), windlass_kernel::ItemKind::Thought, vec![0; bytes].into());
        let item = Item { id, kind, content, header: None };
        let entry = JournalEntry { number, epoch: None, at: windlass_kernel::Timestamp(0), event: Event::Heartbeat };
        JournalRecord { entry, appended: vec![item], result: None }
    }

    fn numbers(cache: &JournalCache, from: u64) -> Option<Vec<u64>> {
        cache.from(from).map(|found| found.iter().map(|record| record.entry.number).collect())
    }

    #[test]
    fn the_cache_knows_only_a_gapless_end_of_the_journal() {
        let cache = JournalCaches::default().follow(RunId(uuid::Uuid::nil()));
        assert_eq!(numbers(&cache, 0), None, "nothing was published yet");
        cache.publish(vec![heartbeat(3, 1), heartbeat(4, 1)], Epoch(1));
        assert_eq!(numbers(&cache, 2), None, "what came before is not here");
        assert_eq!(numbers(&cache, 4), Some(vec![4]));
        assert_eq!(numbers(&cache, 5), Some(vec![]));
        assert_eq!(numbers(&cache, 6), None, "the reader knows more than this process");
        cache.publish(vec![heartbeat(9, 1)], Epoch(1));
        assert_eq!((numbers(&cache, 5), numbers(&cache, 9)), (None, Some(vec![9])), "another process wrote in between");
    }

    #[test]
    fn an_invalidated_cache_knows_nothing() {
        let cache = JournalCaches::default().follow(RunId(uuid::Uuid::nil()));
        cache.publish(vec![heartbeat(0, 1)], Epoch(1));
        cache.invalidate();
        assert_eq!((numbers(&cache, 0), numbers(&cache, 1)), (None, None));
        cache.publish(vec![heartbeat(2, 1)], Epoch(1));
        assert_eq!((numbers(&cache, 1), numbers(&cache, 2)), (None, Some(vec![2])));
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = JournalCaches::default().follow(RunId(uuid::Uuid::nil()));
        cache.publish((0..1_000).map(|number| heartbeat(number, 1)).collect(), Epoch(1));
        assert_eq!(numbers(&cache, 1_000 - RECORDS_MAX as u64).map(|found| found.len()), Some(RECORDS_MAX));
        cache.publish(vec![heartbeat(1_000, BYTES_MAX), heartbeat(1_001, 1)], Epoch(1));
        assert_eq!((numbers(&cache, 1_000), numbers(&cache, 1_001)), (None, Some(vec![1_001])));
    }

    #[test]
    fn a_cache_lives_as_long_as_its_followers() {
        let (caches, run) = (JournalCaches::default(), RunId(uuid::Uuid::nil()));
        assert!(caches.find(run).is_none());
        let (first, second) = (caches.follow(run), caches.follow(run));
        first.publish(vec![heartbeat(0, 1)], Epoch(1));
        assert_eq!(numbers(&second, 0), Some(vec![0]));
        drop((first, second));
        assert!(caches.find(run).is_none());
    }
}
