//! Limits on the size of an answer, for all protocols.

use windlass_ports::ModelError;

use crate::{
    failure,
    limits::{CALLS_MAX, CONTENT_BYTES_MAX},
};

/// Counts the bytes of an answer's content against its limit.
#[derive(Debug, Default)]
pub(crate) struct ContentBudget {
    bytes: usize,
}

impl ContentBudget {
    /// Adds `bytes`. An error if the answer is then larger than the limit.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > CONTENT_BYTES_MAX {
            return Err(failure::too_large(format!("the answer amounts to more than {CONTENT_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

/// Checks that the answer may have one more call than the `made` ones.
pub(crate) fn check_calls(made: usize) -> Result<(), ModelError> {
    match made < CALLS_MAX {
        true => Ok(()),
        false => Err(failure::too_large(format!("the model made more than {CALLS_MAX} calls at once"))),
    }
}
