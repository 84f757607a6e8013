//! The real clock and real ids.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;
use windlass_kernel::Timestamp;
use windlass_ports::{Clock, Ids};

/// This machine's clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// UUIDs of version 7: later ones of a process sort after earlier ones.
pub(crate) struct OrderedIds;

impl Ids for OrderedIds {
    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }
}
