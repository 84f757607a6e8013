//! Finds secrets that are written in the configuration file instead of being taken from the environment.

use super::{
    error::Origin,
    node::{Node, Value},
};

/// The paths of settings with a literal secret, such as `models[0].api_key`.
pub(super) fn literal_secrets(root: &Node) -> Vec<String> {
    let mut found = Vec::new();
    walk(root, &mut Vec::new(), &mut found);
    found
}

fn walk<'n>(node: &'n Node, path: &mut Vec<Step<'n>>, found: &mut Vec<String>) {
    match &node.value {
        Value::Scalar(scalar) => {
            let is_written = scalar.template.is_none() && matches!(node.origin, Origin::File { .. });
            if is_written && is_secret(path, &scalar.text) {
                found.push(spelled(path));
            }
        }
        Value::List(items) => items.iter().enumerate().for_each(|(index, item)| within(Step::Index(index), item, path, found)),
        Value::Mapping(entries) => entries.iter().for_each(|(key, entry)| within(Step::Key(&key.text), entry, path, found)),
    }
}

fn within<'n>(step: Step<'n>, node: &'n Node, path: &mut Vec<Step<'n>>, found: &mut Vec<String>) {
    path.push(step);
    walk(node, path, found);
    path.pop();
}

/// One step from a value to a value inside it.
enum Step<'n> {
    Key(&'n str),
    Index(usize),
}

fn is_secret(path: &[Step<'_>], text: &str) -> bool {
    use Step::{Index, Key};
    match path {
        [Key("auth"), Key("tokens"), Index(_), Key("token")] => !text.starts_with("sha256:"),
        [Key("models"), Index(_), Key("api_key")] => !text.is_empty(),
        [Key("tools"), Key("mcp"), Index(_), Key("authorization")] => true,
        [Key("tools"), Key("mcp"), Index(_), Key("headers" | "env"), Key(_)] => true,
        [Key("store" | "doorbell"), Key("url")] => has_password(text),
        _ => false,
    }
}

/// Whether an address has a password before its host.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

fn spelled(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.extend([".", key]),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}
