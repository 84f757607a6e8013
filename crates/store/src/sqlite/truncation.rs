//! Emptying the write-ahead log after erasures, because it has old versions of pages.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::Connection;
use windlass_kernel::Timestamp;

use super::{open::BUSY_WAIT, prepared::Prepared, statements::SqliteRows};

/// The log is emptied at most once in this time, because all of it has to be copied into the database first.
const PAUSE_MS: i64 = 60_000;

/// How long the writer waits for readers that need the log. Readers of this process are quick; a reader of another process may not be, and
/// then the next pass of the sweep tries again.
const READERS_WAIT: Duration = Duration::from_millis(20);

/// Whether the log may have erased content. Shared by the writer and the callers that ask it to empty the log.
#[derive(Clone, Default)]
pub(super) struct Truncation {
    state: Arc<Mutex<TruncationState>>,
}

#[derive(Default)]
struct TruncationState {
    /// Whether something was erased since the log was emptied.
    has_erased: bool,
    /// When the log was last emptied after an erasure.
    emptied_at: Option<Timestamp>,
    /// The time of a request to empty it after the next commit.
    asked_at: Option<Timestamp>,
}

impl Truncation {
    /// Records that something is erased.
    pub(super) fn mark(&self) {
        self.lock().has_erased = true;
    }

    /// Whether the log is to be emptied now. A clock that was set back does not prevent it.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let state = self.lock();
        state.has_erased && state.emptied_at.is_none_or(|at| !(0..PAUSE_MS).contains(&(now.0.saturating_sub(at.0))))
    }

    /// Asks the writer to empty the log after its next commit.
    pub(super) fn ask(&self, now: Timestamp) {
        self.lock().asked_at = Some(now);
    }

    /// Empties the log if that was asked for. The writer calls it between two transactions; a later erasure sets the mark again.
    fn empty_if_asked(&self, connection: &Connection) {
        let Some(now) = self.lock().asked_at.take() else { return };
        match truncate(connection, READERS_WAIT) {
            Ok(true) => {
                let mut state = self.lock();
                (state.has_erased, state.emptied_at) = (false, Some(now));
            }
            Ok(false) => tracing::debug!("the write-ahead log is read and could not be emptied; the next pass of the sweep tries again"),
            Err(error) => tracing::warn!(%error, "the write-ahead log could not be emptied; the next pass of the sweep tries again"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TruncationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies the whole log into the database and empties it. False if another connection needs the log for longer than `wait`.
pub(super) fn truncate(connection: &Connection, wait: Duration) -> rusqlite::Result<bool> {
    connection.busy_timeout(wait)?;
    let truncated = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(BUSY_WAIT)?;
    truncated.map(|is_busy| !is_busy)
}

impl<P: Prepared> SqliteRows<P> {
    /// Empties the log if that was asked for.
    pub(super) fn empty_log_if_asked(&self) {
        self.truncation.empty_if_asked(self.connection());
    }

    /// Empties the log. The writer calls it when it stops and no other connection of this process is left.
    pub(super) fn empty_log(&self) {
        match truncate(self.connection(), BUSY_WAIT) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the write-ahead log could not be emptied: another process reads the database"),
            Err(error) => tracing::warn!(%error, "the write-ahead log could not be emptied"),
        }
    }
}
