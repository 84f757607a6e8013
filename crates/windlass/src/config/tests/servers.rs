//! `tools.mcp` and `egress`.

use windlass_tools::ServerConfig;

use super::*;

#[test]
fn servers_are_read_to_the_last_key() {
    let config = good(FULL, &[("TOKEN", "s3cret-of-22-characters")]);
    let secret = || Secret::new("s3cret-of-22-characters".into());
    let effects = [("search", EffectClass::Read), ("put", EffectClass::Idempotent), ("send", EffectClass::Write)];
    assert_eq!(
        config.mcp[0],
        McpServer {
            label: "tools".into(),
            place: McpPlace::Http {
                url: "http://127.0.0.1:18080/mcp?v=1".into(),
                headers: [("x-team".into(), Secret::new("blue".into())), ("x-key".into(), secret())].into(),
                authorization: Some(secret()),
            },
            effects: effects.map(|(tool, effect)| (tool.to_owned(), effect)).into(),
            retry: None,
            tenants: of_default(),
            shared: false,
        }
    );
    let built: Vec<ServerConfig> = config.mcp.iter().map(ServerConfig::from).collect();
    assert_eq!((built.len(), built[1].label.as_str(), built[1].url.as_str()), (3, "other", "https://tools.example.com"));
    assert_eq!(built[2].command, ["tool", "--key", "s3cret-of-22-characters"]);
    assert_eq!(built[2].environment, [("KEY".to_owned(), "s3cret-of-22-characters".to_owned())].into());
    assert!(!format!("{built:?}").contains("s3cret-of-22-characters"));
    assert!(!format!("{config:?}").contains("s3cret-of-22-characters"));
    assert_eq!(built[0].headers, [("x-key".to_owned(), "s3cret-of-22-characters".to_owned()), ("x-team".to_owned(), "blue".to_owned())]);
    assert_eq!((built[0].authorization.as_deref(), built[0].effects.len()), (Some("s3cret-of-22-characters"), 3));
    assert_eq!(built.iter().map(|server| server.shared).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(built[1].retry, Some(CallRetries { max: 3, backoff_ms: 1_000 }));
    let allowed: Vec<String> = config.egress.iter().map(Allowed::to_string).collect();
    assert_eq!(allowed, ["127.0.0.1/32", "10.1.0.0/16", "fd00::/8", "tools.internal"]);
    let variables = [("WINDLASS_TOOLS__MCP__0__LABEL", "a"), ("WINDLASS_TOOLS__MCP__0__URL", "http://host/mcp")];
    assert_eq!(ServerConfig::from(&good("", &variables).mcp[0]).url, "http://host/mcp");
    assert!(good("", &[]).mcp.is_empty() && good("", &[]).egress.is_empty());
}

#[test]
fn tm_07_only_the_operator_lifts_the_approval_that_declared_servers_need() {
    assert_eq!(good("", &[]).default_approval, DefaultApproval::Always);
    assert_eq!(good("mcp: { default_approval: never }", &[]).default_approval, DefaultApproval::Never);
    assert_eq!(good("", &[("WINDLASS_MCP__DEFAULT_APPROVAL", "never")]).default_approval, DefaultApproval::Never);
    let refused = error("mcp: { default_approval: sometimes }", &[]);
    assert!(refused.contains("mcp.default_approval: unknown approval \"sometimes\"") && refused.contains("always, never"), "{refused}");
}

#[test]
fn unusable_servers_are_refused_with_a_message() {
    for (server, expected) in [
        ("{ url: http://h }", "tools.mcp[0]: label is missing"),
        ("{ label: a }", "tools.mcp[0]: url or command is missing"),
        ("{ label: a, ulr: http://h }", "unknown key \"ulr\" in tools.mcp[0]; did you mean \"url\"?"),
        (
            "{ label: a, url: http://h, colour: red }",
            "unknown key \"colour\" in tools.mcp[0]; valid keys: label, url, headers, authorization, command, env, effects, retry, shared, tenants",
        ),
        ("{ label: a, command: tool }", "tools.mcp[0].command: expected a list, found a single value"),
        ("{ label: a, command: [] }", "tools.mcp[0].command: expected a program and its arguments, found none"),
        ("{ label: a, command: [\"\", b] }", "tools.mcp[0].command: expected a program and its arguments, found none"),
        (
            "{ label: a, command: [tool], url: http://h }",
            "tools.mcp[0].url: a server with a command is a process of ours and has no use for this",
        ),
        ("{ label: a, url: http://h, env: { A: b } }", "tools.mcp[0].env: only a server with a command has an environment"),
        ("{ label: a, url: http://h, shared: maybe }", "tools.mcp[0].shared: expected true or false, found \"maybe\""),
        ("{ label: a, url: http://h, require_approval: always }", "this version does not have tools.mcp[0].require_approval yet"),
        (
            "{ label: a b, url: http://h }",
            "tools.mcp[0].label: expected a name of 1 to 128 letters, digits, \".\", \"_\" or \"-\", found \"a b\"",
        ),
        ("{ label: windlass, url: http://h }", "tools.mcp[0].label: the label windlass is taken by Windlass itself"),
        (
            "{ label: a, url: tools.example.com }",
            "tools.mcp[0].url: expected an address such as https://tools.example.com/mcp, found \"tools.example.com\"",
        ),
        (
            "{ label: a, url: \"http://me:word@host/mcp\" }",
            "tools.mcp[0].url: expected an address without a user or password in it; a token goes into authorization",
        ),
        ("{ label: a, url: http://h, headers: { Host: b } }", "tools.mcp[0].headers.Host: the header host is the protocol's own"),
        ("{ label: a, url: http://h, headers: { x-a: b, X-A: c } }", "tools.mcp[0].headers.X-A: the header x-a is given twice"),
        (
            "{ label: a, url: http://h, authorization: b, headers: { Authorization: c } }",
            "tools.mcp[0].headers.Authorization: the header authorization is given twice",
        ),
        (
            "{ label: a, url: http://h, authorization: \"b\\nc\" }",
            "tools.mcp[0].authorization: the header authorization has letters that no header may have",
        ),
        (
            "{ label: a, url: http://h, effects: { search: reads } }",
            "tools.mcp[0].effects.search: unknown effect \"reads\"; did you mean \"read\"?",
        ),
        ("{ label: a, url: http://h, effects: read }", "tools.mcp[0].effects: expected a mapping of names, found a single value"),
    ] {
        assert_eq!(error(&format!("tools: {{ mcp: [ {server} ] }}"), &[]), format!("windlass.yaml:1: {expected}"), "for {server}");
    }
    let twice = "tools:\n  mcp:\n  - { label: a, url: http://h }\n  - { label: a, url: http://h }";
    assert_eq!(error(twice, &[]), "windlass.yaml:4: tools.mcp[1].label: a server labelled a is given above");
}

#[test]
fn what_egress_allows_is_checked() {
    for (egress, expected) in [
        ("{ alow: [] }", "unknown key \"alow\" in egress; did you mean \"allow\"?"),
        ("{ allow: localhost }", "egress.allow: expected a list, found a single value"),
        (
            "{ allow: [10.0.0.0/40] }",
            "egress.allow[0]: expected a host, an IP address or a network such as 10.1.0.0/16, found \"10.0.0.0/40\"",
        ),
        (
            "{ allow: [a, \"http://b\"] }",
            "egress.allow[1]: expected a host, an IP address or a network such as 10.1.0.0/16, found \"http://b\"",
        ),
    ] {
        assert_eq!(error(&format!("egress: {egress}"), &[]), format!("windlass.yaml:1: {expected}"), "for {egress}");
    }
}
