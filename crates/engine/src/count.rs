//! Estimates how many tokens a model would read. The estimate is local, because providers count in different ways, and some offer no
//! count.

use serde_json::Value;
use windlass_kernel::{
    Manifest, RequestedCall,
    header::{Content, Media, Part},
};
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
            Some(parent) => self.inner().prompt_items(&request.tenant, parent).await?,
            None => Vec::new(),
        };
        items.extend(input.iter().map(Item::from));
        Ok(tokens(&request.manifest, &prompt::messages(&items, &request.manifest, KEPT_BYTES_MAX), &prompt::tools(&request.manifest)))
    }
}

/// An estimate of the tokens of the whole prompt.
pub(crate) fn tokens(manifest: &Manifest, messages: &[ModelMessage], tools: &[ModelTool]) -> u64 {
    let messages: u64 = messages.iter().map(message).sum();
    let tools = tools.iter().map(|tool| OVERHEAD + text(&tool.name) + text(&tool.description) + text(&tool.parameters.to_string()));
    let instructions = manifest.instructions.as_ref().map_or(0, |content| OVERHEAD + text(content));
    // The model reads the schema of a structured answer too.
    let format = manifest.parameters.as_ref().and_then(|given| given.format()?.schema()).map_or(0, |schema| text(&schema.to_string()));
    messages + tools.sum::<u64>() + instructions + format
}

/// An estimate of the tokens of a text.
pub(crate) fn text(content: &str) -> u64 {
    (content.len() as u64).div_ceil(BYTES_PER_TOKEN)
}

fn message(message: &ModelMessage) -> u64 {
    OVERHEAD
        + match message {
            ModelMessage::User(content) => text(content),
            ModelMessage::Message { content: Content::Text(content), .. } => text(content),
            ModelMessage::Message { content: Content::Parts(parts), .. } => parts.iter().map(part).sum(),
            ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => value(item),
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

fn part(part: &Part<String, Value>) -> u64 {
    let given = |content: &Option<String>| content.as_deref().map_or(0, text);
    match part {
        Part::Text(content) => text(content),
        Part::Attachment { media, json } => match media {
            Media::Image { .. } => IMAGE,
            // Four characters of base64 encode three bytes.
            Media::File { data, url, id, name } => given(data) * 3 / 4 + given(url) + given(id) + given(name),
            Media::Refusal(content) => text(content),
            Media::Other => value(json),
        },
    }
}

/// An estimate of the tokens of a value of an unknown format.
fn value(item: &Value) -> u64 {
    match item {
        Value::Object(members) => members.values().map(value).sum(),
        Value::Array(members) => members.iter().map(value).sum(),
        Value::String(content) => text(content),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::header::Role;

    use super::*;

    #[test]
    fn text_counts_by_its_length_and_images_do_not() {
        let tokens_of = |content| message(&ModelMessage::Message { role: Role::User, content });
        let text_tokens = |content: &str| tokens_of(Content::Text(content.to_owned()));
        assert_eq!(text_tokens("12345678"), OVERHEAD + 2);
        assert!(text_tokens(&"x".repeat(400)) >= 100);
        let attached = |media| tokens_of(Content::Parts(vec![Part::Attachment { media, json: Value::Null }]));
        let image = |data: &str| attached(Media::Image { url: Some(data.to_owned()), detail: None });
        assert_eq!(image("data:,x"), image(&"x".repeat(1 << 20)));
        let file = Media::File { data: Some("x".repeat(4_000)), url: None, id: None, name: None };
        assert_eq!(attached(file), OVERHEAD + 750);
    }
}
