//! Callers share one session; it is reopened when it is lost, and closed when it is unused.

use std::time::Duration;

use serde_json::json;
use windlass_kernel::{TaskStatus, Tenant};
use windlass_ports::{ServerError, ToolServers};
use windlass_tests::{McpManners, McpServer, until};
use windlass_tools::Limits;

use crate::{acme, config, configured, declare, run, servers, tools, within};

#[tokio::test]
async fn five_at_once_open_one_session_and_ask_for_the_tools_once() {
    let server = McpServer::with(McpManners { open_ms: 100, list_ms: 100, ..McpManners::default() }).await;
    let servers = configured(&server);
    let users = (0..5).map(|index| {
        let servers = servers.clone();
        tokio::spawn(async move {
            assert_eq!(servers.list(&acme(), &tools()).await.expect("it lists").len(), McpServer::TOOLS);
            run(&servers, &tools(), "add", json!({ "a": index, "b": 1 })).await
        })
    });
    for (index, user) in users.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(user.await.expect("it ends"), (TaskStatus::Success, json!((index + 1).to_string())));
    }
    assert_eq!((server.sessions(), server.lists(), server.starts("add").len()), (1, 1, 5));
}

#[tokio::test]
async fn calls_of_one_session_run_side_by_side() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let servers = servers.clone();
            tokio::spawn(async move { run(&servers, &tools(), "sleep_ms", json!({ "ms": 1_500 })).await })
        })
        .collect();
    server.runs("sleep_ms", 40).await;
    for call in calls {
        assert_eq!(call.await.expect("it ends").0, TaskStatus::Success);
    }
    assert_eq!(server.sessions(), 1);
}

#[tokio::test]
async fn a_forgotten_session_is_reopened_and_the_call_runs_once() {
    for loses_badly in [false, true] {
        let server = McpServer::with(McpManners { loses_badly, ..McpManners::default() }).await;
        let servers = configured(&server);
        assert_eq!(run(&servers, &tools(), "echo", json!({ "text": "1" })).await.1, "1");
        server.forget_sessions();
        assert_eq!(run(&servers, &tools(), "write_note", json!({ "text": "2" })).await.1, "written");
        assert_eq!((server.sessions(), server.starts("write_note").len()), (2, 1), "badly: {loses_badly}");
    }
}

#[tokio::test]
async fn a_list_is_asked_for_again_when_it_is_old_or_has_changed() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let count = || async { servers.list(&acme(), &tools()).await.expect("it lists").len() };
    assert_eq!((count().await, count().await, server.lists()), (McpServer::TOOLS, McpServer::TOOLS, 1));
    server.behave(|manners| manners.more_tools = 1);
    server.announce().await;
    until("the new list is asked for", || async { (count().await == McpServer::TOOLS + 1).then_some(()) }).await;
    assert_eq!(server.lists(), 2);

    let aged = within(&server, Limits { list_age: Duration::from_millis(1), ..Limits::default() });
    for _ in 0..2 {
        aged.list(&acme(), &tools()).await.expect("it lists");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.lists(), 4);
}

#[tokio::test]
async fn an_idle_session_is_closed_and_a_busy_one_is_not() {
    let server = McpServer::start().await;
    let servers = within(&server, Limits { idle: Duration::from_millis(200), ..Limits::default() });
    let (status, _) = run(&servers, &tools(), "sleep_ms", json!({ "ms": 800 })).await;
    assert_eq!((status, server.sessions()), (TaskStatus::Success, 1));
    until("the session is closed", || async { (server.open_sessions() == 0 && servers.sessions() == 0).then_some(()) }).await;
    assert_eq!(run(&servers, &tools(), "add", json!({ "a": 1, "b": 1 })).await.1, "2");
    assert_eq!(server.sessions(), 2);
}

#[tokio::test]
async fn closing_notifies_the_servers() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    servers.list(&acme(), &tools()).await.expect("it lists");
    assert_eq!((server.open_sessions(), servers.sessions()), (1, 1));
    servers.close().await;
    assert_eq!((server.open_sessions(), servers.sessions()), (0, 0));
}

#[tokio::test]
async fn tenants_and_credentials_do_not_share_sessions() {
    let server = McpServer::start().await;
    let servers = servers(vec![config(&server)], &["127.0.0.1"], Limits::default());
    let other = Tenant::from("other");
    for (tenant, headers, sessions) in [
        (acme(), vec![("x-key", "one")], 1),
        (acme(), vec![("X-Key", "one")], 1),
        (acme(), vec![("x-key", "two")], 2),
        (other, vec![("x-key", "one")], 3),
        (acme(), vec![], 4),
    ] {
        let declared = declare(&servers, &tenant, &server.url, &headers);
        servers.list(&tenant, &declared).await.expect("it lists");
        assert_eq!(server.sessions(), sessions, "{tenant} {headers:?}");
    }
    servers.list(&acme(), &tools()).await.expect("it lists");
    assert_eq!((server.sessions(), servers.sessions()), (5, 5));
}

#[tokio::test]
async fn those_who_wait_for_a_dead_server_share_its_failure() {
    let server = McpServer::with(McpManners { open_ms: 60_000, ..McpManners::default() }).await;
    let servers = within(&server, Limits { connect: Duration::from_millis(500), ..Limits::default() });
    let began = std::time::Instant::now();
    let waiting = (0..8).map(|_| {
        let servers = servers.clone();
        tokio::spawn(async move { servers.list(&acme(), &tools()).await })
    });
    for waiting in waiting.collect::<Vec<_>>() {
        let failed = waiting.await.expect("it ends").expect_err("it never opens");
        let why = format!("it did not open a session within 500ms; its address is {}", server.url);
        assert_eq!(failed, ServerError::Failed { label: "tools".into(), why });
    }
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
}
