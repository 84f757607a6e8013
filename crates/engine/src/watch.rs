//! Wakes readers in this process when something was committed. It is a hint like the doorbell: a reader also polls.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

/// The watches of one kind, by subject.
#[derive(Debug)]
pub(crate) struct Watchers<K> {
    watched: Mutex<Watched<K>>,
}

#[derive(Debug)]
struct Watched<K> {
    subjects: BTreeMap<K, watch::Sender<()>>,
    /// When the map has this size, subjects without a watch are removed. The size follows the number that remain, so the amortised cost
    /// for each new watch is small.
    sweep_at: usize,
}

/// The number of subjects below which the map is not swept.
const SWEEP_MIN: usize = 64;

/// A watch of one subject. It misses no change after its creation.
#[derive(Debug, Clone)]
pub struct Watch {
    news: watch::Receiver<()>,
}

impl Watch {
    /// Makes the watch wake at once, as if there was a change already.
    #[must_use]
    pub fn from_before(mut self) -> Self {
        self.news.mark_changed();
        self
    }

    /// Waits for a change. Changes since the last wait count.
    pub async fn changed(&mut self) {
        // The sender exists as long as the subject has a watch. Without a sender there is nothing to wait for.
        let _ = self.news.changed().await;
    }
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Watchers { watched: Mutex::new(Watched { subjects: BTreeMap::new(), sweep_at: SWEEP_MIN }) }
    }
}

impl<K: Ord + Clone> Watchers<K> {
    /// A new watch of a subject.
    pub fn watch(&self, subject: &K) -> Watch {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.subjects.len() >= watched.sweep_at {
            watched.subjects.retain(|_, news| !news.is_closed());
            watched.sweep_at = SWEEP_MIN.max(watched.subjects.len() * 2);
        }
        let news = watched.subjects.entry(subject.clone()).or_insert_with(|| watch::Sender::new(()));
        Watch { news: news.subscribe() }
    }

    /// Wakes all watches of a subject.
    pub fn notify(&self, subject: &K) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = watched.subjects.get(subject) {
            news.send_replace(());
        }
    }
}
