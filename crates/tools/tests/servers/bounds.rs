//! Servers that send too much, send for too long, or send nothing useful.

use std::time::{Duration, Instant};

use axum::{Router, body::Body, routing::any};
use serde_json::{Value, json};
use windlass_kernel::TaskStatus;
use windlass_ports::{ServerError, ToolServers};
use windlass_tests::{McpManners, McpServer};
use windlass_tools::{Limits, ServerConfig};

use crate::{a_call, acme, configured, declare, read, run, servers, tools, within};

/// The peak memory of this process so far.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has a peak");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_cut_off() {
    for streams in [false, true] {
        let server = McpServer::with(McpManners { streams, ..McpManners::default() }).await;
        let servers = configured(&server);
        let before = peak_bytes();
        let (status, why) = run(&servers, &tools(), "big", json!({ "bytes": 5 << 20 })).await;
        assert_eq!(status, TaskStatus::Failed);
        assert!(why.as_str().is_some_and(|why| why.contains("larger than 4194304 bytes")), "{why}");
        // The bound includes the test's own server, which builds the text several times.
        assert!(peak_bytes() - before < 200 << 20, "streams: {streams}");
        let (status, text) = run(&servers, &tools(), "big", json!({ "bytes": 3 << 20 })).await;
        assert_eq!((status, text.as_str().map(str::len)), (TaskStatus::Success, Some(3 << 20)));
    }
}

#[tokio::test]
async fn a_stream_without_an_end_is_cut_off() {
    let server = McpServer::start().await;
    let servers = servers(vec![crate::config(&server)], &["127.0.0.1"], Limits::default());
    for place in [tools(), declare(&servers, &acme(), &server.url, &[])] {
        let (before, began) = (peak_bytes(), Instant::now());
        let (status, why) = run(&servers, &place, "endless", json!({})).await;
        assert_eq!(status, TaskStatus::Failed);
        assert!(why.as_str().is_some_and(|why| why.contains("larger than 4194304 bytes")), "{why}");
        assert!(peak_bytes() - before < 100 << 20 && began.elapsed() < Duration::from_secs(15));
        server.runs("endless", 0).await;
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_is_refused() {
    let server = McpServer::with(McpManners { page: Some(100), more_tools: 1_000, ..McpManners::default() }).await;
    let why = |error: ServerError| if let ServerError::Failed { why, .. } = error { why } else { error.to_string() };
    let failed = configured(&server).list(&acme(), &tools()).await.expect_err("they are too many");
    assert_eq!(why(failed), "it offers more than 1000 tools");
    assert_eq!(server.lists(), 11, "it is not read further than it need be");
    let small = Limits { answer_bytes_max: 10_000, ..Limits::default() };
    server.behave(|manners| manners.page = Some(50));
    let failed = within(&server, small).list(&acme(), &tools()).await.expect_err("it is too large");
    assert_eq!(why(failed), "its list of tools is larger than 10000 bytes");
}

#[tokio::test]
async fn a_slow_list_ends_in_time() {
    let server = McpServer::with(McpManners { list_ms: 60_000, ..McpManners::default() }).await;
    let servers = within(&server, Limits { list: Duration::from_millis(200), ..Limits::default() });
    let failed = servers.list(&acme(), &tools()).await.expect_err("it is too slow");
    assert!(failed.to_string().contains("did not list its tools within 200ms"), "{failed}");
    assert_eq!(run(&servers, &tools(), "add", json!({ "a": 1, "b": 2 })).await.1, "3", "the session is still good");
}

#[tokio::test]
async fn a_missing_server_is_reported() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}/mcp", listener.local_addr().expect("it has an address"))
    };
    let config = ServerConfig { label: "tools".into(), url: format!("{gone}?key=secret"), ..ServerConfig::default() };
    let servers = servers(vec![config], &[], Limits::default());
    let failed = servers.list(&acme(), &tools()).await.expect_err("no server listens");
    let why = format!("it cannot be reached; its address is {gone}");
    assert_eq!(failed, ServerError::Failed { label: "tools".into(), why: why.clone() });
    let message = format!("the tool server \"tools\" does not answer as it should: {why}");
    let (status, why) = run(&servers, &tools(), "echo", json!({})).await;
    assert_eq!((status, why), (TaskStatus::Failed, json!(message)));
}

/// A server that gives the same answer to every request.
async fn same_to_all(status: u16, kind: &'static str, body: &'static [&'static str]) -> String {
    let answer = move || async move {
        let pieces = body.iter().map(|piece| if *piece == "CUT" { Err(std::io::Error::other("cut")) } else { Ok(*piece) });
        let response = axum::http::Response::builder().status(status).header("content-type", kind);
        response.body(Body::from_stream(futures_util::stream::iter(pieces))).expect("an answer")
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it has an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
    url
}

#[tokio::test]
async fn any_answer_of_a_server_ends_the_call_with_a_message() {
    let nonsense: [(u16, &'static str, &'static [&'static str]); 12] = [
        (200, "text/html", &["<html>s3cret</html>"]),
        (200, "application/json", &["{"]),
        (200, "application/json", &["{}"]),
        (200, "application/json", &["[1,2]"]),
        (200, "application/json", &["{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"s3cret\"}"]),
        (200, "application/json", &["\u{0}", "CUT"]),
        (200, "text/event-stream", &["data: nonsense\n\n"]),
        (200, "text/event-stream", &["data: {\"jso", "CUT"]),
        (204, "application/json", &[]),
        (404, "text/plain", &["s3cret"]),
        (500, "application/json", &["{\"error\":\"s3cret\"}"]),
        (503, "text/plain", &["s3cret"]),
    ];
    for (status, kind, body) in nonsense {
        let url = same_to_all(status, kind, body).await;
        let limits = Limits { connect: Duration::from_secs(2), ..Limits::default() };
        let servers = servers(vec![ServerConfig { label: "tools".into(), url, ..ServerConfig::default() }], &[], limits);
        let report = servers.run(&tools(), "echo", a_call(&Value::Null, Duration::from_secs(5))).await;
        let (ended, why) = read(&report);
        assert_eq!(ended, TaskStatus::Failed, "{status} {kind} {body:?}");
        let message = why.as_str().expect("it is text");
        assert!(message.starts_with("the tool server \"tools\" does not answer") && !message.contains("s3cret"), "{message}");
    }
}
