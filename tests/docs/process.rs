//! A process started by a block.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use windlass_tests::PATIENCE;

/// A running process and all processes that it started. Dropping it kills them. Its output goes to two files.
pub struct Process {
    child: Child,
    group: Pid,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts a command. `files` is the folder for its output; `name` is unique in that folder.
    pub fn start(mut command: Command, files: &Path, name: &str) -> Self {
        let (stdout, stderr) = (files.join(format!("{name}.out")), files.join(format!("{name}.err")));
        let file = |path: &Path| std::fs::File::create(path).expect("a file for what it prints");
        command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr)).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let group = child.id().and_then(|id| Pid::from_raw(id as i32)).expect("a process id");
        Process { child, group, stdout, stderr }
    }

    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    pub fn complaints(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }

    /// Waits until it ends; `None` if it does not end in time.
    pub async fn ends(&mut self) -> Option<ExitStatus> {
        timeout(PATIENCE, self.child.wait()).await.ok()?.ok()
    }

    /// Stops it with SIGINT, as Ctrl-C does, and waits until it ends.
    pub async fn interrupt(mut self) {
        let _ = kill_process_group(self.group, Signal::INT);
        assert!(self.ends().await.is_some(), "it does not stop:\n{}", self.complaints());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}
