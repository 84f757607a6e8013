//! Assembles an answer from its blocks: text is passed on at once, a block of reasoning once it is complete, and calls at the end.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use windlass_kernel::{Finish, RequestedCall, Usage, content::Reasoning};
use windlass_ports::{ModelError, ModelEvent};

use super::{REASONING_PROVIDER, REDACTED};
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
    /// Blocks other than text, by their index.
    blocks: BTreeMap<u64, Block>,
    budget: ContentBudget,
    tokens: Tokens,
    is_counted: bool,
    name: UpstreamName,
    progress: Progress,
}

/// A block that is being received.
#[derive(Debug)]
enum Block {
    /// A call of a tool. `whole` is the input that the block started with; it counts if no deltas follow.
    Tool { id: String, name: String, arguments: String, whole: Option<Value> },
    /// Reasoning with its text.
    Thinking { text: String, signature: String },
    /// Reasoning that the provider has encrypted.
    Redacted { data: String },
}

impl Answer {
    /// An empty answer of this iteration.
    pub(crate) fn new(iteration: u32) -> Self {
        Answer { iteration, ..Answer::default() }
    }

    fn start(&mut self, index: u64, block: Piece) -> Result<Vec<ModelEvent>, ModelError> {
        self.budget.add(block.size())?;
        let Piece { kind, id, name, input, text, thinking, signature, data, .. } = block;
        let made = match kind.as_deref() {
            Some("text") => return Ok(text_events(text)),
            Some("tool_use") => {
                check_calls(self.blocks.len())?;
                let whole = input.filter(|input| input.as_object().is_some_and(|fields| !fields.is_empty()));
                Block::Tool { id: id.unwrap_or_default(), name: name.unwrap_or_default(), arguments: String::new(), whole }
            }
            Some("thinking") => Block::Thinking { text: thinking.unwrap_or_default(), signature: signature.unwrap_or_default() },
            Some("redacted_thinking") => Block::Redacted { data: data.unwrap_or_default() },
            Some(_) => return Ok(Vec::new()),
            None => return Err(not_of_the_protocol("a block has no type")),
        };
        self.blocks.insert(index, made);
        Ok(Vec::new())
    }

    fn grow(&mut self, index: u64, piece: Piece) -> Result<Vec<ModelEvent>, ModelError> {
        self.budget.add(piece.size())?;
        let Piece { kind, text, thinking, signature, partial_json, .. } = piece;
        match (kind.as_deref(), self.blocks.get_mut(&index)) {
            (Some("text_delta"), None) => return Ok(text_events(text)),
            (Some("input_json_delta"), Some(Block::Tool { arguments, .. })) => arguments.push_str(&partial_json.unwrap_or_default()),
            (Some("thinking_delta"), Some(Block::Thinking { text, .. })) => text.push_str(&thinking.unwrap_or_default()),
            (Some("signature_delta"), Some(Block::Thinking { signature: known, .. })) => known.push_str(&signature.unwrap_or_default()),
            (Some("text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta"), Some(_)) => {
                return Err(not_of_the_protocol("a piece does not fit its block"));
            }
            // Deltas of unknown block types are ignored.
            (Some(_), _) => {}
            (None, _) => return Err(not_of_the_protocol("a piece has no type")),
        }
        Ok(Vec::new())
    }

    /// Handles the end of a block. Reasoning is passed on now; calls wait for the end of the answer.
    fn stop(&mut self, index: u64) -> Vec<ModelEvent> {
        if matches!(self.blocks.get(&index), None | Some(Block::Tool { .. })) {
            return Vec::new();
        }
        let (summary, sealed) = match self.blocks.remove(&index) {
            Some(Block::Thinking { text, signature }) => (text, signature),
            Some(Block::Redacted { data }) => (String::new(), format!("{REDACTED}{data}")),
            Some(Block::Tool { .. }) | None => return Vec::new(),
        };
        let summary = if summary.is_empty() { Vec::new() } else { vec![summary] };
        let sealed = Some(sealed).filter(|sealed| !sealed.is_empty());
        let reasoning = Reasoning { provider: REASONING_PROVIDER.to_owned(), summary, text: String::new(), sealed };
        if reasoning.is_empty() { Vec::new() } else { vec![ModelEvent::Reasoning(reasoning)] }
    }

    fn finish_for(&mut self, reason: &str) -> Vec<ModelEvent> {
        self.progress = self.progress.max(Progress::Finished);
        match reason {
            "max_tokens" | "model_context_window_exceeded" => vec![ModelEvent::Finish(Finish::OutOfTokens)],
            "refusal" => vec![ModelEvent::Finish(Finish::Filtered)],
            _ => Vec::new(),
        }
    }

    /// Updates the token counts. Each count is for the whole answer so far, so a later one replaces an earlier one.
    fn count(&mut self, tokens: Option<Tokens>) {
        let Some(Tokens { input_tokens, output_tokens, cache_creation_input_tokens, cache_read_input_tokens }) = tokens else { return };
        self.is_counted = true;
        self.tokens.input_tokens = input_tokens.or(self.tokens.input_tokens);
        self.tokens.output_tokens = output_tokens.or(self.tokens.output_tokens);
        self.tokens.cache_creation_input_tokens = cache_creation_input_tokens.or(self.tokens.cache_creation_input_tokens);
        self.tokens.cache_read_input_tokens = cache_read_input_tokens.or(self.tokens.cache_read_input_tokens);
    }
}

impl exchange::Answer for Answer {
    const KIND: &'static str = "message";
    const ENDS_BY_MARK: bool = false;

    fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let event: Event = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        if let Some(error) = event.error {
            return Err(Refused::Theirs(error));
        }
        let index = || event.index.ok_or_else(|| not_of_the_protocol("a block has no index"));
        let events = match event.kind.as_deref() {
            Some("message_start") => {
                let (name, usage) = event.message.map_or((None, None), |message| (message.model, message.usage));
                self.count(usage);
                // The tokens read are known from the start, and are billed even if the answer breaks off.
                let used = self.is_counted.then(|| ModelEvent::Usage(self.tokens.usage()));
                self.name.report(name.as_ref().and_then(Value::as_str)).into_iter().chain(used).collect()
            }
            Some("content_block_start") => self.start(index()?, piece(event.content_block)?)?,
            Some("content_block_delta") => self.grow(index()?, piece(event.delta)?)?,
            Some("content_block_stop") => self.stop(index()?),
            Some("message_delta") => {
                self.count(event.usage);
                event.delta.and_then(|delta| delta.stop_reason).map_or_else(Vec::new, |reason| self.finish_for(&reason))
            }
            Some("message_stop") => {
                self.progress = Progress::Whole;
                Vec::new()
            }
            Some(_) => return Ok(Vec::new()),
            None => return Err(not_of_the_protocol("an event has no type").into()),
        };
        self.progress = self.progress.max(Progress::Begun);
        Ok(events)
    }

    fn take_whole(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let message: Message = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        if let Some(error) = message.error {
            return Err(Refused::Theirs(error));
        }
        let Some(content) = message.content else { return Ok(Vec::new()) };
        let mut events = Vec::from_iter(self.name.report(message.model.as_ref().and_then(Value::as_str)));
        for (index, block) in content.into_iter().enumerate() {
            events.extend(self.start(index as u64, block)?);
            events.extend(self.stop(index as u64));
        }
        self.count(message.usage);
        events.extend(message.stop_reason.map_or_else(Vec::new, |reason| self.finish_for(&reason)));
        self.progress = Progress::Whole;
        Ok(events)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn end(&mut self) -> Result<Vec<ModelEvent>, ModelError> {
        let mut events: Vec<ModelEvent> = self.is_counted.then(|| ModelEvent::Usage(self.tokens.usage())).into_iter().collect();
        let mut position = 0;
        for block in std::mem::take(&mut self.blocks).into_values() {
            let Block::Tool { id, name, arguments, whole } = block else { continue };
            if name.is_empty() {
                return Err(not_of_the_protocol("a call names no tool"));
            }
            let provider_id = if id.is_empty() { format!("call_{}_{position}", self.iteration) } else { id };
            let arguments = match arguments.trim().is_empty() {
                true => whole.map_or_else(|| "{}".to_owned(), |input| input.to_string()),
                false => arguments,
            };
            events.push(ModelEvent::Call(RequestedCall { provider_id, tool: name, arguments }));
            position += 1;
        }
        Ok(events)
    }
}

fn text_events(text: Option<String>) -> Vec<ModelEvent> {
    text.filter(|text| !text.is_empty()).map(ModelEvent::Text).into_iter().collect()
}

fn piece(piece: Option<Piece>) -> Result<Piece, ModelError> {
    piece.ok_or_else(|| not_of_the_protocol("an event has nothing in it"))
}

fn not_of_the_protocol(why: &str) -> ModelError {
    failure::garbage(format!("the upstream sent something that is no message: {}", failure::presentable(why, [])))
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<String>,
    index: Option<u64>,
    message: Option<Message>,
    content_block: Option<Piece>,
    delta: Option<Piece>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    model: Option<Value>,
    content: Option<Vec<Piece>>,
    stop_reason: Option<String>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

/// A block, a delta of one, or a change to the whole message. Which fields are present depends on `type`.
#[derive(Deserialize)]
struct Piece {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

impl Piece {
    fn size(&self) -> usize {
        let Piece { id, name, text, thinking, signature, data, partial_json, input, .. } = self;
        let texts = [id, name, text, thinking, signature, data, partial_json];
        let input = input.as_ref().map_or(0, |input| input.to_string().len());
        input + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// Tokens as the protocol counts them: those written to the cache or read from it are not part of `input_tokens`.
#[derive(Debug, Default, Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl Tokens {
    fn usage(&self) -> Usage {
        let [fresh, written, cached] =
            [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens].map(Option::unwrap_or_default);
        let tokens_in = fresh.saturating_add(written).saturating_add(cached);
        Usage { tokens_in, tokens_out: self.output_tokens.unwrap_or(0), cached, cache_written: written, reasoning: 0 }
    }
}
