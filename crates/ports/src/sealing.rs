//! Texts that clients keep for us.

use windlass_kernel::Tenant;

/// Seals texts that a client carries and cannot read, and opens them when it brings them back.
pub trait Sealing: Send + Sync {
    /// The text, sealed for the tenant. The same text of the same id is always sealed the same way, so that whoever reads it again
    /// reads the same.
    fn seal(&self, tenant: &Tenant, id: &str, text: &str) -> String;

    /// What was sealed for this tenant. `None` if it was not: it is another's, or of another key, or it was changed.
    fn open(&self, tenant: &Tenant, sealed: &str) -> Option<String>;
}
