//! Why a store fails.

use std::{error::Error, fmt, sync::Arc};

/// Why a store failed a request.
#[derive(Debug)]
pub enum StoreError {
    /// The guard did not hold: another owner has the run, or the run has progressed. The caller drops its state of the run and publishes
    /// nothing.
    Fenced,
    /// The database does not answer, or takes no writes.
    Unavailable(ErrorDetail),
    /// Stored rows can't be read.
    Corrupt(ErrorDetail),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Fenced => f.write_str("fenced: the run has moved on"),
            StoreError::Unavailable(cause) => write!(f, "storage unavailable: {cause}"),
            StoreError::Corrupt(cause) => write!(f, "stored data is corrupt: {cause}"),
        }
    }
}

/// The source is the error of the database's driver, if there is one. Its text is part of the message already.
impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StoreError::Fenced => None,
            StoreError::Unavailable(cause) | StoreError::Corrupt(cause) => cause.source(),
        }
    }
}

/// What went wrong: a message, and the error that it describes. Cheap to clone, because one failed transaction fails many requests.
#[derive(Clone, Debug)]
pub struct ErrorDetail {
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ErrorDetail {
    /// A message about this error.
    pub fn of(message: impl Into<Arc<str>>, source: impl Error + Send + Sync + 'static) -> Self {
        ErrorDetail { message: message.into(), source: Some(Arc::new(source)) }
    }

    /// The message.
    pub fn as_str(&self) -> &str {
        &self.message
    }

    /// The error that the message describes.
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<&str> for ErrorDetail {
    fn from(message: &str) -> Self {
        ErrorDetail { message: message.into(), source: None }
    }
}

impl From<String> for ErrorDetail {
    fn from(message: String) -> Self {
        ErrorDetail { message: message.into(), source: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_has_the_message_of_its_cause_and_keeps_the_source() {
        let source = std::io::Error::other("the disk is gone");
        let error = StoreError::Unavailable(ErrorDetail::of(source.to_string(), source));
        assert_eq!(error.to_string(), "storage unavailable: the disk is gone");
        assert_eq!(error.source().unwrap().to_string(), "the disk is gone");
        let error = StoreError::Corrupt("a row is missing".into());
        assert_eq!(error.to_string(), "stored data is corrupt: a row is missing");
        assert!(error.source().is_none() && StoreError::Fenced.source().is_none());
    }
}
