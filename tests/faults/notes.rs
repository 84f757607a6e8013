//! Writes that the servers execute themselves: notes at an MCP server, requested as responses. The MCP server outlives every fault, and its
//! records show how often each call was really started.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{McpManners, McpServer};

use crate::{cluster::Roads, say};

/// The tool that writes.
const WRITE: &str = "write_note";
/// The duration of a write: long enough that faults interrupt some writes.
const WRITE_MS: u64 = 600;
/// The number of concurrent writers.
const WRITERS: usize = 9;
/// This many notes are in progress before a fault that is meant to interrupt one, at any server.
const BUSY: usize = 6;
/// The polling interval of each writer.
const LOOK: Duration = Duration::from_millis(100);
/// The time after which a response counts as wedged.
const PATIENCE: Duration = Duration::from_secs(60);

/// The MCP server, and the requested responses.
pub struct Notes {
    server: McpServer,
    /// The runs of acknowledged responses.
    runs: Mutex<Vec<String>>,
    wrong: Mutex<Vec<String>>,
}

impl Notes {
    /// Starts the MCP server. No response is requested yet.
    pub async fn start() -> Self {
        let server = McpServer::with(McpManners { write_ms: WRITE_MS, ..McpManners::default() }).await;
        Notes { server, runs: Mutex::default(), wrong: Mutex::default() }
    }

    /// The configuration for the servers. It comes before all other configuration.
    pub fn config(&self) -> String {
        format!("  mcp: [ {{ label: notes, url: '{}' }} ]\n", self.server.url)
    }

    /// Requests one response after the other until this moment, and waits for the end of each.
    pub async fn ask_until(&self, roads: &Roads, until: Instant) {
        let writer = async |writer: usize| {
            let mut number = 0;
            while Instant::now() < until {
                self.ask(roads, &format!("note-{writer}-{number}")).await;
                number += 1;
            }
        };
        join_all((0..WRITERS).map(writer)).await;
    }

    /// Waits until `BUSY` notes are in progress, so that almost every server has one, or until the writers stop.
    pub async fn busy(&self, until: Instant) {
        while self.server.running(WRITE) < BUSY && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&self, roads: &Roads, key: &str) {
        let tools = json!([{ "type": "mcp", "server_label": "notes" }]);
        let body = json!({ "model": "script", "input": "note", "background": true, "tools": tools });
        let id = roads.post("/v1/responses", &body, Some(key)).await.ok()["id"].as_str().expect("a response has an id").to_owned();
        let run = id.replace("resp_", "run_");
        self.runs.lock().expect("the lock is not poisoned").push(run.clone());
        let began = Instant::now();
        loop {
            let view = roads.get(&format!("/v1/windlass/runs/{run}")).await;
            if view["status"] == "ended" {
                break;
            }
            if began.elapsed() > PATIENCE {
                return self.complain(format!("{run} ({key}) is wedged: {view}"));
            }
            self.decide(roads, &run, &view).await;
            tokio::time::sleep(LOOK).await;
        }
        let again = roads.post("/v1/responses", &body, Some(key)).await.ok();
        if again["id"] != id.as_str() || again["status"] != "completed" {
            self.complain(format!("{key} became {id} and then {again}"));
        }
    }

    /// A person looks at the MCP server's records: a write that was executed is recorded, another one is released.
    async fn decide(&self, roads: &Roads, run: &str, view: &Value) {
        let open = view["calls"]["open"].as_array().cloned().unwrap_or_default();
        let parked = open.iter().filter(|call| call["progress"] == "parked").map(|call| {
            let id = &call["tool_call_id"];
            match self.starts().contains_key(id.as_str().unwrap_or_default()) {
                true => json!({ "run_id": run, "tool_call_id": id, "action": "record", "status": "success", "result": "in the book" }),
                false => json!({ "run_id": run, "tool_call_id": id, "action": "release" }),
            }
        });
        let resumed = view["parked"].is_string().then(|| json!({ "run_id": run, "action": "resume" }));
        for decision in parked.chain(resumed) {
            let answer = roads.once(&Method::POST, "/v1/windlass/reconcile", Some(&decision), None).await;
            if answer.as_ref().is_some_and(|answer| answer.status != 200 && answer.status != 409) {
                self.complain(format!("{decision} was answered with {answer:?}"));
            }
        }
    }

    /// The number of starts of each call.
    fn starts(&self) -> BTreeMap<String, usize> {
        let mut starts = BTreeMap::new();
        for start in self.server.starts(WRITE) {
            *starts.entry(start.call_id.unwrap_or_default()).or_default() += 1;
        }
        starts
    }

    fn complain(&self, what: String) {
        self.wrong.lock().expect("the lock is not poisoned").push(what);
    }

    /// Everything that is wrong: each response ended with its one note, which was started once, and once more for each time that a person
    /// released it.
    pub async fn check(&self, roads: &Roads) -> Vec<String> {
        let runs = self.runs.lock().expect("the lock is not poisoned").clone();
        let starts = self.starts();
        let (mut known, mut parked) = (BTreeSet::new(), 0);
        for run in &runs {
            let path = format!("/v1/windlass/runs/{run}");
            let status = roads.get(&path).await["task_status"].clone();
            let journal = roads.get(&format!("{path}/journal?limit=1000")).await;
            let events = || journal["entries"].as_array().into_iter().flatten().map(|entry| &entry["event"]);
            let calls = roads.get(&format!("{path}/calls?limit=1000")).await["calls"].clone();
            let id = calls[0]["tool_call_id"].as_str().unwrap_or_default().to_owned();
            let count = |kind: &str| events().filter(|event| event["kind"] == kind && event["call"] == calls[0]["number"]).count();
            let is_release = |event: &&Value| event["call"] == calls[0]["number"] && event["verdict"] == "released";
            let released = events().filter(is_release).count();
            let (started, reported) = (starts.get(&id).copied().unwrap_or_default(), count("reported"));
            parked += count("interrupted");
            let is_one = calls.as_array().is_some_and(|calls| calls.len() == 1);
            if status != "success" || !is_one || calls[0]["effect"] != "write" || reported != 1 || count("lease_ended") != 0 {
                self.complain(format!("{run} ended with {status}, its write was reported {reported} times: {calls}"));
            }
            if started == 0 || started > 1 + released {
                self.complain(format!("the note {id} was started {started} times, and released {released} times"));
            }
            known.insert(id);
        }
        for id in starts.keys().filter(|id| !known.contains(*id)) {
            self.complain(format!("the note {id} was started without a request"));
        }
        // A fault that interrupts no write shows nothing about writes.
        if parked == 0 {
            self.complain("no note was ever cut short".to_owned());
        }
        say(&format!("notes written by the servers: {}, {parked} of them parked", runs.len()));
        self.wrong.lock().expect("the lock is not poisoned").clone()
    }
}
