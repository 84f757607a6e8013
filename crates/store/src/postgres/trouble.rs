//! What went wrong, sorted by what to do about it.

use tokio_postgres::error::SqlState;
use windlass_ports::StoreError;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection is gone, and with it the knowledge of whether a commit was made.
    Lost(String),
    /// Another transaction was in the way; nothing was written, and the next try may succeed.
    Again(String),
    /// A key stands already. Another server may have put it there a moment ago, and then a verb that looks again sees it.
    Stands(String),
    /// Nothing was written, and trying again would not help.
    Failed(StoreError),
}

impl Trouble {
    /// What the one who asked is told when nobody tries again.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Trouble::Lost(what) | Trouble::Again(what) => StoreError::Unavailable(what),
            Trouble::Stands(what) => StoreError::Corrupt(what),
            Trouble::Failed(error) => error,
        }
    }

    /// Whether this only says that an earlier statement of the same transaction failed.
    pub(super) fn is_echo(error: &tokio_postgres::Error) -> bool {
        error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Failed(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let told = said(&error);
        let Some(code) = error.code() else {
            // Without a code it is not the server that speaks. What could not be encoded will not be the next time either.
            let is_ours = error.to_string().starts_with("error serializing");
            return if is_ours { Trouble::Failed(StoreError::Corrupt(told)) } else { Trouble::Lost(told) };
        };
        let again = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED, &SqlState::LOCK_NOT_AVAILABLE];
        if again.contains(&code) {
            return Trouble::Again(told);
        }
        if is_lost(code) {
            return Trouble::Lost(told);
        }
        if *code == SqlState::UNIQUE_VIOLATION {
            return Trouble::Stands(told);
        }
        // A broken rule or an unreadable value is corrupt data, which trying again does not mend; anything else is a database
        // that does not take this now.
        let is_corrupt = ["22", "23", "XX"].iter().any(|class| code.code().starts_with(class));
        Trouble::Failed(if is_corrupt { StoreError::Corrupt(told) } else { StoreError::Unavailable(told) })
    }
}

/// Whether the session is over, or no longer good for anything.
fn is_lost(code: &SqlState) -> bool {
    let ended = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        &SqlState::TOO_MANY_CONNECTIONS,
        // Statements that were prepared before the tables changed, or that somebody threw away.
        &SqlState::FEATURE_NOT_SUPPORTED,
        &SqlState::INVALID_SQL_STATEMENT_NAME,
    ];
    ended.contains(&code) || code.code().starts_with("08")
}

/// What the server or the client library says, without what was asked: values and addresses may be secret.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(told) => {
            let place = told.constraint().or(told.table()).map(|name| format!(" ({name})")).unwrap_or_default();
            format!("PostgreSQL says {}: {}{place}", told.code().code(), told.message())
        }
        None => match std::error::Error::source(error) {
            Some(cause) => format!("PostgreSQL: {error}: {cause}"),
            None => format!("PostgreSQL: {error}"),
        },
    }
}
