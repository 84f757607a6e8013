//! Which tenants may use an entry of the configuration.

use std::collections::BTreeSet;

use windlass_kernel::Tenant;

/// The tenants that may use an entry of the configuration: an agent, a tool, a tool server or a model. For all others the entry does not
/// exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tenants {
    /// Every tenant.
    #[default]
    All,
    /// These tenants and no others.
    Only(BTreeSet<Tenant>),
}

impl Tenants {
    /// Whether the tenant may use the entry.
    pub fn admit(&self, tenant: &Tenant) -> bool {
        match self {
            Tenants::All => true,
            Tenants::Only(tenants) => tenants.contains(tenant),
        }
    }
}
