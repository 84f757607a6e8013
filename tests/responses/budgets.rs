//! Which setting wins where several exist: limits of a request and of its agent, deadlines of tools, names of tools, and the name of a
//! status.

use serde_json::json;
use windlass_tests::{FakeModel, McpServer, Mode, Scene, ServerBuilder};

use crate::support::{
    ask_with, function, mcp, offered, scripted_with, server_for_model, server_with_model, server_with_model_and_config, with,
};

#[tokio::test]
async fn a_016_a_request_cannot_have_more_turns_than_its_agent() {
    let for_ever = "rules: [ { reply: { calls: [{ tool: echo, arguments: { text: again } }] } } ]";
    let (server, tools) = scripted_with(for_ever, "agents: { short: { tools: [tools], budgets: { iterations: 3 } } }").await;
    for (turns, more) in
        [(3, json!({})), (3, json!({ "max_turns": 5 })), (3, json!({ "windlass": { "max_turns": 5 } })), (2, json!({ "max_turns": 2 }))]
    {
        let before = tools.starts("echo").len();
        let made = server.respond(Mode::Plain, with(json!({ "model": "agent/short", "input": "go" }), more.clone())).await;
        assert_eq!((made.status(), &made.object["incomplete_details"]["reason"]), ("incomplete", &json!("max_turns")), "{more}");
        assert_eq!(tools.starts("echo").len() - before, turns, "{more}");
    }
}

#[tokio::test]
async fn a_040_an_external_tool_waits_no_longer_than_every_call_may() {
    for (every, own) in [("300ms", "1h"), ("1h", "300ms")] {
        let config = format!(
            "models: [ {{ name: m, provider: scripted, script: script.yaml }} ]\nlimits: {{ sweep_interval: 50ms, call_deadline: {every} }}
tools: {{ external: [ {{ name: look_up, effect: read, deadline: {own} }} ] }}\n"
        );
        let script = "laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: done } ]";
        let server = ServerBuilder::new(&config).file("script.yaml", script).start().await;
        let body = json!({ "model": "m", "input": "go", "windlass": { "tools": ["look_up"] } });
        let made = server.respond(Mode::Plain, body).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
        assert_eq!(made.items("mcp_call")[0]["status"], "failed", "no answer came in time, and the model continued");
    }
}

#[tokio::test]
async fn a_clients_function_stays_the_clients_wherever_a_server_offers_its_name() {
    for tools in [[mcp(), function("echo")], [function("echo"), mcp()]] {
        let scenes = vec![Scene::Call(vec![("tools__echo", json!({ "text": "ours" }))]), Scene::Call(vec![("echo", json!({}))])];
        let (server, model, servers) = server_with_model(scenes).await;
        let made = server.respond(Mode::Streamed, ask_with("go", &tools)).await;
        assert_eq!((made.status(), made.shape()), ("requires_action", vec!["mcp_call".to_owned(), "function_call".to_owned()]));
        assert_eq!((&made.items("mcp_call")[0]["name"], &made.items("function_call")[0]["name"]), (&json!("echo"), &json!("echo")));
        assert_eq!(servers.starts("echo").len(), 1);
        let names = offered(&model.asked()[0]);
        assert_eq!(names.iter().filter(|name| *name == "echo" || *name == "tools__echo").count(), 2, "{names:?}");
    }
    // `windlass.tools` makes `look_up` a server tool although it is a function too, and a function may have the name that a label gives to a
    // server tool (`tools__echo`).
    let (server, model, servers) =
        server_with_model(vec![Scene::Call(vec![("tools__tools__echo", json!({ "text": "ours" }))]), Scene::Say("done")]).await;
    let named = [mcp(), function("echo"), function("tools__echo"), function("look_up")];
    let made = server.respond(Mode::Streamed, with(ask_with("go", &named), json!({ "windlass": { "tools": ["look_up"] } }))).await;
    assert_eq!((made.text().as_str(), servers.starts("echo").len()), ("done", 1));
    assert_eq!(offered(&model.asked()[0]).iter().filter(|name| *name == "look_up").count(), 1);
}

#[tokio::test]
async fn the_header_counts_before_the_token_and_the_token_before_the_configuration() {
    let auth = "
auth:
  tokens:
    - { token: test-token-of-22-characters, scopes: ['*'] }
    - { token: closed-token-of-22-characters, scopes: ['*'], status: standard }
    - { token: open-token-of-22-characters, scopes: ['*'], status: hybrid }
";
    for (everybody, of_none) in [("hybrid", "requires_action"), ("standard", "completed")] {
        let more = format!("responses: {{ status: {everybody} }}{auth}");
        let (mut server, _model, _tools) = server_with_model_and_config(vec![Scene::Call(vec![("mine", json!({}))])], &more).await;
        for (token, status) in [
            ("test-token-of-22-characters", of_none),
            ("closed-token-of-22-characters", "completed"),
            ("open-token-of-22-characters", "requires_action"),
        ] {
            server = server.with_token(token);
            let body = ask_with("go", &[mcp(), function("mine")]);
            let made = server.respond(Mode::Plain, body.clone()).await;
            assert_eq!((made.status(), &made.object["windlass"]["status"]), (status, &json!("requires_action")), "{everybody} {token}");
            for (word, status) in [("standard", "completed"), ("hybrid", "requires_action")] {
                let made = server.ask_with(Mode::Plain, body.clone(), &[("windlass-status", word)]).made(&server).await;
                assert_eq!(made.status(), status, "{everybody} {token} {word}");
            }
        }
    }
}

/// The server lists the tools of MCP servers before a run begins, so that a required tool is known then. If its MCP server fails later, the
/// model gets the error.
#[tokio::test]
async fn a_036_a_required_tool_whose_server_is_gone_is_an_error_for_the_model() {
    let choices = [json!("required"), json!({ "type": "mcp", "server_label": "tools", "name": "echo" })];
    for choice in choices {
        let scenes = vec![Scene::Call(vec![("echo", json!({ "text": "one" }))]), Scene::Say("I could not.")];
        let (model, tools) = (FakeModel::held_back(scenes).await, McpServer::start().await);
        let server = server_for_model(&model, &tools, "").await;
        let asked = server.ask(Mode::Streamed, with(ask_with("go", &[mcp()]), json!({ "tool_choice": choice })));
        model.asked_times(1).await;
        tools.behave(|manners| manners.authorization = Some("nobody has it".into()));
        tools.forget_sessions();
        (0..2).for_each(|_| model.let_answer());
        let made = asked.made(&server).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "I could not."), "{choice}");
        let call = &made.items("mcp_call")[0];
        assert!(call["status"] == "failed" && call["error"].is_string(), "{call}");
        assert_eq!((model.asked().len(), tools.starts("echo").len()), (2, 0), "the model is asked what to do now");
    }
}
