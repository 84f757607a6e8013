//! From stored items to what a model reads: the whole conversation, in order.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use windlass_kernel::{
    CallKey, CallNumber, ItemKind, Manifest, Remote, RequestedCall, SUBMIT_RESULT,
    content::{Call, CallResult, Deliverable, Instruction, Reasoning, Thought},
    submit_result_schema,
};
use windlass_ports::{Item, ModelMessage, ModelTool};

use crate::compaction;

/// The messages that the items of a context amount to. An item that cannot be read is passed on as text rather than lost. Where it
/// was summed up, the newest words of its people stay beside the summary, up to so many bytes. Tools have the names that the manifest
/// gives them.
pub(crate) fn messages(items: &[Item], manifest: &Manifest, kept_bytes_max: usize) -> Vec<ModelMessage> {
    let mut prompt = Prompt::new(manifest, kept_bytes_max);
    for item in items {
        prompt.add(item);
    }
    prompt.finish()
}

/// The tools a run's model sees.
pub(crate) fn tools(manifest: &Manifest) -> Arc<[ModelTool]> {
    let declared = manifest.tools.iter().map(|tool| ModelTool {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        strict: tool.strict,
    });
    let built_in = (!manifest.result_fields.is_empty()).then(|| ModelTool {
        name: SUBMIT_RESULT.into(),
        description: "Hands in the result of the task. Call it once, alone, when you are done.".into(),
        parameters: submit_result_schema(&manifest.result_fields),
        strict: None,
    });
    declared.chain(built_in).collect()
}

/// What a call is told that nobody answered.
const NO_OUTPUT: &str = "error: no output given for this call";

struct Prompt<'a> {
    manifest: &'a Manifest,
    turns: Vec<Turn>,
    /// Thoughts of the turn that is about to come. Those that nothing came of are not told: providers refuse them.
    thoughts: Vec<Reasoning>,
    /// Where the calls of a run are, by number: numbers are a run's own, so a later run's call takes the place of an earlier one's.
    numbered: BTreeMap<CallNumber, Place>,
    /// Where calls are that a client repeats, by the id it knows.
    named: BTreeMap<String, Place>,
    /// The turns of laps whose calls a client repeats, by what the calls of one lap have in common.
    laps: BTreeMap<String, usize>,
    /// The turn of a server's call that nobody knows the lap of, if such a one was the last item.
    served: Option<usize>,
    /// How much of what people said stays beside a summary.
    kept_bytes_max: usize,
}

/// One turn of the conversation. Results are kept beside the calls they answer, wherever they came: providers want them there.
enum Turn {
    Other(ModelMessage),
    Summary(String),
    Assistant { reasoning: Vec<Reasoning>, text: String, calls: Vec<RequestedCall>, outputs: Vec<Option<String>> },
}

/// A call: which turn, and which of its calls.
#[derive(Clone, Copy)]
struct Place {
    turn: usize,
    call: usize,
}

impl<'a> Prompt<'a> {
    fn new(manifest: &'a Manifest, kept_bytes_max: usize) -> Self {
        Prompt {
            manifest,
            turns: Vec::new(),
            thoughts: Vec::new(),
            numbered: BTreeMap::new(),
            named: BTreeMap::new(),
            laps: BTreeMap::new(),
            served: None,
            kept_bytes_max,
        }
    }

    fn add(&mut self, item: &Item) {
        let served = self.served.take();
        if self.add_known(item, served).is_none() {
            self.other(ModelMessage::User(String::from_utf8_lossy(&item.content).into_owned()));
        }
    }

    /// `None` if the content is not of the shape its kind says.
    fn add_known(&mut self, item: &Item, served: Option<usize>) -> Option<()> {
        let bytes = &item.content;
        match item.kind {
            ItemKind::Instruction => match serde_json::from_slice(bytes).ok()? {
                Instruction::Text(text) => self.other(ModelMessage::User(text)),
                Instruction::Item(raw) => self.wire_item(serde_json::from_str(raw.get()).ok()?, served),
                Instruction::Made { item, tool, lap, told } => {
                    self.made(&serde_json::from_str(item.get()).ok()?, &tool, lap, told);
                }
                Instruction::Aside(_) => {}
                Instruction::Compaction { summary, .. } => self.turn(Turn::Summary(summary)),
                Instruction::Summary(summary) => self.sum_up(summary),
            },
            // The model sees the wanted fields as the parameters of `submit_result`.
            ItemKind::ResultFields => {}
            ItemKind::Thought => match serde_json::from_slice(bytes).ok()? {
                Thought { text, reasoning } if reasoning.is_empty() => self.say(text),
                // A later try of the lap had other thoughts: only the last one's led to anything.
                Thought { reasoning, .. } => self.thoughts = reasoning,
            },
            ItemKind::Call => self.own_call(serde_json::from_slice(bytes).ok()?),
            ItemKind::Result => self.own_result(&serde_json::from_slice(bytes).ok()?),
            ItemKind::Deliverable => match serde_json::from_slice(bytes).ok()? {
                Deliverable::Text(text) if text.is_empty() => {}
                Deliverable::Text(text) => self.say(text),
                Deliverable::Summary(summary) => self.sum_up(summary),
                Deliverable::Fields(_) => self.say(String::from_utf8_lossy(bytes).into_owned()),
            },
        }
        Some(())
    }

    /// An item of the caller's own. What speaks of calls is put where calls are.
    fn wire_item(&mut self, item: Value, served: Option<usize>) {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        match text("type") {
            Some("function_call" | "custom_tool_call") => {
                let (Some(id), Some(tool)) = (text("call_id"), text("name")) else { return self.other(ModelMessage::UserItem(item)) };
                // What a client takes as a text is the one argument of what models have.
                let wrapped = text("input").map(|input| json!({ "input": input }).to_string());
                let arguments = text("arguments").or(wrapped.as_deref()).unwrap_or_default();
                let (id, requested) = (id.to_owned(), requested(id, tool, arguments));
                let place = self.call(requested);
                self.named.insert(id, place);
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let place = text("call_id").and_then(|id| self.answered(id));
                match (place, item.get("output")) {
                    (Some(place), Some(output)) => self.answer(place, wire_text(output)),
                    _ => self.other(ModelMessage::UserItem(item)),
                }
            }
            Some("mcp_call") => {
                let Some(name) = text("name") else { return };
                let tool = self.known_as(text("server_label").unwrap_or_default(), name);
                // Nobody knows its lap: calls that stand together were made together.
                self.served = self.served_call(&item, &tool, None, served);
            }
            Some("reasoning") => self.thoughts.extend(reasoning_of(&item)),
            Some("message") | None => match assistant_text(&item) {
                Some(words) => self.say(words),
                None => self.other(ModelMessage::UserItem(item)),
            },
            Some(_) => self.other(ModelMessage::UserItem(item)),
        }
    }

    /// A call that an earlier run made: beside the others of its lap, whatever stands between.
    fn made(&mut self, item: &Value, tool: &str, lap: String, told: Option<String>) {
        let beside = self.laps.get(&lap).copied();
        if let Some(turn) = self.served_call(item, tool, told, beside) {
            self.laps.insert(lap, turn);
        }
    }

    /// A call and its result in one, in a turn of others if it belongs there. Returns the turn.
    fn served_call(&mut self, item: &Value, tool: &str, told: Option<String>, beside: Option<usize>) -> Option<usize> {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let said = || text("error").map(|error| format!("error: {error}")).or_else(|| text("output").map(str::to_owned));
        let output = told.or_else(said).unwrap_or_else(|| NO_OUTPUT.to_owned());
        let requested = requested(text("id")?, tool, text("arguments").unwrap_or_default());
        let place = match beside {
            Some(turn) => self.call_in(turn, requested),
            None => self.call(requested),
        };
        self.answer(place, output);
        Some(place.turn)
    }

    /// The name that the run's model knows a server's tool by.
    fn known_as(&self, label: &str, name: &str) -> String {
        let is_it = |remote: &Remote| remote.server == label && remote.name == name;
        let tool = self.manifest.tools.iter().find(|tool| tool.remote.as_ref().is_some_and(is_it));
        tool.map_or_else(|| name.to_owned(), |tool| tool.name.to_string())
    }

    fn other(&mut self, message: ModelMessage) {
        self.turn(Turn::Other(message));
    }

    fn turn(&mut self, turn: Turn) {
        self.thoughts.clear();
        self.turns.push(turn);
    }

    /// A summary stands for all that was said, but for the newest words of people, and for what was said to the model above them.
    fn sum_up(&mut self, summary: String) {
        let mut room = self.kept_bytes_max;
        let mut kept: Vec<Turn> = Vec::new();
        for turn in std::mem::take(&mut self.turns).into_iter().rev() {
            let Turn::Other(message) = &turn else { continue };
            if !compaction::is_rule(message) {
                // What does not fit ends it: without it, what is older would be misleading.
                let Some(left) = room.checked_sub(compaction::bytes(message)) else {
                    room = 0;
                    continue;
                };
                room = left;
            }
            kept.push(turn);
        }
        kept.reverse();
        self.turns = kept;
        self.numbered.clear();
        self.named.clear();
        self.laps.clear();
        self.turn(Turn::Summary(summary));
    }

    fn say(&mut self, text: String) {
        let reasoning = std::mem::take(&mut self.thoughts);
        self.turns.push(Turn::Assistant { reasoning, text, calls: Vec::new(), outputs: Vec::new() });
    }

    /// A call of a run's own. One that it took over stands already, in the turn of the run that left it behind.
    fn own_call(&mut self, call: Call) {
        let taken = call.takes.and_then(|number| self.numbered.get(&number).copied());
        let place = match taken {
            Some(place) => place,
            None => self.call(RequestedCall { provider_id: call.provider_id, tool: call.tool, arguments: call.arguments }),
        };
        self.numbered.insert(call.call, place);
    }

    /// Calls made in one breath stand in one turn, with the words before them.
    fn call(&mut self, requested: RequestedCall) -> Place {
        let is_open = |turn: &Turn| matches!(turn, Turn::Assistant { outputs, .. } if outputs.iter().all(Option::is_none));
        if !self.thoughts.is_empty() || !self.turns.last().is_some_and(is_open) {
            self.say(String::new());
        }
        self.call_in(self.turns.len() - 1, requested)
    }

    fn call_in(&mut self, turn: usize, requested: RequestedCall) -> Place {
        let Some(Turn::Assistant { calls, outputs, .. }) = self.turns.get_mut(turn) else { return Place { turn, call: 0 } };
        calls.push(requested);
        outputs.push(None);
        Place { turn, call: calls.len() - 1 }
    }

    fn own_result(&mut self, result: &CallResult<'_>) {
        let output = result.told();
        match self.numbered.get(&result.call).copied() {
            Some(place) => self.answer(place, output),
            None => self.other(ModelMessage::User(output)),
        }
    }

    /// The call a client's output is about: one it repeated, or one of ours by the id we gave it.
    fn answered(&self, id: &str) -> Option<Place> {
        self.named.get(id).or_else(|| self.numbered.get(&id.parse::<CallKey>().ok()?.call)).copied()
    }

    fn answer(&mut self, place: Place, output: String) {
        if let Some(Turn::Assistant { outputs, .. }) = self.turns.get_mut(place.turn)
            && let Some(slot) = outputs.get_mut(place.call)
        {
            *slot = Some(output);
        }
    }

    fn finish(self) -> Vec<ModelMessage> {
        let mut messages = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            match turn {
                Turn::Other(message) => messages.push(message),
                Turn::Summary(summary) => messages.push(compaction::told(&summary)),
                Turn::Assistant { reasoning, text, calls, outputs } => {
                    let results: Vec<ModelMessage> = calls.iter().zip(outputs).map(|(call, output)| result(call, output)).collect();
                    messages.push(ModelMessage::Assistant { reasoning, text, calls });
                    messages.extend(results);
                }
            }
        }
        messages
    }
}

/// A thought that a client sends back: whose it is stands before what is sealed.
fn reasoning_of(item: &Value) -> Option<Reasoning> {
    let (provider, sealed) = item.get("encrypted_content")?.as_str()?.split_once(':')?;
    let parts = item.get("summary").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let summary = parts.iter().filter_map(|part| part.get("text")?.as_str().map(str::to_owned)).collect();
    Some(Reasoning { provider: provider.to_owned(), summary, text: String::new(), sealed: Some(sealed.to_owned()) })
}

fn requested(id: &str, tool: &str, arguments: &str) -> RequestedCall {
    RequestedCall { provider_id: id.to_owned(), tool: tool.to_owned(), arguments: arguments.to_owned() }
}

fn result(call: &RequestedCall, output: Option<String>) -> ModelMessage {
    let output = output.unwrap_or_else(|| NO_OUTPUT.to_owned());
    ModelMessage::ToolResult { provider_id: call.provider_id.clone(), tool: call.tool.clone(), output }
}

/// The words of an assistant's message that is words all through.
fn assistant_text(item: &Value) -> Option<String> {
    if item.get("role")?.as_str()? != "assistant" {
        return None;
    }
    match item.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(part_text).collect::<Option<Vec<&str>>>().map(|texts| texts.concat()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn part_text(part: &Value) -> Option<&str> {
    part.get("text").or_else(|| part.get("refusal"))?.as_str()
}

/// What a client says a call brought: a text, or parts, whose texts count if there is nothing else.
fn wire_text(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(part_text).collect();
            texts.map_or_else(|| output.to_string(), |texts| texts.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => output.to_string(),
    }
}
