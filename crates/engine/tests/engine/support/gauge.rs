//! A gauge of concurrent effects, and a latch that opens once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::watch;

/// Counts the effects in flight and those that were cancelled.
#[derive(Default)]
pub struct Gauge {
    in_flight: AtomicUsize,
    peak: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Gauge {
    pub fn enter(self: &Arc<Self>) -> InFlight {
        let in_flight = self.in_flight.fetch_add(1, SeqCst) + 1;
        self.peak.fetch_max(in_flight, SeqCst);
        InFlight { gauge: self.clone(), is_done: false }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(SeqCst)
    }

    pub fn cancelled(&self) -> usize {
        self.cancelled.load(SeqCst)
    }
}

/// One effect in flight.
pub struct InFlight {
    gauge: Arc<Gauge>,
    is_done: bool,
}

impl InFlight {
    pub fn finish(mut self) {
        self.is_done = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gauge.in_flight.fetch_sub(1, SeqCst);
        if !self.is_done {
            self.gauge.cancelled.fetch_add(1, SeqCst);
        }
    }
}

/// A latch that opens once, for all waiters.
#[derive(Clone)]
pub struct Latch(Arc<watch::Sender<bool>>);

impl Latch {
    pub fn shut() -> Self {
        Latch(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn passed(&self) {
        self.0.subscribe().wait_for(|is_open| *is_open).await.unwrap();
    }
}
