//! YAML as a tree in which every key and value knows where it was written. It does not interpret the values.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Spanned};

use super::error::{ConfigError, Origin};

/// The maximum depth of a configuration. Readers recurse, so this bounds their stack.
const DEPTH_MAX: usize = 48;

/// One value and its origin.
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// The content of a node. A mapping keeps its order, so that errors come in the order of the file.
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

/// A key and its origin.
pub(super) struct Key {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// A scalar keeps its text: `1.10` stays `1.10` where text is expected.
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) style: Style,
    /// The text before `${…}` was expanded. Errors show this text, since the expanded one may contain a secret.
    pub(super) template: Option<String>,
}

/// Whether a scalar may have a type other than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Written without quotes: its text decides whether it is a number, a boolean, null or text.
    Plain,
    /// Written with quotes or as a block: always text.
    Quoted,
}

impl Node {
    /// A null node.
    pub(super) fn nothing(origin: Origin) -> Node {
        Node::plain(String::new(), origin)
    }

    /// A plain scalar.
    pub(super) fn plain(text: String, origin: Origin) -> Node {
        Node { value: Value::Scalar(Scalar { text, style: Style::Plain, template: None }), origin }
    }

    /// Parses one YAML document. `base` is its origin, to which lines are added.
    pub(super) fn parse(source: &str, base: &Origin) -> Result<Node, ConfigError> {
        // A byte order mark would shift every position by its length.
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        let options = serde_saphyr::options! {
            strict_booleans: true,
            reject_unsupported_tags: true,
            non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
            budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        };
        let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(source, options).map_err(|error| syntax(&error, source, base))?;
        Ok(place(raw, source, base))
    }

    /// Whether the value is null, which means the same as leaving the key out.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_nothing(),
            Value::List(_) | Value::Mapping(_) => false,
        }
    }

    /// The value as JSON, by the core schema of YAML.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect(),
        }
    }
}

impl Scalar {
    /// Whether the scalar is YAML's null. Expanded text never is: a variable must not remove a setting.
    fn is_nothing(&self) -> bool {
        self.style == Style::Plain && self.template.is_none() && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    fn to_json(&self) -> serde_json::Value {
        if self.is_nothing() {
            return serde_json::Value::Null;
        }
        if self.style == Style::Quoted {
            return self.text.as_str().into();
        }
        match self.text.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            text => number(text).map_or_else(|| text.into(), serde_json::Value::Number),
        }
    }
}

/// Parses a decimal number. Rust would also parse `inf` and `nan`, which are text here.
fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) || text.ends_with(char::is_alphabetic) {
        return None;
    }
    let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

/// The parser's message without its excerpt of the source, which could show a secret.
fn syntax(error: &serde_saphyr::Error, source: &str, base: &Origin) -> ConfigError {
    let error = error.without_snippet();
    let line = error.location().map_or(0, |location| location.line());
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return ConfigError::new(&base.at_line(line), format!("the key {key:?} is given twice"));
    }
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    // The position is already at the front of the message.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let written = usize::try_from(line).ok().and_then(|line| source.lines().nth(line.checked_sub(1)?)).unwrap_or_default();
    // The parser takes the brace for a flow mapping and cannot know that a reference was meant.
    let hint = if text.contains("flow") && written.contains("${") { "; inside {} and [], put ${…} in quotes" } else { "" };
    ConfigError::new(&base.at_line(line), format!("not readable as YAML: {text}{hint}"))
}

/// A value as the YAML parser returns it: scalars that look like numbers have lost their text.
enum Raw {
    Text(String),
    Inferred(String),
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<String>, Spanned<Raw>)>),
}

/// Restores the text of scalars from the source, and adds the lines.
fn place(raw: Spanned<Raw>, source: &str, base: &Origin) -> Node {
    let origin = base.at_line(raw.referenced.line());
    let written = slice(source, raw.defined);
    let scalar = |text: String, style| Value::Scalar(Scalar { text, style, template: None });
    let value = match raw.value {
        // A plain scalar may be a number once its references are expanded.
        Raw::Text(text) if text.contains("${") && written == Some(text.as_str()) => scalar(text, Style::Plain),
        Raw::Text(text) => scalar(text, Style::Quoted),
        Raw::Inferred(text) => scalar(written.map_or(text, str::to_owned), Style::Plain),
        Raw::List(items) => Value::List(items.into_iter().map(|item| place(item, source, base)).collect()),
        Raw::Mapping(entries) => {
            let keyed = |(key, value): (Spanned<String>, _)| {
                let origin = base.at_line(key.referenced.line());
                (Key { text: key.value, origin }, place(value, source, base))
            };
            Value::Mapping(entries.into_iter().map(keyed).collect())
        }
    };
    Node { value, origin }
}

fn slice(source: &str, location: Location) -> Option<&str> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    source.get(start..start.checked_add(length)?).map(str::trim)
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

macro_rules! inferred {
    ($($method:ident: $kind:ty),*) => {
        $(fn $method<E>(self, value: $kind) -> Result<Raw, E> {
            Ok(Raw::Inferred(value.to_string()))
        })*
    };
}

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    inferred!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Inferred(String::new()))
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Inferred(String::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Raw::Mapping(mapping))
    }
}
