//! What a configuration may contain, and the errors of one that is invalid.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use serde_json::json;
use windlass_doors::PeerRules;
use windlass_kernel::{AfterExecution, Budgets, CallRetries, EffectClass, PolicyName, Prices};

use super::{node::Node, *};
use crate::tls::TlsFiles;

mod agents;
mod approvals;
mod environment;
mod mistakes;
mod quotas;
mod retention;
mod servers;
mod tenants;

/// Reads the text as `windlass.yaml` with these environment variables.
fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let origin = Origin::File { file: "windlass.yaml".into(), line: None };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::read(Node::parse(text, &origin)?, variables)
}

/// Reads a valid configuration.
fn good(text: &str, variables: &[(&str, &str)]) -> Config {
    read(text, variables).unwrap_or_else(|error| panic!("{error}"))
}

/// The error of an invalid configuration.
fn error(text: &str, variables: &[(&str, &str)]) -> String {
    match read(text, variables) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

const FULL: &str = r#"
server:
  listen: 0.0.0.0:7601
  behind_proxy: true
  proxies: [10.0.0.1, "fd00::/8"]
  hosts: [Agents.example.com, 10.0.0.9]
  connections: 500
  connections_per_peer: 50
  drain_s: 3
  head: 5s
  body: 4s
  tls: { cert: cert.pem, key: key.pem }
store: { url: "sqlite:data/main.db" }
auth:
  tokens:
    - { token: "${TOKEN}", scopes: ["*"], name: operator, expires: 2027-01-31T12:00:00+01:00 }
    - token: sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B
      tenant: acme
      scopes: [agents:read, agents:write, agents:stop, agents:configure, tools:echo, "tools:*", responses, runs:read, approvals:answer, metrics, admin]
models:
  - { name: offline, provider: scripted, script: scripts/echo.yaml }
  - name: "*"
    provider: openai-chat
    base_url: http://127.0.0.1:18080/v1/
    api_key: "${KEY:-none}"
    model: 4.10
    concurrency: 2
    connect_timeout: 500ms
    idle_timeout: 90
    prefill: true
    context: 128000
tools:
  external:
    - name: echo
      description: gives the text back
      parameters: { type: object, properties: { count: { type: integer, maximum: 5, default: 1.5, const: "1" } }, additionalProperties: false }
      effect: read
      after_execution: terminate
      deadline: 30d
      retry: { max: 2, backoff: 500ms }
    - { name: pay }
  mcp:
    - label: tools
      url: http://127.0.0.1:18080/mcp?v=1
      headers: { X-Team: blue, x-key: "${TOKEN}" }
      authorization: "${TOKEN}"
      effects: { search: read, put: idempotent, send: write }
    - { label: other, url: https://tools.example.com, shared: true, retry: { max: 3 } }
    - { label: near, command: [tool, --key, "${TOKEN}"], env: { KEY: "${TOKEN}" } }
agents:
  researcher:
    policy: respond
    model: anything
    instructions: |
      Find it.
    tools: [echo, pay, agent/plain]
    budgets: { iterations: 5, calls: 20, tokens: 100000, wall_time: 2h, children: 4, cost_usd: 2.5, parks: true }
    ask: true
    serial: true
    max_depth: 2
    description: "Finds things."
    parameters: { type: object }
  plain:
interrupts:
  notify: { url: https://hooks.example.com/windlass, secret: "${TOKEN}" }
prices:
  anything: { input: 3, output: 15.25, cached: 0.3 }
approvals:
  - { tool: "pay*", server: tools, effect: write, tainted: false, until: 1h, on_timeout: approve, approvers: 2 }
limits:
  max_turns: 7
  call_deadline: 5m
  body_bytes: 1000
  item_bytes: 500
  prompt_bytes: 5000
  box_items: 50
  box_bytes: 4000
  queued_per_agent: 1
  open_per_tenant: 2
  workers: 3
  sweep_interval: 250ms
  lease: 2s
  attempts: 4
  backoff: 0.5
  model_deadline: 30s
  tool_list: 9s
  in_flight_bytes: 9000
  in_flight_bytes_per_tenant: 8000
  requests_per_tenant: 70
  requests_per_token: 60
  sockets_per_tenant: 50
  sockets_per_token: 40
responses: { status: standard, store_false: memory, memory_bytes: 1000, join_s: 5, erase_s: 6, heartbeat: 7s, socket_limit: 8s }
mcp: { default_approval: never }
egress: { allow: ["127.0.0.1", 10.1.0.0/16, "fd00::/8", Tools.Internal] }
"#;

#[test]
fn a_full_file_is_read_to_the_last_key() {
    let config = good(FULL, &[("TOKEN", "s3cret-of-22-characters")]);
    assert_eq!(
        config.server,
        Server {
            listen: "0.0.0.0:7601".parse().unwrap(),
            peers: PeerRules { behind_proxy: true, proxies: vec!["10.0.0.1".parse().unwrap(), "fd00::/8".parse().unwrap()] },
            hosts: vec!["agents.example.com".into(), "10.0.0.9".into()],
            connections: 500,
            connections_per_peer: Some(50),
            drain: Duration::from_secs(3),
            head: Duration::from_secs(5),
            body: Duration::from_secs(4),
            tls: Some(TlsFiles { cert: "cert.pem".into(), key: "key.pem".into() }),
        }
    );
    assert_eq!(config.store.place(Path::new("elsewhere")).to_string(), "data/main.db");
    let secret = TokenHash::of("secret");
    let scopes: Vec<String> = config.auth.tokens[1].scopes.iter().map(Scope::to_string).collect();
    assert_eq!(
        config.auth.tokens[0],
        Token {
            hash: TokenHash::of("s3cret-of-22-characters"),
            tenant: "default".into(),
            scopes: vec![Scope::All],
            name: Some("operator".into()),
            standard_status: None,
            expires: Some(Timestamp(1_801_393_200_000))
        }
    );
    assert_eq!((config.auth.tokens[1].hash, config.auth.tokens[1].tenant.as_str()), (secret, "acme"));
    assert_eq!(
        scopes.join(" "),
        "agents:read agents:write agents:stop agents:configure tools:echo tools:* responses runs:read approvals:answer metrics admin"
    );
    let seconds = Duration::from_secs;
    assert_eq!(
        config.responses,
        Responses {
            standard_status: true,
            memory_bytes: Some(1000),
            join: seconds(5),
            erase: seconds(6),
            heartbeat: seconds(7),
            socket_limit: seconds(8)
        }
    );
}

#[test]
fn every_limit_of_a_full_file_is_read() {
    let config = good(FULL, &[("TOKEN", "s3cret-of-22-characters")]);
    assert_eq!(
        config.limits,
        Limits {
            max_turns: 7,
            turns_ceiling: 7,
            call_deadline: Duration::from_secs(300),
            body_bytes: 1000,
            item_bytes: 500,
            prompt_bytes: 5000,
            box_items: 50,
            box_bytes: 4000,
            queued_per_agent: 1,
            open_per_tenant: 2,
            workers: 3,
            sweep_interval: Duration::from_millis(250),
            lease: Duration::from_secs(2),
            attempts: 4,
            backoff: Duration::from_millis(500),
            model_deadline: Duration::from_secs(30),
            first_byte: Duration::from_secs(30),
            tool_list: Duration::from_secs(9),
            in_flight_bytes: 9000,
            in_flight_bytes_per_tenant: 8000,
            requests_per_tenant: Some(70),
            requests_per_token: Some(60),
            sockets_per_tenant: 50,
            sockets_per_token: Some(40),
        }
    );
}

#[test]
fn the_limit_before_the_first_byte_is_that_of_the_whole_call_unless_it_is_set() {
    let limit = |text: &str| good(text, &[]).limits.first_byte.as_secs();
    assert_eq!(limit(""), 600);
    assert_eq!(limit("limits: { model_deadline: 20m }"), 1_200);
    assert_eq!(limit("limits: { model_deadline: 20m, first_byte: 90s }"), 90);
}

#[test]
fn bytes_in_flight_have_room_for_a_body() {
    let limits = |text: &str| {
        let limits = good(text, &[]).limits;
        (limits.in_flight_bytes >> 20, limits.in_flight_bytes_per_tenant >> 20)
    };
    assert_eq!(limits(""), (256, 128));
    assert_eq!(limits("limits: { body_bytes: 104857600 }"), (400, 200));
    assert_eq!(limits("limits: { in_flight_bytes: 10485760 }"), (10, 8));
    assert_eq!(
        error("limits: { in_flight_bytes_per_tenant: 1000 }", &[]),
        "windlass.yaml:1: limits.in_flight_bytes_per_tenant: expected at least limits.body_bytes, which is 8388608, found \"1000\""
    );
}

#[test]
fn a_postgres_address_is_shown_as_host_and_port() {
    for (url, shown) in [
        ("postgres://me:hunter2@db.example.com/windlass", "PostgreSQL at db.example.com:5432"),
        ("postgres://me:hunter2@10.0.0.1:6543/windlass", "PostgreSQL at 10.0.0.1:6543"),
        ("postgres:///windlass?host=/run/pg&port=5433", "PostgreSQL at /run/pg/.s.PGSQL.5433"),
    ] {
        let config = good(&format!("store: {{ url: '{url}' }}"), &[]);
        assert_eq!(config.store.place(Path::new(".windlass")).to_string(), shown);
    }
}

#[test]
fn every_key_is_written_down() {
    let page = include_str!("../../../../docs/configuration.md");
    // As a whole code span, or as the beginning or end of a path.
    let is_there = |key: &str| [format!("`{key}`"), format!("`{key}."), format!(".{key}`")].iter().any(|word| page.contains(word));
    let missing: Vec<&str> = sections::ALL.iter().flat_map(|keys| keys.known).copied().filter(|key| !is_there(key)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// The owner of everything without `tenants`, if there are several tenants.
fn of_default() -> Tenants {
    Tenants::Only(["default".into()].into())
}

#[test]
fn a_full_file_gives_models_and_tools() {
    let config = good(FULL, &[("TOKEN", "s3cret-of-22-characters")]);
    let script = Provider::Scripted { script: Some("scripts/echo.yaml".into()) };
    assert_eq!(config.models[0], Model { provider: script, ..Model::offline() });
    let provider = Provider::Remote {
        protocol: Protocol::OpenAiChat,
        base_url: "http://127.0.0.1:18080/v1".into(),
        api_key: Some(Secret::new("none".into())),
        model: Some("4.10".into()),
    };
    assert_eq!(
        config.models[1],
        Model {
            name: "*".into(),
            provider,
            concurrency: 2,
            connect_timeout: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(90),
            prefill: true,
            context: Some(128_000),
            tenants: Tenants::All,
        }
    );
    let hosted = good("models: [{ name: a, provider: anthropic }, { name: a, provider: openai-responses, base_url: http://h }]", &[]);
    let places = hosted.models.iter().map(|model| match &model.provider {
        Provider::Remote { protocol, base_url, .. } => (*protocol, base_url.as_str()),
        Provider::Scripted { .. } => panic!("{model:?} is offline"),
    });
    let expected = [(Protocol::Anthropic, "https://api.anthropic.com"), (Protocol::OpenAiResponses, "http://h")];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    let count = json!({"type": "integer", "maximum": 5, "default": 1.5, "const": "1"});
    assert_eq!(
        config.tools[0],
        ExternalTool {
            name: "echo".into(),
            description: "gives the text back".into(),
            parameters: json!({"type": "object", "properties": {"count": count}, "additionalProperties": false}),
            effect: EffectClass::Read,
            after_execution: AfterExecution::Terminate,
            deadline: Duration::from_secs(30 * 24 * 60 * 60),
            retry: Some(CallRetries { max: 2, backoff_ms: 500 }),
            tenants: of_default(),
        }
    );
    assert_eq!(
        config.tools[1],
        ExternalTool {
            name: "pay".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            effect: EffectClass::Write,
            after_execution: AfterExecution::Suspend,
            deadline: Duration::from_secs(300),
            retry: None,
            tenants: of_default(),
        }
    );
    let price = Prices { input: 3_000_000, output: 15_250_000, cached: 300_000, cache_written: 3_000_000 };
    assert_eq!(config.prices, [("anything".to_owned(), price)].into());
}

#[test]
fn without_a_file_the_defaults_stand() {
    let config = Config::load(None, std::iter::empty()).unwrap();
    assert_eq!(config, good("", &[]));
    assert_eq!(config, good("server:\nstore: {}\nmodels: []\nlimits: null\n", &[]));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7600");
    assert!(!config.server.peers.behind_proxy);
    assert_eq!(config.server.drain, Duration::from_secs(10));
    assert_eq!(config.store.place(Path::new(".windlass")).to_string(), ".windlass/windlass.db");
    assert_eq!(config.auth.tokens, []);
    assert_eq!(config.models, [Model::offline()]);
    assert_eq!((config.tools.len(), config.agents.len()), (0, 0));
    assert_eq!((config.limits.max_turns, config.limits.call_deadline), (10, Duration::from_secs(600)));
}

#[test]
fn a_lease_is_no_shorter_than_a_pause() {
    assert_eq!(good("", &[]).limits.lease, Duration::from_secs(10));
    assert_eq!(good("limits: { lease: 500ms }", &[]).limits.lease, Duration::from_millis(500));
    let message = error("limits:\n  lease: 499ms\n", &[]);
    assert!(message.contains("limits.lease") && message.contains("at least 500ms"), "{message}");
}

#[test]
fn a_doorbell_has_an_address_and_a_prefix() {
    assert_eq!(good("", &[]).doorbell, None);
    assert_eq!(good("doorbell:\n", &[]).doorbell, None);
    let short = good("doorbell: { url: \"nats://127.0.0.1:4222\" }", &[]).doorbell.unwrap();
    assert_eq!((short.url.expose(), short.prefix.as_str()), ("nats://127.0.0.1:4222", "windlass"));
    let env =
        [("WINDLASS_DOORBELL__URL", "nats://ann:s3cret-of-22-characters@one,tls://two"), ("WINDLASS_DOORBELL__PREFIX", "acme.windlass")];
    let long = good("", &env).doorbell.unwrap();
    assert_eq!((long.url.expose(), long.prefix.as_str()), ("nats://ann:s3cret-of-22-characters@one,tls://two", "acme.windlass"));
    assert!(!format!("{long:?}").contains("s3cret-of-22-characters"));
    for wrong in [
        "{}",
        "x",
        "{ url: nats }",
        "{ url: \"nats://a,b\" }",
        "{ url: \"nats://a\", prefix: \"a..b\" }",
        "{ url: \"nats://a\", prefix: \"a b\" }",
    ] {
        read(&format!("doorbell: {wrong}"), &[]).unwrap_err();
    }
}

#[test]
fn a_named_file_is_read_and_must_exist() {
    let path = std::env::temp_dir().join(format!("windlass-config-{}.yaml", std::process::id()));
    let missing = Config::load(Some(&path), std::iter::empty()).unwrap_err().to_string();
    std::fs::write(&path, "\u{feff}server:\r\n  drain_s: 1\r\n").unwrap();
    let config = Config::load(Some(&path), std::iter::empty());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(config.unwrap().server.drain, Duration::from_secs(1));
    let expected = format!("{}: the configuration cannot be read: No such file or directory", path.display());
    assert!(missing.starts_with(&expected), "{missing}");
}

#[test]
fn the_option_listen_obeys_the_same_rule() {
    let mut server = Server::default();
    server.set_listen("[::1]:1").unwrap();
    assert_eq!(server.listen.to_string(), "[::1]:1");
    assert_eq!(
        server.set_listen("localhost:1").unwrap_err().to_string(),
        "--listen: expected an IP address with a port, such as 127.0.0.1:7600, found \"localhost:1\""
    );
    assert!(server.set_listen("[::]:1").unwrap_err().to_string().contains("server.behind_proxy: true"));
    server.peers.behind_proxy = true;
    server.set_listen("[::]:1").unwrap();
}

#[test]
fn mapped_loopback_addresses_are_loopback() {
    good("server: { listen: \"[::ffff:127.0.0.1]:0\" }", &[]);
    good("server: { listen: 127.8.8.8:1 }", &[]);
}

#[test]
fn secrets_are_never_printed() {
    let secrets = [("TOKEN", "t0ken-value-of-22-chars"), ("KEY", "k3y-value")];
    let config = good(FULL, &secrets);
    let shown = format!("{config:?} {config:#?}");
    assert!(!shown.contains("t0ken-value-of-22-chars") && !shown.contains("k3y-value"));
    let Provider::Remote { api_key: Some(key), .. } = &config.models[1].provider else { panic!("no key") };
    assert_eq!(key.expose(), "k3y-value");

    let config = good("store: { url: \"postgres://u:${TOKEN}@host/db\" }", &secrets);
    let shown = format!("{config:?} {}", config.store.place(Path::new(".windlass")));
    assert!(!shown.contains("t0ken-value-of-22-chars"), "{shown}");

    let wrong = [
        "server: { listen: \"${TOKEN}\" }",
        "server:\n  drain_s: ${TOKEN}",
        "server:\n  behind_proxy: ${TOKEN}",
        "server: \"${TOKEN}\"",
        "store: { url: \"postgres:u:${TOKEN}@host/db\" }",
        "store: { url: \"${TOKEN}\" }",
        "auth: { tokens: [t0ken-value-of-22-chars] }",
        "auth: { tokens: t0ken-value-of-22-chars }",
        "auth: { tokens: [{ token: [t0ken-value-of-22-chars] }] }",
        "auth: { tokens: [{ token: \"sha256:t0ken-value-of-22-chars\" }] }",
        "auth: { tokens: [{ token: t0ken-value-of-22-chars, scopes: [\"*\"] }, { token: t0ken-value-of-22-chars, scopes: [\"*\"] }] }",
        "auth: { tokens: [{ token: t0ken-value-of-22-chars, scopes: [ }] }",
        "auth: { tokens: [{ token: xxxxxxxxxxxxxxxxxxxxxx, tenant: \"${TOKEN}:\", scopes: [\"*\"] }] }",
        "auth: { tokens: [{ token: xxxxxxxxxxxxxxxxxxxxxx, scopes: [\"${TOKEN}\"] }] }",
        "models: [{ name: a, provider: openai-chat, base_url: \"http://u:t0ken-value-of-22-chars@host/\" }]",
        "models: [{ name: a, provider: openai-chat, base_url: \"${TOKEN}\" }]",
        "models: [{ name: a, provider: \"${TOKEN}\" }]",
        "doorbell: { url: \"http://${TOKEN}@host\" }",
        "doorbell: { url: \"nats://host\", prefix: \"${TOKEN}.\" }",
        "limits: { backoff: \"${TOKEN}\" }",
        "agents: { a: { model: \"${TOKEN}\" } }",
        "agents: { a: { tools: [\"${TOKEN}\"] } }",
        "tools: { mcp: [{ label: \"${TOKEN}:\", url: http://host }] }",
        "tools: { mcp: [{ label: a, url: \"${TOKEN}\" }] }",
        "tools: { mcp: [{ label: a, url: \"http://u:t0ken-value-of-22-chars@host/\" }] }",
        "tools: { mcp: [{ label: a, url: http://host, authorization: [t0ken-value-of-22-chars] }] }",
        "tools: { mcp: [{ label: a, url: http://host, authorization: \"t0ken-value-of-22-chars\\n1\" }] }",
        "tools: { mcp: [{ label: a, url: http://host, headers: [t0ken-value-of-22-chars] }] }",
        "tools: { mcp: [{ label: a, url: http://host, headers: { host: t0ken-value-of-22-chars } }] }",
        "tools: { mcp: [{ label: a, url: http://host, authorization: x, headers: { Authorization: t0ken-value-of-22-chars } }] }",
        "tools: { mcp: [{ label: a, command: t0ken-value-of-22-chars }] }",
        "tools: { mcp: [{ label: a, command: [{ b: t0ken-value-of-22-chars }] }] }",
        "tools: { mcp: [{ label: a, command: [b], env: [t0ken-value-of-22-chars] }] }",
        "egress: { allow: [\"${TOKEN}/\"] }",
    ];
    for text in wrong {
        let found = read(text, &secrets).unwrap_err();
        assert!(!format!("{found} {found:?}").contains("t0ken-value-of-22-chars"), "{found}");
    }
}

#[test]
fn tm_06_secrets_in_a_file_that_all_users_can_read_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.yaml");
    let text = r#"
store: { url: "postgres://windlass:hunter2@db/windlass" }
auth: { tokens: [ { token: "sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B", scopes: ["*"] },
                  { token: s3cret-of-22-characters, scopes: ["*"] }, { token: "${TOKEN}", scopes: ["*"] } ] }
models: [ { name: m, provider: openai-chat, base_url: "http://127.0.0.1/v1", api_key: sk-1 } ]
tools: { mcp: [ { label: t, url: "http://127.0.0.1/mcp", authorization: a, headers: { x-key: k, x-other: "${TOKEN}" } } ] }
"#;
    std::fs::write(&path, text).unwrap();
    let exposed = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let variables = [("TOKEN".to_owned(), "another-of-22-characters".to_owned())];
        Config::load(Some(&path), variables.into_iter()).unwrap().exposed_secrets
    };
    let all = ["store.url", "auth.tokens[1].token", "models[0].api_key", "tools.mcp[0].authorization", "tools.mcp[0].headers.x-key"];
    assert_eq!(exposed(0o644), all);
    assert!(exposed(0o600).is_empty() && exposed(0o640).is_empty());
}

#[test]
fn clients_on_this_machine_get_a_url_that_they_can_use() {
    let url =
        |more: &str, listen: &str| good(&format!("server: {{ hosts: [a.example], {more} }}"), &[]).server.url(listen.parse().unwrap());
    assert_eq!(url("behind_proxy: true", "0.0.0.0:7611"), "http://127.0.0.1:7611");
    assert_eq!(url("behind_proxy: true", "[::]:7611"), "http://[::1]:7611");
    assert_eq!(url("tls: { cert: c, key: k }", "10.0.0.1:7611"), "https://a.example:7611");
}
