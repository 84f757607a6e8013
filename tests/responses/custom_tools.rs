//! Tools in the forms that Codex uses: custom tools, whose input is a text, and tools that come with an item of the input.

use serde_json::{Value, json};
use windlass_tests::{Mode, ResponseRecord, Scene, in_every_mode};

use crate::support::{after, ask, ask_with, function, mcp, messages_sent, offered, server_with_model, with};

const PATCH: &str = "*** Begin Patch\n\"quoted\"\n*** End Patch";

fn custom(name: &str) -> Value {
    let format = json!({ "type": "grammar", "syntax": "lark", "definition": "start: LINE" });
    json!({ "type": "custom", "name": name, "description": "Edits files.", "format": format })
}

fn patch() -> Scene {
    Scene::Call(vec![("patch", json!({ "input": PATCH }))])
}

fn output(call: &Value, text: &str) -> Value {
    json!({ "type": "custom_tool_call_output", "call_id": call["call_id"], "output": text })
}

fn call_of(made: &ResponseRecord) -> Value {
    assert_eq!(made.shape(), ["custom_tool_call"]);
    made.items("custom_tool_call").remove(0)
}

#[tokio::test]
async fn a_custom_tool_takes_a_text_and_the_model_an_object() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![patch(), Scene::Say("done")]).await;
        let made = server.respond(mode, ask_with("go", &[custom("patch")])).await;
        let call = call_of(&made);
        assert_eq!((&call["name"], &call["input"], &call["status"]), (&json!("patch"), &json!(PATCH), &json!("completed")));
        assert!(call.get("namespace").is_none() && call.get("arguments").is_none(), "{call}");
        assert_eq!((made.status(), &made.object["tools"][0]), ("completed", &custom("patch")), "no server-run tool is there");
        let tool = &model.asked()[0]["tools"][0]["function"];
        assert_eq!((&tool["name"], &tool["parameters"]["required"]), (&json!("patch"), &json!(["input"])));
        let description = tool["description"].as_str().expect("a description");
        assert!(description.starts_with("Edits files.") && description.ends_with("lark grammar:\nstart: LINE"), "{description}");
        let second = server.respond(mode, after(&made, json!([output(&call, "patched")]), &[custom("patch")])).await;
        assert_eq!(second.text(), "done");
        assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +patch", "tool: patched"]);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_sends_a_custom_call_again_is_understood() {
    in_every_mode(async |mode| {
        let echo = Scene::Call(vec![("echo", json!({ "text": "alpha" }))]);
        let (server, model, _tools) = server_with_model(vec![echo, patch(), Scene::Say("done")]).await;
        let tools = [custom("patch"), mcp()];
        let is_stored = matches!(mode, Mode::Background | Mode::Followed);
        let store = json!({ "store": is_stored });
        let first = server.respond(mode, with(ask_with("go", &tools), store.clone())).await;
        let call = first.items("custom_tool_call").remove(0);
        assert_eq!(first.status(), "requires_action", "beside a tool of the server's");
        // The server's call is missing in the client's input. The server restores it by the id of the custom call.
        let again = json!([{ "role": "user", "content": "go" }, call, output(&call, "patched")]);
        let second = server.respond(mode, with(with(ask_with("", &tools), json!({ "input": again })), store)).await;
        assert_eq!(second.text(), "done");
        let asked = &model.asked()[2];
        assert_eq!(messages_sent(asked), ["user: go", "assistant:  +echo", "tool: alpha", "assistant:  +patch", "tool: patched"]);
        let arguments = asked["messages"][3]["tool_calls"][0]["function"]["arguments"].as_str().expect("arguments are a text");
        assert_eq!(serde_json::from_str::<Value>(arguments).ok(), Some(json!({ "input": PATCH })), "as the model wrote it");
    })
    .await;
}

#[tokio::test]
async fn a_text_that_a_model_forgets_to_wrap_is_accepted() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Call(vec![("patch", json!({ "patch": "x" }))])]).await;
    let made = server.respond(Mode::Streamed, ask_with("go", &[custom("patch")])).await;
    assert_eq!(call_of(&made)["input"], r#"{"patch":"x"}"#);
}

#[tokio::test]
async fn a_custom_tool_can_be_chosen_and_allowed() {
    let choices = [
        json!({ "type": "custom", "name": "patch" }),
        json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "custom", "name": "patch" }] }),
    ];
    for choice in choices {
        let (server, model, _tools) = server_with_model(vec![patch()]).await;
        let body = with(ask_with("go", &[function("other"), custom("patch")]), json!({ "tool_choice": choice }));
        call_of(&server.respond(Mode::Streamed, body).await);
        let sent = &model.asked()[0]["tool_choice"];
        assert!(*sent == "required" || sent["function"]["name"] == "patch", "{choice}: {sent}");
    }
    let (server, _model, _tools) = server_with_model(vec![patch()]).await;
    for name in ["nobody", "other"] {
        let choice = json!({ "tool_choice": { "type": "custom", "name": name } });
        let refused = server.refusal(Mode::Plain, with(ask_with("go", &[function("other"), custom("patch")]), choice)).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("tool_choice")), "{name}");
    }
}

/// The item in which Codex sends its tools to models that it knows.
fn additional(tools: Value) -> Value {
    json!({ "type": "additional_tools", "id": "at_1", "role": "developer", "tools": tools })
}

fn group() -> Value {
    json!({ "type": "namespace", "name": "functions", "description": "", "tools": [custom("patch"), function("wait")] })
}

#[tokio::test]
async fn tools_that_an_item_brings_along_are_offered_and_called_by_their_names() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![patch(), Scene::Say("done")]).await;
        let input = json!([additional(json!([group(), { "type": "web_search" }])), { "role": "user", "content": "go" }]);
        let made = server.respond(mode, with(ask_with("", &[function("wait")]), json!({ "input": input }))).await;
        let call = call_of(&made);
        assert_eq!((&call["name"], &call["namespace"], &call["input"]), (&json!("patch"), &json!("functions"), &json!(PATCH)));
        let asked = &model.asked()[0];
        assert_eq!(
            (offered(asked), messages_sent(asked)),
            (vec!["wait".into(), "patch".into(), "functions__wait".into()], vec!["user: go".into()])
        );
        assert_eq!(made.object["tools"].as_array().map(Vec::len), Some(1), "what is repeated is what `tools` had");
    })
    .await;
}

#[tokio::test]
async fn tools_that_are_brought_along_again_hold_instead() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
    let later = json!([{ "type": "function", "name": "wait", "description": "waits longer" }]);
    let input = json!([additional(json!([function("wait"), function("stop")])), { "role": "user", "content": "go" }, additional(later)]);
    server.respond(Mode::Streamed, with(ask(""), json!({ "input": input }))).await;
    let asked = &model.asked()[0];
    assert_eq!(offered(asked), ["wait", "stop"]);
    assert_eq!(asked["tools"][0]["function"]["description"], "waits longer");
}

#[tokio::test]
async fn tools_that_are_brought_along_are_checked_like_others() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
    let many: Vec<Value> = (0..1100).map(|number| function(&format!("f{number}"))).collect();
    let wrong = [
        (json!(7), "input[0].tools"),
        (json!([{ "type": "function" }]), "input[0].tools[0].name"),
        (json!([{ "type": "namespace", "name": "n", "tools": [{ "type": "custom", "name": "a b" }] }]), "input[0].tools[0].tools[0].name"),
        (json!(many), "input[0].tools"),
    ];
    for (tools, place) in wrong {
        let body = with(ask(""), json!({ "input": [additional(tools), { "role": "user", "content": "go" }] }));
        let refused = server.refusal(Mode::Plain, body).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!(place)));
    }
}

#[tokio::test]
async fn on_a_socket_tools_sent_with_the_input_apply_to_follow_ups() {
    let say = |text: &str| json!([{ "role": "user", "content": text }]);
    let unstored = |body: Value| with(body, json!({ "store": false }));
    let (server, model, _tools) = server_with_model(vec![patch(), patch(), Scene::Say("done")]).await;
    let mut socket = server.socket().await;
    // Codex sends the tools once, in a warm-up request.
    let warm = with(ask(""), json!({ "input": [additional(json!([group()]))], "generate": false }));
    let warm = socket.respond(unstored(warm)).await;
    let mut before = socket.respond(unstored(after(&warm, say("go"), &[]))).await;
    for _ in 0..2 {
        let call = before.items("custom_tool_call").first().map(|call| json!([output(call, "patched")]));
        before = socket.respond(unstored(after(&before, call.expect("a call"), &[]))).await;
    }
    assert_eq!(before.text(), "done");
    for asked in model.asked() {
        assert_eq!(offered(&asked), ["patch", "wait"]);
    }
    // A request without a predecessor has none of them.
    socket.respond(unstored(ask("anew"))).await;
    assert_eq!(offered(&model.asked()[3]), Vec::<String>::new());
}
