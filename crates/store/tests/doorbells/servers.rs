//! Servers of the tests' own, killed when they are dropped.

use std::{
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::PATIENCE;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(command: &mut Command, package: &str) -> Child {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.unwrap_or_else(|error| panic!("{command:?}: {error}; it is in the Debian package {package}"))
}

async fn answers(port: u16) {
    let began = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "the server is not up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A NATS server.
pub struct NatsServer {
    child: Option<Child>,
    port: u16,
}

impl NatsServer {
    pub async fn start() -> Self {
        let mut server = Self::down();
        server.up().await;
        server
    }

    /// One that is not up yet.
    pub fn down() -> Self {
        NatsServer { child: None, port: free_port() }
    }

    pub async fn up(&mut self) {
        let port = self.port.to_string();
        self.child = Some(spawn(Command::new("nats-server").args(["-a", "127.0.0.1", "-p", &port]), "nats-server"));
        answers(self.port).await;
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A PostgreSQL server with an empty database.
pub struct Postgres {
    folder: TempDir,
    child: Option<Child>,
    port: u16,
}

impl Postgres {
    pub async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        // The server refuses to run as root, and so does its setup.
        if is_root() {
            let owned = Command::new("chown").arg("nobody").arg(folder.path()).status();
            assert!(owned.unwrap().success());
        }
        let made = as_nobody("initdb").args(["-U", "windlass", "-A", "trust", "-N", "-D"]).arg(&data).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = Postgres { folder, child: None, port: free_port() };
        server.up().await;
        server
    }

    pub async fn up(&mut self) {
        let mut command = as_nobody("postgres");
        command.arg("-D").arg(self.folder.path().join("data")).args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-k", "", "-F"]);
        self.child = Some(spawn(&mut command, "postgresql"));
        let began = std::time::Instant::now();
        while tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "PostgreSQL is not up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops it at once, as a crash would.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The first line of this file is the server's process; the child may be a program that started it.
        let pid = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        let pid = pid.lines().next().and_then(|line| line.parse().ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        }
        let _ = child.wait();
    }

    pub fn url(&self) -> String {
        format!("postgres://windlass@127.0.0.1:{}/postgres", self.port)
    }

    pub async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Ends every connection of a name; returns how many there were.
    pub async fn cut(&self, name: &str) -> u64 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
        self.client().await.execute(sql, &[&name]).await.unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A program of PostgreSQL's, from the path or from where Debian keeps it; not as root.
fn as_nobody(program: &str) -> Command {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).chain(debian).collect();
    // Both programs from one place: another may have another version.
    let place = places.into_iter().find(|place| place.join("initdb").exists() && place.join("postgres").exists());
    let found = place.expect("PostgreSQL is installed: it is in the Debian package postgresql").join(program);
    if !is_root() {
        return Command::new(found);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]).arg(found).current_dir("/");
    command
}
