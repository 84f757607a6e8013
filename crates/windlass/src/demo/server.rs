//! The server that the demo kills: this program in a process of its own.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, ensure};
use tokio::sync::oneshot;

const SIGKILL: i32 = 9;

/// Lines of the log that are shown after a failure.
const LINES_SHOWN: usize = 20;

/// A running server. Dropping it kills the process and waits for its exit.
pub(super) struct DemoServer {
    child: Child,
    base: String,
    data: PathBuf,
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl DemoServer {
    /// Starts the server with the configuration in the folder, and waits until it serves.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("this program does not know where it is")?);
        // No setting of the user's own server may reach this one, least of all the database.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--config", "windlass.yaml", "--data", "data", "--listen", "127.0.0.1:0"])
            .current_dir(folder)
            .env("WINDLASS_LOG", "info")
            // This program parses the log.
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("the server cannot be started")?;
        let stderr = child.stderr.take();
        let (address_sender, address_receiver) = oneshot::channel();
        // Created before anything can fail, so that the process is always killed.
        let mut server = DemoServer { child, base: String::new(), data: folder.join("data"), log: Log::default() };
        let log = server.log.clone();
        std::thread::spawn(move || listen(stderr, &log, address_sender));
        let address = address_receiver.await.with_context(|| format!("the server did not start\n{}", server.log_end()))?;
        server.base = format!("http://{address}");
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The address, as http://….
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The token that the server created.
    pub fn token(&self) -> anyhow::Result<String> {
        let token = std::fs::read_to_string(self.data.join("token")).context("the server has made no token")?;
        Ok(token.trim().to_owned())
    }

    /// Kills the server with SIGKILL and checks that it died of that.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("the server cannot be killed")?;
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(SIGKILL), "the server was to die of SIGKILL, but ended with {status}\n{}", self.log_end());
        Ok(())
    }

    /// The end of its log.
    pub fn log_end(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        format!("the server's log ends with:\n{}", log[log.len().saturating_sub(LINES_SHOWN)..].join("\n"))
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Waits, because the folder that the server writes to is removed next.
        let _ = self.child.wait();
    }
}

/// Collects the server's log, and sends the address once the server serves.
fn listen(stderr: Option<ChildStderr>, log: &Log, address_sender: oneshot::Sender<String>) {
    let mut address_sender = Some(address_sender);
    for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok)) {
        if let Some(address) = address(&line)
            && let Some(address_sender) = address_sender.take()
        {
            let _ = address_sender.send(address.to_owned());
        }
        log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// The address, if this line of the log reports it.
fn address(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" serving ")?.1.split_once("address=")?;
    rest.split_whitespace().next()
}
