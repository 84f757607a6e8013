//! Says once that a connection is gone, and once that it is back.

use std::fmt::Display;

/// A connection as the log knows it.
pub(super) struct Link {
    what: &'static str,
    is_up: Option<bool>,
}

impl Link {
    pub fn new(what: &'static str) -> Self {
        Link { what, is_up: None }
    }

    /// It works.
    pub fn up(&mut self) {
        match self.is_up.replace(true) {
            Some(true) => {}
            Some(false) => tracing::info!("{} is back", self.what),
            None => tracing::info!("{} is connected", self.what),
        }
    }

    /// It does not.
    pub fn down(&mut self, why: impl Display) {
        match self.is_up.replace(false) {
            Some(false) => {}
            Some(true) => tracing::warn!(%why, "{} is lost; trying again in the background", self.what),
            None => tracing::warn!(%why, "{} cannot be reached; trying again in the background", self.what),
        }
    }
}
