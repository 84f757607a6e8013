//! The response object.

use serde_json::{Value, json};
use windlass_kernel::{BudgetKind, Cause, EndReason, FailureCode, Finish, Interrupt, Manifest, Timestamp, Usage};
use windlass_ports::InterruptId;

use super::{note::Spelling, project::Projection};

/// How a response ended.
pub(super) struct Ending {
    pub status: &'static str,
    /// The status under `windlass.status`, which does not depend on the client's settings.
    native: &'static str,
    /// The type of the stream's last event.
    pub event: &'static str,
    incomplete: Option<&'static str>,
    error: Option<(String, String)>,
    at: Timestamp,
}

impl Ending {
    /// The ending of a response, from the end of its run. `text` is the text of the deliverable.
    pub fn new(reason: &EndReason, at: Timestamp, text: &str, manifest: &Manifest, spelling: Spelling) -> Self {
        let plain = |status, event, incomplete| Ending { status, native: status, event, incomplete, error: None, at };
        match reason {
            EndReason::RequiresAction if manifest.runs_tools() => {
                let status = if spelling.standard { "completed" } else { "requires_action" };
                let event = if spelling.lifecycle { "response.requires_action" } else { "response.completed" };
                Ending { status, native: "requires_action", event, incomplete: None, error: None, at }
            }
            EndReason::Answered | EndReason::RequiresAction | EndReason::Terminated => plain("completed", "response.completed", None),
            EndReason::CutShort(Finish::Filtered) => plain("incomplete", "response.incomplete", Some("content_filter")),
            EndReason::CutShort(_) => plain("incomplete", "response.incomplete", Some("max_output_tokens")),
            EndReason::Budget(kind) => plain("incomplete", "response.incomplete", Some(limit(*kind))),
            EndReason::Stopped => {
                let event = if spelling.lifecycle { "response.cancelled" } else { "response.incomplete" };
                plain("cancelled", event, Some("cancelled"))
            }
            EndReason::Abandoned => {
                Ending { error: Some(("server_error".to_owned(), text.to_owned())), ..plain("failed", "response.failed", None) }
            }
            EndReason::ModelFailed(code) => {
                Ending { error: Some((wire_code(code), text.to_owned())), ..plain("failed", "response.failed", None) }
            }
        }
    }
}

impl Ending {
    /// The message of the error that the response ended with.
    pub fn error_message(&self) -> Option<&str> {
        self.error.as_ref().map(|(_, message)| message.as_str())
    }
}

fn limit(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::Iterations => "max_turns",
        BudgetKind::Calls => "max_tool_calls",
        BudgetKind::Tokens => "max_tokens",
        BudgetKind::WallMs => "max_time",
        BudgetKind::Children => "max_children",
        BudgetKind::CostMicroUsd => "max_cost",
    }
}

/// The code of a failure as clients know it; unknown codes become `server_error`.
fn wire_code(code: &FailureCode) -> String {
    match code {
        FailureCode::RateLimited => "rate_limit_exceeded",
        FailureCode::Overloaded => "server_is_overloaded",
        FailureCode::StreamCut
        | FailureCode::ContextLengthExceeded
        | FailureCode::PromptTooLarge
        | FailureCode::ContentFiltered
        | FailureCode::InsufficientQuota
        | FailureCode::AnswerTooLarge
        | FailureCode::ModelTimeout => code.as_str(),
        FailureCode::ContextUnreadable
        | FailureCode::Diverged
        | FailureCode::NoSummary
        | FailureCode::Panicked
        | FailureCode::Refused
        | FailureCode::StreamStalled
        | FailureCode::UnknownModel
        | FailureCode::UnknownTool
        | FailureCode::UpstreamError
        | FailureCode::UpstreamGarbage
        | FailureCode::UpstreamUnauthorized
        | FailureCode::UpstreamUnreachable
        | FailureCode::Other(_) => "server_error",
    }
    .to_owned()
}

/// The object as it is now.
pub(super) fn object(projection: &Projection) -> Value {
    let mut object = projection.note.echo.clone();
    let going_on = if projection.note.background && !projection.is_begun { "queued" } else { "in_progress" };
    let status = projection.ending.as_ref().map_or(going_on, |ending| ending.status);
    let native = match &projection.ending {
        Some(ending) => ending.native,
        None if projection.is_parked => held_status(projection),
        None => going_on,
    };
    let is_answered = matches!(native, "completed" | "requires_action");
    let completed_at = projection.ending.as_ref().filter(|_| is_answered).map(|ending| ending.at.0 / 1000);
    let incomplete = projection.ending.as_ref().and_then(|ending| ending.incomplete);
    let error = projection.ending.as_ref().and_then(|ending| ending.error.as_ref());
    // A warm-up ends without a run.
    let usage = projection.is_over().then(|| usage(projection.run.as_ref().map_or_else(Usage::default, |run| run.usage)));
    object.insert("id".into(), response_id(projection.id).into());
    object.insert("object".into(), "response".into());
    object.insert("created_at".into(), (projection.created_at.0 / 1000).into());
    object.insert("completed_at".into(), completed_at.into());
    object.insert("status".into(), status.into());
    object.insert("error".into(), error.map_or(Value::Null, |(code, message)| json!({ "code": code, "message": message })));
    object.insert("incomplete_details".into(), incomplete.map_or(Value::Null, |reason| json!({ "reason": reason })));
    object.insert("model".into(), projection.note.model.clone().into());
    object.insert("store".into(), projection.note.store.into());
    object.insert("background".into(), projection.note.background.into());
    object.insert("tools".into(), Value::Array(projection.manifest.declared.clone()));
    object.insert("output".into(), Value::Array(projection.snapshot()));
    object.insert("usage".into(), usage.unwrap_or_default());
    let iteration = projection.run.as_ref().map_or(0, |run| run.iteration);
    let mut windlass = json!({ "status": native, "run_id": projection.id, "iteration": iteration });
    let interrupts = projection.run.as_ref().map_or(&[][..], |run| run.interrupts.as_slice());
    if !interrupts.is_empty() {
        let id = |open: &Interrupt| InterruptId { run: projection.id, number: open.number }.to_string();
        windlass["interrupts"] = interrupts.iter().map(id).collect();
    }
    if let Some(steered) = projection.run.as_ref().map(|run| run.steered).filter(|steered| *steered > 0) {
        windlass["steered"] = steered.into();
    }
    if !projection.note.ignored_tools.is_empty() {
        windlass["ignored_tools"] = json!(projection.note.ignored_tools);
    }
    object.insert("windlass".into(), windlass);
    Value::Object(object)
}

/// The status of a response that waits for a person: for an approval or an answer, or for a decision about something that went wrong.
fn held_status(projection: &Projection) -> &'static str {
    let interrupts = projection.run.as_ref().map_or(&[][..], |run| run.interrupts.as_slice());
    let is_usual = interrupts.iter().all(|open| matches!(open.cause, Cause::Approval | Cause::Question));
    if is_usual { "waiting" } else { "parked" }
}

/// The id of a run's response.
pub(super) fn response_id(run: windlass_kernel::RunId) -> String {
    format!("resp_{}", run.0.simple())
}

/// The run of a response's id; `None` if `response_id` can't have made it.
pub(super) fn run_of(id: &str) -> Option<windlass_kernel::RunId> {
    let hex = id.strip_prefix("resp_").filter(|hex| hex.len() == 32 && !hex.contains(|c: char| c.is_ascii_uppercase()))?;
    uuid::Uuid::try_parse(hex).ok().map(windlass_kernel::RunId)
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.tokens_in,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written },
        "output_tokens": usage.tokens_out,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.total(),
    })
}
