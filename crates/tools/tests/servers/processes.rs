//! Servers that are child processes.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use windlass_kernel::TaskStatus;
use windlass_ports::ToolServers;
use windlass_tests::until;
use windlass_tools::{Limits, ServerConfig, Servers};

use crate::{a_call, acme, read, run, servers, tools};

/// A server in a few lines of shell: it answers requests in order, and writes its process id and that of its child to files.
const SCRIPT: &str = r#"
sleep 1000 2>/dev/null & echo "$$ $!" >> "$1/started"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { answer '{"content":[{"type":"text","text":"'"$1"'"}]}'; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"show","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}' ;;
    *'"name":"show"'*) text "${SHOWN:-nothing} ${CARGO_MANIFEST_DIR:-nothing}" ;;
    *'"name":"key"'*) text "$(printf '%s' "$line" | sed -n 's/.*"windlass\/call_id":"\([^"]*\)".*/\1/p')" ;;
    *'"name":"big"'*) text "$(head -c 200000 /dev/zero | tr '\0' x)" ;;
    *'"name":"die"'*) exit 1 ;;
    *'"notifications/cancelled"'*) echo cancelled >> "$1/cancelled" ;;
  esac
done
"#;

fn started(folder: &Path) -> Vec<Vec<u32>> {
    let text = fs::read_to_string(folder.join("started")).unwrap_or_default();
    text.lines().map(|line| line.split(' ').filter_map(|id| id.parse().ok()).collect()).collect()
}

/// Whether the process runs. A zombie does not.
fn lives(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn process(folder: &Path, limits: Limits) -> Arc<Servers> {
    let command = ["sh", "-c", SCRIPT, "sh", &folder.display().to_string()].map(str::to_owned).to_vec();
    let environment = BTreeMap::from([("SHOWN".to_owned(), "s3cret".to_owned())]);
    let config = ServerConfig { label: "tools".into(), command, environment, ..ServerConfig::default() };
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    servers(vec![config], &[], limits)
}

#[tokio::test]
async fn a_process_is_started_once_and_ends_with_all_it_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = process(folder.path(), Limits::default());
    let (tenant, place) = (acme(), tools());
    let (one, other) = tokio::join!(servers.list(&tenant, &place), servers.list(&tenant, &place));
    assert_eq!((one.expect("it lists").len(), other.expect("it lists")[0].name.as_str()), (1, "show"));
    let key = a_call(&Value::Null, Duration::ZERO).key.to_string();
    assert_eq!(run(&servers, &tools(), "key", json!({})).await, (TaskStatus::Success, json!(key)));
    // The process gets its configured variable, and none of ours: Cargo has set the other one for this test.
    assert_eq!(run(&servers, &tools(), "show", json!({})).await.1, "s3cret nothing");
    let started = started(folder.path());
    assert!(started.len() == 1 && started[0].len() == 2 && started[0].iter().all(|id| lives(*id)), "{started:?}");
    servers.close().await;
    assert!(!started[0].iter().any(|id| lives(*id)), "{started:?}");
}

#[tokio::test]
async fn a_process_that_died_is_restarted_and_an_idle_one_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = process(folder.path(), Limits { idle: Duration::from_secs(1), ..Limits::default() });
    let (status, why) = run(&servers, &tools(), "die", json!({})).await;
    assert_eq!(status, TaskStatus::Failed);
    assert!(why.as_str().is_some_and(|why| why.contains("may have had its effect")), "{why}");
    assert_eq!(run(&servers, &tools(), "show", json!({})).await.0, TaskStatus::Success);
    assert_eq!(started(folder.path()).len(), 2);
    until("all of them end", || async { (!started(folder.path()).concat().into_iter().any(lives)).then_some(()) }).await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_not_kept_and_the_call_ends_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = process(folder.path(), Limits { answer_bytes_max: 100_000, ..Limits::default() });
    let (status, _) = read(&servers.run(&tools(), "big", a_call(&json!({}), Duration::from_secs(2))).await);
    assert_eq!(status, TaskStatus::Failed);
    until("it is called off", || async { folder.path().join("cancelled").exists().then_some(()) }).await;
    assert_eq!(run(&servers, &tools(), "show", json!({})).await.0, TaskStatus::Success, "the session is still good");
    servers.close().await;
}

/// The error with which listing the tools of this shell script fails.
async fn failure_of(script: &str, limits: Limits) -> String {
    let environment = BTreeMap::from([("API_KEY".to_owned(), "s3cret".to_owned())]);
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let config = ServerConfig { label: "tools".into(), command, environment, ..ServerConfig::default() };
    servers(vec![config], &[], limits).list(&acme(), &tools()).await.expect_err("it lists nothing").to_string()
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let config = ServerConfig { label: "tools".into(), command: vec!["/nowhere/tool".into()], ..ServerConfig::default() };
    let failed = servers(vec![config], &[], Limits::default()).list(&acme(), &tools()).await.expect_err("it is not there");
    let expected = r#"its program "/nowhere/tool" cannot be started: No such file or directory (os error 2); check its `command`"#;
    assert!(failed.to_string().ends_with(expected), "{failed}");
}

#[tokio::test]
async fn a_program_that_exits_is_quoted_without_its_secrets() {
    let failed = failure_of("echo one >&2; echo \"bad key $API_KEY\" >&2; exit 3", Limits::default()).await;
    let expected = r#"its program "sh" exited with status 3; its stderr ends with "one | bad key [hidden]""#;
    assert!(failed.ends_with(expected), "{failed}");
    let failed = failure_of("kill -9 $$", Limits::default()).await;
    assert!(failed.ends_with(r#"its program "sh" was ended by signal 9"#), "{failed}");
}

#[tokio::test]
async fn a_program_that_prints_something_else_than_json_is_quoted() {
    let failed = failure_of("exec 0<&-; echo 'Usage: tool [options]'; echo more", Limits::default()).await;
    let expected = r#"exited with status 0; its stdout begins with "Usage: tool [options]", which is not JSON"#;
    assert!(failed.ends_with(expected), "{failed}");
    let limits = Limits { connect: Duration::from_millis(500), ..Limits::default() };
    let failed = failure_of("echo Welcome; exec sleep 100", limits).await;
    let expected = r#"within 500ms; its program "sh" still runs; its stdout begins with "Welcome", which is not JSON"#;
    assert!(failed.ends_with(expected), "{failed}");
}

#[tokio::test]
async fn a_call_that_loses_its_program_says_how_it_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = process(folder.path(), Limits::default());
    let (status, why) = run(&servers, &tools(), "die", json!({})).await;
    assert_eq!(status, TaskStatus::Failed);
    assert!(why.as_str().is_some_and(|why| why.ends_with(r#"its program "sh" exited with status 1"#)), "{why}");
}
