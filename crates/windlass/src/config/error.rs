//! Errors of the configuration, with the origin of the setting. They must never contain a secret.

use std::{fmt, sync::Arc};

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file, with the line where that is known.
    File {
        /// The file as the caller named it.
        file: Arc<str>,
        /// The line, counted from 1.
        line: Option<u64>,
    },
    /// An environment variable.
    Variable(Arc<str>),
    /// An option of the command line.
    Flag(&'static str),
    /// A default of this program.
    Default,
}

impl Origin {
    /// The same origin, at a line of it. Only files have lines.
    pub(super) fn at_line(&self, line: u64) -> Origin {
        match self {
            Origin::File { file, .. } => Origin::File { file: file.clone(), line: (line > 0).then_some(line) },
            Origin::Variable(_) | Origin::Flag(_) | Origin::Default => self.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line: Some(line) } => write!(f, "{file}:{line}"),
            Origin::File { file, line: None } => f.write_str(file),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
            Origin::Default => f.write_str("default configuration"),
        }
    }
}

/// An error in the configuration. Its text says where it is, what was found and what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The origin of the faulty setting.
    pub origin: Origin,
    /// What is wrong.
    pub message: String,
}

impl ConfigError {
    pub(super) fn new(origin: &Origin, message: impl Into<String>) -> Self {
        Self { origin: origin.clone(), message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// The end of a message about an unknown word: the nearest valid word, or all of them if none is near.
pub(super) fn suggestion(word: &str, valid: &[&str], plural: &str) -> String {
    let word = word.to_ascii_lowercase();
    // If more than a third of the letters differ, a suggestion would be a guess, and a wrong guess misleads more than a list.
    let distance_max = match word.chars().count() {
        0 | 1 => 0,
        count => (count / 3).max(1),
    };
    valid
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&word, known), known))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map_or_else(|| format!("; valid {plural}: {}", valid.join(", ")), |(_, known)| format!("; did you mean \"{known}\"?"))
}
