//! The server that the demo kills: this same program, in a process of its own.

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

/// How much of its log is shown if something goes wrong.
const LINES_SHOWN: usize = 20;

/// A running server. It is dead and gone when this is dropped.
pub(super) struct Server {
    child: Child,
    base: String,
    data: PathBuf,
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl Server {
    /// Starts it with the configuration in the folder, and waits until it serves.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("this program does not know where it is")?);
        // Nothing that the person has set for a server of their own may reach this one, least of all their database.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command
            .args(["serve", "--config", "windlass.yaml", "--data", "data", "--listen", "127.0.0.1:0"])
            .current_dir(folder)
            .env("WINDLASS_LOG", "info")
            // The log is read by this program.
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("the server cannot be started")?;
        let stderr = child.stderr.take();
        let (tell, told) = oneshot::channel();
        // Made before anything can fail, so that the process is never left alone.
        let mut server = Server { child, base: String::new(), data: folder.join("data"), log: Log::default() };
        let log = server.log.clone();
        std::thread::spawn(move || listen(stderr, &log, tell));
        let address = told.await.with_context(|| format!("the server did not start\n{}", server.last_words()))?;
        server.base = format!("http://{address}");
        Ok(server)
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address, as http://….
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The token that it has made for itself.
    pub fn token(&self) -> anyhow::Result<String> {
        let token = std::fs::read_to_string(self.data.join("token")).context("the server has made no token")?;
        Ok(token.trim().to_owned())
    }

    /// Kills it with SIGKILL, and makes sure that it died of that.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("the server cannot be killed")?;
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(SIGKILL), "the server was to die of SIGKILL, but ended with {status}\n{}", self.last_words());
        Ok(())
    }

    /// The end of its log, for when something went wrong.
    pub fn last_words(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        format!("the server's log ends with:\n{}", log[log.len().saturating_sub(LINES_SHOWN)..].join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // The folder it writes to is removed next.
        let _ = self.child.wait();
    }
}

/// Keeps what the server logs, and tells the address once it serves.
fn listen(stderr: Option<ChildStderr>, log: &Log, tell: oneshot::Sender<String>) {
    let mut tell = Some(tell);
    for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok)) {
        if let Some(address) = address(&line)
            && let Some(tell) = tell.take()
        {
            let _ = tell.send(address.to_owned());
        }
        log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// The address, if this is the line that says that the server serves.
fn address(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" serving ")?.1.split_once("address=")?;
    rest.split_whitespace().next()
}
