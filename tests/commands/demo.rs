//! `windlass demo` plays through, and leaves no files or processes behind, however it ends.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{is_there, names, send, windlass};

/// The time limit of the demo.
const AT_MOST: Duration = Duration::from_secs(20);

/// An empty working folder, and a folder for temporary files.
struct Folders {
    here: TempDir,
    temporary: TempDir,
}

impl Folders {
    fn new() -> Self {
        Folders { here: TempDir::new().expect("a folder"), temporary: TempDir::new().expect("a folder") }
    }

    fn start(&self, env: &[(&str, &str)]) -> Child {
        let mut command = windlass(self.here.path(), &["demo"]);
        command.env("TMPDIR", self.temporary.path()).envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the demo starts")
    }

    fn assert_empty(&self) {
        assert_eq!(names(self.here.path()), [""; 0], "the folder it ran in");
        assert_eq!(names(self.temporary.path()), [""; 0], "the folder of temporary files");
    }
}

/// The process ids in the demo's output.
fn pids(printed: &str) -> Vec<u32> {
    let started = printed.lines().filter_map(|line| line.trim().strip_prefix("process ")?.split_once(',')?.0.parse().ok());
    started.collect()
}

#[test]
fn the_demo_plays_in_an_empty_folder_and_leaves_nothing_behind() {
    let folders = Folders::new();
    let began = Instant::now();
    let out = folders.start(&[]).wait_with_output().expect("the demo ends");
    let took = began.elapsed();
    let printed = String::from_utf8(out.stdout).expect("the story is text");
    assert!(out.status.success(), "{printed}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(took < AT_MOST, "it took {took:?}");
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "a story without trouble");
    for part in [
        "kill -9, in the middle of the text",
        "starting_after=",
        "The first event came after",
        "ok     the stream went on with the next number",
        "ok     every number came once, in order",
        "ok     the response is completed",
        "ok     the text is whole",
        "ok     look_up was called once and ran once",
        "ok     send_note was called once and ran once",
        "Nothing was lost and nothing ran twice.",
    ] {
        assert!(printed.contains(part), "{part:?} is missing:\n{printed}");
    }
    let pids = pids(&printed);
    assert_eq!(pids.len(), 2, "two servers: {printed}");
    assert!(!pids.into_iter().any(is_there), "a server is left: {printed}");
    folders.assert_empty();
}

#[test]
fn an_interrupted_demo_cleans_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let folders = Folders::new();
        let mut demo = folders.start(&[]);
        let mut printed = String::new();
        let mut out = BufReader::new(demo.stdout.take().expect("the story is read"));
        while pids(&printed).is_empty() {
            assert!(out.read_line(&mut printed).expect("the story is text") > 0, "it ended early: {printed}");
        }
        send(demo.id(), signal);
        out.read_to_string(&mut printed).expect("the story is text");
        let status = demo.wait().expect("the demo ends");
        assert_eq!(status.code(), Some(1), "it has not shown what it should: {printed}");
        assert!(!pids(&printed).into_iter().any(is_there), "a server is left: {printed}");
        assert!(!printed.contains("Nothing was lost"), "{printed}");
        folders.assert_empty();
    }
}

#[test]
fn a_demo_that_cannot_run_says_so() {
    let folders = Folders::new();
    let nowhere = folders.here.path().join("nowhere");
    let out = folders.start(&[("TMPDIR", &nowhere.to_string_lossy())]).wait_with_output().expect("the demo ends");
    assert_eq!(out.status.code(), Some(1));
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(error.contains("no temporary folder can be made") && error.contains("nowhere"), "{error}");
}

#[test]
fn the_demo_keeps_away_from_what_a_person_has_configured() {
    let folders = Folders::new();
    // Each of these would keep a server from starting.
    std::fs::write(folders.here.path().join("windlass.yaml"), "store: { url: nonsense }").expect("a configuration");
    let out = folders
        .start(&[("WINDLASS_STORE__URL", "postgres://127.0.0.1:1/none"), ("WINDLASS_CRASH_AT", "nonsense"), ("WINDLASS_LOG", "off")])
        .wait_with_output()
        .expect("the demo ends");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(folders.here.path()), ["windlass.yaml"]);
}
