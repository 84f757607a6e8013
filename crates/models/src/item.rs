//! Reads the client's items, which have the shape of the Responses protocol.

use serde_json::Value;
use windlass_ports::ModelMessage;

/// An item, by its kind.
#[derive(Debug, PartialEq)]
pub(crate) enum Item<'a> {
    /// A message.
    Message {
        /// The role, as the item spells it.
        role: &'a str,
        content: &'a Value,
    },
    /// A call that an earlier answer of the model made.
    Call { id: &'a str, tool: &'a str, arguments: &'a str },
    /// The result of a call.
    Output {
        /// The call's id.
        id: &'a str,
        output: &'a Value,
    },
    /// An item of an unknown kind.
    Other,
}

impl<'a> Item<'a> {
    /// Reads an item. It never fails: an item of an unknown kind is `Other`.
    pub(crate) fn read(value: &'a Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let known = match text("type") {
            None | Some("message") => Self::read_message(value),
            Some("function_call") => {
                text("call_id").zip(text("name")).zip(text("arguments")).map(|((id, tool), arguments)| Item::Call { id, tool, arguments })
            }
            Some("function_call_output") => text("call_id").zip(value.get("output")).map(|(id, output)| Item::Output { id, output }),
            Some(_) => None,
        };
        known.unwrap_or(Item::Other)
    }

    fn read_message(value: &'a Value) -> Option<Self> {
        let role = value.get("role")?.as_str()?;
        let known = matches!(role, "user" | "assistant" | "system" | "developer");
        let content = value.get("content").filter(|content| content.is_string() || content.is_array())?;
        known.then_some(Item::Message { role, content })
    }
}

/// The text of a content, or `None` if it has parts other than text.
pub(crate) fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(part_text).collect();
            texts.map(|texts| texts.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The text of a part, or `None` if it is not a text part.
pub(crate) fn part_text(part: &Value) -> Option<&str> {
    match part.get("type")?.as_str()? {
        "input_text" | "output_text" | "text" => part.get("text")?.as_str(),
        _ => None,
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
                ModelMessage::UserItem(value) => conversation.read_item(value),
                ModelMessage::Assistant { .. } => {}
                ModelMessage::ToolResult { tool, output, .. } => conversation.results.push((tool.clone(), output.clone())),
            }
        }
        conversation
    }

    fn read_item(&mut self, value: &Value) {
        match Item::read(value) {
            Item::Message { role: "user", content } => {
                self.turn_to(text_of(content).unwrap_or_else(|| content.to_string()));
            }
            Item::Message { .. } | Item::Call { .. } => {}
            Item::Output { id, output } => {
                self.results.push((id.to_owned(), text_of(output).unwrap_or_else(|| output.to_string())));
            }
            Item::Other => self.turn_to(value.to_string()),
        }
    }

    fn turn_to(&mut self, input: String) {
        *self = ConversationEnd { input: Some(input), results: Vec::new() };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_shapes_are_read_and_the_rest_is_left_alone() {
        let message = json!({"type": "message", "role": "user", "content": "hi"});
        assert_eq!(Item::read(&message), Item::Message { role: "user", content: &json!("hi") });
        let easy = json!({"role": "developer", "content": []});
        assert_eq!(Item::read(&easy), Item::Message { role: "developer", content: &json!([]) });
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        assert_eq!(Item::read(&call), Item::Call { id: "c", tool: "f", arguments: "{}" });
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "done"});
        assert_eq!(Item::read(&output), Item::Output { id: "c", output: &json!("done") });
        for other in [json!({"role": "oracle", "content": "x"}), json!({"role": "user"}), json!({"type": "reasoning"}), json!(7)] {
            assert_eq!(Item::read(&other), Item::Other, "{other}");
        }
    }

    #[test]
    fn results_count_from_the_last_user_message() {
        let result = |output: &str| ModelMessage::ToolResult { provider_id: "c".into(), tool: "echo".into(), output: output.into() };
        let parts = json!({"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]});
        let messages = [ModelMessage::User("one".into()), result("old"), ModelMessage::UserItem(parts), result("new")];
        let expected = ConversationEnd { input: Some("a\nb".into()), results: vec![("echo".into(), "new".into())] };
        assert_eq!(ConversationEnd::read(&messages), expected);
        assert_eq!(ConversationEnd::read(&[]), ConversationEnd::default());
    }
}
