//! A gauge of concurrent effects, and a latch that opens once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::watch;

/// Counts the effects in flight and those that were cancelled.
#[derive(Default)]
pub struct Gauge {
    inside: AtomicUsize,
    most: AtomicUsize,
    called_off: AtomicUsize,
}

impl Gauge {
    pub fn enter(self: &Arc<Self>) -> Inside {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        Inside { gauge: self.clone(), is_done: false }
    }

    pub fn inside(&self) -> usize {
        self.inside.load(SeqCst)
    }

    pub fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    pub fn called_off(&self) -> usize {
        self.called_off.load(SeqCst)
    }
}

/// One effect in flight.
pub struct Inside {
    gauge: Arc<Gauge>,
    is_done: bool,
}

impl Inside {
    pub fn leave(mut self) {
        self.is_done = true;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gauge.inside.fetch_sub(1, SeqCst);
        if !self.is_done {
            self.gauge.called_off.fetch_add(1, SeqCst);
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
