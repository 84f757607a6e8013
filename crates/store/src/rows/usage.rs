//! The statements about usage.

use windlass_kernel::{RunId, Tenant};

use super::Outcome;

/// What a verb can write about usage.
pub trait UsageRows {
    /// Notes an ended run whose usage is to be added to the sums.
    fn insert_uncounted(&mut self, tenant: &Tenant, run: RunId) -> Outcome<()>;
}
