//! The same answer in every protocol.

use std::time::Duration;

use serde_json::{Value, json};

/// The protocol of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Chat completions (OpenAI).
    Chat,
    /// Responses (OpenAI).
    Responses,
    /// Messages (Anthropic).
    Messages,
}

/// All parts of an answer.
#[derive(Clone, Debug, Default)]
pub struct Speech {
    /// Reasoning before everything else.
    pub reasoning: Option<&'static str>,
    /// The chunks of the text.
    pub chunks: Vec<String>,
    /// Tool calls, with their raw arguments.
    pub calls: Vec<(&'static str, String)>,
    /// Input tokens, output tokens, and the input tokens that came from a cache.
    pub usage: Option<[u64; 3]>,
    /// Whether the answer stops at the limit of output tokens.
    pub is_short: bool,
    /// The pause between two events.
    pub pause: Duration,
}

impl Dialect {
    /// All protocols.
    pub const EVERY: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

    /// The name of the provider that speaks it.
    pub fn provider(self) -> &'static str {
        match self {
            Dialect::Chat => "openai-chat",
            Dialect::Responses => "openai-responses",
            Dialect::Messages => "anthropic",
        }
    }

    /// The path of its endpoint.
    pub(super) fn path(self) -> &'static str {
        match self {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Messages => "/v1/messages",
        }
    }

    /// The events of the complete answer, in the wire format.
    pub(super) fn events(self, speech: &Speech) -> Vec<String> {
        match self {
            Dialect::Chat => chat(speech),
            Dialect::Responses => responses(speech).iter().map(named).collect(),
            Dialect::Messages => messages(speech).iter().map(named).collect(),
        }
    }

    /// The events up to the end of the text, without the end of the answer.
    pub(super) fn beginning(self, speech: &Speech) -> Vec<String> {
        let last = speech.chunks.last().map(|text| json!(text).to_string()).expect("it has a text");
        let mut events = self.events(speech);
        let last_text = events.iter().position(|event| event.contains("delta") && event.contains(&last));
        events.truncate(last_text.map_or(0, |place| place + 1));
        events
    }
}

fn plain(event: &str) -> String {
    format!("data: {event}\n\n")
}

fn named(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// A chunk of a chat completion.
pub(super) fn chunk(delta: Value, finish: Option<&str>) -> String {
    json!({ "choices": [ { "index": 0, "delta": delta, "finish_reason": finish } ] }).to_string()
}

fn chat(speech: &Speech) -> Vec<String> {
    let Speech { reasoning, chunks, calls, usage, is_short, pause: _ } = speech;
    let mut events: Vec<String> = reasoning.iter().map(|text| chunk(json!({ "reasoning_content": text }), None)).collect();
    events.extend(chunks.iter().map(|text| chunk(json!({ "content": text }), None)));
    let call = |(index, (tool, arguments)): (usize, &(&str, String))| {
        let function = json!({ "name": tool, "arguments": arguments });
        json!({ "index": index, "id": format!("c{index}"), "type": "function", "function": function })
    };
    if !calls.is_empty() {
        let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
        events.push(chunk(json!({ "tool_calls": calls }), None));
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(chunk(json!({}), Some(if *is_short { "length" } else { finish })));
    if let Some([read, written, cached]) = usage {
        let details = json!({ "cached_tokens": cached });
        let usage = json!({ "prompt_tokens": read, "completion_tokens": written, "prompt_tokens_details": details });
        events.push(json!({ "choices": [], "usage": usage }).to_string());
    }
    events.push("[DONE]".to_owned());
    events.iter().map(|event| plain(event)).collect()
}

fn responses(speech: &Speech) -> Vec<Value> {
    let Speech { reasoning, chunks, calls, usage, is_short, pause: _ } = speech;
    let mut output: Vec<Value> = Vec::new();
    let mut events = vec![json!({ "type": "response.created", "response": { "status": "in_progress", "output": [] } })];
    let done = |place: usize, item: &Value| json!({ "type": "response.output_item.done", "output_index": place, "item": item });
    if let Some(reasoning) = reasoning {
        let summary = json!([{ "type": "summary_text", "text": reasoning }]);
        let item = json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": format!("sealed {reasoning}") });
        events.push(done(0, &item));
        output.push(item);
    }
    if !chunks.is_empty() {
        let place = output.len();
        let delta = |text: &String| json!({ "type": "response.output_text.delta", "item_id": "msg_1", "output_index": place, "content_index": 0, "delta": text });
        events.extend(chunks.iter().map(delta));
        let part = json!({ "type": "output_text", "text": chunks.concat(), "annotations": [] });
        let item = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part] });
        events.push(done(place, &item));
        output.push(item);
    }
    for (index, (tool, arguments)) in calls.iter().enumerate() {
        let id = format!("c{index}");
        let item = json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": tool, "arguments": arguments });
        events.push(done(output.len(), &item));
        output.push(item);
    }
    let usage = usage.map(|[read, written, cached]| {
        json!({ "input_tokens": read, "output_tokens": written, "input_tokens_details": { "cached_tokens": cached } })
    });
    let (status, details) = match is_short {
        true => ("incomplete", json!({ "reason": "max_output_tokens" })),
        false => ("completed", Value::Null),
    };
    let response = json!({ "status": status, "incomplete_details": details, "output": output, "usage": usage });
    events.push(json!({ "type": format!("response.{status}"), "response": response }));
    events
}

fn messages(speech: &Speech) -> Vec<Value> {
    let Speech { reasoning, chunks, calls, usage, is_short, pause: _ } = speech;
    let [read, written, cached] = usage.unwrap_or_default();
    let counted = json!({ "input_tokens": read - cached, "cache_read_input_tokens": cached, "output_tokens": 0 });
    let mut events = vec![json!({ "type": "message_start", "message": { "content": [], "usage": counted } })];
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if let Some(reasoning) = reasoning {
        let signature = json!({ "type": "signature_delta", "signature": format!("sealed {reasoning}") });
        let pieces = vec![json!({ "type": "thinking_delta", "thinking": reasoning }), signature];
        blocks.push((json!({ "type": "thinking", "thinking": "", "signature": "" }), pieces));
    }
    if !chunks.is_empty() {
        let pieces = chunks.iter().map(|text| json!({ "type": "text_delta", "text": text })).collect();
        blocks.push((json!({ "type": "text", "text": "" }), pieces));
    }
    for (index, (tool, arguments)) in calls.iter().enumerate() {
        let start = json!({ "type": "tool_use", "id": format!("c{index}"), "name": tool, "input": {} });
        blocks.push((start, vec![json!({ "type": "input_json_delta", "partial_json": arguments })]));
    }
    for (index, (start, pieces)) in blocks.into_iter().enumerate() {
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.extend(pieces.into_iter().map(|piece| json!({ "type": "content_block_delta", "index": index, "delta": piece })));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let delta = json!({ "stop_reason": if *is_short { "max_tokens" } else { reason } });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": written } }));
    events.push(json!({ "type": "message_stop" }));
    events
}
