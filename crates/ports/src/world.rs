//! Time and randomness, as traits so that tests control both.

use uuid::Uuid;
use windlass_kernel::Timestamp;

/// The source of the time.
pub trait Clock: Send + Sync {
    /// The current time by this machine's clock.
    fn now(&self) -> Timestamp;
}

/// A source of unused ids. Ids from one process sort in the order in which they were made.
pub trait Ids: Send + Sync {
    /// A fresh id.
    fn fresh(&self) -> Uuid;
}
