//! `retention`: after what time ended runs are erased. Without a setting they are kept.

use std::time::Duration;

use windlass_engine::Retention;

use super::{
    error::ConfigError,
    reader::{Field, Keys, Section},
};

pub(super) const RETENTION: Keys = Keys { known: &["responses", "runs"], later: &["workspaces"] };

/// The minimum, so that a client has time for the follow-up of a response that waits for it.
const MIN: Duration = Duration::from_secs(60 * 60);

pub(super) fn read_retention(mut section: Section) -> Result<Retention, ConfigError> {
    Ok(Retention { responses_ms: section.read("responses", read_age)?, runs_ms: section.read("runs", read_age)? })
}

fn read_age(field: &Field) -> Result<u64, ConfigError> {
    let age = field.duration()?;
    if age < MIN {
        return Err(field.expected("a time of at least 1h"));
    }
    u64::try_from(age.as_millis()).map_err(|_| field.expected("a shorter time"))
}
