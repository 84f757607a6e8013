//! Assembles an answer from its events: text is passed on at once, an item once it is done.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use windlass_kernel::{Finish, RequestedCall, Usage, content::Reasoning};
use windlass_ports::{ModelError, ModelEvent};

use super::REASONING_PROVIDER;
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
    /// The calls, by their position in the output.
    calls: BTreeMap<u64, RequestedCall>,
    /// The positions of messages whose text arrived as deltas.
    streamed: BTreeSet<u64>,
    /// The positions of items that are done.
    done: BTreeSet<u64>,
    budget: ContentBudget,
    name: UpstreamName,
    progress: Progress,
    /// The tokens of an answer that failed.
    used: Option<Usage>,
}

impl Answer {
    /// An empty answer of this iteration.
    pub(crate) fn new(iteration: u32) -> Self {
        Answer { iteration, ..Answer::default() }
    }

    fn text_delta(&mut self, event: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let delta = event.get("delta").and_then(Value::as_str).ok_or_else(|| not_of_the_protocol("a delta is no text"))?;
        self.streamed.insert(place_of(event).unwrap_or(0));
        self.budget.add(delta.len())?;
        Ok(text_events(delta))
    }

    fn item(&mut self, place: Option<u64>, item: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let place = place.unwrap_or_else(|| self.done.last().map_or(0, |last| last.saturating_add(1)));
        if !self.done.insert(place) {
            return Ok(Vec::new());
        }
        match item.get("type").and_then(Value::as_str) {
            Some("message") if !self.streamed.contains(&place) => self.message(item),
            Some("function_call") => self.call(place, item),
            Some("reasoning") => self.reasoning(item),
            Some(_) => Ok(Vec::new()),
            None => Err(not_of_the_protocol("an item has no type")),
        }
    }

    /// The text of a message that arrived without deltas.
    fn message(&mut self, item: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let parts = item.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let text: String = parts.iter().filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str()).collect();
        self.budget.add(text.len())?;
        Ok(text_events(&text))
    }

    fn call(&mut self, place: u64, item: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let Call { call_id, name, arguments } =
            Call::deserialize(item).map_err(|error| not_of_the_protocol(&format!("a call: {error}")))?;
        let provider_id = call_id.unwrap_or_default();
        self.budget.add(provider_id.len() + name.len() + arguments.len())?;
        check_calls(self.calls.len())?;
        self.calls.insert(place, RequestedCall { provider_id, tool: name, arguments });
        Ok(Vec::new())
    }

    fn reasoning(&mut self, item: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let ReasoningItem { summary, content, encrypted_content } =
            ReasoningItem::deserialize(item).map_err(|error| not_of_the_protocol(&format!("a thought: {error}")))?;
        let texts = |parts: Option<Vec<Part>>| parts.unwrap_or_default().into_iter().filter_map(|part| part.text);
        let summary: Vec<String> = texts(summary).collect();
        let text = texts(content).collect::<String>();
        let sealed = encrypted_content.filter(|sealed| !sealed.is_empty());
        self.budget.add(summary.iter().map(String::len).sum::<usize>() + text.len() + sealed.as_ref().map_or(0, String::len))?;
        let reasoning = Reasoning { provider: REASONING_PROVIDER.to_owned(), summary, text, sealed };
        Ok(if reasoning.is_empty() { Vec::new() } else { vec![ModelEvent::Reasoning(reasoning)] })
    }

    /// Reads the last event. It repeats the whole response, so items that were not passed on before are taken from it.
    fn whole(&mut self, response: &Value) -> Result<Vec<ModelEvent>, ModelError> {
        let mut events = Vec::from_iter(self.name.report(response.get("model").and_then(Value::as_str)));
        let output = response.get("output").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (place, item) in output.iter().enumerate() {
            events.extend(self.item(Some(place as u64), item)?);
        }
        if let Some(usage) = response.get("usage").filter(|usage| !usage.is_null()) {
            let tokens = Tokens::deserialize(usage).map_err(|error| not_of_the_protocol(&format!("usage: {error}")))?;
            events.push(ModelEvent::Usage(tokens.into()));
        }
        if response.get("status").and_then(Value::as_str) == Some("incomplete") {
            let reason = response.get("incomplete_details").and_then(|details| details.get("reason")?.as_str());
            let finish = if reason == Some("content_filter") { Finish::Filtered } else { Finish::OutOfTokens };
            events.push(ModelEvent::Finish(finish));
        }
        self.progress = Progress::Whole;
        Ok(events)
    }
}

impl exchange::Answer for Answer {
    const KIND: &'static str = "response";
    const ENDS_BY_MARK: bool = false;

    fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let event: Value = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        let field = |key: &str| event.get(key).filter(|value| !value.is_null());
        let events = match field("type").and_then(Value::as_str) {
            Some("response.created" | "response.in_progress") => {
                let name = field("response").and_then(|response| response.get("model")?.as_str());
                self.name.report(name).into_iter().collect()
            }
            Some("response.output_text.delta" | "response.refusal.delta") => self.text_delta(&event)?,
            Some("response.output_item.done") => {
                let item = field("item").ok_or_else(|| not_of_the_protocol("an item that is done is not there"))?;
                self.item(place_of(&event), item)?
            }
            Some("response.completed" | "response.incomplete") => {
                self.whole(field("response").ok_or_else(|| not_of_the_protocol("the response is not there"))?)?
            }
            Some("response.failed") => {
                let tokens = field("response").and_then(|response| Tokens::deserialize(response.get("usage")?).ok());
                self.used = tokens.map(Usage::from);
                let error = field("response").and_then(|response| response.get("error")).unwrap_or(&event);
                return Err(Refused::Theirs(error.clone()));
            }
            Some("error") | None if field("error").is_some() => return Err(Refused::Theirs(event["error"].clone())),
            Some("error") => {
                // The `type` of the event must not be read as the type of the error.
                let mut error = event.clone();
                error["type"] = Value::Null;
                return Err(Refused::Theirs(error));
            }
            Some(_) => Vec::new(),
            None => return Err(not_of_the_protocol("an event has no type").into()),
        };
        self.progress = self.progress.max(Progress::Begun);
        Ok(events)
    }

    fn take_whole(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused> {
        let response: Value = serde_json::from_str(json).map_err(|error| not_of_the_protocol(&error.to_string()))?;
        match response.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(Refused::Theirs(error.clone())),
            None if !response.get("output").is_some_and(Value::is_array) => Ok(Vec::new()),
            None => Ok(self.whole(&response)?),
        }
    }

    fn used(&self) -> Option<Usage> {
        self.used
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn end(&mut self) -> Result<Vec<ModelEvent>, ModelError> {
        let whole = |(position, mut call): (usize, RequestedCall)| {
            if call.tool.is_empty() {
                return Err(not_of_the_protocol("a call names no tool"));
            }
            if call.provider_id.is_empty() {
                call.provider_id = format!("call_{}_{position}", self.iteration);
            }
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            }
            Ok(ModelEvent::Call(call))
        };
        std::mem::take(&mut self.calls).into_values().enumerate().map(whole).collect()
    }
}

fn text_events(text: &str) -> Vec<ModelEvent> {
    if text.is_empty() { Vec::new() } else { vec![ModelEvent::Text(text.to_owned())] }
}

fn place_of(event: &Value) -> Option<u64> {
    event.get("output_index")?.as_u64()
}

fn not_of_the_protocol(why: &str) -> ModelError {
    failure::garbage(format!("the upstream sent something that is no response: {}", failure::presentable(why, [])))
}

#[derive(Deserialize)]
struct Call {
    call_id: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct ReasoningItem {
    summary: Option<Vec<Part>>,
    content: Option<Vec<Part>>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        Usage {
            tokens_in: tokens.input_tokens.unwrap_or(0),
            tokens_out: tokens.output_tokens.unwrap_or(0),
            cached: tokens.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            cache_written: 0,
            reasoning: tokens.output_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
        }
    }
}
