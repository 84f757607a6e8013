//! The durable truth, twice: in memory and in SQLite.
//!
//! What a verb of [`Store`](windlass_ports::Store) does is written once, in `verbs`, against a list of named statements
//! ([`rows`]); a database is an implementation of that list and nothing more. Both implementations have one writer at a
//! time, so a verb may read and then write. [`conformance`] is the suite every store must pass.
//!
//! What is deliberately absent: policy, clocks, randomness. Time and ids come in with the data.

pub mod conformance;
mod doorbells;
mod memory;
mod reading;
pub mod rows;
mod spelling;
mod sqlite;
mod verbs;

pub use doorbells::{Nats, NatsError, Notify, NotifyError};
pub use memory::MemoryStore;
pub use sqlite::{OpenError, SqliteStore, SqliteViews};

/// How a store is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Whether commits leave rows in the outbox for somebody to publish.
    pub publish: bool,
}
