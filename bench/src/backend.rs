//! A scripted inference server with tools. A gateway is measured against it, as the backend behind the gateway.
//!
//! `/v1/chat/completions` always streams, and answers with eight deltas of one word each. For a model `fake-tN` it first calls the first
//! tool of the request N times, one call per turn. `/mcp` is a Streamable-HTTP MCP server whose tool `echo` returns its text.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use axum::{
    Json, Router,
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The final answer, one delta per word.
const WORDS: [&str; 8] = ["All ", "that ", "was ", "asked ", "for ", "is ", "done ", "now."];

static IDS: AtomicU64 = AtomicU64::new(1);

/// Serves on a free port of this machine, on a thread of its own. Returns the address.
pub fn start() -> String {
    let (sender, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
            let _ = sender.send(format!("http://{}", listener.local_addr().expect("it is bound")));
            let app = Router::new().route("/v1/chat/completions", post(chat)).route("/mcp", post(mcp));
            axum::serve(axum::serve::ListenerExt::tap_io(listener, |socket| drop(socket.set_nodelay(true))), app).await
        })
    });
    address.recv().expect("the backend starts")
}

fn id(prefix: &str) -> String {
    format!("{prefix}_{:08x}", IDS.fetch_add(1, Relaxed))
}

async fn chat(Json(request): Json<Value>) -> Response {
    let turns: usize = request["model"].as_str().and_then(|name| name.strip_prefix("fake-t")?.parse().ok()).unwrap_or(0);
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    let head = id("chatcmpl");
    let chunk = |delta: Value, finish: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        format!(
            "data: {}\n\n",
            json!({ "id": head, "object": "chat.completion.chunk", "created": 1, "model": request["model"], "choices": choices })
        )
    };
    let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    if results < turns {
        let function = json!({ "name": request["tools"][0]["function"]["name"], "arguments": "" });
        let call = json!({ "index": 0, "id": id("call"), "type": "function", "function": function });
        events.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
        for part in ["{\"text\":", "\"hello\"}"] {
            events.push(chunk(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": part } }] }), Value::Null));
        }
        events.push(chunk(json!({}), json!("tool_calls")));
    } else {
        events.extend(WORDS.map(|word| chunk(json!({ "content": word }), Value::Null)));
        events.push(chunk(json!({}), json!("stop")));
    }
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19 });
    events.push(format!(
        "data: {}\n\n",
        json!({ "id": head, "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": usage })
    ));
    events.push("data: [DONE]\n\n".to_owned());
    let frames = stream::iter(events.into_iter().map(|event| Ok::<_, Infallible>(Bytes::from(event))));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

async fn mcp(Json(request): Json<Value>) -> Response {
    if request.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let params = &request["params"];
    let result = match request["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": params["protocolVersion"], "capabilities": { "tools": {} }, "serverInfo": { "name": "tools", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{
            "name": "echo", "description": "Gives the text back", "annotations": { "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
        }] }),
        Some("tools/call") => json!({ "content": [{ "type": "text", "text": params["arguments"]["text"] }], "isError": false }),
        _ => json!({}),
    };
    Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).into_response()
}
