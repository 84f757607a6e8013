//! Sends the outbox out: at least once, in order, with ids that never change. NATS or whoever listens is never the record.

use std::{sync::Arc, time::Duration};

use windlass_ports::{OutboxRow, Publisher, StoreError};

use crate::{engine::Inner, messages};

/// Rows taken at once.
const PAGE: usize = 256;

/// Publishes until the engine is told to stop.
pub(crate) async fn run(inner: Arc<Inner>, publisher: Arc<dyn Publisher>) {
    let mut draining = inner.draining.subscribe();
    let pause = Duration::from_millis(inner.settings.sweep_ms);
    loop {
        match page(&inner, publisher.as_ref()).await {
            Ok(count) if count == PAGE => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "publishing stopped; what is left is sent again"),
        }
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            () = inner.committed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn page(inner: &Inner, publisher: &dyn Publisher) -> Result<usize, PublishError> {
    let rows = inner.store.outbox(PAGE).await?;
    for row in &rows {
        send(inner, publisher, row).await?;
        inner.store.published(vec![row.n]).await?;
    }
    Ok(rows.len())
}

async fn send(inner: &Inner, publisher: &dyn Publisher, row: &OutboxRow) -> Result<(), PublishError> {
    let Some(run) = inner.views.run(&row.agent.tenant, row.run).await? else {
        return Ok(());
    };
    let entries = inner.views.journal(&row.agent.tenant, row.run, row.first, row.count as usize).await?;
    for entry in entries {
        for message in messages::project(&run, &entry) {
            inner.crash.before_effect("publish");
            publisher.publish(&message).await.map_err(PublishError::Refused)?;
            inner.crash.after_effect("publish");
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the other side did not take a message: {0}")]
    Refused(String),
}
