//! Errors of PostgreSQL, classified by what to do about them.

use tokio_postgres::error::SqlState;
use windlass_ports::{ErrorDetail, StoreError};

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum PgError {
    /// The connection is lost. Whether a commit was made is unknown.
    Lost(ErrorDetail),
    /// Another transaction was in the way. Nothing was written, and the next attempt may succeed.
    Again(ErrorDetail),
    /// A key exists already. Another server may have inserted it a moment ago; a verb that reads again then sees it.
    KeyExists(ErrorDetail),
    /// Nothing was written, and another attempt would not help.
    Failed(StoreError),
}

impl PgError {
    /// The error for the caller when no further attempt is made.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            PgError::Lost(what) | PgError::Again(what) => StoreError::Unavailable(what),
            PgError::KeyExists(what) => StoreError::Corrupt(what),
            PgError::Failed(error) => error,
        }
    }

    /// Whether this only reports that an earlier statement of the same transaction failed.
    pub(super) fn is_echo(error: &tokio_postgres::Error) -> bool {
        error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }
}

impl From<StoreError> for PgError {
    fn from(error: StoreError) -> Self {
        PgError::Failed(error)
    }
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = error_text(&error);
        let Some(code) = error.code().cloned() else {
            // An error without a code comes from the client library. What could not be encoded will fail again.
            let is_ours = error.to_string().starts_with("error serializing");
            let cause = ErrorDetail::of(text, error);
            return if is_ours { PgError::Failed(StoreError::Corrupt(cause)) } else { PgError::Lost(cause) };
        };
        let cause = ErrorDetail::of(text, error);
        let again = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED, &SqlState::LOCK_NOT_AVAILABLE];
        if again.contains(&&code) {
            return PgError::Again(cause);
        }
        if is_lost(&code) {
            return PgError::Lost(cause);
        }
        if code == SqlState::UNIQUE_VIOLATION {
            return PgError::KeyExists(cause);
        }
        // A violated constraint or an unreadable value is corrupt data, which another attempt does not repair; any other error means that
        // the database does not take this request now.
        let is_corrupt = ["22", "23", "XX"].iter().any(|class| code.code().starts_with(class));
        PgError::Failed(if is_corrupt { StoreError::Corrupt(cause) } else { StoreError::Unavailable(cause) })
    }
}

/// Whether the session has ended, or can't be used any more.
fn is_lost(code: &SqlState) -> bool {
    let ended = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        &SqlState::TOO_MANY_CONNECTIONS,
        // Prepared statements from before a change of the tables, or that were deallocated from outside.
        &SqlState::FEATURE_NOT_SUPPORTED,
        &SqlState::INVALID_SQL_STATEMENT_NAME,
    ];
    ended.contains(&code) || code.code().starts_with("08")
}

/// The message of the server or of the client library, without the request: values and addresses may be secret.
pub(super) fn error_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db_error) => {
            let place = db_error.constraint().or(db_error.table()).map(|name| format!(" ({name})")).unwrap_or_default();
            format!("PostgreSQL says {}: {}{place}", db_error.code().code(), db_error.message())
        }
        None => match std::error::Error::source(error) {
            Some(cause) => format!("PostgreSQL: {error}: {cause}"),
            None => format!("PostgreSQL: {error}"),
        },
    }
}
