//! Parses the tools of a request.
//!
//! The model gets a flat list of functions. Clients may group functions in namespaces, which are flattened, and may have custom tools that
//! take a text instead of an object, which become functions with one text argument. Both are restored in the calls that the client gets.
//! RequestTools of unknown types are echoed and otherwise ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{
    limits::{NAME_CHARS_MAX, TOOL_NAME_CHARS_MAX, TOOLS_MAX},
    mcp::{self, Mcp},
    object::{At, Object, Shape, check_length, list_of, text_of},
};
use crate::responses::error::WireError;

/// A tool of the request.
pub(crate) enum Tool {
    /// The client runs it, unless the configuration has a tool of that name.
    Function(Function),
    /// All tools of a server.
    Mcp(Mcp),
    /// A tool that models do not get: a hosted one such as `web_search`, or one of an unknown type.
    Other,
}

/// A tool that only OpenAI's own servers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosted {
    /// Its type, such as `web_search`.
    pub kind: String,
    /// Its path in the request, such as `tools[0].type`. `None` if an input item added it, as only Codex's do.
    pub param: Option<String>,
}

/// The types of hosted tools. A type may also have the date of its version as a suffix.
const HOSTED: [&str; 11] = [
    "file_search",
    "web_search",
    "web_search_preview",
    "code_interpreter",
    "image_generation",
    "computer_use_preview",
    "computer_use",
    "computer",
    "local_shell",
    "shell",
    "apply_patch",
];

fn is_hosted(kind: &str) -> bool {
    let has_date = |rest: &str| rest.starts_with('_') && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    HOSTED.iter().any(|known| kind.strip_prefix(known).is_some_and(|rest| rest.is_empty() || has_date(rest)))
}

/// A function of the client.
pub(crate) struct Function {
    /// The model's name, which is unique in the request.
    pub model_name: String,
    /// The client's name.
    pub name: String,
    /// The client's namespace.
    pub namespace: Option<String>,
    /// Whether the client takes a text instead of an object.
    pub is_custom: bool,
    pub description: Option<String>,
    /// The JSON Schema of the arguments.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
}

/// A function as the client names it. It is stored with the run, in the note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientName {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the client takes a text instead of an object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_custom: bool,
}

/// The parsed tools.
#[derive(Default)]
pub(super) struct RequestTools {
    pub tools: Vec<Tool>,
    /// The tools as the response repeats them.
    pub echo: Vec<Value>,
    /// RequestTools that only OpenAI's own servers run.
    pub hosted: Vec<Hosted>,
    /// The client's names of functions that the model knows by another name, or that take a text, by the model's name.
    pub client_names: BTreeMap<String, ClientName>,
}

impl RequestTools {
    pub fn read(value: &RawValue, at: &At<'_>) -> Result<Self, WireError> {
        let mut read = RequestTools::default();
        let mut names = BTreeSet::new();
        for (index, value) in list_of(value, at, TOOLS_MAX)?.into_iter().enumerate() {
            read.add(value, &At::Element(at, index), &mut names)?;
            check_count(read.tools.len(), at)?;
        }
        read.assign_model_names();
        Ok(read)
    }

    /// Adds the tools in items of the input, which Codex sends for models that it knows. A function that is given again replaces the
    /// earlier one.
    pub fn read_items(&mut self, items: &[Box<RawValue>], at: &At<'_>) -> Result<(), WireError> {
        for (index, item) in items.iter().enumerate().filter(|(_, item)| adds_tools(item)) {
            let at = At::Element(at, index);
            let item = Object::of(item, &at)?;
            let Some(list) = item.given("tools") else { continue };
            let at = item.at("tools");
            let added = RequestTools::read(list, &at)?;
            added.tools.into_iter().for_each(|tool| self.add_or_replace(tool));
            self.hosted.extend(added.hosted.into_iter().map(|hosted| Hosted { param: None, ..hosted }));
            check_count(self.tools.len(), &at)?;
        }
        Ok(())
    }

    /// Adds or replaces a function. The model's names of other functions do not change.
    fn add_or_replace(&mut self, tool: Tool) {
        // Tool servers are ignored here: items are stored, and must not contain a server's URL and token.
        let Tool::Function(mut function) = tool else { return };
        let is_it = |other: &Function| other.name == function.name && other.namespace == function.namespace;
        let earlier = self.tools.iter().position(|tool| matches!(tool, Tool::Function(other) if is_it(other)));
        let used_names: BTreeSet<String> = self.functions().filter(|other| !is_it(other)).map(|other| other.model_name.clone()).collect();
        function.model_name = match earlier.and_then(|index| self.tools.get(index)) {
            Some(Tool::Function(earlier)) => earlier.model_name.clone(),
            _ if !used_names.contains(&function.name) => function.name.clone(),
            _ => unused_name(&used_names, function.namespace.as_deref().unwrap_or(ADDITIONAL), &function.name),
        };
        self.record_client_name(&function);
        match earlier {
            Some(index) => self.tools[index] = Tool::Function(function),
            None => self.tools.push(Tool::Function(function)),
        }
    }

    /// Records the client's name of a function, if calls of it must be translated.
    fn record_client_name(&mut self, function: &Function) {
        let Function { model_name, name, namespace, is_custom, .. } = function;
        match namespace.is_some() || *is_custom || model_name != name {
            true => {
                let client_name = ClientName { name: name.clone(), namespace: namespace.clone(), is_custom: *is_custom };
                self.client_names.insert(model_name.clone(), client_name)
            }
            false => self.client_names.remove(model_name),
        };
    }

    /// The functions among the tools.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.tools.iter().filter_map(|tool| match tool {
            Tool::Function(function) => Some(function),
            Tool::Mcp(_) | Tool::Other => None,
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
                self.tools.push(Tool::Mcp(server));
            }
            kind => {
                if is_hosted(kind) {
                    self.hosted.push(Hosted { kind: kind.to_owned(), param: Some(tool.at("type").to_string()) });
                }
                self.tools.push(single(&tool, kind, None, names)?);
                if kind == "function" {
                    complete(&mut echo, ["description", "parameters", "strict"]);
                }
            }
        }
        // Redact at any depth: a server may also be in a namespace or in a tool of an unknown type, where it is not used but echoed.
        mcp::redact(&mut echo);
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

    /// Gives every function a unique name for the model. The namespace is added only where names collide, because models do better with the
    /// names that they were trained on.
    fn assign_model_names(&mut self) {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for function in self.functions() {
            *uses.entry(function.name.clone()).or_default() += 1;
        }
        // Names that stay unchanged. Generated names must not collide with them.
        let is_kept = |function: &Function| function.namespace.is_none() || uses[&function.name] == 1;
        let mut used_names: BTreeSet<String> =
            self.functions().filter(|function| is_kept(function)).map(|function| function.name.clone()).collect();
        for tool in &mut self.tools {
            let Tool::Function(function) = tool else { continue };
            if let Some(namespace) = &function.namespace
                && !is_kept(function)
            {
                function.model_name = unused_name(&used_names, namespace, &function.name);
                used_names.insert(function.model_name.clone());
            }
        }
        let tools = std::mem::take(&mut self.tools);
        for tool in &tools {
            if let Tool::Function(function) = tool {
                self.record_client_name(function);
            }
        }
        self.tools = tools;
    }
}

/// The type of input items that add tools.
const ADDITIONAL: &str = "additional_tools";

/// Whether an input item adds tools.
pub(crate) fn adds_tools(item: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow)]
        r#type: Option<std::borrow::Cow<'a, str>>,
    }
    // A cheap check first: most items do not contain the word, and need not be parsed.
    item.get().contains(ADDITIONAL)
        && serde_json::from_str::<Typed<'_>>(item.get()).is_ok_and(|item| item.r#type.as_deref() == Some(ADDITIONAL))
}

fn check_count(count: usize, at: &At<'_>) -> Result<(), WireError> {
    match count > TOOLS_MAX {
        true => Err(at.above_max("array_above_max_length", format_args!("at most {TOOLS_MAX} tools, those in namespaces included"))),
        false => Ok(()),
    }
}

/// The client's names so far, with their namespaces.
type Names = BTreeSet<(Option<String>, String)>;

fn single(tool: &Object<'_, '_>, kind: &str, namespace: Option<&str>, names: &mut Names) -> Result<Tool, WireError> {
    let namespace = namespace.map(str::to_owned);
    let is_custom = kind == "custom";
    if !is_custom && kind != "function" {
        return Ok(Tool::Other);
    }
    let name = unique_name(tool, &namespace, names)?;
    let (description, parameters, strict) = match is_custom {
        true => (custom_description(tool)?, Some(custom_parameters()), None),
        false => (tool.text("description")?, parameters_of(tool)?, tool.flag("strict")?),
    };
    Ok(Tool::Function(Function { model_name: name.clone(), name, namespace, is_custom, description, parameters, strict }))
}

/// The name of the one argument of a custom tool.
pub(crate) const CUSTOM_INPUT: &str = "input";

fn custom_parameters() -> Value {
    json!({
        "type": "object", "properties": { CUSTOM_INPUT: { "type": "string", "description": "The whole input of the tool, as it is." } },
        "required": [CUSTOM_INPUT], "additionalProperties": false,
    })
}

/// The description of a custom tool for the model. A grammar is added to it as text, because most providers can't enforce one.
fn custom_description(tool: &Object<'_, '_>) -> Result<Option<String>, WireError> {
    let description = tool.text("description")?;
    let Some(value) = tool.given("format") else { return Ok(description) };
    let at = tool.at("format");
    let format = Object::of(value, &at)?;
    if format.required_name("type", NAME_CHARS_MAX)? != "grammar" {
        return Ok(description);
    }
    let (syntax, definition) = (format.text("syntax")?.unwrap_or_default(), format.text("definition")?.unwrap_or_default());
    let hint = format!("Its input has to follow this {syntax} grammar:\n{definition}");
    Ok(Some(description.map_or_else(|| hint.clone(), |description| format!("{description}\n\n{hint}"))))
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

/// A name with its namespace that is not in `taken`. Providers limit the length of names, so it may be truncated and numbered.
fn unused_name(used_names: &BTreeSet<String>, namespace: &str, name: &str) -> String {
    let namespace: String = namespace.chars().map(|char| if is_name_char(char) { char } else { '_' }).collect();
    let full = format!("{namespace}__{name}");
    let counted = (2..).map(|number| {
        let number = format!("_{number}");
        format!("{}{number}", &full[..full.len().min(TOOL_NAME_CHARS_MAX - number.len())])
    });
    let whole = Some(full.clone()).filter(|full| full.len() <= TOOL_NAME_CHARS_MAX);
    whole.into_iter().chain(counted).find(|name| !used_names.contains(name)).unwrap_or(full)
}

/// Adds the keys that the contract requires in an echo, with null as their value.
pub(super) fn complete<const N: usize>(echo: &mut Value, names: [&str; N]) {
    let Value::Object(members) = echo else { return };
    for name in names {
        members.entry(name).or_insert(Value::Null);
    }
}
