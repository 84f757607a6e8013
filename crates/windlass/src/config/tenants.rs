//! `tenants`: the tenants that may use an agent, a tool, a tool server or a model.

use std::collections::BTreeSet;

use windlass_kernel::Tenant;
use windlass_ports::Tenants;

use super::{Auth, error::ConfigError, reader::Field};

/// The tenant of a token without one, and the owner of everything without `tenants` if there are several tenants.
pub const DEFAULT: &str = "default";

/// The tenants of `auth.tokens`.
pub(super) struct KnownTenants(BTreeSet<Tenant>);

impl KnownTenants {
    /// The tenants that have a token. Without any tokens that is the tenant of the server's own token.
    pub fn of(auth: &Auth) -> Self {
        let named: BTreeSet<Tenant> = auth.tokens.iter().map(|token| Tenant::from(token.tenant.as_str())).collect();
        KnownTenants(if named.is_empty() { [DEFAULT.into()].into() } else { named })
    }

    /// Reads the tenants of an agent, a tool or a tool server. Without a setting it belongs to the only tenant, or to `default` if there
    /// are several: a tenant that is added later gets nothing that it was not given.
    pub fn read_own(&self, field: Option<Field>) -> Result<Tenants, ConfigError> {
        match field {
            Some(field) => self.read(field),
            None if self.0.len() == 1 => Ok(Tenants::Only(self.0.clone())),
            None => Ok(Tenants::Only([DEFAULT.into()].into())),
        }
    }

    /// Reads a list of tenants, or `*` alone.
    pub fn read(&self, field: Field) -> Result<Tenants, ConfigError> {
        let none = field.fail("expected at least one tenant, or \"*\" for all, found none");
        let fields = field.list()?;
        let mut tenants = BTreeSet::new();
        for field in &fields {
            let name = field.text()?;
            if name == "*" {
                let is_alone = fields.len() == 1;
                return if is_alone { Ok(Tenants::All) } else { Err(field.fail("\"*\" means all tenants and stands alone")) };
            }
            let tenant = Tenant::from(name.as_str());
            if !self.0.contains(&tenant) {
                return Err(self.unknown(&name, field));
            }
            tenants.insert(tenant);
        }
        if tenants.is_empty() { Err(none) } else { Ok(Tenants::Only(tenants)) }
    }

    /// Checks that a tenant has a token.
    pub fn check(&self, name: &str, field: &Field) -> Result<Tenant, ConfigError> {
        let tenant = Tenant::from(name);
        if self.0.contains(&tenant) { Ok(tenant) } else { Err(self.unknown(name, field)) }
    }

    fn unknown(&self, name: &str, field: &Field) -> ConfigError {
        let known: Vec<&str> = self.0.iter().map(Tenant::as_str).collect();
        field.fail(format!("no token of auth.tokens has the tenant {name:?}; there are: {}", known.join(", ")))
    }

    /// Whether every known tenant that `inner` admits is admitted by `outer`.
    pub fn includes(&self, outer: &Tenants, inner: &Tenants) -> bool {
        self.0.iter().filter(|tenant| inner.admit(tenant)).all(|tenant| outer.admit(tenant))
    }
}
