//! The body of a request: the whole conversation in order, as turns of user and assistant.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_kernel::{
    RequestedCall, ToolChoice,
    content::Reasoning,
    header::{Content, Role},
    parameters::FormatKind,
};
use windlass_ports::{ModelMessage, ModelRequest, ModelTool};

use super::{
    parts,
    thinking::{self, Thinking},
};
use crate::arguments;

/// The body to post for this request. `model` is the provider's name of the model.
pub(super) fn body(request: &ModelRequest, model: &str) -> Value {
    let Conversation { mut system, mut messages } = Conversation::of(request);
    let allowance = thinking::allowance(request, model, &messages);
    let mut body = json!({ "model": model, "max_tokens": allowance.max_tokens, "stream": true });
    match allowance.thinking {
        Thinking::Off => thinking::remove_reasoning(&mut messages),
        Thinking::Budget(tokens) => body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens }),
        Thinking::Adaptive { effort, is_shown } => {
            body["thinking"] = json!({ "type": "adaptive" });
            if is_shown {
                body["thinking"]["display"] = "summarized".into();
            }
            body["output_config"]["effort"] = effort.into();
        }
    }
    set_tools(&mut body, request, &messages);
    set_parameters(&mut body, &mut system, request);
    body["messages"] = Value::Array(messages);
    if !system.is_empty() {
        body["system"] = system.join("\n\n").into();
    }
    body
}

fn set_tools(body: &mut Value, request: &ModelRequest, messages: &[Value]) {
    if request.tools.is_empty() {
        // Servers refuse a conversation that contains calls unless the request has tools, even if none of them may be called any more.
        let called: BTreeSet<&str> = messages.iter().flat_map(blocks_of).filter_map(called_tool).collect();
        if !called.is_empty() {
            body["tools"] = called.into_iter().map(|name| json!({ "name": name, "input_schema": { "type": "object" } })).collect();
            body["tool_choice"] = json!({ "type": "none" });
        }
        return;
    }
    body["tools"] = request.tools.iter().map(tool).collect();
    let mut choice = match &request.choice {
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::None => json!({ "type": "none" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Tool(name) => json!({ "type": "tool", "name": name }),
    };
    if request.one_call && request.choice != ToolChoice::None {
        choice["disable_parallel_tool_use"] = Value::Bool(true);
    }
    body["tool_choice"] = choice;
}

fn blocks_of(message: &Value) -> &[Value] {
    message["content"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn called_tool(block: &Value) -> Option<&str> {
    block["name"].as_str().filter(|_| block["type"] == "tool_use")
}

fn tool(tool: &ModelTool) -> Value {
    let mut schema = tool.parameters.clone();
    match schema.as_object_mut() {
        Some(fields) => drop(fields.entry("type").or_insert_with(|| "object".into())),
        None => schema = json!({ "type": "object" }),
    }
    json!({ "name": tool.name, "description": tool.description, "input_schema": schema })
}

fn set_parameters(body: &mut Value, system: &mut Vec<String>, request: &ModelRequest) {
    let Some(parameters) = request.parameters.as_deref() else { return };
    // With thinking, neither is allowed; without it, newer models accept only one of the two.
    let sampling = [("temperature", parameters.temperature), ("top_p", parameters.top_p)];
    let sampling = sampling.into_iter().find_map(|(name, value)| Some((name, value?)));
    if let Some((name, value)) = sampling.filter(|_| body.get("thinking").is_none()) {
        body[name] = value.into();
    }
    match parameters.service_tier.as_deref() {
        Some("auto" | "priority") => body["service_tier"] = "auto".into(),
        Some("default") => body["service_tier"] = "standard_only".into(),
        Some(_) | None => {}
    }
    if let Some(user) = parameters.safety_identifier.as_ref().or(parameters.user.as_ref()) {
        body["metadata"] = json!({ "user_id": user });
    }
    let Some(format) = parameters.format() else { return };
    let schema = format.schema().unwrap_or(&Value::Null);
    match (&format.kind, format.is_strict()) {
        (FormatKind::JsonSchema, true) => {
            body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
        }
        // The protocol enforces only schemas that allow no further properties. For other schemas the system prompt asks the model to follow
        // them.
        (FormatKind::JsonSchema, false) => {
            system.push(format!("Answer with one JSON object and nothing else. It must fit this JSON Schema: {schema}"));
        }
        (FormatKind::JsonObject, _) => system.push("Answer with one JSON object and nothing else.".to_owned()),
        (FormatKind::Text, _) => {}
    }
}

/// A conversation in the form of this protocol.
#[derive(Default)]
struct Conversation {
    system: Vec<String>,
    messages: Vec<Value>,
}

impl Conversation {
    fn of(request: &ModelRequest) -> Self {
        let mut conversation = Conversation { system: request.instructions.iter().cloned().collect(), messages: Vec::new() };
        for message in &request.messages {
            match message {
                ModelMessage::User(text) => conversation.add("user", parts::text_block(text)),
                ModelMessage::Message { role, content } => conversation.message(*role, content),
                // An output without its call, and an item of an unknown kind, become text.
                ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => {
                    conversation.add("user", parts::text_block(&item.to_string()));
                }
                ModelMessage::Assistant { reasoning, text, calls } => conversation.assistant(reasoning, text, calls),
                ModelMessage::ToolResult { provider_id, tool: _, output } => {
                    let block = json!({ "type": "tool_result", "tool_use_id": call_id(provider_id), "content": output });
                    conversation.add("user", [block]);
                }
            }
        }
        if let Some(prefill) = &request.prefill {
            conversation.assistant(&[], prefill, &[]);
        }
        conversation
    }

    /// Appends blocks, to the last turn if it has the same role: the protocol wants the results of calls in one turn, directly after the
    /// calls.
    fn add(&mut self, role: &str, blocks: impl IntoIterator<Item = Value>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return;
        }
        if self.messages.is_empty() && role == "assistant" {
            // The protocol demands that a conversation begins with the user.
            self.messages.push(json!({ "role": "user", "content": [{ "type": "text", "text": "(the conversation goes on)" }] }));
        }
        let is_same = self.messages.last().is_some_and(|last| last["role"] == role);
        match self.messages.last_mut().filter(|_| is_same).and_then(|last| last["content"].as_array_mut()) {
            Some(content) => content.extend(blocks),
            None => self.messages.push(json!({ "role": role, "content": blocks.collect::<Vec<_>>() })),
        }
    }

    fn assistant(&mut self, reasoning: &[Reasoning], text: &str, calls: &[RequestedCall]) {
        let call = |call: &RequestedCall| {
            let input = arguments::as_object(&call.arguments);
            json!({ "type": "tool_use", "id": call_id(&call.provider_id), "name": call.tool, "input": input })
        };
        let blocks = reasoning.iter().filter_map(thinking::block).chain(parts::text_block(text)).chain(calls.iter().map(call));
        self.add("assistant", blocks.collect::<Vec<_>>());
    }

    fn message(&mut self, role: Role, content: &Content<String, Value>) {
        match role {
            // System messages before all others become the system prompt; later ones stay at their position.
            Role::System | Role::Developer if self.messages.is_empty() => {
                let texts = parts::blocks(content);
                self.system.extend(texts.iter().filter_map(|block| block["text"].as_str().map(str::to_owned)));
            }
            Role::Assistant => self.add("assistant", parts::blocks(content)),
            Role::User | Role::System | Role::Developer => self.add("user", parts::blocks(content)),
        }
    }
}

/// The id of a call with only characters that the protocol allows. Ids of other providers can contain others.
fn call_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::ANSWER_TOKENS,
        testing::{message, parameters as parameters_of, request},
    };

    fn reasoning_of(provider: &str, summary: &str, sealed: Option<&str>) -> Reasoning {
        let sealed = sealed.map(str::to_owned);
        Reasoning { provider: provider.into(), summary: vec![summary.into()], text: String::new(), sealed }
    }

    fn iteration(reasoning: Vec<Reasoning>, text: &str) -> [ModelMessage; 2] {
        let call = RequestedCall { provider_id: "a.1".into(), tool: "f".into(), arguments: "{broken".into() };
        let result = ModelMessage::ToolResult { provider_id: "a.1".into(), tool: "f".into(), output: "1".into() };
        [ModelMessage::Assistant { reasoning, text: text.into(), calls: vec![call] }, result]
    }

    fn with_effort(mut request: ModelRequest, effort: &str) -> ModelRequest {
        request.parameters = parameters_of(json!({ "reasoning": { "effort": effort } }));
        request
    }

    #[test]
    fn a_prefill_is_the_last_turn_and_turns_thinking_off() {
        let request = with_effort(request(vec![ModelMessage::User("hi".into())]), "low");
        assert_eq!(body(&request, "claude-opus-4-5")["thinking"]["type"], "enabled");
        let sent = body(&ModelRequest { prefill: Some("Once".into()), ..request }, "claude-opus-4-5");
        assert_eq!(sent["messages"][1], json!({ "role": "assistant", "content": [{ "type": "text", "text": "Once" }] }));
        assert!(sent.get("thinking").is_none(), "{sent}");
    }

    #[test]
    fn a_conversation_is_sent_whole_and_in_turns() {
        let mut messages = vec![message(Role::Developer, Content::Text("short".into())), ModelMessage::User("hi".into())];
        messages.extend(iteration(Vec::new(), "Let me see."));
        messages.push(ModelMessage::User("and?".into()));
        let mut request = request(messages);
        request.instructions = Some("be kind".into());
        let expected = json!({
            "model": "other", "stream": true, "max_tokens": ANSWER_TOKENS, "system": "be kind\n\nshort",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "a_1", "name": "f", "input": {"not_json": "{broken"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a_1", "content": "1"},
                    {"type": "text", "text": "and?"},
                ]},
            ],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "none"},
        });
        assert_eq!(body(&request, "other"), expected);
    }

    #[test]
    fn the_choice_of_tools_is_translated() {
        let mut request = request(vec![ModelMessage::User("hi".into())]);
        request.tools = [ModelTool { name: "f".into(), description: "d".into(), parameters: json!({}), strict: Some(true) }].into();
        for (choice, one_call, spelled) in [
            (ToolChoice::Auto, false, json!({"type": "auto"})),
            (ToolChoice::Auto, true, json!({"type": "auto", "disable_parallel_tool_use": true})),
            (ToolChoice::None, true, json!({"type": "none"})),
            (ToolChoice::Required, false, json!({"type": "any"})),
            (ToolChoice::Tool("f".into()), true, json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true})),
        ] {
            (request.choice, request.one_call) = (choice, one_call);
            assert_eq!(body(&request, "m")["tool_choice"], spelled);
        }
        assert_eq!(body(&request, "m")["tools"], json!([{"name": "f", "description": "d", "input_schema": {"type": "object"}}]));
    }

    #[test]
    fn parameters_are_translated() {
        let asked = |parameters: Value| {
            let mut request = request(vec![ModelMessage::User("hi".into())]);
            request.parameters = parameters_of(parameters);
            body(&request, "m")
        };
        let body = asked(json!({"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 99, "service_tier": "default", "user": "u"}));
        assert_eq!((&body["temperature"], body.get("top_p"), &body["max_tokens"]), (&json!(0.5), None, &json!(99)));
        assert_eq!((&body["service_tier"], &body["metadata"]), (&json!("standard_only"), &json!({"user_id": "u"})));
        let schema = json!({"type": "object", "additionalProperties": false});
        let format = |strict: bool| json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": strict}}});
        let body = asked(format(true));
        assert_eq!(body["output_config"], json!({"format": {"type": "json_schema", "schema": schema}}));
        let body = asked(format(false));
        assert!(body["system"].as_str().is_some_and(|text| text.contains(&schema.to_string())), "{body}");
        assert!(body.get("output_config").is_none());
    }

    #[test]
    fn an_effort_is_a_thinking_budget_within_the_token_limit() {
        let asked = |parameters: Value| {
            let mut request = request(vec![ModelMessage::User("hi".into())]);
            request.parameters = parameters_of(parameters);
            let body = body(&request, "claude-sonnet-4-5");
            (body["max_tokens"].as_u64(), body["thinking"]["budget_tokens"].as_u64())
        };
        let reasoning = json!({"effort": "low"});
        assert_eq!(asked(json!({ "reasoning": reasoning })), (Some(ANSWER_TOKENS + 4096), Some(4096)));
        assert_eq!(asked(json!({ "reasoning": reasoning, "max_output_tokens": 4096 })), (Some(4096), Some(2048)));
        assert_eq!(asked(json!({ "reasoning": reasoning, "max_output_tokens": 100 })), (Some(100), None));
        assert_eq!(asked(json!({ "reasoning": {"effort": "none"} })), (Some(ANSWER_TOKENS), None));
    }

    #[test]
    fn later_models_get_the_effort_itself() {
        let mut request = request(vec![ModelMessage::User("hi".into())]);
        let schema = json!({"type": "object", "additionalProperties": false});
        let format = json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
        request.parameters = parameters_of(json!({"reasoning": {"effort": "minimal", "summary": "auto"}, "text": {"format": format}}));
        let body = body(&request, "claude-opus-4-7");
        assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "summarized"}));
        assert_eq!(body["output_config"], json!({"effort": "low", "format": {"type": "json_schema", "schema": schema}}));
        assert_eq!(body["max_tokens"], ANSWER_TOKENS + 1024);
    }

    #[test]
    fn own_reasoning_is_sent_back_in_order_and_others_is_not() {
        let own = vec![
            reasoning_of("openai", "other's", Some("s")),
            reasoning_of("anthropic", "hm", Some("signed")),
            reasoning_of("anthropic", "", Some("redacted:x")),
        ];
        let mut messages = vec![ModelMessage::User("hi".into())];
        messages.extend(iteration(own, ""));
        let sent = body(&with_effort(request(messages.clone()), "high"), "claude-sonnet-4-5");
        let expected = json!([
            {"type": "thinking", "thinking": "hm", "signature": "signed"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "a_1", "name": "f", "input": {"not_json": "{broken"}},
        ]);
        assert_eq!(sent["messages"][1]["content"], expected);
        assert_eq!(sent["thinking"]["type"], "enabled");
        let unthinking = body(&request(messages), "m");
        assert_eq!(unthinking["messages"][1]["content"].as_array().map(Vec::len), Some(1), "a model that does not think is not reminded");
    }

    #[test]
    fn thinking_is_off_amid_calls_made_without_reasoning() {
        let mut messages = vec![ModelMessage::User("hi".into())];
        messages.extend(iteration(vec![reasoning_of("openai", "other's", Some("s"))], ""));
        assert_eq!(body(&with_effort(request(messages.clone()), "high"), "claude-sonnet-4-5").get("thinking"), None);
        assert_eq!(body(&with_effort(request(messages.clone()), "high"), "claude-opus-4-7")["thinking"]["type"], "adaptive");
        messages.push(ModelMessage::Assistant { reasoning: Vec::new(), text: "done".into(), calls: Vec::new() });
        messages.push(ModelMessage::User("again".into()));
        assert_eq!(body(&with_effort(request(messages), "high"), "claude-sonnet-4-5")["thinking"]["type"], "enabled");
    }
}
