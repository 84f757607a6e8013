//! The first commands of a new user, run with the real binary in an empty folder.

mod demo;
mod dev;
mod inbox;
mod logs;
mod overload;
mod tls;
mod verbs;

use std::{path::Path, process::Command};

use windlass_tests::binary;

/// The command in a folder, without any settings of a server in the environment.
fn windlass(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    // The list of the last `windlass inbox` is the test's own.
    command.args(arguments).current_dir(folder).env("XDG_STATE_HOME", folder.join(".windlass/state"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    command
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Sends a signal to a process.
fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().expect("a process id is small")).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the signal arrives");
}

/// Whether a process exists.
fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
