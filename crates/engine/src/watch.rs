//! Wakes readers in this process when something was committed. A hint like any other: a reader also looks by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::Notify;

/// Who waits for news of what.
#[derive(Debug)]
pub(crate) struct Watchers<K> {
    waiting: Mutex<BTreeMap<K, Weak<Notify>>>,
}

/// A reader's place. While it lives, news of its subject wake it.
#[derive(Debug, Clone)]
pub struct Watch {
    bell: Arc<Notify>,
}

impl Watch {
    /// Waits for news. News that came since the last wait count.
    pub async fn changed(&self) {
        self.bell.notified().await;
    }
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Watchers { waiting: Mutex::default() }
    }
}

impl<K: Ord + Clone> Watchers<K> {
    /// Begins to watch a subject.
    pub fn watch(&self, subject: &K) -> Watch {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, bell| bell.strong_count() > 0);
        if let Some(bell) = waiting.get(subject).and_then(Weak::upgrade) {
            return Watch { bell };
        }
        let bell = Arc::new(Notify::new());
        waiting.insert(subject.clone(), Arc::downgrade(&bell));
        Watch { bell }
    }

    /// Tells everybody who watches.
    pub fn tell(&self, subject: &K) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = waiting.get(subject).and_then(Weak::upgrade) {
            bell.notify_waiters();
            // One permit for a reader that is between two waits.
            bell.notify_one();
        }
    }
}
