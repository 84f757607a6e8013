//! Wall clocks that are wrong, and wall clocks that jump. The servers' monotonic clocks stay as they are, because no operator can change
//! them.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_tests::{NatsServer, Server, postgres::Server as Postgres, until};

use crate::{
    Trial, checker,
    cluster::{Cluster, builder, limited},
    load::Load,
};

const AGENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(200);

/// The library that changes the clock of a process (libfaketime). Its path depends on the machine.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let places = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    let found = places.map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file());
    found.expect("libfaketime is installed: it is in the Debian package faketime")
}

/// A clock that is controlled by a file.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(folder: &TempDir, name: &str, offset: &str) -> Self {
        let clock = Clock { file: folder.path().join(name) };
        clock.set(offset);
        clock
    }

    /// Sets the offset from the true time, as in `+3600s`. The file is replaced atomically, so that no process reads half of it.
    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{offset}\n")).expect("a clock can be set");
        std::fs::rename(new, &self.file).expect("a clock can be set");
    }

    /// The environment variables that make a process use this clock.
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

/// One server has the right time, one is an hour ahead, one an hour behind. The store's clock decides which servers are alive.
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

/// Moves the clock under load, forwards and back.
async fn jumps(trial: &mut Trial, clock: &Clock) {
    for offset in ["+3600s", "-3600s", "+0s", "+43200s", "+30s", "+0s"] {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        clock.set(offset);
        trial.faults += 1;
    }
}

/// No server dies here, and every jump is longer than a lease or a deadline. A server that used the wall clock would give up leases that
/// hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_jumps() {
    let mut trial = Trial::begin("a clock that jumps, of one in three").await;
    let folder = TempDir::new().expect("a folder for clocks");
    let clocks = [Clock::new(&folder, "right", "+0s"), Clock::new(&folder, "jumps", "+0s"), Clock::new(&folder, "fine", "+0s")];
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database_alone().await;
    let config = format!("store: {{ url: '{}' }}\n{}", database.url, nats.config());
    let builder = || limited("lease: 30s, call_deadline: 10m", &config);
    let cluster = Cluster::start(clocks.iter().map(|clock| (builder(), clock.env())).collect()).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask_beside(AGENTS, PAUSE, jumps(&mut trial, &clocks[1])).await;
    let alarms = checker::false_alarms(&cluster.roads, &load).await;
    load.wrong.lock().expect("the lock is not poisoned").extend(alarms);
    trial.judge(&cluster, &load, Some((&listener, true))).await;
}

/// The deadline of the call below, the length of a service's lease, and the tolerance between two clocks that were never compared.
const DEADLINE: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_secs(2);
const BLUR: Duration = Duration::from_millis(600);

/// A call that is made and claimed at one server is offered again, and in the end given up, by the clock of the database: not by that of
/// the server that made it, and not by that of the server that sweeps. The server that sweeps runs from the beginning, or is the only one
/// left.
async fn ends_by_the_database(makes: &mut Server, looks: &Server, survives: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let asked = Instant::now();
    let agent = if survives { "early" } else { "late" };
    let run = makes.enqueue_body(agent, json!({ "input": "wait", "tools": ["echo"] })).await;
    let claim = async |server: &Server| {
        let body = json!({ "worker": "w", "max": 1, "lease_s": HOLD.as_secs() });
        let answer = server.post("/v1/tools/echo/claim", body).await.ok();
        answer["calls"].as_array().and_then(|calls| calls.first().cloned())
    };
    until("the call is made", || claim(makes)).await;
    let made = Instant::now();
    if !survives {
        makes.kill();
    }
    until("the call is given out again", || claim(looks)).await;
    must(made.elapsed() + BLUR >= HOLD, format!("a hold of {HOLD:?} was over after {:?}", made.elapsed()));
    let view = looks.ended(&run).await;
    must(asked.elapsed() + BLUR >= DEADLINE, format!("a deadline of {DEADLINE:?} was over after {:?}", asked.elapsed()));
    let journal = looks.journal(&run).await;
    let kinds: Vec<(&Value, &Value)> = journal.iter().map(|entry| (&entry["event"]["kind"], &entry["event"]["status"])).collect();
    let count = |kind: &str| kinds.iter().filter(|(found, _)| *found == kind).count();
    let is_given_up = kinds.iter().any(|(kind, status)| *kind == "reported" && *status == "timeout");
    must(is_given_up && count("lease_ended") >= 1 && view["task_status"] == "success", format!("{run} ended as {view}: {kinds:?}"));
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_and_holds_end_by_the_clock_of_the_database() {
    let mut trial = Trial::begin("deadlines and holds with clocks an hour off").await;
    let folder = TempDir::new().expect("a folder for clocks");
    let clocks = [Clock::new(&folder, "ahead", "+3600s"), Clock::new(&folder, "behind", "-3600s")];
    let database = Postgres::shared().database_alone().await;
    let config = format!("store: {{ url: '{}' }}\n", database.url);
    let start = async |clock: &Clock| {
        let builder = limited(&format!("lease: 5s, call_deadline: {}s", DEADLINE.as_secs()), &config);
        clock.env().iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await
    };
    let (mut ahead, mut behind) = (start(&clocks[0]).await, start(&clocks[1]).await);
    trial.faults += 2;
    // By the clock of the server behind, the deadline would have passed an hour before the call is made.
    let mut wrong = ends_by_the_database(&mut behind, &ahead, true).await;
    // By the clock of the server ahead, the deadline would be an hour away.
    wrong.extend(ends_by_the_database(&mut ahead, &behind, false).await);
    trial.close("2 calls", &wrong);
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
