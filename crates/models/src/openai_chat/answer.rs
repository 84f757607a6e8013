//! Assembles an answer from its chunks: text is passed on at once, a call once it is complete.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use windlass_kernel::{Finish, RequestedCall, Usage, content::Reasoning};
use windlass_ports::{ModelError, ModelEvent};

use crate::{
    content_budget::{ContentBudget, check_calls},
    exchange::{self, Progress, Refused},
    failure,
    name::UpstreamName,
};

/// An answer that is being received.
#[derive(Debug, Default)]
pub struct Answer {
    iteration: u32,
    calls: Vec<Slot>,
    /// The reasoning so far, until other content follows.
    reasoning: String,
    budget: ContentBudget,
    usage: Option<Usage>,
    name: UpstreamName,
    progress: Progress,
}

/// A call that is being received.
#[derive(Debug)]
struct Slot {
    index: u64,
    id: String,
    tool: String,
    arguments: String,
}

impl Answer {
    /// An empty answer of this iteration.
    pub(crate) fn new(iteration: u32) -> Self {
        Answer { iteration, ..Answer::default() }
    }

    fn take_delta(&mut self, delta: Delta, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        // Servers use two names for the reasoning, and some send it under both.
        if let Some(reasoning) = delta.reasoning_content.or(delta.reasoning) {
            self.budget.add(reasoning.len())?;
            self.reasoning.push_str(&reasoning);
        }
        // A refusal is text of the model, so people should read it.
        for text in [delta.content, delta.refusal].into_iter().flatten().filter(|text| !text.is_empty()) {
            self.budget.add(text.len())?;
            events.extend(self.take_reasoning());
            events.push(ModelEvent::Text(text));
        }
        for piece in delta.tool_calls.unwrap_or_default() {
            self.take_piece(piece)?;
        }
        Ok(())
    }

    /// The reasoning, complete now that other content follows. It has no seal, because no server of this protocol accepts it back.
    fn take_reasoning(&mut self) -> Option<ModelEvent> {
        let text = std::mem::take(&mut self.reasoning);
        let reasoning = Reasoning { provider: String::new(), summary: Vec::new(), text, sealed: None };
        (!reasoning.is_empty()).then_some(ModelEvent::Reasoning(reasoning))
    }

    fn take_piece(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        let CallPiece { index, id, function } = piece;
        let FunctionPiece { name, arguments } = function.unwrap_or_default();
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let arguments = match arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Some servers send a JSON object instead of its text.
            Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => value.to_string(),
        };
        self.budget.add(id.len() + name.len() + arguments.len())?;
        let slot = self.slot(index, &id, &name)?;
        // The first id and name count: some servers repeat them in every chunk.
        if slot.id.is_empty() {
            slot.id = id;
        }
        if slot.tool.is_empty() {
            slot.tool = name;
        }
        slot.arguments.push_str(&arguments);
        Ok(())
    }

    /// The call that a delta belongs to, or a new one if none matches.
    fn slot(&mut self, index: Option<u64>, id: &str, name: &str) -> Result<&mut Slot, ModelError> {
        // Servers that leave out the index, or send the same one for all calls, tell calls apart by id. The id alone is not enough, because
        // some servers send another id with every chunk.
        let begins = |slot: &Slot| !id.is_empty() && !name.is_empty() && !slot.id.is_empty() && slot.id != id;
        let known = match index {
            Some(index) => self.calls.iter().rposition(|slot| slot.index == index),
            None => self.calls.len().checked_sub(1),
        };
        if let Some(position) = known.filter(|position| !begins(&self.calls[*position])) {
            return Ok(&mut self.calls[position]);
        }
        check_calls(self.calls.len())?;
        let next = self.calls.iter().map(|slot| slot.index.saturating_add(1)).max().unwrap_or(0);
        let slot = Slot { index: index.unwrap_or(next), id: String::new(), tool: String::new(), arguments: String::new() };
        Ok(self.calls.push_mut(slot))
    }

    fn finish_for(&mut self, reason: &str) -> Option<ModelEvent> {
        self.progress = Progress::Finished;
        match reason {
            "content_filter" => Some(ModelEvent::Finish(Finish::Filtered)),
            "length" => Some(ModelEvent::Finish(Finish::OutOfTokens)),
            _ => None,
        }
    }
}

impl exchange::Answer for Answer {
    const KIND: &'static str = "chat completion";
    const ENDS_BY_MARK: bool = true;

    fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let chunk: Chunk = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        if let Some(error) = chunk.error {
            return Err(Refused::Theirs(error));
        }
        let mut events = Vec::from_iter(self.name.report(chunk.model.as_ref().and_then(Value::as_str)));
        // Only one answer was requested.
        let choices = chunk.choices.unwrap_or_default();
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.progress = self.progress.max(Progress::Begun);
            if let Some(delta) = choice.delta.or(choice.message) {
                self.take_delta(delta, &mut events)?;
            }
            if let Some(reason) = choice.finish_reason {
                events.extend(self.finish_for(&reason));
            }
        }
        if let Some(usage) = chunk.usage.map(Usage::from).filter(|usage| Some(*usage) != self.usage) {
            self.usage = Some(usage);
            events.push(ModelEvent::Usage(usage));
        }
        Ok(events)
    }

    /// A whole answer differs from a chunk only in having `message` instead of `delta`.
    fn take_whole(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        self.take(json)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn end(&mut self) -> Result<Vec<ModelEvent>, ModelError> {
        let mut events: Vec<ModelEvent> = self.take_reasoning().into_iter().collect();
        let mut slots = std::mem::take(&mut self.calls);
        // The sort is stable: calls with the same index keep their order.
        slots.sort_by_key(|slot| slot.index);
        let whole = |(position, slot): (usize, Slot)| {
            if slot.tool.is_empty() {
                return Err(not_of_the_protocol("a call names no tool"));
            }
            let made_up = || format!("call_{}_{position}", self.iteration);
            let provider_id = if slot.id.is_empty() { made_up() } else { slot.id };
            let arguments = if slot.arguments.trim().is_empty() { "{}".to_owned() } else { slot.arguments };
            Ok(ModelEvent::Call(RequestedCall { provider_id, tool: slot.tool, arguments }))
        };
        for call in slots.into_iter().enumerate().map(whole) {
            events.push(call?);
        }
        Ok(events)
    }
}

fn not_of_the_protocol(why: &str) -> ModelError {
    failure::garbage(format!("the upstream sent something that is no chat completion: {}", failure::presentable(why, [])))
}

/// A chunk of a streamed answer, or a whole answer, which has `message` instead of `delta`. Servers disagree about what may be null or
/// absent, so everything may.
#[derive(Deserialize)]
struct Chunk {
    model: Option<Value>,
    choices: Option<Vec<Choice>>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<Delta>,
    message: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    #[serde(default, deserialize_with = "text_only")]
    reasoning_content: Option<String>,
    #[serde(default, deserialize_with = "text_only")]
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

/// Reads a field that only some servers have as text; any other type counts as absent.
fn text_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| value.as_str().map(str::to_owned)))
}

#[derive(Deserialize)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Default, Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        let read = tokens.prompt_tokens_details.as_ref();
        Usage {
            tokens_in: tokens.prompt_tokens.unwrap_or(0),
            tokens_out: tokens.completion_tokens.unwrap_or(0),
            cached: read.and_then(|details| details.cached_tokens).unwrap_or(0),
            cache_written: read.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning: tokens.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
        }
    }
}
