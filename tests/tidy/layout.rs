//! Which crate may depend on which, what the kernel must not use, and how long a file may be.

use std::{collections::BTreeSet, fs};

use crate::{root, sources};

/// The dependencies between crates; there are no others.
const EDGES: [(&str, &[&str]); 9] = [
    ("kernel", &[]),
    ("ports", &["kernel"]),
    ("store", &["kernel", "ports"]),
    ("models", &["kernel", "ports"]),
    ("tools", &["kernel", "ports"]),
    ("engine", &["kernel", "ports"]),
    ("doors", &["kernel", "ports", "engine"]),
    ("windlass", &["kernel", "ports", "store", "models", "tools", "engine", "doors"]),
    // Development only: it may use everything but the binary, and no crate uses it.
    ("sim", &["kernel", "ports", "store", "models", "tools", "engine", "doors"]),
];

/// Words that would make the kernel impure.
const IMPURE_WORDS: [&str; 8] = ["async fn", "async move", ".await", "HashMap", "HashSet", "now_v7", "new_v4", "SystemTime"];

/// Modules and crates that would make the kernel impure.
const IMPURE_PATHS: [&str; 10] =
    ["std::time", "std::fs", "std::net", "std::thread", "std::env", "std::process", "std::io", "std::sync::mpsc", "tokio", "rand"];

/// The tables of both databases. The inbox is the queue, and there is no second one.
const TABLES: [&str; 22] = [
    "answers",
    "box_rows",
    "boxes",
    "calls",
    "conversation_parts",
    "conversations",
    "deltas",
    "heads",
    "id_key",
    "inbox",
    "interrupts",
    "items",
    "manifests",
    "nodes",
    "outbox",
    "requests",
    "runs",
    "seal_canary",
    "stretches",
    "tenants",
    "usage",
    "usage_uncounted",
];

#[test]
fn crates_depend_only_in_the_one_direction() {
    for (name, allowed) in EDGES {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("every crate has a manifest");
        let used = dependencies(&manifest);
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let used: BTreeSet<&str> = used.iter().map(String::as_str).collect();
        assert!(used.is_subset(&allowed), "{name} depends on {:?}", used.difference(&allowed).collect::<Vec<_>>());
    }
    let crates = fs::read_dir(root().join("crates")).expect("there are crates").count();
    assert_eq!(crates, EDGES.len(), "a new crate needs a line in EDGES and a reason in ARCHITECTURE.md");
}

/// Our crates that a manifest names, anywhere in the file, outside of its dev-dependencies.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut counts = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            counts = section.split('.').any(|part| matches!(part, "dependencies" | "build-dependencies"));
            // `[dependencies.windlass-x]` names a crate in its header.
            let named = section.rsplit('.').next().and_then(|last| last.strip_prefix("windlass-")).filter(|_| counts);
            used.extend(named.map(str::to_owned));
        } else if counts && let Some(name) = line.strip_prefix("windlass-").and_then(|line| line.split(['.', ' ', '=']).next()) {
            used.insert(name.to_owned());
        }
    }
    used
}

#[test]
fn dependencies_are_found_wherever_they_are() {
    let manifest = "[dev-dependencies]\nwindlass-a.workspace = true\n[dependencies]\nwindlass-b = { path = \"b\" }\n\
        [target.'cfg(unix)'.dependencies]\nwindlass-c.workspace = true\n[dependencies.windlass-d]\npath = \"d\"\n\
        [build-dependencies]\nwindlass-e.workspace = true\n[dev-dependencies.windlass-f]\npath = \"f\"\n";
    assert_eq!(dependencies(manifest).into_iter().collect::<Vec<_>>(), ["b", "c", "d", "e"]);
}

/// The parts of a source file that would make the kernel impure.
fn impurities(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    let words = IMPURE_WORDS.iter().filter(|word| has_word(&code, word)).map(|word| (*word).to_owned());
    let named = IMPURE_PATHS.iter().filter(|path| code.contains(&format!("{path}::"))).map(|path| (*path).to_owned());
    let mut found: Vec<String> = words.chain(named).collect();
    let uses = code.split('\n').enumerate().filter(|(_, line)| line.trim_start().trim_start_matches("pub ").starts_with("use "));
    for (number, _) in uses {
        let rest: String = code.lines().skip(number).collect::<Vec<_>>().join(" ");
        let Some((_, tree)) = rest.split(';').next().unwrap_or_default().split_once("use ") else { continue };
        let mut paths = Vec::new();
        flatten("", tree, &mut paths);
        let is_within = |path: &String| IMPURE_PATHS.iter().any(|impure| path == impure || path.starts_with(&format!("{impure}::")));
        found.extend(paths.into_iter().filter(is_within));
    }
    found
}

/// Whether the code has this word. A longer identifier that begins with it does not count.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[at + word.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// Expands a tree of imports into its paths.
fn flatten(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim().split(" as ").next().filter(|_| !tree.contains('{')).unwrap_or(tree.trim());
    let Some((head, inside)) = tree.split_once('{') else {
        let path = format!("{before}{tree}");
        return paths.push(path.trim_start_matches("::").trim_end_matches("::self").to_owned());
    };
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside[from..at].trim();
                if !part.is_empty() {
                    flatten(&format!("{before}{}", head.trim()), part, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

#[test]
fn the_kernel_is_pure() {
    for (path, text) in sources(&root().join("crates/kernel/src")) {
        assert_eq!(impurities(&text), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn impurity_is_seen_however_it_is_written() {
    let impure = [
        "use std::{collections::BTreeMap, time::{Duration, Instant}};",
        "use std::{\n    fmt,\n    env,\n};",
        "use std::time;",
        "pub use std::{io::{self as streams}};",
        "use std::thread as work;",
        "let now = std::time::Instant::now();",
        "let home = std::env::var(\"HOME\");",
        "let id = Uuid::now_v7();",
        "let answer = call().await;",
        "use tokio::sync::mpsc;",
    ];
    for text in impure {
        assert!(!impurities(text).is_empty(), "{text}");
    }
    let pure = "//! No std::time here.\nself.awaits_summary();\nuse std::{collections::{BTreeMap, BTreeSet}, sync::Arc};\nuse crate::{ids::Timestamp, run::Run};";
    assert_eq!(impurities(pure), Vec::<String>::new());
}

#[test]
fn doors_never_touch_sql_and_the_kernel_never_mentions_http() {
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
    let migrations = root().join("crates/store/migrations");
    let (postgres, sqlite): (Vec<_>, Vec<_>) =
        crate::files(&migrations).into_iter().partition(|path| path.starts_with(migrations.join("postgres")));
    for (database, files) in [("SQLite", sqlite), ("PostgreSQL", postgres)] {
        let mut tables = BTreeSet::new();
        for path in files {
            let text = fs::read_to_string(path).expect("a migration is text");
            let made = text.lines().filter_map(|line| line.trim().split_once("TABLE ").filter(|(create, _)| create.starts_with("CREATE ")));
            tables
                .extend(made.filter_map(|(_, line)| line.trim_start_matches("IF NOT EXISTS ").split(['(', ' ']).next().map(str::to_owned)));
        }
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        assert_eq!(tables, TABLES, "{database}: a new table needs a line in TABLES, and must be no second queue");
    }
}

#[test]
fn files_are_short() {
    for (path, text) in sources(&root()) {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        let limit = if is_test { 800 } else { 500 };
        let lines = text.lines().count();
        assert!(lines <= limit, "{} has {lines} lines, {limit} fit in the head", path.display());
    }
}

/// The modules of a test program.
fn modules(program: &str) -> BTreeSet<String> {
    let main = fs::read_to_string(root().join("tests").join(program).join("main.rs")).expect("a program of tests has a main file");
    main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).map(str::to_owned).collect()
}

#[test]
fn both_stores_run_the_same_tests() {
    // Modules for one store only, which give their reasons.
    let turns = ["only_sqlite", "only_postgres"];
    // PostgreSQL flushes its own log, which we can't trace: tests/crash_postgres/main.rs.
    let crash = ["flush", "trace"];
    // The memory of a server and slow peers concern the doors and not the store.
    let responses = ["hostile_bodies", "hostile_peers"];
    // Only PostgreSQL allows several servers. On SQLite the databases of earlier versions are opened in tests/golden.
    let streams = ["nodes", "databases"];
    let pairs: [(&str, &str, &[&str]); 4] = [
        ("turns", "turns_postgres", &turns),
        ("crash", "crash_postgres", &crash),
        ("responses", "responses_postgres", &responses),
        ("streams", "streams_postgres", &streams),
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
    // Written in halves, so that this file does not match.
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
