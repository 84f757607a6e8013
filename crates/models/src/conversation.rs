//! What providers have in common when they write messages from outside, and the end of a conversation as the offline model reads it.

use serde_json::{Value, json};
use windlass_kernel::header::{Content, Part, Role};
use windlass_ports::ModelMessage;

/// The role as every protocol spells it.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Developer => "developer",
    }
}

/// The text of a content, or `None` if it has parts other than text.
pub(crate) fn text_of(content: &Content<String, Value>) -> Option<String> {
    content.texts().map(|texts| texts.join("\n"))
}

/// A content as JSON: a text, or a list of parts, of which all but texts are as the client sent them.
pub(crate) fn json_of(content: &Content<String, Value>, text_type: &str) -> Value {
    match content {
        Content::Text(text) => Value::from(text.as_str()),
        Content::Parts(parts) => parts.iter().map(|part| part_json(part, text_type)).collect(),
    }
}

fn part_json(part: &Part<String, Value>, text_type: &str) -> Value {
    match part {
        Part::Text(text) => json!({ "type": text_type, "text": text }),
        Part::Attachment { json, .. } => json.clone(),
    }
}

/// The end of a conversation, as the offline model reads it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ConversationEnd {
    /// The text of the last user message.
    pub(crate) input: Option<String>,
    /// The results of calls since that message: the name of the tool and its output.
    pub(crate) results: Vec<(String, String)>,
}

impl ConversationEnd {
    /// Reads the end of a conversation.
    pub(crate) fn read(messages: &[ModelMessage]) -> Self {
        let mut conversation = ConversationEnd::default();
        for message in messages {
            match message {
                ModelMessage::User(text) => conversation.turn_to(text.clone()),
                ModelMessage::Message { role: Role::User, content } => {
                    conversation.turn_to(text_of(content).unwrap_or_else(|| json_of(content, "input_text").to_string()));
                }
                ModelMessage::Message { .. } | ModelMessage::Assistant { .. } => {}
                ModelMessage::Other(item) => conversation.turn_to(item.to_string()),
                ModelMessage::StrayOutput { call, output, .. } => conversation.results.push((call.clone(), output.clone())),
                ModelMessage::ToolResult { tool, output, .. } => conversation.results.push((tool.clone(), output.clone())),
            }
        }
        conversation
    }

    fn turn_to(&mut self, input: String) {
        *self = ConversationEnd { input: Some(input), results: Vec::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{message, texts};

    #[test]
    fn results_count_from_the_last_user_message() {
        let result = |output: &str| ModelMessage::ToolResult { provider_id: "c".into(), tool: "echo".into(), output: output.into() };
        let stray = ModelMessage::StrayOutput { call: "x".into(), output: "late".into(), item: json!({}) };
        let messages = [ModelMessage::User("one".into()), result("old"), message(Role::User, texts(&["a", "b"])), result("new"), stray];
        let results = vec![("echo".into(), "new".into()), ("x".into(), "late".into())];
        assert_eq!(ConversationEnd::read(&messages), ConversationEnd { input: Some("a\nb".into()), results });
        assert_eq!(ConversationEnd::read(&[]), ConversationEnd::default());
    }
}
