//! The body of a request: the whole conversation in order, as messages of this protocol.

use serde_json::{Value, json};
use windlass_kernel::{
    RequestedCall, ToolChoice,
    header::{Content, Media, Part, Role},
    parameters::{FormatKind, Parameters},
};
use windlass_ports::{ModelMessage, ModelRequest, ModelTool};

use crate::{
    arguments,
    conversation::{role_name, text_of},
};

/// The body to post for this request. `model` is the provider's name of the model.
pub(super) fn body(request: &ModelRequest, model: &str) -> Value {
    let mut body = json!({
        "model": model,
        "messages": messages(request),
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    // Some servers refuse an empty list.
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(function).collect();
        if request.one_call {
            body["parallel_tool_calls"] = Value::Bool(false);
        }
        // The default is left out: every server assumes it, and not every server knows the value.
        match &request.choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = "none".into(),
            ToolChoice::Required => body["tool_choice"] = "required".into(),
            ToolChoice::Tool(name) => body["tool_choice"] = json!({ "type": "function", "function": { "name": name } }),
        }
    }
    if let Some(parameters) = request.parameters.as_deref() {
        set_parameters(&mut body, parameters);
    }
    if request.prefill.is_some() {
        // Some servers continue a last message of the assistant only if they are asked to.
        body["add_generation_prompt"] = Value::Bool(false);
        body["continue_final_message"] = Value::Bool(true);
    }
    body
}

fn set_parameters(body: &mut Value, parameters: &Parameters) {
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    set("temperature", parameters.temperature.map(Value::from));
    set("top_p", parameters.top_p.map(Value::from));
    set("presence_penalty", parameters.presence_penalty.map(Value::from));
    set("frequency_penalty", parameters.frequency_penalty.map(Value::from));
    set("user", parameters.user.as_deref().map(Value::from));
    set("service_tier", parameters.service_tier.as_deref().map(Value::from));
    set("prompt_cache_key", parameters.prompt_cache_key.as_deref().map(Value::from));
    set("safety_identifier", parameters.safety_identifier.as_deref().map(Value::from));
    set("max_tokens", parameters.tokens_max.map(Value::from));
    set("reasoning_effort", parameters.reasoning.as_ref().and_then(|thinking| thinking.effort.as_deref()).map(Value::from));
    set("verbosity", parameters.form.as_ref().and_then(|form| form.verbosity.as_deref()).map(Value::from));
    let format = parameters.format().and_then(|format| match format.kind {
        FormatKind::Text => None,
        FormatKind::JsonObject => Some(json!({ "type": "json_object" })),
        FormatKind::JsonSchema => Some(json!({ "type": "json_schema", "json_schema": format.description })),
    });
    set("response_format", format);
}

fn function(tool: &ModelTool) -> Value {
    let ModelTool { name, description, parameters, strict } = tool;
    let mut function = json!({ "name": name, "description": description, "parameters": parameters });
    if let Some(strict) = strict {
        function["strict"] = (*strict).into();
    }
    json!({ "type": "function", "function": function })
}

fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(instructions) = &request.instructions {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    for message in &request.messages {
        match message {
            ModelMessage::User(text) => messages.push(user(text)),
            ModelMessage::Message { role, content } => messages.push(written(*role, content)),
            // Servers refuse the result of a call that is not in the conversation, and items of unknown kinds.
            ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => messages.push(user(&item.to_string())),
            // The protocol has no field for reasoning, and servers that send some do not all accept it back.
            ModelMessage::Assistant { reasoning: _, text, calls } => messages.push(assistant(text, calls)),
            ModelMessage::ToolResult { provider_id, tool: _, output } => messages.push(tool_result(provider_id, output)),
        }
    }
    messages.extend(request.prefill.iter().map(|prefill| assistant(prefill, &[])));
    messages
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn assistant(text: &str, calls: &[RequestedCall]) -> Value {
    if calls.is_empty() {
        return json!({ "role": "assistant", "content": text });
    }
    let content = if text.is_empty() { Value::Null } else { Value::from(text) };
    let calls: Vec<Value> = calls.iter().map(|call| tool_call(&call.provider_id, &call.tool, &call.arguments)).collect();
    json!({ "role": "assistant", "content": content, "tool_calls": calls })
}

fn tool_call(id: &str, tool: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": tool, "arguments": arguments::as_text(arguments) } })
}

fn tool_result(id: &str, output: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": output })
}

/// A message from outside.
fn written(role: Role, content: &Content<String, Value>) -> Value {
    // Not every server knows `developer`, the newer name of this role.
    let role = if role == Role::Developer { Role::System } else { role };
    json!({ "role": role_name(role), "content": parts(content) })
}

/// Content as one text if it has only text, which every server accepts; otherwise as parts.
fn parts(content: &Content<String, Value>) -> Value {
    match (text_of(content), content) {
        (None, Content::Parts(parts)) => parts.iter().map(part).collect(),
        (text, _) => Value::from(text.unwrap_or_default()),
    }
}

fn part(part: &Part<String, Value>) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Attachment { media: Media::Image { url: Some(url), detail }, .. } => {
            let mut image = json!({ "url": url });
            if let Some(detail) = detail {
                image["detail"] = detail.as_str().into();
            }
            json!({ "type": "image_url", "image_url": image })
        }
        Part::Attachment { media: Media::File { data, id, name, .. }, .. } => {
            let fields = [("file_data", data), ("file_id", id), ("filename", name)];
            let given = fields.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::from(text.as_deref()?))));
            json!({ "type": "file", "file": Value::Object(given.collect()) })
        }
        // The protocol has parts of other kinds that clients send in the same form.
        Part::Attachment { media: Media::Image { url: None, .. } | Media::Refusal(_) | Media::Other, json } => json.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{file, image, message, request, texts};

    fn mapped(messages: Vec<ModelMessage>) -> Value {
        body(&request(messages), "m")["messages"].take()
    }

    #[test]
    fn a_conversation_is_sent_whole_and_in_order() {
        let call = |id: &str, arguments: &str| RequestedCall { provider_id: id.into(), tool: "f".into(), arguments: arguments.into() };
        let result = |id: &str, output: &str| ModelMessage::ToolResult { provider_id: id.into(), tool: "f".into(), output: output.into() };
        let mut request = request(vec![
            ModelMessage::User("hi".into()),
            ModelMessage::Assistant {
                reasoning: Vec::new(),
                text: String::new(),
                calls: vec![call("a", r#"{"x": 1}"#), call("b", "{broken")],
            },
            result("a", "1"),
            result("b", "2"),
            ModelMessage::Assistant { reasoning: Vec::new(), text: "done".into(), calls: Vec::new() },
            ModelMessage::User("thanks".into()),
        ]);
        request.instructions = Some("be kind".into());
        request.tools =
            [ModelTool { name: "f".into(), description: "d".into(), parameters: json!({"type": "object"}), strict: None }].into();
        let function = |arguments: &str| json!({"name": "f", "arguments": arguments});
        assert_eq!(
            body(&request, "other"),
            json!({
                "model": "other", "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "a", "type": "function", "function": function(r#"{"x": 1}"#)},
                        {"id": "b", "type": "function", "function": function(r#"{"not_json":"{broken"}"#)},
                    ]},
                    {"role": "tool", "tool_call_id": "a", "content": "1"},
                    {"role": "tool", "tool_call_id": "b", "content": "2"},
                    {"role": "assistant", "content": "done"},
                    {"role": "user", "content": "thanks"},
                ],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            })
        );
    }

    #[test]
    fn without_tools_the_list_is_left_out() {
        assert_eq!(body(&request(Vec::new()), "m").get("tools"), None);
    }

    #[test]
    fn items_with_a_role_are_passed_on() {
        let shown = vec![Part::Text("see".into()), image("data:x", None, &Value::Null)];
        let filed = vec![file(&json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:y"}))];
        assert_eq!(
            mapped(vec![
                message(Role::Developer, Content::Text("short".into())),
                message(Role::User, texts(&["a", "b"])),
                message(Role::Assistant, texts(&["c"])),
                message(Role::User, Content::Parts(shown)),
                message(Role::User, Content::Parts(filed)),
            ]),
            json!([
                {"role": "system", "content": "short"},
                {"role": "user", "content": "a\nb"},
                {"role": "assistant", "content": "c"},
                {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:x"}}]},
                {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:y"}}]},
            ])
        );
    }

    #[test]
    fn stray_items_are_text() {
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "o"});
        let stray = json!({"type": "weather", "degrees": 7});
        let messages = vec![
            ModelMessage::StrayOutput { call: "c".into(), output: "o".into(), item: output.clone() },
            ModelMessage::Other(stray.clone()),
        ];
        let expected = json!([
            {"role": "user", "content": output.to_string()},
            {"role": "user", "content": stray.to_string()},
        ]);
        assert_eq!(mapped(messages), expected);
    }
}
