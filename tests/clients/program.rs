//! Starts client programs and reads what they print.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};
use windlass_tests::{PATIENCE, Server, ServerBuilder, clients};

/// The token of the clients, which the harness configures.
pub const TOKEN: &str = "test-token-of-22-characters";

/// A text of many deltas. All words differ, so a missing or a repeated delta is visible.
pub fn story() -> String {
    let words: Vec<String> = (0..80).map(|n| format!("word{n}")).collect();
    words.join(" ")
}

fn script() -> String {
    include_str!("script.yaml").replace("STORY", &story())
}

/// The builder of a server for clients.
pub fn builder() -> ServerBuilder {
    builder_with("")
}

/// The builder of a server for clients with additional configuration.
pub fn builder_with(more: &str) -> ServerBuilder {
    let config = format!("models: [ {{ name: offline, provider: scripted, script: script.yaml }} ]\n{more}");
    ServerBuilder::new(&config).file("script.yaml", &script())
}

/// Kills a server and starts it again at the same address. The model's script is then the same without long pauses.
pub async fn killed(server: Server) -> Server {
    let fast = script().replace("chunk_delay_ms: 1000", "chunk_delay_ms: 5");
    std::fs::write(server.folder().join("script.yaml"), fast).expect("the script can be written");
    server.restart(&[]).await
}

/// The SDKs.
#[derive(Clone, Copy, Debug)]
pub enum Sdk {
    Python,
    Node,
}

impl Sdk {
    /// Starts one of this SDK's programs against a server.
    pub fn start(self, program: &str, server: &Server) -> Program {
        let (mut command, folder) = self.command(program);
        command.env("OPENAI_BASE_URL", format!("{}/v1", server.base()));
        Program::start(command, folder)
    }

    /// Starts a program that reads its requests line by line. Its argument names the client.
    pub fn asking(self, program: &str, client: &str) -> Program {
        let (mut command, folder) = self.command(program);
        command.arg(client).stdin(Stdio::piped());
        Program::start(command, folder)
    }

    fn command(self, program: &str) -> (Command, TempDir) {
        let folder = TempDir::new().expect("a folder for the program");
        let mut command = match self {
            Sdk::Python => {
                let mut command = Command::new(clients().join("python/bin/python"));
                command.arg(sources().join("python").join(format!("{program}.py"))).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Sdk::Node => {
                // Node looks for packages only above the program's own folder.
                std::os::unix::fs::symlink(clients().join("node/node_modules"), folder.path().join("node_modules")).expect("a link");
                for source in [program, "weather", "travel"].map(|name| format!("{name}.mjs")) {
                    std::fs::copy(sources().join("node").join(&source), folder.path().join(&source)).expect("the program can be copied");
                }
                let mut command = Command::new("node");
                command.arg(folder.path().join(format!("{program}.mjs")));
                command
            }
        };
        command.stdin(Stdio::null()).env("OPENAI_API_KEY", TOKEN);
        (command, folder)
    }

    /// Runs one of this SDK's programs to its end. Returns the last line that it printed.
    pub async fn run(self, program: &str, server: &Server) -> Value {
        self.run_with(program, server, "").await
    }

    /// The same for a program that declares a tool server with this address.
    pub async fn run_with(self, program: &str, server: &Server, tools_url: &str) -> Value {
        let (mut command, folder) = self.command(program);
        command.env("OPENAI_BASE_URL", format!("{}/v1", server.base())).env("TOOLS_URL", tools_url);
        let mut running = Program::start(command, folder);
        let mut last = Value::Null;
        while let Some(line) = running.line().await {
            last = line;
        }
        running.succeeds(server).await;
        last
    }
}

/// Starts Codex with a task in this folder.
pub fn codex(task: &str, folder: &Path, server: &Server) -> Program {
    codex_with("offline", task, folder, server)
}

/// Starts Codex with a task and this model.
pub fn codex_with(model: &str, task: &str, folder: &Path, server: &Server) -> Program {
    codex_as(&shown("toml"), model, task, folder, server)
}

/// Starts Codex with a task over a WebSocket.
pub fn codex_on_a_socket(model: &str, task: &str, folder: &Path, server: &Server) -> Program {
    codex_as(&on_a_socket(&shown("toml")), model, task, folder, server)
}

/// Starts Codex so that it asks its host for a compaction as soon as the conversation has more than this many tokens. It asks only hosts of
/// a certain name.
pub fn codex_compacting(tokens: u32, is_on_a_socket: bool, task: &str, folder: &Path, server: &Server) -> Program {
    let limit = format!("model_auto_compact_token_limit = {tokens}\n\n[model_providers.windlass]\nname = \"OpenAI\"\n");
    let config = replaced(&shown("toml"), "\n[model_providers.windlass]\nname = \"Windlass\"\n", &limit);
    let config = if is_on_a_socket { on_a_socket(&config) } else { config };
    codex_as(&config, "offline", task, folder, server)
}

fn on_a_socket(over_http: &str) -> String {
    replaced(over_http, "# supports_websockets", "supports_websockets")
}

/// The block in this language on the documentation page about Codex. The tests configure Codex with that block, unchanged.
pub fn shown(language: &str) -> String {
    let page = include_str!("../../docs/codex.md");
    let (_, block) = page.split_once(&format!("```{language}\n")).expect("the page has such a block");
    block.split_once("```").expect("a block has an end").0.to_owned()
}

/// Replaces one part of a text, which must be there.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old:?} is there once in:\n{text}");
    text.replace(old, new)
}

fn codex_as(config: &str, model: &str, task: &str, folder: &Path, server: &Server) -> Program {
    let home = TempDir::new().expect("a folder for Codex");
    let config = replaced(config, "http://127.0.0.1:7600", server.base());
    std::fs::write(home.path().join("config.toml"), config).expect("Codex can be configured");
    let mut command = Command::new(clients().join("node/node_modules/.bin/codex"));
    command
        .args(["exec", "--json", "--strict-config", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--model", model, task])
        .current_dir(folder)
        .env("HOME", home.path())
        .env("CODEX_HOME", home.path())
        .env("WINDLASS_TOKEN", TOKEN)
        .stdin(Stdio::null());
    Program::start(command, home)
}

/// A running client program. Dropping it kills it and all processes that it started.
pub struct Program {
    child: Child,
    group: Pid,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
    complaints: JoinHandle<String>,
    _folder: TempDir,
}

impl Program {
    fn start(mut command: Command, folder: TempDir) -> Self {
        // The requests of a test to its own server must not pass through a proxy.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let group = child.id().and_then(|id| Pid::from_raw(id as i32)).expect("a process id");
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("what it prints is read")).lines();
        let mut stderr = child.stderr.take().expect("what it complains of is read");
        let complaints = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        });
        Program { child, group, lines, stdin, complaints, _folder: folder }
    }

    /// The next line that it prints; `None` when its output has ended.
    pub async fn line(&mut self) -> Option<Value> {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("the client prints something").expect("it can be read")?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("the client prints JSON ({error}): {line}")))
    }

    /// Sends it a request and returns its answer.
    pub async fn ask(&mut self, request: &Value) -> Value {
        let stdin = self.stdin.as_mut().expect("it takes requests");
        stdin.write_all(format!("{request}\n").as_bytes()).await.expect("it reads");
        self.line().await.expect("it answers")
    }

    /// Waits until it ends. Returns its exit status and what it wrote to stderr.
    pub async fn ends(mut self) -> (ExitStatus, String) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("the client ends").expect("it can be waited for");
        let complaints = std::mem::replace(&mut self.complaints, tokio::spawn(async { String::new() }));
        (status, complaints.await.expect("complaints are read"))
    }

    /// Waits until it ends and asserts that it succeeded.
    pub async fn succeeds(self, server: &Server) {
        let (status, complaints) = self.ends().await;
        assert!(status.success(), "the client failed ({status}):\n{complaints}\nthe server's log:\n{}", server.log());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

/// The folder of the client programs.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}
