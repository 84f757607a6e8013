//! All stores pass the whole suite.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

#[path = "support/postgres.rs"]
mod server;

use windlass_ports::Store;
use windlass_store::{MemoryStore, PostgresStore, SqliteStore, StoreOptions, conformance::Subject};

mod memory {
    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        Subject::new(MemoryStore::new(options), ())
    }

    windlass_store::conformance!(make);
}

mod sqlite {
    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(SqliteStore::open(folder.path().join("windlass.db"), options).unwrap(), folder)
    }

    windlass_store::conformance!(make);
}

mod postgres {
    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        let database = server::Server::shared().database().await;
        let store = PostgresStore::open(&database.url, options).await.unwrap();
        // Cases that lose an owner speak for other nodes than this one, which is alive; they mean one that is not.
        store.beat(store.node(), 0).await.unwrap();
        Subject::new(store, database)
    }

    windlass_store::conformance!(make);
}
