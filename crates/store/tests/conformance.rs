//! All stores without a server process pass the whole suite.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

use windlass_store::{MemoryStore, SqliteStore, StoreOptions, TieredStore, conformance::Subject};

mod memory {
    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        Subject::new(MemoryStore::new(options), ())
    }

    windlass_store::conformance!(make);
}

/// Nothing in the suite is only for memory, so that every case must pass as if the memory tier did not exist.
mod tiered {
    use std::sync::Arc;

    use super::*;

    async fn make(options: StoreOptions) -> Subject {
        let kept = Arc::new(MemoryStore::new(options));
        Subject::new(TieredStore::new(kept.clone(), kept, options, 1 << 30), ())
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
