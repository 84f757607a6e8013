//! Both stores pass the whole suite.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

use windlass_store::{MemoryStore, SqliteStore, StoreOptions, conformance::Subject};

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
