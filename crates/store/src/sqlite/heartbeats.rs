//! When a server process was last seen alive: the modification time of the lock file, set with every heartbeat.
//!
//! It is not flushed. It has to survive the process, not the machine, and the heartbeats of an idle server must cost nothing.

use std::{
    fs::File,
    time::{SystemTime, UNIX_EPOCH},
};

use windlass_kernel::Timestamp;

/// The lock file as a record of heartbeats.
pub(super) struct Heartbeats {
    file: File,
    /// The last heartbeat of the process that had the database before; the time of opening if there was none.
    pub(super) earlier: Timestamp,
}

impl Heartbeats {
    /// Reads the last heartbeat of the process before, and gives the first one of this process.
    pub(super) fn begin(lock: &File) -> std::io::Result<Self> {
        let earlier = lock.metadata()?.modified()?;
        let heartbeats = Heartbeats { file: lock.try_clone()?, earlier: timestamp(earlier) };
        heartbeats.record();
        Ok(heartbeats)
    }

    /// Records a heartbeat.
    pub(super) fn record(&self) {
        if let Err(error) = self.file.set_modified(SystemTime::now()) {
            tracing::warn!(%error, "the heartbeat could not be recorded in the lock file");
        }
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
