//! The statements about usage.

use windlass_kernel::{RunId, Tenant};

use super::Result;

/// The writes of usage.
pub trait UsageRows {
    /// Records an ended run whose usage must be added to the sums.
    fn insert_uncounted(&mut self, tenant: &Tenant, run: RunId) -> Result<()>;
}
