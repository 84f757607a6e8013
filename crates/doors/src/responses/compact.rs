//! `POST /v1/responses/compact`: a short input that a client sends instead of a whole conversation.
//!
//! A run makes the summary, and is erased soon after. The result is not a response that could be continued, but an input: the newest user
//! messages, and the summary.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::{Value, json};
use windlass_engine::KEPT_BYTES_MAX;
use windlass_kernel::{BoxRange, EndReason, ItemKind, Phase, RunId, content};
use windlass_ports::Item;

use super::{
    body::WireBody,
    create::{self, CreateContext, StartedResponse},
    error::WireError,
    failed,
    join::Identity,
    object::object,
    reader::Reader,
    request::Create,
    retrieve::wire_input,
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
};

pub(super) async fn compact(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let create = Create::read_compaction(&body)?;
    let identity = Identity::of_compaction(&caller, &headers, &body)?;
    let context = CreateContext::of(&caller, &headers, &create, identity);
    let StartedResponse { known, rests, reader: mut guard, .. } = create::start_or_join(&state, &context).await?;
    let mut reader = Reader::new(&state, known, false);
    create::wait(&mut reader, rests).await?;
    guard.served();
    let projection = &reader.projection;
    let mut response = object(projection);
    let ended = projection.run.as_ref().map(|run| (&run.phase, run.context));
    let Some((Phase::Ended { reason: EndReason::Answered, .. }, context)) = ended else {
        let status = response["windlass"]["status"].as_str().unwrap_or_default();
        let no_summary = || WireError::model_failed(format!("no summary was made: the compaction ended as {status}"));
        return Err(failed::error(projection).unwrap_or_else(no_summary));
    };
    let mut output = kept(&state, &caller, projection.id, context).await?;
    output.extend(response["output"].as_array_mut().map(std::mem::take).unwrap_or_default());
    Ok(answer::ok(&json!({
        "id": response["id"], "object": "response.compaction", "created_at": response["created_at"], "output": output,
        "usage": response["usage"],
    })))
}

/// The newest user messages that fit into [`KEPT_BYTES_MAX`], in order.
async fn kept(state: &DoorState, caller: &Caller, run: RunId, context: BoxRange) -> Result<Vec<Value>, WireError> {
    let items = state.engine.views().range_items(caller.tenant(), context).await?;
    let mut room = KEPT_BYTES_MAX;
    let mut kept = Vec::new();
    for message in items.iter().enumerate().rev().filter_map(|(index, item)| users(run, index, item)) {
        let Some(left) = room.checked_sub(message.to_string().len()) else { break };
        room = left;
        kept.push(message);
    }
    kept.reverse();
    Ok(kept)
}

/// The item as a user message with all fields that the API's contract requires; `None` if it is anything else.
fn users(run: RunId, index: usize, item: &Item) -> Option<Value> {
    let instruction = (item.kind == ItemKind::Instruction).then(|| serde_json::from_slice(&item.content).ok()).flatten()?;
    let content::Instruction::Item(_) = instruction else { return None };
    let mut message = wire_input(run, index, item).filter(|item| item["type"] == "message" && item["role"] == "user")?;
    for part in message["content"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if part.get("type").is_some_and(|kind| kind == "input_image") {
            part.entry("detail").or_insert_with(|| "auto".into());
            part.entry("image_url").or_insert(Value::Null);
        }
    }
    Some(message)
}
