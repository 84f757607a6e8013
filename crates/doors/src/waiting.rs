//! Waiting for news without missing any.

use std::{future::Future, pin::Pin, time::Duration};

use futures_util::FutureExt;
use windlass_engine::Watch;

use crate::limits::LOOK_MS;

/// A place in the queue for news, taken before the store is read: what is committed after the read wakes it.
pub(crate) struct Armed {
    news: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_come: bool,
}

impl Armed {
    /// Takes the place now.
    pub fn at(watch: &Watch) -> Self {
        let watch = watch.clone();
        let mut news: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { watch.changed().await });
        // The first poll is what queues; news from before it are covered by the read that follows.
        let has_come = (&mut news).now_or_never().is_some();
        Armed { news, has_come }
    }

    /// Waits for news, or until it is time to look anyway: bells ring only within one process.
    pub async fn news_or_time(self, longest: Duration) {
        if self.has_come {
            return;
        }
        let pause = longest.min(Duration::from_millis(LOOK_MS));
        let _ = tokio::time::timeout(pause, self.news).await;
    }
}
