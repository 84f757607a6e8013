//! What a request stands on: the response before it, items it refers to, and what clients forget.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use windlass_engine::LeftCalls;
use windlass_kernel::{BoxRange, CallKey, CallNumber, ItemKind, RunId, content};

use super::{
    compaction::Sealer,
    error::WireError,
    items::place_of,
    left::{self, Lap, Placed},
    note::{Note, Spelling},
    object::{object, run_of},
    reader::{Known, Reader},
    retrieve::wire_input,
};
use crate::{DoorState, auth::Caller};

/// Earlier responses that one request may bring back: each is read whole.
const RECALLED_MAX: usize = 64;

/// What stands before a request's own input.
#[derive(Default)]
pub(super) struct Before {
    pub parent: Option<BoxRange>,
    /// Calls of ours that the earlier response left behind.
    pub left: Option<LeftCalls>,
    /// The client's calls that wait for an output.
    open: BTreeSet<CallNumber>,
    /// Calls that clients told of, by the ids they gave them.
    named: BTreeSet<String>,
    run: Option<RunId>,
}

/// Finds the response a request goes on from: a stored one, or one of its connection's own.
pub(super) async fn before(state: &DoorState, caller: &Caller, previous: Option<&str>, own: &[RunId]) -> Result<Before, WireError> {
    let Some(id) = previous else { return Ok(Before::default()) };
    let unknown = || {
        let message = format!("Previous response with id '{id}' not found.");
        WireError::invalid("previous_response_id", message).named("previous_response_not_found")
    };
    let run = run_of(id).ok_or_else(unknown)?;
    let view = state.engine.views().run(caller.tenant(), run).await?.ok_or_else(unknown)?;
    view.note.as_ref().and_then(|note| Note::read(note)).filter(|note| note.store || own.contains(&run)).ok_or_else(unknown)?;
    let parent = view.state.said();
    if parent.is_none() {
        let message = format!("the response '{id}' is not over yet; wait for its end, or cancel it");
        return Err(WireError::invalid("previous_response_id", message).named("previous_response_not_finished"));
    }
    Ok(Before::standing(parent, Some(run), Lap::of(state, caller, &view).await?))
}

/// Puts the input together: items that are referred to stand in their place, what a client dropped is put back, and every output
/// has its call.
pub(super) async fn input(
    state: &DoorState,
    caller: &Caller,
    before: &mut Before,
    given: &[Box<RawValue>],
) -> Result<Vec<(ItemKind, Bytes)>, WireError> {
    let mut recalled = Recalled { state, caller, runs: BTreeMap::new() };
    let mut items: Vec<Value> = Vec::with_capacity(given.len());
    let mut origins: Vec<Origin<'_>> = Vec::with_capacity(given.len());
    for (index, raw) in given.iter().enumerate() {
        let item: Value =
            serde_json::from_str(raw.get()).map_err(|error| WireError::invalid(format!("input[{index}]"), error.to_string()))?;
        let referred = reference(&item);
        origins.push(Origin { sent: referred.is_none().then_some(raw), place: Some(index) });
        items.push(match referred {
            Some(id) => recalled.item(id).await?.ok_or_else(|| {
                let message = format!("Item with id '{id}' not found. Only items of stored responses can be referred to.");
                WireError::invalid(format!("input[{index}].id"), message).named("item_not_found")
            })?,
            None => item,
        });
    }
    check_outputs(before, &items)?;
    for (index, dropped) in dropped(&mut recalled, before, &items).await? {
        origins.splice(index..index, dropped.iter().map(|_| Origin::default()));
        items.splice(index..index, dropped);
    }
    let sealer = Sealer::new(state, caller.tenant());
    let kept = items.iter().zip(origins).map(|(item, origin)| Ok((ItemKind::Instruction, encode(item, origin, &sealer)?)));
    let mut input = kept.collect::<Result<Vec<(ItemKind, Bytes)>, WireError>>()?;
    let runs: Vec<RunId> = firsts(before, &items).into_iter().map(|(_, run)| run).collect();
    let laps: Vec<(RunId, &Lap)> = runs.iter().filter_map(|run| Some((*run, recalled.known(*run)?.lap.as_ref()?))).collect();
    // A request that names the response it goes on from takes over that one's calls and no other's.
    let next = runs.last().copied().filter(|_| before.run.is_none());
    let Placed { left, places } = left::place(state, caller, &laps, next, &items).await?;
    for (index, placed) in places {
        input.splice(index..index, placed);
    }
    before.left = before.left.take().or(left);
    Ok(input)
}

/// Items of the protocol that a model reads. A type that nobody here has heard of is for somebody else.
const FOR_MODELS: [&str; 6] =
    ["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "mcp_call"];

/// Where an item comes from.
#[derive(Clone, Copy, Default)]
struct Origin<'a> {
    /// What the client sent, if it is nothing but that.
    sent: Option<&'a RawValue>,
    /// Its place in the request, if it has one.
    place: Option<usize>,
}

/// What came from the client is kept byte for byte.
fn encode(item: &Value, origin: Origin<'_>, sealer: &Sealer) -> Result<Bytes, WireError> {
    let own;
    let raw = match origin.sent {
        Some(raw) => raw,
        None => {
            own = to_raw_value(item).map_err(|error| WireError::internal(&error))?;
            &*own
        }
    };
    if item.get("type").and_then(Value::as_str) == Some("compaction") {
        let summary = sealer.open(item).map_err(|error| match origin.place {
            Some(place) => error.within(&format!("input[{place}]")),
            None => error.within("input"),
        })?;
        return Ok(content::encode(&content::Instruction::Compaction { item: raw, summary }));
    }
    let is_read = match item.get("type").and_then(Value::as_str) {
        // A thought belongs to the provider that had it, which takes it back if it is sealed.
        Some("reasoning") => item.get("encrypted_content").is_some_and(Value::is_string),
        Some(kind) => FOR_MODELS.contains(&kind),
        None => true,
    };
    let instruction = if is_read { content::Instruction::Item } else { content::Instruction::Aside };
    Ok(content::encode(&instruction(raw)))
}

/// The id an item refers to, if it is nothing but a reference.
fn reference(item: &Value) -> Option<&str> {
    let kind = item.get("type").and_then(Value::as_str);
    let is_bare = kind.is_none() && item.get("role").is_none();
    (kind == Some("item_reference") || is_bare).then(|| item.get("id")?.as_str()).flatten()
}

/// Providers refuse an output whose call they have not seen, so it is refused here.
fn check_outputs(before: &Before, items: &[Value]) -> Result<(), WireError> {
    let mut calls = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        match (text("type"), text("call_id")) {
            (Some("function_call" | "custom_tool_call"), Some(id)) => drop(calls.insert(id)),
            (Some("function_call_output" | "custom_tool_call_output"), Some(id)) if !calls.contains(id) && !before.awaits(id) => {
                let message = format!("No tool call found for function call output with call_id {id}.");
                return Err(WireError::invalid(format!("input[{index}].call_id"), message).named("unknown_call_id"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Before {
    /// After a range whose last response is this one, with the calls of its last lap if somebody has to make them.
    pub fn standing(parent: Option<BoxRange>, run: Option<RunId>, lap: Option<Lap>) -> Self {
        let Some((run, Lap { clients, ours })) = run.zip(lap) else { return Before { parent, run, ..Before::default() } };
        let left = (!ours.is_empty()).then_some(LeftCalls { run, calls: ours, is_placed: false });
        Before { parent, left, open: clients, run: Some(run), named: BTreeSet::new() }
    }

    fn awaits(&self, call_id: &str) -> bool {
        let key: Option<CallKey> = call_id.parse().ok();
        self.named.contains(call_id) || key.is_some_and(|key| Some(key.run) == self.run && self.open.contains(&key.call))
    }
}

/// Looks for calls that were told of before, if outputs are given that may be theirs.
pub(super) async fn named(state: &DoorState, caller: &Caller, before: &mut Before, given: &[Box<RawValue>]) -> Result<(), WireError> {
    let Some(parent) = before.parent.filter(|_| given.iter().any(|raw| raw.get().contains("_output"))) else { return Ok(()) };
    let items = state.engine.views().range_items(caller.tenant(), parent).await?;
    let told = items.iter().filter(|item| item.kind == ItemKind::Instruction).filter_map(|item| {
        let content::Instruction::Item(raw) = serde_json::from_slice(&item.content).ok()? else { return None };
        let item: Value = serde_json::from_str(raw.get()).ok()?;
        let is_call = matches!(item["type"].as_str(), Some("function_call" | "custom_tool_call"));
        item["call_id"].as_str().filter(|_| is_call).map(str::to_owned)
    });
    before.named = told.collect();
    Ok(())
}

/// Some clients leave out what the server did when they send the conversation again: what belongs where, the last place first. It
/// stands where their own part of the same response begins.
async fn dropped(recalled: &mut Recalled<'_>, before: &Before, items: &[Value]) -> Result<Vec<(usize, Vec<Value>)>, WireError> {
    let firsts = firsts(before, items);
    let given: BTreeSet<String> = items.iter().filter_map(|item| item.get("id")?.as_str().map(str::to_owned)).collect();
    let mut places = Vec::with_capacity(firsts.len());
    for (index, run) in firsts.into_iter().rev() {
        // A conversation may be of any length: what is longest ago is left as the client sent it.
        if !recalled.has_room_for(run) {
            break;
        }
        let Some(output) = recalled.output(run, false).await? else { continue };
        let is_dropped = |item: &&Value| item["type"] == "mcp_call" && !item["id"].as_str().is_some_and(|id| given.contains(id));
        places.push((index, output.iter().filter(is_dropped).cloned().collect()));
    }
    Ok(places)
}

/// The responses that calls in an input are of, each with the place of its first one.
fn firsts(before: &Before, items: &[Value]) -> Vec<(usize, RunId)> {
    let mut firsts: Vec<(usize, RunId)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(run) = run_of_item(item).filter(|run| Some(*run) != before.run) else { continue };
        if !firsts.iter().any(|(_, known)| *known == run) {
            firsts.push((index, run));
        }
    }
    firsts
}

/// The run whose output an item is, by its call's id.
fn run_of_item(item: &Value) -> Option<RunId> {
    let is_output = matches!(item.get("type")?.as_str()?, "function_call" | "custom_tool_call");
    let call = item.get("call_id").and_then(Value::as_str).filter(|_| is_output);
    call.and_then(|id| id.parse::<CallKey>().ok()).map(|key| key.run)
}

/// Responses that were read again for this request.
struct Recalled<'a> {
    state: &'a DoorState,
    caller: &'a Caller,
    runs: BTreeMap<RunId, Option<Past>>,
}

/// A response that was read again.
struct Past {
    is_stored: bool,
    output: Vec<Value>,
    lap: Option<Lap>,
}

impl Recalled<'_> {
    fn has_room_for(&self, run: RunId) -> bool {
        self.runs.len() < RECALLED_MAX || self.runs.contains_key(&run)
    }

    /// One that was read before.
    fn known(&self, run: RunId) -> Option<&Past> {
        self.runs.get(&run)?.as_ref()
    }

    /// An item of a stored response, output or input.
    async fn item(&mut self, id: &str) -> Result<Option<Value>, WireError> {
        let Some((run, index)) = place_of(id) else { return Ok(None) };
        if id.starts_with("in_") {
            return self.input_item(run, index).await;
        }
        Ok(self.output(run, true).await?.and_then(|output| output.get(index).filter(|item| item["id"] == id).cloned()))
    }

    async fn input_item(&self, run: RunId, index: usize) -> Result<Option<Value>, WireError> {
        let views = self.state.engine.views();
        let Some(view) = views.run(self.caller.tenant(), run).await? else { return Ok(None) };
        let is_stored = view.note.as_ref().and_then(|note| Note::read(note)).is_some_and(|note| note.store);
        let position = u32::try_from(index).unwrap_or(u32::MAX);
        if !is_stored || position >= view.state.context.length {
            return Ok(None);
        }
        let items = views.box_items(self.caller.tenant(), view.state.context.id, position, 1).await?;
        Ok(items.first().and_then(|item| wire_input(run, index, item)))
    }

    /// The output of a response; only of one that was stored, if that is asked.
    async fn output(&mut self, run: RunId, stored: bool) -> Result<Option<&Vec<Value>>, WireError> {
        if !self.runs.contains_key(&run) {
            if !self.has_room_for(run) {
                let message =
                    format!("the input speaks of more than {RECALLED_MAX} earlier responses; send `previous_response_id` instead");
                return Err(WireError::invalid("input", message));
            }
            let read = self.read(run).await?;
            self.runs.insert(run, read);
        }
        Ok(self.known(run).filter(|past| past.is_stored || !stored).map(|past| &past.output))
    }

    async fn read(&self, run: RunId) -> Result<Option<Past>, WireError> {
        let Some(view) = self.state.engine.views().run(self.caller.tenant(), run).await? else { return Ok(None) };
        let lap = Lap::of(self.state, self.caller, &view).await?;
        let Some(known) = Known::of(view) else { return Ok(None) };
        let is_stored = known.note.store;
        // What is put back is for the provider, whatever the client wanted to see.
        let spelling = Spelling { sealed: true, ..known.note.spelling };
        let known = Known { note: Arc::new(Note { spelling, ..(*known.note).clone() }), ..known };
        let mut reader = Reader::new(self.state, known, false);
        reader.catch_up().await?;
        let mut read = object(&reader.made);
        let output = read["output"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(Some(Past { is_stored, output, lap }))
    }
}
