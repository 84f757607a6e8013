//! A full disk: writes are refused with an error that says so, acknowledged data stays, and all work continues when there is room again.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;
use windlass_tests::ServerBuilder;

use crate::{
    Trial,
    cluster::{Cluster, builder},
    load::Load,
};

const AGENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the free space away and gives it back, a few times, under load.
async fn squeeze(trial: &mut Trial, cluster: &Cluster, load: &Arc<Load>, fill: impl Fn(), clear: impl Fn()) {
    let refused = || cluster.roads.refused.load(Ordering::Relaxed);
    let mut refusals = 0;
    let faults = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let before = refused();
            fill();
            trial.faults += 1;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            refusals += u32::from(refused() > before);
            clear();
        }
    };
    load.ask_beside(AGENTS, PAUSE, faults).await;
    // A log that was just checkpointed has room for a while, so some fillings have no effect. If none of them has one, the test shows
    // nothing.
    if refusals == 0 {
        load.wrong.lock().expect("the lock is not poisoned").push("no client was ever refused because of the full disk".into());
    }
    trial.judge(cluster, load, None).await;
}

/// A limit on the size of files, which every user may set: writes fail, but not with the error for a full disk.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_files_that_must_not_grow() {
    let mut trial = Trial::begin("SQLite's files at their limit").await;
    // A write beyond the limit first raises a signal that ends a process, unless the process ignores it.
    let builder = builder("").under(&["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    let cluster = Cluster::start(vec![(builder, Vec::new())]).await;
    let load = Load::start(&cluster.roads, 0);
    let pid = Pid::from_raw(cluster.server(0).pid().cast_signed()).expect("a process id");
    let limit = |bytes| {
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("the limit can be set");
    };
    squeeze(&mut trial, &cluster, &load, || limit(Some(64 << 10)), || limit(None)).await;
}

/// A small disk of its own for a server's database. Dropping it unmounts it.
struct Disk {
    folder: TempDir,
    /// Whether this process has mounted it. If not, the server mounts it in a namespace of its own.
    is_mounted: bool,
}

/// Large enough that only the ballast fills it: the log alone may grow to 64 MB before a checkpoint.
const SIZE: &str = "256m";

/// Mounts the disk on the folder, and then executes the server.
const MOUNT_AND_SERVE: &str = "mount -t tmpfs -o size=\"$0\" tmpfs \"$1\" && shift && exec \"$@\"";
/// A namespace of its own, in which every user may mount.
const ALONE: [&str; 6] = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];

impl Disk {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder for the disk");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"]).arg(folder.path());
        let is_mounted = succeeds(&mut mount);
        let disk = Disk { folder, is_mounted };
        if !is_mounted {
            let mut tried = Command::new(ALONE[0]);
            tried.args(&ALONE[1..]).args([MOUNT_AND_SERVE, SIZE]).arg(disk.path()).arg("true");
            assert!(
                succeeds(&mut tried),
                "no disk can be filled: this needs a user who may mount a tmpfs, or user namespaces that every user may make (`unshare -rm`)"
            );
        }
        disk
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A builder of a server with its database on the disk.
    fn builder(&self) -> ServerBuilder {
        let builder = builder(&format!("store: {{ url: 'sqlite:{}' }}\n", self.path().join("windlass.db").display()));
        if self.is_mounted {
            return builder;
        }
        let path = self.path().to_str().expect("a folder has a plain name");
        builder.under(&[&ALONE[..], &[MOUNT_AND_SERVE, SIZE, path]].concat())
    }

    /// The file that fills the disk, by a path through the server's process.
    fn ballast(&self, server: u32) -> PathBuf {
        let path = self.path().strip_prefix("/").expect("a folder has a whole path");
        Path::new(&format!("/proc/{server}/root")).join(path).join("ballast")
    }

    /// Fills the disk to the last byte.
    fn fill(&self, server: u32) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast(server)).expect("a file can be made");
        for piece in [1 << 20, 4 << 10, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    /// Frees the space again.
    fn clear(&self, server: u32) {
        std::fs::remove_file(self.ballast(server)).expect("the ballast was there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
        }
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_on_a_full_disk() {
    let mut trial = Trial::begin("SQLite on a full disk").await;
    let disk = Disk::new();
    let cluster = Cluster::start(vec![(disk.builder(), Vec::new())]).await;
    let load = Load::start(&cluster.roads, 0);
    let server = cluster.server(0).pid();
    squeeze(&mut trial, &cluster, &load, || disk.fill(server), || disk.clear(server)).await;
}
