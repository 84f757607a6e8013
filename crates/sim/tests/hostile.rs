//! Reads the corpus of the fuzz targets again.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use windlass_sim::hostile::TARGETS;

/// The size limit of the whole corpus: enough for what matters, and not too much for a repository.
const CORPUS_BYTES_MAX: u64 = 300 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = corpus().join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a folder can be read").path()).collect();
    files.sort();
    files
}

#[test]
fn no_input_of_the_corpus_breaks_what_reads_it() {
    let mut counts = Vec::new();
    for (name, read) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() >= 10, "the corpus of {name} is lost: {}", inputs.len());
        let mut taken = 0;
        for input in &inputs {
            let bytes = fs::read(input).expect("an input can be read");
            let outcome = std::panic::catch_unwind(|| read(&bytes));
            let is_taken = outcome.unwrap_or_else(|_| panic!("{} breaks {name}", input.display()));
            taken += usize::from(is_taken);
        }
        assert!(taken >= 5, "the corpus of {name} leads nowhere: {taken} inputs were taken for what they are meant to be");
        counts.push(format!("{} {name}", inputs.len()));
    }
    // Writes to stdout directly, because the test harness shows printed lines only when a test fails.
    let _ = writeln!(std::io::stdout(), "hostile input: {} replayed", counts.join(", "));
}

#[test]
fn the_corpus_is_small_and_every_target_has_one() {
    let folders = fs::read_dir(corpus()).expect("there is a corpus").count();
    assert_eq!(folders, TARGETS.len(), "every target has a corpus, and every corpus a target");
    let size = |file: &PathBuf| fs::metadata(file).expect("an input is a file").len();
    let bytes: u64 = TARGETS.iter().flat_map(|(name, _)| inputs(name)).map(|file| size(&file)).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "the corpus has {bytes} bytes; `cargo fuzz cmin` makes it smaller");
}
