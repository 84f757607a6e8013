//! What a scrape reads: the recorded metrics, and gauges from the store and the engine.

use std::{sync::Arc, time::Duration};

use prometheus_client::encoding::text::encode;
use tokio::{sync::Mutex, time::Instant};
use windlass_kernel::Cause;
use windlass_ports::StoreTotals;

use super::{Metrics, labels::Labels};
use crate::{DoorState, error::ApiError, limits::SOCKETS_MAX};

/// The age up to which totals of the store are reused, so that frequent scrapes cost the store nothing.
const TOTALS_AGE: Duration = Duration::from_secs(5);

/// The metrics of a server, with a cache of the store's totals.
#[derive(Clone)]
pub(crate) struct Scrape {
    pub metrics: Arc<Metrics>,
    totals: Arc<Mutex<Option<(Instant, StoreTotals)>>>,
}

impl Scrape {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Scrape { metrics, totals: Arc::default() }
    }

    /// All metrics in the text format of OpenMetrics.
    pub async fn text(&self, state: &DoorState) -> Result<String, ApiError> {
        let families = &self.metrics.families;
        let working = state.engine.working() as u64;
        families.runs.get_or_create(&Labels([("state", "working".into())])).set(signed(working));
        families.sweep_lag_seconds.set(families.sweep_lag(state.engine.settings().sweep_ms));
        // If the store does not answer, its gauges keep their values: the other metrics are needed most at such a time.
        if let Some(totals) = self.totals(state).await {
            families.runs.get_or_create(&Labels([("state", "waiting".into())])).set(signed(totals.open_runs.saturating_sub(working)));
            families.store_bytes.set(signed(totals.bytes));
            families.outbox_pending.set(signed(totals.outbox));
            for cause in Cause::ALL {
                let open = totals.open_interrupts.iter().find(|(of, _)| *of == cause).map_or(0, |(_, count)| *count);
                families.interrupts.get_or_create(&Labels([("cause", cause.as_str().into())])).set(signed(open));
            }
            let age_ms = totals.oldest_interrupt.map_or(0, |at| state.engine.now().0.saturating_sub(at.0).max(0));
            families.oldest_interrupt_age_seconds.set(age_ms / 1_000);
            for tool in self.metrics.tools.all() {
                families.calls_open.get_or_create(&Labels([("tool", tool)])).set(0);
            }
            for (tool, calls) in &totals.open_calls {
                families.calls_open.get_or_create(&Labels([("tool", self.metrics.tools.label(tool.as_str()))])).inc_by(signed(*calls));
            }
        }
        let sockets = SOCKETS_MAX.saturating_sub(state.sockets.available_permits());
        families.streams.get_or_create(&Labels([("kind", "socket".into())])).set(signed(sockets as u64));
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
