//! Isolation of tenants: none can read what another sent to a server, and none takes another's share of the limits.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use windlass_kernel::{TaskStatus, Tenant, ToolServer};
use windlass_ports::{ServerError, ToolServers};
use windlass_tests::{McpServer, until};
use windlass_tools::{Limits, ServerConfig, Servers};

use crate::{PATIENT, acme, call_of, config, declare, read, run, servers, tools};

/// A server that remembers one text for as long as its process lives.
const SCRIPT: &str = r#"
kept=nothing
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { answer '{"content":[{"type":"text","text":"'"$1"'"}]}'; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"keep","inputSchema":{"type":"object"}},{"name":"recall","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"keep"'*) kept=$(printf '%s' "$line" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p'); text kept ;;
    *'"name":"recall"'*) text "$kept" ;;
    *'"name":"wait"'*) sleep 30 ;;
  esac
done
"#;

fn process(label: &str) -> ServerConfig {
    let command = ["sh", "-c", SCRIPT].map(str::to_owned).to_vec();
    ServerConfig { label: label.into(), command, ..ServerConfig::default() }
}

fn other() -> Tenant {
    Tenant::from("other")
}

async fn run_as(servers: &Servers, tenant: &Tenant, tool: &str, arguments: Value) -> Value {
    let (status, value) = read(&servers.run(&tools(), tool, call_of(tenant, &arguments, PATIENT)).await);
    assert_eq!(status, TaskStatus::Success, "{value}");
    value
}

#[tokio::test]
async fn tm_02_tenants_do_not_share_the_process_of_a_configured_server() {
    let servers = servers(vec![process("tools")], &[], Limits::default());
    for tenant in [acme(), other()] {
        assert_eq!(servers.list(&tenant, &tools()).await.expect("it lists").len(), 2);
    }
    assert_eq!(run_as(&servers, &acme(), "keep", json!({ "text": "of acme" })).await, "kept");
    assert_eq!(run_as(&servers, &acme(), "recall", json!({})).await, "of acme");
    assert_eq!(run_as(&servers, &other(), "recall", json!({})).await, "nothing");
    assert_eq!(run_as(&servers, &other(), "keep", json!({ "text": "of other" })).await, "kept");
    assert_eq!(run_as(&servers, &acme(), "recall", json!({})).await, "of acme");
    assert_eq!(servers.sessions(), 2);
    servers.close().await;
}

#[tokio::test]
async fn a_process_that_the_operator_calls_stateless_is_shared() {
    let servers = servers(vec![ServerConfig { shared: true, ..process("tools") }], &[], Limits::default());
    assert_eq!(run_as(&servers, &acme(), "keep", json!({ "text": "of acme" })).await, "kept");
    assert_eq!(run_as(&servers, &other(), "recall", json!({})).await, "of acme");
    assert_eq!(servers.sessions(), 1);
    servers.close().await;
}

#[tokio::test]
async fn tm_02_tenants_do_not_share_the_session_of_a_configured_server() {
    for (shared, sessions) in [(false, 2), (true, 1)] {
        let server = McpServer::start().await;
        let servers = servers(vec![ServerConfig { shared, ..config(&server) }], &[], Limits::default());
        for tenant in [acme(), other(), acme()] {
            servers.list(&tenant, &tools()).await.expect("it lists");
            assert_eq!(run_as(&servers, &tenant, "echo", json!({ "text": "hi" })).await, "hi");
        }
        assert_eq!((server.sessions(), servers.sessions()), (sessions, sessions), "shared: {shared}");
    }
}

#[tokio::test]
async fn tm_02_processes_are_bounded_and_no_tenant_ends_anothers() {
    let limits = Limits { processes_max: 2, ..Limits::default() };
    let servers = servers(vec![process("tools"), process("more")], &[], limits);
    let more = ToolServer { label: "more".into(), ..tools() };
    run_as(&servers, &acme(), "keep", json!({ "text": "of acme" })).await;
    servers.list(&other(), &tools()).await.expect("it lists");
    let third = Tenant::from("third");
    let full = servers.list(&third, &tools()).await.expect_err("two are there, both of other tenants");
    assert!(matches!(&full, ServerError::Busy(why) if why.contains("try again")), "{full}");
    assert_eq!(run_as(&servers, &acme(), "recall", json!({})).await, "of acme", "it was not ended");
    servers.list(&other(), &more).await.expect("a tenant makes room for itself");
    assert_eq!((servers.sessions(), run_as(&servers, &acme(), "recall", json!({})).await), (2, json!("of acme")));
    // A process in use is not ended for another caller.
    let busy = {
        let servers = Arc::clone(&servers);
        tokio::spawn(async move { servers.run(&more, "wait", call_of(&other(), &json!({}), PATIENT)).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let full = servers.list(&other(), &tools()).await.expect_err("its only process is in use");
    assert!(matches!(full, ServerError::Busy(_)), "{full}");
    busy.abort();
    servers.close().await;
}

#[tokio::test]
async fn tm_02_an_idle_process_makes_room_for_another_tenant() {
    let limits = Limits { processes_max: 1, idle: Duration::from_millis(400), ..Limits::default() };
    let servers = servers(vec![process("tools")], &[], limits);
    servers.list(&acme(), &tools()).await.expect("it lists");
    assert!(matches!(servers.list(&other(), &tools()).await, Err(ServerError::Busy(_))));
    until("it has ended", || async { servers.list(&other(), &tools()).await.ok() }).await;
    servers.close().await;
}

#[tokio::test]
async fn tm_10_declared_sessions_are_bounded_and_the_longest_unused_one_makes_room() {
    let server = McpServer::start().await;
    let servers = servers(vec![config(&server)], &["127.0.0.1"], Limits { declared_sessions_per_tenant_max: 2, ..Limits::default() });
    let mine = |key: &str| declare(&servers, &acme(), &server.url, &[("x-key", key)]);
    for key in ["one", "two", "three", "two"] {
        servers.list(&acme(), &mine(key)).await.expect("it lists");
    }
    assert_eq!((server.sessions(), servers.sessions()), (3, 2));
    until("the one that made room is closed", || async { (server.open_sessions() == 2).then_some(()) }).await;

    let busy = ["two", "three"].map(|key| {
        let (servers, declared) = (Arc::clone(&servers), mine(key));
        tokio::spawn(async move { run(&servers, &declared, "sleep_ms", json!({ "ms": 60_000 })).await })
    });
    server.runs("sleep_ms", 2).await;
    let full = servers.list(&acme(), &mine("four")).await.expect_err("both are busy");
    assert!(matches!(&full, ServerError::Busy(why) if why.contains("too many tool servers of this tenant")), "{full}");
    servers.list(&acme(), &tools()).await.expect("a configured one is always welcome");
    busy.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn tm_10_no_tenant_takes_the_places_of_another() {
    let server = McpServer::start().await;
    let limits = Limits { declared_sessions_max: 3, declared_sessions_per_tenant_max: 2, ..Limits::default() };
    let servers = servers(vec![], &["127.0.0.1"], limits);
    let list = async |tenant: &Tenant, key: &str| servers.list(tenant, &declare(&servers, tenant, &server.url, &[("x-key", key)])).await;
    for key in ["one", "two", "three", "four"] {
        list(&acme(), key).await.expect("a tenant makes room for itself");
    }
    assert_eq!(servers.sessions(), 2, "and has no more places than its own");
    list(&other(), "one").await.expect("another has its own");
    let third = Tenant::from("third");
    let full = list(&third, "one").await.expect_err("all places are taken, none by it");
    assert!(matches!(&full, ServerError::Busy(why) if why.contains("of all tenants together")), "{full}");
    let opened = server.sessions();
    for (tenant, key) in [(acme(), "three"), (acme(), "four"), (other(), "one")] {
        list(&tenant, key).await.expect("it lists");
    }
    assert_eq!(server.sessions(), opened, "no session was ended for another tenant");
    list(&other(), "two").await.expect("it makes room for itself even where all is full");
    assert_eq!(servers.sessions(), 3);
}

#[tokio::test]
async fn tm_10_idle_sessions_give_their_places_back() {
    let limits = Limits::default();
    let stated = (limits.declared_sessions_max, limits.declared_sessions_per_tenant_max, limits.idle);
    assert_eq!(stated, (1_024, 64, Duration::from_secs(300)));
    let server = McpServer::start().await;
    let limits = Limits { declared_sessions_max: 1, idle: Duration::from_millis(300), ..limits };
    let servers = servers(vec![], &["127.0.0.1"], limits);
    servers.list(&acme(), &declare(&servers, &acme(), &server.url, &[])).await.expect("it lists");
    let others = declare(&servers, &other(), &server.url, &[]);
    assert!(matches!(servers.list(&other(), &others).await, Err(ServerError::Busy(_))));
    until("the place is free", || async { servers.list(&other(), &others).await.ok() }).await;
}
