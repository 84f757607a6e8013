//! Where prepared statements come from: every SQL text is prepared once per connection.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
};

use rusqlite::{Connection, PrepFlags, Result, Statement};

/// A connection with its statements.
pub(super) trait Prepared {
    fn connection(&self) -> &Connection;

    /// Uses the statement of a text. While it is used no other is.
    fn with<T>(&self, sql: &'static str, ask: impl FnOnce(&mut Statement<'_>) -> Result<T>) -> Result<T>;

    /// Forgets what statements were told: the last content can be large.
    fn rest(&self);
}

/// A connection that goes from thread to thread has only what it keeps by itself.
impl Prepared for Connection {
    fn connection(&self) -> &Connection {
        self
    }

    fn with<T>(&self, sql: &'static str, ask: impl FnOnce(&mut Statement<'_>) -> Result<T>) -> Result<T> {
        ask(&mut *self.prepare_cached(sql)?)
    }

    fn rest(&self) {}
}

/// A connection that stays where it is, and a statement for each place in the code. Finding one by where its text stands costs
/// next to nothing; by the text itself, as the connection would, a twentieth of what the writer does.
pub(super) struct Kept<'c> {
    connection: &'c Connection,
    /// By address and length of the text.
    statements: RefCell<BTreeMap<(usize, usize), Statement<'c>>>,
}

impl<'c> Kept<'c> {
    pub(super) fn over(connection: &'c Connection) -> Self {
        Kept { connection, statements: RefCell::default() }
    }
}

impl Prepared for Kept<'_> {
    fn connection(&self) -> &Connection {
        self.connection
    }

    fn with<T>(&self, sql: &'static str, ask: impl FnOnce(&mut Statement<'_>) -> Result<T>) -> Result<T> {
        let mut statements = self.statements.borrow_mut();
        let statement = match statements.entry((sql.as_ptr().addr(), sql.len())) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(self.connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?),
        };
        ask(statement)
    }

    fn rest(&self) {
        self.statements.borrow_mut().values_mut().for_each(Statement::clear_bindings);
    }
}
