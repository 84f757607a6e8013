//! Time and randomness, so that a test can hold both in its hand.

use uuid::Uuid;
use windlass_kernel::Timestamp;

/// The time.
pub trait Clock: Send + Sync {
    /// Now, by this machine's clock.
    fn now(&self) -> Timestamp;
}

/// Ids nobody has used. Later ones sort after earlier ones of the same process.
pub trait Ids: Send + Sync {
    /// A fresh id.
    fn fresh(&self) -> Uuid;
}
