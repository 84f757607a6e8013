//! The Responses API over HTTP: objects, streams, follow-ups, conversations, refusals.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{McpServer, Server, ServerBuilder};

use crate::transcript::Transcript;

/// Streams have one delta a reply, because the boundaries of several depend on time.
const SCRIPT: &str = r#"
rules:
  - when: { input: refuse }
    reply: { fail: { code: 400, message: the model refuses, times: 9 } }
  - when: { input: weather, iteration: 1 }
    reply:
      think: The user wants the weather.
      text: Let me see.
      calls: [ { tool: echo, arguments: { text: sunny } }, { tool: fail, arguments: {} } ]
      usage: { in: 12, out: 5, cached: 4, reasoning: 2 }
  - when: { result: blue }
    reply: { text: The sky is blue. }
  - when: { input: mine, iteration: 1 }
    reply: { calls: [ { tool: look, arguments: { at: "the sky" } } ] }
  - when: { input: endless }
    reply: { text: again, calls: [ { tool: echo, arguments: { text: again } } ] }
  - when: { input: short }
    reply: { text: It is cut, finish: length }
  - when: { any: true }
    reply: { text: "It is \"sunny\" \u2600\nand warm." }
"#;

const CONFIG: &str = "
models: [ { name: m, provider: scripted, script: script.yaml } ]
limits: { sweep_interval: 50ms, backoff: 10ms }
egress: { allow: ['127.0.0.1'] }
agents: { clerk: { model: m, instructions: Be brief. } }
";

/// A server with a scripted model and the tools of an MCP server.
pub async fn server() -> (Server, McpServer) {
    let tools = McpServer::start().await;
    let config = format!("{CONFIG}{}", tools.config("tools"));
    (ServerBuilder::new(&config).file("script.yaml", SCRIPT).start().await, tools)
}

/// The tools of the configured MCP server, few of them so that a transcript stays readable.
pub fn tools() -> Value {
    json!([{ "type": "mcp", "server_label": "tools", "require_approval": "never", "allowed_tools": ["echo"] }])
}

/// The same tools, whose calls the client approves.
fn asking() -> Value {
    let mut tools = tools();
    tools[0]["require_approval"] = "always".into();
    tools
}

/// The request that continues a response with an answer to its request for approval.
fn answering(made: &Value, approve: bool) -> Value {
    let output = made["output"].as_array().expect("an output");
    let id = &output.iter().find(|item| item["type"] == "mcp_approval_request").expect("a request for approval")["id"];
    let answer = json!([{ "type": "mcp_approval_response", "approval_request_id": id, "approve": approve }]);
    json!({ "model": "m", "previous_response_id": made["id"], "input": answer, "tools": asking() })
}

fn function() -> Value {
    json!([{ "type": "function", "name": "look", "description": "looks", "parameters": { "type": "object" }, "strict": false }])
}

#[tokio::test]
async fn plain_responses() {
    let (server, _tools) = server().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    let made =
        t.post(&server, "/v1/responses", json!({ "model": "m", "input": "the weather", "tools": tools(), "metadata": { "a": "b" } })).await;
    let id = made["id"].as_str().expect("a response has an id");
    t.get(&server, &format!("/v1/responses/{id}")).await;
    t.get(&server, &format!("/v1/responses/{id}/input_items")).await;
    let handed_back = t.post(&server, "/v1/responses", json!({ "model": "m", "input": "it is mine", "tools": function() })).await;
    let call = handed_back["output"][0]["call_id"].clone();
    let output = json!([{ "type": "function_call_output", "call_id": call, "output": "blue" }]);
    let follow_up = json!({ "model": "m", "previous_response_id": handed_back["id"], "input": output, "tools": function() });
    t.post(&server, "/v1/responses", follow_up).await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "endless", "tools": tools(), "max_tool_calls": 1, "max_turns": 2 }))
        .await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "short", "max_output_tokens": 30 })).await;
    t.post(&server, "/v1/responses", json!({ "model": "agent/clerk", "input": "hello" })).await;
    let conversation = t.post(&server, "/v1/conversations", json!({ "items": [{ "role": "user", "content": "It was cold." }] })).await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "and now?", "conversation": conversation["id"] })).await;
    let conversation = conversation["id"].as_str().expect("a conversation has an id");
    t.get(&server, &format!("/v1/conversations/{conversation}/items?order=asc")).await;
    t.send(&server, Method::DELETE, &format!("/v1/conversations/{conversation}"), None).await;
    t.send(&server, Method::DELETE, &format!("/v1/responses/{id}"), None).await;
    let asked = t.post(&server, "/v1/responses", json!({ "model": "m", "input": "the weather", "tools": asking() })).await;
    t.post(&server, "/v1/responses", answering(&asked, true)).await;
    t.post(&server, "/v1/responses", answering(&asked, false)).await;
    t.post(&server, "/v1/responses/input_tokens", json!({ "model": "m", "input": "how long is this?" })).await;
    t.get(&server, "/v1/models").await;
    transcript.check("responses_plain");
}

#[tokio::test]
async fn streamed_responses() {
    let (server, _tools) = server().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "the weather", "tools": tools(), "stream": true })).await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "it is mine", "tools": function(), "stream": true })).await;
    let opted_in = [("windlass-events", "lifecycle"), ("windlass-items", "pairs")];
    let body = json!({ "model": "m", "input": "the weather", "tools": tools(), "stream": true });
    t.send_with(&server, Method::POST, "/v1/responses", &opted_in, Some(body)).await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "refuse", "stream": true })).await;
    t.post(&server, "/v1/responses", json!({ "model": "m", "input": "short", "stream": true, "store": false })).await;
    let kept = t.post(&server, "/v1/responses", json!({ "model": "m", "input": "the weather", "tools": tools() })).await;
    let id = kept["id"].as_str().expect("a response has an id");
    t.get(&server, &format!("/v1/responses/{id}?stream=true&starting_after=4")).await;
    let body = json!({ "model": "m", "input": "the weather", "tools": asking() });
    let asked = t.post(&server, "/v1/responses", body.clone()).await;
    for body in [body, answering(&asked, true)] {
        let mut streamed = body;
        streamed["stream"] = true.into();
        t.post(&server, "/v1/responses", streamed).await;
    }
    transcript.check("responses_streamed");
}

#[tokio::test]
async fn refused_requests() {
    let (server, _tools) = server().await;
    let mut transcript = Transcript::default();
    let t = &mut transcript;
    let bodies = [
        json!({ "model": "m" }),
        json!({ "model": "unknown", "input": "hello" }),
        json!({ "model": "m", "input": 7 }),
        json!({ "model": "m", "input": "hello", "tools": [{ "type": "function" }] }),
        json!({ "model": "m", "input": "hello", "temperature": 9 }),
        json!({ "model": "m", "input": "hello", "previous_response_id": "resp_00000000000000000000000000000000" }),
        json!({ "model": "m", "input": "hello", "tools": [{ "type": "file_search", "vector_store_ids": ["x"] }] }),
        json!({ "model": "m", "input": [{ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true }] }),
        json!({ "model": "m", "input": [{ "type": "mcp_approval_response", "approval_request_id": "mcpr_00000000000000000000000000000000_1", "approve": true }] }),
        json!({ "model": "m", "input": "refuse" }),
        json!({ "model": "m", "input": [{ "type": "function_call_output", "call_id": "call_1", "output": "x" }] }),
    ];
    for body in bodies {
        t.post(&server, "/v1/responses", body).await;
    }
    t.get(&server, "/v1/responses/resp_00000000000000000000000000000000").await;
    t.get(&server, "/v1/responses/nonsense").await;
    t.post(&server, "/responses", json!({})).await;
    t.post(&server, "/v1/chat/completions", json!({})).await;
    t.send_with(&server, Method::GET, "/v1/models", &[("authorization", "Bearer wrong")], None).await;
    transcript.check("responses_refused");
}
