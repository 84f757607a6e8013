//! `interrupts`: how people learn that something waits for them.

use super::{
    Notify, Secret,
    error::ConfigError,
    reader::{Field, Keys, Section},
};

pub(super) const INTERRUPTS: Keys = Keys { known: &["notify"], later: &[] };
pub(super) const NOTIFY: Keys = Keys { known: &["url", "secret"], later: &[] };

pub(super) fn read_interrupts(mut section: Section) -> Result<Option<Notify>, ConfigError> {
    section.take("notify").map(read_notify).transpose()
}

fn read_notify(field: Field) -> Result<Notify, ConfigError> {
    let mut section = field.section(&NOTIFY)?;
    let (url, secret) = (section.require("url")?, section.require("secret")?);
    if !["http://", "https://"].iter().any(|scheme| url.some_text().is_ok_and(|text| text.starts_with(scheme))) {
        return Err(url.expected("an address that begins with http:// or https://"));
    }
    Ok(Notify { url: Secret::new(url.some_text()?), secret: Secret::new(secret.some_text()?) })
}
