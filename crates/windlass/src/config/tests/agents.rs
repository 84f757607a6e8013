//! Valid `agents`.

use super::*;

#[test]
fn other_agents_are_open_if_none_is_configured_or_the_setting_says_so() {
    assert!(good("", &[]).agents_open);
    assert!(!good("agents: { a: {} }", &[]).agents_open);
    assert!(good("agents: { a: {} }\nagents_open: true", &[]).agents_open);
    assert!(!good("agents_open: false", &[]).agents_open);
}

#[test]
fn a_full_file_gives_agents() {
    let config = good(FULL, &[("TOKEN", "s3cret-of-22-characters")]);
    assert_eq!(
        config.agents["researcher"],
        Agent {
            policy: PolicyName::Respond,
            model: Some("anything".into()),
            instructions: Some("Find it.\n".into()),
            tools: vec!["echo".into(), "pay".into(), "agent/plain".into()],
            budgets: Budgets {
                iterations: 5,
                calls: Some(20),
                tokens: Some(100_000),
                wall_ms: Some(7_200_000),
                children: Some(4),
                cost: None
            },
            cost_limit: Some(2_500_000),
            budgets_park: true,
            ask: true,
            serial: true,
            max_depth: 2,
            description: Some("Finds things.".into()),
            parameters: Some(json!({"type": "object"})),
            tenants: of_default(),
        }
    );
    assert_eq!((config.agents["plain"].budgets.iterations, config.agents["plain"].serial), (7, false));
}
