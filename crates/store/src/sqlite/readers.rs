//! Readers: connections besides the writer's. Each answer is one short read transaction.
//!
//! A read happens on the caller's thread: it takes microseconds from the page cache, and handing it over to another thread would cost more.
//! Long reads are made page by page.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Semaphore;
use windlass_ports::StoreError;

use super::{columns::fault, statements::SqliteRows};
use crate::rows::Result;

/// The connections, and permits for them.
pub(super) struct Readers {
    places: Semaphore,
    free: Mutex<Vec<SqliteRows>>,
}

impl Readers {
    /// Reads over these connections.
    pub(super) fn new(connections: Vec<SqliteRows>) -> Self {
        Readers { places: Semaphore::new(connections.len()), free: Mutex::new(connections) }
    }

    /// Runs a read in one transaction, so that all its rows are of one snapshot.
    pub(super) async fn read<T>(&self, question: impl FnOnce(&SqliteRows) -> Result<T>) -> Result<T> {
        let _place = self.places.acquire().await.map_err(|_| gone())?;
        let mut rows = self.lock().pop().ok_or_else(gone)?;
        // A panic in one read must not take a connection away from all others.
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
