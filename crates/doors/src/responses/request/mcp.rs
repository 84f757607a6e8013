//! Parses the tool servers of a request: configured ones, named by their label, and ones that the request declares with a URL.

use serde_json::{Map, Value, value::RawValue};

use super::{
    limits::{ALLOWED_MAX, HEADER_CHARS_MAX, HEADERS_MAX, NAME_CHARS_MAX, URL_CHARS_MAX},
    object::{At, Object, Shape, name_of, names_of, text_of},
};
use crate::responses::error::WireError;

/// A tool server. It has no `Debug`, because its headers are secrets.
pub(crate) struct Mcp {
    /// The label that the request gives it.
    pub label: String,
    /// Its URL. Without one, the label names a configured server.
    pub url: Option<String>,
    /// The headers of every request to it, credentials included.
    pub headers: Vec<(String, String)>,
    /// The tools that the model gets; `None` means all.
    pub allowed: Option<ToolFilter>,
    /// The calls that need approval, if the request says so.
    pub approval: Option<Approval>,
}

/// Selects the tools of a server that meet all conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolFilter {
    /// The tools with these names.
    pub names: Option<Vec<String>>,
    /// The tools that only read, or those that do not.
    pub read_only: Option<bool>,
}

/// Whether calls need approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Never,
    Always,
    /// Some always, some never. The default applies to tools in neither.
    Some {
        always: Option<ToolFilter>,
        never: Option<ToolFilter>,
    },
}

impl Mcp {
    pub(super) fn read(tool: &Object<'_, '_>) -> Result<Self, WireError> {
        let label = tool.required_name("server_label", NAME_CHARS_MAX)?;
        tool.check_text("server_description")?;
        Ok(Mcp {
            label,
            url: url_of(tool)?,
            headers: headers_of(tool)?,
            allowed: filter_of(tool, "allowed_tools")?,
            approval: approval_of(tool)?,
        })
    }
}

/// The replacement of a secret.
const REDACTED: &str = "<redacted>";

/// Removes the secrets of tool servers from a value at any depth. Such values are stored and returned, and more people can read a response
/// than could read the request. The credentials that a server needs are kept elsewhere, encrypted.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.get("type").is_some_and(|kind| kind == "mcp") {
                redact_server(members);
            }
            members.values_mut().for_each(redact);
        }
        Value::Array(elements) => elements.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn redact_server(members: &mut Map<String, Value>) {
    members.remove("authorization");
    match members.get_mut("headers") {
        Some(Value::Object(headers)) => headers.values_mut().for_each(|value| *value = REDACTED.into()),
        None | Some(Value::Null) => {}
        Some(headers) => *headers = REDACTED.into(),
    }
    if let Some(Value::String(url)) = members.get_mut("server_url") {
        *url = shown_url(url);
    }
}

/// A URL without the parts that may be secret: the user, the query and the fragment. The path is kept.
fn shown_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or(("", &url[..end]));
    let host_end = rest.find(['/', '\\']).unwrap_or(rest.len());
    let host_start = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
    let separator = if scheme.is_empty() { "" } else { "://" };
    // A URL that can be parsed stays one.
    let query = if url[end..].starts_with('?') { "?redacted" } else { "" };
    format!("{scheme}{separator}{}{query}", &rest[host_start..])
}

/// Checks only the form of the URL. Whether the server may be contacted is checked when it is declared.
fn url_of(tool: &Object<'_, '_>) -> Result<Option<String>, WireError> {
    let Some(url) = tool.name("server_url", URL_CHARS_MAX)? else { return Ok(None) };
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !url.contains(char::is_whitespace)) {
        true => Ok(Some(url)),
        false => Err(tool.at("server_url").invalid("an address that starts with http:// or https://")),
    }
}

fn headers_of(tool: &Object<'_, '_>) -> Result<Vec<(String, String)>, WireError> {
    let mut headers = Vec::new();
    if let Some(value) = tool.given("headers") {
        let at = tool.at("headers");
        let given = Object::of(value, &at)?;
        if given.members().len() > HEADERS_MAX {
            return Err(at.above_max("object_above_max_properties", format_args!("at most {HEADERS_MAX} headers")));
        }
        for (name, value) in given.members() {
            let at = given.at(name);
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(at.invalid("named as headers can be"));
            }
            headers.push((name.to_owned(), header_value(value, &at)?));
        }
    }
    if let Some(value) = tool.given("authorization") {
        let at = tool.at("authorization");
        let token = header_value(value, &at)?;
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            return Err(at.invalid("left out if there is a header of that name"));
        }
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    Ok(headers)
}

/// Whether a header's name may have this byte.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a header's value. Only printable ASCII is allowed, so that a value can't inject another header.
fn header_value(value: &RawValue, at: &At<'_>) -> Result<String, WireError> {
    let text = name_of(value, at, HEADER_CHARS_MAX)?;
    match text.is_ascii() {
        true => Ok(text),
        false => Err(at.invalid("made of ASCII characters")),
    }
}

/// Reads a filter: a list of names, or an object with conditions.
fn filter_of(parent: &Object<'_, '_>, name: &str) -> Result<Option<ToolFilter>, WireError> {
    let Some(value) = parent.given(name) else { return Ok(None) };
    let at = parent.at(name);
    let filter = match Shape::of(value) {
        Shape::List => ToolFilter { names: Some(names_of(value, &at, ALLOWED_MAX)?), read_only: None },
        Shape::Object => {
            let filter = Object::of(value, &at)?;
            ToolFilter { names: filter.names("tool_names", ALLOWED_MAX)?, read_only: filter.flag("read_only")? }
        }
        Shape::Null | Shape::Flag | Shape::Number | Shape::Text => return Err(at.wrong_type("an array or an object", value)),
    };
    Ok(Some(filter))
}

fn approval_of(tool: &Object<'_, '_>) -> Result<Option<Approval>, WireError> {
    let Some(value) = tool.given("require_approval") else { return Ok(None) };
    let at = tool.at("require_approval");
    match Shape::of(value) {
        Shape::Text => match text_of(value, &at)?.as_str() {
            "never" => Ok(Some(Approval::Never)),
            "always" => Ok(Some(Approval::Always)),
            _ => Err(at.invalid("'never', 'always' or an object")),
        },
        Shape::Object => {
            let some = Object::of(value, &at)?;
            Ok(Some(Approval::Some { always: filter_of(&some, "always")?, never: filter_of(&some, "never")? }))
        }
        Shape::Null | Shape::Flag | Shape::Number | Shape::List => Err(at.wrong_type("a string or an object", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("https://x.example/mcp", "https://x.example/mcp"),
            ("https://x.example:8443", "https://x.example:8443"),
            ("https://x.example/mcp?key=s3cret&b=/?@", "https://x.example/mcp?redacted"),
            ("https://x.example?", "https://x.example?redacted"),
            ("https://x.example/mcp#s3cret", "https://x.example/mcp"),
            ("https://x.example/#s3cret?s3cret", "https://x.example/"),
            ("https://user:s3cret@x.example/@me", "https://x.example/@me"),
            ("https://s3cret@more@x.example\\mcp?s3cret", "https://x.example\\mcp?redacted"),
            ("s3cret@x.example?s3cret", "x.example?redacted"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }
}
