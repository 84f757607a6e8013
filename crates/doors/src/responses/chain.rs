//! The history of a request: the response it continues, the items it refers to, and the server's calls that clients leave out.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use windlass_engine::DeferredCalls;
use windlass_kernel::{BoxRange, CallKey, CallNumber, InheritedCall, ItemKind, RunId, content};

use super::{
    approval_answers,
    compaction::Sealer,
    deferred_calls::{self, FinalCalls, Placement},
    error::WireError,
    note::Note,
    object::run_of,
    restore_history::{self, MadeCall},
};
use crate::{DoorState, auth::Caller};

/// The history before a request's own input.
#[derive(Default)]
pub(super) struct History {
    pub parent: Option<BoxRange>,
    /// The server's calls that the earlier response deferred.
    pub deferred: Option<DeferredCalls>,
    /// The client's calls that wait for an output.
    open_calls: BTreeSet<CallNumber>,
    /// Calls among the history's input items, by the ids that clients gave them.
    call_ids: BTreeSet<String>,
    run: Option<RunId>,
}

/// Finds the response that a request continues. It must be stored, or one of `own`: those of the request's own socket.
pub(super) async fn history(state: &DoorState, caller: &Caller, previous: Option<&str>, own: &[RunId]) -> Result<History, WireError> {
    let Some(id) = previous else { return Ok(History::default()) };
    let unknown = || {
        let message = format!("Previous response with id '{id}' not found.");
        WireError::invalid("previous_response_id", message).with_code("previous_response_not_found")
    };
    let run = run_of(id).ok_or_else(unknown)?;
    let view = state.engine.views().run(caller.tenant(), run).await?.ok_or_else(unknown)?;
    view.note.as_ref().and_then(|note| Note::read(note)).filter(|note| note.store || own.contains(&run)).ok_or_else(unknown)?;
    let parent = view.state.continuation_range();
    if parent.is_none() {
        let message = format!("the response '{id}' is not over yet; wait for its end, or cancel it");
        return Err(WireError::invalid("previous_response_id", message).with_code("previous_response_not_finished"));
    }
    Ok(History::ending_with(parent, Some(run), FinalCalls::of(state, caller, &view).await?))
}

/// Builds the input of the run: it replaces references by their items, puts back the server's calls that the client left out, and refuses
/// outputs without a call.
pub(super) async fn input(
    state: &DoorState,
    caller: &Caller,
    history: &mut History,
    given: &[Box<RawValue>],
) -> Result<Vec<(ItemKind, Bytes)>, WireError> {
    let mut items: Vec<Value> = Vec::with_capacity(given.len());
    for (index, raw) in given.iter().enumerate() {
        items.push(serde_json::from_str(raw.get()).map_err(|error| WireError::invalid(format!("input[{index}]"), error.to_string()))?);
    }
    let is_sent: Vec<bool> = items.iter().map(|item| reference(item).is_none()).collect();
    let mut restored = restore_history::restore(state, caller, history.run, &mut items).await?;
    check_outputs(history, &items)?;
    // A request that names its previous response inherits the deferred calls of that response only.
    let continued = restored.last.filter(|_| history.run.is_none());
    take_answers(state, caller, history, continued, &mut restored.final_calls, &items).await?;
    let Placement { deferred, inheritors, mut insertions } =
        deferred_calls::place(state, caller, &restored.final_calls, continued, &items).await?;
    let sealer = Sealer::new(state, caller.tenant());
    // Inherited calls are placed where they were deferred, not where they were run.
    for dropped in restored.dropped.iter().filter(|dropped| !(dropped.is_inherited && inheritors.contains(&dropped.run))) {
        let content = encode(&dropped.item, Origin { made: Some(&dropped.made), ..Origin::default() }, &sealer)?;
        insertions.push((dropped.position, vec![(ItemKind::Instruction, content)]));
    }
    insertions.sort_by_key(|(position, _)| *position);
    let mut insertions = insertions.into_iter().peekable();
    let mut input = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        while let Some((_, placed)) = insertions.next_if(|(position, _)| position.index <= index) {
            input.extend(placed);
        }
        let origin = Origin { sent: is_sent[index].then(|| &*given[index]), place: Some(index), made: restored.made.get(&index) };
        input.push((ItemKind::Instruction, encode(item, origin, &sealer)?));
    }
    input.extend(insertions.flat_map(|(_, placed)| placed));
    history.deferred = history.deferred.take().or(deferred);
    Ok(input)
}

/// Puts the client's answers to requests for approval into the calls that the run of this request inherits.
async fn take_answers(
    state: &DoorState,
    caller: &Caller,
    history: &mut History,
    continued: Option<RunId>,
    final_calls: &mut [(RunId, FinalCalls)],
    items: &[Value],
) -> Result<(), WireError> {
    let of_history = history.deferred.iter_mut().flat_map(|deferred| deferred.calls.iter_mut());
    let last = final_calls.iter_mut().filter(|(run, _)| Some(*run) == continued);
    let of_input = last.flat_map(|(_, calls)| calls.deferred.iter_mut());
    let mut open: Vec<&mut InheritedCall> = of_history.chain(of_input).collect();
    approval_answers::take(state, caller, items, continued, &mut open).await
}

/// The item types that a model reads. Items of unknown types are stored and returned, but no model gets them.
const FOR_MODELS: [&str; 6] =
    ["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "mcp_call"];

/// Where an item of the input comes from.
#[derive(Clone, Copy, Default)]
struct Origin<'a> {
    /// The bytes that the client sent; `None` if the item replaced a reference or was put back.
    sent: Option<&'a RawValue>,
    /// Its index in the request's input; `None` if the client left it out.
    place: Option<usize>,
    /// The call that the server made, if the item is one of an earlier response.
    made: Option<&'a MadeCall>,
}

/// Encodes an item for the context. An item that the client sent is kept byte for byte.
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
    if let Some(MadeCall { tool, iteration, model_output }) = origin.made {
        let (tool, iteration_key, model_output) = (tool.clone(), iteration.clone(), model_output.clone());
        return Ok(content::encode(&content::Instruction::Made { item: raw, tool, iteration_key, model_output }));
    }
    let is_read = match item.get("type").and_then(Value::as_str) {
        // Reasoning is useful only to the provider that made it, which accepts it back in its encrypted form.
        Some("reasoning") => item.get("encrypted_content").is_some_and(Value::is_string),
        Some(kind) => FOR_MODELS.contains(&kind),
        None => true,
    };
    let instruction = if is_read { content::Instruction::Item } else { content::Instruction::Aside };
    Ok(content::encode(&instruction(raw)))
}

/// The id of the item that this one refers to; `None` if this one is no reference.
pub(super) fn reference(item: &Value) -> Option<&str> {
    let kind = item.get("type").and_then(Value::as_str);
    let is_bare = kind.is_none() && item.get("role").is_none();
    (kind == Some("item_reference") || is_bare).then(|| item.get("id")?.as_str()).flatten()
}

/// Refuses an output without a call. Providers refuse such a prompt, and their error would not name the item.
fn check_outputs(history: &History, items: &[Value]) -> Result<(), WireError> {
    let mut calls = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        match (text("type"), text("call_id")) {
            (Some("function_call" | "custom_tool_call"), Some(id)) => drop(calls.insert(id)),
            (Some("function_call_output" | "custom_tool_call_output"), Some(id)) if !calls.contains(id) && !history.awaits(id) => {
                let message = format!("No tool call found for function call output with call_id {id}.");
                return Err(WireError::invalid(format!("input[{index}].call_id"), message).with_code("unknown_call_id"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl History {
    /// The history that ends with the response `run`. `calls` has the calls at its end, which the client or the next run has to make.
    pub fn ending_with(parent: Option<BoxRange>, run: Option<RunId>, calls: Option<FinalCalls>) -> Self {
        let Some((run, FinalCalls { clients, deferred })) = run.zip(calls) else { return History { parent, run, ..History::default() } };
        let deferred = (!deferred.is_empty()).then_some(DeferredCalls { run, calls: deferred, is_placed: false });
        History { parent, deferred, open_calls: clients, run: Some(run), call_ids: BTreeSet::new() }
    }

    fn awaits(&self, call_id: &str) -> bool {
        let key: Option<CallKey> = call_id.parse().ok();
        self.call_ids.contains(call_id) || key.is_some_and(|key| Some(key.run) == self.run && self.open_calls.contains(&key.call))
    }
}

/// Reads the ids of the calls that clients put into the history, if the input has outputs that may belong to them.
pub(super) async fn read_call_ids(
    state: &DoorState,
    caller: &Caller,
    history: &mut History,
    given: &[Box<RawValue>],
) -> Result<(), WireError> {
    let Some(parent) = history.parent.filter(|_| given.iter().any(|raw| raw.get().contains("_output"))) else { return Ok(()) };
    state.engine.check_history(caller.tenant(), parent).await?;
    let items = state.engine.views().range_items(caller.tenant(), parent).await?;
    let call_ids = items.iter().filter(|item| item.kind == ItemKind::Instruction).filter_map(|item| {
        let content::Instruction::Item(raw) = serde_json::from_slice(&item.content).ok()? else { return None };
        let item: Value = serde_json::from_str(raw.get()).ok()?;
        let is_call = matches!(item["type"].as_str(), Some("function_call" | "custom_tool_call"));
        item["call_id"].as_str().filter(|_| is_call).map(str::to_owned)
    });
    history.call_ids = call_ids.collect();
    Ok(())
}
