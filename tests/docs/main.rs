//! Executes the blocks of README and of the user documentation against the real binary, so that the pages can't show a command that fails.
//!
//! The info string of a block selects what the test does with it. A block with any other info string fails the test:
//!
//! | info string | what is done |
//! |---|---|
//! | `sh`, `python`, `js` | run to its end, in a folder of the page; it must succeed |
//! | `sh server` | starts the server of the page, in place of the one before, and waits until it serves |
//! | `sh background` | started, and ended with the page |
//! | `yaml` | a configuration: a server is started with it |
//! | `yaml file=NAME`, `python file=NAME`, `js file=NAME` | written to the folder; a later block must use it. `windlass.yaml` is checked as a configuration too |
//! | `text` | what the block before it prints: `…` stands for any text, a line with nothing else for any lines |
//! | `sh no-run`, `ini no-run`, `nginx no-run` | only parsed, because it needs another machine, the network or a service |
//!
//! Variables that a block exports are set in the later blocks of a page, as in one terminal. `cargo run --release --` stands for the binary
//! under test, and the default port for a free one. The folder of `examples/README.md` has the files beside that page.

mod block;
mod output;
mod page;
mod process;

use std::path::{Path, PathBuf};

use block::{Action, Block};

/// The pages whose blocks are executed.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/sdks.md",
    "docs/tool-worker.md",
    "docs/offline-model.md",
    "docs/operating.md",
    "docs/recipes.md",
    "examples/README.md",
];

/// The folder whose files the blocks of its page use.
const EXAMPLES: &str = "examples";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").to_owned()
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Defines one test per page, so that the pages run in parallel.
macro_rules! pages {
    ($($name:ident: $index:literal),+ $(,)?) => {
        $(#[tokio::test] async fn $name() { page::run(PAGES[$index]).await; })+
    };
}

pages! {
    readme: 0,
    sdks: 1,
    tool_worker: 2,
    offline_model: 3,
    operating: 4,
    recipes: 5,
    examples_folder: 6,
}

#[test]
fn files_of_one_name_are_equal_on_all_pages() {
    let mut seen: Vec<(String, Block)> = Vec::new();
    for block in PAGES.iter().flat_map(|page| block::parse(page, &text_of(page))) {
        let Action::Write { name, .. } = &block.action else { continue };
        let name = name.clone();
        if !name.ends_with(".py") {
            continue;
        }
        match seen.iter().find(|(known, _)| *known == name) {
            Some((_, first)) => assert_eq!(first.text, block.text, "{name} differs between {} and {}", first.place(), block.place()),
            None => seen.push((name, block)),
        }
    }
    assert!(!seen.is_empty(), "the pages show a worker");
}

#[test]
fn links_lead_to_files_and_the_index_lists_every_page() {
    for page in PAGES.into_iter().chain(["docs/README.md"]) {
        let folder = root().join(page).parent().expect("a page has a folder").to_owned();
        for target in links(&text_of(page)) {
            assert!(folder.join(&target).exists(), "{page} links to {target}, which is not there");
        }
    }
    let index = text_of("docs/README.md");
    for entry in std::fs::read_dir(root().join("docs")).expect("there are pages") {
        let name = entry.expect("an entry can be read").file_name().to_string_lossy().into_owned();
        assert!(name == "README.md" || index.contains(&format!("({name})")), "docs/README.md does not list {name}");
    }
}

#[test]
fn every_example_is_run_by_its_page() {
    let page = format!("{EXAMPLES}/README.md");
    let blocks: String = block::parse(&page, &text_of(&page)).into_iter().map(|block| block.text).collect();
    let table = text_of(&page);
    let config = text_of(&format!("{EXAMPLES}/windlass.yaml"));
    for name in examples() {
        assert!(table.contains(&format!("| `{name}` |")), "{page} has no line for {name}");
        // The server reads its configuration by itself, and starts the programs that are in it.
        let is_run = name == "windlass.yaml" || blocks.contains(&name) || config.contains(&name);
        assert!(is_run, "no block of {page} runs {name}");
    }
}

/// The names of the examples. Other files beside their page are left from a contributor's own trial.
fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(root().join(EXAMPLES)).expect("there are examples");
    let names = entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned());
    names.filter(|name| [".py", ".mjs", ".yaml"].iter().any(|extension| name.ends_with(extension))).collect()
}

/// The files that a page links to, without the part after `#`.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    files.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
}
