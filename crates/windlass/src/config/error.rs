//! Where a setting came from, and what is wrong with it. Nothing here may ever print a secret.

use std::{fmt, sync::Arc};

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file, with the line where that is known.
    File {
        /// The file as the caller named it.
        file: Arc<str>,
        /// The line, from 1.
        line: Option<u64>,
    },
    /// An environment variable.
    Variable(Arc<str>),
    /// An option of the command line.
    Flag(&'static str),
    /// Nobody wrote it.
    Default,
}

impl Origin {
    /// The same source, at a line of it. Only files have lines.
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

/// The configuration cannot be used. Its text says where, what was found and what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where the mistake is.
    pub origin: Origin,
    /// What the mistake is.
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

/// The end of a sentence about an unknown word: the nearest valid one, or all of them if none is near.
pub(super) fn suggestion(word: &str, valid: &[&str], plural: &str) -> String {
    let word = word.to_ascii_lowercase();
    // Beyond a third of the letters a suggestion is a guess, and a wrong guess misleads more than a list.
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
