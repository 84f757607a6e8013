//! The items of a conversation in their wire format, under the ids that its responses gave them.
//!
//! They are read from the boxes alone, so that deleting a response does not remove its items from the conversation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use windlass_kernel::{
    BoxId, BoxRange, CallKey, CallNumber, EndReason, Finish, ItemId, ItemKind, Manifest, Phase, Route, RunId, ToolChoice,
    content::{Call, Deliverable, Thought},
};
use windlass_ports::{ConversationView, Item, Part, RunView};

use crate::{
    DoorState,
    auth::Caller,
    request::Query,
    responses::{
        compaction::Sealer,
        error::WireError,
        items::{self, Handover, Outcome, item_id, place_of},
        note::{Note, Spelling},
        retrieve::{Paging, wire_input},
    },
};

/// A wire item of a conversation.
pub(super) struct ConversationEntry {
    pub wire: Value,
    /// The stored items that it was made from. Removing the entry removes all of them.
    pub items: Vec<ItemId>,
}

/// Whether reasoning items are shown with their encrypted content.
#[derive(Clone, Copy, Default)]
pub(in crate::responses) struct Sealed(bool);

impl Sealed {
    /// Reads `include` of a query.
    pub fn of(query: &Query) -> Self {
        Sealed(query.has("include", "reasoning.encrypted_content"))
    }
}

/// At least the items of one page, and one more if there are more. Reads only as many parts as that needs.
pub(super) async fn page(
    state: &DoorState,
    caller: &Caller,
    conversation: &ConversationView,
    paging: &Paging,
    sealed: Sealed,
) -> Result<Vec<ConversationEntry>, WireError> {
    let mut parts = state.engine.views().conversation_parts(caller.tenant(), conversation.id).await?;
    if !paging.ascending {
        parts.reverse();
    }
    if let Some(after) = &paging.after {
        let from = parts.iter().position(|part| is_of(*part, after)).ok_or_else(|| Paging::unknown(after))?;
        parts.drain(..from);
    }
    let mut found: Vec<ConversationEntry> = Vec::new();
    let mut after = paging.after.as_deref();
    for part in parts {
        let mut entries = entries(state, caller, conversation, part, sealed).await?;
        if !paging.ascending {
            entries.reverse();
        }
        if let Some(after) = after.take() {
            let place = entries.iter().position(|entry| entry.wire["id"] == after).ok_or_else(|| Paging::unknown(after))?;
            entries.drain(..=place);
        }
        found.extend(entries);
        if found.len() as u64 > paging.limit {
            break;
        }
    }
    Ok(found)
}

/// The last `count` items that were added.
pub(super) async fn latest(
    state: &DoorState,
    caller: &Caller,
    conversation: &ConversationView,
    count: usize,
    sealed: Sealed,
) -> Result<Vec<ConversationEntry>, WireError> {
    let Some(BoxRange { id, length }) = conversation.tail else { return Ok(Vec::new()) };
    let mut entries = entries(state, caller, conversation, Part::Items(id), sealed).await?;
    let is_new =
        |entry: &ConversationEntry| entry.wire["id"].as_str().and_then(place_of).is_some_and(|(_, index)| index + count >= length as usize);
    entries.retain(is_new);
    Ok(entries)
}

/// The item with this id; `None` if the conversation does not have it.
pub(super) async fn find(
    state: &DoorState,
    caller: &Caller,
    conversation: &ConversationView,
    id: &str,
    sealed: Sealed,
) -> Result<Option<ConversationEntry>, WireError> {
    let parts = state.engine.views().conversation_parts(caller.tenant(), conversation.id).await?;
    let Some(part) = parts.into_iter().find(|part| is_of(*part, id)) else { return Ok(None) };
    let entries = entries(state, caller, conversation, part, sealed).await?;
    Ok(entries.into_iter().find(|entry| entry.wire["id"] == id))
}

/// Whether an item with this id would be in this part.
fn is_of(part: Part, id: &str) -> bool {
    let Some((RunId(source), _)) = place_of(id) else { return false };
    match part {
        Part::Run(RunId(run)) => run == source,
        Part::Items(BoxId(own)) => own == source,
    }
}

/// The items of a part, without those that were removed from the conversation.
async fn entries(
    state: &DoorState,
    caller: &Caller,
    conversation: &ConversationView,
    part: Part,
    sealed: Sealed,
) -> Result<Vec<ConversationEntry>, WireError> {
    let views = state.engine.views();
    let mut entries = match part {
        Part::Items(id) => given(id.0, views.box_items(caller.tenant(), id, 0, usize::MAX).await?),
        Part::Run(run) => {
            let Some(view) = views.run(caller.tenant(), run).await? else { return Ok(Vec::new()) };
            let (context, Some(range)) = (view.state.context, view.state.continuation_range()) else { return Ok(Vec::new()) };
            let mut entries = given(run.0, views.box_items(caller.tenant(), context.id, 0, context.length as usize).await?);
            let output = views.box_items(caller.tenant(), range.id, 0, range.length as usize).await?;
            entries.extend(Output::new(&view, &output, sealed, Sealer::new(state, caller.tenant())).read(&output));
            entries
        }
    };
    let gone: BTreeSet<ItemId> = conversation.gone.iter().copied().collect();
    entries.retain(|entry| !entry.items.iter().any(|item| gone.contains(item)));
    Ok(entries)
}

/// The items that a client sent. Each gets an id of the server, whatever id the client gave it, so that it can be found again.
fn given(source: uuid::Uuid, items: Vec<Item>) -> Vec<ConversationEntry> {
    let entry = |(index, item): (usize, &Item)| {
        let mut wire = wire_input(RunId(source), index, item)?;
        wire["id"] = item_id("in", RunId(source), index).into();
        Some(ConversationEntry { wire, items: vec![item.id] })
    };
    items.iter().enumerate().filter_map(entry).collect()
}

/// Converts the output of a run into entries.
struct Output<'a> {
    run: RunId,
    manifest: &'a Manifest,
    note: Note,
    /// Encrypts summaries exactly as the response did.
    sealer: Sealer,
    reason: Option<&'a EndReason>,
    /// Calls that have a result in this output. The others are the client's, or were deferred.
    answered: BTreeSet<CallNumber>,
    /// The index of the next item in the response's output. It starts after the lists of the servers' tools, which are no items of the
    /// conversation.
    next: usize,
    entries: Vec<ConversationEntry>,
    calls: BTreeMap<CallNumber, usize>,
}

impl<'a> Output<'a> {
    fn new(view: &'a RunView, output: &[Item], sealed: Sealed, sealer: Sealer) -> Self {
        let note = view.note.as_ref().and_then(|note| Note::read(note)).unwrap_or_else(|| Note::new(String::new(), Map::new()));
        let spelling = Spelling { sealed: sealed.0, ..note.spelling };
        let reason = if let Phase::Ended { reason, .. } = &view.state.phase { Some(reason) } else { None };
        Output {
            run: view.id,
            manifest: &view.manifest,
            note: Note { spelling, ..note },
            sealer,
            reason,
            answered: output.iter().filter_map(outcome).map(|outcome| outcome.call).collect(),
            next: view.manifest.servers.len(),
            entries: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    fn read(mut self, output: &[Item]) -> Vec<ConversationEntry> {
        for item in output {
            match item.kind {
                ItemKind::Thought => self.reply(item),
                ItemKind::Call => self.call(item),
                ItemKind::Result => self.result(item),
                ItemKind::Deliverable => self.deliverable(item),
                // Instructions of the engine to the model are not part of the conversation.
                ItemKind::Instruction | ItemKind::ResultFields => {}
            }
        }
        self.entries
    }

    fn push(&mut self, prefix: &str, items: Vec<ItemId>, wire: impl FnOnce(&Self, &str) -> Value) {
        let id = item_id(prefix, self.run, self.next);
        let wire = wire(self, &id);
        self.next += 1;
        self.entries.push(ConversationEntry { wire, items });
    }

    fn message(&mut self, item: &Item, text: &str, status: &str) {
        if !text.is_empty() {
            self.push("msg", vec![item.id], |_, id| items::message(id, text, status));
        }
    }

    fn reply(&mut self, item: &Item) {
        let Ok(Thought { text, reasoning }) = serde_json::from_slice(&item.content) else { return };
        for reasoning_item in &reasoning {
            self.push("rs", vec![item.id], |output, id| items::reasoning(id, reasoning_item, output.note.spelling));
        }
        self.message(item, &text, "completed");
    }

    fn call(&mut self, item: &Item) {
        let Ok(call) = serde_json::from_slice::<Call>(&item.content) else { return };
        if call.edited {
            if let Some(entry) = self.calls.get(&call.call).and_then(|index| self.entries.get_mut(*index)) {
                entry.items.push(item.id);
                entry.wire["arguments"] = call.arguments.into();
            }
            return;
        }
        let is_clients = || self.manifest.tool(&call.tool).is_some_and(|tool| tool.route == Route::Client);
        let is_answered = self.answered.contains(&call.call);
        if is_answered && !self.note.spelling.pairs {
            self.calls.insert(call.call, self.entries.len());
            self.push("mcp", vec![item.id], |output, id| items::mcp_call(id, &call, output.manifest, &call.arguments));
        } else if call.asks_client {
            let key = CallKey { run: self.run, call: call.call };
            self.push("mcpr", vec![item.id], |output, _| items::approval_request(key, &call, output.manifest));
        } else if is_answered || self.manifest.choice == ToolChoice::None || is_clients() {
            let key = CallKey { run: self.run, call: call.call };
            let (kind, given) = Handover::of(&call, &self.note);
            self.push(kind.prefix, vec![item.id], |output, id| kind.item(id, key, &call, &output.note, &given, "completed"));
        }
    }

    fn result(&mut self, item: &Item) {
        let Some(outcome) = outcome(item) else { return };
        if self.note.spelling.pairs {
            let key = CallKey { run: self.run, call: outcome.call };
            let text = if outcome.is_error { format!("error: {}", outcome.text) } else { outcome.text };
            return self.push("fco", vec![item.id], |_, id| items::function_output(id, key, &text));
        }
        let Some(entry) = self.calls.get(&outcome.call).and_then(|index| self.entries.get_mut(*index)) else { return };
        entry.items.push(item.id);
        entry.wire[if outcome.is_error { "error" } else { "output" }] = outcome.text.into();
        entry.wire["status"] = if outcome.is_error { "failed" } else { "completed" }.into();
    }

    fn deliverable(&mut self, item: &Item) {
        let is_cut = matches!(self.reason, Some(EndReason::CutShort(Finish::OutOfTokens | Finish::Filtered)));
        match serde_json::from_slice(&item.content) {
            Ok(Deliverable::Text(text)) => self.message(item, &text, if is_cut { "incomplete" } else { "completed" }),
            Ok(Deliverable::Summary(text)) => {
                self.push("cmp", vec![item.id], |output, id| items::compaction(id, &output.sealer.seal(id, &text), "completed"));
            }
            Ok(Deliverable::Fields(_)) | Err(_) => {}
        }
    }
}

fn outcome(item: &Item) -> Option<Outcome> {
    (item.kind == ItemKind::Result).then(|| Outcome::read(&item.content)).flatten()
}
