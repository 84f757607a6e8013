//! Why a model call failed, as far as APIs distinguish the causes.

use serde::{Deserialize, Serialize};

/// The cause of a failed model call. The journal keeps it with the attempt, so that every API can answer with a status of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// No other variant fits. Journals written before causes were recorded read as this one.
    #[default]
    Other,
    /// The provider refused the request with this status code of its protocol.
    Status(u16),
    /// The provider could not be reached.
    Unreachable,
    /// The provider did not answer in time.
    TimedOut,
    /// The provider's answer broke off, was larger than allowed, or was not of its protocol.
    BadAnswer,
    /// The prompt is longer than the model's context, or than the server reads for one call.
    TooLong,
}

impl FailureCause {
    pub(crate) fn is_other(&self) -> bool {
        *self == FailureCause::Other
    }
}
