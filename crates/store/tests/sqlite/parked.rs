//! A database that an earlier version wrote while something was parked.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_store::conformance::{
    Full,
    interrupts::{DAMAGE_BOB, PARK_ADA, check_interrupts_of_an_earlier_version},
};

use crate::open;

/// A run that can't be read does not keep the server from starting.
#[tokio::test]
async fn what_an_earlier_version_parked_becomes_an_interrupt() {
    for is_damaged in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windlass.db");
        let earlier = Connection::open(&path).unwrap();
        earlier.execute_batch(include_str!("../../../../tests/golden/databases/sqlite_11.sql")).unwrap();
        earlier.execute_batch(PARK_ADA).unwrap();
        if is_damaged {
            earlier.execute_batch(DAMAGE_BOB).unwrap();
        }
        drop(earlier);
        for _ in 0..2 {
            drop(open(&path));
        }
        let store: Arc<dyn Full> = Arc::new(open(&path));
        check_interrupts_of_an_earlier_version(&store, !is_damaged).await;
    }
}
