//! The storage port, implemented three times: in memory, on SQLite and on PostgreSQL.
//!
//! What a verb of [`Store`](windlass_ports::Store) does is written once, in `verbs`, against a list of named statements ([`rows`]). A
//! database is an implementation of that list. The caller of a verb ensures that no other verb changes the same agent meanwhile, so that a
//! verb may read and then write. [`mod@conformance`] is the suite that every store must pass.
//!
//! What is deliberately absent: policy and randomness. Times and ids come in with the data. The only clock is that of a PostgreSQL
//! database, which the processes that share it use for leases.

mod aging;
pub mod conformance;
mod doorbells;
mod edges;
mod journal_batch;
mod listing;
mod measured;
mod memory;
mod postgres;
mod reading;
mod records;
pub mod rows;
mod spelling;
mod sqlite;
mod tiered;
mod usage;
mod verbs;

pub use doorbells::{Nats, NatsError, Notify, NotifyError};
pub use memory::MemoryStore;
pub use postgres::{DatabaseClock, PostgresOpenError, PostgresStore, PostgresViews, postgres_address};
pub use sqlite::{OpenError, SqliteStore, SqliteViews, Vacuumed, create_private_folder, vacuum_sqlite};
pub use tiered::TieredStore;

/// The options of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Whether commits leave rows in the outbox, which a publisher sends.
    pub publish: bool,
    /// Whether the end of a run leaves a row for the sums of usage.
    pub usage: bool,
}
