//! A server that is a process of ours, spoken to over its standard input and output.

use std::{collections::BTreeMap, fmt, io, process::Stdio, time::Duration};

use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    process::{Child, ChildStdin, ChildStdout},
    runtime::Handle,
};

use crate::stderr;

/// What a process is given of our environment. The rest is full of keys that are none of its business.
const ENVIRONMENT: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"];
/// How long a process may tidy up when it is told to end.
const GRACE: Duration = Duration::from_millis(500);

/// How often a call looks whether its process still runs.
const LOOK: Duration = Duration::from_millis(200);

/// How the process is started.
#[derive(Clone)]
pub(crate) struct Command {
    /// The server's label, under which its stderr is logged.
    pub(crate) label: String,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("program", &self.program).finish_non_exhaustive()
    }
}

pub(crate) type Pipes = AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>;

impl Command {
    /// Starts the process. Lines longer than `line_bytes_max` are not kept.
    pub(crate) fn start(&self, line_bytes_max: usize) -> io::Result<(Pipes, Process)> {
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that what it starts ends with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(stderr::log_lines(stderr, self.label.clone()));
        }
        Ok((Pipes::new(output, input).with_max_line_length(line_bytes_max), Process(Some(Ending(child)))))
    }
}

/// A running process. It and all that it started end when this is let go.
pub(crate) struct Process(Option<Ending>);

impl Process {
    /// Whether the process itself still runs. What it started may live longer, and keep its pipes open.
    pub(crate) fn lives(&self) -> bool {
        let id = self.0.as_ref().and_then(|ending| ending.group());
        // Without taking note of its end: then its number could be another's before all of the group is gone.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        id.is_some_and(|id| matches!(waitid(WaitId::Pid(id), look), Ok(None)))
    }

    /// Comes back once the process is over.
    pub(crate) async fn over(&self) {
        while self.lives() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the process and waits until it is gone.
    pub(crate) async fn end(mut self) {
        if let Some(ending) = self.0.take() {
            ending.end().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Some(ending), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(ending.end());
        }
    }
}

/// A process on its way out: whatever becomes of this, nothing of the group is left.
struct Ending(Child);

impl Ending {
    async fn end(mut self) {
        self.signal(Signal::TERM);
        tokio::time::sleep(GRACE).await;
        self.signal(Signal::KILL);
        // Only now: once it was waited for, its number could be another's.
        let _ = self.0.wait().await;
    }

    /// The number of the group, which is that of its first process. None once that was waited for.
    fn group(&self) -> Option<Pid> {
        self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            // Whoever is gone already needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Where the runtime ends before the time that the process was given.
        self.signal(Signal::KILL);
    }
}
