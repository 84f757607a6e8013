//! `windlass dev`: a server with everything that it needs, and a few lines that explain how to send it requests.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{names, send, windlass};

/// A running `windlass dev` and its output so far.
pub(crate) struct Dev {
    child: Child,
    /// The pipe stays open, as a terminal would.
    out: BufReader<ChildStdout>,
    printed: String,
}

impl Dev {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    fn start_with(folder: &Path, more: &[&str]) -> Self {
        let arguments: Vec<&str> = ["dev", "--listen", "127.0.0.1:0"].iter().chain(more).copied().collect();
        let mut command = windlass(folder, &arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dev starts");
        let mut out = BufReader::new(child.stdout.take().expect("what it prints is read"));
        let mut printed = String::new();
        while !printed.contains("curl ") {
            assert!(out.read_line(&mut printed).expect("it prints text") > 0, "it ended early: {printed}");
        }
        Dev { child, out, printed }
    }

    /// Reads until the output contains this text.
    fn read_until(&mut self, text: &str) {
        while !self.printed.contains(text) {
            assert!(self.out.read_line(&mut self.printed).expect("it prints text") > 0, "{text} is missing: {}", self.printed);
        }
    }

    /// The value in the row of the printed table that begins with this name.
    pub(crate) fn value(&self, name: &str) -> &str {
        let found = self.printed.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' ').map(str::trim));
        found.unwrap_or_else(|| panic!("{name} is missing: {}", self.printed))
    }

    /// Stops it with SIGINT, as Ctrl-C does. Returns what it logged.
    fn stop(mut self) -> String {
        send(self.child.id(), Signal::INT);
        let stderr = self.child.stderr.take().expect("its log is read");
        let log: Vec<String> = BufReader::new(stderr).lines().map(|line| line.expect("a log is text")).collect();
        assert!(self.child.wait().expect("it ends").success(), "{log:?}");
        log.join("\n")
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn dev_makes_what_is_missing_and_serves_with_the_token_it_prints() {
    let folder = TempDir::new().expect("a folder");
    let dev = Dev::start(folder.path());
    assert_eq!(names(folder.path()), [".windlass"]);
    assert_eq!(dev.value("store"), ".windlass/windlass.db");
    assert!(dev.value("model").starts_with("offline"), "{}", dev.printed);
    assert!(!dev.printed.contains("console"), "there is none yet: {}", dev.printed);

    let (base, token) = (dev.value("API").to_owned(), dev.value("token").to_owned());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(format!("{base}/v1/responses")).bearer_auth(&token).json(&json!({ "input": "Hello" }));
    let answer = request.send().await.expect("an answer").bytes().await.expect("a body");
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["output"][0]["content"][0]["text"], "You said: Hello");
    assert_eq!(dev.stop(), "", "it logs from warnings on");

    let again = Dev::start(folder.path());
    assert_eq!(again.value("token"), token, "a token is made once");
    let request = client.get(format!("{}/v1/responses/{}", again.value("API"), answer["id"].as_str().expect("an id")));
    assert_eq!(request.bearer_auth(&token).send().await.expect("an answer").status(), 200, "what was stored is there");
    again.stop();
}

#[test]
fn the_command_that_dev_prints_works_as_it_is() {
    let folder = TempDir::new().expect("a folder");
    let dev = Dev::start(folder.path());
    let line = dev.printed.lines().find(|line| line.trim().starts_with("curl ")).expect("a command").trim();
    let out = Command::new("sh").args(["-c", line]).env("no_proxy", "*").output().expect("a shell");
    let printed = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{line}\n{printed}{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        printed.contains("response.completed") && printed.contains("You said: Hello") && printed.ends_with("data: [DONE]\n\n"),
        "{printed}"
    );
}

#[tokio::test]
async fn dev_prints_what_it_has_and_a_line_for_every_run() {
    let folder = TempDir::new().expect("a folder");
    let config = "agents: { clerk: { tools: [look_up] }, scout: {} }
tools:
  external: [ { name: look_up, effect: read } ]
  mcp: [ { label: files, command: [/nowhere/at-all] } ]";
    std::fs::write(folder.path().join("windlass.yaml"), config).expect("a configuration");
    let mut dev = Dev::start(folder.path());
    assert_eq!(dev.value("agents"), "clerk, scout");
    assert_eq!(dev.value("tools"), "look_up");
    dev.read_until("0 resumed");
    dev.read_until("mcp    files: ");
    assert!(dev.printed.contains("tool server \"files\""), "{}", dev.printed);

    let (base, token) = (dev.value("API").to_owned(), dev.value("token").to_owned());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(format!("{base}/v1/agents/scout/enqueue")).bearer_auth(&token).json(&json!({ "input": "Hello" }));
    let taken = request.send().await.expect("an answer").bytes().await.expect("a body");
    let taken: Value = serde_json::from_slice(&taken).expect("JSON");
    let run = taken["run_id"].as_str().expect("a run");
    dev.read_until(&format!("{run} scout started"));
    dev.read_until(&format!("{run} scout success (answered): iterations 1, calls 0, tokens "));
}

#[test]
fn dev_takes_the_models_and_tokens_that_are_configured() {
    let folder = TempDir::new().expect("a folder");
    let config = "models: [ { name: mine, provider: openai-chat, base_url: 'http://127.0.0.1:1/v1' } ]
auth: { tokens: [ { token: a-secret-of-mine-token-of-22-characters, scopes: ['*'] } ] }";
    std::fs::write(folder.path().join("windlass.yaml"), config).expect("a configuration");
    let dev = Dev::start(folder.path());
    assert_eq!(dev.value("model"), "mine (http://127.0.0.1:1/v1)");
    assert_eq!(dev.value("token"), "one of those configured in auth.tokens");
    assert!(
        dev.printed.contains("Bearer $WINDLASS_TOKEN") && !dev.printed.contains("a-secret-of-mine-token-of-22-characters"),
        "{}",
        dev.printed
    );
}

#[test]
fn dev_takes_the_configuration_that_it_is_given() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("other.yaml"), "models: [ { name: other, provider: scripted } ]").expect("a configuration");
    let dev = Dev::start_with(folder.path(), &["--config", "other.yaml"]);
    assert!(dev.value("model").starts_with("other "), "{}", dev.printed);
}
