//! The model's name as the provider's reply gives it.

use windlass_ports::ModelEvent;

/// Characters of a usable name. Only a broken server sends longer ones.
const CHARS_MAX: usize = 128;

/// Reports the name once, as soon as a reply has a usable one.
#[derive(Debug, Default)]
pub(crate) struct UpstreamName {
    is_reported: bool,
}

impl UpstreamName {
    pub(crate) fn report(&mut self, name: Option<&str>) -> Option<ModelEvent> {
        let name = name.filter(|name| !self.is_reported && is_usable(name))?;
        self.is_reported = true;
        Some(ModelEvent::Model(name.to_owned()))
    }
}

fn is_usable(name: &str) -> bool {
    !name.trim().is_empty() && name.chars().nth(CHARS_MAX).is_none() && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reported_once_and_only_if_it_is_one() {
        let mut name = UpstreamName::default();
        for unusable in [None, Some(""), Some(" "), Some("a\nb"), Some("x".repeat(CHARS_MAX + 1).as_str())] {
            assert_eq!(name.report(unusable), None, "{unusable:?}");
        }
        assert_eq!(name.report(Some("gpt-4.1-2025-04-14")), Some(ModelEvent::Model("gpt-4.1-2025-04-14".to_owned())));
        assert_eq!(name.report(Some("other")), None);
    }
}
