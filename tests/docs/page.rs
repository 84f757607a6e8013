//! One page: its folder, its server, and its blocks in their order.

use std::{collections::BTreeSet, io::Write as _, path::PathBuf};

use tempfile::TempDir;
use tokio::process::Command;
use windlass_tests::{Address, binary, clients, postgres, until};

use crate::{
    EXAMPLES,
    block::{self, Action, Block, Language},
    examples,
    output::is_as_shown,
    process::Process,
    text_of,
};

/// The address that pages show.
const SHOWN_ADDRESS: &str = "127.0.0.1:7600";
/// The command in the pages that stands for the binary where nothing is installed.
const FROM_SOURCES: &str = "cargo run --release --";
/// A value for variables that a configuration reads: long enough for a token, and no secret.
const ANY_VALUE: &str = "a-value-of-the-documentation-test";
/// The database into which docs/operating.md restores a backup.
const RESTORED: &str = "windlass_restored";

/// Executes all blocks of a page and prints how many there are.
pub async fn run(page: &str) {
    let blocks = block::parse(page, &text_of(page));
    assert!(!blocks.is_empty(), "{page} has no blocks");
    for (index, block) in blocks.iter().enumerate() {
        let Action::Write { name, .. } = &block.action else { continue };
        let is_used = name == "windlass.yaml" || blocks[index + 1..].iter().any(|later| later.text.contains(name.as_str()));
        assert!(is_used, "{}: no later block uses {name}", block.place());
    }
    let uses_database = blocks.iter().any(|block| block.text.contains("DATABASE_URL"));
    let mut stage = Stage::new(uses_database).await;
    if page.starts_with(EXAMPLES) {
        stage.copy_examples();
    }
    for block in &blocks {
        stage.perform(block).await;
    }
    let counts =
        format!("documentation ({page}): {} blocks run, {} outputs compared, {} only parsed\n", stage.run, stage.compared, stage.parsed);
    // Written to the terminal directly, because the test runner would capture it.
    let _ = std::io::stderr().lock().write_all(counts.as_bytes());
}

/// The state between the blocks of one page.
struct Stage {
    /// The working folder of the blocks.
    folder: TempDir,
    /// The folder for programs and for the output of processes.
    files: TempDir,
    address: Address,
    database: Option<postgres::Database>,
    server: Option<Process>,
    background: Vec<Process>,
    /// The variables exported so far, as a file that a shell can read.
    exports: PathBuf,
    printed: Printed,
    started: usize,
    run: usize,
    compared: usize,
    parsed: usize,
}

/// The text that a `text` block is compared with.
enum Printed {
    Nothing,
    Text(String),
    /// The output of the server, some of which may not be there yet.
    ByServer,
}

impl Stage {
    async fn new(uses_database: bool) -> Self {
        let (folder, files) = (TempDir::new().expect("a folder for the page"), TempDir::new().expect("a folder for files"));
        std::os::unix::fs::symlink(binary(), files.path().join("windlass")).expect("a link to the binary");
        // Node looks for packages only above the program's own folder.
        std::os::unix::fs::symlink(clients().join("node/node_modules"), folder.path().join("node_modules")).expect("a link");
        let exports = files.path().join("exports");
        std::fs::write(&exports, "").expect("a file for variables");
        let database = if uses_database { Some(empty_database().await) } else { None };
        Stage {
            folder,
            files,
            address: Address::new(),
            database,
            server: None,
            background: Vec::new(),
            exports,
            printed: Printed::Nothing,
            started: 0,
            run: 0,
            compared: 0,
            parsed: 0,
        }
    }

    /// Copies the files of the examples to the folder of the page.
    fn copy_examples(&self) {
        for name in examples() {
            let text = text_of(&format!("{EXAMPLES}/{name}"));
            std::fs::write(self.folder.path().join(name), self.here(&text)).expect("a file of an example");
        }
    }

    async fn perform(&mut self, block: &Block) {
        match &block.action {
            Action::Run(language) => self.run_block(block, *language).await,
            Action::StartServer => self.start_server(block).await,
            Action::StartBackground => {
                let command = self.shell(&block.text);
                let process = self.start(command);
                self.background.push(process);
                self.printed = Printed::Nothing;
                self.run += 1;
            }
            Action::CheckConfig => {
                self.check_config(block).await;
                self.run += 1;
            }
            Action::Write { name, .. } => {
                if name == "windlass.yaml" {
                    self.check_config(block).await;
                }
                std::fs::write(self.folder.path().join(name), self.here(&block.text)).expect("a file of the page");
                self.run += 1;
            }
            Action::Compare => {
                self.compare(block).await;
                self.compared += 1;
            }
            Action::Parse(language) => {
                self.check_syntax(block, *language).await;
                self.parsed += 1;
            }
        }
    }

    /// Executes a block to its end and asserts that it succeeds.
    async fn run_block(&mut self, block: &Block, language: Language) {
        let script = match language {
            Language::Python => self.program(block, "python3", "py"),
            Language::JavaScript => self.program(block, "node", "mjs"),
            // The variables that it exports are set in the later blocks, with their current values.
            Language::Shell | Language::Yaml | Language::Ini | Language::Nginx => {
                format!("{}\nexport -p > {}", block.text, self.exports.display())
            }
        };
        let command = self.shell(&script);
        let mut process = self.start(command);
        let ended = process.ends().await;
        let outcome = ended.map_or_else(|| "does not end".to_owned(), |status| format!("ended with {status}"));
        let (printed, complaints) = (process.printed(), process.complaints());
        let log = self.server.as_ref().map(Process::complaints).unwrap_or_default();
        let is_good = ended.is_some_and(|status| status.success());
        assert!(is_good, "{} {outcome}:\n{}\nit printed:\n{printed}{complaints}\nthe server's log:\n{log}", block.place(), block.text);
        self.printed = Printed::Text(printed);
        self.run += 1;
    }

    /// Writes a program beside the other files of the page. Returns the line that executes it.
    fn program(&self, block: &Block, interpreter: &str, extension: &str) -> String {
        let name = format!("block_{}.{extension}", block.line);
        std::fs::write(self.folder.path().join(&name), self.here(&block.text)).expect("a program of the page");
        format!("{interpreter} {name}")
    }

    /// Stops the server of the page, starts that of a block, and waits until it serves.
    async fn start_server(&mut self, block: &Block) {
        if let Some(before) = self.server.take() {
            before.interrupt().await;
        }
        let command = self.shell(&block.text);
        let mut server = self.start(command);
        let url = format!("http://{}/healthz", self.address);
        let client = http_client();
        until(&format!("{}: the server serves", block.place()), || {
            assert!(!server.has_ended(), "{}: the server ended:\n{}", block.place(), server.complaints());
            let request = client.get(&url).send();
            async { request.await.ok().filter(|answer| answer.status() == 200).map(|_| ()) }
        })
        .await;
        self.server = Some(server);
        self.printed = Printed::ByServer;
        self.run += 1;
    }

    /// Starts a server with a configuration, in a data folder of its own, with the variables exported so far: a database remembers its seal
    /// key.
    async fn check_config(&mut self, block: &Block) {
        let file = self.files.path().join(format!("config_{}.yaml", block.line));
        std::fs::write(&file, &block.text).expect("a configuration");
        let data = TempDir::new().expect("a data folder");
        let (binary, config, folder) = (binary(), file.display(), data.path().display());
        let mut command = self.shell(&format!("exec {} serve --listen 127.0.0.1:0 --config {config} --data {folder}", binary.display()));
        for name in variables(&block.text) {
            if name != "DATABASE_URL" {
                command.env(name, format!("{ANY_VALUE}-{name}"));
            }
        }
        let mut server = self.start(command);
        until(&format!("{}: a server starts with this configuration", block.place()), || {
            let is_serving = server.complaints().contains("serving");
            assert!(is_serving || !server.has_ended(), "{}: the configuration is refused:\n{}", block.place(), server.complaints());
            async move { is_serving.then_some(()) }
        })
        .await;
        self.printed = Printed::Nothing;
    }

    async fn compare(&mut self, block: &Block) {
        let shown = self.here(&block.text);
        let differs = |printed: &str| format!("{} shows\n{shown}\nbut this was printed:\n{printed}", block.place());
        match std::mem::replace(&mut self.printed, Printed::Nothing) {
            Printed::Nothing => panic!("{}: the block before it prints nothing that could be compared", block.place()),
            Printed::Text(printed) => assert!(is_as_shown(&shown, &printed), "{}", differs(&printed)),
            Printed::ByServer => {
                let server = self.server.as_ref().expect("a server was started");
                until(&differs("what is in its standard output"), || async { is_as_shown(&shown, &server.printed()).then_some(()) }).await;
            }
        }
    }

    async fn check_syntax(&mut self, block: &Block, language: Language) {
        match language {
            Language::Shell => {
                let mut command = self.command("bash");
                command.args(["-n", "-c", &block.text]);
                let mut process = self.start(command);
                assert!(process.ends().await.is_some_and(|status| status.success()), "{}: {}", block.place(), process.complaints());
            }
            Language::Ini => {
                let is_known = |line: &str| line.is_empty() || line.starts_with(['[', '#']) || line.contains('=');
                assert!(block.text.lines().all(is_known), "{}: a line is neither a section nor a setting", block.place());
            }
            Language::Nginx => {
                let statements = block.text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                let is_ended = |line: &str| line.ends_with([';', '{', '}']);
                let count = |bracket: char| block.text.matches(bracket).count();
                assert!(statements.clone().all(is_ended) && count('{') == count('}'), "{}: a statement has no end", block.place());
            }
            Language::Python | Language::JavaScript | Language::Yaml => panic!("{}: it is run, not parsed", block.place()),
        }
    }

    fn start(&mut self, command: Command) -> Process {
        self.started += 1;
        Process::start(command, self.files.path(), &self.started.to_string())
    }

    /// Replaces the address in the pages by that of this page's server, and the command by the binary under test.
    fn here(&self, text: &str) -> String {
        text.replace(SHOWN_ADDRESS, &self.address.to_string()).replace(FROM_SOURCES, "windlass")
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = self.command("bash");
        command.args(["-euo", "pipefail", "-c"]).arg(format!(". {}\n{}", self.exports.display(), self.here(script)));
        command
    }

    /// A command in the folder of the page, with the programs that the page needs and without the settings of this machine.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let is_ours = |name: &str| ["WINDLASS_", "OPENAI_", "LANGSMITH_"].iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name) || name.to_lowercase().ends_with("_proxy")) {
            command.env_remove(name);
        }
        let rest = std::env::var("PATH").unwrap_or_default();
        let path = [self.files.path().to_owned(), clients().join("python/bin"), PathBuf::from(rest)];
        let path: Vec<String> = path.iter().map(|path: &PathBuf| path.to_string_lossy().into_owned()).collect();
        command.current_dir(self.folder.path()).env("PATH", path.join(":")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("WINDLASS_SERVER__LISTEN", self.address.to_string());
        if let Some(database) = &self.database {
            command.env("DATABASE_URL", &database.url);
        }
        command
    }
}

/// Creates a database, and drops the one into which the page restores a backup.
async fn empty_database() -> postgres::Database {
    let database = postgres::Server::shared().database_alone().await;
    let drop = format!("DROP DATABASE IF EXISTS {RESTORED} WITH (FORCE)");
    database.client().await.batch_execute(&drop).await.expect("an old database can be dropped");
    database
}

fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// The environment variables that a configuration reads.
fn variables(config: &str) -> BTreeSet<&str> {
    config.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next()).collect()
}
