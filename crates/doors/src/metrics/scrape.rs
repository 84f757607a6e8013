//! What is read at a scrape: gauges that the store and the engine know.

use std::{sync::Arc, time::Duration};

use prometheus_client::encoding::text::encode;
use tokio::{sync::Mutex, time::Instant};
use windlass_ports::StoreTotals;

use super::Metrics;
use crate::{DoorState, error::ApiError, limits::SOCKETS_MAX};

/// How long numbers of the store are good for: scrapes that come more often do not read it again.
const TOTALS_AGE: Duration = Duration::from_secs(5);

/// The metrics of a server, and what the store said last.
#[derive(Clone)]
pub(crate) struct Scrape {
    pub metrics: Arc<Metrics>,
    totals: Arc<Mutex<Option<(Instant, StoreTotals)>>>,
}

impl Scrape {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Scrape { metrics, totals: Arc::default() }
    }

    /// All metrics as text.
    pub async fn text(&self, state: &DoorState) -> Result<String, ApiError> {
        let families = &self.metrics.families;
        let working = state.engine.working() as u64;
        families.runs.get_or_create(&[("state", "working".into())]).set(signed(working));
        families.sweep_lag_seconds.set(families.sweep_lag(state.engine.settings().sweep_ms));
        // A store that does not answer leaves its numbers as they were; the other metrics matter the more then.
        if let Some(totals) = self.totals(state).await {
            families.runs.get_or_create(&[("state", "waiting".into())]).set(signed(totals.open_runs.saturating_sub(working)));
            families.store_bytes.set(signed(totals.bytes));
            families.outbox_pending.set(signed(totals.outbox));
            for tool in self.metrics.tools.all() {
                families.calls_open.get_or_create(&[("tool", tool)]).set(0);
            }
            for (tool, calls) in &totals.open_calls {
                families.calls_open.get_or_create(&[("tool", self.metrics.tools.label(tool.as_str()))]).inc_by(signed(*calls));
            }
        }
        let sockets = SOCKETS_MAX.saturating_sub(state.sockets.available_permits());
        families.streams.get_or_create(&[("kind", "socket".into())]).set(signed(sockets as u64));
        let mut text = String::new();
        encode(&mut text, &families.registry).map(|()| text).map_err(|error| ApiError::internal(&error))
    }

    async fn totals(&self, state: &DoorState) -> Option<StoreTotals> {
        let mut totals = self.totals.lock().await;
        if let Some((at, known)) = totals.as_ref()
            && at.elapsed() < TOTALS_AGE
        {
            return Some(known.clone());
        }
        let read = state.engine.views().totals().await;
        let read = read.inspect_err(|error| tracing::warn!(%error, "the store did not give its numbers for the metrics")).ok()?;
        *totals = Some((Instant::now(), read.clone()));
        Some(read)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
