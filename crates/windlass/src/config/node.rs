//! YAML as a tree in which every key and value knows where it was written. It gives no meaning to anything.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Spanned};

use super::error::{ConfigError, Origin};

/// How deep a configuration may nest. Readers recurse, so this bounds their stack.
const DEPTH_MAX: usize = 48;

/// One value and where it was written.
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// What a node holds. A mapping keeps its order, so errors come in the order of the file.
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

/// A key and where it was written.
pub(super) struct Key {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// A scalar keeps its letters: `1.10` stays `1.10` where text is wanted.
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) style: Style,
    /// The text before `${…}` was filled in. Errors show this one, since the filled-in text may be a secret.
    pub(super) template: Option<String>,
}

/// Whether a scalar may be read as something other than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Written without quotes: its letters decide whether it is a number, a truth value or nothing.
    Plain,
    /// Written with quotes or as a block: always text.
    Quoted,
}

impl Node {
    /// A node that holds nothing.
    pub(super) fn nothing(origin: Origin) -> Node {
        Node::plain(String::new(), origin)
    }

    /// A scalar without quotes.
    pub(super) fn plain(text: String, origin: Origin) -> Node {
        Node { value: Value::Scalar(Scalar { text, style: Style::Plain, template: None }), origin }
    }

    /// Reads one YAML document. The base names the source; lines are added to it.
    pub(super) fn parse(source: &str, base: &Origin) -> Result<Node, ConfigError> {
        // A mark at the start would shift every position by its length.
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

    /// Whether nothing was written, which means the same as leaving the key out.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_nothing(),
            Value::List(_) | Value::Mapping(_) => false,
        }
    }

    /// The value as JSON, by YAML's core rules.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect(),
        }
    }
}

impl Scalar {
    /// Whether the scalar is YAML's null. Filled-in text never is: a variable must not make a setting disappear.
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

/// A decimal number, if the text is one. Rust would also read `inf` and `nan`, which are words here.
fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) || text.ends_with(char::is_alphabetic) {
        return None;
    }
    let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

/// The parser's own words without its excerpt of the source, which could show a secret.
fn syntax(error: &serde_saphyr::Error, source: &str, base: &Origin) -> ConfigError {
    let error = error.without_snippet();
    let line = error.location().map_or(0, |location| location.line());
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return ConfigError::new(&base.at_line(line), format!("the key {key:?} is given twice"));
    }
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    // The position is said once, in front.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let written = usize::try_from(line).ok().and_then(|line| source.lines().nth(line.checked_sub(1)?)).unwrap_or_default();
    // YAML takes the brace for its own, and the parser cannot know what was meant.
    let hint = if text.contains("flow") && written.contains("${") { "; inside {} and [], put ${…} in quotes" } else { "" };
    ConfigError::new(&base.at_line(line), format!("not readable as YAML: {text}{hint}"))
}

/// A value as the YAML reader hands it over: scalars it would take for numbers have lost their letters.
enum Raw {
    Text(String),
    Inferred(String),
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<String>, Spanned<Raw>)>),
}

/// Gives scalars their letters back from the source, and everything its line.
fn place(raw: Spanned<Raw>, source: &str, base: &Origin) -> Node {
    let origin = base.at_line(raw.referenced.line());
    let written = slice(source, raw.defined);
    let scalar = |text: String, style| Value::Scalar(Scalar { text, style, template: None });
    let value = match raw.value {
        // What was written without quotes may turn out to be a number once its references are filled in.
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
