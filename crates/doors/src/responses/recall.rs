//! Restores the parts of earlier responses that an input refers to or lacks.
//!
//! References are replaced by their items. Calls that the server made are put back where they were: some clients leave them out when they
//! send the conversation again, because they do not know that type of item.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use windlass_kernel::{CallKey, CallNumber, ItemKind, RunId, TaskStatus, content};
use windlass_ports::{Passage, RunView};

use super::{
    chain::reference,
    compaction::Sealer,
    error::WireError,
    items::place_of,
    left::{Lap, Order, Spot},
    note::{Note, Spelling},
    project::{Projection, made_call},
    retrieve::wire_input,
};
use crate::{
    DoorState,
    auth::Caller,
    limits::{EVENTS_PAGE, RECALLED_BODIES_MAX},
};

/// What was read of the responses whose items are in an input.
#[derive(Default)]
pub(super) struct Recalled {
    /// The calls at the end of each response that waits for its client.
    pub laps: Vec<(RunId, Lap)>,
    /// The last response with output in the input.
    pub last: Option<RunId>,
    /// The server's calls that are in the input, by their indices.
    pub made: BTreeMap<usize, MadeCall>,
    /// The server's calls that the client left out.
    pub dropped: Vec<Dropped>,
}

/// A call that the server made for an earlier response, as the model saw it.
#[derive(Clone)]
pub(super) struct MadeCall {
    pub tool: String,
    /// The key of the first call of its iteration, which groups the calls of one iteration.
    pub lap: String,
    /// The output that the model got; `None` if it is the output or error of the item.
    pub told: Option<String>,
}

/// A call of the server that the client left out.
pub(super) struct Dropped {
    pub run: RunId,
    pub spot: Spot,
    pub item: Value,
    pub made: MadeCall,
    /// Whether this response inherited it from an earlier one that had deferred it.
    pub is_taken: bool,
}

/// Reads the responses whose items are in the input, one after the other, and replaces references by their items. Nothing else is restored
/// of `parent`, the response that the request continues: its whole output is in the history already.
pub(super) async fn recall(state: &DoorState, caller: &Caller, parent: Option<RunId>, items: &mut [Value]) -> Result<Recalled, WireError> {
    let mut recalled = Recalled::default();
    let mut memory = Memory { state, caller, bytes: 0 };
    for (run, spoken) in spoken_of(items)? {
        let is_parent = Some(run) == parent;
        if is_parent && spoken.referred.is_empty() {
            continue;
        }
        if let Some(past) = memory.read(run, &spoken, is_parent, items).await? {
            recalled.take(&mut memory, run, past, &spoken, items)?;
        }
    }
    Ok(recalled)
}

/// The items of one response that an input has or refers to.
#[derive(Default)]
struct Spoken {
    /// Indices of references to items of its input or output, with the ids.
    referred: Vec<(usize, String)>,
    /// Indices of items of its output that the client sent itself.
    own: Vec<usize>,
}

impl Spoken {
    fn inputs(&self) -> impl Iterator<Item = &(usize, String)> {
        self.referred.iter().filter(|(_, id)| id.starts_with("in_"))
    }

    fn outputs(&self) -> impl Iterator<Item = &(usize, String)> {
        self.referred.iter().filter(|(_, id)| !id.starts_with("in_"))
    }
}

/// The responses whose items are in an input, in order of appearance.
fn spoken_of(items: &[Value]) -> Result<Vec<(RunId, Spoken)>, WireError> {
    let mut order: BTreeMap<RunId, usize> = BTreeMap::new();
    let mut all: Vec<(RunId, Spoken)> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let referred = reference(item);
        let run = match referred {
            Some(id) => Some(place_of(id).ok_or_else(|| unknown(place, id))?.0),
            None => run_of_item(item),
        };
        let Some(run) = run else { continue };
        let index = *order.entry(run).or_insert(all.len());
        if index == all.len() {
            all.push((run, Spoken::default()));
        }
        let spoken = &mut all[index].1;
        match referred {
            Some(id) => spoken.referred.push((place, id.to_owned())),
            None => spoken.own.push(place),
        }
    }
    Ok(all)
}

fn unknown(place: usize, id: &str) -> WireError {
    let message = format!("Item with id '{id}' not found. Only items of stored responses can be referred to.");
    WireError::invalid(format!("input[{place}].id"), message).named("item_not_found")
}

/// The run whose output has this item, by the id of its call or its own id, which clients may leave out.
fn run_of_item(item: &Value) -> Option<RunId> {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    let (prefixes, has_key): (&[&str], bool) = match text("type")? {
        "message" => (&["msg_"], false),
        "reasoning" => (&["rs_"], false),
        "mcp_call" => (&["mcp_"], false),
        "function_call" | "custom_tool_call" => (&["fc_", "ctc_"], true),
        _ => return None,
    };
    let key = text("call_id").filter(|_| has_key).and_then(|id| id.parse::<CallKey>().ok());
    let id = text("id").filter(|id| prefixes.iter().any(|prefix| id.starts_with(prefix)));
    key.map(|key| key.run).or_else(|| Some(place_of(id?)?.0))
}

/// An earlier response, as its journal was replayed.
struct Past {
    is_over: bool,
    output: Vec<Value>,
    calls: BTreeMap<CallNumber, PastCall>,
    lap: Option<Lap>,
}

/// A call of the server in an earlier response.
struct PastCall {
    index: usize,
    made: MadeCall,
    is_taken: bool,
    has_result: bool,
}

/// Replays earlier responses, within a limit of bytes for one request.
struct Memory<'a> {
    state: &'a DoorState,
    caller: &'a Caller,
    /// The size of the items that were restored so far.
    bytes: usize,
}

impl Memory<'_> {
    /// Counts an item that stays in memory until the request is stored. Fails if all of them together are too large.
    fn keep(&mut self, item: &Value) -> Result<(), WireError> {
        self.bytes += item.to_string().len();
        let bytes_max = self.state.limits.body_bytes_max.saturating_mul(RECALLED_BODIES_MAX);
        if self.bytes <= bytes_max {
            return Ok(());
        }
        let message = format!(
            "what the input brings back of earlier responses is larger than {bytes_max} bytes; send `previous_response_id` instead"
        );
        Err(WireError::invalid("input", message).named("input_too_large"))
    }

    /// Reads a response, and replaces the references to it in `items`. `None` if nothing of it can be put back.
    async fn read(&mut self, run: RunId, spoken: &Spoken, is_parent: bool, items: &mut [Value]) -> Result<Option<Past>, WireError> {
        let view = self.state.engine.views().run(self.caller.tenant(), run).await?;
        let known = view.and_then(|view| Some((Note::read(view.note.as_ref()?)?, view)));
        let known = known.filter(|(note, _)| note.store || spoken.referred.is_empty());
        let Some((note, view)) = known else {
            return spoken.referred.first().map_or(Ok(None), |(place, id)| Err(unknown(*place, id)));
        };
        let lap = if is_parent { None } else { Lap::of(self.state, self.caller, &view).await? };
        let mut past = Past { is_over: view.state.has_ended(), output: Vec::new(), calls: BTreeMap::new(), lap };
        for (place, id) in spoken.inputs() {
            let index = place_of(id).map_or(usize::MAX, |(_, index)| index);
            let item = self.input_item(&view, index).await?.ok_or_else(|| unknown(*place, id))?;
            self.keep(&item)?;
            items[*place] = item;
        }
        // A response without calls has nothing that a client leaves out.
        if spoken.outputs().next().is_some() || (view.state.calls_used > 0 && !is_parent) {
            self.tell(view, note, &mut past).await?;
        }
        for (place, id) in spoken.outputs() {
            let index = place_of(id).map_or(usize::MAX, |(_, index)| index);
            let item = past.output.get(index).filter(|item| item["id"] == id.as_str()).ok_or_else(|| unknown(*place, id))?;
            self.keep(item)?;
            items[*place] = item.clone();
        }
        Ok((!is_parent).then_some(past))
    }

    async fn input_item(&self, view: &RunView, index: usize) -> Result<Option<Value>, WireError> {
        let position = u32::try_from(index).unwrap_or(u32::MAX);
        if position >= view.state.context.length {
            return Ok(None);
        }
        let items = self.state.engine.views().box_items(self.caller.tenant(), view.state.context.id, position, 1).await?;
        Ok(items.first().and_then(|item| wire_input(view.id, index, item)))
    }

    /// Replays the journal of a response page by page, and collects its output and its calls in `past`.
    async fn tell(&self, view: RunView, note: Note, past: &mut Past) -> Result<(), WireError> {
        // The restored items go to the provider, which needs its encrypted reasoning even if the client did not ask to see it.
        let spelling = Spelling { sealed: true, ..note.spelling };
        let (note, manifest) = (Arc::new(Note { spelling, ..note }), Arc::new(view.manifest));
        let sealer = Sealer::new(self.state, self.caller.tenant());
        let mut told = Projection::new(view.id, note, manifest, view.created_at, sealer, false);
        loop {
            let so_far = told.run.clone();
            let passages = self.state.engine.views().passages(self.caller.tenant(), view.id, so_far, EVENTS_PAGE).await?;
            for passage in &passages {
                told.take(passage);
                past.take(view.id, passage, &told);
            }
            if passages.len() < EVENTS_PAGE {
                break;
            }
        }
        past.output = told.output;
        Ok(())
    }
}

impl Past {
    /// Records the calls and the result of a passage that the projection has just taken.
    fn take(&mut self, run: RunId, passage: &Passage, told: &Projection) {
        let mut lap = None;
        for call in passage.appended.iter().filter_map(made_call) {
            let Some(index) = told.shown_at(call.call) else { continue };
            let first: CallNumber = *lap.get_or_insert(call.call);
            let made = MadeCall { tool: call.tool, lap: CallKey { run, call: first }.to_string(), told: None };
            self.calls.insert(call.call, PastCall { index, made, is_taken: call.takes.is_some(), has_result: false });
        }
        let Some(item) = passage.result.as_ref().filter(|item| item.kind == ItemKind::Result) else { return };
        let Ok(result) = serde_json::from_slice::<content::CallResult<'_>>(&item.content) else { return };
        if let Some(call) = self.calls.get_mut(&result.call) {
            call.has_result = true;
            // The item of a failed call has only the error's message.
            call.made.told = (result.status != TaskStatus::Success).then(|| result.told());
        }
    }

    /// The response's items in the input: for each index in the input, the index in the output.
    fn anchors(&self, spoken: &Spoken, items: &[Value]) -> BTreeMap<usize, usize> {
        let referred = spoken.outputs().map(|(place, _)| place);
        let known = spoken.own.iter().chain(referred).filter_map(|place| Some((*place, self.index_of(&items[*place])?)));
        let mut anchors: BTreeMap<usize, usize> = known.collect();
        let theirs: Vec<(usize, usize)> = anchors.iter().map(|(place, index)| (*place, *index)).collect();
        for (place, index) in theirs {
            self.find_nameless(place, index, items, &mut anchors);
        }
        anchors
    }

    fn index_of(&self, item: &Value) -> Option<usize> {
        let has = |key: &str, ours: &Value| item.get(key).is_some_and(|given| given.is_string() && given == &ours[key]);
        self.output.iter().position(|ours| has("id", ours) || (has("call_id", ours) && ours["type"] == item["type"]))
    }

    /// Finds items that the client sent without an id, as some do with messages and reasoning. Items right before a known item are compared
    /// by their content.
    fn find_nameless(&self, mut place: usize, mut index: usize, items: &[Value], anchors: &mut BTreeMap<usize, usize>) {
        while let Some(item) = place.checked_sub(1).and_then(|before| items.get(before)) {
            let is_it = |ours: &Value| essence(ours).is_some_and(|ours| Some(ours) == essence(item));
            let found = self.output[..index].iter().rposition(is_it).filter(|_| !anchors.contains_key(&(place - 1)));
            let Some(found) = found else { break };
            (place, index) = (place - 1, found);
            anchors.insert(place, index);
        }
    }
}

/// The text by which an assistant message or a reasoning item is recognised without its id.
fn essence(item: &Value) -> Option<String> {
    match item.get("type").and_then(Value::as_str) {
        Some("message") | None if item["role"] == "assistant" => match &item["content"] {
            Value::String(text) => Some(text.clone()),
            Value::Array(parts) => {
                parts.iter().map(|part| part["text"].as_str()).collect::<Option<Vec<&str>>>().map(|texts| texts.concat())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        },
        Some("reasoning") => item["encrypted_content"].as_str().map(str::to_owned),
        Some(_) | None => None,
    }
}

impl Recalled {
    /// Finds where the server's calls of a response are, or belong, in the input.
    fn take(&mut self, memory: &mut Memory<'_>, run: RunId, past: Past, spoken: &Spoken, items: &[Value]) -> Result<(), WireError> {
        // References to its input alone do not show that the conversation continues this response.
        if spoken.own.is_empty() && spoken.outputs().next().is_none() {
            return Ok(());
        }
        self.last = Some(run);
        let anchors = past.anchors(spoken, items);
        let kept: BTreeSet<usize> = anchors.values().copied().collect();
        let Past { is_over, mut output, calls, lap } = past;
        self.laps.extend(lap.map(|lap| (run, lap)));
        for PastCall { index, made, is_taken, has_result } in calls.into_values() {
            if kept.contains(&index) {
                for place in anchors.iter().filter(|(_, kept)| **kept == index).map(|(place, _)| *place) {
                    // If the client changed the error of a call, its version goes to the model.
                    let told = made.told.clone().filter(|_| items[place]["error"] == output[index]["error"]);
                    self.made.insert(place, MadeCall { told, ..made.clone() });
                }
                continue;
            }
            let next = anchors.iter().filter(|(_, kept)| **kept > index).min_by_key(|(_, kept)| **kept);
            let last = anchors.last_key_value().filter(|_| is_over);
            let spot = match (next, last) {
                (Some((place, _)), _) => Spot { index: *place, order: Order::Between },
                (None, Some((place, _))) => Spot { index: place + 1, order: Order::Behind },
                (None, None) => continue,
            };
            if has_result || is_over {
                let item = output[index].take();
                memory.keep(&item)?;
                self.dropped.push(Dropped { run, spot, item, made, is_taken });
            }
        }
        Ok(())
    }
}
