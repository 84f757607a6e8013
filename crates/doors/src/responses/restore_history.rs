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
use windlass_ports::{JournalRecord, RunView};

use super::{
    chain::reference,
    compaction::Sealer,
    deferred_calls::{FinalCalls, InsertPosition, Order, asked_in},
    error::WireError,
    items::{approval_id, place_of},
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
pub(super) struct RestoredHistory {
    /// The calls at the end of each response that waits for its client.
    pub final_calls: Vec<(RunId, FinalCalls)>,
    /// The last response with output in the input.
    pub last: Option<RunId>,
    /// The server's calls that are in the input, by their indices.
    pub made: BTreeMap<usize, MadeCall>,
    /// The server's calls that the client left out.
    pub dropped: Vec<DroppedCall>,
}

/// A call that the server made for an earlier response, as the model saw it.
#[derive(Clone)]
pub(super) struct MadeCall {
    pub tool: String,
    /// The key of the first call of its iteration, which groups the calls of one iteration.
    pub iteration: String,
    /// The output that the model got; `None` if it is the output or error of the item.
    pub model_output: Option<String>,
}

/// A call of the server that the client left out.
pub(super) struct DroppedCall {
    pub run: RunId,
    pub position: InsertPosition,
    pub item: Value,
    pub made: MadeCall,
    /// Whether this response inherited it from an earlier one that had deferred it.
    pub is_inherited: bool,
}

/// Reads the responses whose items are in the input, one after the other, and replaces references by their items. Nothing else is restored
/// of `parent`, the response that the request continues: its whole output is in the history already.
pub(super) async fn restore(
    state: &DoorState,
    caller: &Caller,
    parent: Option<RunId>,
    items: &mut [Value],
) -> Result<RestoredHistory, WireError> {
    let mut restored = RestoredHistory::default();
    let mut replayer = Replayer { state, caller, bytes: 0 };
    for (run, refs) in item_refs(items)? {
        let is_parent = Some(run) == parent;
        if is_parent && refs.referred.is_empty() {
            continue;
        }
        if let Some(replayed) = replayer.read(run, &refs, is_parent, items).await? {
            restored.take(&mut replayer, run, replayed, &refs, items)?;
        }
    }
    Ok(restored)
}

/// The items of one response that an input has or refers to.
#[derive(Default)]
struct ItemRefs {
    /// Indices of references to items of its input or output, with the ids.
    referred: Vec<(usize, String)>,
    /// Indices of items of its output that the client sent itself.
    own: Vec<usize>,
}

impl ItemRefs {
    fn inputs(&self) -> impl Iterator<Item = &(usize, String)> {
        self.referred.iter().filter(|(_, id)| id.starts_with("in_"))
    }

    fn outputs(&self) -> impl Iterator<Item = &(usize, String)> {
        self.referred.iter().filter(|(_, id)| !id.starts_with("in_"))
    }
}

/// The responses whose items are in an input, in order of appearance.
fn item_refs(items: &[Value]) -> Result<Vec<(RunId, ItemRefs)>, WireError> {
    let mut order: BTreeMap<RunId, usize> = BTreeMap::new();
    let mut all: Vec<(RunId, ItemRefs)> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let referred = reference(item);
        let run = match referred {
            Some(id) => Some(place_of(id).ok_or_else(|| unknown(place, id))?.0),
            None => run_of_item(item),
        };
        let Some(run) = run else { continue };
        let index = *order.entry(run).or_insert(all.len());
        if index == all.len() {
            all.push((run, ItemRefs::default()));
        }
        let refs = &mut all[index].1;
        match referred {
            Some(id) => refs.referred.push((place, id.to_owned())),
            None => refs.own.push(place),
        }
    }
    Ok(all)
}

fn unknown(place: usize, id: &str) -> WireError {
    let message = format!("Item with id '{id}' not found. Only items of stored responses can be referred to.");
    WireError::invalid(format!("input[{place}].id"), message).with_code("item_not_found")
}

/// The run whose output has this item, by the id of its call or its own id, which clients may leave out.
fn run_of_item(item: &Value) -> Option<RunId> {
    if let Some(key) = asked_in(item) {
        return Some(key.run);
    }
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
struct ReplayedResponse {
    is_over: bool,
    output: Vec<Value>,
    calls: BTreeMap<CallNumber, ReplayedCall>,
    final_calls: Option<FinalCalls>,
}

/// A call of the server in an earlier response.
struct ReplayedCall {
    index: usize,
    made: MadeCall,
    is_inherited: bool,
    has_result: bool,
}

/// Replays earlier responses, within a limit of bytes for one request.
struct Replayer<'a> {
    state: &'a DoorState,
    caller: &'a Caller,
    /// The size of the items that were restored so far.
    bytes: usize,
}

impl Replayer<'_> {
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
        Err(WireError::invalid("input", message).with_code("input_too_large"))
    }

    /// Reads a response, and replaces the references to it in `items`. `None` if nothing of it can be put back.
    async fn read(
        &mut self,
        run: RunId,
        refs: &ItemRefs,
        is_parent: bool,
        items: &mut [Value],
    ) -> Result<Option<ReplayedResponse>, WireError> {
        let view = self.state.engine.views().run(self.caller.tenant(), run).await?;
        let known = view.and_then(|view| Some((Note::read(view.note.as_ref()?)?, view)));
        let known = known.filter(|(note, _)| note.store || refs.referred.is_empty());
        let Some((note, view)) = known else {
            return refs.referred.first().map_or(Ok(None), |(place, id)| Err(unknown(*place, id)));
        };
        let final_calls = if is_parent { None } else { FinalCalls::of(self.state, self.caller, &view).await? };
        let mut replayed = ReplayedResponse { is_over: view.state.has_ended(), output: Vec::new(), calls: BTreeMap::new(), final_calls };
        for (place, id) in refs.inputs() {
            let index = place_of(id).map_or(usize::MAX, |(_, index)| index);
            let item = self.input_item(&view, index).await?.ok_or_else(|| unknown(*place, id))?;
            self.keep(&item)?;
            items[*place] = item;
        }
        // A response without calls has nothing that a client leaves out.
        if refs.outputs().next().is_some() || (view.state.calls_used > 0 && !is_parent) {
            self.replay(view, note, &mut replayed).await?;
        }
        for (place, id) in refs.outputs() {
            let item = replayed.output.iter().find(|item| item["id"] == id.as_str()).ok_or_else(|| unknown(*place, id))?;
            self.keep(item)?;
            items[*place] = item.clone();
        }
        Ok((!is_parent).then_some(replayed))
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
    async fn replay(&self, view: RunView, note: Note, replayed: &mut ReplayedResponse) -> Result<(), WireError> {
        // The restored items go to the provider, which needs its encrypted reasoning even if the client did not ask to see it.
        let spelling = Spelling { sealed: true, ..note.spelling };
        let (note, manifest) = (Arc::new(Note { spelling, ..note }), Arc::new(view.manifest));
        let sealer = Sealer::new(self.state, self.caller.tenant());
        let mut projection = Projection::new(view.id, note, manifest, view.created_at, sealer, false);
        loop {
            let run_so_far = projection.run.clone();
            let journal_records = self.state.engine.views().journal_records(self.caller.tenant(), view.id, run_so_far, EVENTS_PAGE).await?;
            for passage in &journal_records {
                projection.take(passage);
                replayed.take(view.id, passage, &projection);
            }
            if journal_records.len() < EVENTS_PAGE {
                break;
            }
        }
        replayed.output = projection.output;
        Ok(())
    }
}

impl ReplayedResponse {
    /// Records the calls and the result of a passage that the projection has just taken.
    fn take(&mut self, run: RunId, passage: &JournalRecord, projection: &Projection) {
        let mut first_call = None;
        // The projection shows the arguments of a call that a person changed.
        for call in passage.appended.iter().filter_map(made_call).filter(|call| !call.edited) {
            let Some(index) = projection.shown_at(call.call) else { continue };
            let first: CallNumber = *first_call.get_or_insert(call.call);
            let made = MadeCall { tool: call.tool, iteration: CallKey { run, call: first }.to_string(), model_output: None };
            self.calls.insert(call.call, ReplayedCall { index, made, is_inherited: call.takes.is_some(), has_result: false });
        }
        let Some(item) = passage.result.as_ref().filter(|item| item.kind == ItemKind::Result) else { return };
        let Ok(result) = serde_json::from_slice::<content::CallResult<'_>>(&item.content) else { return };
        if let Some(call) = self.calls.get_mut(&result.call) {
            call.has_result = true;
            // The item of a failed call has only the error's message.
            call.made.model_output = (result.status != TaskStatus::Success).then(|| result.model_output());
        }
    }

    /// The response's items in the input: for each index in the input, the index in the output.
    fn anchors(&self, refs: &ItemRefs, items: &[Value]) -> BTreeMap<usize, usize> {
        let referred = refs.outputs().map(|(place, _)| place);
        let known = refs.own.iter().chain(referred).filter_map(|place| Some((*place, self.index_of(&items[*place])?)));
        let mut anchors: BTreeMap<usize, usize> = known.collect();
        let identified: Vec<(usize, usize)> = anchors.iter().map(|(place, index)| (*place, *index)).collect();
        for (place, index) in identified {
            self.find_nameless(place, index, items, &mut anchors);
        }
        anchors
    }

    fn index_of(&self, item: &Value) -> Option<usize> {
        let asked = asked_in(item).map(approval_id);
        if let Some(index) = asked.and_then(|id| self.output.iter().position(|stored| stored["id"] == id)) {
            return Some(index);
        }
        let has = |key: &str, stored: &Value| item.get(key).is_some_and(|given| given.is_string() && given == &stored[key]);
        self.output.iter().position(|stored| has("id", stored) || (has("call_id", stored) && stored["type"] == item["type"]))
    }

    /// Finds items that the client sent without an id, as some do with messages and reasoning. Items right before a known item are compared
    /// by their content.
    fn find_nameless(&self, mut place: usize, mut index: usize, items: &[Value], anchors: &mut BTreeMap<usize, usize>) {
        while let Some(item) = place.checked_sub(1).and_then(|before| items.get(before)) {
            let is_it = |stored: &Value| comparable_text(stored).is_some_and(|stored| Some(stored) == comparable_text(item));
            let found = self.output[..index].iter().rposition(is_it).filter(|_| !anchors.contains_key(&(place - 1)));
            let Some(found) = found else { break };
            (place, index) = (place - 1, found);
            anchors.insert(place, index);
        }
    }
}

/// The text by which an assistant message or a reasoning item is recognised without its id.
fn comparable_text(item: &Value) -> Option<String> {
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

impl RestoredHistory {
    /// Finds where the server's calls of a response are, or belong, in the input.
    fn take(
        &mut self,
        replayer: &mut Replayer<'_>,
        run: RunId,
        replayed: ReplayedResponse,
        refs: &ItemRefs,
        items: &[Value],
    ) -> Result<(), WireError> {
        // References to its input alone do not show that the conversation continues this response.
        if refs.own.is_empty() && refs.outputs().next().is_none() {
            return Ok(());
        }
        self.last = Some(run);
        let anchors = replayed.anchors(refs, items);
        let kept: BTreeSet<usize> = anchors.values().copied().collect();
        let ReplayedResponse { is_over, mut output, calls, final_calls } = replayed;
        self.final_calls.extend(final_calls.map(|calls| (run, calls)));
        for ReplayedCall { index, made, is_inherited, has_result } in calls.into_values() {
            if kept.contains(&index) {
                for place in anchors.iter().filter(|(_, kept)| **kept == index).map(|(place, _)| *place) {
                    // If the client changed the error of a call, its version goes to the model.
                    let model_output = made.model_output.clone().filter(|_| items[place]["error"] == output[index]["error"]);
                    self.made.insert(place, MadeCall { model_output, ..made.clone() });
                }
                continue;
            }
            let next = anchors.iter().filter(|(_, kept)| **kept > index).min_by_key(|(_, kept)| **kept);
            let last = anchors.last_key_value().filter(|_| is_over);
            let position = match (next, last) {
                (Some((place, _)), _) => InsertPosition { index: *place, order: Order::Between },
                (None, Some((place, _))) => InsertPosition { index: place + 1, order: Order::Behind },
                (None, None) => continue,
            };
            if has_result || is_over {
                let item = output[index].take();
                replayer.keep(&item)?;
                self.dropped.push(DroppedCall { run, position, item, made, is_inherited });
            }
        }
        Ok(())
    }
}
