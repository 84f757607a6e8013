//! Deferred calls: calls of the server in a reply that also has calls for the client.
//!
//! Such a reply ends the response, and the server's calls are deferred. The first follow-up inherits and makes them; later follow-ups of
//! the same response get their results. The same holds for a reply with calls that the client has to approve: the first follow-up decides
//! which of them are made.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;
use windlass_engine::{DeferredCalls, EngineError, Respond, Responded};
use windlass_kernel::{
    BoxRange, CallKey, CallNumber, EndReason, InheritedCall, ItemKind, Phase, Route, RunId, ToolChoice,
    content::{self, ClientAnswer, ClientApproval},
};
use windlass_ports::{Item, RunStatus, RunView};

use super::{
    error::WireError,
    items::{approval_id, approval_key, place_of},
    object::response_id,
};
use crate::{DoorState, auth::Caller};

/// The calls of the reply that ended a run, by who makes them.
pub(super) struct FinalCalls {
    /// The calls that the client makes.
    pub clients: BTreeSet<CallNumber>,
    /// The server's calls, which were deferred. Those that the client has to approve have no answer yet.
    pub deferred: Vec<InheritedCall>,
}

impl FinalCalls {
    /// The calls at the end of a run. `None` if the run did not end with calls for its client.
    pub async fn of(state: &DoorState, caller: &Caller, view: &RunView) -> Result<Option<Self>, WireError> {
        let Phase::Ended { reason, .. } = &view.state.phase else { return Ok(None) };
        // With `tool_choice: none` the model may still ask for calls. The output shows them as the client's, which may make them.
        let is_forbidden = *reason == EndReason::Answered && view.manifest.choice == ToolChoice::None;
        if *reason != EndReason::RequiresAction && !is_forbidden {
            return Ok(None);
        }
        let calls = last_calls(state, caller, view.state.output).await?;
        let is_clients =
            |call: &content::Call| is_forbidden || view.manifest.tool(&call.tool).is_some_and(|tool| tool.route == Route::Client);
        let (clients, deferred): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_clients);
        let unanswered = |call: &content::Call| ClientApproval {
            run: view.id,
            address: view.manifest.address(&call.tool),
            answer: ClientAnswer::Missing,
        };
        let inherited = |call: content::Call| InheritedCall {
            number: call.call,
            approval: call.asks_client.then(|| unanswered(&call)),
            tainted: view.state.tainted,
            requested: call.requested(),
        };
        Ok(Some(FinalCalls {
            clients: clients.iter().map(|call| call.call).collect(),
            deferred: deferred.into_iter().map(inherited).collect(),
        }))
    }

    /// The call that is asked about under this key in a response with these calls.
    pub fn asked(&self, key: CallKey) -> Option<&InheritedCall> {
        self.deferred.iter().find(|call| is_asked(call, key))
    }
}

/// Whether this is the key of a call that the client has to approve.
pub(super) fn is_asked(call: &InheritedCall, key: CallKey) -> bool {
    call.number == key.call && call.approval.as_ref().is_some_and(|approval| approval.run == key.run)
}

/// Items of an output that are read at a time. Most iterations are shorter.
const TAIL_ITEMS: u32 = 32;

/// The calls at the end of an output, before its deliverable.
async fn last_calls(state: &DoorState, caller: &Caller, output: BoxRange) -> Result<Vec<content::Call>, WireError> {
    let mut calls: Vec<content::Call> = Vec::new();
    let mut end = output.length.saturating_sub(1);
    while end > 0 {
        let from = end.saturating_sub(TAIL_ITEMS);
        let items = state.engine.views().box_items(caller.tenant(), output.id, from, (end - from) as usize).await?;
        let made = items.iter().rev().take_while(|item| item.kind == ItemKind::Call);
        let count = made.clone().count();
        calls.extend(made.filter_map(|item| serde_json::from_slice(&item.content).ok()));
        end = if count == items.len() { from } else { 0 };
    }
    calls.reverse();
    Ok(calls)
}

/// Encoded items of a context.
type Items = Vec<(ItemKind, Bytes)>;

/// A position among the items of an input: before the item with that index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InsertPosition {
    pub index: usize,
    pub order: Order,
}

/// The order of what is inserted at one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// It belongs to the item before that index.
    Behind,
    /// It is an iteration of its own, between the two items.
    Between,
    /// It belongs to the same iteration as the item at that index.
    Beside,
}

/// The deferred calls of a conversation whose client sent it again, with their positions in the input.
pub(super) struct Placement {
    /// The response that the request continues, with the calls that its run makes first.
    pub deferred: Option<DeferredCalls>,
    /// Runs that inherited calls which are now placed where they were deferred.
    pub inheritors: BTreeSet<RunId>,
    /// The items to insert, with their positions.
    pub insertions: Vec<(InsertPosition, Items)>,
}

/// Places deferred calls beside the client's calls of the same iteration. The calls of `continued`, the response that the request
/// continues, are for its run to make. Those of earlier responses were made by a follow-up, and are placed with their results.
pub(super) async fn place(
    state: &DoorState,
    caller: &Caller,
    responses: &[(RunId, FinalCalls)],
    continued: Option<RunId>,
    items: &[Value],
) -> Result<Placement, WireError> {
    let mut placed = Placement { deferred: None, inheritors: BTreeSet::new(), insertions: Vec::new() };
    for (run, final_calls) in responses {
        let shown = shown_calls_in(*run, final_calls, items);
        if shown.is_empty() && !final_calls.deferred.is_empty() {
            continue;
        }
        let is_continued = Some(*run) == continued;
        if is_continued {
            // Recorded also without deferred calls: the response has waited for this follow-up.
            placed.deferred = Some(DeferredCalls { run: *run, calls: final_calls.deferred.clone(), is_placed: true });
        }
        if final_calls.deferred.is_empty() {
            continue;
        }
        let mut results = Vec::new();
        if !is_continued {
            let inheritor = state.engine.views().inheriting_run(caller.tenant(), *run).await?;
            let Some(inheritor) = inheritor.filter(|inheritor| !has_calls_of(items, *inheritor)) else { continue };
            results = match inherited_results(state, caller, inheritor).await? {
                Some(results) if !results.is_empty() => results,
                Some(_) | None => continue,
            };
            placed.inheritors.insert(inheritor);
        }
        placed.insertions.extend(insertions_of(final_calls, &shown, is_continued, results));
    }
    Ok(placed)
}

/// Whether the items contain calls that a run made.
fn has_calls_of(items: &[Value], run: RunId) -> bool {
    let is_its = |item: &Value| item["type"] == "mcp_call" && item["id"].as_str().and_then(place_of).is_some_and(|(of, _)| of == run);
    items.iter().any(is_its)
}

/// The items for the calls at the end of a run that the client makes or has to approve, as indices and call numbers.
fn shown_calls_in(run: RunId, final_calls: &FinalCalls, items: &[Value]) -> Vec<(usize, CallNumber)> {
    let number = |item: &Value| {
        if let Some(key) = asked_in(item) {
            return final_calls.asked(key).map(|call| call.number);
        }
        let is_call = item["type"] == "function_call" || item["type"] == "custom_tool_call";
        let key: CallKey = item["call_id"].as_str().filter(|_| is_call)?.parse().ok()?;
        (key.run == run && final_calls.clients.contains(&key.call)).then_some(key.call)
    };
    items.iter().enumerate().filter_map(|(index, item)| Some((index, number(item)?))).collect()
}

/// The call that a request for approval, or the answer to one, is about. Some clients send only the answer.
pub(super) fn asked_in(item: &Value) -> Option<CallKey> {
    let member = match item["type"].as_str()? {
        "mcp_approval_request" => "id",
        "mcp_approval_response" => "approval_request_id",
        _ => return None,
    };
    approval_key(item[member].as_str()?)
}

/// The positions of deferred calls: each one before the shown call that is the same or follows it in the reply. Calls after the last shown
/// call, and all results, come after that call.
fn insertions_of(
    final_calls: &FinalCalls,
    shown: &[(usize, CallNumber)],
    is_continued: bool,
    results: Items,
) -> Vec<(InsertPosition, Items)> {
    let Some((last, _)) = shown.last() else { return Vec::new() };
    let position = |index: &usize| InsertPosition { index: *index, order: Order::Beside };
    let mut insertions: Vec<(InsertPosition, Items)> = shown.iter().map(|(index, _)| (position(index), Vec::new())).collect();
    insertions.push((InsertPosition { index: last + 1, order: Order::Behind }, Vec::new()));
    for call in &final_calls.deferred {
        let place = shown.iter().position(|(_, number)| *number >= call.number).unwrap_or(shown.len());
        let content = match is_continued {
            true => content::inherited_call(call.number, call),
            false => content::call(call.number, &call.requested),
        };
        insertions[place].1.push((ItemKind::Call, content));
    }
    insertions[shown.len()].1.extend(results);
    insertions
}

/// Starts a run that inherits the deferred calls of the response before it. If another follow-up has inherited them, the run gets their
/// results instead; if they are still running, the request is refused with a conflict.
pub(super) async fn start(state: &DoorState, caller: &Caller, mut request: Respond) -> Result<Responded, WireError> {
    let Some(deferred) = request.left.clone().filter(|deferred| !deferred.calls.is_empty()) else {
        return Ok(state.engine.respond(request).await?);
    };
    match state.engine.respond(request.clone()).await {
        Err(EngineError::AlreadyInherited(by)) => {
            // Another follow-up has inherited the deferred calls: this run gets their results.
            let is_placed = deferred.is_placed;
            check_same_answers(state, caller, &deferred, by).await?;
            request.left = Some(DeferredCalls { calls: Vec::new(), ..deferred });
            let results = inherited_results(state, caller, by).await?.ok_or_else(|| {
                let message = "another follow-up of the same response is running its tool calls; try again when they are done";
                WireError::conflict("tool_calls_running", message).at(if is_placed { "input" } else { "previous_response_id" })
            })?;
            if is_placed && (results.is_empty() || has_calls_of(&wire_items(&request.input), by)) {
                request.input.retain(|(kind, content)| !is_inherited_call(*kind, content));
            } else {
                request.input.iter_mut().for_each(|(kind, content)| clear_inheritance(*kind, content));
                request.input.extend(results);
            }
            Ok(state.engine.respond(request).await?)
        }
        started => Ok(started?),
    }
}

fn wire_items(input: &[(ItemKind, Bytes)]) -> Vec<Value> {
    let sent = input.iter().filter(|(kind, _)| *kind == ItemKind::Instruction);
    let item = |content: &Bytes| match serde_json::from_slice(content).ok()? {
        content::Instruction::Item(raw) | content::Instruction::Made { item: raw, .. } => serde_json::from_str(raw.get()).ok(),
        content::Instruction::Text(_)
        | content::Instruction::Aside(_)
        | content::Instruction::Compaction { .. }
        | content::Instruction::Summary(_) => None,
    };
    sent.filter_map(|(_, content)| item(content)).collect()
}

fn inherited_call(kind: ItemKind, content: &[u8]) -> Option<content::Call> {
    let call: content::Call = serde_json::from_slice(content).ok().filter(|_| kind == ItemKind::Call)?;
    call.takes.is_some().then_some(call)
}

fn is_inherited_call(kind: ItemKind, content: &[u8]) -> bool {
    inherited_call(kind, content).is_some()
}

/// Turns a call that the run was to inherit into a plain call of the history.
fn clear_inheritance(kind: ItemKind, content: &mut Bytes) {
    if let Some(call) = inherited_call(kind, content) {
        *content = content::call(call.call, &call.requested());
    }
}

/// Refuses an answer about a call that differs from the answer that the run `by` was started with: the first answer wins. A request without
/// an answer gets what the first one led to.
async fn check_same_answers(state: &DoorState, caller: &Caller, deferred: &DeferredCalls, by: RunId) -> Result<(), WireError> {
    let is_answered = |call: &&InheritedCall| call.approval.as_ref().is_some_and(|approval| approval.answer != ClientAnswer::Missing);
    if !deferred.calls.iter().any(|call| is_answered(&call)) {
        return Ok(());
    }
    // The context has the calls from the first commit of the run on, its output only once a worker has entered it.
    let Some(view) = state.engine.views().run(caller.tenant(), by).await? else { return Ok(()) };
    let context = view.state.context;
    let items = state.engine.views().box_items(caller.tenant(), context.id, 0, context.length as usize).await?;
    let recorded: Vec<InheritedCall> = items.iter().filter_map(|item| inherited_call(item.kind, &item.content)?.inherited()).collect();
    for call in deferred.calls.iter().filter(is_answered) {
        let first = recorded.iter().find(|recorded| recorded.number == call.number);
        if let Some(first) = first
            && let Some(approval) = &call.approval
            && !is_same_answer(first.approval.as_ref(), approval)
        {
            return Err(already_answered(CallKey { run: approval.run, call: call.number }, by).at("input"));
        }
    }
    Ok(())
}

fn is_same_answer(first: Option<&ClientApproval>, second: &ClientApproval) -> bool {
    first.is_some_and(|first| std::mem::discriminant(&first.answer) == std::mem::discriminant(&second.answer))
}

/// The refusal of a second answer. The first one came with the request that started the run `by`.
pub(super) fn already_answered(key: CallKey, by: RunId) -> WireError {
    let (id, first) = (approval_id(key), response_id(by));
    let message = format!(
        "The approval request '{id}' was decided already, by the request of the response '{first}'; the first answer counts, and a request without one counts as no approval."
    );
    WireError::conflict("already_answered", message)
}

/// The results of the calls that the run `by` inherited, under the numbers that the calls had where they were deferred. `None` if some of
/// them are still running. A call that will never have a result has no entry; a run that was erased has no results.
async fn inherited_results(state: &DoorState, caller: &Caller, by: RunId) -> Result<Option<Items>, WireError> {
    let views = state.engine.views();
    let Some(view) = views.run(caller.tenant(), by).await? else { return Ok(Some(Vec::new())) };
    let is_over = view.status == RunStatus::Ended;
    let output = view.state.output;
    let items = views.box_items(caller.tenant(), output.id, 0, output.length as usize).await?;
    let calls: Vec<content::Call> = items.iter().filter_map(|item| inherited_call(item.kind, &item.content)).collect();
    if calls.is_empty() {
        return Ok(is_over.then(Vec::new));
    }
    let mut results = Vec::with_capacity(calls.len());
    for call in calls {
        let result = items.iter().find_map(|item| result_of(item, call.call, call.takes?));
        match result {
            Some(result) => results.push((ItemKind::Result, result)),
            None if is_over => {}
            None => return Ok(None),
        }
    }
    Ok(Some(results))
}

/// The content of a call's result, under another call number; `None` if the item is not that result.
fn result_of(item: &Item, call: CallNumber, number: CallNumber) -> Option<Bytes> {
    let result: content::CallResult<'_> = serde_json::from_slice(&item.content).ok().filter(|_| item.kind == ItemKind::Result)?;
    (result.call == call).then(|| content::result(number, result.status, result.result))
}
