//! Waits for changes.

use std::time::Duration;

use windlass_engine::Watch;

use crate::limits::POLL_MS;

/// Waits for a notification, at most `longest` and at most [`POLL_MS`]: the caller then reads the store in any case, because a notification
/// from another process may be missing.
pub(crate) async fn news_or_time(watch: &mut Watch, longest: Duration) {
    let pause = longest.min(Duration::from_millis(POLL_MS));
    let _ = tokio::time::timeout(pause, watch.changed()).await;
}
