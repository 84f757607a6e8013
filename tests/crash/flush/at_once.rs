//! Many requests at once, so that commits share a flush. Marks show which data each announcement contains.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Mode, PendingResponse, Scene, Server, Speech};

use super::{Traced, report_under_a_key};
use crate::trace::mark;

/// The number of concurrent agents and of concurrent responses.
const AGENTS: usize = 4;
const RESPONSES: usize = 8;
const RUNS: usize = AGENTS + RESPONSES;

/// The largest number of marks in one commit: a run streams two words.
pub const MARKS_MAX: usize = 2;

/// The announcements that contain marks.
pub const KINDS_WITH_MARKS: [&str; 8] = ["enqueue", "actions", "claim", "report under a key", "boxes", "response event", "model", "tool"];

/// The first mark number of each kind.
const ARGS: usize = 100;
const RESULTS: usize = 200;
const BOXES: usize = 300;
const INPUTS: usize = 400;
const CALLED: usize = 500;
const STREAMED: usize = 600;

/// Runs a server with much concurrent work and returns its trace.
pub async fn trace() -> String {
    let calls = (0..RUNS).map(|run| Scene::Call(vec![("echo", json!({ "text": mark(CALLED + run) }))]));
    let marks = |run: usize| (0..MARKS_MAX).map(|word| mark(STREAMED + MARKS_MAX * run + word)).collect();
    // The pause makes the first word a commit of its own.
    let replies = (0..RUNS).map(|run| Scene::Speak(Speech { chunks: marks(run), pause: Duration::from_millis(5), ..Speech::default() }));
    let model = FakeModel::held_back(calls.chain(replies).collect()).await;
    let tools = McpServer::start().await;
    let agents: Vec<String> = (0..AGENTS).map(|agent| format!("a{agent}: {{ tools: [lookup, served] }}")).collect();
    let config = format!(
        "{}server: {{ drain_s: 0 }}\nlimits: {{ sweep_interval: 50ms }}
tools:
  external: [ {{ name: lookup, effect: read }} ]
  mcp: [ {{ label: served, url: '{}' }} ]
agents: {{ {} }}\n",
        model.config(),
        tools.url,
        agents.join(", ")
    );
    let traced = Traced::start(&config).await;
    actions(&traced.server).await;
    runs(&traced.server, &model).await;
    assert_eq!(tools.starts("echo").len(), RUNS, "every run has called its tool once");
    traced.stop().await
}

/// Every agent acts at the same time. Then all results are reported, while boxes are packed.
async fn actions(server: &Server) {
    let act = |agent: usize| async move {
        let body = json!({ "action_id": "a", "tool": "lookup", "args": { "what": mark(ARGS + agent) } });
        server.post(&format!("/v1/agents/a{agent}/actions"), body).await.ok()
    };
    let begun = join_all((0..AGENTS).map(act)).await;
    let calls: Vec<Value> = join_all((0..AGENTS).map(|_| server.claim("lookup"))).await;
    let results: Vec<String> = (0..AGENTS).map(|agent| mark(RESULTS + agent)).collect();
    let reports = join_all(calls.iter().zip(&results).map(|(call, result)| report_under_a_key(server, call, result)));
    let pack = |number: usize| async move { server.post("/v1/windlass/boxes", json!({ "items": [mark(BOXES + number)] })).await.ok() };
    tokio::join!(reports, join_all((0..AGENTS).map(pack)));
    let runs: Vec<&str> = begun.iter().map(|begun| begun["agent_turn_id"].as_str().expect("an action has a turn")).collect();
    server.all_ended(&runs).await;
}

/// Every run asks the model, calls a tool and asks the model again, all in step.
async fn runs(server: &Server, model: &FakeModel) {
    let served = json!([{ "type": "mcp", "server_label": "served" }]);
    let ask = |n: usize| server.ask(Mode::Streamed, json!({ "model": "fake", "input": mark(INPUTS + AGENTS + n), "tools": served }));
    let responses: Vec<PendingResponse> = (0..RESPONSES).map(ask).collect();
    let enqueue = |agent: usize| async move { server.enqueue(&format!("a{agent}"), &mark(INPUTS + agent)).await };
    let runs = join_all((0..AGENTS).map(enqueue)).await;
    for iteration in 1..=2 {
        model.asked_times(iteration * RUNS).await;
        (0..RUNS).for_each(|_| model.let_answer());
    }
    join_all(responses.into_iter().map(|response| response.made(server))).await;
    server.all_ended(&runs).await;
}
