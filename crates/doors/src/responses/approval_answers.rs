//! The answers in a request's input to earlier requests for approval (`mcp_approval_response`).
//!
//! An answer counts if its request for approval belongs to the response that the request continues, and is the first one. A client that
//! sends the whole conversation again sends earlier answers with it: what follows them in the input shows that they were used.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_kernel::{InheritedCall, RunId, content::ClientAnswer};

use super::{
    deferred_calls::{FinalCalls, already_answered, asked_in, is_asked},
    error::WireError,
    items::approval_key,
    note::Note,
};
use crate::{DoorState, auth::Caller};

/// Puts the answers of an input into the calls that they are about. `open` are the calls of the response that the request continues, and
/// `last` is that response if only the input tells it. An answer that counts for no call, and is not a part of the history, is refused.
pub(super) async fn take(
    state: &DoorState,
    caller: &Caller,
    items: &[Value],
    last: Option<RunId>,
    open: &mut [&mut InheritedCall],
) -> Result<(), WireError> {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| is_answer(item)) {
        let place = || format!("input[{index}].approval_request_id");
        let id = item["approval_request_id"].as_str().unwrap_or_default();
        if !seen.insert(id) {
            let message = format!("The approval request '{id}' is answered twice; send one answer.");
            return Err(WireError::invalid(place(), message).with_code("duplicate_approval"));
        }
        let call = approval_key(id).and_then(|key| open.iter_mut().find(|call| is_asked(call, key)));
        match call.and_then(|call| call.approval.as_mut()) {
            Some(approval) => approval.answer = answer(item),
            None if is_history(&items[index + 1..], last) => {}
            None => return Err(refusal(state, caller, id).await?.at(place())),
        }
    }
    Ok(())
}

/// Whether any call has an answer.
pub(super) fn has_answers(calls: &[InheritedCall]) -> bool {
    calls.iter().any(|call| call.approval.as_ref().is_some_and(|approval| approval.answer != ClientAnswer::Missing))
}

fn is_answer(item: &Value) -> bool {
    item["type"] == "mcp_approval_response"
}

fn answer(item: &Value) -> ClientAnswer {
    let reason = || item["reason"].as_str().unwrap_or_default().to_owned();
    if item["approve"] == true { ClientAnswer::Approved } else { ClientAnswer::Rejected { reason: reason() } }
}

/// Whether output of a model, or an answer about the last response, is among the items after an answer: then an earlier request has brought
/// the answer.
fn is_history(after: &[Value], last: Option<RunId>) -> bool {
    let is_output = |item: &Value| match item["type"].as_str() {
        Some("mcp_approval_request" | "mcp_approval_response") => asked_in(item).is_some_and(|key| Some(key.run) == last),
        Some("mcp_call" | "function_call" | "custom_tool_call" | "reasoning" | "compaction") => true,
        Some("message") | None => item["role"] == "assistant",
        Some(_) => false,
    };
    after.iter().any(is_output)
}

/// Why an answer does not count. Requests for approval of other tenants look like those that are not on record.
async fn refusal(state: &DoorState, caller: &Caller, id: &str) -> Result<WireError, WireError> {
    let unknown = || {
        let message = format!(
            "The approval request '{id}' is not one of the response that this request continues; GET /v1/responses/ID shows the requests of a \
             response as items `mcp_approval_request`."
        );
        WireError::invalid("input", message).with_code("approval_request_not_found")
    };
    let Some(key) = approval_key(id) else { return Ok(unknown()) };
    let views = state.engine.views();
    let view = views.run(caller.tenant(), key.run).await?.filter(|view| view.note.as_ref().is_some_and(|note| Note::read(note).is_some()));
    let Some(view) = view else {
        let message =
            format!("The approval request '{id}' is not on record any more, so that its call can't be made; ask the model again.");
        return Ok(WireError::invalid("input", message).with_code("approval_expired"));
    };
    let is_asked = FinalCalls::of(state, caller, &view).await?.is_some_and(|calls| calls.asked(key).is_some());
    let inheritor: Option<RunId> = if is_asked { views.inheriting_run(caller.tenant(), key.run).await? } else { None };
    Ok(inheritor.map_or_else(unknown, |by| already_answered(key, by)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_history_once_output_follows_it() {
        let (request, message) = (json!({ "type": "mcp_approval_request" }), json!({ "role": "user", "content": "go" }));
        assert!(!is_history(&[request.clone(), json!({ "type": "mcp_approval_response" }), message.clone()], None));
        let later = json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_00000000000000000000000000000007_3" });
        assert!(is_history(std::slice::from_ref(&later), Some(RunId(uuid::Uuid::from_u128(7)))));
        assert!(!is_history(&[later], Some(RunId(uuid::Uuid::from_u128(8)))));
        for output in [json!({ "role": "assistant", "content": "done" }), json!({ "type": "mcp_call" }), json!({ "type": "reasoning" })] {
            assert!(is_history(&[request.clone(), output, message.clone()], None));
        }
    }

    #[test]
    fn an_answer_is_read_with_its_reason() {
        assert_eq!(answer(&json!({ "approve": true, "reason": "fine" })), ClientAnswer::Approved);
        assert_eq!(answer(&json!({ "approve": false })), ClientAnswer::Rejected { reason: String::new() });
        assert_eq!(answer(&json!({ "approve": false, "reason": "no" })), ClientAnswer::Rejected { reason: "no".into() });
    }
}
