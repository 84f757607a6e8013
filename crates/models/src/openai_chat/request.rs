//! The body of a request: the whole conversation in order, as messages of this protocol.

use serde_json::{Value, json};
use windlass_kernel::{RequestedCall, ToolChoice};
use windlass_ports::{ModelMessage, ModelRequest, ModelTool};

use crate::{
    arguments,
    item::{Item, part_text, text_of},
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

/// Translates the parameters of the answer from the Responses protocol to this one.
fn set_parameters(body: &mut Value, parameters: &Value) {
    let same =
        ["temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "service_tier", "prompt_cache_key", "safety_identifier"];
    let given = |key: &str| parameters.get(key).filter(|value| !value.is_null());
    for key in same {
        if let Some(value) = given(key) {
            body[key] = value.clone();
        }
    }
    if let Some(tokens) = given("max_output_tokens") {
        body["max_tokens"] = tokens.clone();
    }
    if let Some(effort) = given("reasoning").and_then(|reasoning| reasoning.get("effort")).filter(|effort| effort.is_string()) {
        body["reasoning_effort"] = effort.clone();
    }
    let Some(text) = given("text") else { return };
    if let Some(verbosity) = text.get("verbosity").filter(|verbosity| verbosity.is_string()) {
        body["verbosity"] = verbosity.clone();
    }
    let format = text.get("format").unwrap_or(&Value::Null);
    match format["type"].as_str() {
        Some("json_object") => body["response_format"] = json!({ "type": "json_object" }),
        Some("json_schema") => {
            let mut schema = format.clone();
            if let Some(schema) = schema.as_object_mut() {
                schema.remove("type");
            }
            body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        Some(_) | None => {}
    }
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
            ModelMessage::UserItem(value) => push_item(&mut messages, value),
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

fn push_item(messages: &mut Vec<Value>, value: &Value) {
    match Item::read(value) {
        // Not every server knows `developer`, the newer name of this role.
        Item::Message { role: "developer", content } => messages.push(json!({ "role": "system", "content": parts(content) })),
        Item::Message { role, content } => messages.push(json!({ "role": role, "content": parts(content) })),
        Item::Call { id, tool, arguments } => push_call(messages, tool_call(id, tool, arguments)),
        Item::Output { id, output } if has_call(messages, id) => {
            messages.push(tool_result(id, &text_of(output).unwrap_or_else(|| output.to_string())));
        }
        // Servers refuse the result of a call that is not in the conversation.
        Item::Output { .. } | Item::Other => messages.push(user(&value.to_string())),
    }
}

/// Appends a call to the assistant's last message, since the protocol wants calls that were made together in one message.
fn push_call(messages: &mut Vec<Value>, call: Value) {
    if let Some(last) = messages.last_mut().filter(|last| last["role"] == "assistant") {
        match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = Value::Array(vec![call]),
        }
        return;
    }
    messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
}

fn has_call(messages: &[Value], id: &str) -> bool {
    let calls = messages.iter().filter_map(|message| message.get("tool_calls")?.as_array()).flatten();
    calls.into_iter().any(|call| call["id"] == id)
}

/// Content as one text if it has only text, which every server accepts; otherwise as parts.
fn parts(content: &Value) -> Value {
    match (text_of(content), content.as_array()) {
        (Some(text), _) => Value::from(text),
        (None, Some(parts)) => parts.iter().map(part).collect(),
        (None, None) => content.clone(),
    }
}

fn part(part: &Value) -> Value {
    if let Some(text) = part_text(part) {
        return json!({ "type": "text", "text": text });
    }
    let given = |key: &str| part.get(key).filter(|value| value.is_string()).cloned();
    match (part["type"].as_str(), given("image_url")) {
        (Some("input_image"), Some(url)) => {
            let mut image = json!({ "url": url });
            if let Some(detail) = given("detail") {
                image["detail"] = detail;
            }
            json!({ "type": "image_url", "image_url": image })
        }
        (Some("input_file"), _) => {
            let fields = ["file_data", "file_id", "filename"].into_iter().filter_map(|key| Some((key.to_owned(), given(key)?)));
            json!({ "type": "file", "file": Value::Object(fields.collect()) })
        }
        _ => part.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    fn mapped(messages: Vec<ModelMessage>) -> Value {
        body(&request(messages), "m")["messages"].take()
    }

    fn mapped_items(items: Value) -> Value {
        mapped(items.as_array().unwrap().iter().cloned().map(ModelMessage::UserItem).collect())
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
        let items = json!([
            {"type": "message", "role": "developer", "content": "short"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:x"}]},
            {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "data:y"}]},
        ]);
        assert_eq!(
            mapped_items(items),
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
    fn calls_made_together_are_one_message_and_stray_items_are_text() {
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "o"});
        let sent = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let stray = json!({"type": "weather", "degrees": 7});
        assert_eq!(
            mapped_items(json!([call("a"), call("b"), output("a"), output("b"), output("c"), stray])),
            json!([
                {"role": "assistant", "content": null, "tool_calls": [sent("a"), sent("b")]},
                {"role": "tool", "tool_call_id": "a", "content": "o"},
                {"role": "tool", "tool_call_id": "b", "content": "o"},
                {"role": "user", "content": output("c").to_string()},
                {"role": "user", "content": stray.to_string()},
            ])
        );
    }
}
