//! Failover: which of the models behind one name an attempt calls. Each model gets the full number of attempts before its fallback, in
//! the same iteration. The choice follows from the number of the attempt, so it is the same after a crash.

use std::sync::Arc;

use windlass_kernel::Tenant;
use windlass_ports::{Model, Models};

/// The model of an attempt, among the models of one name.
pub(crate) struct ModelChoice {
    /// The model that the attempt calls.
    pub model: Arc<dyn Model>,
    /// The number of the attempt among those of this model, from 1.
    pub own_attempt: u32,
    /// The model that follows when this one has used up its attempts.
    pub next: Option<Arc<dyn Model>>,
}

impl ModelChoice {
    /// The choice for an attempt, which is counted from 1. `None` if no model of that name is configured any more.
    pub fn of(models: &dyn Models, tenant: &Tenant, name: &str, attempt: u32, attempts_max: u32) -> Option<Self> {
        let mut all = vec![models.resolve(tenant, name)?];
        all.extend(models.fallbacks(tenant, name));
        let attempts_each = attempts_max.max(1);
        // Attempts beyond those of the last model belong to the last model: continuing a stream that was cut counts as an attempt too.
        let index = ((attempt.max(1) - 1) / attempts_each).min(all.len() as u32 - 1);
        let next = all.get(index as usize + 1).cloned();
        let model = all.swap_remove(index as usize);
        Some(ModelChoice { model, own_attempt: attempt.max(1) - index * attempts_each, next })
    }
}

#[cfg(test)]
mod tests {
    use windlass_ports::{ModelRequest, ModelStream};

    use super::*;

    struct Named(&'static str);

    impl Model for Named {
        fn call(&self, _: ModelRequest) -> ModelStream {
            Box::pin(futures_util::stream::empty())
        }

        fn provider(&self) -> &str {
            self.0
        }

        fn concurrency(&self) -> usize {
            1
        }
    }

    struct Three;

    impl Models for Three {
        fn resolve(&self, _: &Tenant, name: &str) -> Option<Arc<dyn Model>> {
            (name == "m").then(|| Arc::new(Named("one")) as Arc<dyn Model>)
        }

        fn fallbacks(&self, _: &Tenant, _: &str) -> Vec<Arc<dyn Model>> {
            vec![Arc::new(Named("two")), Arc::new(Named("three"))]
        }

        fn names(&self, _: &Tenant) -> Vec<String> {
            vec!["m".to_owned()]
        }

        fn default_name(&self, _: &Tenant) -> Option<&str> {
            Some("m")
        }
    }

    #[test]
    fn every_model_has_its_own_attempts_and_the_last_one_the_rest() {
        let choice = |attempt| {
            let choice = ModelChoice::of(&Three, &"t".into(), "m", attempt, 2).unwrap();
            (choice.model.provider().to_owned(), choice.own_attempt, choice.next.map(|next| next.provider().to_owned()))
        };
        let expected = |model: &str, own_attempt, next: Option<&str>| (model.to_owned(), own_attempt, next.map(str::to_owned));
        assert_eq!(choice(1), expected("one", 1, Some("two")));
        assert_eq!(choice(2), expected("one", 2, Some("two")));
        assert_eq!(choice(3), expected("two", 1, Some("three")));
        assert_eq!(choice(6), expected("three", 2, None));
        assert_eq!(choice(9), expected("three", 5, None));
        assert!(ModelChoice::of(&Three, &"t".into(), "other", 1, 2).is_none());
    }
}
