//! A private PostgreSQL for tests: one server per test process, one database per test.
//!
//! `WINDLASS_TEST_POSTGRES_URL` names another server to use. Without it, and without the programs of a PostgreSQL server, tests fail and
//! say what is missing.
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

/// The configuration of the server. It is as durable as a user's.
const CONFIGURATION: &str = "
listen_addresses = '127.0.0.1'
max_connections = 400
shared_buffers = 64MB
max_wal_size = 256MB
autovacuum_naptime = 5s
log_min_messages = warning
";

/// A server that ends with this process, however the process ends.
pub struct Server {
    folder: PathBuf,
    address: Address,
    /// The watchdog waits for the end of its input, which comes with the end of this process. Then it stops the server and removes the
    /// folder.
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

    /// Starts a server that accepts TCP connections only with TLS. Also returns the file of its certificate, which names 127.0.0.1.
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

    /// Starts a server for tests that break it.
    pub fn start() -> Server {
        Server::prepared(|_, _| String::new())
    }

    /// Creates a server with more configuration, which is computed from its folder and the folder of its data.
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

    /// Stops the server as a power failure would: it flushes nothing more.
    pub fn cut(&self) {
        run(self.control().args(["-w", "-m", "immediate", "stop"]));
    }

    fn control(&self) -> Command {
        let mut control = program("pg_ctl");
        control.arg("-D").arg(self.folder.join("data"));
        control
    }

    /// Creates an empty database for one test. It is a schema, because creating one takes a hundredth of the time of a database.
    pub async fn database(&self) -> Database {
        let (admin, name) = self.admin().await;
        admin.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        self.named(&format!("postgres?options=-csearch_path%3D{name}"), format!("DROP SCHEMA {name} CASCADE"))
    }

    /// Creates a database that shares no connections with other tests, for tests that end its connections.
    pub async fn database_alone(&self) -> Database {
        let (admin, name) = self.admin().await;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        self.named(&name, format!("DROP DATABASE {name} WITH (FORCE)"))
    }

    /// Opens a connection and makes up an unused name. Also removes the databases that earlier tests left on a permanent server.
    async fn admin(&self) -> (Client, String) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // The private server is reached over its socket, which has no encryption.
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

/// Statements that drop the databases of finished tests.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A database of one test.
pub struct Database {
    /// The address.
    pub url: String,
    /// The address over a unix socket.
    pub socket: String,
    drop: String,
}

impl Database {
    /// Opens a connection beside those of the store.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        LEFT.lock().unwrap().push(self.drop.clone());
    }
}

/// Dumps a schema as SQL that recreates it in the first schema of the search path.
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

/// The user for the server's processes when the tests run as root, which PostgreSQL refuses.
const NOBODY: &str = "nobody";

fn own(folder: &Path) {
    if is_root() {
        run(Command::new("chown").arg(NOBODY).arg(folder));
    }
}

/// A program of the server, run as a user that it accepts.
fn program(name: &str) -> Command {
    as_owner(&find(name))
}

/// A program, run as the owner of the server's files.
fn as_owner(path: &Path) -> Command {
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", "nogroup", "--clear-groups"]).arg(path);
    command.current_dir("/");
    command
}

/// Finds a program in PATH, or where Debian installs it, the newest version first.
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{stderr}", String::from_utf8_lossy(&output.stdout));
}

/// Starts the watchdog. It survives signals that end the tests, and only this process keeps its input open.
fn watch(folder: &Path) -> Child {
    let control = program("pg_ctl");
    let arguments =
        std::iter::once(control.get_program()).chain(control.get_args()).map(|argument| argument.to_string_lossy().into_owned());
    let control: Vec<String> = arguments.collect();
    let script = r#"trap '' INT TERM HUP; folder=$1; shift; cat >/dev/null; "$@" -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "watchdog"]).arg(folder).args(control).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}
