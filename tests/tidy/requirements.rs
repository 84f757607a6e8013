//! `docs/requirements.md` is generated from the names of tests and checked here, so it can't claim what no test shows.
//!
//! `UPDATE_REQUIREMENTS=1 cargo test -p windlass-tests --test tidy` rewrites it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
};

use crate::{root, sources};

/// The requirements in force, and those that are deferred, with the reason.
const LAST_A: u32 = 46;
const LAST_C: u32 = 86;
const LAST_F: u32 = 19;
const LAST_V: u32 = 7;
const WAITING: [(&str, &str); 1] = [("C-30", "comes with child runs")];

/// The tests by the requirements in their names: `c_018_…` shows C-18.
fn tests_by_requirement() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources(&root()) {
        let file = path.strip_prefix(root()).expect("sources are below the root").display().to_string();
        for name in tests_in(&text) {
            for number in numbers_of(name) {
                found.entry(number).or_default().insert(format!("`{name}` in {file}"));
            }
        }
    }
    found
}

/// The names of functions that are executed as tests: those with the attribute above them, and the cases that the conformance suite lists.
pub(crate) fn tests_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(name) = conformance_case(trimmed) {
            names.push(name);
        } else if let Some(name) = function(line) {
            names.extend(is_test.then_some(name));
            is_test = false;
        } else if let Some(attribute) = trimmed.strip_prefix("#[") {
            is_test |= attribute.split(['(', ']']).next().is_some_and(|path| path == "test" || path.ends_with("::test"));
        } else if !trimmed.starts_with("//") && !trimmed.is_empty() {
            is_test = false;
        }
    }
    names
}

/// The name in a line such as `turns::a_case;`.
fn conformance_case(line: &str) -> Option<&str> {
    let (module, name) = line.strip_suffix(';')?.split_once("::")?;
    let is_name = |text: &str| text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (is_name(module) && is_name(name)).then_some(name)
}

#[test]
fn only_what_is_run_shows_a_requirement() {
    let text = "#[test]\nfn c_001_a() {}\nfn c_002_b() {}\n#[tokio::test(flavor = \"multi_thread\")]\n/// Why.\nasync fn c_003_c() {}\n\
        #[test]\nconst A: u8 = 1;\nfn c_004_d() {}\n#[expect(dead_code, reason = \"test\")]\nfn c_005_e() {}\nturns::c_006_f;\n";
    assert_eq!(tests_in(text), ["c_001_a", "c_003_c", "c_006_f"]);
}

/// The requirements at the beginning of a name, which may have several: `a_026_a_027_…`.
fn numbers_of(mut name: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    while let Some((letter, rest)) = name.split_at_checked(1) {
        let digits = rest.strip_prefix('_').and_then(|rest| rest.get(..3)).and_then(|digits| digits.parse::<u32>().ok());
        let Some(number) = digits.filter(|_| ["a", "c", "f", "v"].contains(&letter) && rest.get(4..5) == Some("_")) else { break };
        numbers.push(format!("{}-{number:02}", letter.to_uppercase()));
        name = &rest[5..];
    }
    numbers
}

/// What is wrong with the requirement numbers at the beginning of a name, if anything: `a_018_…` is one, `a_18_…` and `a_999_…` are none.
fn fault_of_numbers(mut name: &str) -> Option<String> {
    while let Some((letter, rest)) = name.split_once('_') {
        let (digits, rest) = rest.split_once('_')?;
        if letter.len() != 1 || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let last = match letter {
            "a" => LAST_A,
            "c" => LAST_C,
            "f" => LAST_F,
            "v" => LAST_V,
            // The promises of docs/guarantees.md, which have two digits.
            "s" => return None,
            _ => return Some(format!("there are no requirements {}", letter.to_uppercase())),
        };
        let number: u32 = digits.parse().unwrap_or(u32::MAX);
        if digits.len() != 3 || !(1..=last).contains(&number) {
            return Some(format!("a requirement {} has three digits and is at most {last:03}", letter.to_uppercase()));
        }
        name = rest;
    }
    None
}

#[test]
fn numbers_of_tests_are_those_of_requirements() {
    let faults = |text: &str| tests_in(text).into_iter().filter_map(|name| Some(format!("{name}: {}", fault_of_numbers(name)?))).collect();
    let found: Vec<String> = sources(&root()).iter().flat_map(|(_, text)| -> Vec<String> { faults(text) }).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(fault_of_numbers("a_018_f_019_calls_run"), None);
    for name in ["a_18_calls", "a_047_calls", "c_000_calls", "x_001_calls", "c_001_f_20_calls"] {
        assert!(fault_of_numbers(name).is_some(), "{name}");
    }
}

/// The name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub ").unwrap_or(line.trim_start());
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

fn table() -> (String, usize, Vec<String>) {
    let found = tests_by_requirement();
    let decisions = fs::read_to_string(root().join("docs/decisions/0004-faults-of-the-original.md")).unwrap_or_default();
    let numbers = |letter: char, last: u32| (1..=last).map(move |n| format!("{letter}-{n:02}"));
    let wanted = numbers('A', LAST_A).chain(numbers('C', LAST_C)).chain(numbers('V', LAST_V)).chain(numbers('F', LAST_F));
    let mut text =
        String::from("# Requirements\n\nMade from the names of tests by `tests/tidy/requirements.rs`; never edited by hand.\n\n");
    text.push_str("| number | state | shown by |\n|---|---|---|\n");
    let (mut shown, mut missing) = (0, Vec::new());
    for number in wanted {
        let tests = found.get(&number);
        let waits = WAITING.iter().find(|(waiting, _)| *waiting == number).map(|(_, reason)| *reason);
        let decided = decisions.contains(&format!("| {number} | cannot exist |"));
        let (state, by) = match (tests, waits) {
            (Some(tests), _) => ("tested", tests.iter().cloned().collect::<Vec<_>>().join("<br>")),
            (None, Some(reason)) => ("waits", reason.to_owned()),
            (None, None) if decided => ("cannot exist", "docs/decisions/0004-faults-of-the-original.md".to_owned()),
            (None, None) => {
                missing.push(number.clone());
                ("open", String::new())
            }
        };
        shown += usize::from(state == "tested" || state == "cannot exist");
        let _ = writeln!(text, "| {number} | {state} | {by} |");
    }
    (text, shown, missing)
}

#[test]
fn the_list_of_requirements_is_true() {
    let (text, shown, missing) = table();
    let path = root().join("docs/requirements.md");
    if std::env::var_os("UPDATE_REQUIREMENTS").is_some() {
        fs::write(&path, &text).expect("the list can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(missing.is_empty(), "no test shows {missing:?}");
    assert_eq!(written, text, "docs/requirements.md is stale; run with UPDATE_REQUIREMENTS=1");
    let total = (LAST_A + LAST_C + LAST_F + LAST_V) as usize;
    // Written to the terminal directly, because the test runner would capture it.
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("requirements: {shown} of {total} shown\n").as_bytes());
}
