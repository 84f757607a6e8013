//! Valid and invalid `retention`.

use super::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

#[test]
fn tm_13_runs_are_erased_by_age_only_where_it_is_written() {
    assert_eq!(good("", &[]).retention, Retention::default());
    assert_eq!(good("retention: {}", &[]).retention, Retention::default());
    let both = Retention { responses_ms: Some(30 * DAY_MS), runs_ms: Some(90 * DAY_MS) };
    assert_eq!(good("retention: { responses: 30d, runs: 90d }", &[]).retention, both);
    assert_eq!(good("retention: { runs: 90d }", &[]).retention, Retention { responses_ms: None, ..both });
}

#[test]
fn a_retention_that_cannot_be_meant_is_refused() {
    let refused = |text: &str| error(&format!("retention: {text}"), &[]);
    assert!(refused("{ responses: 59m }").contains("retention.responses: expected a time of at least 1h"));
    assert!(refused("{ runs: 0 }").contains("retention.runs: expected a time above zero"));
    assert!(refused("{ runs: 4000d }").contains("at most 3650d"));
    assert!(refused("{ workspaces: 30d }").contains("this version does not have retention.workspaces yet"));
    assert!(refused("{ run: 30d }").contains("did you mean \"runs\"?"));
}
