//! Helpers for the tests of several providers.

use std::sync::Arc;

use serde_json::Value;
use windlass_kernel::{
    RunId, ToolChoice,
    header::{Content, Media, Part, Role},
    parameters::Parameters,
};
use windlass_ports::{ModelMessage, ModelRequest};

/// A request with this conversation and nothing else.
pub(crate) fn request(messages: Vec<ModelMessage>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        run: RunId(uuid::Uuid::from_u128(1)),
        iteration: 1,
        attempt: 1,
        instructions: None,
        messages,
        tools: [].into(),
        choice: ToolChoice::Auto,
        one_call: false,
        parameters: None,
        prefill: None,
    }
}

/// A message from outside.
pub(crate) fn message(role: Role, content: Content<String, Value>) -> ModelMessage {
    ModelMessage::Message { role, content }
}

/// The content of a message with these texts.
pub(crate) fn texts(texts: &[&str]) -> Content<String, Value> {
    Content::Parts(texts.iter().map(|text| Part::Text((*text).to_owned())).collect())
}

/// An image that a client sent as this JSON.
pub(crate) fn image(url: &str, detail: Option<&str>, json: &Value) -> Part<String, Value> {
    let media = Media::Image { url: Some(url.to_owned()), detail: detail.map(str::to_owned) };
    Part::Attachment { media, json: json.clone() }
}

/// A file that a client sent as this JSON, whose members have the names of the Responses API.
pub(crate) fn file(json: &Value) -> Part<String, Value> {
    let given = |name: &str| json[name].as_str().map(str::to_owned);
    let media = Media::File { data: given("file_data"), url: given("file_url"), id: given("file_id"), name: given("filename") };
    Part::Attachment { media, json: json.clone() }
}

/// Parameters by their stored names.
pub(crate) fn parameters(stored: Value) -> Option<Arc<Parameters>> {
    serde_json::from_value(stored).map(Arc::new).ok()
}
