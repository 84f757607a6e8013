//! The configured models, found by name.

use std::sync::Arc;

use windlass_kernel::Tenant;
use windlass_ports::{Model, Models, Tenants};

/// The name of an entry that takes every name and passes it on.
pub const PASS_THROUGH: &str = "*";

/// One configured model.
#[derive(Clone)]
pub struct Entry {
    /// The name in requests, or [`PASS_THROUGH`].
    pub name: String,
    /// The provider's name of the model, if the configuration has one. The provider sends it; the registry needs it only as the default of
    /// a pass-through entry.
    pub upstream: Option<String>,
    /// The size of its context window in tokens, if it is known.
    pub context: Option<u64>,
    /// The tenants that may use this model.
    pub tenants: Tenants,
    /// Makes the calls.
    pub model: Arc<dyn Model>,
}

impl Entry {
    /// A model for every tenant, under this name.
    pub fn new(name: &str, model: Arc<dyn Model>) -> Self {
        Entry { name: name.to_owned(), upstream: None, context: None, tenants: Tenants::All, model }
    }
}

/// The models of one configuration, in its order.
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Registry {
    /// A registry of these entries. `None` if there are none: a request without a model's name needs a first entry.
    pub fn new(entries: Vec<Entry>) -> Option<Self> {
        (!entries.is_empty()).then_some(Registry { entries })
    }

    /// The entries that the tenant may use.
    fn of_tenant(&self, tenant: &Tenant) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.tenants.admit(tenant))
    }

    /// The tenant's first entry that matches the name, and after it the other entries with the name of that entry.
    fn of(&self, tenant: &Tenant, name: &str) -> impl Iterator<Item = &Entry> {
        // `*` is not a model's name, so a request for it must not be passed on.
        let is_taken = |entry: &&Entry| entry.name == name || entry.name == PASS_THROUGH;
        let first = self.of_tenant(tenant).find(is_taken).filter(|_| name != PASS_THROUGH);
        let own = first.map(|entry| entry.name.as_str());
        self.of_tenant(tenant).filter(move |entry| Some(entry.name.as_str()) == own)
    }
}

impl Models for Registry {
    fn resolve(&self, tenant: &Tenant, name: &str) -> Option<Arc<dyn Model>> {
        self.of(tenant, name).next().map(|entry| Arc::clone(&entry.model))
    }

    fn fallbacks(&self, tenant: &Tenant, name: &str) -> Vec<Arc<dyn Model>> {
        self.of(tenant, name).skip(1).map(|entry| Arc::clone(&entry.model)).collect()
    }

    fn context(&self, tenant: &Tenant, name: &str) -> Option<u64> {
        self.of(tenant, name).filter_map(|entry| entry.context).min()
    }

    fn names(&self, tenant: &Tenant) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.of_tenant(tenant) {
            if !names.contains(&entry.name) {
                names.push(entry.name.clone());
            }
        }
        names
    }

    fn default_name(&self, tenant: &Tenant) -> Option<&str> {
        let first = self.of_tenant(tenant).next()?;
        if first.name == PASS_THROUGH { first.upstream.as_deref() } else { Some(&first.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scripted;

    fn entry(name: &str, provider: &str, upstream: Option<&str>) -> Entry {
        Entry { upstream: upstream.map(str::to_owned), ..Entry::new(name, Arc::new(Scripted::by_words(provider))) }
    }

    fn found(registry: &Registry, name: &str) -> Option<String> {
        registry.resolve(&"t".into(), name).map(|model| model.provider().to_owned())
    }

    #[test]
    fn the_first_entry_that_takes_the_name_answers() {
        let registry = Registry::new(vec![entry("a", "one", None), entry("a", "two", None), entry("b", "three", None)]).unwrap();
        assert_eq!(found(&registry, "a").as_deref(), Some("one"));
        assert_eq!(found(&registry, "b").as_deref(), Some("three"));
        assert_eq!(found(&registry, "c"), None);
        assert_eq!(registry.default_name(&"t".into()), Some("a"));
        assert_eq!(registry.names(&"t".into()), ["a", "b"]);
    }

    #[test]
    fn later_entries_of_a_name_stand_in_for_the_first() {
        let entries = [("a", "one"), ("*", "rest"), ("a", "two"), ("b", "never"), ("*", "more")];
        let registry = Registry::new(entries.map(|(name, provider)| entry(name, provider, None)).into()).unwrap();
        let others = |name: &str| registry.fallbacks(&"t".into(), name).iter().map(|model| model.provider().to_owned()).collect::<Vec<_>>();
        assert_eq!((others("a"), others("b"), others("c")), (vec!["two".to_owned()], vec!["more".to_owned()], vec!["more".to_owned()]));
    }

    #[test]
    fn models_of_one_name_read_no_more_than_the_least_of_them() {
        let reading = |name: &str, context| Entry { context, ..entry(name, "p", None) };
        let entries = vec![reading("a", None), reading("a", Some(9)), reading("a", Some(7)), reading("b", None)];
        let registry = Registry::new(entries).unwrap();
        let context = |name| registry.context(&"t".into(), name);
        assert_eq!((context("a"), context("b"), context("c")), (Some(7), None, None));
    }

    #[test]
    fn a_pass_through_entry_takes_what_no_earlier_one_took() {
        let registry = Registry::new(vec![entry("a", "one", None), entry("*", "rest", None), entry("b", "never", None)]).unwrap();
        assert_eq!(found(&registry, "a").as_deref(), Some("one"));
        assert_eq!(found(&registry, "b").as_deref(), Some("rest"));
        assert_eq!(found(&registry, "*"), None, "no provider is asked for the model *");
    }

    #[test]
    fn tm_03_a_model_of_another_tenant_does_not_exist() {
        let of_a = Tenants::Only([Tenant::from("a")].into());
        let entries = vec![Entry { tenants: of_a, ..entry("paid", "expensive", None) }, entry("*", "rest", None)];
        let registry = Registry::new(entries).unwrap();
        let found = |tenant: &str, name| registry.resolve(&tenant.into(), name).map(|model| model.provider().to_owned());
        assert_eq!(found("a", "paid").as_deref(), Some("expensive"));
        assert_eq!(found("b", "paid").as_deref(), Some("rest"), "to another tenant the name is like every other");
        assert_eq!((registry.names(&"a".into()), registry.names(&"b".into())), (vec!["paid".into(), "*".into()], vec!["*".into()]));
        assert_eq!((registry.default_name(&"a".into()), registry.default_name(&"b".into())), (Some("paid"), None));
    }

    #[test]
    fn the_default_of_a_pass_through_entry_is_its_own_model() {
        let default = |upstream| Registry::new(vec![entry("*", "p", upstream)]).unwrap().default_name(&"t".into()).map(str::to_owned);
        assert_eq!(default(Some("small")).as_deref(), Some("small"));
        assert_eq!(default(None), None, "no provider is asked for the model *");
        assert!(Registry::new(Vec::new()).is_none());
    }
}
