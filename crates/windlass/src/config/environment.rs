//! Applies the environment to the file: `${NAME}` inside values, and whole settings such as `WINDLASS_SERVER__LISTEN`. Both work on the
//! parsed tree, so no variable can change the structure of the file.

use std::collections::BTreeMap;

use super::{
    error::{ConfigError, Origin},
    node::{Key, Node, Scalar, Style, Value},
    sections,
};

const PREFIX: &str = "WINDLASS_";
/// Variables of this product that are not settings.
const RESERVED: [&str; 3] = ["WINDLASS_CRASH_AT", "WINDLASS_TOKEN", "WINDLASS_LOG"];
const RESERVED_PREFIX: &str = "WINDLASS_TEST_";

/// The environment variables that are applied to a configuration.
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(super) fn new(variables: impl Iterator<Item = (String, String)>) -> Self {
        Self(variables.collect())
    }

    /// Sets every `WINDLASS_…__…` variable in the tree, replacing the file's value.
    pub(super) fn overlay(&self, root: &mut Node) -> Result<(), ConfigError> {
        let mut settings: Vec<_> = self.0.iter().filter_map(|(name, text)| Some((segments(name)?, name, text))).collect();
        // Sections sort before their own keys, and list elements sort by their numbers.
        settings.sort_by_key(|(path, ..)| path.iter().map(|part| (part.parse::<usize>().ok(), part.clone())).collect::<Vec<_>>());
        for pair in settings.windows(2) {
            if let [(first, name, _), (second, other, _)] = pair
                && first == second
            {
                let origin = Origin::Variable(name.as_str().into());
                return Err(ConfigError::new(&origin, format!("{other} sets the same key; keep one of them")));
            }
        }
        for (path, name, text) in settings {
            let origin = Origin::Variable(name.as_str().into());
            let value = parse_value(text, &origin)?;
            *slot(root, &path, &origin)? = value;
        }
        Ok(())
    }

    /// Expands `${NAME}` and `${NAME:-default}` in every value of the file.
    pub(super) fn fill(&self, node: &mut Node, path: &str) -> Result<(), ConfigError> {
        match (&mut node.value, &node.origin) {
            // The text of a variable is not expanded: it may be a secret with any characters.
            (Value::Scalar(_), Origin::Variable(_)) => Ok(()),
            (Value::Scalar(scalar), origin) => {
                self.fill_scalar(scalar).map_err(|message| ConfigError::new(origin, format!("{path}: {message}")))
            }
            (Value::List(items), _) => {
                items.iter_mut().enumerate().try_for_each(|(index, item)| self.fill(item, &format!("{path}[{index}]")))
            }
            (Value::Mapping(entries), _) => entries.iter_mut().try_for_each(|(key, item)| self.fill(item, &join(path, &key.text))),
        }
    }

    fn fill_scalar(&self, scalar: &mut Scalar) -> Result<(), String> {
        if scalar.text.contains("${") {
            let text = self.expand(&scalar.text)?;
            scalar.template = Some(std::mem::replace(&mut scalar.text, text));
        }
        Ok(())
    }

    /// Expands references in one pass: the text of a variable is not expanded again.
    fn expand(&self, template: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(kept) = before.strip_suffix('$') {
                text.push_str(kept);
                text.push_str("${");
                rest = after;
                continue;
            }
            text.push_str(before);
            let Some((reference, after)) = after.split_once('}') else {
                return Err("\"${\" without \"}\"; write \"$${\" for the characters themselves".to_owned());
            };
            text.push_str(self.lookup(reference)?);
            rest = after;
        }
        text.push_str(rest);
        Ok(text)
    }

    fn lookup<'a>(&'a self, reference: &'a str) -> Result<&'a str, String> {
        let (name, default) = reference.split_once(":-").map_or((reference, None), |(name, default)| (name, Some(default)));
        if !is_variable_name(name) {
            return Err(format!("\"${{{reference}}}\" is not a reference; write ${{NAME}} or ${{NAME:-default}}"));
        }
        let value = self.0.get(name).map(String::as_str);
        // As in a shell, an empty variable counts as unset if there is a default.
        match (value, default) {
            (Some(""), Some(default)) | (None, Some(default)) => Ok(default),
            (Some(value), _) => Ok(value),
            (None, None) => Err(format!("the environment variable {name} is not set; set it or write ${{{name}:-default}}")),
        }
    }
}

/// Joins a key to the path above it.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn is_variable_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(allowed) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The path that a variable sets, in lower case, or `None` if it is not a setting.
fn segments(name: &str) -> Option<Vec<String>> {
    let upper = name.to_ascii_uppercase();
    if RESERVED.contains(&upper.as_str()) || upper.starts_with(RESERVED_PREFIX) {
        return None;
    }
    let path = upper.strip_prefix(PREFIX)?.to_ascii_lowercase();
    // Without a separator, only the name of a section can be a setting; any other variable belongs to another program.
    let is_setting = path.contains("__") || sections::is_top_level(&path);
    is_setting.then(|| path.split("__").map(str::to_owned).collect())
}

/// Parses the text of a variable: a scalar, unless it is written as a flow collection or in quotes.
fn parse_value(text: &str, origin: &Origin) -> Result<Node, ConfigError> {
    if text.starts_with(['[', '{', '"', '\'']) {
        return Node::parse(text, origin);
    }
    let mut node = Node::plain(text.to_owned(), origin.clone());
    if let Value::Scalar(scalar) = &mut node.value
        && text.is_empty()
    {
        scalar.style = Style::Quoted;
    }
    Ok(node)
}

/// The node at the path, created if it is missing.
fn slot<'a>(root: &'a mut Node, path: &[String], origin: &Origin) -> Result<&'a mut Node, ConfigError> {
    let mut here = root;
    let mut name = String::new();
    for part in path {
        if part.is_empty() {
            return Err(ConfigError::new(origin, "a part of this name is empty; parts are parted by two underscores"));
        }
        if here.is_nothing() {
            // Agents are a mapping, and the name of an agent may be a number.
            let is_index = part.bytes().all(|byte| byte.is_ascii_digit()) && name != "agents";
            here.value = if is_index { Value::List(Vec::new()) } else { Value::Mapping(Vec::new()) };
            here.origin = origin.clone();
        }
        let (below, child) = match &mut here.value {
            Value::Scalar(_) => return Err(ConfigError::new(origin, format!("{name} is a single value and has no {part}"))),
            Value::List(items) => (format!("{name}[{part}]"), element(items, part, &name, origin)?),
            Value::Mapping(entries) => (join(&name, part), entry(entries, part, origin)),
        };
        name = below;
        here = child;
    }
    Ok(here)
}

fn element<'a>(items: &'a mut Vec<Node>, part: &str, name: &str, origin: &Origin) -> Result<&'a mut Node, ConfigError> {
    let count = items.len();
    let index = part.parse::<usize>().ok().filter(|index| *index <= count).ok_or_else(|| {
        ConfigError::new(origin, format!("{name} is a list of {count}; expected an index from 0 to {count}, found \"{part}\""))
    })?;
    if index == count {
        items.push(Node::nothing(origin.clone()));
    }
    Ok(&mut items[index])
}

fn entry<'a>(entries: &'a mut Vec<(Key, Node)>, part: &str, origin: &Origin) -> &'a mut Node {
    let index = entries.iter().position(|(key, _)| key.text.eq_ignore_ascii_case(part)).unwrap_or_else(|| {
        let key = Key { text: part.to_owned(), origin: origin.clone() };
        entries.push((key, Node::nothing(origin.clone())));
        entries.len() - 1
    });
    &mut entries[index].1
}
