//! `doorbell`: the NATS server through which processes notify each other.

use super::{
    Doorbell, Secret,
    error::ConfigError,
    reader::{Keys, Section},
};

/// The default first part of subjects.
const DEFAULT_PREFIX: &str = "windlass";

pub(super) const DOORBELL: Keys = Keys { known: &["url", "prefix"], later: &[] };

pub(super) fn read_doorbell(mut section: Section) -> Result<Doorbell, ConfigError> {
    let url = section.require("url")?;
    let text = url.some_text()?;
    // The address may contain a password, so the error does not repeat it.
    if !text.split(',').all(|one| one.trim().starts_with("nats://") || one.trim().starts_with("tls://")) {
        return Err(url.fail("expected the address of a NATS server, such as nats://127.0.0.1:4222"));
    }
    let prefix = section.read_or("prefix", DEFAULT_PREFIX.to_owned(), |field| {
        let prefix = field.name()?;
        // Dots separate the tokens of a NATS subject, and no token may be empty.
        if prefix.split('.').any(str::is_empty) { Err(field.expected("words with dots between them")) } else { Ok(prefix) }
    })?;
    Ok(Doorbell { url: Secret::new(text), prefix })
}
