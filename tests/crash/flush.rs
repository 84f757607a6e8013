//! The server reports nothing to the outside before it is on disk.
//!
//! The data of a killed process survives even without a flush, because the kernel has it. Only a power failure shows the difference, so
//! this test reads it from the system calls. One server gets one request after another, another server gets many at once, so that commits
//! share a flush.

mod at_once;
mod one_by_one;

use std::{collections::BTreeMap, io::Write, process::Command};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use windlass_tests::{Server, ServerBuilder};

use crate::trace::{self, Announcement, Call};

const TRACED: &str = "trace=read,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync";

/// The file of the trace, beside the configuration.
const TRACE: &str = "trace.txt";

/// Has the servers make every kind of announcement, and checks in the traces that each was flushed before.
pub async fn run() {
    let has_strace = Command::new("strace").arg("-V").output().is_ok_and(|out| out.status.success());
    assert!(has_strace, "this test needs strace; install it (apt-get install strace), it is not skipped");
    let (alone, crowded) = tokio::join!(one_by_one::trace(), at_once::trace());
    let (alone, crowded) = (trace::parse(&alone), trace::parse(&crowded));
    let (announcements, many) = (trace::announcements(&alone), with_marks(&trace::announcements(&crowded)));
    let marked = with_marks(&announcements);
    let every: Vec<&str> = trace::ASKED.into_iter().chain(trace::UNASKED).collect();
    let readings = [
        Reading { name: "one by one", calls: &alone, announcements: &announcements, kinds: &every, check: trace::violations },
        Reading { name: "one by one, marks", calls: &alone, announcements: &marked, kinds: &["response event"], check: trace::early_marks },
        Reading {
            name: "at once, marks",
            calls: &crowded,
            announcements: &many,
            kinds: &at_once::KINDS_WITH_MARKS,
            check: trace::early_marks,
        },
    ];
    let violations: usize = readings.iter().map(Reading::violations).sum();
    let shared = trace::marks_at_once(&crowded);
    say(&format!("at once: up to {shared} marks on disk with one flush\n"));
    say(&format!("announcements checked: {}, violations: {violations}\n", announcements.len() + many.len()));
    assert_eq!(violations, 0, "something was announced before it was on disk");
    assert!(shared > at_once::MARKS_MAX, "no two commits have shared a flush");
    readings.iter().for_each(Reading::would_notice);
}

/// The announcements of a trace, and the check for them.
struct Reading<'a> {
    name: &'a str,
    calls: &'a [Call],
    announcements: &'a [Announcement],
    /// The kinds of announcements that must be in the trace.
    kinds: &'a [&'a str],
    /// Finds the announcements that were made too early.
    check: fn(&[Call], &[Announcement]) -> Vec<String>,
}

impl Reading<'_> {
    /// The number of announcements of each kind.
    fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.announcements.iter().for_each(|announcements| *counts.entry(&announcements.what).or_default() += 1);
        counts
    }

    /// The number of announcements that were made too early.
    fn violations(&self) -> usize {
        let (name, counts) = (self.name, self.counts());
        for kind in self.kinds {
            assert!(counts.contains_key(kind), "{name}: no {kind} was seen in the trace: {counts:?}");
        }
        let flushes = self.calls.iter().filter(|call| call.is_flush()).count();
        let violations = (self.check)(self.calls, self.announcements);
        let lines: String = violations.iter().map(|violation| format!("    {violation}\n")).collect();
        say(&format!("{name}: {counts:?}, flushes of the log: {flushes}\n{lines}"));
        violations.len()
    }

    /// Shows that the check can fail: without its flushes, the same trace has violations of every kind.
    fn would_notice(&self) {
        let unflushed: Vec<Call> = self.calls.iter().filter(|call| !call.is_flush()).cloned().collect();
        for (kind, count) in self.counts() {
            let of_kind: Vec<Announcement> =
                self.announcements.iter().filter(|announcements| announcements.what == kind).cloned().collect();
            let found = (self.check)(&unflushed, &of_kind).len();
            assert_eq!(found, count, "{}: a server that never flushes is caught at every {kind}", self.name);
        }
    }
}

/// The announcements whose marks can be found in the log.
fn with_marks(announcements: &[Announcement]) -> Vec<Announcement> {
    announcements.iter().filter(|announcements| !announcements.marks.is_empty()).cloned().collect()
}

/// Reports a success for a claimed call with an idempotency key.
async fn report_under_a_key(server: &Server, call: &Value, result: &str) {
    let text = |field: &str| call[field].as_str().expect("a call names its run");
    let (turn, id) = (text("agent_turn_id"), text("tool_call_id"));
    let body = json!({ "agent_turn_id": turn, "tool_call_id": id, "status": "success", "result": result });
    let request = server.request(Method::POST, &format!("/v1/agents/{}/report", text("agent_id")));
    server.send(request.header("idempotency-key", id).json(&body)).await.ok();
}

fn say(lines: &str) {
    std::io::stderr().lock().write_all(lines.as_bytes()).expect("the figures are printed");
}

/// The server under strace. Dropping this ends the server too, because strace would leave it running.
struct Traced {
    server: Server,
    below: Option<Pid>,
}

impl Traced {
    /// Starts the server. strace records whole pages of the log and whole messages.
    async fn start(config: &str) -> Self {
        let builder = ServerBuilder::new(config);
        let path = builder.folder().join(TRACE).to_string_lossy().into_owned();
        let strace = ["strace", "-f", "-ttt", "-y", "-s", "8192", "-e", TRACED, "-o", &path];
        let server = builder.under(&strace).start().await;
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        let children = std::fs::read_to_string(children).expect("the processes below strace can be listed");
        let below = children.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        assert!(below.is_some(), "there is a server below strace");
        Traced { server, below }
    }

    /// Ends the server and returns the trace.
    async fn stop(mut self) -> String {
        if let Some(below) = self.below.take() {
            kill_process(below, Signal::TERM).expect("the signal arrives");
        }
        self.server.gone().await;
        std::fs::read_to_string(self.server.folder().join(TRACE)).expect("strace has written the trace")
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(below) = self.below.take() {
            let _ = kill_process(below, Signal::KILL);
        }
    }
}
