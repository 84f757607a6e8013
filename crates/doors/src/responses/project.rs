//! The projection of a run to a response: the response object, and the numbered events that lead to it.
//!
//! Nothing of this is stored. The same journal, items and chunk lengths of streamed text always give the same wire events with the same
//! numbers. That makes a stream resumable.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use windlass_kernel::{
    CallKey, CallNumber, ChunkLengths, Compaction, EndReason, Event, Finish, Manifest, OpenCall, Phase, Route, Run, RunId, Timestamp,
    ToolChoice, apply,
    content::{Call, Deliverable, Reasoning, Thought},
};
use windlass_ports::{Item, JournalRecord};

use super::{
    compaction::Sealer,
    failed::Failed,
    items::{self, Handover, Outcome, item_id},
    note::Note,
    object::{self, Ending},
    wire::{PendingEvents, WireEvent},
};

/// A response, as far as its run's journal was read.
pub(super) struct Projection {
    pub id: RunId,
    pub note: Arc<Note>,
    pub manifest: Arc<Manifest>,
    pub created_at: Timestamp,
    /// The fold of the events so far; `None` before the first one.
    pub run: Option<Run>,
    /// The output so far, including items that are still open.
    pub output: Vec<Value>,
    pub ending: Option<Ending>,
    /// The model call's failure that ended the run, if one did.
    pub failed: Option<Failed>,
    /// Whether a worker has started the run.
    pub is_begun: bool,
    pub is_parked: bool,
    /// How many chunks of the open message were taken before their event was in the journal.
    pub open_chunks: usize,
    /// Events that wait to be sent. Empty if the projection emits no events.
    pub events: PendingEvents,
    /// Encrypts summaries, which clients carry but can't read.
    sealer: Sealer,
    emits_events: bool,
    next: u64,
    open: Option<OpenMessage>,
    /// The server's open calls, with their indices in the output.
    calls: BTreeMap<CallNumber, usize>,
    /// Results of the iteration, which the pair form shows once all of them are there.
    outputs: BTreeMap<CallNumber, Outcome>,
    /// A reply whose text is the deliverable, which comes with the next event.
    replied: Option<(ChunkLengths, Finish)>,
}

struct OpenMessage {
    index: usize,
    id: String,
    text: String,
}

impl Projection {
    /// A response before its first event. With `emits_events` it emits wire events; without, it only builds the object.
    pub fn new(id: RunId, note: Arc<Note>, manifest: Arc<Manifest>, created_at: Timestamp, sealer: Sealer, emits_events: bool) -> Self {
        Projection {
            id,
            note,
            manifest,
            created_at,
            run: None,
            output: Vec::new(),
            ending: None,
            failed: None,
            is_begun: false,
            is_parked: false,
            open_chunks: 0,
            events: PendingEvents::default(),
            sealer,
            emits_events,
            next: 0,
            open: None,
            calls: BTreeMap::new(),
            outputs: BTreeMap::new(),
            replied: None,
        }
    }

    /// The number of the next journal event to take.
    pub fn next_number(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.next_number)
    }

    /// The number of the next wire event.
    pub fn next_event(&self) -> u64 {
        self.next
    }

    /// Whether deltas may come: the run streams, and a model call is in progress.
    pub fn awaits_deltas(&self) -> bool {
        self.manifest.announced && self.run.as_ref().is_some_and(|run| matches!(run.phase, Phase::Thinking { .. }))
    }

    pub fn is_over(&self) -> bool {
        self.ending.is_some()
    }

    /// The index in the output of a call of the server that has no result yet.
    pub fn shown_at(&self, call: CallNumber) -> Option<usize> {
        self.calls.get(&call).copied()
    }

    /// The output with the text that the open message has so far.
    pub fn snapshot(&self) -> Vec<Value> {
        let mut output = self.output.clone();
        if let Some(open) = &self.open {
            output[open.index]["content"] = json!([items::text_part(&open.text)]);
        }
        output
    }

    /// Begins and ends a warm-up: a response without output, for which no run is started and no model is asked.
    pub fn warm_up(&mut self) {
        self.is_begun = true;
        self.lifecycle("response.created");
        self.ended(&EndReason::Answered, self.created_at, &[]);
    }

    /// Takes chunks of streamed text that are in no item yet.
    pub fn take_chunks(&mut self, chunks: Vec<String>) {
        for chunk in chunks {
            self.chunk(&chunk);
            self.open_chunks += 1;
        }
    }

    /// Takes the next event of the journal, with the items that it appended. Its event number must be [`Projection::next_number`].
    pub fn take(&mut self, passage: &JournalRecord) {
        let JournalRecord { entry, appended, result } = passage;
        let before = self.run.take();
        self.run = apply(before, &entry.event);
        match &entry.event {
            Event::Accepted { .. } => {
                self.lifecycle("response.created");
                if self.note.background {
                    self.lifecycle("response.queued");
                }
            }
            Event::Leased => {
                self.is_begun = true;
                self.lifecycle("response.in_progress");
                self.list_tools();
            }
            Event::IterationStarted { .. } => self.show_outputs(),
            Event::CallsInherited { calls, .. } => self.server_calls(calls, appended),
            Event::Reasoned { chunks, .. } => {
                self.finish_message(chunks, "", "completed");
                self.reasoning(appended);
            }
            Event::Replied { chunks, finish, calls, items, .. } => self.replied(chunks, *finish, calls, *items, appended),
            Event::Cut { chunks, resumes, .. } => {
                let text = appended.first().and_then(reply_text).unwrap_or_default();
                self.finish_message(chunks, &text, if *resumes { "completed" } else { "incomplete" });
            }
            Event::Compacted { chunks, .. } => self.finish_message(chunks, "", "completed"),
            Event::Heartbeat => self.lifecycle("response.in_progress"),
            Event::Reported { .. } => self.reported(result.as_ref()),
            Event::Interrupted(_) | Event::CallParked { .. } | Event::Parked { .. } => {
                self.is_parked = true;
                self.lifecycle("response.in_progress");
            }
            Event::Edited { .. } => self.edited(appended),
            // Another call of the iteration may still wait for a person's decision.
            Event::Approved { .. } | Event::Resolved { .. } | Event::CallReleased { .. } | Event::Unparked => {
                self.is_parked = self.run.as_ref().is_some_and(Run::is_interrupted);
            }
            Event::Ended { reason, .. } => self.ended(reason, entry.at, appended),
            Event::AttemptFailed { code, cause, retry_after_ms, retry_at: None, .. } => {
                self.failed = Some(Failed { code: code.clone(), cause: *cause, retry_after_ms: *retry_after_ms });
            }
            Event::ActionStarted { .. }
            | Event::ChildBegun { .. }
            | Event::AttemptFailed { .. }
            | Event::Compacting { .. }
            | Event::LeaseEnded { .. }
            | Event::OwnerChanged { .. }
            | Event::Ignored { .. }
            | Event::Steered { .. }
            | Event::CallRetried { .. }
            | Event::BudgetBreached { .. } => {}
        }
    }

    fn emit(&mut self, kind: &'static str, body: impl FnOnce(&Self) -> Value) {
        let number = self.next;
        self.next += 1;
        if self.emits_events {
            let body = body(self);
            self.events.push(WireEvent::new(kind, number, body));
        }
    }

    fn lifecycle(&mut self, kind: &'static str) {
        self.emit(kind, |this| json!({ "response": object::object(this) }));
    }

    fn add(&mut self, item: Value) -> usize {
        let index = self.output.len();
        self.output.push(item);
        self.emit("response.output_item.added", |this| json!({ "output_index": index, "item": this.output[index] }));
        index
    }

    fn done(&mut self, index: usize) {
        self.emit("response.output_item.done", |this| json!({ "output_index": index, "item": this.output[index] }));
    }

    /// Adds an item with the tools of each server, before all other output.
    fn list_tools(&mut self) {
        let manifest = self.manifest.clone();
        for server in &manifest.servers {
            let id = item_id("mcpl", self.id, self.output.len());
            let listed = items::mcp_list_tools(&id, &server.label, &manifest);
            let mut unlisted = listed.clone();
            unlisted["tools"] = json!([]);
            let index = self.add(unlisted);
            self.emit("response.mcp_list_tools.in_progress", |_| json!({ "output_index": index, "item_id": id }));
            self.emit("response.mcp_list_tools.completed", |_| json!({ "output_index": index, "item_id": id }));
            self.output[index] = listed;
            self.done(index);
        }
    }

    /// Takes one chunk of streamed text. An empty chunk is a heartbeat.
    fn chunk(&mut self, chunk: &str) {
        if chunk.is_empty() {
            return self.lifecycle("response.in_progress");
        }
        if self.open.is_none() {
            let index = self.output.len();
            let id = item_id("msg", self.id, index);
            self.add(items::empty_message(&id));
            self.emit(
                "response.content_part.added",
                |_| json!({ "item_id": id, "output_index": index, "content_index": 0, "part": items::text_part("") }),
            );
            self.open = Some(OpenMessage { index, id, text: String::new() });
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(chunk);
        if self.emits_events {
            self.events.push_delta(self.next, &open.id, open.index, chunk);
        }
        self.next += 1;
    }

    /// Completes a message: takes the chunks of `text` that were not taken as they were streamed, and ends the open item.
    fn finish_message(&mut self, chunks: &ChunkLengths, text: &str, status: &str) {
        for chunk in chunks.split(text).into_iter().skip(self.open_chunks) {
            self.chunk(chunk);
        }
        self.open_chunks = 0;
        let Some(OpenMessage { index, id, text }) = self.open.take() else { return };
        self.emit(
            "response.output_text.done",
            |_| json!({ "item_id": id, "output_index": index, "content_index": 0, "text": text, "logprobs": [] }),
        );
        self.emit(
            "response.content_part.done",
            |_| json!({ "item_id": id, "output_index": index, "content_index": 0, "part": items::text_part(&text) }),
        );
        self.output[index] = items::message(&id, &text, status);
        self.done(index);
    }

    fn replied(&mut self, chunks: &ChunkLengths, finish: Finish, calls: &[OpenCall], items: u32, appended: &[Item]) {
        if items == 0 {
            // The text is the deliverable, which comes with the end.
            self.replied = Some((chunks.clone(), finish));
            return;
        }
        let text = appended.first().and_then(reply_text).unwrap_or_default();
        self.finish_message(chunks, &text, "completed");
        self.reasoning(appended);
        match calls.is_empty() {
            false => self.server_calls(calls, appended),
            true => self.client_calls(appended),
        }
    }

    /// Adds reasoning items. Reasoning is complete when it is stored, so each item is opened and closed at once.
    fn reasoning(&mut self, appended: &[Item]) {
        for reasoning in appended.iter().filter_map(reply_reasoning).flatten() {
            let index = self.output.len();
            let id = item_id("rs", self.id, index);
            self.add(items::empty_reasoning(&id));
            for (part, text) in reasoning.summary.iter().enumerate() {
                let place = json!({ "item_id": id, "output_index": index, "summary_index": part });
                let with = |key: &str, value: Value| {
                    let mut body = place.clone();
                    body[key] = value;
                    body
                };
                self.emit("response.reasoning_summary_part.added", |_| with("part", items::summary_part("")));
                self.emit("response.reasoning_summary_text.delta", |_| with("delta", text.as_str().into()));
                self.emit("response.reasoning_summary_text.done", |_| with("text", text.as_str().into()));
                self.emit("response.reasoning_summary_part.done", |_| with("part", items::summary_part(text)));
            }
            self.output[index] = items::reasoning(&id, &reasoning, self.note.spelling);
            self.done(index);
        }
    }

    /// Adds a summary. Clients can't read it, so its text is not streamed.
    fn summary(&mut self, text: &str) {
        let index = self.output.len();
        let id = item_id("cmp", self.id, index);
        self.add(items::compaction(&id, "", "in_progress"));
        self.output[index] = items::compaction(&id, &self.sealer.seal(&id, text), "completed");
        self.done(index);
    }

    /// Adds calls that the server makes.
    fn server_calls(&mut self, calls: &[OpenCall], appended: &[Item]) {
        for call in appended.iter().filter_map(made_call) {
            if !calls.iter().any(|open| open.call == call.call) {
                continue;
            }
            if self.note.spelling.pairs {
                self.function_call(&call);
                continue;
            }
            let index = self.output.len();
            let id = item_id("mcp", self.id, index);
            self.add(items::mcp_call(&id, &call, &self.manifest.clone(), ""));
            self.emit("response.mcp_call.in_progress", |_| json!({ "output_index": index, "item_id": id }));
            self.output[index]["arguments"] = call.arguments.clone().into();
            let arguments = &call.arguments;
            self.emit("response.mcp_call_arguments.delta", |_| json!({ "output_index": index, "item_id": id, "delta": arguments }));
            self.emit("response.mcp_call_arguments.done", |_| json!({ "output_index": index, "item_id": id, "arguments": arguments }));
            self.calls.insert(call.call, index);
        }
    }

    /// Shows the arguments that a person wrote. The item of the call is still open; in the pair form it was closed with the model's arguments.
    fn edited(&mut self, appended: &[Item]) {
        for call in appended.iter().filter_map(made_call) {
            if let Some(index) = self.shown_at(call.call) {
                let arguments = call.arguments;
                self.emit(
                    "response.mcp_call_arguments.done",
                    |this| json!({ "output_index": index, "item_id": this.output[index]["id"], "arguments": arguments }),
                );
                self.output[index]["arguments"] = arguments.into();
            }
        }
    }

    /// Adds the calls of a reply that ended the run: those that the client makes, and those that it has to approve. A client would run any
    /// other call that it saw, but the server's are deferred to the follow-up.
    fn client_calls(&mut self, appended: &[Item]) {
        let manifest = self.manifest.clone();
        let is_clients = |call: &Call| manifest.tool(&call.tool).is_some_and(|tool| tool.route == Route::Client);
        for call in appended.iter().filter_map(made_call) {
            if call.asks_client {
                let key = CallKey { run: self.id, call: call.call };
                let index = self.add(items::approval_request(key, &call, &manifest));
                self.done(index);
            } else if manifest.choice == ToolChoice::None || is_clients(&call) {
                self.function_call(&call);
            }
        }
    }

    fn function_call(&mut self, call: &Call) {
        let (index, key) = (self.output.len(), CallKey { run: self.id, call: call.call });
        let note = self.note.clone();
        let (kind, given) = Handover::of(call, &note);
        let id = item_id(kind.prefix, self.id, index);
        self.add(kind.item(&id, key, call, &note, "", "in_progress"));
        self.emit(kind.delta, |_| json!({ "item_id": id, "output_index": index, "delta": given }));
        self.emit(kind.done, |this| json!({ "item_id": id, "output_index": index, kind.field: given, "name": this.output[index]["name"] }));
        self.output[index] = kind.item(&id, key, call, &note, &given, "completed");
        self.done(index);
    }

    fn reported(&mut self, result: Option<&Item>) {
        let Some(outcome) = result.and_then(|item| Outcome::read(&item.content)) else { return };
        self.is_parked = self.run.as_ref().is_some_and(Run::is_interrupted);
        if self.note.spelling.pairs {
            self.outputs.insert(outcome.call, outcome);
            return;
        }
        let Some(index) = self.calls.remove(&outcome.call) else { return };
        let field = if outcome.is_error { "error" } else { "output" };
        self.output[index][field] = outcome.text.into();
        self.output[index]["status"] = if outcome.is_error { "failed" } else { "completed" }.into();
        let kind = if outcome.is_error { "response.mcp_call.failed" } else { "response.mcp_call.completed" };
        self.emit(kind, |this| json!({ "output_index": index, "item_id": this.output[index]["id"] }));
        self.done(index);
    }

    /// Adds the outputs of the iteration in the pair form, in the order of the calls.
    fn show_outputs(&mut self) {
        for (call, outcome) in std::mem::take(&mut self.outputs) {
            let id = item_id("fco", self.id, self.output.len());
            let text = if outcome.is_error { format!("error: {}", outcome.text) } else { outcome.text };
            let index = self.add(items::function_output(&id, CallKey { run: self.id, call }, &text));
            self.done(index);
        }
    }

    fn ended(&mut self, reason: &EndReason, at: Timestamp, appended: &[Item]) {
        let text = appended.last().and_then(delivered).unwrap_or_default();
        match self.replied.take() {
            Some((chunks, _)) if self.manifest.compaction == Compaction::Only => {
                self.finish_message(&chunks, "", "completed");
                self.summary(&text);
            }
            Some((chunks, finish)) => self.finish_message(&chunks, &text, if finish == Finish::Done { "completed" } else { "incomplete" }),
            None => {}
        }
        self.show_outputs();
        // Calls without a result end as incomplete.
        for index in std::mem::take(&mut self.calls).into_values() {
            self.output[index]["status"] = "incomplete".into();
            self.done(index);
        }
        self.is_parked = false;
        let ending = Ending::new(reason, at, &text, &self.manifest, self.note.spelling);
        let kind = ending.event;
        self.ending = Some(ending);
        self.lifecycle(kind);
    }
}

fn read_reply(item: &Item) -> Option<Thought> {
    (item.kind == windlass_kernel::ItemKind::Thought).then(|| serde_json::from_slice(&item.content).ok()).flatten()
}

/// The text of a reply, if the item has one.
fn reply_text(item: &Item) -> Option<String> {
    read_reply(item).filter(|reply| reply.reasoning.is_empty()).map(|reply| reply.text)
}

/// The reasoning of a reply, if the item has any.
fn reply_reasoning(item: &Item) -> Option<Vec<Reasoning>> {
    read_reply(item).map(|reply| reply.reasoning)
}

pub(super) fn made_call(item: &Item) -> Option<Call> {
    (item.kind == windlass_kernel::ItemKind::Call).then(|| serde_json::from_slice(&item.content).ok()).flatten()
}

fn delivered(item: &Item) -> Option<String> {
    match serde_json::from_slice(&item.content).ok()? {
        Deliverable::Text(text) | Deliverable::Summary(text) => Some(text),
        Deliverable::Fields(_) => None,
    }
}
