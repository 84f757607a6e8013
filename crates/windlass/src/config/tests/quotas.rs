//! Valid and invalid `quotas`.

use windlass_engine::{Quota, Rate};

use super::*;

const TOKENS: &str = "auth:
  tokens:
    - { token: aaaaaaaaaaaaaaaaaaaaaaaa, tenant: acme, scopes: [\"*\"] }
    - { token: bbbbbbbbbbbbbbbbbbbbbbbb, tenant: other, scopes: [\"*\"] }
";

fn quotas(text: &str) -> Quotas {
    good(&format!("{TOKENS}quotas: {text}"), &[]).quotas
}

fn refused(text: &str) -> String {
    error(&format!("{TOKENS}quotas: {text}"), &[])
}

#[test]
fn tm_13_a_tenant_has_its_own_quota_or_that_of_all_or_none() {
    assert_eq!(good("", &[]).quotas, Quotas::default());
    let read = quotas(
        "{ acme: { requests_per_second: 20, burst: 40, runs_queued: 1000, tokens_per_day: 5000000, bytes_stored: 1000000 }, \"*\": { requests_per_second: 0.5 } }",
    );
    let acme = Quota {
        requests: Some(Rate { per_1000_s: 20_000, burst: 40 }),
        runs_queued: Some(1000),
        tokens_per_day: Some(5_000_000),
        bytes_stored: Some(1_000_000),
    };
    assert_eq!(read.of(&"acme".into()), &acme);
    let all = Quota { requests: Some(Rate { per_1000_s: 500, burst: 1 }), ..Quota::default() };
    assert_eq!((read.of(&"other".into()), read.of(&"added later".into())), (&all, &all));
}

#[test]
fn a_quota_that_cannot_be_meant_is_refused() {
    let of_unknown = refused("{ acmee: { runs_queued: 1 } }");
    assert!(of_unknown.ends_with("no token of auth.tokens has the tenant \"acmee\"; there are: acme, other"), "{of_unknown}");
    for wrong in ["0", "-1", "0.0001", "1.", "many", "99999999999"] {
        let message = refused(&format!("{{ acme: {{ requests_per_second: {wrong} }} }}"));
        assert!(message.contains("quotas.acme.requests_per_second: expected a number of at least 0.001"), "{message}");
    }
    assert!(refused("{ acme: { burst: 3 } }").contains("quotas.acme.burst: only together with requests_per_second"));
    assert!(refused("{ acme: { runs_queued: 0 } }").contains("at least 1"));
    assert!(refused("{ acme: { bytes_stored: 0 } }").contains("quotas.acme.bytes_stored: expected a whole number of at least 1"));
}

#[test]
fn usage_is_counted_if_it_is_wanted_or_a_quota_needs_it() {
    let counted = |text: &str| good(&format!("{TOKENS}{text}"), &[]).usage_days;
    let quota = "quotas: { acme: { tokens_per_day: 5 } }\n";
    assert_eq!(counted(""), None);
    assert_eq!(counted("quotas: { acme: { runs_queued: 5 } }"), None);
    assert_eq!(counted(quota), Some(400));
    assert_eq!(counted("usage: { count: true }"), Some(400));
    assert_eq!(counted("usage: { keep: 30d }"), None);
    assert_eq!(counted(&format!("{quota}usage: {{ keep: 30d }}")), Some(30));
    let message = error(&format!("{TOKENS}{quota}usage: {{ count: false }}"), &[]);
    assert!(message.contains("usage.count: quotas with tokens_per_day need usage to be counted"), "{message}");
    let message = error(&format!("{TOKENS}usage: {{ keep: 1h }}"), &[]);
    assert!(message.contains("usage.keep: expected a time of at least 1d"), "{message}");
}
