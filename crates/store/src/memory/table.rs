//! A sorted table that can undo what was done to it since the last commit.

use std::{collections::BTreeMap, ops::RangeBounds};

pub(super) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    /// The earlier value of each changed key, the oldest change first.
    undo: Vec<(K, Option<V>)>,
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(super) fn new() -> Self {
        Table { rows: BTreeMap::new(), undo: Vec::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(super) fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns false and changes nothing if the key exists already.
    pub(super) fn insert(&mut self, key: K, value: V) -> bool {
        if self.rows.contains_key(&key) {
            return false;
        }
        self.put(key, value);
        true
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        let before = self.rows.insert(key.clone(), value);
        self.undo.push((key, before));
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(before) = self.rows.remove(key) {
            self.undo.push((key.clone(), Some(before)));
        }
    }

    /// Whether anything changed since the last commit.
    pub(super) fn has_changes(&self) -> bool {
        !self.undo.is_empty()
    }

    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    pub(super) fn roll_back(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}
