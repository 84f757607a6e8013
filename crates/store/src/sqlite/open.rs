//! Opening a database: it is locked, checked and migrated, and refused if a check fails.

use std::{
    fs::{File, Permissions},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};
use rustix::fs::{FlockOperation, flock};
use windlass_ports::{CanaryKey, NodeId, SealKeys};

use super::{
    checkpointer::Checkpointer,
    deltas::{self, Index},
    hash_keys,
    heartbeats::Heartbeats,
    parked,
    truncation::Truncation,
};

/// Migrations in order. The number of the last one is the version of the schema.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_init.sql"),
    include_str!("../../migrations/0002_conversations.sql"),
    include_str!("../../migrations/0003_answers.sql"),
    include_str!("../../migrations/0004_follow_ups.sql"),
    include_str!("../../migrations/0005_agent_names.sql"),
    include_str!("../../migrations/0006_requests.sql"),
    include_str!("../../migrations/0007_seal_canary.sql"),
    include_str!("../../migrations/0008_erasure.sql"),
    include_str!("../../migrations/0009_usage.sql"),
    include_str!("../../migrations/0010_manifests.sql"),
    include_str!("../../migrations/0011_id_key.sql"),
    include_str!("../../migrations/0012_headers.sql"),
    include_str!("../../migrations/0013_interrupts.sql"),
    include_str!("../../migrations/0014_children.sql"),
    include_str!("../../migrations/0015_indexes.sql"),
];

/// The writer's page cache. Pages that are not in it are in the cache of the operating system, so that a larger one would only hold them
/// twice.
const CACHE_KB: u32 = 4_096;

/// More than the number of statements, so that none is prepared twice.
const STATEMENTS_MAX: usize = 128;

/// How long a connection waits for a lock that a tool of the operator may hold.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Why a database was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server has the database open.
    #[error("the database is in use by another server ({} is locked)", lock.display())]
    InUse {
        /// The lock file.
        lock: PathBuf,
    },
    /// A newer version wrote the database. Nothing was changed.
    #[error("the database has schema version {found}; this server knows up to {known}")]
    Newer {
        /// The version of the database.
        found: u32,
        /// The newest version that this server knows.
        known: u32,
    },
    /// A setting of the database makes durability impossible.
    #[error("the database answers {found:?} for {pragma}, and it must be {wanted:?}")]
    Pragma {
        /// The name of the setting.
        pragma: &'static str,
        /// The value that it must have.
        wanted: &'static str,
        /// The value that it has.
        found: String,
    },
    /// A file could not be made, opened or locked.
    #[error("{}: {error}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// None of the server's seal keys opens the store's canary.
    #[error("the database is refused: {0}")]
    SealKey(String),
    /// Another process reads the write-ahead log of a database that was rebuilt.
    #[error(
        "the database was rebuilt, but its write-ahead log could not be emptied: another process reads it; end that process, and vacuum again"
    )]
    LogIsRead,
    /// SQLite reported an error.
    #[error("the database cannot be opened: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// An opened database. The lock is held as long as this lives.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) checkpointer: Checkpointer,
    pub(super) readers: Vec<Connection>,
    pub(super) node: NodeId,
    pub(super) id_key: [u8; 32],
    /// The index of the deltas.
    pub(super) index: Index,
    pub(super) truncation: Truncation,
    pub(super) lock: File,
    pub(super) heartbeats: Heartbeats,
}

pub(super) fn open(path: &Path, readers: usize, keys: Option<&dyn SealKeys>) -> Result<Opened, OpenError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_private_folder(folder).map_err(|error| OpenError::File { path: folder.to_owned(), error })?;
    }
    let lock = lock(path)?;
    check_version(look(path)?)?;
    make_private(path)?;
    let truncation = Truncation::default();
    // A server that stopped left an empty log. The log of one that crashed may have erased content; the first pass of the sweep empties it,
    // because that takes a flush of all of it, which no start should wait for.
    if std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        truncation.mark();
    }
    let mut writer = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    set_up(&writer)?;
    migrate(&mut writer)?;
    if let Some(keys) = keys {
        check_canary(&mut writer, keys)?;
    }
    let node = begin_node(&writer)?;
    let id_key = writer.query_row("SELECT key FROM id_key", [], |row| row.get(0))?;
    let readers = (0..readers).map(|_| reader(path)).collect::<Result<_, _>>()?;
    let index = deltas::scan(&writer)?;
    let checkpointer = Checkpointer::start(path, &mut writer)?;
    let heartbeats = Heartbeats::begin(&lock).map_err(|error| OpenError::File { path: beside(path, ".lock"), error })?;
    Ok(Opened { writer, checkpointer, readers, node, id_key, index, truncation, lock, heartbeats })
}

/// Refuses a schema that this program does not know.
pub(super) fn check_version(found: u32) -> Result<(), OpenError> {
    let known = MIGRATIONS.len() as u32;
    if found > known { Err(OpenError::Newer { found, known }) } else { Ok(()) }
}

/// One server per database. The lock belongs to the process, so that it ends with the process in any case.
pub(super) fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = beside(path, ".lock");
    let failed = |error: std::io::Error| OpenError::File { path: lock.clone(), error };
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&lock).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { lock }),
        Err(error) => Err(failed(error.into())),
    }
}

/// Makes the database and the files beside it readable for their owner alone. SQLite gives its log the mode of the database. Files of
/// another user are left as they are, because only their owner may change them.
fn make_private(path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::File { path: path.to_owned(), error };
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path).map_err(failed)?;
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let file = beside(path, suffix);
        let Ok(about) = std::fs::metadata(&file) else { continue };
        let mode = about.mode() & 0o777;
        if mode & 0o077 == 0 {
            continue;
        }
        match std::fs::set_permissions(&file, Permissions::from_mode(mode & 0o700)) {
            Ok(()) => {
                tracing::info!(file = %file.display(), mode = format!("{mode:04o}"), "other users could read the file; they no longer can")
            }
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), mode = format!("{mode:04o}"), "other users can read the file; run chmod 600 on it")
            }
        }
    }
    Ok(())
}

/// Makes a folder and the missing ones above it, for their owner alone. Existing folders stay as they are.
pub fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The version of the schema, found without changing a byte: 0 if there is no database yet.
pub(super) fn look(path: &Path) -> Result<u32, OpenError> {
    let has_content = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0);
    if !has_content(path) {
        return Ok(0);
    }
    // A log that a crash left may have the version, so it is read too. Without a log the file is opened as immutable, so that SQLite makes
    // no log and no index beside it.
    let is_settled = !has_content(&beside(path, "-wal"));
    let uri = format!("file:{}?mode=ro{}", percent_encoded(path), if is_settled { "&immutable=1" } else { "" });
    let connection = Connection::open_with_flags(uri, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)?;
    version(&connection)
}

fn percent_encoded(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_');
    let encode = |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().map(encode).collect()
}

fn version(connection: &Connection) -> Result<u32, OpenError> {
    let has_table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'";
    if connection.query_row(has_table, [], |_| Ok(())).optional()?.is_none() {
        return Ok(0);
    }
    Ok(connection.query_row("SELECT coalesce(max(version), 0) FROM schema_version", [], |row| row.get(0))?)
}

pub(super) fn set_up(connection: &Connection) -> Result<(), OpenError> {
    steady(connection)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF;
         PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KB};"
    ))?;
    must_be(connection, "journal_mode", "wal")?;
    must_be(connection, "synchronous", "2")
}

/// Settings that let every connection prepare each statement only once.
fn steady(connection: &Connection) -> Result<(), OpenError> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Without this the planner looks at bound values, and prepares some statements again at every use.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Refuses a database that does not flush or does not log, because it would lose commits.
fn must_be(connection: &Connection, pragma: &'static str, wanted: &'static str) -> Result<(), OpenError> {
    let found: rusqlite::types::Value = connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
    let found = match found {
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Null | rusqlite::types::Value::Real(_) | rusqlite::types::Value::Blob(_) => String::new(),
    };
    if found == wanted { Ok(()) } else { Err(OpenError::Pragma { pragma, wanted, found }) }
}

/// What migrations delete and replace is overwritten, as in an erasure.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    connection.execute_batch("PRAGMA secure_delete = ON")?;
    let migrated = migrate_in_transaction(connection);
    connection.execute_batch("PRAGMA secure_delete = OFF")?;
    migrated
}

fn migrate_in_transaction(connection: &mut Connection) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)")?;
    let found = version(&transaction)?;
    for (number, migration) in (1u32..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        transaction.execute_batch(migration)?;
        if number == hash_keys::MIGRATION {
            hash_keys::hash_keys(&transaction)?;
        }
        if number == parked::MIGRATION {
            parked::store_interrupts(&transaction)?;
        }
        transaction.execute("INSERT INTO schema_version (version, applied_at) VALUES (?1, unixepoch() * 1000)", [number])?;
    }
    Ok(transaction.commit()?)
}

/// Refuses keys that don't open what is sealed in the database. The first server stores a canary for the next ones, and a server with a new
/// current key replaces it.
fn check_canary(connection: &mut Connection, keys: &dyn SealKeys) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let canary: Option<String> = transaction.query_row("SELECT sealed FROM seal_canary", [], |row| row.get(0)).optional()?;
    let key = canary.map(|canary| keys.check_canary(&canary)).transpose().map_err(OpenError::SealKey)?;
    if key != Some(CanaryKey::Current) {
        transaction.execute("INSERT OR REPLACE INTO seal_canary (only, sealed) VALUES (1, ?1)", [keys.canary()])?;
    }
    Ok(transaction.commit()?)
}

/// A new start of a process is a new owner. All earlier ones are dead, because only one process can have the database.
fn begin_node(connection: &Connection) -> Result<NodeId, OpenError> {
    connection.execute("INSERT INTO nodes (started_at) VALUES (unixepoch() * 1000)", [])?;
    Ok(NodeId(connection.last_insert_rowid().unsigned_abs()))
}

pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    steady(&connection)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_reads_back_otherwise_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        // A database in memory can't have a log.
        assert!(matches!(set_up(&connection), Err(OpenError::Pragma { pragma: "journal_mode", .. })));
        connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        assert!(matches!(must_be(&connection, "synchronous", "2"), Err(OpenError::Pragma { pragma: "synchronous", .. })));
    }

    #[test]
    fn paths_of_any_spelling_can_be_looked_at() {
        assert_eq!(percent_encoded(Path::new("/a b/x?y#z%.db")), "/a%20b/x%3Fy%23z%25.db");
    }
}
