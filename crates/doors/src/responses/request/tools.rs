//! The tools of a request.
//!
//! The model gets a flat list of functions. Clients group theirs in namespaces, and name tools that we do not have: the one
//! is flattened and restored in the calls, the other is echoed and otherwise left alone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{
    limits::{NAME_CHARS_MAX, TOOL_NAME_CHARS_MAX, TOOLS_MAX},
    mcp::{self, Mcp},
    object::{At, Object, Shape, check_length, list_of, text_of},
};
use crate::responses::error::WireError;

/// A tool that the request brings along.
pub(crate) enum Tool {
    /// The client runs it, unless the operator says otherwise.
    Function(Function),
    /// All tools of a server.
    Mcp(Mcp),
    /// Not for our models: `web_search`, `custom`, and whatever comes next year.
    Other(Other),
}

/// A function.
pub(crate) struct Function {
    /// What the model calls it: unique in the request.
    pub called: String,
    /// What the client calls it.
    pub name: String,
    /// The group in which the client does.
    pub namespace: Option<String>,
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
}

/// A tool of a type that models are not given.
pub(crate) struct Other {
    /// Its type.
    pub kind: String,
    /// Its name, if its type has names.
    pub name: Option<String>,
}

/// A function's name in the client's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespaced {
    pub name: String,
    pub namespace: String,
}

/// The tools, and what is remembered of them.
#[derive(Default)]
pub(super) struct Tools {
    pub tools: Vec<Tool>,
    /// What the response repeats.
    pub echo: Vec<Value>,
    /// How calls are given back to the client, by the name the model uses. Functions without a namespace are not in it.
    pub namespaced: BTreeMap<String, Namespaced>,
}

impl Tools {
    pub fn read(value: &RawValue, at: &At<'_>) -> Result<Self, WireError> {
        let mut read = Tools::default();
        let mut names = BTreeSet::new();
        for (index, value) in list_of(value, at, TOOLS_MAX)?.into_iter().enumerate() {
            read.add(value, &At::Element(at, index), &mut names)?;
            if read.tools.len() > TOOLS_MAX {
                return Err(at.above_max("array_above_max_length", format_args!("at most {TOOLS_MAX} tools, those in namespaces included")));
            }
        }
        read.call_apart();
        Ok(read)
    }

    /// The functions among them.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.tools.iter().filter_map(|tool| match tool {
            Tool::Function(function) => Some(function),
            Tool::Mcp(_) | Tool::Other(_) => None,
        })
    }

    fn add(&mut self, value: &RawValue, at: &At<'_>, names: &mut Names) -> Result<(), WireError> {
        let tool = Object::of(value, at)?;
        let mut echo: Value = serde_json::from_str(value.get()).map_err(|_| at.wrong_type("an object", value))?;
        match tool.required_name("type", NAME_CHARS_MAX)?.as_str() {
            "namespace" => self.add_namespace(&tool, names)?,
            "mcp" => {
                let server = Mcp::read(&tool)?;
                if self.tools.iter().any(|tool| matches!(tool, Tool::Mcp(other) if other.label == server.label)) {
                    return Err(tool.at("server_label").invalid("the label of one server only"));
                }
                mcp::redact(&mut echo);
                self.tools.push(Tool::Mcp(server));
            }
            kind => {
                self.tools.push(single(&tool, kind, None, names)?);
                if kind == "function" {
                    complete(&mut echo, ["description", "parameters", "strict"]);
                }
            }
        }
        self.echo.push(echo);
        Ok(())
    }

    fn add_namespace(&mut self, group: &Object<'_, '_>, names: &mut Names) -> Result<(), WireError> {
        let namespace = group.required_name("name", NAME_CHARS_MAX)?;
        group.check_text("description")?;
        group.required("tools")?;
        let at = group.at("tools");
        for (index, value) in group.list("tools", TOOLS_MAX)?.into_iter().flatten().enumerate() {
            let at = At::Element(&at, index);
            let tool = Object::of(value, &at)?;
            let kind = tool.required_name("type", NAME_CHARS_MAX)?;
            self.tools.push(single(&tool, &kind, Some(&namespace), names)?);
        }
        Ok(())
    }

    /// Gives every function a name of its own. A namespace shows only where names would collide, since models do better with the
    /// names they were taught.
    fn call_apart(&mut self) {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for function in self.functions() {
            *uses.entry(function.name.clone()).or_default() += 1;
        }
        // Names that stay as they are: nothing that is made up may meet them.
        let is_kept = |function: &Function| function.namespace.is_none() || uses[&function.name] == 1;
        let mut taken: BTreeSet<String> =
            self.functions().filter(|function| is_kept(function)).map(|function| function.name.clone()).collect();
        for tool in &mut self.tools {
            let Tool::Function(function) = tool else { continue };
            let Some(namespace) = &function.namespace else { continue };
            if !is_kept(function) {
                function.called = unlike(&taken, namespace, &function.name);
                taken.insert(function.called.clone());
            }
            let restored = Namespaced { name: function.name.clone(), namespace: namespace.clone() };
            self.namespaced.insert(function.called.clone(), restored);
        }
    }
}

/// Names that were met, with their namespaces.
type Names = BTreeSet<(Option<String>, String)>;

fn single(tool: &Object<'_, '_>, kind: &str, namespace: Option<&str>, names: &mut Names) -> Result<Tool, WireError> {
    let namespace = namespace.map(str::to_owned);
    let name = match kind {
        "function" => {
            let name = unique_name(tool, &namespace, names)?;
            let (description, strict) = (tool.text("description")?, tool.flag("strict")?);
            let parameters = parameters_of(tool)?;
            return Ok(Tool::Function(Function { called: name.clone(), name, namespace, description, parameters, strict }));
        }
        "custom" => Some(unique_name(tool, &namespace, names)?),
        // What else types of tools know as a name is their own affair.
        _ => tool.given("name").and_then(|value| text_of(value, &tool.at("name")).ok()),
    };
    Ok(Tool::Other(Other { kind: kind.to_owned(), name }))
}

fn unique_name(tool: &Object<'_, '_>, namespace: &Option<String>, names: &mut Names) -> Result<String, WireError> {
    let name = tool_name(tool)?;
    match names.insert((namespace.clone(), name.clone())) {
        true => Ok(name),
        false => Err(tool.at("name").invalid(format_args!("unique, and '{name}' is given twice"))),
    }
}

fn tool_name(tool: &Object<'_, '_>) -> Result<String, WireError> {
    let at = tool.at("name");
    let name = text_of(tool.required("name")?, &at)?;
    check_length(&name, &at, TOOL_NAME_CHARS_MAX)?;
    match !name.is_empty() && name.chars().all(is_name_char) {
        true => Ok(name),
        false => Err(at.invalid(format_args!("1 to {TOOL_NAME_CHARS_MAX} of the characters A-Z, a-z, 0-9, _ and -"))),
    }
}

fn is_name_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

fn parameters_of(tool: &Object<'_, '_>) -> Result<Option<Value>, WireError> {
    let Some(value) = tool.given("parameters") else { return Ok(None) };
    let wrong = || tool.at("parameters").wrong_type("an object", value);
    match Shape::of(value) {
        Shape::Object => serde_json::from_str(value.get()).map(Some).map_err(|_| wrong()),
        Shape::Null | Shape::Flag | Shape::Number | Shape::Text | Shape::List => Err(wrong()),
    }
}

/// A name with its namespace that is not among these. Providers take no longer names than ours, so it may have to be cut and
/// counted.
fn unlike(taken: &BTreeSet<String>, namespace: &str, name: &str) -> String {
    let namespace: String = namespace.chars().map(|char| if is_name_char(char) { char } else { '_' }).collect();
    let full = format!("{namespace}__{name}");
    let counted = (2..).map(|number| {
        let number = format!("_{number}");
        format!("{}{number}", &full[..full.len().min(TOOL_NAME_CHARS_MAX - number.len())])
    });
    let whole = Some(full.clone()).filter(|full| full.len() <= TOOL_NAME_CHARS_MAX);
    whole.into_iter().chain(counted).find(|name| !taken.contains(name)).unwrap_or(full)
}

/// Puts in what the contract wants to see in an echo, even if there is nothing to say.
pub(super) fn complete<const N: usize>(echo: &mut Value, names: [&str; N]) {
    let Value::Object(members) = echo else { return };
    for name in names {
        members.entry(name).or_insert(Value::Null);
    }
}
