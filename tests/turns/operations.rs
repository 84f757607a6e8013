//! The operator's view: refusals to start, a clean stop, and content that stays as it is.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, binary, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
agents:
  a: { tools: [echo] }
  b: { tools: [echo] }
limits: { sweep_interval: 20ms }
";

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_error_in_the_configuration_names_the_line_and_the_nearest_key() {
    let cases: [(&str, &[&str]); 8] = [
        ("agents:\n  a:\n    tols: []\n", &["windlass.yaml:3", "\"tols\"", "did you mean \"tools\""]),
        ("limits:\n  max_truns: 3\n", &["windlass.yaml:2", "max_truns", "did you mean \"max_turns\""]),
        ("sever: {}\n", &["windlass.yaml:1", "sever", "did you mean \"server\""]),
        ("limits:\n  workers: 0\n", &["windlass.yaml:2", "limits.workers", "at least 1"]),
        ("limits:\n\n  call_deadline: soon\n", &["windlass.yaml:3", "limits.call_deadline", "soon"]),
        ("models:\n  - { name: offline, provider: scriptd }\n", &["windlass.yaml:2", "scriptd", "scripted"]),
        ("agents:\n  a: { tools: [nothing] }\n", &["windlass.yaml:2", "tool"]),
        ("agents: [\n", &["windlass.yaml"]),
    ];
    for (config, wanted) in cases {
        let (status, stderr) = ServerBuilder::new(config).refuses();
        assert!(!status.success(), "{config}");
        for part in wanted {
            assert!(stderr.contains(part), "{config} should give {part:?}: {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_database_that_is_down_is_named_by_host_and_port_and_not_by_its_password() {
    // The listener is closed, so nothing answers at its address.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let (status, stderr) = ServerBuilder::new(&format!("store: {{ url: 'postgres://me:hunter2@{gone}/windlass' }}\n")).refuses();
    assert!(!status.success());
    assert!(stderr.contains(&format!("PostgreSQL at {gone}: the database cannot be reached")) && !stderr.contains("hunter2"), "{stderr}");
}

#[tokio::test]
async fn tm_20_a_server_without_the_seal_key_of_its_store_is_refused_at_the_start() {
    const KEYS: &str = "WINDLASS_SEAL_KEY";
    let (first, second) = ("a1".repeat(32), "b2".repeat(32));
    let both = format!("{second},{first}");
    let server = ServerBuilder::new(CONFIG).env(KEYS, &first).start().await;
    let run = server.enqueue("a", "hello").await;
    server.ended(&run).await;
    let refused = async |server: Server, keys: &str| {
        let (server, status) = server.restart_or_die(&[(KEYS, keys)]).await.err().expect("it is refused");
        assert!(!status.success());
        until("the reason is given", || async { server.log().contains("none of them opens what is sealed in it").then_some(()) }).await;
        assert!(!server.log().contains(keys), "{}", server.log());
        server
    };
    let server = refused(server, &second).await;
    // With the earlier key after the new one the server starts, and seals with the new one from then on.
    let server = server.restart(&[(KEYS, &both)]).await;
    server.ended(&run).await;
    let server = refused(server, &first).await;
    let server = server.restart(&[(KEYS, &second)]).await;
    // An operator who has lost the key for good can say so by deleting the canary.
    server.database().batch("DELETE FROM seal_canary");
    let server = server.restart(&[(KEYS, &first)]).await;
    assert_eq!(server.ended(&run).await["agent_turn_id"].as_str(), server.ended(&run).await["agent_turn_id"].as_str());
    let (status, stderr) = ServerBuilder::new(CONFIG).env(KEYS, "a1b2").refuses();
    assert!(!status.success() && stderr.contains(KEYS) && stderr.contains("64 hexadecimal digits"), "{stderr}");
}

#[test]
fn a_script_that_cannot_be_read_is_an_error_at_the_start() {
    let config = "models: [ { name: play, provider: scripted, script: nowhere.yaml } ]\n";
    let (status, stderr) = ServerBuilder::new(config).refuses();
    assert!(!status.success());
    assert!(stderr.contains("nowhere.yaml"), "{stderr}");
}

#[tokio::test]
async fn sigterm_lets_a_running_call_finish_and_leaves_the_rest_to_the_next_start() {
    let config = format!("{CONFIG}server: {{ drain_s: 2 }}\n");
    let mut server = ServerBuilder::new(&config).start().await;
    let finishing = server.enqueue("a", "wait 700, call echo").await;
    let endless = server.enqueue("b", "wait 60000").await;
    server.agent_is("a", "running").await;
    let epoch = server.agent_is("b", "running").await["turn_epoch"].as_u64();
    server.signal(Signal::TERM);
    let refused = until("new work is refused", || async {
        let answer = server.try_post("/v1/agents/a/enqueue", json!({ "input": "late" })).await?;
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(refused.await.code(), "draining");
    assert_eq!(server.gone().await.code(), Some(0));
    assert_eq!(server.number("SELECT count(*) FROM journal WHERE kind = 'replied'"), 1, "the call in flight was finished");
    assert_eq!(server.number("SELECT count(*) FROM calls WHERE status = 'waiting'"), 1);
    assert_eq!(server.number("SELECT count(*) FROM journal WHERE kind = 'ended'"), 0, "nothing was given up");
    let server = server.restart(&[]).await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    assert_eq!(server.ended(&finishing).await["iteration"], 2);
    assert!(!server.kinds(&finishing).await.contains(&"attempt_failed".to_owned()));
    let resumed = until("the other is taken up", || async {
        let head = server.get("/v1/agents/b").await.ok();
        (head["turn_epoch"].as_u64() > epoch).then_some(head)
    });
    let resumed = resumed.await;
    assert_eq!((&resumed["status"], &resumed["active_run_id"]), (&json!("running"), &json!(endless)));
    assert_eq!(server.run(&endless).await["iteration"], 1);
}

#[tokio::test]
async fn sigterm_with_nothing_to_do_ends_at_once_also_with_open_streams() {
    let mut server = ServerBuilder::new(CONFIG).start().await;
    let mut stream = server.events("a", None).await;
    let run = server.enqueue("a", "hello").await;
    stream.read_until(|event| event.event == "evt.agent.a.task" && event.data["agent_turn_id"] == run).await;
    let began = std::time::Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.gone().await.code(), Some(0));
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "it does not wait for readers");
}

#[tokio::test]
async fn tm_14_sighup_reloads_the_tokens_and_ends_nothing() {
    const FRESH: &str = "fresh-token-of-22-characters";
    let mut server = ServerBuilder::new(CONFIG).start().await;
    let mut stream = server.events("a", None).await;
    let path = server.folder().join("windlass.yaml");
    let config = std::fs::read_to_string(&path).expect("the configuration");
    std::fs::write(&path, config.replace(server.token(), FRESH)).expect("it can be written");
    server.signal(Signal::HUP);
    until("the log has the line", || async { server.log().contains("auth.tokens was reloaded").then_some(()) }).await;
    assert_eq!(server.get("/v1/agents/a").await.status, 401, "the old token is gone");
    server = server.with_token(FRESH);
    let run = server.enqueue("a", "hello").await;
    stream.read_until(|event| event.event == "evt.agent.a.task" && event.data["agent_turn_id"] == run).await;

    for broken in ["auth: { tokens: [ { token: short, scopes: ['*'] } ] }", "auth: [", "agents_open: true"] {
        std::fs::write(&path, broken).expect("it can be written");
        let errors = || server.log().matches("could not be reloaded").count();
        let before = errors();
        server.signal(Signal::HUP);
        until("the log has the line", || async { (errors() > before).then_some(()) }).await;
        assert_eq!(server.get("/v1/agents/a").await.status, 200, "the tokens stay as they are");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.gone().await.code(), Some(0));
}

#[tokio::test]
async fn tm_15_a_server_on_loopback_answers_no_other_host() {
    let server = ServerBuilder::new(&format!("{CONFIG}server: {{ hosts: [windlass.example] }}\n")).start().await;
    let status = async |path: &str, host: &str| server.send(server.request(Method::GET, path).header("host", host)).await;
    for host in ["localhost", "127.0.0.1:9", "[::1]:7600", "windlass.example"] {
        assert_eq!(status("/v1/models", host).await.status, 200, "{host}");
    }
    for path in ["/v1/agents/a", "/metrics"] {
        let refused = status(path, "rebound.example:7600").await;
        assert_eq!((refused.status, refused.code()), (421, "unknown_host"), "{path}");
    }
    assert_eq!(status("/healthz", "10.1.2.3").await.status, 200);
    let foreign = [("origin", "https://rebound.example")];
    assert!(server.try_socket(&foreign).await.is_err(), "a page of another server");
    assert!(server.try_socket(&[("origin", "http://localhost:3000")]).await.is_ok());
}

#[test]
fn an_address_other_machines_can_reach_is_refused_without_a_proxy() {
    let (status, stderr) = ServerBuilder::new("server: { listen: 0.0.0.0:7999 }\n").refuses();
    assert!(!status.success());
    assert!(stderr.contains("behind_proxy") && stderr.contains("windlass.yaml:1"), "{stderr}");
    let folder = ServerBuilder::new("");
    let out = Command::new(binary()).args(["serve", "--listen", "[::]:0"]).current_dir(folder.folder()).output().expect("the binary runs");
    assert!(!out.status.success());
    assert!(output_text(&out).contains("behind_proxy"), "{}", output_text(&out));
    assert!(!folder.folder().join(".windlass").exists(), "nothing was made");
}

#[tokio::test]
async fn a_token_is_made_for_its_owner_only_when_none_is_configured() {
    let server = ServerBuilder::new("auth: { tokens: [] }\n").start().await;
    let path = server.folder().join(".windlass/token");
    let mode = std::fs::metadata(&path).expect("the token file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&path).expect("the token");
    let token = token.trim().to_owned();
    assert!(token.len() >= 32, "long enough not to be guessed");
    assert!(!server.log().contains(&token), "it is not in the log");
    assert_eq!(server.get("/v1/agents/a").await.status, 401);
    let server = server.with_token(&token);
    let run = server.enqueue("a", "hello").await;
    assert_eq!(server.ended(&run).await["task_status"], "success");
    let server = server.restart(&[]).await;
    assert_eq!(std::fs::read_to_string(&path).expect("the token").trim(), token, "it stays the same");
    assert_eq!(server.get("/v1/agents/a").await.status, 200);
}

#[test]
fn an_unknown_crash_point_is_refused_and_so_is_any_behind_a_proxy() {
    for point in ["nowhere", "commit.suspend", "commit.suspend.before:0", "commit.suspend.before:x", ""] {
        let (status, stderr) = ServerBuilder::new(CONFIG).env("WINDLASS_CRASH_AT", point).refuses();
        assert!(!status.success(), "{point:?}");
        assert!(stderr.contains("crash-points"), "{point:?}: {stderr}");
    }
    let config = format!("{CONFIG}server: {{ behind_proxy: true }}\n");
    let (status, stderr) = ServerBuilder::new(&config).env("WINDLASS_CRASH_AT", "commit.suspend.before").refuses();
    assert!(!status.success());
    assert!(stderr.contains("behind_proxy"), "{stderr}");
}

#[tokio::test]
async fn health_needs_no_token_and_everything_else_does() {
    let server = ServerBuilder::new(CONFIG).start().await;
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/v1/agents/a", 401), ("/healthz/x", 401), ("/", 401)] {
        let answer = server.request(Method::GET, path).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{path}");
        assert!(answer.headers()["content-type"].to_str().is_ok_and(|kind| kind.starts_with("application/json")), "{path}");
    }
}

/// The raw body of an item's answer.
async fn raw_item(server: &Server, id: &Value) -> String {
    let path = format!("/v1/windlass/items/{}", id.as_str().expect("an id"));
    let answer = server.request(Method::GET, &path).bearer_auth("test-token-of-22-characters").send().await.expect("an answer");
    answer.text().await.expect("UTF-8")
}

#[tokio::test]
async fn content_survives_byte_for_byte_from_report_to_item_and_over_a_kill() {
    let megabyte = format!(r#""{}""#, "äx😀".repeat(150_000));
    let results = [
        r#""a\u0000b""#,
        r#""\ud800""#,
        r#"{"\udfff\ud800": "\u0000", "a":1,  "a" : 2}"#,
        "123456789012345678901234567890.00000000000000000001",
        "1e400",
        "[1.0, -0.0, 1E+2]",
        r#"  {"spaces" :	"kept"  }  "#,
        r#""</script>  ﻿""#,
        &megabyte,
        "null",
        r#""""#,
    ];
    let mut server = ServerBuilder::new(CONFIG).start().await;
    let mut items = Vec::new();
    for result in results {
        let run = server.enqueue("a", "call echo").await;
        let call = server.claim("echo").await;
        let id = call["tool_call_id"].as_str().expect("an id");
        let body = format!(r#"{{"agent_turn_id":"{run}","tool_call_id":"{id}","status":"success","result":{result}}}"#);
        let answer = server.post_bytes("/v1/agents/a/report", body.into_bytes()).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        assert_eq!(server.ended(&run).await["task_status"], "success");
        items.push(server.calls(&run).await[0]["result_item_id"].clone());
    }
    for restarted in [false, true] {
        if restarted {
            server = server.restart(&[]).await;
        }
        for (item, result) in items.iter().zip(results) {
            let kept = format!(r#""result":{}}}"#, result.trim());
            let answer = raw_item(&server, item).await;
            let shown: String = answer.chars().take(300).collect();
            assert!(answer.contains(&kept), "{shown}");
        }
    }
}

#[tokio::test]
async fn odd_content_reaches_the_model_and_its_answer_reaches_the_deliverable() {
    let model = FakeModel::start(vec![Scene::Call(vec![("echo", json!({ "text": "ä\u{0}😀" }))]), Scene::Say("nul\u{0} and 😀")]).await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await;
    let run = server.enqueue_body("a", json!({ "input": "nul\u{0} \u{2028}" })).await;
    let call = server.claim("echo").await;
    assert_eq!(call["arguments"]["text"], "ä\u{0}😀");
    server.report(&call, json!("back\u{0}")).await.ok();
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "nul\u{0} and 😀");
    let asked = model.asked();
    assert_eq!(asked[0]["messages"][0]["content"], "nul\u{0} \u{2028}");
    assert_eq!(asked[1]["messages"].as_array().and_then(|all| all.last()).map(|last| &last["content"]), Some(&json!("back\u{0}")));
}
