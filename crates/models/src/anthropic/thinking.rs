//! Whether and how long the model thinks before it answers, and which earlier reasoning it gets back.

use serde_json::{Value, json};
use windlass_kernel::{ToolChoice, content::Reasoning};
use windlass_ports::ModelRequest;

use super::{REASONING_PROVIDER, REDACTED};
use crate::limits::{ANSWER_TOKENS, THINKING_TOKENS_MIN};

/// The limit on the tokens of an answer, which the protocol requires. Tokens of thinking count against it.
pub(super) struct Allowance {
    pub(super) max_tokens: u64,
    pub(super) thinking: Thinking,
}

/// The thinking mode of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Thinking {
    /// No thinking.
    Off,
    /// Thinking with at most this number of tokens.
    Budget(u64),
    /// The model decides how much it thinks, guided by `effort`. `is_shown` asks for a summary.
    Adaptive {
        /// The effort, as this protocol spells it.
        effort: String,
        is_shown: bool,
    },
}

/// The token limit and the thinking mode of this request.
pub(super) fn allowance(request: &ModelRequest, model: &str, messages: &[Value]) -> Allowance {
    let given = request.parameters.as_deref();
    let asked = given.and_then(|parameters| parameters.tokens_max);
    let thinking = given.and_then(|parameters| parameters.reasoning.as_ref());
    // Thinking is not possible if the model must call a tool or continues a prefill.
    let may_think = matches!(request.choice, ToolChoice::Auto | ToolChoice::None) && request.prefill.is_none();
    let effort = thinking.and_then(|thinking| thinking.effort.as_deref()).filter(|_| may_think);
    let Some((effort, budget)) = effort.and_then(|effort| Some((effort, budget(effort)?))) else {
        return Allowance { max_tokens: asked.unwrap_or(ANSWER_TOKENS), thinking: Thinking::Off };
    };
    let max_tokens = asked.unwrap_or(ANSWER_TOKENS + budget);
    if !thinks_by_budget(model) {
        let effort = if effort == "minimal" { "low" } else { effort };
        let thinking =
            Thinking::Adaptive { effort: effort.to_owned(), is_shown: thinking.is_some_and(|thinking| thinking.summary.is_some()) };
        return Allowance { max_tokens, thinking };
    }
    // At least half of the tokens stays for the answer. If the rest is below the minimum for thinking, the model does not think.
    let budget = if asked.is_some() { budget.min(max_tokens / 2) } else { budget };
    let may = budget >= THINKING_TOKENS_MIN && !last_calls_lack_reasoning(messages);
    Allowance { max_tokens, thinking: if may { Thinking::Budget(budget) } else { Thinking::Off } }
}

/// Whether the model takes a budget for thinking. Earlier models accept nothing else; later ones refuse it.
fn thinks_by_budget(model: &str) -> bool {
    let model = model.to_ascii_lowercase().replace('.', "-");
    let is_of = |marks: &[&str]| marks.iter().any(|mark| model.contains(mark));
    is_of(&["claude-3", "-4-0", "-4-1", "-4-5", "-4-20"]) || model.ends_with("opus-4") || model.ends_with("sonnet-4")
}

/// The budget in tokens for an effort.
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

/// Whether the last calls were made without reasoning, for example by another provider. The protocol then does not let a model start to
/// think before their results are answered.
fn last_calls_lack_reasoning(messages: &[Value]) -> bool {
    let last = messages.iter().rev().find(|message| message["role"] == "assistant");
    let blocks = last.and_then(|message| message["content"].as_array()).map(Vec::as_slice).unwrap_or_default();
    blocks.iter().any(|block| block["type"] == "tool_use") && !blocks.first().is_some_and(is_reasoning)
}

/// The block for earlier reasoning. `None` if it is another provider's or has no signature, because servers refuse that.
pub(super) fn block(reasoning: &Reasoning) -> Option<Value> {
    let sealed = reasoning.sealed.as_deref().filter(|_| reasoning.provider == REASONING_PROVIDER)?;
    Some(match sealed.strip_prefix(REDACTED) {
        Some(data) => json!({ "type": "redacted_thinking", "data": data }),
        None => json!({ "type": "thinking", "thinking": reasoning.summary.concat(), "signature": sealed }),
    })
}

/// Removes all reasoning from a conversation, for a request without thinking.
pub(super) fn remove_reasoning(messages: &mut Vec<Value>) {
    for message in messages.iter_mut() {
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| !is_reasoning(block));
        }
    }
    messages.retain(|message| message["content"].as_array().is_some_and(|blocks| !blocks.is_empty()));
}

fn is_reasoning(block: &Value) -> bool {
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
