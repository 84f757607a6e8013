//! The server's log: one line per run, JSON where that is configured, no colours in a file, and never content.

use std::{
    fs::File,
    path::Path,
    process::{Child, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_tests::until;

use crate::{send, windlass};

const TOKEN: &str = "a-token-for-these-tests";

/// A server whose stderr goes to a file.
struct Logged {
    child: Child,
    folder: TempDir,
}

impl Logged {
    fn start(config: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let tokens = format!("auth: {{ tokens: [ {{ token: {TOKEN}, scopes: ['*'] }} ] }}");
        std::fs::write(folder.path().join("windlass.yaml"), format!("{tokens}\n{config}")).expect("a configuration");
        let log = File::create(folder.path().join("log")).expect("a file");
        let mut command = windlass(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a server starts");
        Logged { child, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log is text")
    }

    /// The log lines, parsed as JSON.
    fn lines(&self) -> Vec<Value> {
        self.log().lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// Waits for a line with this message.
    async fn line(&self, message: &str) -> Value {
        let find = async || self.lines().into_iter().find(|line| line["message"] == message);
        until(message, find).await
    }

    async fn base(&self) -> String {
        format!("http://{}", self.line("serving").await["address"].as_str().expect("an address"))
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

#[tokio::test]
async fn a_run_is_one_line_of_json_without_its_content() {
    let server = Logged::start("log: { format: json }");
    let (base, client) = (server.base().await, client());
    assert_eq!(server.line("resumed the runs that lost servers had left unfinished").await["runs"], 0);
    for path in ["/v1/responses", "/v1/agents/clerk/enqueue"] {
        let request = client.post(format!("{base}{path}")).bearer_auth(TOKEN).json(&json!({ "input": "a secret prompt" }));
        assert!(request.send().await.expect("an answer").status().is_success());
    }
    let agents = async || {
        let ended: Vec<Value> = server.lines().into_iter().filter(|line| line["message"] == "the run ended").collect();
        (ended.len() == 2).then_some(ended)
    };
    let ended = until("both runs ended", agents).await;
    for line in &ended {
        assert_eq!((&line["level"], &line["tenant"], &line["outcome"]), (&json!("INFO"), &json!("default"), &json!("success")));
        assert_eq!((&line["reason"], &line["iterations"], &line["calls"]), (&json!("answered"), &json!(1), &json!(0)));
        let has_numbers = ["tokens_in", "tokens_out", "ms", "epoch", "node"].iter().all(|key| line[key].is_u64());
        assert!(has_numbers && line["run"].as_str().is_some_and(|run| run.starts_with("run_")), "{line}");
    }
    assert!(ended.iter().any(|line| line["agent"] == "clerk"), "{ended:?}");
    assert!(!server.log().contains("secret prompt"), "{}", server.log());

    for _ in 0..20 {
        assert_eq!(client.get(format!("{base}/v1/models")).bearer_auth("wrong").send().await.expect("an answer").status(), 401);
    }
    let refused: Vec<Value> = server.lines().into_iter().filter(|line| line["message"] == "a login was refused").collect();
    assert_eq!(refused.len(), 10, "a flood is cut: {refused:?}");
    assert!(refused[0]["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{}", refused[0]);
    assert!(!server.log().contains("wrong"), "a token is never logged");

    let metrics = client.get(format!("{base}/metrics")).send().await.expect("an answer").text().await.expect("text");
    let bytes = metrics.lines().find_map(|line| line.strip_prefix("windlass_store_bytes ")).expect("the size of the database");
    assert!(bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0), "{bytes}");
    assert!(metrics.contains("windlass_commit_seconds_count"), "{metrics}");
}

#[tokio::test]
async fn every_failed_attempt_is_one_line() {
    let config = "log: { format: json }
limits: { attempts: 2, backoff: 10ms }
models: [ { name: gone, provider: openai-chat, base_url: 'http://127.0.0.1:1/v1' } ]";
    let server = Logged::start(config);
    let (base, client) = (server.base().await, client());
    let request = client.post(format!("{base}/v1/agents/clerk/enqueue")).bearer_auth(TOKEN).json(&json!({ "input": "hello" }));
    assert!(request.send().await.expect("an answer").status().is_success());
    assert_eq!(server.line("the run ended").await["reason"], "model_failed: upstream_unreachable");
    let failed: Vec<Value> = server.lines().into_iter().filter(|line| line["message"] == "a model call failed").collect();
    assert_eq!(failed.iter().map(|line| line["attempt"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)], "{failed:?}");
    assert_eq!(
        (&failed[0]["level"], &failed[0]["code"], &failed[0]["agent"]),
        (&json!("WARN"), &json!("upstream_unreachable"), &json!("clerk"))
    );
}

/// Starts a server that must fail. Returns what it logged.
fn refused(folder: &Path, filter: &str) -> String {
    let out = windlass(folder, &["serve", "--listen", "127.0.0.1:0"]).env("WINDLASS_LOG", filter).output().expect("it ends");
    assert_eq!(out.status.code(), Some(1));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_filter_that_cannot_be_read_is_refused() {
    let folder = TempDir::new().expect("a folder");
    for filter in ["inof", "windlass_engine=loud"] {
        let stderr = refused(folder.path(), filter);
        assert!(stderr.contains("WINDLASS_LOG") && stderr.contains(filter), "{stderr}");
    }
}

#[tokio::test]
async fn a_log_that_is_a_file_has_no_colours() {
    let mut server = Logged::start("");
    until("the server serves", async || server.log().contains("serving").then_some(())).await;
    send(server.child.id(), Signal::TERM);
    assert!(server.child.wait().expect("it ends").success());
    let log = server.log();
    assert!(log.contains("stopped") && !log.contains('\u{1b}'), "{log:?}");
}
