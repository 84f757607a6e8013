//! Prepared statements: every SQL text is prepared once per connection.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
};

use rusqlite::{Connection, PrepFlags, Result, Statement};

/// A connection with its statements.
pub(super) trait Prepared {
    fn connection(&self) -> &Connection;

    /// Uses the statement of a text. No other statement may be used meanwhile.
    fn with<T>(&self, sql: &'static str, ask: impl FnOnce(&mut Statement<'_>) -> Result<T>) -> Result<T>;

    /// Clears the bound values of the statements, because the last content can be large.
    fn clear_bindings(&self);
}

/// A connection that moves between threads uses its own statement cache.
impl Prepared for Connection {
    fn connection(&self) -> &Connection {
        self
    }

    fn with<T>(&self, sql: &'static str, ask: impl FnOnce(&mut Statement<'_>) -> Result<T>) -> Result<T> {
        ask(&mut *self.prepare_cached(sql)?)
    }

    fn clear_bindings(&self) {}
}

/// A connection that stays in one thread, with a statement for each place in the code. Finding a statement by the address of its text costs
/// next to nothing; by the text itself, as the connection's own cache does, it takes a twentieth of the writer's time.
pub(super) struct StatementCache<'c> {
    connection: &'c Connection,
    /// By address and length of the text.
    statements: RefCell<BTreeMap<(usize, usize), Statement<'c>>>,
}

impl<'c> StatementCache<'c> {
    pub(super) fn over(connection: &'c Connection) -> Self {
        StatementCache { connection, statements: RefCell::default() }
    }
}

impl Prepared for StatementCache<'_> {
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

    fn clear_bindings(&self) {
        self.statements.borrow_mut().values_mut().for_each(Statement::clear_bindings);
    }
}
