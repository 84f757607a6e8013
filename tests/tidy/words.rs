//! The language of the code and of the documentation: words that hide what a thing is are refused, and a type has a name of its own
//! in its crate. `docs/glossary.md` has the words to use.

use std::{collections::BTreeMap, fs};

use crate::{files, root, sources};

/// Words and phrases that comments, names and pages do not use, with what to write instead.
const REFUSED: [(&str, &str); 11] = [
    ("told", "name the message, the request or the record"),
    ("heard", "received"),
    ("whoever", "name the component"),
    ("somebody", "name the component or the role"),
    ("nobody", "name the component or the role"),
    ("lap", "iteration"),
    ("laps", "iterations"),
    ("so many", "name the parameter"),
    ("gone on from", "continued"),
    ("sign of life", "heartbeat"),
    ("signs of life", "heartbeats"),
];

/// Where a refused word is right: a part of the path, and a part of the line.
const EXCEPTIONS: [(&str, &str); 9] = [
    // Stored and public names that stay as they are.
    ("", "lap_started"),
    ("", "laps:"),
    ("crates/models/src/scripted", "`laps`"),
    // What the model reads of a call whose outcome is unknown: stored content.
    ("crates/kernel/tests/scripts", "nobody knows whether this call took effect"),
    // The rule itself.
    ("CONTRIBUTING.md", "\"somebody\" or \"whoever\""),
    // The program of the bench and its scripts.
    ("bench/", "laps"),
    ("docs/", "`laps`"),
    // The system user that owns the files of a PostgreSQL server in tests.
    ("tests/src/postgres.rs", "NOBODY"),
    ("tests/src/postgres.rs", "\"nobody\""),
];

/// Types that stand for the same thing in parallel modules, where the module says of which: the two databases, and the wire formats of the
/// providers.
const PARALLEL: [(&str, &[&str]); 2] =
    [("store", &["Deltas", "Member", "Opened", "Readers", "Request", "Writer"]), ("models", &["Answer", "Call", "Tokens"])];

fn is_excepted(path: &str, line: &str) -> bool {
    EXCEPTIONS.iter().any(|(part, text)| path.contains(part) && line.contains(text))
}

/// A line without the contents of its string literals. Literals over several lines are not recognised.
fn without_literals(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let (mut is_literal, mut is_escaped) = (false, false);
    for character in line.chars() {
        match character {
            '"' if !is_escaped => {
                is_literal = !is_literal;
                out.push(character);
            }
            _ if !is_literal => out.push(character),
            _ => {}
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    out
}

/// The words of a line, in lower case: parts of names count as words.
fn words(line: &str) -> String {
    let mut out = String::from(" ");
    let mut is_lower = false;
    for character in line.chars() {
        if !character.is_alphanumeric() {
            if !out.ends_with(' ') {
                out.push(' ');
            }
            is_lower = false;
            continue;
        }
        if character.is_uppercase() && is_lower {
            out.push(' ');
        }
        is_lower = character.is_lowercase();
        out.extend(character.to_lowercase());
    }
    out.push(' ');
    out
}

fn refused(line: &str) -> Vec<&'static str> {
    let words = words(line);
    let found = REFUSED.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
    found.map(|(word, _)| *word).collect()
}

fn complain(faults: &BTreeMap<&'static str, Vec<String>>) {
    let mut text = String::new();
    for (word, places) in faults {
        let instead = REFUSED.iter().find(|(refused, _)| refused == word).map_or("", |(_, instead)| instead);
        text.push_str(&format!("\"{word}\" ({instead}):\n  {}\n", places.join("\n  ")));
    }
    assert!(faults.is_empty(), "words that docs/glossary.md replaces:\n{text}");
}

#[test]
fn comments_and_names_use_the_words_of_the_glossary() {
    let mut faults: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (path, text) in sources(&root()) {
        let path = path.strip_prefix(root()).expect("a file of the workspace").to_string_lossy().into_owned();
        if path == "tests/tidy/words.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            // Lines of a text over several lines, such as a configuration, have no code on them.
            let checked = if line.starts_with("//") { line.to_owned() } else { without_literals(line) };
            for word in refused(&checked) {
                if !is_excepted(&path, line) {
                    faults.entry(word).or_default().push(format!("{path}:{}: {line}", number + 1));
                }
            }
        }
    }
    complain(&faults);
}

#[test]
fn pages_use_the_words_of_the_glossary() {
    let mut faults: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for path in files(&root()) {
        let name = path.strip_prefix(root()).expect("a file of the workspace").to_string_lossy().into_owned();
        // Decisions are records of their time; the page of requirements is made from the names of tests.
        if !name.ends_with(".md") || name.starts_with("docs/decisions/") || name == "docs/requirements.md" || name.starts_with("bench/") {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).expect("a page is UTF-8").lines().enumerate() {
            for word in refused(line) {
                // Names of tests are checked where the tests are.
                if !is_excepted(&name, line) && !line.contains("`tm_") {
                    faults.entry(word).or_default().push(format!("{name}:{}: {line}", number + 1));
                }
            }
        }
    }
    complain(&faults);
}

#[test]
fn a_type_has_a_name_of_its_own_in_its_crate() {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (path, text) in sources(&root().join("crates")) {
        let path = path.strip_prefix(root()).expect("a file of the workspace").to_string_lossy().into_owned();
        let Some((crate_, "src")) = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
            .map(|(name, rest)| (name.to_owned(), rest.split('/').next().unwrap_or_default()))
        else {
            continue;
        };
        for line in text.lines() {
            let rest = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) ")).or_else(|| line.strip_prefix("pub "));
            let mut parts = rest.unwrap_or(line).split(|character: char| !character.is_alphanumeric() && character != '_');
            if let (Some("struct" | "enum" | "trait" | "union"), Some(name)) = (parts.next(), parts.next()) {
                places.entry((crate_.clone(), name.to_owned())).or_default().push(path.clone());
            }
        }
    }
    assert!(places.len() > 500, "types are found");
    let twice: Vec<String> = places
        .iter()
        .filter(|((crate_, name), files)| {
            files.len() > 1 && !PARALLEL.iter().any(|(of, names)| crate_ == of && names.contains(&name.as_str()))
        })
        .map(|((crate_, name), files)| format!("{crate_}: {name} in {}", files.join(", ")))
        .collect();
    assert!(twice.is_empty(), "types with the name of another type of their crate:\n{}", twice.join("\n"));
}

#[test]
fn words_are_found_in_comments_and_names_and_not_in_literals() {
    assert_eq!(refused("// Whoever reads this is told."), ["told", "whoever"]);
    assert_eq!(refused("fn next_lap(laps: u32) -> SoMany"), ["lap", "laps", "so many"]);
    assert_eq!(refused(&without_literals(r#"let text = "nobody \" told";"#)), [""; 0]);
    assert_eq!(refused("overlapping collapse"), [""; 0]);
}
