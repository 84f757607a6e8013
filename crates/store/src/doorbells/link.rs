//! Logs once that a connection is lost, and once that it is back.

use std::fmt::Display;

/// The state of a connection, as it was logged last.
pub(super) struct Link {
    what: &'static str,
    is_up: Option<bool>,
}

impl Link {
    pub fn new(what: &'static str) -> Self {
        Link { what, is_up: None }
    }

    /// Records that the connection works.
    pub fn up(&mut self) {
        match self.is_up.replace(true) {
            Some(true) => {}
            Some(false) => tracing::info!("{} is back", self.what),
            None => tracing::info!("{} is connected", self.what),
        }
    }

    /// Records that it does not.
    pub fn down(&mut self, why: impl Display) {
        match self.is_up.replace(false) {
            Some(false) => {}
            Some(true) => tracing::warn!(%why, "{} is lost; trying again in the background", self.what),
            None => tracing::warn!(%why, "{} cannot be reached; trying again in the background", self.what),
        }
    }
}
