//! `log`: the format of the log.

use super::{
    error::ConfigError,
    reader::{Keys, Section},
};

pub(super) const LOG: Keys = Keys { known: &["format"], later: &[] };

/// `log`: the log on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

pub(super) fn read_log(mut section: Section) -> Result<Log, ConfigError> {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    Ok(Log { format: section.read_or("format", LogFormat::default(), |field| field.choice("format", &formats, &[]))? })
}
