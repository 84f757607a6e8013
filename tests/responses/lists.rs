//! The tool lists of a server with MCP servers, and calls that the server executes itself.

use serde_json::json;
use windlass_tests::{McpServer, Mode, ServerBuilder};

use crate::support::{ask_with, mcp, scripted};

#[tokio::test]
async fn tools_are_listed_with_the_server_that_offers_them() {
    let tools = McpServer::start().await;
    let config = format!(
        "models: [ {{ name: m, provider: scripted }} ]
tools: {{ mcp: [ {{ label: here, url: '{}' }}, {{ label: gone, url: 'http://127.0.0.1:1/mcp' }} ],
          external: [ {{ name: look_up, effect: read }} ] }}\n",
        tools.url
    );
    let server = ServerBuilder::new(&config).start().await;
    let listed = server.get("/v1/windlass/tools").await.ok();
    let tool = |name: &str| listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap_or(&listed).clone();
    assert_eq!((&tool("look_up")["route"], &tool("look_up")["server"]), (&json!("external"), &json!(null)), "{listed}");
    assert_eq!((&tool("echo")["route"], &tool("echo")["server"]), (&json!("in_process"), &json!("here")));
    assert_eq!(tool("echo")["schema"]["type"], "object");
    let servers = listed["servers"].as_array().unwrap();
    assert_eq!((&servers[0]["server"], &servers[1]["server"]), (&json!("gone"), &json!("here")));
    assert!(servers[0]["error"].as_str().is_some_and(|error| error.contains("gone")), "one that does not answer hides no other: {listed}");
    assert!(servers[1]["error"].is_null() && servers[1]["tools"].as_u64() > Some(0), "{listed}");
}

#[tokio::test]
async fn a_call_that_the_server_runs_has_an_attempt() {
    let script = "laps: [ { calls: [{ tool: echo, arguments: { text: hi } }] }, { text: done } ]";
    let (server, _tools) = scripted(script).await;
    let made = server.respond(Mode::Plain, ask_with("go", &[mcp()])).await;
    let run = made.object["id"].as_str().unwrap().replace("resp_", "run_");
    let calls = server.get(&format!("/v1/windlass/runs/{run}/calls")).await.ok();
    assert_eq!((&calls["calls"][0]["tool"], &calls["calls"][0]["attempt"]), (&json!("echo"), &json!(1)), "{calls}");
}
