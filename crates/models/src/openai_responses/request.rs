//! The body of a request: the whole conversation in order, as items.

use serde_json::{Value, json};
use windlass_kernel::{
    RequestedCall, ToolChoice,
    content::Reasoning,
    header::{Content, Role},
    parameters::Parameters,
};
use windlass_ports::{ModelMessage, ModelRequest, ModelTool};

use super::REASONING_PROVIDER;
use crate::{
    arguments,
    conversation::{json_of, role_name},
};

/// The body to post for this request. `model` is the provider's name of the model.
pub(super) fn body(request: &ModelRequest, model: &str) -> Value {
    let mut body = json!({ "model": model, "input": input(request), "stream": true, "store": false });
    if let Some(instructions) = &request.instructions {
        body["instructions"] = instructions.as_str().into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(function).collect();
        if request.one_call {
            body["parallel_tool_calls"] = Value::Bool(false);
        }
        match &request.choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = "none".into(),
            ToolChoice::Required => body["tool_choice"] = "required".into(),
            ToolChoice::Tool(name) => body["tool_choice"] = json!({ "type": "function", "name": name }),
        }
    }
    if let Some(parameters) = request.parameters.as_deref() {
        set_parameters(&mut body, parameters);
    }
    // Models without reasoning refuse a request for it.
    if request.parameters.as_ref().is_some_and(|parameters| parameters.reasoning.is_some()) {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body
}

fn set_parameters(body: &mut Value, parameters: &Parameters) {
    let Parameters { temperature, top_p, top_logprobs, presence_penalty, frequency_penalty, .. } = parameters;
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    set("temperature", temperature.map(Value::from));
    set("top_p", top_p.map(Value::from));
    set("top_logprobs", top_logprobs.map(Value::from));
    set("presence_penalty", presence_penalty.map(Value::from));
    set("frequency_penalty", frequency_penalty.map(Value::from));
    set("max_output_tokens", parameters.tokens_max.map(Value::from));
    set("reasoning", parameters.reasoning.as_ref().map(|thinking| json!(thinking)));
    set("text", parameters.form.as_ref().map(|form| json!(form)));
    set("service_tier", parameters.service_tier.as_deref().map(Value::from));
    set("prompt_cache_key", parameters.prompt_cache_key.as_deref().map(Value::from));
    set("safety_identifier", parameters.safety_identifier.as_deref().map(Value::from));
    set("user", parameters.user.as_deref().map(Value::from));
    set("metadata", parameters.metadata.clone().map(Value::Object));
}

fn function(tool: &ModelTool) -> Value {
    let ModelTool { name, description, parameters, strict } = tool;
    // By default the protocol enforces the schema, and changes the schema for that.
    let strict = strict.unwrap_or(false);
    json!({ "type": "function", "name": name, "description": description, "parameters": parameters, "strict": strict })
}

fn input(request: &ModelRequest) -> Vec<Value> {
    let mut input = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        match message {
            ModelMessage::User(text) => input.push(user(text)),
            ModelMessage::Message { role, content } => input.push(written(*role, content)),
            // An output without its call, and an item of an unknown kind, become text.
            ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => input.push(user(&item.to_string())),
            ModelMessage::Assistant { reasoning, text, calls } => {
                input.extend(reasoning.iter().filter_map(reasoning_item));
                if !text.is_empty() {
                    input.push(json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }));
                }
                input.extend(calls.iter().map(call));
            }
            ModelMessage::ToolResult { provider_id, tool: _, output } => {
                input.push(json!({ "type": "function_call_output", "call_id": provider_id, "output": output }));
            }
        }
    }
    input
}

fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
}

fn call(call: &RequestedCall) -> Value {
    let arguments = arguments::as_text(&call.arguments);
    json!({ "type": "function_call", "call_id": call.provider_id, "name": call.tool, "arguments": arguments })
}

/// The item for earlier reasoning. `None` if it is another provider's or is not sealed, because the server cannot read that.
fn reasoning_item(reasoning: &Reasoning) -> Option<Value> {
    let sealed = reasoning.sealed.as_deref().filter(|_| reasoning.provider == REASONING_PROVIDER)?;
    let summary: Vec<Value> = reasoning.summary.iter().map(|text| json!({ "type": "summary_text", "text": text })).collect();
    Some(json!({ "type": "reasoning", "summary": summary, "encrypted_content": sealed }))
}

/// A message from outside. All parts but texts are as the client sent them, who uses the same protocol.
fn written(role: Role, content: &Content<String, Value>) -> Value {
    let text_type = if role == Role::Assistant { "output_text" } else { "input_text" };
    json!({ "type": "message", "role": role_name(role), "content": json_of(content, text_type) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_kernel::header::Part;

    use crate::testing::{file as file_part, image as attached, message, request};

    fn reasoning_of(provider: &str, sealed: Option<&str>) -> Reasoning {
        let sealed = sealed.map(str::to_owned);
        Reasoning { provider: provider.into(), summary: vec!["hm".into()], text: String::new(), sealed }
    }

    #[test]
    fn a_conversation_is_sent_whole_and_in_order() {
        let made = |id: &str, arguments: &str| RequestedCall { provider_id: id.into(), tool: "f".into(), arguments: arguments.into() };
        let reasoning = vec![reasoning_of("openai", Some("s3al")), reasoning_of("anthropic", Some("other")), reasoning_of("openai", None)];
        let mut request = request(vec![
            ModelMessage::User("hi".into()),
            ModelMessage::Assistant { reasoning, text: "Let me see.".into(), calls: vec![made("a", "{}"), made("b", "{broken")] },
            ModelMessage::ToolResult { provider_id: "a".into(), tool: "f".into(), output: "1".into() },
            ModelMessage::ToolResult { provider_id: "b".into(), tool: "f".into(), output: "2".into() },
        ]);
        request.instructions = Some("be kind".into());
        let input = json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "s3al"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": r#"{"not_json":"{broken"}"#},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": "2"},
        ]);
        let expected = json!({"model": "other", "stream": true, "store": false, "instructions": "be kind", "input": input});
        assert_eq!(body(&request, "other"), expected);
    }

    #[test]
    fn tools_and_parameters_are_sent_as_the_protocol_wants() {
        let mut request = request(vec![ModelMessage::User("hi".into())]);
        request.tools = [ModelTool { name: "f".into(), description: "d".into(), parameters: json!({}), strict: None }].into();
        request.one_call = true;
        let parameters = json!({"temperature": 0.5, "max_output_tokens": 99, "reasoning": {"effort": "low"}, "service_tier": "flex",
            "prompt_cache_key": "k", "safety_identifier": "s", "metadata": {"a": "b"}, "top_p": null});
        request.parameters = crate::testing::parameters(parameters);
        for (choice, spelled) in [
            (ToolChoice::None, json!("none")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::Tool("f".into()), json!({"type": "function", "name": "f"})),
            (ToolChoice::Auto, Value::Null),
        ] {
            request.choice = choice;
            assert_eq!(body(&request, "m")["tool_choice"], spelled);
        }
        let body = body(&request, "m");
        assert_eq!(body["tools"], json!([{"type": "function", "name": "f", "description": "d", "parameters": {}, "strict": false}]));
        assert_eq!((&body["parallel_tool_calls"], &body["include"]), (&json!(false), &json!(["reasoning.encrypted_content"])));
        assert_eq!((&body["temperature"], &body["max_output_tokens"], &body["service_tier"]), (&json!(0.5), &json!(99), &json!("flex")));
        assert_eq!((&body["prompt_cache_key"], &body["safety_identifier"]), (&json!("k"), &json!("s")));
        assert_eq!((&body["metadata"], body.get("top_p")), (&json!({"a": "b"}), None));
    }

    #[test]
    fn images_and_files_are_sent_unchanged() {
        let image = json!({"type": "input_image", "image_url": "data:image/png;base64,aa", "detail": "low"});
        let file = json!({"type": "input_file", "file_url": "https://example.org/a.pdf"});
        let parts = vec![Part::Text("see".into()), attached("data:image/png;base64,aa", Some("low"), &image), file_part(&file)];
        let stray = json!({"type": "weather", "degrees": 7});
        let messages = vec![message(Role::User, Content::Parts(parts)), ModelMessage::Other(stray.clone())];
        let sent = body(&request(messages), "m")["input"].take();
        let expected = json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, image, file]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": stray.to_string()}]},
        ]);
        assert_eq!(sent, expected);
    }
}
