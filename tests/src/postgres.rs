//! A private PostgreSQL for tests: one server per test process, one database per test.
//!
//! `WINDLASS_TEST_POSTGRES_URL` names a server to be used instead. Without it, and without the programs of a PostgreSQL server,
//! tests fail and say what is missing.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio_postgres::{Client, NoTls};

use crate::{address::Address, certificate};

/// What the server is told. Nothing here is less durable than what users have.
const CONFIGURATION: &str = "
listen_addresses = '127.0.0.1'
max_connections = 400
shared_buffers = 64MB
max_wal_size = 256MB
autovacuum_naptime = 5s
log_min_messages = warning
";

/// A server that ends with this process, however that ends.
pub struct Server {
    folder: PathBuf,
    address: Address,
    /// It waits for the end of its input, which is the end of this process; then it stops the server and removes the folder.
    watchdog: Option<Child>,
    base: String,
}

impl Server {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var("WINDLASS_TEST_POSTGRES_URL") {
            Ok(url) => {
                let (base, _) = url.rsplit_once('/').expect("WINDLASS_TEST_POSTGRES_URL is postgres://…/database");
                Server { folder: PathBuf::new(), address: Address::new(), watchdog: None, base: base.to_owned() }
            }
            Err(_) => Server::start(),
        })
    }

    /// A server of one's own that takes connections over TCP with TLS alone, and the file of its certificate, which names 127.0.0.1.
    pub fn start_with_tls() -> (Server, PathBuf) {
        let mut made = PathBuf::new();
        let server = Server::prepared(|folder, data| {
            let (key, certificate) = (data.join("server.key"), folder.join("server.crt"));
            let mut openssl = as_owner(Path::new("openssl"));
            run(certificate::request(&mut openssl, "127.0.0.1", "IP:127.0.0.1").arg("-keyout").arg(&key).arg("-out").arg(&certificate));
            let rules = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
            std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
            made.clone_from(&certificate);
            format!("ssl = on\nssl_cert_file = '{}'\nssl_key_file = 'server.key'\n", certificate.display())
        });
        (server, made)
    }

    /// A server of one's own, for tests that break it.
    pub fn start() -> Server {
        Server::prepared(|_, _| String::new())
    }

    /// A server with more configuration, which is given for its folder and the folder of its data.
    fn prepared(more: impl FnOnce(&Path, &Path) -> String) -> Server {
        let folder = tempfile::Builder::new().prefix("windlass-postgres-").tempdir().unwrap().keep();
        let data = folder.join("data");
        own(&folder);
        run(program("initdb").args(["-A", "trust", "-U", "windlass", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data));
        let address = Address::new();
        let sockets = folder.display();
        let more = more(&folder, &data);
        let configuration = format!("{CONFIGURATION}\nport = {}\nunix_socket_directories = '{sockets}'\n{more}", address.port());
        let file = data.join("postgresql.conf");
        let whole = std::fs::read_to_string(&file).unwrap() + &configuration;
        std::fs::write(&file, whole).unwrap();
        let watchdog = watch(&folder);
        let server = Server { base: format!("postgres://windlass@{address}"), folder, address, watchdog: Some(watchdog) };
        server.begin();
        server
    }

    /// Starts the server's process.
    pub fn begin(&self) {
        run(self.control().args(["-w", "-l"]).arg(self.folder.join("log")).arg("start"));
    }

    /// Stops the server as a power cut would: nothing is flushed that was not before.
    pub fn cut(&self) {
        run(self.control().args(["-w", "-m", "immediate", "stop"]));
    }

    fn control(&self) -> Command {
        let mut control = program("pg_ctl");
        control.arg("-D").arg(self.folder.join("data"));
        control
    }

    /// An empty database that no other test has. A schema, for making one takes a hundredth of the time.
    pub async fn database(&self) -> Database {
        let (admin, name) = self.admin().await;
        admin.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        self.named(&format!("postgres?options=-csearch_path%3D{name}"), format!("DROP SCHEMA {name} CASCADE"))
    }

    /// A database whose connections are nobody else's, for tests that end them.
    pub async fn database_alone(&self) -> Database {
        let (admin, name) = self.admin().await;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        self.named(&name, format!("DROP DATABASE {name} WITH (FORCE)"))
    }

    /// A connection, and a name that nobody has. What earlier tests left on a server that stays is cleared away.
    async fn admin(&self) -> (Client, String) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // A server of our own is reached over its socket, which asks for no encryption.
        let url = if self.watchdog.is_some() { self.socket("postgres") } else { format!("{}/postgres", self.base) };
        let admin = connect(&url).await;
        if self.watchdog.is_none() {
            let left = std::mem::take(&mut *LEFT.lock().unwrap());
            for drop in left {
                let _ = admin.batch_execute(&format!("SET lock_timeout = '2s'; {drop}")).await;
            }
        }
        (admin, format!("windlass_test_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed)))
    }

    fn named(&self, name: &str, drop: String) -> Database {
        Database { url: format!("{}/{name}", self.base), socket: self.socket(name), drop }
    }

    /// The address of a database over the server's unix socket.
    fn socket(&self, name: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://windlass@{folder}:{}/{name}", self.address.port())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
    }
}

/// How to drop the databases whose tests are over.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A database of one test.
pub struct Database {
    /// Where it is.
    pub url: String,
    /// The same over a unix socket.
    pub socket: String,
    drop: String,
}

impl Database {
    /// A connection beside the store's own.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        LEFT.lock().unwrap().push(self.drop.clone());
    }
}

/// A schema as SQL that makes the same in whatever schema comes first in the search path.
pub(crate) fn dump(database: &Database, schema: &str) -> String {
    let output =
        program("pg_dump").args(["--inserts", "--no-owner", "--no-privileges", "--schema", schema, &database.socket]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)
        .unwrap()
        .replace(&format!("{schema}."), "")
        .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION");
    let is_kept =
        |line: &&str| !["--", "SET ", "SELECT pg_catalog.set_config", "CREATE SCHEMA", "\\"].iter().any(|start| line.starts_with(start));
    text.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that a server runs as when tests run as root, which PostgreSQL refuses.
const NOBODY: &str = "nobody";

fn own(folder: &Path) {
    if is_root() {
        run(Command::new("chown").arg(NOBODY).arg(folder));
    }
}

/// A program of the server, run as somebody whom it does not refuse.
fn program(name: &str) -> Command {
    as_owner(&find(name))
}

/// A program, run as the user that owns the server's files.
fn as_owner(path: &Path) -> Command {
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", "nogroup", "--clear-groups"]).arg(path);
    command.current_dir("/");
    command
}

/// In PATH, or where Debian keeps it, the newest first.
fn find(name: &str) -> PathBuf {
    let in_path = std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let mut versions: Vec<PathBuf> = versions.collect();
    versions.sort();
    let found = versions.into_iter().rev().chain(in_path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not here: these tests need a PostgreSQL server; on Debian: apt-get install postgresql"))
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{told}", String::from_utf8_lossy(&output.stdout));
}

/// It outlives signals that end the tests, and nothing else keeps its input open.
fn watch(folder: &Path) -> Child {
    let control = program("pg_ctl");
    let words = std::iter::once(control.get_program()).chain(control.get_args()).map(|word| word.to_string_lossy().into_owned());
    let control: Vec<String> = words.collect();
    let script = r#"trap '' INT TERM HUP; folder=$1; shift; cat >/dev/null; "$@" -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "watchdog"]).arg(folder).args(control).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}
