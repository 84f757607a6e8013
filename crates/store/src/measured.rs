//! How a store reports its commits to a meter, which a server sets after it opened the store.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use windlass_ports::{Fact, Meter};

/// The meter that the writers of a store share. Until it is set, nothing is measured.
#[derive(Clone, Default)]
pub(crate) struct Measured(Arc<OnceLock<Arc<dyn Meter>>>);

impl Measured {
    /// Sets the meter. A second one is ignored.
    pub(crate) fn set(&self, meter: Arc<dyn Meter>) {
        let _ = self.0.set(meter);
    }

    /// The start of a commit, if it is to be measured.
    pub(crate) fn start(&self) -> Option<Instant> {
        self.0.get().map(|_| Instant::now())
    }

    /// Reports a group of `requests` whose commit started then.
    pub(crate) fn committed(&self, requests: usize, started: Option<Instant>) {
        if let (Some(meter), Some(started)) = (self.0.get(), started) {
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            meter.record(Fact::GroupCommitted { requests, micros });
        }
    }
}
