//! The system clock and the generator of ids.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;
use windlass_kernel::Timestamp;
use windlass_ports::{Clock, Ids};

/// The clock of this machine.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Generates UUIDs of version 7: within a process, later ones sort after earlier ones.
pub(crate) struct OrderedIds;

impl Ids for OrderedIds {
    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }
}
