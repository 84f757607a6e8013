//! Valid and invalid `approvals`.

use windlass_kernel::{EffectClass, Gate, OnTimeout};

use super::*;

#[test]
fn rules_are_read_in_their_order() {
    let text =
        "approvals:\n  - { tool: send_*, until: 1h }\n  - { effect: write, tainted: true, approvers: 2, until: 5m, on_timeout: end }";
    let first = Gate { tool: Some("send_*".into()), until_ms: Some(3_600_000), ..Gate::default() };
    let second = Gate {
        effect: Some(EffectClass::Write),
        tainted: Some(true),
        until_ms: Some(300_000),
        on_timeout: OnTimeout::End,
        approvers: 2,
        ..Gate::default()
    };
    let read: Vec<Gate> = good(text, &[]).approvals;
    assert_eq!(read, [Gate { approvers: 1, ..first }, second]);
    assert!(good("", &[]).approvals.is_empty());
}

#[test]
fn a_rule_that_cannot_be_meant_is_refused() {
    let refused = |text: &str| error(&format!("approvals: [{text}]"), &[]);
    assert!(refused("{}").contains("approvals[0]: a rule needs a condition"));
    assert!(refused("{ until: 1h }").contains("a rule needs a condition"));
    assert!(refused("{ tool: a, on_timeout: approve }").contains("approvals[0].on_timeout: says what happens at the deadline"));
    assert!(refused("{ tool: a, until: 1h, on_timeout: wait }").contains("unknown on_timeout"));
    assert!(refused("{ tool: a, approvers: 0 }").contains("from 1 to 16"));
    assert!(refused("{ tool: a, approvers: 17 }").contains("from 1 to 16"));
    assert!(refused("{ tool: a, aprovers: 2 }").contains("did you mean \"approvers\"?"));
    assert!(refused("{ effect: writes }").contains("unknown effect"));
}
