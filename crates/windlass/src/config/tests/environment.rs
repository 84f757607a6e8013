//! What the environment can change, and what it cannot.

use std::time::Duration;

use serde_json::json;

use super::{error, good};
use crate::config::{Provider, TokenHash};

const TOKEN: &str = "auth:\n  tokens:\n  - token: \"${T}\"\n    scopes: [admin]\n";

/// A setting that accepts any text.
const TEXT: &str = "agents:\n  a:\n    instructions: \"${T}\"\n";

#[test]
fn filled_in_text_never_changes_the_structure() {
    let traps = [
        "a: b",
        "x\", scopes: [\"*\"], name: \"y",
        "line\nserver: { behind_proxy: true }",
        "# no comment",
        "*alias",
        "it's \"quoted\"",
        "{a: [b",
        "${T}",
        "$${T}",
        "null",
        "~",
        " spaces ",
        "0x10",
        "ünï",
    ];
    for trap in traps {
        for text in [TEXT.to_owned(), TEXT.replace('"', "'"), TEXT.replace("\"${T}\"", "${T}")] {
            let config = good(&text, &[("T", trap)]);
            assert_eq!(config.agents.len(), 1);
            assert_eq!(config.agents["a"].instructions.as_deref(), Some(trap), "for {trap:?} in {text}");
            assert!(!config.server.peers.behind_proxy);
        }
    }
}

#[test]
fn references_have_defaults_and_an_escape() {
    let variables = [("A", "1"), ("EMPTY", "")];
    for (written, expected) in [
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${NONE:-z}", "z"),
        ("${A:-z}", "1"),
        ("${EMPTY:-z}", "z"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("$${A}", "${A}"),
        ("$A $ $$ 5$", "$A $ $$ 5$"),
        ("$${A} ${A}", "${A} 1"),
    ] {
        let config = good(&format!("agents: {{ a: {{ instructions: '{written}' }} }}"), &variables);
        assert_eq!(config.agents["a"].instructions.as_deref(), Some(expected), "for {written}");
    }
}

#[test]
fn a_reference_can_be_a_number_or_a_truth_value() {
    let text = "server:\n  drain_s: ${N}\n  behind_proxy: \"${B}\"\nlimits:\n  backoff: '${N}'\n  max_turns: ${N}";
    let config = good(text, &[("N", "3"), ("B", "true")]);
    assert_eq!((config.server.drain, config.server.peers.behind_proxy), (Duration::from_secs(3), true));
    assert_eq!((config.limits.backoff, config.limits.max_turns), (Duration::from_secs(3), 3));

    let text = "tools:\n  external:\n  - name: a\n    parameters:\n      maximum: ${N}\n      const: \"${N}\"\n      default: ${NULL}";
    let config = good(text, &[("N", "3"), ("NULL", "null")]);
    assert_eq!(config.tools[0].parameters, json!({"maximum": 3, "const": "3", "default": "null"}));
}

#[test]
fn references_that_lead_nowhere_are_errors() {
    for (text, expected) in [
        (TOKEN, "windlass.yaml:3: auth.tokens[0].token: the environment variable T is not set; set it or write ${T:-default}"),
        ("store: { url: \"sqlite:${T\" }", "windlass.yaml:1: store.url: \"${\" without \"}\"; write \"$${\" for the characters themselves"),
        ("store: { url: \"${a b}\" }", "windlass.yaml:1: store.url: \"${a b}\" is not a reference; write ${NAME} or ${NAME:-default}"),
        ("store: { url: \"${}\" }", "windlass.yaml:1: store.url: \"${}\" is not a reference; write ${NAME} or ${NAME:-default}"),
    ] {
        assert_eq!(error(text, &[]), expected);
    }
    assert_eq!(
        error("server: { drain_s: '${N}' }", &[("N", "x")]),
        "windlass.yaml:1: server.drain_s: expected a whole number of at least 0, found the value of \"${N}\""
    );
    assert_eq!(error(TOKEN, &[("T", "")]), "windlass.yaml:3: auth.tokens[0].token: expected text, found none");
}

#[test]
fn variables_win_over_the_file() {
    let text = "server:\n  listen: \"${UNSET}\"\nmodels:\n- { name: a, provider: scripted }\nagents: { Big.One: { model: a } }";
    let config = good(
        text,
        &[
            ("WINDLASS_SERVER__LISTEN", "127.0.0.1:1"),
            ("windlass_server__Drain_s", "2"),
            ("WINDLASS_MODELS__0__SCRIPT", "s.yaml"),
            ("WINDLASS_MODELS__1__NAME", "b"),
            ("WINDLASS_MODELS__1__PROVIDER", "openai-chat"),
            ("WINDLASS_MODELS__1__BASE_URL", "http://h"),
            ("WINDLASS_MODELS__1__API_KEY", "k"),
            ("WINDLASS_AGENTS__BIG.ONE__INSTRUCTIONS", "be: brief # ${UNSET}"),
            ("WINDLASS_AGENTS__7__MODEL", "\"b\""),
            ("WINDLASS_AGENTS__SMALL", "{ model: b, budgets: { calls: 1 } }"),
            ("WINDLASS_AGENTS__SMALL__BUDGETS__CALLS", "2"),
            ("WINDLASS_AUTH__TOKENS__0__TOKEN", "a: 'b and 22 characters"),
            ("WINDLASS_AUTH__TOKENS__0__SCOPES", "[admin, 'tools:x']"),
            ("WINDLASS_AUTH__TOKENS__0__SCOPES__1", "responses"),
        ],
    );
    assert_eq!(config.server.listen.port(), 1);
    assert_eq!(config.server.drain, Duration::from_secs(2));
    assert_eq!(config.models[0].provider, Provider::Scripted { script: Some("s.yaml".into()) });
    assert_eq!(config.models[1].name, "b");
    assert_eq!(config.agents["Big.One"].instructions.as_deref(), Some("be: brief # ${UNSET}"));
    assert_eq!(config.agents["Big.One"].model.as_deref(), Some("a"));
    assert_eq!(config.agents["7"].model.as_deref(), Some("b"));
    assert_eq!(config.agents["small"].budgets.calls, Some(2));
    assert_eq!(config.auth.tokens[0].hash, TokenHash::of("a: 'b and 22 characters"));
    assert_eq!(config.auth.tokens[0].scopes.last().unwrap().to_string(), "responses");
}

#[test]
fn a_whole_section_can_come_from_one_variable() {
    let config = good("", &[("WINDLASS_MODELS", "[{ name: a, provider: scripted }]"), ("WINDLASS_MODELS__0__NAME", "b")]);
    assert_eq!(config.models[0].name, "b");
}

#[test]
fn list_elements_come_in_the_order_of_their_numbers() {
    let named = |index| (format!("WINDLASS_TOOLS__EXTERNAL__{index}__NAME"), format!("tool-{index}"));
    let variables: Vec<(String, String)> = (0..12).map(named).collect();
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let config = good("", &variables);
    assert_eq!((config.tools.len(), config.tools[2].name.as_str(), config.tools[11].name.as_str()), (12, "tool-2", "tool-11"));
}

#[test]
fn variables_that_are_no_settings_are_left_alone() {
    let config = good(
        "",
        &[
            ("WINDLASS_CRASH_AT", "commit.suspend.before:2"),
            ("WINDLASS_TOKEN", "x"),
            ("WINDLASS_LOG", "debug"),
            ("WINDLASS_TEST_A__B", "x"),
            ("WINDLASS_HOME", "x"),
            ("PATH__X", "x"),
        ],
    );
    assert_eq!(config, good("", &[]));
}

#[test]
fn mistakes_in_variables_name_the_variable() {
    for (name, value, expected) in [
        ("WINDLASS_SERVER__LISEN", "x", "unknown key \"lisen\" in server; did you mean \"listen\"?"),
        ("WINDLASS_SERVR__LISTEN", "x", "unknown key \"servr\"; did you mean \"server\"?"),
        ("WINDLASS_SERVER__DRAIN_S", "x", "server.drain_s: expected a whole number of at least 0, found \"x\""),
        ("WINDLASS_SERVER__DRAIN_S", "", "server.drain_s: expected a whole number of at least 0, found \"\""),
        ("WINDLASS_SERVER__LISTEN__PORT", "x", "server.listen: expected text, found a mapping"),
        ("WINDLASS_SERVER", "x", "server: expected a mapping, found a single value"),
        ("WINDLASS_WEBHOOKS__A", "x", "this version does not have webhooks yet"),
        ("WINDLASS_PLUGINS_DIR", "x", "this version does not have plugins_dir yet"),
        ("WINDLASS_MODELS__1__NAME", "x", "models is a list of 0; expected an index from 0 to 0, found \"1\""),
        ("WINDLASS_MODELS__0__NAME", "x", "models[0]: provider is missing"),
        ("WINDLASS_MODELS", "[a", "not readable as YAML: unclosed bracket '['"),
        ("WINDLASS___LISTEN", "x", "a part of this name is empty; parts are parted by two underscores"),
    ] {
        assert_eq!(error("", &[(name, value)]), format!("{name}: {expected}"));
    }
    assert_eq!(
        error("server: { listen: a }", &[("WINDLASS_SERVER__LISTEN__PORT", "1")]),
        "WINDLASS_SERVER__LISTEN__PORT: server.listen is a single value and has no port"
    );
    assert_eq!(
        error("models: [{ name: a }]", &[("WINDLASS_MODELS__FIRST__NAME", "b")]),
        "WINDLASS_MODELS__FIRST__NAME: models is a list of 1; expected an index from 0 to 1, found \"first\""
    );
    assert_eq!(
        error("", &[("WINDLASS_SERVER__DRAIN_S", "1"), ("windlass_server__drain_s", "2")]),
        "WINDLASS_SERVER__DRAIN_S: windlass_server__drain_s sets the same key; keep one of them"
    );
}
