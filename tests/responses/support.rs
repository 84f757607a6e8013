//! Helpers of the tests of the Responses door: servers with tools of every kind, and request bodies.

use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, ResponseRecord, Scene, Server, ServerBuilder};

const BASE_CONFIG: &str = "
limits: { sweep_interval: 50ms, backoff: 10ms }
egress: { allow: ['127.0.0.1'] }
";

const EXTERNAL: &str = "
  external:
    - { name: look_up, description: finds things, effect: read }
    - { name: send, description: sends things, effect: read }
";

/// A configuration with tools of two kinds: those of an MCP server with the label `tools`, and those of tool services.
fn mcp_config(tools: &McpServer, more: &str) -> String {
    format!("{BASE_CONFIG}{}{EXTERNAL}{more}\n", tools.config("tools").replace("tools: { mcp:", "tools:\n  mcp:").replace("] }\n", "]\n"))
}

/// A server whose model plays a script, and its MCP server.
pub async fn scripted(script: &str) -> (Server, McpServer) {
    scripted_with(script, "").await
}

/// A server whose model plays a script, with additional configuration.
pub async fn scripted_with(script: &str, more: &str) -> (Server, McpServer) {
    let tools = McpServer::start().await;
    let config = format!("models: [ {{ name: m, provider: scripted, script: script.yaml }} ]\n{}", mcp_config(&tools, more));
    (ServerBuilder::new(&config).file("script.yaml", script).start().await, tools)
}

/// A server whose model plays scenes and records its requests, and its MCP server.
pub async fn server_with_model(scenes: Vec<Scene>) -> (Server, FakeModel, McpServer) {
    server_with_model_and_config(scenes, "").await
}

/// A server whose model plays scenes, with additional configuration.
pub async fn server_with_model_and_config(scenes: Vec<Scene>, more: &str) -> (Server, FakeModel, McpServer) {
    let (model, tools) = (FakeModel::start(scenes).await, McpServer::start().await);
    (server_for_model(&model, &tools, more).await, model, tools)
}

/// A server for an existing model and MCP server.
pub async fn server_for_model(model: &FakeModel, tools: &McpServer, more: &str) -> Server {
    ServerBuilder::new(&(model.config().replace("name: fake", "name: m") + &mcp_config(tools, more))).start().await
}

/// A request without tools.
pub fn ask(input: &str) -> Value {
    json!({ "model": "m", "input": input })
}

/// A request that may use these tools.
pub fn ask_with(input: &str, tools: &[Value]) -> Value {
    json!({ "model": "m", "input": input, "tools": tools })
}

/// A request with additional fields.
pub fn with(mut body: Value, more: Value) -> Value {
    let more = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(more);
    body
}

/// The tools of the configured MCP server.
pub fn mcp() -> Value {
    json!({ "type": "mcp", "server_label": "tools", "require_approval": "never" })
}

/// The tools of an MCP server that the request declares.
pub fn declared(label: &str, server: &McpServer) -> Value {
    json!({ "type": "mcp", "server_label": label, "server_url": server.url, "require_approval": "never" })
}

/// A client function.
pub fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "description": format!("does {name}"), "parameters": { "type": "object" }, "strict": false })
}

/// The client's result of a call.
pub fn output(call: &Value, text: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call["call_id"], "output": text })
}

/// A follow-up of a response.
pub fn after(made: &ResponseRecord, input: Value, tools: &[Value]) -> Value {
    json!({ "model": "m", "previous_response_id": made.id(), "input": input, "tools": tools })
}

/// The response that a call belongs to, from the call's id. It works before the client knows the response.
pub fn response_of(call_id: &str) -> String {
    let run = call_id.trim_start_matches("call_").split('_').next().expect("an id has parts");
    format!("resp_{run}")
}

/// The messages of a request to the model, each as its role and its text, calls or result.
pub fn messages_sent(request: &Value) -> Vec<String> {
    let one = |message: &Value| {
        let role = message["role"].as_str().unwrap_or_default();
        let text = message["content"].as_str().unwrap_or_default();
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let calls: Vec<String> = calls.iter().map(|call| format!(" +{}", call["function"]["name"].as_str().unwrap_or_default())).collect();
        format!("{role}: {text}{}", calls.concat())
    };
    request["messages"].as_array().expect("a request has messages").iter().map(one).collect()
}

/// The names of the tools in a request to the model.
pub fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The fields of a call item that contain its outcome.
pub fn call_outcome(item: &Value) -> (String, String, String) {
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("output"), text("error"))
}
