//! Every linked crate has a licence and a source that `deny.toml` allows.

use std::{fs, process::Command};

use serde_json::Value;

use crate::root;

/// The quoted lines of a list in `deny.toml`.
fn list(key: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml can be read");
    let lines = text.lines().skip_while(|line| *line != format!("{key} = [")).skip(1).take_while(|line| *line != "]");
    let entries: Vec<String> = lines.map(|line| line.trim().trim_end_matches(',').trim_matches('"').to_owned()).collect();
    assert!(!entries.is_empty(), "deny.toml has no list {key}");
    entries
}

/// Whether the allowed licences satisfy a licence expression: one of several alternatives is enough, a conjunction needs all.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let result = alternatives(&mut rest, allowed);
    result && rest.is_empty()
}

fn alternatives(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = conjunction(rest, allowed);
    while let Some((&"OR", after)) = rest.split_first() {
        *rest = after;
        // Not short-circuited: the tokens have to be consumed.
        result |= conjunction(rest, allowed);
    }
    result
}

fn conjunction(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = licence(rest, allowed);
    while let Some((&"AND", after)) = rest.split_first() {
        *rest = after;
        result &= licence(rest, allowed);
    }
    result
}

fn licence(rest: &mut &[&str], allowed: &[String]) -> bool {
    let Some((first, after)) = rest.split_first() else { return false };
    *rest = after;
    if *first == "(" {
        let result = alternatives(rest, allowed);
        *rest = rest.get(1..).unwrap_or_default();
        return result;
    }
    let mut result = allowed.iter().any(|name| name == first);
    if let [with, _, after @ ..] = *rest
        && *with == "WITH"
    {
        // A licence with an exception is another licence, which the list would have to contain as a whole.
        (*rest, result) = (after, false);
    }
    result
}

#[test]
fn licence_expressions_are_read() {
    let allowed = ["MIT".to_owned(), "Zlib".to_owned()];
    for good in
        ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT", "MIT AND Zlib", "(MIT OR GPL-3.0) AND Zlib", "Apache-2.0 WITH LLVM-exception OR MIT"]
    {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", "MIT WITH something", "MIT Zlib"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn every_crate_has_an_allowed_licence_and_source() {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let (licences, registries) = (list("allow"), list("allow-registry"));
    let mut refused = Vec::new();
    for package in metadata["packages"].as_array().expect("there are packages") {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        if !is_allowed(licence, &licences) {
            refused.push(format!("{name}: licence {licence:?}"));
        }
        // A crate without a source belongs to this workspace.
        let source = package["source"].as_str().unwrap_or("workspace");
        let is_known = source == "workspace" || registries.iter().any(|registry| source == format!("registry+{registry}"));
        if !is_known {
            refused.push(format!("{name}: source {source}"));
        }
    }
    assert!(refused.is_empty(), "deny.toml does not allow: {refused:#?}");
}
