//! Whether the model thinks before it answers, how long, and what it is reminded of.

use serde_json::{Value, json};
use windlass_kernel::{ToolChoice, content::Reasoning};
use windlass_ports::ModelRequest;

use super::{REDACTED, THOUGHTS};
use crate::limits::{ANSWER_TOKENS, THINKING_TOKENS_MIN};

/// What a call may write: the protocol wants a number, and takes thoughts out of it.
pub(super) struct Allowance {
    pub(super) max_tokens: u64,
    pub(super) thinking: Thinking,
}

/// How a model thinks.
#[derive(Debug, PartialEq)]
pub(super) enum Thinking {
    /// Not at all.
    Off,
    /// With so many of its tokens.
    Budget(u64),
    /// As much as it sees fit, with this effort. `is_shown` asks for a summary.
    Adaptive {
        /// In the words of the protocol.
        effort: String,
        is_shown: bool,
    },
}

/// How much this request may write to that model, and how it thinks.
pub(super) fn allowance(request: &ModelRequest, model: &str, messages: &[Value]) -> Allowance {
    let given = |key: &str| request.parameters.as_deref().and_then(|parameters| parameters.get(key));
    let asked = given("max_output_tokens").and_then(Value::as_u64);
    let reasoning = |key: &str| given("reasoning").and_then(|reasoning| reasoning.get(key)?.as_str());
    // Models that must call a tool do not think, nor those that are in the middle of their words.
    let may_think = matches!(request.choice, ToolChoice::Auto | ToolChoice::None) && request.prefill.is_none();
    let effort = reasoning("effort").filter(|_| may_think);
    let Some((effort, budget)) = effort.and_then(|effort| Some((effort, budget(effort)?))) else {
        return Allowance { max_tokens: asked.unwrap_or(ANSWER_TOKENS), thinking: Thinking::Off };
    };
    let max_tokens = asked.unwrap_or(ANSWER_TOKENS + budget);
    if !thinks_by_budget(model) {
        let effort = if effort == "minimal" { "low" } else { effort };
        let thinking = Thinking::Adaptive { effort: effort.to_owned(), is_shown: reasoning("summary").is_some() };
        return Allowance { max_tokens, thinking };
    }
    // At least half is left for the answer; what is then too little to think with is not spent on it.
    let budget = if asked.is_some() { budget.min(max_tokens / 2) } else { budget };
    let may = budget >= THINKING_TOKENS_MIN && !is_amid_unthought_calls(messages);
    Allowance { max_tokens, thinking: if may { Thinking::Budget(budget) } else { Thinking::Off } }
}

/// Earlier models are given a number of tokens to think with, and refuse anything else; later ones refuse that.
fn thinks_by_budget(model: &str) -> bool {
    let model = model.to_ascii_lowercase().replace('.', "-");
    let is_of = |marks: &[&str]| marks.iter().any(|mark| model.contains(mark));
    is_of(&["claude-3", "-4-0", "-4-1", "-4-5", "-4-20"]) || model.ends_with("opus-4") || model.ends_with("sonnet-4")
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

#[cfg(test)]
mod tests {
    use super::thinks_by_budget;

    #[test]
    fn earlier_models_are_known_by_their_names() {
        for model in
            ["claude-3-7-sonnet-20250219", "claude-opus-4-20250514", "claude-opus-4-1", "claude-sonnet-4.5", "claude-haiku-4-5-20251001"]
        {
            assert!(thinks_by_budget(model), "{model}");
        }
        for model in ["claude-opus-4-6", "claude-sonnet-4.6", "claude-opus-4-7", "claude-sonnet-5", "somebody-elses"] {
            assert!(!thinks_by_budget(model), "{model}");
        }
    }
}
