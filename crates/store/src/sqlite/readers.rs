//! Readers beside the writer: each answer is one short read transaction.
//!
//! An answer is read where it is asked, without a thread in between: it takes microseconds from the page cache, and handing it
//! over would cost more than reading it. What is long is read page by page.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Semaphore;
use windlass_ports::StoreError;

use super::{columns::fault, statements::SqliteRows};
use crate::rows::Outcome;

/// The connections, and who may have one.
pub(super) struct Readers {
    places: Semaphore,
    free: Mutex<Vec<SqliteRows>>,
}

impl Readers {
    /// Reads over these connections.
    pub(super) fn new(connections: Vec<SqliteRows>) -> Self {
        Readers { places: Semaphore::new(connections.len()), free: Mutex::new(connections) }
    }

    /// Asks in one read transaction, so that what is read together fits together.
    pub(super) async fn read<T>(&self, question: impl FnOnce(&SqliteRows) -> Outcome<T>) -> Outcome<T> {
        let _place = self.places.acquire().await.map_err(|_| gone())?;
        let mut rows = self.lock().pop().ok_or_else(gone)?;
        // A panic in one answer must not take a connection away from all the others.
        let answered = catch_unwind(AssertUnwindSafe(|| rows.begin_reading().map_err(fault).and_then(|()| question(&rows))));
        rows.roll_back();
        self.lock().push(rows);
        answered.unwrap_or_else(|_| Err(StoreError::Corrupt("a question panicked in a reader".into())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SqliteRows>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the readers are gone".into())
}
