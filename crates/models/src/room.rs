//! How much of an answer is taken, whatever protocol it comes in.

use windlass_ports::ModelError;

use crate::{
    failure,
    limits::{CALLS_MAX, CONTENT_BYTES_MAX},
};

/// Counts what an answer amounts to.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: usize,
}

impl Room {
    /// Takes so many bytes more, if there is room for them.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > CONTENT_BYTES_MAX {
            return Err(failure::too_large(format!("the answer amounts to more than {CONTENT_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

/// Whether there may be one more call beside so many.
pub(crate) fn check_calls(made: usize) -> Result<(), ModelError> {
    match made < CALLS_MAX {
        true => Ok(()),
        false => Err(failure::too_large(format!("the model made more than {CALLS_MAX} calls at once"))),
    }
}
