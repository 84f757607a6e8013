//! Nothing is told before it is on disk.
//!
//! A killed process keeps what it wrote, flushed or not: the kernel has it. Only a machine that loses its power shows the
//! difference, so this is read from the system calls themselves. The server is asked one thing after another, and the model is
//! held back, so that no commit is under way while another is being announced.

use std::{collections::BTreeMap, io::Write, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, SseEvent, SseStream};

use crate::trace;

const TRACED: &str = "trace=read,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync";

/// The trace's file, beside the configuration.
const TRACE: &str = "trace.txt";

/// Has everything announced that can be, and reads from the trace whether it was flushed before.
pub async fn run() {
    let has_strace = Command::new("strace").arg("-V").output().is_ok_and(|out| out.status.success());
    assert!(has_strace, "this test needs strace; install it (apt-get install strace), it is not skipped");
    let calls = trace::parse(&traced_story().await);
    let told = trace::announcements(&calls);
    let violations = trace::violations(&calls, &told);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    told.iter().for_each(|told| *counts.entry(&told.what).or_default() += 1);
    for what in trace::ASKED.into_iter().chain(["event", "model"]) {
        assert!(counts.contains_key(what), "no {what} was seen in the trace: {counts:?}");
    }
    let flushes = calls.iter().filter(|call| call.is_flush()).count();
    let mut lines: String = violations.iter().map(|violation| format!("    {violation}\n")).collect();
    lines.push_str(&format!("announcements: {counts:?}, flushes of the log: {flushes}\n"));
    lines.push_str(&format!("announcements checked: {}, violations: {}\n", told.len(), violations.len()));
    std::io::stderr().lock().write_all(lines.as_bytes()).expect("the figures are printed");
    assert!(violations.is_empty(), "something was told before it was on disk");

    // The checker would see it: without its flushes, the same trace is wrong everywhere.
    let unflushed: Vec<trace::Call> = calls.iter().filter(|call| !call.is_flush()).cloned().collect();
    assert_eq!(trace::violations(&unflushed, &told).len(), told.len(), "a server that never flushes is caught at every announcement");
}

/// The server under strace. The process below strace is ended when this is dropped, since strace would leave it running.
struct Traced {
    server: Server,
    below: Option<Pid>,
}

impl Traced {
    async fn start(config: &str) -> Self {
        let builder = ServerBuilder::new(config);
        let path = builder.folder().join(TRACE).to_string_lossy().into_owned();
        let strace = ["strace", "-f", "-ttt", "-y", "-s", "256", "-e", TRACED, "-o", &path];
        let server = builder.under(&strace).start().await;
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        let children = std::fs::read_to_string(children).expect("the processes below strace can be listed");
        let below = children.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        assert!(below.is_some(), "there is a server below strace");
        Traced { server, below }
    }

    /// Ends it, and returns the trace.
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

/// The trace of a server that was asked for everything.
async fn traced_story() -> String {
    let calls = vec![("lookup", json!({ "item": 1 })), ("charge", json!({ "cents": 100 }))];
    let model = FakeModel::held_back(vec![Scene::Call(calls), Scene::Say("done")]).await;
    let config = format!(
        "{}server: {{ drain_s: 0 }}\nlimits: {{ sweep_interval: 50ms }}
tools: {{ external: [ {{ name: lookup, effect: read }}, {{ name: charge, effect: write }} ] }}
agents: {{ agent: {{ tools: [lookup, charge] }} }}\n",
        model.config()
    );
    let traced = Traced::start(&config).await;
    let events = traced.server.events("agent", None).await;
    let mut story = Story { server: &traced.server, model: &model, events, asked: 0 };
    story.whole_turn().await;
    story.action().await;
    story.stops().await;
    traced.stop().await
}

/// One thing after another: the next is asked when everybody has heard of the last.
struct Story<'a> {
    server: &'a Server,
    model: &'a FakeModel,
    events: SseStream,
    asked: usize,
}

impl Story<'_> {
    async fn post(&self, path: &str, body: Value) -> Value {
        self.server.post(path, body).await.ok()
    }

    /// Waits until the reader has heard of an activity, or of a status.
    async fn heard(&mut self, word: &str) {
        self.events.read_until(|event| is_about(event, word)).await;
    }

    /// Waits until the model is asked once more and everybody knows.
    async fn thinking(&mut self) {
        self.asked += 1;
        self.model.asked_times(self.asked).await;
        self.heard("thinking").await;
    }

    async fn enqueue(&mut self) -> String {
        self.server.enqueue("agent", "go on").await
    }

    async fn whole_turn(&mut self) {
        let run = self.enqueue().await;
        self.thinking().await;
        self.model.let_answer();
        self.heard("awaiting_tool_result").await;
        let lookup = self.server.claim("lookup").await;
        let named = json!([{ "agent_turn_id": lookup["agent_turn_id"], "tool_call_id": lookup["tool_call_id"] }]);
        self.post("/v1/tools/lookup/renew", json!({ "worker": "w1", "lease_s": 90, "calls": named })).await;
        self.post("/v1/tools/lookup/release", json!({ "worker": "w1", "calls": named })).await;
        let lookup = self.server.claim("lookup").await;
        self.server.report(&lookup, json!({ "seen": true })).await.ok();
        self.heard("awaiting_tool_result").await;
        // A worker dies with a write in its hands, and a person lets it run again.
        let cut = self.post("/v1/tools/charge/claim", json!({ "worker": "doomed", "max": 1, "lease_s": 1 })).await;
        self.heard("parked_tool_call_id").await;
        let call = &cut["calls"][0]["tool_call_id"];
        self.post("/v1/windlass/reconcile", json!({ "run_id": run, "tool_call_id": call, "action": "release" })).await;
        self.heard("awaiting_tool_result").await;
        let charge = self.server.claim("charge").await;
        self.server.report(&charge, json!({ "paid": true })).await.ok();
        self.thinking().await;
        self.model.let_answer();
        self.heard("idle").await;
    }

    async fn action(&mut self) {
        self.post("/v1/agents/agent/actions", json!({ "action_id": "a1", "tool": "lookup", "args": {} })).await;
        self.heard("awaiting_tool_result").await;
        let lookup = self.server.claim("lookup").await;
        self.server.report(&lookup, json!({ "seen": true })).await.ok();
        self.heard("idle").await;
    }

    /// A run is stopped while it waits its turn, another while it thinks.
    async fn stops(&mut self) {
        let thinking = self.enqueue().await;
        self.thinking().await;
        let queued = self.enqueue().await;
        for run in [queued, thinking] {
            self.post("/v1/agents/agent/stop", json!({ "agent_turn_id": run, "reason": "enough" })).await;
        }
        self.heard("idle").await;
        self.heard("idle").await;
    }
}

fn is_about(event: &SseEvent, word: &str) -> bool {
    let metadata = &event.data["metadata"];
    event.event.ends_with(".state") && (event.data["status"] == word || metadata["activity"] == word || metadata.get(word).is_some())
}
