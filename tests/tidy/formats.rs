//! The kernel and the engine know no format of an API: what clients and tools send is read by the doors, and what providers send by the
//! models. The headers of items are all that the engine sees of it.

use crate::{root, sources};

/// Names of the formats of OpenAI's APIs, and of the control field of tools' results.
const NAMES: [&str; 26] = [
    "__cg_control",
    "assistant",
    "call_id",
    "content",
    "custom_tool_call",
    "custom_tool_call_output",
    "developer",
    "encrypted_content",
    "file_data",
    "function_call",
    "function_call_output",
    "image_url",
    "input_file",
    "input_image",
    "input_text",
    "item_reference",
    "json_object",
    "json_schema",
    "max_output_tokens",
    "mcp_call",
    "output_text",
    "role",
    "server_label",
    "summary_text",
    "tool_calls",
    "tool_use",
];

/// Where a name is right: the file, and the name.
const EXCEPTIONS: [(&str, &str); 2] = [
    // The names under which manifests of earlier versions store parameters.
    ("crates/kernel/src/parameters.rs", "max_output_tokens"),
    // Finds the first text in the first bytes of an instruction, which may be cut anywhere, so that no reader of a format accepts them.
    ("crates/engine/src/title.rs", "content"),
];

/// Whether a line has the name as a string literal or as a member in one.
fn has_name(line: &str, name: &str) -> bool {
    [format!("\"{name}\""), format!("\"{name}\\\"")].iter().any(|literal| line.contains(literal))
}

#[test]
fn the_kernel_and_the_engine_know_no_wire_format() {
    let root = root();
    let mut found = Vec::new();
    let mut used = Vec::new();
    for folder in ["crates/kernel/src", "crates/engine/src"] {
        for (path, text) in sources(&root.join(folder)) {
            let path = path.strip_prefix(&root).expect("a file of the workspace").display().to_string();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (index, line) in product.lines().enumerate() {
                for name in NAMES.into_iter().filter(|name| has_name(line, name)) {
                    match EXCEPTIONS.contains(&(path.as_str(), name)) {
                        true => used.push((path.clone(), name)),
                        false => found.push(format!("{path}:{}: {name}", index + 1)),
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "names of wire formats; read them in a door or a model instead:\n{}", found.join("\n"));
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|(path, name)| !used.contains(&((*path).to_owned(), *name))).collect();
    assert!(unused.is_empty(), "exceptions that nothing needs: {unused:?}");
}

#[test]
fn a_name_is_found_in_code_and_in_literals() {
    for line in [r#"item.get("role")"#, r#"const NAME: &str = "\"role\"";"#] {
        assert!(has_name(line, "role"), "{line}");
    }
    assert!(!has_name("let role = Role::User;", "role"));
}
