//! Puts an answer together from its chunks: text goes on at once, a call once it is whole.

use serde::Deserialize;
use serde_json::Value;
use windlass_kernel::{Finish, RequestedCall, Usage};
use windlass_ports::{ModelError, ModelEvent};

use crate::{
    failure,
    limits::{CALLS_MAX, CONTENT_BYTES_MAX},
};

/// An answer in the making. It never holds more than the limits allow.
#[derive(Debug, Default)]
pub(super) struct Answer {
    iteration: u32,
    calls: Vec<Slot>,
    content_bytes: usize,
    usage: Option<Usage>,
    begun: bool,
    finished: bool,
}

/// A call in the making.
#[derive(Debug)]
struct Slot {
    index: u64,
    id: String,
    tool: String,
    arguments: String,
}

/// What an upstream said instead of a chunk. The caller knows how to tell it.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is an error of our own wording.
    Ours(ModelError),
    /// It is the upstream's error object.
    Theirs(Value),
}

impl From<ModelError> for Refused {
    fn from(error: ModelError) -> Self {
        Refused::Ours(error)
    }
}

impl Answer {
    /// An empty answer of this lap.
    pub(super) fn new(iteration: u32) -> Self {
        Answer { iteration, ..Answer::default() }
    }

    /// Whether anything of an answer has come, be it empty.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether the model has said that it is done.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Takes a chunk, or a whole answer, and returns what can go on already.
    pub(super) fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let chunk: Chunk = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        if let Some(error) = chunk.error {
            return Err(Refused::Theirs(error));
        }
        let mut events = Vec::new();
        // Only one answer was asked for.
        let choices = chunk.choices.unwrap_or_default();
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.begun = true;
            if let Some(said) = choice.delta.or(choice.message) {
                self.take_said(said, &mut events)?;
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

    /// The calls, now that no more chunks come.
    pub(super) fn calls(&mut self) -> Result<Vec<ModelEvent>, ModelError> {
        let mut slots = std::mem::take(&mut self.calls);
        // A stable order: calls of one index stay as they came.
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
        slots.into_iter().enumerate().map(whole).collect()
    }

    fn take_said(&mut self, said: Said, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        // A refusal is what the model says, so people should read it.
        for text in [said.content, said.refusal].into_iter().flatten().filter(|text| !text.is_empty()) {
            self.grow(text.len())?;
            events.push(ModelEvent::Text(text));
        }
        for piece in said.tool_calls.unwrap_or_default() {
            self.take_piece(piece)?;
        }
        Ok(())
    }

    fn take_piece(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        let CallPiece { index, id, function } = piece;
        let FunctionPiece { name, arguments } = function.unwrap_or_default();
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let arguments = match arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Some servers send the object itself.
            Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => value.to_string(),
        };
        self.grow(id.len() + name.len() + arguments.len())?;
        let slot = self.slot(index, &id, &name)?;
        // The first id and name count: some servers repeat them with every piece.
        if slot.id.is_empty() {
            slot.id = id;
        }
        if slot.tool.is_empty() {
            slot.tool = name;
        }
        slot.arguments.push_str(&arguments);
        Ok(())
    }

    /// The call that a piece belongs to, which is a new one if no other fits.
    fn slot(&mut self, index: Option<u64>, id: &str, name: &str) -> Result<&mut Slot, ModelError> {
        // Servers that leave the index out, or send the same for all, tell calls apart by id. An id alone is not enough,
        // since some make up another one for every piece.
        let begins = |slot: &Slot| !id.is_empty() && !name.is_empty() && !slot.id.is_empty() && slot.id != id;
        let known = match index {
            Some(index) => self.calls.iter().rposition(|slot| slot.index == index),
            None => self.calls.len().checked_sub(1),
        };
        if let Some(position) = known.filter(|position| !begins(&self.calls[*position])) {
            return Ok(&mut self.calls[position]);
        }
        if self.calls.len() == CALLS_MAX {
            return Err(failure::too_large(format!("the model made more than {CALLS_MAX} calls at once")));
        }
        let next = self.calls.iter().map(|slot| slot.index.saturating_add(1)).max().unwrap_or(0);
        let slot = Slot { index: index.unwrap_or(next), id: String::new(), tool: String::new(), arguments: String::new() };
        Ok(self.calls.push_mut(slot))
    }

    fn finish_for(&mut self, reason: &str) -> Option<ModelEvent> {
        self.finished = true;
        match reason {
            "content_filter" => Some(ModelEvent::Finish(Finish::Filtered)),
            "length" => Some(ModelEvent::Finish(Finish::OutOfTokens)),
            _ => None,
        }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.content_bytes = self.content_bytes.saturating_add(bytes);
        if self.content_bytes > CONTENT_BYTES_MAX {
            return Err(failure::too_large(format!("the answer amounts to more than {CONTENT_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

fn not_of_the_protocol(why: &str) -> ModelError {
    failure::garbage(format!("the upstream sent something that is no chat completion: {}", failure::presentable(why, [])))
}

/// A chunk of a streamed answer, or a whole answer, which differs only in `message` standing for `delta`. Servers disagree
/// about what may be null or absent, so everything may.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<Said>,
    message: Option<Said>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
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
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        Usage {
            tokens_in: tokens.prompt_tokens.unwrap_or(0),
            tokens_out: tokens.completion_tokens.unwrap_or(0),
            cached: tokens.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            reasoning: tokens.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
        }
    }
}
