//! Whether the model thinks before it answers, how long, and what it is reminded of.

use serde_json::{Value, json};
use windlass_kernel::{ToolChoice, content::Reasoning};
use windlass_ports::ModelRequest;

use super::{REDACTED, THOUGHTS};
use crate::limits::{ANSWER_TOKENS, THINKING_TOKENS_MIN};

/// What a call may write: the protocol wants a number, and takes thoughts out of it.
pub(super) struct Allowance {
    pub(super) max_tokens: u64,
    /// Of these, how many may be thought.
    pub(super) thinking: Option<u64>,
}

/// How much this request may write, and how much of it may be thought.
pub(super) fn allowance(request: &ModelRequest, messages: &[Value]) -> Allowance {
    let given = |key: &str| request.parameters.as_deref().and_then(|parameters| parameters.get(key));
    let asked = given("max_output_tokens").and_then(Value::as_u64);
    let effort = given("reasoning").and_then(|reasoning| reasoning.get("effort")?.as_str());
    // Models that must call a tool do not think.
    let may = matches!(request.choice, ToolChoice::Auto | ToolChoice::None) && !is_amid_unthought_calls(messages);
    let wanted = effort.filter(|_| may).and_then(budget);
    match (wanted, asked) {
        (Some(budget), None) => Allowance { max_tokens: ANSWER_TOKENS + budget, thinking: Some(budget) },
        // At least half is left for the answer; what is then too little to think with is not spent on it.
        (Some(budget), Some(max_tokens)) => {
            let thinking = Some(budget.min(max_tokens / 2)).filter(|tokens| *tokens >= THINKING_TOKENS_MIN);
            Allowance { max_tokens, thinking }
        }
        (None, asked) => Allowance { max_tokens: asked.unwrap_or(ANSWER_TOKENS), thinking: None },
    }
}

/// Tokens of thought that an effort stands for.
fn budget(effort: &str) -> Option<u64> {
    match effort {
        "minimal" => Some(THINKING_TOKENS_MIN),
        "low" => Some(4_096),
        "medium" => Some(8_192),
        "high" => Some(16_384),
        "xhigh" | "max" => Some(22_528),
        _ => None,
    }
}

/// Calls that were made without a thought, by another provider say: the protocol does not let a model begin to think amid them.
fn is_amid_unthought_calls(messages: &[Value]) -> bool {
    let last = messages.iter().rev().find(|message| message["role"] == "assistant");
    let blocks = last.and_then(|message| message["content"].as_array()).map(Vec::as_slice).unwrap_or_default();
    blocks.iter().any(|block| block["type"] == "tool_use") && !blocks.first().is_some_and(is_thought)
}

/// A thought as the protocol wants it back. Others' thoughts, and those that are not signed, it cannot take.
pub(super) fn block(thought: &Reasoning) -> Option<Value> {
    let sealed = thought.sealed.as_deref().filter(|_| thought.provider == THOUGHTS)?;
    Some(match sealed.strip_prefix(REDACTED) {
        Some(data) => json!({ "type": "redacted_thinking", "data": data }),
        None => json!({ "type": "thinking", "thinking": thought.summary.concat(), "signature": sealed }),
    })
}

/// Takes thoughts out of a conversation, for a model that does not think.
pub(super) fn forget(messages: &mut Vec<Value>) {
    for message in messages.iter_mut() {
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| !is_thought(block));
        }
    }
    messages.retain(|message| message["content"].as_array().is_some_and(|blocks| !blocks.is_empty()));
}

fn is_thought(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}
