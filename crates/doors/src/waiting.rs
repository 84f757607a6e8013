//! Waiting for news without missing any.

use std::time::Duration;

use windlass_engine::Watch;

use crate::limits::LOOK_MS;

/// Waits for news, or until it is time to look anyway: bells ring only within one process.
pub(crate) async fn news_or_time(watch: &mut Watch, longest: Duration) {
    let pause = longest.min(Duration::from_millis(LOOK_MS));
    let _ = tokio::time::timeout(pause, watch.changed()).await;
}
