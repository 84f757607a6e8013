//! Records of readers that wait for the next commit of a database.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_ports::ReaderRecord;

/// The records, shared by the store's handles and its writers. Every create request commits, so that the list only grows between two
/// commits.
#[derive(Clone, Default)]
pub(crate) struct Records(Arc<Mutex<Vec<ReaderRecord>>>);

impl Records {
    /// Adds a record.
    pub(crate) fn push(&self, record: ReaderRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// Takes all of them, oldest first. `None` if there are none.
    pub(crate) fn take(&self) -> Option<Vec<ReaderRecord>> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if records.is_empty() { None } else { Some(std::mem::take(&mut *records)) }
    }
}
