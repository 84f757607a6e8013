//! Valid `agents`.

use super::*;

#[test]
fn other_agents_are_open_if_none_is_configured_or_the_setting_says_so() {
    assert!(good("", &[]).agents_open);
    assert!(!good("agents: { a: {} }", &[]).agents_open);
    assert!(good("agents: { a: {} }\nagents_open: true", &[]).agents_open);
    assert!(!good("agents_open: false", &[]).agents_open);
}
