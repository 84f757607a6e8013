//! Maps the answers of servers to results, failures and effect classes.

use bytes::Bytes;
use rmcp::{
    ServiceError,
    model::{CallToolResult, ContentBlock, ToolAnnotations},
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use serde_json::Value;
use windlass_kernel::{EffectClass, TaskStatus};
use windlass_ports::{ServerError, ToolReport};

use crate::http::HttpError;

/// Characters of a server's error message that are passed on.
const MESSAGE_CHARS_MAX: usize = 500;

/// The effect class of a tool by the annotations of its server.
pub(crate) fn effect(annotations: Option<&ToolAnnotations>) -> EffectClass {
    let says = |hint: fn(&ToolAnnotations) -> Option<bool>| annotations.and_then(hint) == Some(true);
    if says(|tool| tool.read_only_hint) {
        EffectClass::Read
    } else if says(|tool| tool.idempotent_hint) {
        EffectClass::Idempotent
    } else {
        EffectClass::Write
    }
}

/// The report of a call that the server answered.
pub(crate) fn report(result: CallToolResult) -> ToolReport {
    let status = if result.is_error == Some(true) { TaskStatus::Failed } else { TaskStatus::Success };
    ToolReport { status, result: json(&content(result)), after: None, failure: None }
}

/// The report of a call that failed. The model reads `why`, which may quote the server; the log has only `class`.
pub(crate) fn failed(class: &'static str, why: &str) -> ToolReport {
    ToolReport { status: TaskStatus::Failed, result: json(&why.into()), after: None, failure: Some(class) }
}

/// The class of a server's failure, as the log names it.
pub(crate) fn class_of(error: &ServerError) -> &'static str {
    match error {
        ServerError::Unknown(_) => "unknown_server",
        ServerError::Refused(_) => "address_refused",
        ServerError::Failed { .. } => "server_failed",
        ServerError::Busy(_) => "servers_busy",
    }
}

fn json(value: &Value) -> Bytes {
    value.to_string().into()
}

/// The answer as one JSON value: text if it has only text, the structured content if it has no text, else all of it.
fn content(result: CallToolResult) -> Value {
    let texts: Option<Vec<&str>> =
        result.content.iter().map(|part| if let ContentBlock::Text(part) = part { Some(part.text.as_str()) } else { None }).collect();
    match (texts, result.structured_content) {
        (Some(texts), Some(structure)) if texts.is_empty() => structure,
        (Some(texts), _) => texts.join("\n").into(),
        (None, _) => serde_json::to_value(&result.content).unwrap_or_default(),
    }
}

/// The message for a session that could not be opened.
pub(crate) fn opening_error(error: &ClientInitializeError) -> String {
    if let ClientInitializeError::TransportError { error, .. } = error {
        return transport_error(error);
    }
    if let ClientInitializeError::JsonRpcError(error) = error {
        return short(&error.message);
    }
    // The messages of the other errors quote what was received, which can be long.
    "it does not open a session as MCP has it".to_owned()
}

/// The message for a request that failed.
pub(crate) fn error(error: &ServiceError) -> String {
    if let ServiceError::McpError(error) = error {
        return short(&error.message);
    }
    if let ServiceError::TransportSend(error) = error {
        return transport_error(error);
    }
    if let ServiceError::TransportClosed = error {
        return "the session was lost".to_owned();
    }
    "its answer is not one of MCP".to_owned()
}

/// The message for a call that failed. It says whether the call may have been started.
pub(crate) fn call_error(error: &ServiceError) -> String {
    let why = self::error(error);
    let was_refused = if let ServiceError::TransportSend(error) = error {
        matches!(http_error(error), Some(HttpError::Unreachable | HttpError::Status(..500)))
    } else {
        // A protocol error is an answer to the call, so its outcome is known.
        matches!(error, ServiceError::McpError(_))
    };
    if was_refused { why } else { format!("{why}; the call may have had its effect") }
}

fn http_error(error: &DynamicTransportError) -> Option<&HttpError> {
    let error = error.error.downcast_ref::<StreamableHttpError<HttpError>>()?;
    if let StreamableHttpError::Client(error) = error { Some(error) } else { None }
}

fn transport_error(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<HttpError>>() {
        Some(StreamableHttpError::Client(error)) => error.to_string(),
        Some(StreamableHttpError::SessionExpired) => "it does not keep its sessions".to_owned(),
        // The transport's own message could quote the server.
        Some(_) | None => "the session was lost".to_owned(),
    }
}

/// The text, shortened to the limit.
pub(crate) fn short(text: &str) -> String {
    let short: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(value: Value) -> CallToolResult {
        serde_json::from_value(value).expect("a result")
    }

    #[test]
    fn an_answer_becomes_one_value() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        for (answer, value) in [
            (json!({ "content": [text("one")] }), json!("one")),
            (json!({ "content": [text("one"), text("two")] }), json!("one\ntwo")),
            (json!({ "content": [text("{}")], "structuredContent": { "a": 1 } }), json!("{}")),
            (json!({ "content": [], "structuredContent": { "a": 1 } }), json!({ "a": 1 })),
            (json!({ "structuredContent": null }), json!(null)),
            (json!({ "content": [] }), json!("")),
            (json!({ "content": [text("see"), image] }), json!([text("see"), image])),
        ] {
            let report = report(result(answer));
            assert_eq!(serde_json::from_slice::<Value>(&report.result).expect("it is JSON"), value);
            assert_eq!(report.status, TaskStatus::Success);
        }
        let report = report(result(json!({ "content": [text("no")], "isError": true })));
        assert_eq!((report.status, report.result.as_ref()), (TaskStatus::Failed, b"\"no\"".as_slice()));
    }

    #[test]
    fn the_effect_class_is_the_servers_and_write_by_default() {
        let says = |read, idempotent| ToolAnnotations::from_raw(None, read, None, idempotent, None);
        for (annotations, class) in [
            (None, EffectClass::Write),
            (Some(says(None, None)), EffectClass::Write),
            (Some(says(Some(false), Some(false))), EffectClass::Write),
            (Some(says(Some(true), None)), EffectClass::Read),
            (Some(says(Some(true), Some(true))), EffectClass::Read),
            (Some(says(Some(false), Some(true))), EffectClass::Idempotent),
        ] {
            assert_eq!(effect(annotations.as_ref()), class, "{annotations:?}");
        }
    }

    #[test]
    fn messages_are_shortened() {
        assert_eq!(short("short"), "short");
        assert_eq!(short(&"ü".repeat(501)).chars().count(), 501);
    }
}
