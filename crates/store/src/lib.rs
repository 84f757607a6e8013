//! The durable truth, three times: in memory, in SQLite and in PostgreSQL.
//!
//! What a verb of [`Store`](windlass_ports::Store) does is written once, in `verbs`, against a list of named statements
//! ([`rows`]); a database is an implementation of that list and nothing more. Whoever runs a verb sees to it that nobody
//! else changes the same agent meanwhile, so a verb may read and then write. [`mod@conformance`] is the suite every store must pass.
//!
//! What is deliberately absent: policy and randomness. Time and ids come in with the data; the one clock here is that of a PostgreSQL
//! database, for those who share it.

mod aging;
pub mod conformance;
mod doorbells;
mod edges;
mod listing;
mod measured;
mod memory;
mod parted;
mod postgres;
mod reading;
mod records;
pub mod rows;
mod spelling;
mod sqlite;
mod stretch;
mod usage;
mod verbs;

pub use doorbells::{Nats, NatsError, Notify, NotifyError};
pub use memory::MemoryStore;
pub use parted::PartedStore;
pub use postgres::{DatabaseClock, PostgresOpenError, PostgresStore, PostgresViews, postgres_address};
pub use sqlite::{OpenError, SqliteStore, SqliteViews, Vacuumed, create_private_folder, vacuum_sqlite};

/// How a store is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Whether commits leave rows in the outbox for somebody to publish.
    pub publish: bool,
    /// Whether the end of a run leaves a row for the sums of usage.
    pub usage: bool,
}
