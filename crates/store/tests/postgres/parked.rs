//! A database that an earlier version wrote while something was parked.

use windlass_store::conformance::interrupts::{DAMAGE_BOB, PARK_ADA, check_interrupts_of_an_earlier_version};

use super::*;

/// A run that can't be read does not keep the server from starting.
#[tokio::test]
async fn what_an_earlier_version_parked_becomes_an_interrupt_in_a_shared_database() {
    for is_damaged in [false, true] {
        let database = Server::shared().database().await;
        let earlier = database.client().await;
        earlier.batch_execute(include_str!("../../../../tests/golden/databases/postgres_11.sql")).await.unwrap();
        earlier.batch_execute(PARK_ADA).await.unwrap();
        if is_damaged {
            earlier.batch_execute(DAMAGE_BOB).await.unwrap();
        }
        for _ in 0..2 {
            drop(node(&database).await);
        }
        check_interrupts_of_an_earlier_version(&node(&database).await, !is_damaged).await;
    }
}
