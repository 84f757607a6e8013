//! Listing and calling tools.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use windlass_kernel::{EffectClass, TaskStatus};
use windlass_ports::{OfferedTool, ServerError, ToolServers};
use windlass_tests::{McpManners, McpServer, McpStart, until};
use windlass_tools::{Limits, ServerConfig};

use crate::{a_call, acme, config, configured, read, run, servers, tools};

#[tokio::test]
async fn tools_are_listed_with_their_known_fields() {
    let server = McpServer::start().await;
    let offered = configured(&server).list(&acme(), &tools()).await.expect("it lists");
    assert_eq!(offered.len(), McpServer::TOOLS);
    assert_eq!(
        offered[0],
        OfferedTool {
            name: "echo".into(),
            description: "gives the text back".into(),
            parameters: json!({ "type": "object" }),
            annotations: Some(json!({ "readOnlyHint": true })),
            effect: EffectClass::Read,
            retry: None,
        }
    );
    let effect = |name: &str| offered.iter().find(|tool| tool.name == name).map(|tool| tool.effect);
    assert_eq!(effect("write_note"), Some(EffectClass::Write));
    assert_eq!(effect("put_note"), Some(EffectClass::Idempotent));
    assert_eq!(effect("table"), Some(EffectClass::Write), "it has no annotations");
}

#[tokio::test]
async fn the_configuration_knows_better_than_the_server() {
    let server = McpServer::start().await;
    let effects = BTreeMap::from([("echo".to_owned(), EffectClass::Write), ("write_note".to_owned(), EffectClass::Idempotent)]);
    let servers = servers(vec![ServerConfig { effects, ..config(&server) }], &[], Limits::default());
    let offered = servers.list(&acme(), &tools()).await.expect("it lists");
    let effect = |name: &str| offered.iter().find(|tool| tool.name == name).map(|tool| tool.effect);
    assert_eq!((effect("echo"), effect("write_note")), (Some(EffectClass::Write), Some(EffectClass::Idempotent)));
    assert_eq!(effect("add"), Some(EffectClass::Read));
}

#[tokio::test]
async fn a_list_in_pages_is_read_to_its_end() {
    let server = McpServer::with(McpManners { page: Some(3), more_tools: 20, ..McpManners::default() }).await;
    let offered = configured(&server).list(&acme(), &tools()).await.expect("it lists");
    assert_eq!((offered.len(), server.lists()), (McpServer::TOOLS + 20, (McpServer::TOOLS + 20).div_ceil(3)));
}

#[tokio::test]
async fn answers_become_results_as_json_and_as_a_stream() {
    for streams in [false, true] {
        let server = McpServer::with(McpManners { streams, ..McpManners::default() }).await;
        let servers = configured(&server);
        for (tool, arguments, expected) in [
            ("echo", json!({ "text": "héllo\n\"you\"" }), (TaskStatus::Success, json!("héllo\n\"you\""))),
            ("add", json!({ "a": 40, "b": 2 }), (TaskStatus::Success, json!("42"))),
            ("sleep_ms", json!(null), (TaskStatus::Success, json!("slept"))),
            ("fail", json!({}), (TaskStatus::Failed, json!("it did not work"))),
            ("table", json!({}), (TaskStatus::Success, json!({ "rows": 2 }))),
        ] {
            assert_eq!(run(&servers, &tools(), tool, arguments).await, expected, "{tool}, streams: {streams}");
        }
        let (status, parts) = run(&servers, &tools(), "parts", json!({})).await;
        assert_eq!((status, &parts[0]["text"], &parts[1]["mimeType"]), (TaskStatus::Success, &json!("look"), &json!("image/png")));
        assert_eq!(server.sessions(), 1);
    }
}

#[tokio::test]
async fn a_call_carries_its_key_on_every_start() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let arguments = json!({ "text": "once", "deep": { "list": [1, 2.5, null] } });
    for _ in 0..2 {
        assert_eq!(run(&servers, &tools(), "write_note", arguments.clone()).await, (TaskStatus::Success, json!("written")));
    }
    let key = a_call(&Value::Null, Duration::ZERO).key.to_string();
    let start = McpStart { tool: "write_note".into(), arguments, call_id: Some(key) };
    assert_eq!(server.starts("write_note"), [start.clone(), start]);
}

#[tokio::test]
async fn an_unknown_tool_and_bad_arguments_are_reported_to_the_model() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let (status, why) = run(&servers, &tools(), "nothing", json!({})).await;
    assert_eq!(status, TaskStatus::Failed);
    assert!(why.as_str().is_some_and(|why| why.contains("there is no tool nothing")), "{why}");
    for arguments in [json!([1]), json!("text"), json!(7)] {
        let (status, why) = run(&servers, &tools(), "echo", arguments).await;
        assert_eq!((status, why), (TaskStatus::Failed, json!("the arguments must be a JSON object")));
    }
    assert_eq!(server.starts("echo"), []);
}

#[tokio::test]
async fn a_label_that_is_not_configured_is_unknown() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let other = windlass_kernel::ToolServer { label: "other".into(), ..tools() };
    let tenant = "t".into();
    assert!(servers.is_configured(&tenant, "tools") && !servers.is_configured(&tenant, "other"));
    assert_eq!(servers.list(&acme(), &other).await, Err(ServerError::Unknown("other".into())));
    let (status, why) = run(&servers, &other, "echo", json!({})).await;
    assert_eq!((status, why), (TaskStatus::Failed, json!("there is no configured tool server \"other\"")));
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_at_its_deadline() {
    for streams in [false, true] {
        let server = McpServer::with(McpManners { streams, ..McpManners::default() }).await;
        let servers = configured(&server);
        let began = std::time::Instant::now();
        let report = servers.run(&tools(), "sleep_ms", a_call(&json!({ "ms": 60_000 }), Duration::from_millis(300))).await;
        let (status, why) = read(&report);
        assert_eq!(status, TaskStatus::Failed);
        assert!(why.as_str().is_some_and(|why| why.contains("did not answer in time")), "{why}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        until("the server hears of it", || async { (server.cancelled() == 1).then_some(()) }).await;
        server.runs("sleep_ms", 0).await;
        assert_eq!(run(&servers, &tools(), "add", json!({ "a": 1, "b": 1 })).await.1, "2", "the session is still good");
        assert_eq!(server.sessions(), 1);
    }
}

#[tokio::test]
async fn a_deadline_in_the_past_starts_nothing() {
    let server = McpServer::start().await;
    let mut call = a_call(&json!({}), Duration::ZERO);
    call.deadline = windlass_kernel::Timestamp(0);
    assert_eq!(configured(&server).run(&tools(), "write_note", call).await.status, TaskStatus::Failed);
    assert_eq!(server.starts("write_note"), []);
}

#[tokio::test]
async fn dropping_a_call_calls_it_off() {
    let server = McpServer::start().await;
    let servers = configured(&server);
    let call = {
        let servers = servers.clone();
        tokio::spawn(async move { run(&servers, &tools(), "sleep_ms", json!({ "ms": 60_000 })).await })
    };
    server.runs("sleep_ms", 1).await;
    call.abort();
    server.runs("sleep_ms", 0).await;
    until("the server is notified", || async { (server.cancelled() == 1).then_some(()) }).await;
}

#[tokio::test]
async fn a_server_that_only_speaks_the_newest_protocol_is_understood() {
    let server = McpServer::with(McpManners { only_newest: true, announces: false, ..McpManners::default() }).await;
    let servers = configured(&server);
    assert_eq!(servers.list(&acme(), &tools()).await.expect("it lists").len(), McpServer::TOOLS);
    assert_eq!(run(&servers, &tools(), "echo", json!({ "text": "new" })).await, (TaskStatus::Success, json!("new")));
    assert_eq!(server.sessions(), 0);
}
