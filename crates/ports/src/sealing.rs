//! Texts that are sealed: those that clients keep for us, and the canary by which a store knows its keys.

use windlass_kernel::Tenant;

/// Seals texts that a client carries and cannot read, and opens them when it brings them back.
pub trait Sealing: Send + Sync {
    /// The text, sealed for the tenant. The same text of the same id is always sealed the same way, so that whoever reads it again
    /// reads the same.
    fn seal(&self, tenant: &Tenant, id: &str, text: &str) -> String;

    /// What was sealed for this tenant. `None` if it was not: it is another's, or of another key, or it was changed.
    fn open(&self, tenant: &Tenant, sealed: &str) -> Option<String>;
}

/// The keys that a server seals with. A store keeps a *canary*, a text that was sealed with the key in use, so that a server with other keys
/// is refused at its start instead of failing wherever something sealed is read.
pub trait SealKeys: Send + Sync {
    /// A canary, sealed with the key that seals.
    fn canary(&self) -> String;

    /// Looks which of the keys opens a canary. The error says in words that none does, and which key is wanted.
    fn check_canary(&self, canary: &str) -> Result<CanaryKey, String>;
}

/// Which key opened a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryKey {
    /// The one that seals.
    Current,
    /// An earlier one: the canary is to be sealed anew.
    Earlier,
}
