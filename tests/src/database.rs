//! The database of a server, with the same interface for both stores.
//!
//! A test program whose name ends in `_postgres` runs its servers on PostgreSQL with NATS; every other one uses SQLite. So both share the
//! sources of their tests.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Instant,
};

use tokio_postgres::SimpleQueryMessage;

use crate::{NatsServer, PATIENCE, postgres};

/// The kind of store that the servers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// SQLite: a file.
    Sqlite,
    /// PostgreSQL, with NATS beside it.
    Postgres,
}

impl Store {
    /// The store of this test program.
    pub fn of_this_program() -> Store {
        static STORE: LazyLock<Store> = LazyLock::new(|| {
            let program = std::env::current_exe().expect("a program has a name");
            let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // Cargo appends a hash to the name.
            let name = name.rsplit_once('-').map_or(name.as_str(), |(name, _)| name);
            if name.ends_with("_postgres") { Store::Postgres } else { Store::Sqlite }
        });
        *STORE
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
        }
    }
}

/// The location of a server's database.
#[derive(Clone)]
pub struct Place(Where);

#[derive(Clone)]
enum Where {
    File(PathBuf),
    Postgres(Arc<postgres::Database>),
}

impl Place {
    /// Creates a location for a database that no other server uses.
    pub fn fresh(folder: &Path) -> Self {
        match Store::of_this_program() {
            Store::Sqlite => Self::in_folder(folder),
            Store::Postgres => {
                let database = in_thread(|runtime| runtime.block_on(postgres::Server::shared().database()));
                let place = Place(Where::Postgres(Arc::new(database)));
                place.open().batch(SQLITE_FUNCTIONS);
                place
            }
        }
    }

    /// The file that a server uses when its configuration names no store.
    pub fn in_folder(folder: &Path) -> Self {
        Place(Where::File(folder.join(".windlass/windlass.db")))
    }

    /// The configuration with which a server uses this database.
    pub fn config(&self) -> String {
        match &self.0 {
            Where::File(_) => String::new(),
            Where::Postgres(database) => format!("\nstore: {{ url: '{}' }}\n", database.url),
        }
    }

    /// The configuration of the doorbell that a server on this store needs.
    pub fn doorbell(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        match &self.0 {
            Where::File(_) => String::new(),
            // Every server has a prefix of its own, because the doorbell of another server would make it look for work at other times.
            Where::Postgres(_) => {
                format!("\ndoorbell: {{ url: '{}', prefix: test-{} }}\n", NatsServer::shared(), LAST.fetch_add(1, Ordering::Relaxed))
            }
        }
    }

    /// A copy of the current database. The command line finds the copy from the folder.
    pub fn copy(&self, folder: &Path) -> Place {
        match &self.0 {
            Where::File(file) => {
                let copy = folder.join(".windlass/windlass.db");
                std::fs::create_dir(folder.join(".windlass")).expect("a folder in the copy");
                std::fs::copy(file, &copy).expect("the database can be copied");
                let log = file.with_extension("db-wal");
                if log.exists() {
                    std::fs::copy(log, copy.with_extension("db-wal")).expect("the log can be copied");
                }
                Place(Where::File(copy))
            }
            Where::Postgres(_) => {
                let copy = Place::fresh(folder);
                copy.open().copy_from(&self.open().text("SELECT current_schema()"));
                std::fs::write(folder.join("windlass.yaml"), copy.config()).expect("a configuration in the copy");
                copy
            }
        }
    }

    /// The whole database as SQL for [`load`](Self::load).
    pub fn dump(&self) -> String {
        match &self.0 {
            Where::File(file) => {
                let mut program = std::process::Command::new("sqlite3");
                let output = program.arg(file).arg(".dump").output().expect("sqlite3 is installed: it is in the Debian package sqlite3");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8(output.stdout).expect("a dump is text")
            }
            Where::Postgres(database) => postgres::dump(database, &self.open().text("SELECT current_schema()")),
        }
    }

    /// Fills the empty database from the output of [`dump`](Self::dump).
    pub fn load(&self, dump: &str) {
        if let Where::File(file) = &self.0 {
            std::fs::create_dir_all(file.parent().expect("a file is in a folder")).expect("the folder of the database");
        }
        self.open().batch(dump);
    }

    /// An environment variable for servers on this database. It shortens the lease, because the next server on the database waits for the
    /// end of a killed server's lease.
    pub fn env(&self) -> Option<(&'static str, &'static str)> {
        match &self.0 {
            Where::File(_) => None,
            Where::Postgres(_) => Some(("WINDLASS_LIMITS__LEASE", "1s")),
        }
    }

    /// Opens a new connection.
    pub fn open(&self) -> Database {
        match &self.0 {
            Where::File(file) => {
                let connection = rusqlite::Connection::open(file).expect("the database opens");
                connection.busy_timeout(PATIENCE).expect("a timeout can be set");
                Database(Link::Sqlite(connection))
            }
            Where::Postgres(database) => Database(Link::Postgres(Session::open(database.url.clone()))),
        }
    }
}

/// Functions of SQLite that the statements of the tests use, for PostgreSQL.
const SQLITE_FUNCTIONS: &str = "
    CREATE FUNCTION hex(bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT upper(encode($1, 'hex')) $$;
    CREATE FUNCTION hex(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT upper(encode(convert_to($1, 'UTF8'), 'hex')) $$;
    CREATE FUNCTION unhex(text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$ SELECT decode($1, 'hex') $$;
    CREATE FUNCTION randomblob(integer) RETURNS bytea LANGUAGE sql VOLATILE AS $$ SELECT substr(uuid_send(gen_random_uuid()), 1, $1) $$;";

/// A row: every value in PostgreSQL's text format, in which bytes are `\x` and hexadecimal digits.
pub type Row = Vec<Option<String>>;

/// A connection to a database.
pub struct Database(Link);

enum Link {
    Sqlite(rusqlite::Connection),
    Postgres(Session),
}

impl Database {
    /// The store of the connection.
    pub fn store(&self) -> Store {
        match &self.0 {
            Link::Sqlite(_) => Store::Sqlite,
            Link::Postgres(_) => Store::Postgres,
        }
    }

    /// The rows that a statement finds or returns.
    pub fn rows(&self, sql: &str) -> Vec<Row> {
        match &self.0 {
            Link::Sqlite(connection) => sqlite_rows(connection, sql).unwrap_or_else(|error| panic!("{sql}: {error}")),
            Link::Postgres(session) => session.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).rows,
        }
    }

    /// Makes a change; returns how many rows it changed, or why it was refused.
    pub fn execute(&self, sql: &str) -> Result<u64, String> {
        match &self.0 {
            Link::Sqlite(connection) => connection.execute(sql, []).map(|changed| changed as u64).map_err(|error| error.to_string()),
            Link::Postgres(session) => session.ask(sql).map(|result| result.changed),
        }
    }

    /// Executes several statements, one after the other.
    pub fn batch(&self, sql: &str) {
        match &self.0 {
            Link::Sqlite(connection) => connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}")),
            Link::Postgres(session) => drop(session.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))),
        }
    }

    /// The first value of the first row.
    pub fn text(&self, sql: &str) -> String {
        let row = self.rows(sql).into_iter().next().unwrap_or_else(|| panic!("{sql}: there is no row"));
        row.into_iter().next().flatten().unwrap_or_else(|| panic!("{sql}: there is no value"))
    }

    /// The first value of the first row as a number; a boolean is 0 or 1.
    pub fn number(&self, sql: &str) -> i64 {
        let text = self.text(sql);
        match text.as_str() {
            "t" => 1,
            "f" => 0,
            _ => text.parse().unwrap_or_else(|_| panic!("{sql}: {text} is no number")),
        }
    }

    /// Executes a change and rolls it back.
    pub fn attempt(&self, sql: &str) -> Result<u64, String> {
        self.batch("BEGIN");
        let attempted = self.execute(sql);
        self.batch("ROLLBACK");
        attempted
    }

    /// Begins a transaction that reads a snapshot of the database, until the connection is closed.
    pub fn hold_still(&self) {
        match self.store() {
            Store::Sqlite => self.batch("BEGIN"),
            Store::Postgres => self.batch("BEGIN ISOLATION LEVEL REPEATABLE READ"),
        }
    }

    /// The names of the tables. On PostgreSQL without the servers' heartbeats, which change while nothing else happens.
    pub fn tables(&self) -> Vec<String> {
        let sql = match self.store() {
            Store::Sqlite => "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
            Store::Postgres => {
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'nodes' ORDER BY tablename"
            }
        };
        self.rows(sql).into_iter().map(|row| row.into_iter().flatten().collect()).collect()
    }

    /// The columns of a table that can be written. SQLite's list contains no generated columns.
    pub fn columns(&self, table: &str) -> Vec<String> {
        let sql = match self.store() {
            Store::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
            Store::Postgres => {
                format!(
                    "SELECT column_name FROM information_schema.columns
                     WHERE table_schema = current_schema() AND table_name = '{table}' AND is_generated = 'NEVER'"
                )
            }
        };
        self.rows(&sql).into_iter().map(|row| row.into_iter().flatten().collect()).collect()
    }

    /// The number of rows in every table.
    pub fn row_counts(&self) -> BTreeMap<String, i64> {
        let count = |name: &String| self.number(&format!("SELECT count(*) FROM {name}"));
        self.tables().into_iter().map(|name| (name.clone(), count(&name))).collect()
    }

    /// Every row of every table: equal before and after means that nothing changed.
    pub fn snapshot(&self) -> BTreeMap<String, Vec<Row>> {
        self.tables().into_iter().map(|name| (name.clone(), self.rows(&format!("SELECT * FROM {name}")))).collect()
    }

    /// Inserts a row into an inbox without the server, and makes the agent's head due. Returns the row's number.
    pub fn slip_in(&self, agent: &str, kind: &str, run: Option<&str>, call: Option<u32>) -> i64 {
        let run = run.map_or("NULL".to_owned(), bytes);
        let call = call.map_or("NULL".to_owned(), |call| call.to_string());
        self.batch("BEGIN");
        let row = self.number(&format!(
            "INSERT INTO inbox (n, tenant, agent, kind, status, run, call, reason, created_at)
             VALUES ({}, 'default', '{agent}', '{kind}', 'pending', {run}, {call}, 'slipped in', 1) RETURNING n",
            self.next_message()
        ));
        let counted = self.execute(&format!("UPDATE heads SET pending = pending + 1, wake_at = 1 WHERE agent = '{agent}'"));
        assert_eq!(counted, Ok(1), "the agent has a head");
        self.batch("COMMIT");
        row
    }

    /// Waits until the outbox is empty. A server without NATS writes nothing into it.
    pub fn all_published(&self) {
        let began = Instant::now();
        while self.number("SELECT count(*) FROM outbox") > 0 {
            assert!(began.elapsed() < PATIENCE, "something is never published");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Copies the tables, the functions and the view of another PostgreSQL schema into this one.
    fn copy_from(&self, schema: &str) {
        self.hold_still();
        for table in self.rows(&format!("SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")).into_iter().flatten().flatten() {
            self.batch(&format!(
                "CREATE TABLE {table} (LIKE {schema}.{table} INCLUDING ALL EXCLUDING GENERATED);
                 INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {schema}.{table}"
            ));
        }
        let functions = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE prorettype <> 'trigger'::regtype AND pronamespace";
        for function in self.rows(&format!("{functions} = '{schema}'::regnamespace")).into_iter().flatten().flatten() {
            self.batch(&function.replace(&format!("{schema}."), ""));
        }
        // No server writes to a copy, but the command line expects the sequence.
        self.batch("CREATE SEQUENCE inbox_numbers");
        let view = self.text(&format!("SELECT pg_get_viewdef('{schema}.journal'::regclass)"));
        let view = view.replace(&format!("{schema}."), "");
        self.batch(&format!("CREATE VIEW journal (run, number, epoch, kind, version, at, body) AS {view} COMMIT"));
    }

    /// The type of a column that numbers the rows of a table in the order of their insertion.
    pub fn counter(&self) -> &'static str {
        match self.store() {
            Store::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
            Store::Postgres => "bigserial PRIMARY KEY",
        }
    }

    /// The expression that gives an inbox row its number.
    pub fn next_message(&self) -> &'static str {
        match self.store() {
            Store::Sqlite => "(SELECT coalesce(max(n), 0) + 1 FROM inbox)",
            Store::Postgres => "nextval('inbox_numbers')",
        }
    }

    /// Creates a trigger that executes a statement for every inserted (`INSERT`) or changed (`UPDATE`) row of a table.
    pub fn spy(&self, name: &str, event: &str, table: &str, then: &str) {
        self.trigger(name, event, table, then, "TRIGGER", "");
    }

    /// Creates a trigger that fires at the end of the transaction, because the PostgreSQL store writes the rows of many commits table by
    /// table.
    pub fn spy_at_commit(&self, name: &str, event: &str, table: &str, then: &str) {
        self.trigger(name, event, table, then, "CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED");
    }

    fn trigger(&self, name: &str, event: &str, table: &str, then: &str, kind: &str, when: &str) {
        match self.store() {
            Store::Sqlite => self.batch(&format!("CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {then}; END")),
            Store::Postgres => self.batch(&format!(
                "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {then}; RETURN NULL; END $$;
                 CREATE {kind} {name} AFTER {event} ON {table} {when} FOR EACH ROW EXECUTE FUNCTION {name}()"
            )),
        }
    }
}

fn sqlite_rows(connection: &rusqlite::Connection, sql: &str) -> rusqlite::Result<Vec<Row>> {
    use rusqlite::types::ValueRef;
    let spelled = |value: ValueRef<'_>| match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Some(std::iter::once("\\x".to_owned()).chain(bytes.iter().map(|byte| format!("{byte:02x}"))).collect()),
    };
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|at| row.get_ref(at).map(spelled)).collect())?;
    rows.collect()
}

/// PostgreSQL's result of a statement.
#[derive(Default)]
struct QueryResult {
    rows: Vec<Row>,
    changed: u64,
}

type Query = (String, mpsc::Sender<Result<QueryResult, String>>);

/// A connection in a thread of its own, so that synchronous code in an asynchronous test can use it.
struct Session(mpsc::Sender<Query>);

impl Session {
    fn open(url: String) -> Self {
        let (sender, queries) = mpsc::channel::<Query>();
        std::thread::spawn(move || {
            let runtime = runtime();
            let client = runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("the database opens");
                tokio::spawn(connection);
                client
            });
            for (sql, reply) in queries {
                let result = runtime.block_on(client.simple_query(&sql));
                let result = result
                    .map(QueryResult::of)
                    .map_err(|error| error.as_db_error().map_or(error.to_string(), |error| error.message().to_owned()));
                let _ = reply.send(result);
            }
        });
        Session(sender)
    }

    fn ask(&self, sql: &str) -> Result<QueryResult, String> {
        let (reply, result) = mpsc::channel();
        self.0.send((sql.to_owned(), reply)).expect("the connection is there");
        result.recv().expect("the connection answers")
    }
}

impl QueryResult {
    fn of(messages: Vec<SimpleQueryMessage>) -> Self {
        let mut result = QueryResult::default();
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => result.rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
                SimpleQueryMessage::CommandComplete(changed) => result.changed += changed,
                SimpleQueryMessage::RowDescription(_) | _ => {}
            }
        }
        result
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs asynchronous work to its end from synchronous code, also inside of another runtime.
pub(crate) fn in_thread<T: Send>(work: impl FnOnce(tokio::runtime::Runtime) -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| work(runtime())).join().expect("the work is done"))
}

/// The hexadecimal digits of an id.
pub fn hex(id: &str) -> &str {
    id.rsplit('_').next().expect("an id has a prefix")
}

/// The SQL for an id's bytes as the store keeps them.
pub fn bytes(id: &str) -> String {
    format!("unhex('{}')", hex(id))
}
