//! Which crate may know which, what the kernel must never touch, and how large a file may get.

use std::{collections::BTreeSet, fs};

use crate::{root, sources};

/// The edges between crates; there are no others.
const EDGES: [(&str, &[&str]); 9] = [
    ("kernel", &[]),
    ("ports", &["kernel"]),
    ("store", &["kernel", "ports"]),
    ("models", &["kernel", "ports"]),
    ("tools", &["kernel", "ports"]),
    ("engine", &["kernel", "ports"]),
    ("doors", &["kernel", "ports", "engine"]),
    ("windlass", &["kernel", "ports", "store", "models", "tools", "engine", "doors"]),
    // Development only: it sees everything but the binary, and nothing sees it.
    ("sim", &["kernel", "ports", "store", "models", "tools", "engine", "doors"]),
];

/// Words that would end the kernel's purity.
const IMPURE: [&str; 9] = ["std::time::", "tokio::", "async fn", "HashMap", "HashSet", "rand::", "std::fs", "std::net", "std::thread"];

#[test]
fn crates_depend_only_in_the_one_direction() {
    for (name, allowed) in EDGES {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("every crate has a manifest");
        let own = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let used: BTreeSet<&str> =
            own.lines().filter_map(|line| line.strip_prefix("windlass-")).filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} depends on {:?}", used.difference(&allowed).collect::<Vec<_>>());
    }
    let crates = fs::read_dir(root().join("crates")).expect("there are crates").count();
    assert_eq!(crates, EDGES.len(), "a new crate needs a line in EDGES and a reason in ARCHITECTURE.md");
}

#[test]
fn the_kernel_is_pure() {
    for (path, text) in sources(&root().join("crates/kernel/src")) {
        for word in IMPURE {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn doors_never_touch_sql_and_the_kernel_never_hears_of_http() {
    for (path, text) in sources(&root().join("crates/doors/src")) {
        assert!(!text.contains("rusqlite") && !text.contains("SELECT "), "{} speaks SQL", path.display());
    }
    for (path, text) in sources(&root().join("crates/kernel/src")) {
        let words = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        assert!(!words.into_iter().any(|line| line.to_lowercase().contains("http")), "{} speaks HTTP", path.display());
    }
}

#[test]
fn there_is_one_queue() {
    let tables: Vec<String> = crate::files(&root().join("crates/store/migrations"))
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("a migration is text");
            let made = text.lines().filter_map(|line| line.trim().strip_prefix("CREATE TABLE "));
            made.map(|line| line.split(['(', ' ']).next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(tables.contains(&"inbox".to_owned()), "the inbox is the queue: {tables:?}");
    for second in ["jobs", "job", "queue", "tasks", "task_queue", "work", "events", "turns"] {
        assert!(!tables.contains(&second.to_owned()), "a second queue: {second}");
    }
}

#[test]
fn files_fit_in_the_head() {
    for (path, text) in sources(&root()) {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        let limit = if is_test { 800 } else { 500 };
        let lines = text.lines().count();
        assert!(lines <= limit, "{} has {lines} lines, {limit} fit in the head", path.display());
    }
}

/// The modules that a program of tests is made of.
fn modules(program: &str) -> BTreeSet<String> {
    let main = fs::read_to_string(root().join("tests").join(program).join("main.rs")).expect("a program of tests has a main file");
    main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).map(str::to_owned).collect()
}

#[test]
fn both_stores_are_asked_the_same() {
    // What runs on one store only, and where the reasons stand.
    let turns = ["only_sqlite", "only_postgres"];
    // How PostgreSQL flushes is not ours to trace: tests/crash_postgres/main.rs.
    let crash = ["flush", "trace"];
    // How much memory a server takes, and for how long it is kept waiting, is the doors' and not the store's.
    let responses = ["hostile_bodies", "hostile_peers"];
    let pairs: [(&str, &str, &[&str]); 4] = [
        ("turns", "turns_postgres", &turns),
        ("crash", "crash_postgres", &crash),
        ("responses", "responses_postgres", &responses),
        ("streams", "streams_postgres", &[]),
    ];
    for (sqlite, postgres, alone) in pairs {
        let (here, there) = (modules(sqlite), modules(postgres));
        let differ: BTreeSet<&str> = here.symmetric_difference(&there).map(String::as_str).collect();
        assert_eq!(differ, alone.iter().copied().collect::<BTreeSet<_>>(), "{sqlite} and {postgres} have the same modules but these");
    }
    for file in ["tests/turns/only_sqlite.rs", "tests/turns_postgres/only_postgres.rs"] {
        let text = fs::read_to_string(root().join(file)).expect("a source file is UTF-8");
        let is_numbered = |line: &str| ["c_0", "v_0", "f_0"].iter().any(|number| line.contains(&format!("fn {number}")));
        assert!(!text.lines().any(is_numbered), "{file}: a numbered requirement is shown on both stores");
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Written in halves, so that this file does not find itself.
    let marks = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME"), concat!("#[", "ignore")];
    for (path, text) in sources(&root()) {
        for mark in marks {
            assert!(!text.contains(mark), "{} has {mark}", path.display());
        }
    }
}

#[test]
fn the_ci_command_is_the_one_the_readme_prints() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("there is a CI script");
    assert!(ci.contains("scripts/test") && readme.contains("scripts/test"), "CI runs what the README prints");
}
