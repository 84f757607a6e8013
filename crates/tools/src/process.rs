//! A server that is a process of ours, spoken to over its standard input and output.

use std::{collections::BTreeMap, fmt, io, process::Stdio, sync::Arc, time::Duration};

use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use tokio::{
    io::DuplexStream,
    process::{Child, ChildStdin},
    runtime::Handle,
};

use crate::output::{BUFFER_BYTES, Output};

/// What a process is given of our environment. The rest is full of keys that are none of its business.
const ENVIRONMENT: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"];
/// How long a process may tidy up when it is told to end.
const GRACE: Duration = Duration::from_millis(500);

/// How long a message about a failure waits for the end of its process.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// How often a call looks whether its process still runs.
const LOOK: Duration = Duration::from_millis(200);

/// How the process is started.
#[derive(Clone)]
pub(crate) struct Command {
    /// The label of the server, for the lines of its standard error.
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

pub(crate) type Pipes = AsyncRwTransport<RoleClient, DuplexStream, ChildStdin>;

/// Shorter values are ordinary words more often than secrets.
const SECRET_LETTERS_MIN: usize = 4;

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
        let (Some(input), Some(reader), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let output = Output::new();
        tokio::spawn(output.clone().read_errors(self.label.clone(), errors));
        let (passed_on, session) = tokio::io::duplex(BUFFER_BYTES);
        tokio::spawn(output.clone().read_output(reader, passed_on));
        let process = Process { ending: Some(Ending(child)), program: self.program.clone(), output };
        Ok((Pipes::new(session, input).with_max_line_length(line_bytes_max), process))
    }

    /// The text without the values of the variables that the process was given.
    pub(crate) fn hide(&self, text: &str) -> String {
        let secrets = self.environment.values().filter(|value| value.len() >= SECRET_LETTERS_MIN);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[hidden]"))
    }
}

/// A running process. It and all that it started end when this is dropped.
pub(crate) struct Process {
    ending: Option<Ending>,
    program: String,
    output: Arc<Output>,
}

impl Process {
    /// Whether the process itself still runs. What it started may live longer, and keep its pipes open.
    pub(crate) fn lives(&self) -> bool {
        self.id().is_some_and(|id| matches!(exit_of(id), Ok(None)))
    }

    fn id(&self) -> Option<Pid> {
        self.ending.as_ref().and_then(|ending| ending.group())
    }

    /// What is known about the failure of the process: how it ended, and what it printed.
    pub(crate) async fn evidence(&self) -> String {
        // Its pipes close just before it is over.
        let _ = tokio::time::timeout(EXIT_WAIT, self.over()).await;
        let exit = self.id().and_then(|id| exit_of(id).ok().flatten());
        if exit.is_some() {
            self.output.ended().await;
        }
        let how = match exit.map(|exit| (exit.exit_status(), exit.terminating_signal())) {
            Some((Some(status), _)) => format!("exited with status {status}"),
            Some((None, Some(signal))) => format!("was ended by signal {signal}"),
            Some((None, None)) => "ended".to_owned(),
            None => "still runs".to_owned(),
        };
        format!("its program {:?} {how}{}", self.program, self.output.quoted())
    }

    /// Comes back once the process is over.
    pub(crate) async fn over(&self) {
        while self.lives() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the process and waits until it is gone.
    pub(crate) async fn end(mut self) {
        if let Some(ending) = self.ending.take() {
            ending.end().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Some(ending), Ok(runtime)) = (self.ending.take(), Handle::try_current()) {
            runtime.spawn(ending.end());
        }
    }
}

/// How a process ended, if it did. Its end stays to be waited for: else its number could be another's before all of the group is gone.
fn exit_of(id: Pid) -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
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
