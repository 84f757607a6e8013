//! Rebuilding a database so that none of its pages has erased content.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::{
    open::{BUSY_WAIT, OpenError, beside, check_version, lock, look, migrate, set_up},
    truncation::truncate,
};

/// What a rebuild of a database changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vacuumed {
    /// The bytes of the database and of its write-ahead log before.
    pub before: u64,
    /// The bytes of both afterwards.
    pub after: u64,
}

/// Rebuilds the existing database at `path` page by page: erased text in free pages, and in the free space of other pages, is gone from its
/// files when this returns. A database of an earlier version is migrated. The database is refused unchanged while a server has it open.
pub fn vacuum_sqlite(path: impl AsRef<Path>) -> Result<Vacuumed, OpenError> {
    let path = path.as_ref();
    let _lock = lock(path)?;
    check_version(look(path)?)?;
    let before = bytes(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    set_up(&connection)?;
    migrate(&mut connection)?;
    // SQLite copies the whole database for this, which may be more than the memory holds.
    connection.execute_batch("PRAGMA temp_store = FILE; PRAGMA secure_delete = ON; VACUUM")?;
    if !truncate(&connection, BUSY_WAIT)? {
        return Err(OpenError::LogIsRead);
    }
    drop(connection);
    Ok(Vacuumed { before, after: bytes(path) })
}

fn bytes(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    length(path) + length(&beside(path, "-wal"))
}
