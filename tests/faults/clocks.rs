//! Clocks that are wrong, and clocks that jump. The servers' own monotonic clocks stay as they are: those no operator moves.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use windlass_tests::{NatsServer, postgres::Server as Postgres};

use crate::{
    Trial,
    cluster::{Cluster, builder},
    load::Load,
};

const AGENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(200);

/// The library that moves a process's clock. Where it is depends on the machine.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let places = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    let found = places.map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file());
    found.expect("libfaketime is installed: it is in the Debian package faketime")
}

/// A clock that a file moves.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(folder: &TempDir, name: &str, offset: &str) -> Self {
        let clock = Clock { file: folder.path().join(name) };
        clock.set(offset);
        clock
    }

    /// Moves it by so much from what it truly is, as in `+3600s`. Nobody reads half of a file.
    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{offset}\n")).expect("a clock can be set");
        std::fs::rename(new, &self.file).expect("a clock can be set");
    }

    /// What a process needs to live by it.
    fn env(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let pairs = [
            ("LD_PRELOAD", text(&library())),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.file)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

/// One server is right, one an hour ahead, one an hour behind. The store's clock decides who is alive.
#[tokio::test(flavor = "multi_thread")]
async fn servers_an_hour_ahead_and_an_hour_behind() {
    let mut trial = Trial::begin("clocks an hour ahead and behind").await;
    let folder = TempDir::new().expect("a folder for clocks");
    let clocks = [Clock::new(&folder, "right", "+0s"), Clock::new(&folder, "ahead", "+3600s"), Clock::new(&folder, "behind", "-3600s")];
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let config = format!("store: {{ url: '{}' }}\n{}", database.url, nats.config());
    let mut cluster = Cluster::start(clocks.iter().map(|clock| (builder(&config), clock.env())).collect()).await;
    trial.faults += 2;
    let load = Load::start(&cluster.roads, 0);
    let kills = async {
        for victim in 0..cluster.len() {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            cluster.kill(victim);
            trial.faults += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
            cluster.revive(victim).await;
        }
    };
    load.ask_beside(AGENTS, PAUSE, kills).await;
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

/// A clock that is moved under load, forwards and back.
async fn jumps(trial: &mut Trial, clock: &Clock) {
    for offset in ["+3600s", "-3600s", "+0s", "+43200s", "+30s", "+0s"] {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        clock.set(offset);
        trial.faults += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_jumps() {
    let mut trial = Trial::begin("a clock that jumps, of one in three").await;
    let folder = TempDir::new().expect("a folder for clocks");
    let clocks = [Clock::new(&folder, "right", "+0s"), Clock::new(&folder, "jumps", "+0s"), Clock::new(&folder, "fine", "+0s")];
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let config = format!("store: {{ url: '{}' }}\n{}", database.url, nats.config());
    let cluster = Cluster::start(clocks.iter().map(|clock| (builder(&config), clock.env())).collect()).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask_beside(AGENTS, PAUSE, jumps(&mut trial, &clocks[1])).await;
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_sqlite_whose_clock_jumps() {
    let mut trial = Trial::begin("a clock that jumps, on SQLite").await;
    let folder = TempDir::new().expect("a folder for clocks");
    let clock = Clock::new(&folder, "jumps", "+0s");
    let cluster = Cluster::start(vec![(builder(""), clock.env())]).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask_beside(AGENTS, PAUSE, jumps(&mut trial, &clock)).await;
    trial.judge(&cluster, &load, None).await;
}
