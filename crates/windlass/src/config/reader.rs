//! Readers over the tree: each reads one kind of value, or returns an error with the place, what was found and what is expected.

use std::time::Duration;

use super::{
    environment::join,
    error::{ConfigError, Origin, suggestion},
    node::{Key, Node, Scalar, Style, Value},
};

/// Characters of the name of an agent, tool, model, tenant or token.
const NAME_LETTERS_MAX: usize = 128;
/// The longest duration that can be set. It keeps sums of times far from an overflow.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Characters of a wrong value that an error repeats.
const FOUND_LETTERS_MAX: usize = 60;

/// A value with its path, such as `models[0].name`.
pub(super) struct Field {
    path: String,
    node: Node,
}

/// A mapping whose keys are all known. Its readers take the keys out one by one.
pub(super) struct Section {
    path: String,
    origin: Origin,
    entries: Vec<(Key, Node)>,
}

/// The valid keys of a mapping.
pub(super) struct Keys {
    pub(super) known: &'static [&'static str],
    /// Keys that a later version will support. The error names them as such.
    pub(super) later: &'static [&'static str],
}

impl Field {
    pub(super) fn root(node: Node) -> Self {
        Self { path: String::new(), node }
    }

    /// An error about this value.
    pub(super) fn fail(&self, message: impl AsRef<str>) -> ConfigError {
        let message = message.as_ref();
        let text = if self.path.is_empty() { message.to_owned() } else { format!("{}: {message}", self.path) };
        ConfigError::new(&self.node.origin, text)
    }

    /// An error that repeats the value. Not for secrets.
    pub(super) fn expected(&self, wanted: &str) -> ConfigError {
        self.fail(format!("expected {wanted}, found {}", found(&self.node)))
    }

    /// An error about the type of the value. It repeats nothing: the value may be a secret in the wrong place.
    fn expected_shape(&self, wanted: &str) -> ConfigError {
        let found = match &self.node.value {
            Value::Scalar(_) if self.node.is_nothing() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Mapping(_) => "a mapping",
        };
        self.fail(format!("expected {wanted}, found {found}"))
    }

    /// The mapping, after a check of all its keys.
    pub(super) fn section(self, keys: &Keys) -> Result<Section, ConfigError> {
        let is_nothing = self.node.is_nothing();
        let entries = match self.node.value {
            Value::Mapping(entries) => entries,
            Value::Scalar(_) if is_nothing => Vec::new(),
            Value::Scalar(_) | Value::List(_) => return Err(self.expected_shape("a mapping")),
        };
        for (key, _) in &entries {
            check_key(key, &self.path, keys)?;
        }
        Ok(Section { path: self.path, origin: self.node.origin, entries })
    }

    /// The elements of a list.
    pub(super) fn list(self) -> Result<Vec<Field>, ConfigError> {
        let Value::List(items) = self.node.value else {
            return Err(self.expected_shape("a list"));
        };
        let path = self.path;
        Ok(items.into_iter().enumerate().map(|(index, node)| Field { path: format!("{path}[{index}]"), node }).collect())
    }

    /// The entries of a mapping whose keys are names chosen by the operator.
    pub(super) fn named(self) -> Result<Vec<(String, Field)>, ConfigError> {
        self.named_by(check_name)
    }

    /// The same, where the key `*` is allowed and means all other names.
    pub(super) fn named_or_all(self) -> Result<Vec<(String, Field)>, ConfigError> {
        self.named_by(|name| if name == "*" { Ok(()) } else { check_name(name) })
    }

    fn named_by(self, check: impl Fn(&str) -> Result<(), String>) -> Result<Vec<(String, Field)>, ConfigError> {
        let Value::Mapping(entries) = self.node.value else {
            return Err(self.expected_shape("a mapping of names"));
        };
        let read = |(key, node): (Key, Node)| {
            check(&key.text).map_err(|message| ConfigError::new(&key.origin, format!("{}: {message}", self.path)))?;
            Ok((key.text.clone(), Field { path: join(&self.path, &key.text), node }))
        };
        entries.into_iter().map(read).collect()
    }

    /// Any text. Numbers without quotes keep their spelling.
    pub(super) fn text(&self) -> Result<String, ConfigError> {
        self.scalar().map(|scalar| scalar.text.clone()).ok_or_else(|| self.expected_shape("text"))
    }

    /// Text that is not empty. The error does not repeat the value, so secrets can be read with it.
    pub(super) fn some_text(&self) -> Result<String, ConfigError> {
        let text = self.text()?;
        if text.trim().is_empty() { Err(self.fail("expected text, found none")) } else { Ok(text) }
    }

    /// A name that is safe in a path, a log line and a file name.
    pub(super) fn name(&self) -> Result<String, ConfigError> {
        let text = self.text()?;
        match check_name(&text) {
            Ok(()) => Ok(text),
            // The error shows the reference and not its value, which may be a secret.
            Err(_) if self.is_filled() => Err(self.expected(NAME_WANTED)),
            Err(message) => Err(self.fail(message)),
        }
    }

    /// A boolean.
    pub(super) fn flag(&self) -> Result<bool, ConfigError> {
        match self.unquoted() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) | None => Err(self.expected("true or false")),
        }
    }

    /// A whole number of at least `min`.
    pub(super) fn whole<T: TryFrom<u64>>(&self, min: u64) -> Result<T, ConfigError> {
        let number = self.unquoted().and_then(|text| text.parse::<u64>().ok()).filter(|number| *number >= min);
        let number = number.ok_or_else(|| self.expected(&format!("a whole number of at least {min}")))?;
        T::try_from(number).map_err(|_| self.expected("a smaller number"))
    }

    /// A number above zero with at most three decimals, in thousandths.
    pub(super) fn thousandths(&self) -> Result<u64, ConfigError> {
        let number = self.unquoted().and_then(parse_thousandths).filter(|number| *number > 0);
        number.ok_or_else(|| self.expected("a number of at least 0.001, such as 20 or 0.5"))
    }

    /// A number with at most six decimals, in millionths.
    pub(super) fn micros(&self) -> Result<u64, ConfigError> {
        let number = self.unquoted().and_then(|text| parse_decimal(text, 6));
        number.ok_or_else(|| self.expected("a number with at most six decimals, such as 2.5"))
    }

    /// A duration above zero: `500ms`, `30s`, `10m`, `2h`, `30d`, or a number of seconds.
    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        const WANTED: &str = "a time such as 500ms, 30s, 10m, 2h or 30d, or a number of seconds";
        let duration = self.scalar().and_then(|scalar| parse_duration(&scalar.text)).ok_or_else(|| self.expected(WANTED))?;
        if duration.is_zero() {
            return Err(self.expected("a time above zero"));
        }
        if duration > DURATION_MAX {
            return Err(self.expected("a time of at most 3650d"));
        }
        Ok(duration)
    }

    /// One of the keywords `words`; `later` are keywords that a later version will support.
    pub(super) fn choice<T: Copy>(&self, what: &str, words: &[(&str, T)], later: &[&str]) -> Result<T, ConfigError> {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let valid: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        if later.contains(&text.as_str()) {
            return Err(self.fail(format!("this version does not have {what} {text} yet; it has {}", valid.join(", "))));
        }
        Err(self.unknown(what, &valid))
    }

    /// An error about a keyword that is not valid.
    pub(super) fn unknown(&self, what: &str, valid: &[&str]) -> ConfigError {
        let near = self.scalar().map_or_else(String::new, |scalar| suggestion(&scalar.text, valid, "values"));
        self.fail(format!("unknown {what} {}{near}", found(&self.node)))
    }

    /// A mapping as JSON.
    pub(super) fn object(&self) -> Result<serde_json::Value, ConfigError> {
        match &self.node.value {
            Value::Mapping(_) => Ok(self.node.to_json()),
            Value::Scalar(_) | Value::List(_) => Err(self.expected_shape("a mapping")),
        }
    }

    fn scalar(&self) -> Option<&Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) if !self.node.is_nothing() => Some(scalar),
            Value::Scalar(_) | Value::List(_) | Value::Mapping(_) => None,
        }
    }

    /// Text that may be read as a number. A quoted reference counts too, because references are often quoted by habit.
    fn unquoted(&self) -> Option<&str> {
        self.scalar().filter(|scalar| scalar.style == Style::Plain || scalar.template.is_some()).map(|scalar| scalar.text.trim())
    }

    fn is_filled(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.template.is_some())
    }
}

impl Section {
    /// Takes the value of a key, or `None` if it is absent or null.
    pub(super) fn take(&mut self, key: &str) -> Option<Field> {
        let index = self.entries.iter().position(|(known, _)| known.text == key)?;
        let (_, node) = self.entries.swap_remove(index);
        (!node.is_nothing()).then(|| Field { path: join(&self.path, key), node })
    }

    /// Takes the value of a key without a default.
    pub(super) fn require(&mut self, key: &str) -> Result<Field, ConfigError> {
        self.take(key).ok_or_else(|| self.missing(key))
    }

    /// An error about missing keys.
    pub(super) fn missing(&self, keys: &str) -> ConfigError {
        ConfigError::new(&self.origin, format!("{}: {keys} is missing", self.path))
    }

    /// Reads a key with a default.
    pub(super) fn read_or<T>(
        &mut self,
        key: &str,
        default: T,
        read: impl FnOnce(&Field) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        self.take(key).map_or(Ok(default), |field| read(&field))
    }

    /// Reads an optional key.
    pub(super) fn read<T>(&mut self, key: &str, read: impl FnOnce(&Field) -> Result<T, ConfigError>) -> Result<Option<T>, ConfigError> {
        self.take(key).as_ref().map(read).transpose()
    }
}

fn check_key(key: &Key, path: &str, keys: &Keys) -> Result<(), ConfigError> {
    let name = key.text.as_str();
    if keys.known.contains(&name) {
        return Ok(());
    }
    if keys.later.contains(&name) {
        return Err(ConfigError::new(&key.origin, format!("this version does not have {} yet", join(path, name))));
    }
    let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
    Err(ConfigError::new(&key.origin, format!("unknown key {name:?}{place}{}", suggestion(name, keys.known, "keys"))))
}

const NAME_WANTED: &str = "a name of 1 to 128 letters, digits, \".\", \"_\" or \"-\"";

/// Checks whether the text is a valid name.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.is_empty() && text.len() <= NAME_LETTERS_MAX && text.chars().all(allowed) {
        return Ok(());
    }
    Err(format!("expected {NAME_WANTED}, found {}", quoted(text)))
}

fn found(node: &Node) -> String {
    match &node.value {
        Value::Scalar(_) if node.is_nothing() => "nothing".to_owned(),
        Value::Scalar(Scalar { template: Some(template), .. }) => format!("the value of {}", quoted(template)),
        Value::Scalar(scalar) => quoted(&scalar.text),
        Value::List(_) => "a list".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(FOUND_LETTERS_MAX).collect();
    let cut = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{cut}")
}

fn parse_thousandths(text: &str) -> Option<u64> {
    parse_decimal(text, 3)
}

/// A decimal number in units of its last possible decimal.
fn parse_decimal(text: &str, decimals: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > decimals {
        return None;
    }
    let part: u64 = format!("{part:0<decimals$}").parse().ok()?;
    // The limit to `u32` keeps sums from overflowing.
    whole.parse::<u32>().ok().map(|whole| u64::from(whole) * 10_u64.pow(decimals as u32) + part)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        // Without a unit, fractions of a second such as 0.5 are common.
        "" => return number.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms).map(Duration::from_millis)
}
