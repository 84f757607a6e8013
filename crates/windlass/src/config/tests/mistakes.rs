//! Invalid configurations, with the exact messages of their errors.

use super::error;

/// Checks that each text is refused with exactly the message next to it.
fn check(table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(error(text, &[]), *expected, "for {text}");
    }
}

#[test]
fn unknown_keys_name_the_nearest_valid_one() {
    check(&[
        ("\n\nserver:\n  lisen: 1", "windlass.yaml:4: unknown key \"lisen\" in server; did you mean \"listen\"?"),
        ("sever: {}", "windlass.yaml:1: unknown key \"sever\"; did you mean \"server\"?"),
        ("Server: {}", "windlass.yaml:1: unknown key \"Server\"; did you mean \"server\"?"),
        (
            "server:\n  colour: red",
            "windlass.yaml:2: unknown key \"colour\" in server; valid keys: listen, behind_proxy, proxies, hosts, connections, \
             connections_per_peer, drain_s, head, body, tls",
        ),
        (
            "models:\n  - name: a\n    providr: scripted",
            "windlass.yaml:3: unknown key \"providr\" in models[0]; did you mean \"provider\"?",
        ),
        ("auth: { tokens: [ { tokens: x } ] }", "windlass.yaml:1: unknown key \"tokens\" in auth.tokens[0]; did you mean \"token\"?"),
        (
            "tools: { external: [ { name: a, efect: read } ] }",
            "windlass.yaml:1: unknown key \"efect\" in tools.external[0]; did you mean \"effect\"?",
        ),
        (
            "agents:\n  a:\n    budgets:\n      walltime: 1h",
            "windlass.yaml:4: unknown key \"walltime\" in agents.a.budgets; did you mean \"wall_time\"?",
        ),
        ("limits: { max_turn: 1 }", "windlass.yaml:1: unknown key \"max_turn\" in limits; did you mean \"max_turns\"?"),
    ]);
}

#[test]
fn keys_of_later_versions_are_refused_by_name() {
    for key in ["plugins", "plugins_dir", "pipelines", "webhooks", "schedules"] {
        assert_eq!(error(&format!("\n{key}: x"), &[]), format!("windlass.yaml:2: this version does not have {key} yet"));
    }
    check(&[(
        "agents: { a: { policy: pursue } }",
        "windlass.yaml:1: agents.a.policy: this version does not have policy pursue yet; it has respond",
    )]);
}

#[test]
fn wrong_kinds_say_what_was_found_and_what_is_wanted() {
    check(&[
        ("- a", "windlass.yaml:1: expected a mapping, found a list"),
        ("server: 7600", "windlass.yaml:1: server: expected a mapping, found a single value"),
        ("models: {}", "windlass.yaml:1: models: expected a list, found a mapping"),
        ("models: [a]", "windlass.yaml:1: models[0]: expected a mapping, found a single value"),
        ("agents: []", "windlass.yaml:1: agents: expected a mapping of names, found a list"),
        ("server: { drain_s: soon }", "windlass.yaml:1: server.drain_s: expected a whole number of at least 0, found \"soon\""),
        ("server: { drain_s: \"1\" }", "windlass.yaml:1: server.drain_s: expected a whole number of at least 0, found \"1\""),
        ("server: { drain_s: 99999999999 }", "windlass.yaml:1: server.drain_s: expected a smaller number, found \"99999999999\""),
        (
            "server: { hosts: ['example.com:80'] }",
            "windlass.yaml:1: server.hosts[0]: expected a host without a port, such as agents.example.com, found \"example.com:80\"",
        ),
        ("server: { proxies: [10.0.0.1] }", "windlass.yaml:1: server.proxies: only a server with server.behind_proxy: true has proxies"),
        (
            "server: { behind_proxy: true, proxies: [nginx] }",
            "windlass.yaml:1: server.proxies[0]: expected an IP address or a network such as 10.1.0.0/16, found \"nginx\"",
        ),
        ("server: { behind_proxy: yes }", "windlass.yaml:1: server.behind_proxy: expected true or false, found \"yes\""),
        ("limits: { workers: 1.5 }", "windlass.yaml:1: limits.workers: expected a whole number of at least 1, found \"1.5\""),
        ("agents: { a: { tools: echo } }", "windlass.yaml:1: agents.a.tools: expected a list, found a single value"),
        (
            "tools: { external: [ { name: a, parameters: object } ] }",
            "windlass.yaml:1: tools.external[0].parameters: expected a mapping, found a single value",
        ),
        ("agents: { a: { instructions: [b] } }", "windlass.yaml:1: agents.a.instructions: expected text, found a list"),
    ]);
}

#[test]
fn times_and_limits_must_be_above_zero() {
    const WANTED: &str = "expected a time such as 500ms, 30s, 10m, 2h or 30d, or a number of seconds, found";
    for wrong in ["soon", "10 m", "10w", "-1", "1.5h", "m", "nan", "99999999999999999999h"] {
        let expected = format!("windlass.yaml:1: limits.call_deadline: {WANTED} \"{wrong}\"");
        assert_eq!(error(&format!("limits: {{ call_deadline: {wrong} }}"), &[]), expected);
    }
    check(&[
        ("limits: { max_turns: 0 }", "windlass.yaml:1: limits.max_turns: expected a whole number of at least 1, found \"0\""),
        ("limits: { lease: 499ms }", "windlass.yaml:1: limits.lease: expected a time of at least 500ms, found \"499ms\""),
        ("limits: { backoff: 0s }", "windlass.yaml:1: limits.backoff: expected a time above zero, found \"0s\""),
        ("limits: { backoff: 4000d }", "windlass.yaml:1: limits.backoff: expected a time of at most 3650d, found \"4000d\""),
        (
            "models: [{ name: a, provider: scripted, context: 0 }]",
            "windlass.yaml:1: models[0].context: expected a whole number of at least 1, found \"0\"",
        ),
        (
            "models: [{ name: a, provider: scripted, concurrency: 0 }]",
            "windlass.yaml:1: models[0].concurrency: expected a whole number of at least 1, found \"0\"",
        ),
    ]);
}

#[test]
fn a_prefill_is_for_providers_that_support_it() {
    const REFUSED: &str =
        "windlass.yaml:1: models[0].prefill: only the providers openai-chat and anthropic can be given words to go on from";
    check(&[
        ("models: [{ name: a, provider: openai-responses, prefill: true }]", REFUSED),
        ("models: [{ name: a, provider: scripted, prefill: true }]", REFUSED),
    ]);
}

#[test]
fn addresses_are_checked() {
    check(&[
        (
            "server:\n  listen: localhost",
            "windlass.yaml:2: server.listen: expected an IP address with a port, such as 127.0.0.1:7600, found \"localhost\"",
        ),
        (
            "server:\n  listen: 0.0.0.0:80",
            "windlass.yaml:2: server.listen: 0.0.0.0:80 can be reached from other machines without TLS; listen on 127.0.0.1:80, \
             set server.tls, or put a proxy with TLS in front and set server.behind_proxy: true",
        ),
        (
            "store: { url: a.db }",
            "windlass.yaml:1: store.url: expected sqlite:<file>, such as sqlite:.windlass/windlass.db, or \
             postgres://user:password@host/database",
        ),
        ("store: { url: \"sqlite::memory:\" }", "windlass.yaml:1: store.url: expected a file after sqlite:, without options"),
        (
            "models: [{ name: a, provider: openai-chat, base_url: api.example.com }]",
            "windlass.yaml:1: models[0].base_url: expected an address such as https://api.example.com/v1, found \"api.example.com\"",
        ),
        (
            "models: [{ name: a, provider: openai-chat, base_url: \"http://me:word@host\" }]",
            "windlass.yaml:1: models[0].base_url: expected an address without a user or password in it; a key goes into api_key",
        ),
    ]);
}

#[test]
fn names_and_scopes_are_checked() {
    const NAME: &str = "expected a name of 1 to 128 letters, digits, \".\", \"_\" or \"-\", found";
    let long = "a".repeat(129);
    assert_eq!(error(&format!("agents: {{ {long}: {{}} }}"), &[]), format!("windlass.yaml:1: agents: {NAME} \"{}\"…", &long[..60]));
    assert_eq!(error("agents:\n  a b: {}", &[]), format!("windlass.yaml:2: agents: {NAME} \"a b\""));
    assert_eq!(error("models: [{ name: a/b, provider: scripted }]", &[]), format!("windlass.yaml:1: models[0].name: {NAME} \"a/b\""));
    check(&[
        (
            "auth:\n  tokens:\n  - token: xxxxxxxxxxxxxxxxxxxxxx\n    scopes: [agent:read]",
            "windlass.yaml:4: auth.tokens[0].scopes[0]: unknown scope \"agent:read\"; did you mean \"agents:read\"?",
        ),
        (
            "auth: { tokens: [ { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [everything] } ] }",
            "windlass.yaml:1: auth.tokens[0].scopes[0]: unknown scope \"everything\"; valid values: *, agents:read, agents:write, \
             agents:stop, agents:configure, agent:<name>, use:<tool>, mcp:<label>, tools:<name>, tools:*, responses, runs:read, approvals:answer, metrics, admin",
        ),
        (
            "auth: { tokens: [ { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [\"tools:a b\"] } ] }",
            "windlass.yaml:1: auth.tokens[0].scopes[0]: expected tools:<name> or tools:*, found \"tools:a b\"",
        ),
        (
            "auth: { tokens: [ { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [] } ] }",
            "windlass.yaml:1: auth.tokens[0].scopes: expected at least one scope, found none",
        ),
        ("auth: { tokens: [ { token: xxxxxxxxxxxxxxxxxxxxxx } ] }", "windlass.yaml:1: auth.tokens[0]: scopes is missing"),
        (
            "auth: { tokens: [ { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [admin], expires: tomorrow } ] }",
            "windlass.yaml:1: auth.tokens[0].expires: expected a time such as 2027-01-31T00:00:00Z, found \"tomorrow\"",
        ),
        ("auth: { tokens: [ { token: \"\" } ] }", "windlass.yaml:1: auth.tokens[0].token: expected text, found none"),
        (
            "auth: { tokens: [ { token: \"sha256:12\" } ] }",
            "windlass.yaml:1: auth.tokens[0].token: expected 64 hexadecimal digits after sha256:",
        ),
        (
            "auth:\n  tokens:\n  - { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [admin] }\n  - { token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [admin] }",
            "windlass.yaml:4: auth.tokens[1]: this token is given twice",
        ),
    ]);
}

#[test]
fn what_is_named_must_exist_and_be_named_once() {
    check(&[
        (
            "tools:\n  external:\n  - name: echo\n  - name: echo",
            "windlass.yaml:4: tools.external[1].name: a tool named echo is given above",
        ),
        (
            "tools: { external: [ { name: submit_result } ] }",
            "windlass.yaml:1: tools.external[0].name: the name submit_result is taken by Windlass itself",
        ),
        ("agents:\n  a: {}\n  a: {}", "windlass.yaml:3: the key \"a\" is given twice"),
        (
            "tools: { external: [ { name: echo } ] }\nagents:\n  a:\n    tools:\n    - ecko",
            "windlass.yaml:5: agents.a.tools[0]: unknown tool \"ecko\"; did you mean \"echo\"?",
        ),
        (
            "tools: { external: [ { name: echo } ] }\nagents:\n  a:\n    tools: [echo, echo]",
            "windlass.yaml:4: agents.a.tools[1]: the tool echo is given above",
        ),
        (
            "agents: { a: { tools: [echo] } }",
            "windlass.yaml:1: agents.a.tools[0]: expected the name of a tool or of a tool server, but `tools` has none, found \"echo\"",
        ),
        ("agents: { a: { model: gpt } }", "windlass.yaml:1: agents.a.model: unknown model \"gpt\"; valid values: offline"),
        ("models: [{ provider: scripted }]", "windlass.yaml:1: models[0]: name is missing"),
        ("models:\n\n- name: a", "windlass.yaml:3: models[0]: provider is missing"),
        ("models: [{ name: a, provider: openai-chat }]", "windlass.yaml:1: models[0]: base_url is missing"),
        (
            "models: [{ name: a, provider: openai, base_url: http://h }]",
            "windlass.yaml:1: models[0].provider: unknown provider \"openai\"; \
             valid values: scripted, openai-chat, openai-responses, anthropic",
        ),
        (
            "models: [{ name: a, provider: scripted, api_key: x }]",
            "windlass.yaml:1: models[0].api_key: the provider scripted is offline and has no use for this",
        ),
        (
            "models: [{ name: a, provider: anthropic, base_url: api.example.com }]",
            "windlass.yaml:1: models[0].base_url: expected an address such as https://api.example.com/v1, found \"api.example.com\"",
        ),
        (
            "models: [{ name: a, provider: anthropic, script: x }]",
            "windlass.yaml:1: models[0].script: only the provider scripted has a script",
        ),
        (
            "models: [{ name: a, provider: openai-chat, base_url: http://h, script: x }]",
            "windlass.yaml:1: models[0].script: only the provider scripted has a script",
        ),
        (
            "tools: { external: [ { name: a, effect: writes } ] }",
            "windlass.yaml:1: tools.external[0].effect: unknown effect \"writes\"; did you mean \"write\"?",
        ),
        (
            "tools: { external: [ { name: a, after_execution: stop } ] }",
            "windlass.yaml:1: tools.external[0].after_execution: unknown after_execution \"stop\"; \
             valid values: suspend, terminate",
        ),
    ]);
}

#[test]
fn yaml_mistakes_name_their_line() {
    check(&[
        ("server:\n  listen: [1", "windlass.yaml:2: not readable as YAML: unclosed bracket '['"),
        (
            "server:\n  { drain_s: ${N} }",
            "windlass.yaml:2: not readable as YAML: while parsing a flow mapping, did not find expected ',' or '}'; \
             inside {} and [], put ${…} in quotes",
        ),
        ("a: b: c", "windlass.yaml:1: not readable as YAML: mapping values are not allowed in this context"),
        ("a: 1\n---\nb: 2", "windlass.yaml:3: not readable as YAML: only single YAML document expected but multiple found"),
        ("server: !secret x", "windlass.yaml:1: not readable as YAML: unsupported tag `!secret`"),
        ("server: {}\nserver: {}", "windlass.yaml:2: the key \"server\" is given twice"),
    ]);
    let deep = format!("server: {}{}", "[".repeat(200), "]".repeat(200));
    assert!(error(&deep, &[]).starts_with("windlass.yaml:1: not readable as YAML: YAML document too large or too complex"));
}

#[test]
fn tm_14_a_token_has_at_least_22_characters() {
    let with = |token: &str| format!("auth: {{ tokens: [ {{ token: '{token}', scopes: [admin] }} ] }}");
    let refused = "windlass.yaml:1: auth.tokens[0].token: a token has at least 22 characters; `openssl rand -hex 32` makes one";
    for token in ["x".to_owned(), "x".repeat(21), "ä".repeat(21)] {
        assert_eq!(error(&with(&token), &[]), refused);
    }
    super::good(&with(&"x".repeat(22)), &[]);
    super::good(&with(&format!("sha256:{}", "0".repeat(64))), &[]);
}

#[test]
fn repetitions_of_calls_are_few() {
    for (retry, mistake) in [
        ("{ max: 11 }", "tools.external[0].retry.max: at most 10 repetitions are possible"),
        ("{ backoff: 1s }", "tools.external[0].retry: max is missing"),
        ("3", "tools.external[0].retry: expected a mapping, found a single value"),
    ] {
        let found = error(&format!("tools: {{ external: [ {{ name: a, retry: {retry} }} ] }}"), &[]);
        assert!(found.ends_with(mistake), "{found}");
    }
}

#[test]
fn prices_and_costs_are_numbers_with_at_most_six_decimals() {
    const WANTED: &str = "expected a number with at most six decimals, such as 2.5, found";
    for (text, mistake) in [
        ("prices: { a: { input: 1 } }", "prices.a: output is missing".to_owned()),
        ("prices: { a: { input: -1, output: 1 } }", format!("prices.a.input: {WANTED} \"-1\"")),
        ("prices: { a: { input: 0.0000001, output: 1 } }", format!("prices.a.input: {WANTED} \"0.0000001\"")),
        (
            "agents: { a: { budgets: { cost_usd: 0 } } }",
            "agents.a.budgets.cost_usd: expected a number of dollars above zero, found \"0\"".to_owned(),
        ),
        ("agents: { a: { budgets: { cost_usd: much } } }", format!("agents.a.budgets.cost_usd: {WANTED} \"much\"")),
    ] {
        let found = error(text, &[]);
        assert!(found.ends_with(&mistake), "{found}");
    }
}

#[test]
fn a_webhook_needs_an_address_and_a_secret() {
    for (notify, mistake) in [
        ("{ url: https://h }", "interrupts.notify: secret is missing"),
        ("{ secret: x }", "interrupts.notify: url is missing"),
        ("{ url: h, secret: x }", "interrupts.notify.url: expected an address that begins with http:// or https://, found \"h\""),
    ] {
        let found = error(&format!("interrupts: {{ notify: {notify} }}"), &[]);
        assert!(found.ends_with(mistake), "{found}");
    }
}

#[test]
fn agents_that_an_agent_asks_must_exist_and_differ_for_models() {
    check(&[
        (
            "agents: { a: { tools: [agent/b] }, c: {} }",
            "windlass.yaml:1: agents.a.tools[0]: unknown agent \"agent/b\"; did you mean \"agent/a\"?",
        ),
        (
            "agents: { a: { tools: [agent/b-c, agent/b-c] }, b-c: {} }",
            "windlass.yaml:1: agents.a.tools[1]: the tool agent/b-c is given above",
        ),
        (
            "agents: { a: { tools: [agent/b.c, agent/b_c] }, b.c: {}, b_c: {} }",
            "windlass.yaml:1: agents.a.tools[1]: two agents of this list have the same name for models, agent__b_c; rename one",
        ),
        (
            "agents: { a: { max_depth: deep } }",
            "windlass.yaml:1: agents.a.max_depth: expected a whole number of at least 0, found \"deep\"",
        ),
        (
            "agents: { a: { budgets: { children: 0 } } }",
            "windlass.yaml:1: agents.a.budgets.children: expected a whole number of at least 1, found \"0\"",
        ),
        ("agents: { a: { parameters: text } }", "windlass.yaml:1: agents.a.parameters: expected a mapping, found a single value"),
    ]);
}
