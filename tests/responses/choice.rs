//! Whether the model may, must or must not call tools, and which.

use serde_json::{Value, json};
use windlass_tests::{Mode, Scene, in_every_mode};

use crate::support::{ask, ask_with, function, mcp, messages_sent, offered, scripted, server_with_model, with};

fn choosing(choice: Value) -> Value {
    with(ask_with("go", &[function("a"), function("b")]), json!({ "tool_choice": choice }))
}

#[tokio::test]
async fn a_006_every_choice_is_accepted_and_sent_on() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("fine")]).await;
        // Defaults of the provider are not sent.
        let cases = [
            (json!("auto"), Value::Null),
            (json!("required"), json!("required")),
            (json!("none"), json!("none")),
            (json!({ "type": "function", "name": "b" }), json!({ "type": "function", "function": { "name": "b" } })),
        ];
        for (index, (choice, sent)) in cases.iter().enumerate() {
            let made = server.respond(mode, choosing(choice.clone())).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "fine"), "{choice}");
            assert_eq!(&made.object["tool_choice"], choice, "the echo");
            assert_eq!(&model.asked()[index]["tool_choice"], sent, "{choice}");
            assert_eq!(offered(&model.asked()[index]), ["a", "b"]);
        }
        let unsaid = server.respond(mode, ask_with("go", &[function("a")])).await;
        assert_eq!(unsaid.object["tool_choice"], "auto");
    })
    .await;
}

#[tokio::test]
async fn a_006_a_tool_of_a_server_can_be_chosen() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("fine")]).await;
    let choices = [
        (json!({ "type": "mcp", "server_label": "tools", "name": "add" }), json!({ "type": "function", "function": { "name": "add" } })),
        (json!({ "type": "mcp", "server_label": "tools" }), json!("required")),
    ];
    for (index, (choice, sent)) in choices.iter().enumerate() {
        let made = server.respond(Mode::Streamed, with(ask_with("go", &[mcp()]), json!({ "tool_choice": choice }))).await;
        assert_eq!(made.status(), "completed");
        assert_eq!(&model.asked()[index]["tool_choice"], sent);
    }
}

#[tokio::test]
async fn a_007_required_without_a_call_is_answered_as_it_is() {
    let (server, _tools) = scripted("laps: [ { text: no call from me } ]").await;
    in_every_mode(async |mode| {
        for tools in [vec![function("a")], vec![mcp()]] {
            let made = server.respond(mode, with(ask_with("go", &tools), json!({ "tool_choice": "required" }))).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "no call from me"));
            assert_eq!(made.object["error"], Value::Null);
        }
    })
    .await;
}

#[tokio::test]
async fn a_008_none_runs_nothing_and_the_calls_stay_in_the_output() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::SayAndCall("I would", vec![("echo", json!({ "text": "hi" })), ("mine", json!({}))]), Scene::Say("never")];
        let (server, model, tools) = server_with_model(scenes).await;
        let body = with(ask_with("go", &[mcp(), function("mine")]), json!({ "tool_choice": "none" }));
        let made = server.respond(mode, body).await;
        assert_eq!((made.status(), &made.object["windlass"]["status"]), ("completed", &json!("completed")));
        assert_eq!(made.shape(), ["message", "function_call", "function_call"]);
        let names: Vec<Value> = made.items("function_call").iter().map(|call| call["name"].clone()).collect();
        assert_eq!(names, ["echo", "mine"]);
        assert!(made.items("function_call").iter().all(|call| call["status"] == "completed"));
        assert_eq!(made.text(), "I would");
        assert_eq!(tools.starts("echo").len(), 0, "nothing is run");
        assert_eq!(model.asked().len(), 1, "and nothing goes back");
        let offered = offered(&model.asked()[0]);
        assert!(offered.contains(&"echo".to_owned()) && offered.contains(&"mine".to_owned()), "the tools still reach it: {offered:?}");
    })
    .await;
}

#[tokio::test]
async fn a_009_a_named_choice_must_name_a_tool_of_the_request() {
    let (server, _tools) = scripted("laps: [ { text: hi } ]").await;
    in_every_mode(async |mode| {
        let unknown = [
            json!({ "type": "function", "name": "c" }),
            json!({ "type": "mcp", "server_label": "tools" }),
            json!({ "type": "custom", "name": "a" }),
            json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "c" }] }),
        ];
        for choice in unknown {
            let answer = server.refusal(mode, choosing(choice.clone())).await;
            assert_eq!(answer.status, 400, "{choice}");
            let param = answer.body["error"]["param"].as_str().unwrap_or_default();
            assert!(param.starts_with("tool_choice"), "{choice}: {}", answer.body);
        }
        let other = with(ask_with("go", &[mcp()]), json!({ "tool_choice": { "type": "mcp", "server_label": "tools", "name": "nope" } }));
        let answer = server.refusal(mode, other).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("tool_choice")), "{}", answer.body);
        let toolless = server.refusal(mode, with(ask("go"), json!({ "tool_choice": { "type": "function", "name": "a" } }))).await;
        assert_eq!(toolless.status, 400);
    })
    .await;
    assert_eq!(server.number("SELECT count(*) FROM runs"), 0, "a refused request leaves nothing behind");
}

#[tokio::test]
async fn a_009_a_server_run_tool_of_the_request_can_be_chosen_by_name() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("fine")]).await;
    let own = json!({ "windlass": { "tools": ["look_up"] }, "tool_choice": { "type": "function", "name": "look_up" } });
    let made = server.respond(Mode::Streamed, with(ask("go"), own)).await;
    assert_eq!(made.status(), "completed");
    assert_eq!(model.asked()[0]["tool_choice"], json!({ "type": "function", "function": { "name": "look_up" } }));
    let allowed = json!({ "type": "allowed_tools", "tools": [{ "type": "function", "name": "look_up" }] });
    let made =
        server.respond(Mode::Streamed, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] }, "tool_choice": allowed }))).await;
    assert_eq!(made.status(), "completed");
    let unattached =
        with(ask("go"), json!({ "windlass": { "tools": ["send"] }, "tool_choice": { "type": "function", "name": "look_up" } }));
    assert_eq!(server.refusal(Mode::Plain, unattached).await.body["error"]["param"], "tool_choice");
}

/// The forms of a limited choice of tools.
fn limits(name: &str) -> [Value; 3] {
    let server = json!({ "type": "mcp", "server_label": "tools", "name": name });
    [
        json!({ "allowed_tools": [name] }),
        json!({ "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": [server] } }),
        json!({ "tool_choice": { "type": "allowed_tools", "tools": [server] } }),
    ]
}

#[tokio::test]
async fn a_010_a_011_a_call_outside_of_the_allowed_tools_is_reported_to_the_model_and_not_run() {
    in_every_mode(async |mode| {
        for limit in limits("add") {
            let scenes = vec![Scene::Call(vec![("echo", json!({ "text": "hi" })), ("add", json!({ "a": 1, "b": 2 }))]), Scene::Say("done")];
            let (server, model, tools) = server_with_model(scenes).await;
            let made = server.respond(mode, with(ask_with("go", &[mcp()]), limit.clone())).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "done"), "the loop continues");
            let calls = made.items("mcp_call");
            assert_eq!((&calls[0]["name"], &calls[0]["status"]), (&json!("echo"), &json!("failed")));
            let reason = calls[0]["error"].as_str().expect("the reason is given");
            assert!(reason.contains("echo") && reason.contains("add"), "{reason}");
            assert_eq!(calls[1]["output"], "3", "the one inside runs");
            assert_eq!((tools.starts("echo").len(), tools.starts("add").len()), (0, 1));
            let asked = model.asked();
            let offered = offered(&asked[0]);
            assert!(offered.contains(&"echo".to_owned()) && offered.contains(&"add".to_owned()), "all definitions reach it");
            assert!(messages_sent(&asked[1])[2].contains("may not be called"), "{:?}", messages_sent(&asked[1]));
        }
    })
    .await;
}

#[tokio::test]
async fn a_010_a_limit_with_a_call_that_is_required_reaches_the_model_as_both() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Call(vec![("echo", json!({ "text": "hi" }))]), Scene::Say("done")];
        let (server, model, tools) = server_with_model(scenes).await;
        let allowed = json!([{ "type": "mcp", "server_label": "tools", "name": "add" }]);
        let choice = json!({ "type": "allowed_tools", "mode": "required", "tools": allowed });
        let made = server.respond(mode, with(ask_with("go", &[mcp()]), json!({ "tool_choice": choice }))).await;
        assert_eq!((made.status(), &made.object["tool_choice"]), ("completed", &choice), "the echo");
        assert_eq!(model.asked()[0]["tool_choice"], "required");
        assert!(messages_sent(&model.asked()[1])[2].contains("may not be called"), "{:?}", messages_sent(&model.asked()[1]));
        assert_eq!((&made.items("mcp_call")[0]["status"], tools.starts("echo").len()), (&json!("failed"), 0));
    })
    .await;
}

#[tokio::test]
async fn a_011_a_client_call_outside_of_the_allowed_tools_does_not_go_to_the_client() {
    let script = "laps: [ { calls: [{ tool: mine, arguments: {} }] }, { text: done } ]";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, with(ask_with("go", &[mcp(), function("mine")]), json!({ "allowed_tools": ["echo"] }))).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
        assert_eq!(made.items("function_call").len(), 0, "what may not be called is not handed out");
    })
    .await;
}

#[tokio::test]
async fn a_012_a_call_inside_of_the_allowed_tools_runs_and_an_empty_list_is_no_limit() {
    let script = "laps: [ { calls: [{ tool: echo, arguments: { text: hi } }] }, { text: done } ]";
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let before = tools.starts("echo").len();
        let bodies =
            [json!({ "allowed_tools": ["echo", "add"] }), json!({ "allowed_tools": [] }), json!({ "allowed_tools": null }), json!({})];
        for more in &bodies {
            let made = server.respond(mode, with(ask_with("go", &[mcp()]), more.clone())).await;
            assert_eq!((made.status(), &made.items("mcp_call")[0]["output"]), ("completed", &json!("hi")), "{more}");
        }
        assert_eq!(tools.starts("echo").len() - before, bodies.len());
    })
    .await;
}

#[tokio::test]
async fn a_012_one_call_at_a_time_where_the_request_wants_that() {
    let script = "
rules:
  - { when: { result: one }, reply: { calls: [{ tool: echo, arguments: { text: two } }, { tool: echo, arguments: { text: three } }] } }
laps:
  - { calls: [{ tool: echo, arguments: { text: one } }, { tool: echo, arguments: { text: never } }] }
";
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let body = with(ask_with("go", &[mcp()]), json!({ "parallel_tool_calls": false, "max_turns": 2 }));
        let made = server.respond(mode, body).await;
        assert_eq!(made.object["parallel_tool_calls"], false);
        let outputs: Vec<Value> = made.items("mcp_call").iter().map(|call| call["output"].clone()).collect();
        assert_eq!(outputs, ["one", "two"], "at most one call in each iteration");
    })
    .await;
    assert_eq!(tools.starts("echo").len(), 2 * Mode::every().len());
}
