//! Unmodified clients with default settings lose their server in the middle of a request: each request is one run, no write is executed
//! twice, and the client gets its answer in the end.
//!
//! A proxy in front of the server holds connections while the server is down, so that no retry is spent on a refused connection.

use std::{io::Write, process::Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;
use windlass_tests::{FakeModel, McpServer, Proxy, Scene, Server, ServerBuilder, until};

use crate::program::{Program, Sdk, TOKEN};

/// The model's final answer.
const ANSWER: &str = "done";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Streamed,
}

/// A tool of each effect class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Read,
    Idempotent,
    Write,
}

impl Class {
    fn tool(self) -> &'static str {
        match self {
            Class::Read => "echo",
            Class::Idempotent => "put_note",
            Class::Write => "write_note",
        }
    }
}

/// The state of the request when its server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostAt {
    Model,
    Tool,
    AfterTool,
    AfterEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Kill,
    Terminate,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mode: Mode,
    class: Class,
    lost_at: LostAt,
    how: How,
}

/// The cases whose outcomes differ. With `WINDLASS_LONG=1` all combinations.
fn cases() -> Vec<Case> {
    let is_long = std::env::var_os("WINDLASS_LONG").is_some();
    let mut cases = Vec::new();
    for mode in [Mode::Plain, Mode::Streamed] {
        for class in [Class::Write, Class::Read, Class::Idempotent] {
            for lost_at in [LostAt::Model, LostAt::Tool, LostAt::AfterTool, LostAt::AfterEnd] {
                // The effect class matters only for a call that is interrupted.
                if class != Class::Write && lost_at != LostAt::Tool && !is_long {
                    continue;
                }
                cases.extend([How::Kill, How::Terminate].map(|how| Case { mode, class, lost_at, how }));
            }
        }
    }
    cases
}

impl Case {
    /// A model that hangs where the server is to be lost.
    async fn model(self) -> FakeModel {
        let call = Scene::Call(vec![(self.class.tool(), json!({ "text": "a note" }))]);
        let answer = Scene::Say(ANSWER);
        match (self.lost_at, self.how) {
            (LostAt::Model, _) => FakeModel::start(vec![Scene::Hang, call, answer]).await,
            (LostAt::AfterTool, _) => FakeModel::start(vec![call, Scene::Hang, answer]).await,
            (LostAt::AfterEnd, How::Terminate) => FakeModel::held_back(vec![call, answer]).await,
            (LostAt::Tool, _) | (LostAt::AfterEnd, How::Kill) => FakeModel::start(vec![call, answer]).await,
        }
    }

    /// Waits until the request has reached the chosen state, stops the server, and starts it again.
    async fn lose(self, mut server: Server, model: &FakeModel, tools: &McpServer) -> Server {
        match (self.lost_at, self.how) {
            (LostAt::Model, _) => drop(model.asked_times(1).await),
            (LostAt::Tool, _) => tools.runs(self.class.tool(), 1).await,
            (LostAt::AfterTool, _) => drop(model.asked_times(2).await),
            // The server ends at the crash point by itself.
            (LostAt::AfterEnd, How::Kill) => {}
            (LostAt::AfterEnd, How::Terminate) => {
                model.let_answer();
                model.asked_times(2).await;
            }
        }
        match (self.lost_at, self.how) {
            (LostAt::AfterEnd, How::Kill) => {}
            (_, How::Kill) => server.kill(),
            (_, How::Terminate) => server.signal(Signal::TERM),
        }
        if self.lost_at == LostAt::AfterEnd && self.how == How::Terminate {
            model.let_answer();
        }
        if self.how == How::Terminate || self.lost_at == LostAt::AfterEnd {
            server.gone().await;
        }
        server.restart(&[]).await
    }

    /// Whether a person has to decide about the interrupted write.
    fn is_parked(self) -> bool {
        self.class == Class::Write && self.lost_at == LostAt::Tool
    }
}

/// A client program that takes one request after the other.
enum Client {
    Program(Box<Program>),
    Curl,
}

impl Client {
    async fn send(&mut self, base: &str, mode: Mode) -> Value {
        match self {
            Client::Program(program) => program.ask(&json!({ "base": base, "streamed": mode == Mode::Streamed })).await,
            Client::Curl => curl(base, mode).await,
        }
    }
}

/// curl with its own retries. It is executed once more if it fails.
async fn curl(base: &str, mode: Mode) -> Value {
    let body = json!({ "model": "agent/clerk", "input": "go", "stream": mode == Mode::Streamed }).to_string();
    let mut errors = Vec::new();
    for calls in 1..=2 {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--noproxy", "*", "--retry", "2", "--retry-all-errors", "-H", &format!("Authorization: Bearer {TOKEN}")]);
        command.args(["-H", "Content-Type: application/json", "-d", &body, &format!("{base}/responses")]);
        let out = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("curl runs");
        match out.status.success() {
            true => return json!({ "text": answered(&String::from_utf8_lossy(&out.stdout), mode), "calls": calls, "errors": errors }),
            false => errors.push(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    }
    json!({ "text": null, "calls": 2, "errors": errors })
}

/// The text of the answer in curl's output. After a retry of its own curl prints the stream once more from the start.
fn answered(printed: &str, mode: Mode) -> Option<String> {
    let response: Value = match mode {
        Mode::Plain => serde_json::from_str(printed).ok()?,
        Mode::Streamed => {
            let data = printed.lines().filter_map(|line| line.strip_prefix("data: "));
            let mut events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
            events.next_back().filter(|event| event["type"] == "response.completed")?["response"].take()
        }
    };
    let content =
        response["output"].as_array()?.iter().filter(|item| item["type"] == "message").flat_map(|item| item["content"].as_array());
    Some(content.flatten().filter_map(|part| part["text"].as_str()).collect())
}

/// Produces one row of the table.
async fn row(client: &mut Client, case: Case) -> String {
    let (model, tools) = (case.model().await, McpServer::start().await);
    if case.lost_at == LostAt::Tool {
        tools.behave(|manners| manners.holds = Some((case.class.tool(), 1)));
    }
    let config =
        format!("{}{}server: {{ drain_s: 1 }}\nagents: {{ clerk: {{ tools: [tools] }} }}\n", model.config(), tools.config("tools"));
    let mut builder = ServerBuilder::new(&config);
    if (case.lost_at, case.how) == (LostAt::AfterEnd, How::Kill) {
        builder = builder.env("WINDLASS_CRASH_AT", "commit.end.after:1");
    }
    let server = builder.start().await;
    let target = server.base().strip_prefix("http://").expect("an address").to_owned();
    let proxy = Proxy::holding(&target).await;
    let base = format!("http://{}/v1", proxy.address());
    let (server, got) = tokio::join!(
        async {
            let server = case.lose(server, &model, &tools).await;
            if case.is_parked() {
                until("the write waits for a person", || async { (parked(&server) == 1).then_some(()) }).await;
                if case.mode == Mode::Streamed {
                    record(&server).await;
                }
            }
            server
        },
        client.send(&base, case.mode)
    );
    let (runs, starts) = (server.number("SELECT count(*) FROM runs"), tools.starts(case.class.tool()));
    let what = format!("{case:?}: {got}\nthe server's log:\n{}", server.log());
    assert_eq!(runs, 1, "runs started: {what}");
    let starts_max = if case.class == Class::Write || case.lost_at != LostAt::Tool { 1 } else { 2 };
    assert!((1..=starts_max).contains(&starts.len()), "{starts:?}: {what}");
    assert!(starts.iter().all(|start| start.call_id == starts[0].call_id), "one key: {starts:?}: {what}");
    let expected = if case.is_parked() && case.mode == Mode::Plain { "" } else { ANSWER };
    assert_eq!(got["text"], expected, "the client has its answer: {what}");
    format!("{case:?} runs 1 starts {} calls {}", starts.len(), got["calls"])
}

fn parked(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM calls WHERE status = 'parked'")
}

/// A person records that the write was executed.
async fn record(server: &Server) {
    let runs = server.get("/v1/windlass/runs?limit=1").await.ok();
    let run = runs["runs"][0]["run_id"].as_str().expect("a run").to_owned();
    let calls = server.get(&format!("/v1/windlass/runs/{run}/calls")).await.ok();
    let call = &calls["calls"][0]["tool_call_id"];
    let decision = json!({ "run_id": run, "tool_call_id": call, "action": "record", "status": "success", "result": "written" });
    server.post("/v1/windlass/reconcile", decision).await.ok();
}

async fn every_row(name: &str, mut client: Client) {
    let cases = cases();
    let mut table = String::new();
    for case in &cases {
        table += &format!("  {name}: {}\n", row(&mut client, *case).await);
    }
    let summary = format!("retries ({name}): {} rows, runs 1, writes 1, answered {}\n{table}", cases.len(), cases.len());
    // Written past the test harness, which would not show it.
    let _ = std::io::stderr().write_all(summary.as_bytes());
}

#[tokio::test]
async fn a_lost_server_costs_the_openai_sdk_for_python_nothing() {
    every_row("openai python", Client::Program(Box::new(Sdk::Python.asking("retries", "openai")))).await;
}

#[tokio::test]
async fn a_lost_server_costs_the_openai_sdk_for_javascript_nothing() {
    every_row("openai js", Client::Program(Box::new(Sdk::Node.asking("retries", "openai")))).await;
}

#[tokio::test]
async fn a_lost_server_costs_the_agents_sdk_nothing() {
    every_row("agents sdk", Client::Program(Box::new(Sdk::Python.asking("retries", "agents")))).await;
}

#[tokio::test]
async fn a_lost_server_costs_langchain_nothing() {
    every_row("langchain", Client::Program(Box::new(Sdk::Python.asking("retries", "langchain")))).await;
}

#[tokio::test]
async fn a_lost_server_costs_the_ai_sdk_nothing() {
    every_row("ai sdk", Client::Program(Box::new(Sdk::Node.asking("retries", "ai")))).await;
}

#[tokio::test]
async fn a_lost_server_costs_curl_nothing() {
    every_row("curl", Client::Curl).await;
}
