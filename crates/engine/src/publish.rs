//! Publishes the outbox: at least once, in order, with stable ids. NATS, or another publisher, is never the source of truth.

use std::{sync::Arc, time::Duration};

use windlass_ports::{OutboxRow, Published, Publisher, StoreError};

use crate::{engine::Inner, messages};

/// Rows published at once.
const PAGE: usize = 256;
/// The longest pause before a failed page is sent again.
const TRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Publishes until the engine drains.
pub(crate) async fn run(inner: Arc<Inner>, publisher: Arc<dyn Publisher>) {
    let mut draining = inner.draining.subscribe();
    let pause = Duration::from_millis(inner.settings.sweep_ms);
    let mut is_stuck = false;
    loop {
        match page(&inner, publisher.as_ref()).await {
            Ok(count) => {
                if std::mem::take(&mut is_stuck) {
                    tracing::info!("publishing goes on");
                }
                if count == PAGE {
                    continue;
                }
            }
            Err(error) => {
                // Logged once, because the publisher may be unreachable for a long time.
                if !std::mem::replace(&mut is_stuck, true) {
                    tracing::warn!(%error, "publishing stopped; what is left stays in the outbox and is sent again");
                }
            }
        }
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            // While publishing fails, only time triggers a retry, not a new commit.
            () = inner.committed.notified(), if !is_stuck => {}
            () = tokio::time::sleep(if is_stuck { pause.min(TRY_PAUSE_MAX) } else { pause }) => {}
        }
    }
}

/// Publishes one page of the outbox and deletes its rows. A page that was published in part is published again as a whole.
async fn page(inner: &Inner, publisher: &dyn Publisher) -> Result<usize, PublishError> {
    let rows = inner.store.outbox(PAGE).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let mut messages = Vec::new();
    for row in &rows {
        messages.extend(messages_of(inner, row).await?);
    }
    if !messages.is_empty() {
        inner.crash.before_effect("publish");
        publisher.publish(&messages).await.map_err(PublishError::Refused)?;
        inner.crash.after_effect("publish");
    }
    inner.store.published(rows.iter().map(|row| row.n).collect()).await?;
    Ok(rows.len())
}

async fn messages_of(inner: &Inner, row: &OutboxRow) -> Result<Vec<Published>, StoreError> {
    match read(inner, row).await {
        // An unreadable event can never be published, and must not block the events behind it.
        Err(StoreError::Corrupt(why)) => {
            tracing::error!(agent = %row.agent.agent, run = %row.run, why = why.as_str(), "events are left out: what is stored of their run cannot be read");
            Ok(Vec::new())
        }
        read => read,
    }
}

async fn read(inner: &Inner, row: &OutboxRow) -> Result<Vec<Published>, StoreError> {
    let Some(run) = inner.views.run(&row.agent.tenant, row.run).await? else { return Ok(Vec::new()) };
    let entries = inner.views.journal(&row.agent.tenant, row.run, row.first, row.count as usize).await?;
    Ok(entries.iter().flat_map(|entry| messages::project(&run, entry)).collect())
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the other side did not take the messages: {0}")]
    Refused(String),
}
