//! One server process.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Database, PATIENCE, Place, SseStream, address::Address, until};

/// The token in the harness's configuration, with all rights for the tenant `default`.
pub const TOKEN: &str = "test-token-of-22-characters";

/// The binary, built once per test program.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "windlass"]).current_dir(&root);
        // Cargo's variables about this package must not reach the build: they would make it recompile `ring` each time.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            build.env_remove(name);
        }
        let built = build.status();
        assert!(built.expect("cargo runs").success(), "the binary does not build");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        tested(&target.join("debug"), &root)
    })
}

/// Links the binary under a name of this workspace. Tests run servers for minutes, and a build that replaces the binary meanwhile, perhaps
/// of another branch with the same target folder, must not change the tested binary.
fn tested(folder: &Path, root: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    let tested = folder.join(format!("windlass-tested-{:016x}", hasher.finish()));
    let mine = tested.with_extension(std::process::id().to_string());
    let _ = std::fs::remove_file(&mine);
    std::fs::hard_link(folder.join("windlass"), &mine).expect("the binary can be linked");
    std::fs::rename(&mine, &tested).expect("a link can be renamed");
    // `rename` does nothing if both names refer to the same file; the other name then has to be removed.
    let _ = std::fs::remove_file(&mine);
    tested
}

/// The settings with which a server is started.
pub struct ServerBuilder {
    folder: Arc<TempDir>,
    place: Place,
    config: String,
    address: Address,
    env: Vec<(String, String)>,
    wrapper: Vec<String>,
}

impl ServerBuilder {
    /// A server in a new folder with this configuration. Missing settings are added: tokens, `agents_open`, the store if this test program
    /// does not use the default one, and the harness's seal key if the store is not in the folder.
    pub fn new(config: &str) -> Self {
        let folder = Arc::new(TempDir::new().expect("a folder for the server"));
        let mut config = config.to_owned();
        if !config.contains("auth:") {
            config.push_str(&format!("\nauth: {{ tokens: [ {{ token: {TOKEN}, scopes: ['*'] }} ] }}\n"));
        }
        // Most tests enqueue to agents of any name, which may be missing in the configuration.
        if !config.contains("agents_open:") {
            config.push_str("\nagents_open: true\n");
        }
        let place = if config.contains("store:") { Place::in_folder(folder.path()) } else { Place::fresh(folder.path()) };
        config.push_str(&place.config());
        if !config.contains("doorbell:") {
            config.push_str(&place.doorbell());
        }
        ServerBuilder { folder, place, config, address: Address::new(), env: Vec::new(), wrapper: Vec::new() }
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file beside the configuration.
    pub fn file(self, name: &str, content: &str) -> Self {
        std::fs::write(self.folder.path().join(name), content).expect("a file beside the configuration");
        self
    }

    /// Runs the server through another program.
    pub fn under(mut self, program: &[&str]) -> Self {
        self.wrapper = program.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The location of its database.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The folder in which it will run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the server and waits until it serves.
    pub async fn start(self) -> Server {
        std::fs::write(self.folder.path().join("windlass.yaml"), &self.config).expect("the configuration can be written");
        let server =
            Server { child: None, base: String::new(), log: Arc::default(), client: client(), setup: self, token: TOKEN.to_owned() };
        server.started().await
    }

    /// Starts the server, which must refuse to run. Returns the exit status and its output.
    pub fn refuses(self) -> (ExitStatus, String) {
        std::fs::write(self.folder.path().join("windlass.yaml"), &self.config).expect("the configuration can be written");
        self.refusal()
    }

    fn refusal(&self) -> (ExitStatus, String) {
        let out = self.command().output().expect("the binary runs");
        (out.status, String::from_utf8_lossy(&out.stderr).into_owned())
    }

    fn command(&self) -> Command {
        let mut command_line = self.wrapper.clone();
        command_line.push(binary().to_string_lossy().into_owned());
        let mut command = Command::new(&command_line[0]);
        command
            .args(&command_line[1..])
            .args(["serve", "--listen", &self.address.to_string()])
            .current_dir(self.folder.path())
            .env_remove("WINDLASS_CRASH_AT")
            .env("WINDLASS_LOG", "info")
            .envs(self.config.contains("store:").then(|| ("WINDLASS_SEAL_KEY", "5e".repeat(32))))
            .envs(self.place.env())
            .envs(self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Option<Child>,
    base: String,
    log: Arc<Mutex<Vec<String>>>,
    client: reqwest::Client,
    setup: ServerBuilder,
    token: String,
}

/// The server's answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body, or null if it is no JSON.
    pub body: Value,
}

impl Answer {
    /// The body of a 2xx answer; fails on any other.
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// The error code of the answer.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }
}

impl Server {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// The peak of its resident memory so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has a peak");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
    }

    /// The growth of the peak since an earlier value. The kernel counts in batches, so the peak can appear to shrink.
    pub fn grown_since(&self, before: u64) -> u64 {
        self.peak_bytes().saturating_sub(before)
    }

    /// The address, as http://….
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The folder in which it runs.
    pub fn folder(&self) -> &Path {
        self.setup.folder.path()
    }

    /// Opens a connection to its database.
    pub fn database(&self) -> Database {
        self.setup.place.open()
    }

    /// The location of its database.
    pub fn place(&self) -> &Place {
        &self.setup.place
    }

    /// Uses another token from now on.
    pub fn with_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.token);
        self
    }

    /// The token of requests.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("the lock is not poisoned").join("\n")
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.client.get(format!("{}{path}", self.base))).await
    }

    /// Sends a POST request with JSON.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.client.post(format!("{}{path}", self.base)).json(&body)).await
    }

    /// Sends a POST request with raw bytes.
    pub async fn post_bytes(&self, path: &str, body: Vec<u8>) -> Answer {
        self.send(self.client.post(format!("{}{path}", self.base)).header("content-type", "application/json").body(body)).await
    }

    /// Sends a request, with the token unless the request has one.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        self.try_send(request).await.expect("the server answers")
    }

    /// Sends a POST request to a server that may die before it answers.
    pub async fn try_post(&self, path: &str, body: Value) -> Option<Answer> {
        self.try_send(self.client.post(format!("{}{path}", self.base)).json(&body)).await.ok()
    }

    /// Sends a GET request to a server that may be dead.
    pub async fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_send(self.client.get(format!("{}{path}", self.base))).await.ok()
    }

    /// Builds a request.
    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request to a server that may die before it answers.
    pub async fn try_send(&self, request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
        let request = request.build()?;
        let mut request = request;
        if !request.headers().contains_key("authorization") {
            request.headers_mut().insert("authorization", format!("Bearer {}", self.token).parse().expect("a header"));
        }
        let response = self.client.execute(request).await?;
        let status = response.status().as_u16();
        let bytes = response.bytes().await?;
        Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    /// Opens an agent's event stream. `cursor` is the id of the last event that the client has.
    pub async fn events(&self, agent: &str, cursor: Option<&str>) -> SseStream {
        let mut request = self.client.get(format!("{}/v1/agents/{agent}/events?from=start", self.base)).bearer_auth(&self.token);
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let response = request.send().await.expect("the stream opens");
        assert_eq!(response.status(), 200, "the stream opens");
        SseStream::new(response)
    }

    /// Enqueues a text to an agent. Returns the run.
    pub async fn enqueue(&self, agent: &str, input: &str) -> String {
        self.enqueue_body(agent, json!({ "input": input })).await
    }

    /// Enqueues a body to an agent. Returns the run.
    pub async fn enqueue_body(&self, agent: &str, body: Value) -> String {
        let answer = self.post(&format!("/v1/agents/{agent}/enqueue"), body).await.ok();
        answer["run_id"].as_str().expect("an enqueue has a run").to_owned()
    }

    /// Waits until a run has ended; returns it.
    pub async fn ended(&self, run: &str) -> Value {
        until(&format!("{run} ends"), || async {
            let view = self.get(&format!("/v1/windlass/runs/{run}")).await.ok();
            (view["status"] == "ended").then_some(view)
        })
        .await
    }

    /// Waits until all of these runs have ended; returns them. It polls one after the other, because a hundred pollers would slow the
    /// server down.
    pub async fn all_ended<R: AsRef<str>>(&self, runs: &[R]) -> Vec<Value> {
        let mut ended = Vec::new();
        for run in runs {
            ended.push(self.ended(run.as_ref()).await);
        }
        ended
    }

    /// Waits until an agent has a status; returns the agent.
    pub async fn agent_is(&self, agent: &str, status: &str) -> Value {
        until(&format!("{agent} is {status}"), || async {
            let view = self.get(&format!("/v1/agents/{agent}")).await;
            (view.body["status"] == status).then_some(view.body)
        })
        .await
    }

    /// Claims calls of a tool until it gets one. Returns that one.
    pub async fn claim(&self, tool: &str) -> Value {
        until(&format!("a call of {tool} can be claimed"), || async {
            let body = json!({ "worker": "w1", "max": 1, "lease_s": 60 });
            let answer = self.post(&format!("/v1/tools/{tool}/claim"), body).await.ok();
            answer["calls"].as_array().and_then(|calls| calls.first().cloned())
        })
        .await
    }

    /// Reports a success for a claimed call.
    pub async fn report(&self, call: &Value, result: Value) -> Answer {
        let body = json!({
            "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "success", "result": result,
        });
        self.post(&format!("/v1/agents/{}/report", call["agent_id"].as_str().expect("a call has its agent")), body).await
    }

    /// The stored content of an item.
    pub async fn content(&self, item: &Value) -> Value {
        let id = item.as_str().expect("an item id");
        self.get(&format!("/v1/windlass/items/{id}")).await.ok()["content"].clone()
    }

    /// The journal of a run.
    pub async fn journal(&self, run: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/windlass/runs/{run}/journal?limit=1000")).await.ok();
        page["entries"].as_array().expect("a journal has events").clone()
    }

    /// The output of `windlass export` for a run, one JSON value per line.
    pub fn export(&self, run: &str) -> Vec<Value> {
        let out = Command::new(binary()).args(["export", run]).current_dir(self.folder()).output().expect("export runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("an export is UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("an export is JSON lines")).collect()
    }

    /// Starts the server once more in the same folder; it must refuse to run. Returns the exit status and its output.
    pub fn refuses(&self) -> (ExitStatus, String) {
        self.setup.refusal()
    }

    /// Kills the server without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("the signal arrives");
    }

    /// Waits until the process has ended by itself.
    pub async fn gone(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().expect("the server runs").try_wait().expect("it can be waited for") {
                self.child = None;
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the server is still there");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Whether the process is running.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Starts it again in the same folder and at the same address, with these environment variables instead of the earlier ones.
    pub async fn restart(mut self, env: &[(&str, &str)]) -> Server {
        self.kill();
        self.setup.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.started().await
    }

    /// Like `restart`, for a server that may die before it serves. Then it returns the exit status, and the server can be started again.
    pub async fn restart_or_die(mut self, env: &[(&str, &str)]) -> Result<Server, (Server, ExitStatus)> {
        self.kill();
        self.setup.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.launched().await
    }

    async fn started(self) -> Server {
        self.launched().await.unwrap_or_else(|(server, status)| panic!("the server did not start ({status}):\n{}", server.log()))
    }

    async fn launched(mut self) -> Result<Server, (Server, ExitStatus)> {
        let mut child = self.setup.command().spawn().expect("the binary starts");
        let stderr = child.stderr.take().expect("its log is read");
        let log = Arc::new(Mutex::new(Vec::new()));
        self.log = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                log.lock().expect("the lock is not poisoned").push(line);
            }
        });
        let began = Instant::now();
        self.base = loop {
            if let Some(address) = address(&self.log()) {
                break format!("http://{address}");
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err((self, status));
            }
            assert!(began.elapsed() < PATIENCE, "the server does not log its address:\n{}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        self.child = Some(child);
        Ok(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The address in the log line about the start.
fn address(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("serving"))?;
    let plain: String = strip_colours(line);
    let rest = plain.split("address=").nth(1)?;
    Some(rest.split_whitespace().next()?.to_owned())
}

fn strip_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut in_escape = false;
    for c in line.chars() {
        match (in_escape, c) {
            (false, '\u{1b}') => in_escape = true,
            (true, 'm') => in_escape = false,
            (true, _) => {}
            (false, c) => plain.push(c),
        }
    }
    plain
}
