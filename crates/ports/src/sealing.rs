//! Sealed texts: those that clients keep for the server, and the canary by which a store recognises its keys.

use windlass_kernel::Tenant;

/// Seals texts that a client carries but can't read, and opens them when the client sends them back.
pub trait Sealing: Send + Sync {
    /// Seals a text for a tenant. The same text with the same id always gives the same sealed text, so that repeated answers are equal.
    fn seal(&self, tenant: &Tenant, id: &str, text: &str) -> String;

    /// Opens a sealed text. `None` if it was not sealed for this tenant with one of the keys, or was changed.
    fn open(&self, tenant: &Tenant, sealed: &str) -> Option<String>;
}

/// The keys that a server seals with. A store keeps a *canary*, a text that was sealed with the current key, so that a server with other
/// keys is refused when it starts, instead of failing later on every sealed text.
pub trait SealKeys: Send + Sync {
    /// A new canary, sealed with the current key.
    fn canary(&self) -> String;

    /// Finds the key that opens a canary. The error says that none does, and which key is needed.
    fn check_canary(&self, canary: &str) -> Result<CanaryKey, String>;
}

/// The key that opened a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryKey {
    /// The current key.
    Current,
    /// An earlier key: the store should replace the canary by one that is sealed with the current key.
    Earlier,
}
