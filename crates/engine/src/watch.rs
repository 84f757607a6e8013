//! Wakes readers in this process when something was committed. A hint like any other: a reader also looks by itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

/// Who waits for news of what.
#[derive(Debug)]
pub(crate) struct Watchers<K> {
    watched: Mutex<Watched<K>>,
}

#[derive(Debug)]
struct Watched<K> {
    subjects: BTreeMap<K, watch::Sender<()>>,
    /// At this size subjects that nobody watches any more are let go. It follows what is left of them, so that looking through all
    /// of them costs each watcher little.
    sweep_at: usize,
}

/// So many subjects may stay unwatched at least.
const SWEEP_MIN: usize = 64;

/// A reader's place: news that come from its making on are never missed.
#[derive(Debug, Clone)]
pub struct Watch {
    news: watch::Receiver<()>,
}

impl Watch {
    /// Whatever was before counts as news too.
    #[must_use]
    pub fn from_before(mut self) -> Self {
        self.news.mark_changed();
        self
    }

    /// Waits for news. News that came since the last wait count.
    pub async fn changed(&mut self) {
        // The sender stays as long as somebody watches; without it there is nothing to wait for.
        let _ = self.news.changed().await;
    }
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Watchers { watched: Mutex::new(Watched { subjects: BTreeMap::new(), sweep_at: SWEEP_MIN }) }
    }
}

impl<K: Ord + Clone> Watchers<K> {
    /// Begins to watch a subject.
    pub fn watch(&self, subject: &K) -> Watch {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.subjects.len() >= watched.sweep_at {
            watched.subjects.retain(|_, news| !news.is_closed());
            watched.sweep_at = SWEEP_MIN.max(watched.subjects.len() * 2);
        }
        let news = watched.subjects.entry(subject.clone()).or_insert_with(|| watch::Sender::new(()));
        Watch { news: news.subscribe() }
    }

    /// Tells everybody who watches.
    pub fn tell(&self, subject: &K) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = watched.subjects.get(subject) {
            news.send_replace(());
        }
    }
}
