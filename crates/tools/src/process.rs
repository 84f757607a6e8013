//! A server that is a child process, over its standard input and output.

use std::{collections::BTreeMap, fmt, io, process::Stdio, sync::Arc, time::Duration};

use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use tokio::{
    io::DuplexStream,
    process::{Child, ChildStdin},
    runtime::Handle,
};

use crate::output::{BUFFER_BYTES, Output};

/// The variables of our environment that a process inherits. The others may contain keys that it must not see.
const ENVIRONMENT: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"];
/// How long a process may clean up after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// How long a message about a failure waits for the exit of the process.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// How often a call checks whether its process still runs.
const EXIT_POLL: Duration = Duration::from_millis(200);

/// The command that starts the process.
#[derive(Clone)]
pub(crate) struct Command {
    /// The label of the server, for the log lines of its standard error.
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

/// Shorter values are not hidden: they are more often ordinary words than secrets.
const SECRET_LETTERS_MIN: usize = 4;

impl Command {
    /// Starts the process. Lines longer than `line_bytes_max` are dropped.
    pub(crate) fn start(&self, line_bytes_max: usize) -> io::Result<(Pipes, Process)> {
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The process gets a process group of its own, so that its children end with it.
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

    /// Replaces the values of the variables that the process was given.
    pub(crate) fn hide(&self, text: &str) -> String {
        let secrets = self.environment.values().filter(|value| value.len() >= SECRET_LETTERS_MIN);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[hidden]"))
    }
}

/// A running process. Dropping it ends the process and all its children.
pub(crate) struct Process {
    ending: Option<Ending>,
    program: String,
    output: Arc<Output>,
}

impl Process {
    /// Whether the process itself still runs. Its children may outlive it and keep its pipes open.
    pub(crate) fn lives(&self) -> bool {
        self.id().is_some_and(|id| matches!(exit_of(id), Ok(None)))
    }

    fn id(&self) -> Option<Pid> {
        self.ending.as_ref().and_then(|ending| ending.group())
    }

    /// The known facts about a failed process: its exit status and its output.
    pub(crate) async fn evidence(&self) -> String {
        // The pipes of a process close shortly before it exits.
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

    /// Returns once the process has exited.
    pub(crate) async fn over(&self) {
        while self.lives() {
            tokio::time::sleep(EXIT_POLL).await;
        }
    }

    /// Ends the process and waits until it has exited.
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

/// The exit status of a process, if it has exited. The process is not reaped: otherwise its id could belong to another process before its
/// whole group has ended.
fn exit_of(id: Pid) -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// A process that is being ended. However this is dropped, no process of the group is left.
struct Ending(Child);

impl Ending {
    async fn end(mut self) {
        self.signal(Signal::TERM);
        tokio::time::sleep(GRACE).await;
        self.signal(Signal::KILL);
        // It is reaped last, because its id could belong to another process afterwards.
        let _ = self.0.wait().await;
    }

    /// The id of the group, which is that of its first process. `None` once that has been reaped.
    fn group(&self) -> Option<Pid> {
        self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            // An error means that the group has ended already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // For the case that the runtime ends during the grace period.
        self.signal(Signal::KILL);
    }
}
