//! The prompt: the messages that a model reads, made from the items of the whole conversation in order.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use windlass_kernel::{
    CallKey, CallNumber, ItemKind, Manifest, Remote, RequestedCall, SUBMIT_RESULT,
    content::{Call, CallResult, Deliverable, Instruction, Reasoning, Thought},
    header::{Arguments, ItemHeader, Outcome, Output, Role},
    submit_result_schema,
};
use windlass_ports::{Item, ModelMessage, ModelTool};

use crate::compaction;

/// The messages of a context's items. Items from outside are read by their headers. An item that cannot be read is passed on as text rather
/// than lost. After a compaction, the newest messages of users are kept beside the summary, up to `kept_bytes_max` bytes. Tools have the
/// names that the manifest gives them.
pub(crate) fn messages(items: &[Item], manifest: &Manifest, kept_bytes_max: usize) -> Vec<ModelMessage> {
    let mut prompt = Prompt::new(manifest, kept_bytes_max);
    for item in items {
        prompt.add(item);
    }
    prompt.finish()
}

/// The tools that a run's model can call.
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

/// The output given to the model for a call without a result.
const NO_OUTPUT: &str = "error: no output given for this call";

struct Prompt<'a> {
    manifest: &'a Manifest,
    turns: Vec<Turn>,
    /// The reasoning of the turn that comes next. Reasoning that no text or call follows is left out, because providers refuse it.
    pending_reasoning: Vec<Reasoning>,
    /// The position of each call of a run, by its number. Numbers are unique within one run, so a later run's call replaces an earlier
    /// one's.
    numbered: BTreeMap<CallNumber, CallPosition>,
    /// The positions of calls that a client repeats in its input, by the ids that the client uses.
    named: BTreeMap<String, CallPosition>,
    /// The turns of iterations whose calls a client repeats, by the key that the calls of one iteration have in common.
    turn_of_iteration: BTreeMap<String, usize>,
    /// The turn of the last item, if that is a server's call whose iteration is unknown.
    served: Option<usize>,
    /// How many bytes of users' messages are kept beside a summary.
    kept_bytes_max: usize,
}

/// One turn of the conversation. Results are kept beside the calls they answer, wherever they came, because providers require them there.
enum Turn {
    Other(ModelMessage),
    Summary(String),
    Assistant { reasoning: Vec<Reasoning>, text: String, calls: Vec<RequestedCall>, outputs: Vec<Option<String>> },
}

/// The position of a call: its turn, and its index among the turn's calls.
#[derive(Clone, Copy)]
struct CallPosition {
    turn: usize,
    call: usize,
}

impl<'a> Prompt<'a> {
    fn new(manifest: &'a Manifest, kept_bytes_max: usize) -> Self {
        Prompt {
            manifest,
            turns: Vec::new(),
            pending_reasoning: Vec::new(),
            numbered: BTreeMap::new(),
            named: BTreeMap::new(),
            turn_of_iteration: BTreeMap::new(),
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

    /// Adds an item. `None` if the content does not have the shape of its kind.
    fn add_known(&mut self, item: &Item, served: Option<usize>) -> Option<()> {
        let bytes = &item.content;
        match item.kind {
            ItemKind::Instruction => match serde_json::from_slice(bytes).ok()? {
                Instruction::Text(text) => self.other(ModelMessage::User(text)),
                Instruction::Item(_) => self.outside_item(item.header.as_ref()?.read(bytes)?, served),
                Instruction::Made { tool, iteration_key, model_output, .. } => {
                    if let ItemHeader::ServerCall { id, arguments, outcome, .. } = item.header.as_ref()?.read(bytes)? {
                        let requested = requested(id, tool, arguments.unwrap_or_default());
                        let output = model_output.or_else(|| outcome.map(outcome_text));
                        self.add_earlier_call(requested, iteration_key, output);
                    }
                }
                Instruction::Aside(_) => {}
                Instruction::Compaction { summary, .. } => self.turn(Turn::Summary(summary)),
                Instruction::Summary(summary) => self.sum_up(summary),
            },
            // The model sees the requested fields as the parameters of `submit_result`.
            ItemKind::ResultFields => {}
            ItemKind::Thought => match serde_json::from_slice(bytes).ok()? {
                Thought { text, reasoning } if reasoning.is_empty() => self.add_text(text),
                // A later attempt of the iteration replaces the reasoning of the one before: only the last one led to an answer.
                Thought { reasoning, .. } => self.pending_reasoning = reasoning,
            },
            ItemKind::Call => self.own_call(serde_json::from_slice(bytes).ok()?),
            ItemKind::Result => self.own_result(&serde_json::from_slice(bytes).ok()?),
            ItemKind::Deliverable => match serde_json::from_slice(bytes).ok()? {
                Deliverable::Text(text) if text.is_empty() => {}
                Deliverable::Text(text) => self.add_text(text),
                Deliverable::Summary(summary) => self.sum_up(summary),
                Deliverable::Fields(_) => self.add_text(String::from_utf8_lossy(bytes).into_owned()),
            },
        }
        Some(())
    }

    /// An item from outside. Calls and their outputs become calls and results of the prompt.
    fn outside_item(&mut self, item: ItemHeader<String, Value>, served: Option<usize>) {
        match item {
            ItemHeader::Call { id, tool, arguments } => {
                let arguments = match arguments {
                    Some(Arguments::Json(arguments)) => arguments,
                    Some(Arguments::Text(name, text)) => json!({ name: text }).to_string(),
                    None => String::new(),
                };
                let position = self.call(requested(id.clone(), tool, arguments));
                self.named.insert(id, position);
            }
            ItemHeader::Result { call, output, item } => {
                let output = match output {
                    Output::Texts(texts) => texts.join("\n"),
                    Output::Json(json) => json.to_string(),
                };
                match self.answered(&call) {
                    Some(position) => self.answer(position, output),
                    None => self.other(ModelMessage::StrayOutput { call, output, item }),
                }
            }
            ItemHeader::ServerCall { id, server, tool, arguments, outcome } => {
                let tool = self.known_as(&server.unwrap_or_default(), &tool.unwrap_or_default());
                let requested = requested(id, tool, arguments.unwrap_or_default());
                // The iteration of the call is unknown: adjacent calls are taken to belong to the same one.
                self.served = Some(self.served_call(requested, outcome.map(outcome_text), served));
            }
            ItemHeader::Reasoning { provider, summary, sealed } => {
                self.pending_reasoning.push(Reasoning { provider, summary, text: String::new(), sealed: Some(sealed) });
            }
            ItemHeader::Message { role, content } => {
                let own_text = if role == Role::Assistant { content.texts().map(|texts| texts.concat()) } else { None };
                match own_text {
                    Some(text) => self.add_text(text),
                    None => self.other(ModelMessage::Message { role, content }),
                }
            }
            ItemHeader::Hidden => {}
            ItemHeader::Other(item) => self.other(ModelMessage::Other(item)),
        }
    }

    /// Adds a call that an earlier run made to the turn of its iteration, whatever items are between them.
    fn add_earlier_call(&mut self, requested: RequestedCall, iteration: String, output: Option<String>) {
        let beside = self.turn_of_iteration.get(&iteration).copied();
        let turn = self.served_call(requested, output, beside);
        self.turn_of_iteration.insert(iteration, turn);
    }

    /// Adds a call and its result at once, to the turn `beside` if it is given. Returns the turn.
    fn served_call(&mut self, requested: RequestedCall, output: Option<String>, beside: Option<usize>) -> usize {
        let position = match beside {
            Some(turn) => self.call_in(turn, requested),
            None => self.call(requested),
        };
        self.answer(position, output.unwrap_or_else(|| NO_OUTPUT.to_owned()));
        position.turn
    }

    /// The name by which the run's model knows a server's tool.
    fn known_as(&self, label: &str, name: &str) -> String {
        let is_it = |remote: &Remote| remote.server == label && remote.name == name;
        let tool = self.manifest.tools.iter().find(|tool| tool.remote.as_ref().is_some_and(is_it));
        tool.map_or_else(|| name.to_owned(), |tool| tool.name.to_string())
    }

    fn other(&mut self, message: ModelMessage) {
        self.turn(Turn::Other(message));
    }

    fn turn(&mut self, turn: Turn) {
        self.pending_reasoning.clear();
        self.turns.push(turn);
    }

    /// Replaces the turns so far by a summary. The newest messages of users, and all system and developer messages, are kept.
    fn sum_up(&mut self, summary: String) {
        let mut room = self.kept_bytes_max;
        let mut kept: Vec<Turn> = Vec::new();
        for turn in std::mem::take(&mut self.turns).into_iter().rev() {
            let Turn::Other(message) = &turn else { continue };
            if !compaction::is_system_message(message) {
                // The first message that does not fit ends the list: older ones would be misleading without it.
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
        self.turn_of_iteration.clear();
        self.turn(Turn::Summary(summary));
    }

    fn add_text(&mut self, text: String) {
        let reasoning = std::mem::take(&mut self.pending_reasoning);
        self.turns.push(Turn::Assistant { reasoning, text, calls: Vec::new(), outputs: Vec::new() });
    }

    /// Adds a call of the run itself. An inherited call is present already, in the turn of the run that made it. A call that a person changed
    /// replaces the model's.
    fn own_call(&mut self, call: Call) {
        if let Some(position) = self.numbered.get(&call.call).filter(|_| call.edited).copied() {
            if let Some(Turn::Assistant { calls, .. }) = self.turns.get_mut(position.turn)
                && let Some(model_call) = calls.get_mut(position.call)
            {
                model_call.arguments = call.arguments;
            }
            return;
        }
        let taken = call.takes.and_then(|number| self.numbered.get(&number).copied());
        let position = match taken {
            Some(position) => position,
            None => self.call(RequestedCall { provider_id: call.provider_id, tool: call.tool, arguments: call.arguments }),
        };
        self.numbered.insert(call.call, position);
    }

    /// Adds a call to the last turn if that has no results yet, because parallel calls belong to one turn, with the text before them.
    fn call(&mut self, requested: RequestedCall) -> CallPosition {
        let is_open = |turn: &Turn| matches!(turn, Turn::Assistant { outputs, .. } if outputs.iter().all(Option::is_none));
        if !self.pending_reasoning.is_empty() || !self.turns.last().is_some_and(is_open) {
            self.add_text(String::new());
        }
        self.call_in(self.turns.len() - 1, requested)
    }

    fn call_in(&mut self, turn: usize, requested: RequestedCall) -> CallPosition {
        let Some(Turn::Assistant { calls, outputs, .. }) = self.turns.get_mut(turn) else { return CallPosition { turn, call: 0 } };
        calls.push(requested);
        outputs.push(None);
        CallPosition { turn, call: calls.len() - 1 }
    }

    fn own_result(&mut self, result: &CallResult<'_>) {
        let output = result.model_output();
        match self.numbered.get(&result.call).copied() {
            Some(position) => self.answer(position, output),
            None => self.other(ModelMessage::User(output)),
        }
    }

    /// The call that a client's output belongs to: one that the client repeated, or one of ours by the id that we gave it.
    fn answered(&self, id: &str) -> Option<CallPosition> {
        self.named.get(id).or_else(|| self.numbered.get(&id.parse::<CallKey>().ok()?.call)).copied()
    }

    fn answer(&mut self, position: CallPosition, output: String) {
        if let Some(Turn::Assistant { outputs, .. }) = self.turns.get_mut(position.turn)
            && let Some(slot) = outputs.get_mut(position.call)
        {
            *slot = Some(output);
        }
    }

    fn finish(self) -> Vec<ModelMessage> {
        let mut messages = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            match turn {
                Turn::Other(message) => messages.push(message),
                Turn::Summary(summary) => messages.push(compaction::summary_message(&summary)),
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

fn requested(id: String, tool: String, arguments: String) -> RequestedCall {
    RequestedCall { provider_id: id, tool, arguments }
}

/// The output that models read of a server's call.
fn outcome_text(outcome: Outcome<String>) -> String {
    match outcome {
        Outcome::Output(output) => output,
        Outcome::Error(error) => format!("error: {error}"),
    }
}

fn result(call: &RequestedCall, output: Option<String>) -> ModelMessage {
    let output = output.unwrap_or_else(|| NO_OUTPUT.to_owned());
    ModelMessage::ToolResult { provider_id: call.provider_id.clone(), tool: call.tool.clone(), output }
}
