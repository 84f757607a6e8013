//! Estimates how many tokens a model would read. The estimate is local, because providers count in different ways, and some offer no
//! count.

use serde_json::Value;
use windlass_kernel::{Manifest, RequestedCall};
use windlass_ports::{Item, ModelEvent, ModelMessage, ModelTool};

use crate::{api::EngineError, compaction::KEPT_BYTES_MAX, engine::Engine, prompt, respond::Respond};

/// The number of bytes of text that count as one token.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// The tokens of every message and every tool besides its text.
const OVERHEAD: u64 = 4;

/// The tokens of an image, whatever its size, because providers scale images down.
const IMAGE: u64 = 1_024;

impl Engine {
    /// An estimate of the tokens that the first iteration of a request would give to its model.
    pub async fn estimate(&self, request: &Respond) -> Result<u64, EngineError> {
        let input = request.input.iter().map(|(kind, content)| self.item(*kind, content.clone())).collect::<Result<Vec<_>, _>>()?;
        self.check_prompt(&request.tenant, request.parent, &input).await?;
        let mut items = match request.parent {
            Some(parent) => self.views().range_items(&request.tenant, parent).await?,
            None => Vec::new(),
        };
        items.extend(input.into_iter().map(|item| Item { id: item.id, kind: item.kind, content: item.content }));
        Ok(tokens(&request.manifest, &prompt::messages(&items, &request.manifest, KEPT_BYTES_MAX), &prompt::tools(&request.manifest)))
    }
}

/// An estimate of the tokens of the whole prompt.
pub(crate) fn tokens(manifest: &Manifest, messages: &[ModelMessage], tools: &[ModelTool]) -> u64 {
    let messages: u64 = messages.iter().map(message).sum();
    let tools = tools.iter().map(|tool| OVERHEAD + text(&tool.name) + text(&tool.description) + text(&tool.parameters.to_string()));
    let instructions = manifest.instructions.as_ref().map_or(0, |content| OVERHEAD + text(content));
    let format = manifest.parameters.as_ref().map_or(0, |given| text(&schema(given)));
    messages + tools.sum::<u64>() + instructions + format
}

/// An estimate of the tokens of a text.
pub(crate) fn text(content: &str) -> u64 {
    (content.len() as u64).div_ceil(BYTES_PER_TOKEN)
}

/// The JSON schema of a structured answer, which the model reads too.
fn schema(parameters: &Value) -> String {
    let schema = &parameters["text"]["format"]["schema"];
    if schema.is_object() { schema.to_string() } else { String::new() }
}

fn message(message: &ModelMessage) -> u64 {
    OVERHEAD
        + match message {
            ModelMessage::User(content) => text(content),
            ModelMessage::UserItem(item) => value(item),
            ModelMessage::Assistant { reasoning, text: content, calls } => {
                let reasoning_tokens: u64 = reasoning.iter().map(|item| (item.bytes() as u64).div_ceil(BYTES_PER_TOKEN)).sum();
                reasoning_tokens + text(content) + calls.iter().map(call).sum::<u64>()
            }
            ModelMessage::ToolResult { output, .. } => text(output),
        }
}

/// The bytes of model output in an event.
pub(crate) fn bytes(event: &ModelEvent) -> u64 {
    let bytes = match event {
        ModelEvent::Reasoning(item) => item.bytes(),
        ModelEvent::Text(text) => text.len(),
        ModelEvent::Call(call) => call.tool.len() + call.arguments.len(),
        ModelEvent::Taken | ModelEvent::Model(_) | ModelEvent::Usage(_) | ModelEvent::Finish(_) => 0,
    };
    bytes as u64
}

fn call(call: &RequestedCall) -> u64 {
    OVERHEAD + text(&call.tool) + text(&call.arguments)
}

/// An estimate of the tokens of an item in the shape of the client's API. Encoded images and files do not count as text.
fn value(item: &Value) -> u64 {
    match item {
        Value::Object(members) if members.get("type").and_then(Value::as_str) == Some("input_image") => IMAGE,
        Value::Object(members) => {
            members
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "type" | "role" | "id" | "status"))
                .map(|(name, member)| {
                    // Four characters of base64 encode three bytes.
                    if name == "file_data" { value(member) * 3 / 4 } else { value(member) }
                })
                .sum()
        }
        Value::Array(members) => members.iter().map(value).sum(),
        Value::String(content) => text(content),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_counts_by_its_length_and_images_do_not() {
        let message_tokens =
            |content: &str| message(&ModelMessage::UserItem(json!({ "type": "message", "role": "user", "content": content })));
        assert_eq!(message_tokens("12345678"), OVERHEAD + 2);
        assert!(message_tokens(&"x".repeat(400)) >= 100);
        let image = |data: &str| value(&json!({ "type": "message", "content": [{ "type": "input_image", "image_url": data }] }));
        assert_eq!(image("data:,x"), image(&"x".repeat(1 << 20)));
        assert_eq!(value(&json!({ "type": "input_file", "file_data": "x".repeat(4_000) })), 750);
    }
}
