//! Wakes readers in this process when something was committed. A hint like any other: a reader also looks by itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

/// Who waits for news of what.
#[derive(Debug)]
pub(crate) struct Watchers<K> {
    watched: Mutex<BTreeMap<K, watch::Sender<()>>>,
}

/// A reader's place: news that come from its making on are never missed.
#[derive(Debug, Clone)]
pub struct Watch {
    news: watch::Receiver<()>,
}

impl Watch {
    /// Waits for news. News that came since the last wait count.
    pub async fn changed(&mut self) {
        // The sender stays as long as somebody watches; without it there is nothing to wait for.
        let _ = self.news.changed().await;
    }
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Watchers { watched: Mutex::default() }
    }
}

impl<K: Ord + Clone> Watchers<K> {
    /// Begins to watch a subject.
    pub fn watch(&self, subject: &K) -> Watch {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|_, news| !news.is_closed());
        let news = watched.entry(subject.clone()).or_insert_with(|| watch::Sender::new(()));
        Watch { news: news.subscribe() }
    }

    /// Tells everybody who watches.
    pub fn tell(&self, subject: &K) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = watched.get(subject) {
            news.send_replace(());
        }
    }
}
