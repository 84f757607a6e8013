//! Parses `tool_choice` and `allowed_tools`.

use serde_json::{Value, json, value::RawValue};

use super::{
    limits::{ALLOWED_MAX, NAME_CHARS_MAX, TOOLS_MAX},
    object::{At, Object, Shape, list_of, text_of},
    tools::{Function, RequestTools, Tool},
};
use crate::responses::error::WireError;

const MODES: [&str; 3] = ["auto", "none", "required"];

/// The value of `tool_choice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    None,
    Required,
    /// One function, by the model's name.
    Function(String),
    /// Any tool of this server, or the one with this name.
    Mcp {
        label: String,
        name: Option<String>,
    },
    /// A tool of a type that models do not get.
    Other,
}

impl Choice {
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Choice::Auto),
            "none" => Some(Choice::None),
            "required" => Some(Choice::Required),
            _ => None,
        }
    }
}

/// One entry of the allowed tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// A function of the request by the model's name, or a tool of a server.
    Tool(String),
    /// All tools of this server, or the one with this name.
    Mcp { label: String, name: Option<String> },
    /// A tool of a type that models do not get. It allows nothing, but the list is still a limit.
    Other,
}

/// The parsed `tool_choice` and `allowed_tools`.
pub(super) struct Chosen {
    pub choice: Choice,
    /// The allowed tools; empty means all.
    pub allowed: Vec<Allowed>,
    pub echo: Value,
}

/// Parses both fields. `has_more` says that the run will have tools that the request does not list, so unknown names can't be refused yet.
pub(super) fn chosen(body: &Object<'_, '_>, tools: &RequestTools, has_more: bool) -> Result<Chosen, WireError> {
    let at = body.at("tool_choice");
    let mut chosen = match body.given("tool_choice") {
        None => plain(Choice::Auto, "auto"),
        Some(value) => match Shape::of(value) {
            Shape::Text => of_text(value, &at)?,
            Shape::Object => of_object(value, &at, tools, has_more)?,
            Shape::Null | Shape::Flag | Shape::Number | Shape::List => return Err(at.wrong_type("a string or an object", value)),
        },
    };
    let named = body.names("allowed_tools", TOOLS_MAX)?.unwrap_or_default();
    if !named.is_empty() && !chosen.allowed.is_empty() {
        return Err(body.at("allowed_tools").invalid("left out if 'tool_choice' has a list of tools"));
    }
    // The names of servers' tools are not known yet, so any name is accepted.
    chosen.allowed.extend(named.iter().flat_map(|name| named_tool(name, tools)));
    Ok(chosen)
}

fn plain(choice: Choice, word: &str) -> Chosen {
    Chosen { choice, allowed: Vec::new(), echo: Value::from(word) }
}

fn of_text(value: &RawValue, at: &At<'_>) -> Result<Chosen, WireError> {
    let word = text_of(value, at)?;
    let unknown = || at.invalid(format_args!("one of '{}', or an object", MODES.join("', '")));
    Choice::of_word(&word).map(|choice| plain(choice, &word)).ok_or_else(unknown)
}

fn of_object(value: &RawValue, at: &At<'_>, tools: &RequestTools, has_more: bool) -> Result<Chosen, WireError> {
    let object = Object::of(value, at)?;
    let kind = object.required_name("type", NAME_CHARS_MAX)?;
    // Accept an object that only wraps a mode. Otherwise it would be taken for an unknown tool, and `none` would be lost.
    if let Some(choice) = Choice::of_word(&kind) {
        return Ok(plain(choice, &kind));
    }
    let mut echo: Value = serde_json::from_str(value.get()).map_err(|_| at.wrong_type("an object", value))?;
    if kind == "allowed_tools" {
        let mode = object.word("mode", &MODES)?.unwrap_or("auto");
        echo["mode"] = json!(mode);
        let choice = Choice::of_word(mode).unwrap_or(Choice::Auto);
        return Ok(Chosen { choice, allowed: allowed_of(&object, tools, has_more)?, echo });
    }
    let choice = match of_tool(&object, &kind, at, tools, has_more)? {
        Allowed::Tool(name) => Choice::Function(name),
        Allowed::Mcp { label, name } => Choice::Mcp { label, name },
        Allowed::Other => Choice::Other,
    };
    Ok(Chosen { choice, allowed: Vec::new(), echo })
}

fn allowed_of(object: &Object<'_, '_>, tools: &RequestTools, has_more: bool) -> Result<Vec<Allowed>, WireError> {
    let at = object.at("tools");
    let entries = list_of(object.required("tools")?, &at, ALLOWED_MAX)?;
    if entries.is_empty() {
        return Err(at.invalid(format_args!("a list of 1 to {ALLOWED_MAX} tools")));
    }
    let entries = entries.into_iter().enumerate().map(|(index, value)| {
        let at = At::Element(&at, index);
        let entry = Object::of(value, &at)?;
        let kind = entry.required_name("type", NAME_CHARS_MAX)?;
        of_tool(&entry, &kind, &at, tools, has_more)
    });
    entries.collect()
}

/// The tool that an object names by its type and name.
fn of_tool(object: &Object<'_, '_>, kind: &str, at: &At<'_>, tools: &RequestTools, has_more: bool) -> Result<Allowed, WireError> {
    match kind {
        "function" | "custom" => {
            let name = object.required_name("name", NAME_CHARS_MAX)?;
            let namespace = object.name("namespace", NAME_CHARS_MAX)?;
            let is_custom = kind == "custom";
            if has_more && !is_custom && namespace.is_none() && !tools.functions().any(|function| function.name == name) {
                return Ok(Allowed::Tool(name));
            }
            let found = function(&name, namespace.as_deref(), is_custom, tools);
            found.map(Allowed::Tool).map_err(|wanted| at.invalid(wanted))
        }
        "mcp" => {
            let label = object.required_name("server_label", NAME_CHARS_MAX)?;
            let name = object.name("name", NAME_CHARS_MAX)?;
            let is_here = |tool: &Tool| matches!(tool, Tool::Mcp(server) if server.label == label);
            match tools.tools.iter().any(is_here) {
                true => Ok(Allowed::Mcp { label, name }),
                false => Err(at.invalid("a server that 'tools' has")),
            }
        }
        _ => Ok(Allowed::Other),
    }
}

/// The model's name of a function of the client. Without a namespace, a function outside of namespaces takes precedence.
fn function(name: &str, namespace: Option<&str>, is_custom: bool, tools: &RequestTools) -> Result<String, &'static str> {
    let is_there = |given: Option<&str>| namespace.is_none() || given == namespace;
    let is_meant =
        |function: &&Function| function.name == name && function.is_custom == is_custom && is_there(function.namespace.as_deref());
    let mut meant: Vec<_> = tools.functions().filter(is_meant).collect();
    meant.sort_by_key(|function| function.namespace.is_some());
    match meant.as_slice() {
        [] => Err("a tool that 'tools' has"),
        [first, _, ..] if first.namespace.is_some() => Err("one tool, and several namespaces have one of that name"),
        [first, ..] => Ok(first.model_name.clone()),
    }
}

/// All tools that a name without a type can refer to.
fn named_tool(name: &str, tools: &RequestTools) -> Vec<Allowed> {
    let functions = tools.functions().filter(|function| function.name == name);
    let allowed: Vec<Allowed> = functions.map(|function| Allowed::Tool(function.model_name.clone())).collect();
    match allowed.is_empty() {
        true => vec![Allowed::Tool(name.to_owned())],
        false => allowed,
    }
}
