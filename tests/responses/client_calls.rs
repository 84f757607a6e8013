//! Calls that the client executes: the response waits for it, and a follow-up continues with the complete history.

use serde_json::{Value, json};
use windlass_tests::{Mode, ResponseRecord, Scene, in_every_mode};

use crate::support::{after, ask_with, function, mcp, messages_sent, output, response_of, scripted, server_with_model, with};

fn mixed() -> Vec<Value> {
    vec![mcp(), function("mine"), function("yours")]
}

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

fn calls_of(made: &ResponseRecord) -> Vec<Value> {
    made.items("function_call")
}

#[tokio::test]
async fn a_020_a_021_a_call_that_no_executor_takes_goes_to_the_client() {
    let script = "
rules:
  - { when: { result: blue }, reply: { text: It is blue. } }
laps:
  - { calls: [{ tool: echo, arguments: { text: hi } }] }
  - { text: Tell me., calls: [{ tool: mine, arguments: { what: colour } }] }
";
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &mixed())).await;
        assert_eq!((made.status(), &made.object["windlass"]["status"]), ("requires_action", &json!("requires_action")));
        assert_eq!(made.shape(), ["mcp_call", "message", "function_call"]);
        let call = &calls_of(&made)[0];
        assert_eq!(
            (&call["name"], &call["arguments"], &call["status"]),
            (&json!("mine"), &json!(r#"{"what":"colour"}"#), &json!("completed"))
        );
        assert!(made.object["usage"]["total_tokens"].as_u64() > Some(0));
        assert!(made.object["completed_at"].is_u64());
        // Without a server tool the same iteration is an ordinary end.
        let alone = server.respond(mode, with(ask_with("go", &[function("mine")]), json!({ "input": "go", "max_turns": 9 }))).await;
        assert_eq!(alone.items("mcp_call").len(), 1, "a call of an unknown tool is ours to answer");
        assert_eq!((alone.status(), calls_of(&alone).len()), ("completed", 1));
    })
    .await;
    assert_eq!(tools.starts("echo").len(), Mode::every().len());
}

#[tokio::test]
async fn a_021_the_status_can_be_the_standard_one() {
    let script = "laps: [ { calls: [{ tool: mine, arguments: {} }] } ]";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.ask_with(mode, ask_with("go", &mixed()), &[("windlass-status", "standard")]).made(&server).await;
        assert_eq!((made.status(), &made.object["windlass"]["status"]), ("completed", &json!("requires_action")));
        assert_eq!(made.events.last().expect("an end").kind(), "response.completed");
    })
    .await;
    let (server, _tools) = crate::support::scripted_with(script, "responses: { status: standard }").await;
    let made = server.respond(Mode::Streamed, ask_with("go", &mixed())).await;
    assert_eq!((made.status(), &made.object["windlass"]["status"]), ("completed", &json!("requires_action")));
}

#[tokio::test]
async fn a_022_waiting_for_the_client_is_an_end_that_nothing_changes() {
    let script = "laps: [ { calls: [{ tool: mine, arguments: {} }] }, { text: never } ]";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &mixed())).await;
        assert_eq!(made.status(), "requires_action");
        let statuses: Vec<&Value> = made.events.iter().filter_map(|event| event.data.get("response")).map(|r| &r["status"]).collect();
        let before: Vec<&&Value> = statuses.iter().take(statuses.len() - 1).collect();
        assert_eq!(before.last().map(|status| status.as_str()), Some(Some("in_progress")), "it is reached from in_progress only");
        assert!(before.iter().all(|status| **status == "in_progress" || **status == "queued"), "{before:?}");
        assert_eq!(server.cancel(made.id()).await, made.object, "a cancel does not change it");
        let follow_up = server.respond(mode, after(&made, json!([output(&calls_of(&made)[0], "done")]), &mixed())).await;
        assert_eq!(server.response(made.id()).await, made.object, "nor does a follow-up, which is a response of its own");
        assert_ne!(follow_up.id(), made.id());
    })
    .await;
}

#[tokio::test]
async fn a_023_a_follow_up_with_results_continues_with_the_whole_history() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::Call(vec![echo("alpha")]),
            Scene::SayAndCall("Over to you.", vec![("mine", json!({ "n": 1 })), ("yours", json!({ "n": 2 }))]),
            Scene::Say("Thanks."),
            Scene::Say("Again."),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let first = server.respond(mode, with(ask_with("go", &mixed()), json!({ "instructions": "be kind" }))).await;
        let calls = calls_of(&first);
        assert_eq!(calls.len(), 2);
        let results = json!([output(&calls[1], "two"), output(&calls[0], "one"), { "role": "user", "content": "and now?" }]);
        let second = server.respond(mode, after(&first, results, &mixed())).await;
        assert_eq!((second.status(), second.text().as_str()), ("completed", "Thanks."));
        assert_eq!(second.object["previous_response_id"], first.id());
        let history = [
            "user: go",
            "assistant:  +echo",
            "tool: alpha",
            "assistant: Over to you. +mine +yours",
            "tool: one",
            "tool: two",
            "user: and now?",
        ];
        let asked = model.asked();
        assert_eq!(messages_sent(&asked[2]), history, "calls included, results in the order of the calls, instructions not");
        assert_eq!(messages_sent(&asked[1])[0], "system: be kind");
        let third = server.respond(mode, after(&second, json!("more"), &[])).await;
        assert_eq!(third.text(), "Again.");
        assert_eq!(messages_sent(&model.asked()[3]), [&history[..], &["assistant: Thanks.", "user: more"]].concat());
    })
    .await;
}

#[tokio::test]
async fn a_024_a_follow_up_without_results_is_still_sent_to_the_model() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Call(vec![("mine", json!({})), ("yours", json!({}))]), Scene::Say("Never mind."), Scene::Say("Half.")];
        let (server, model, _tools) = server_with_model(scenes).await;
        let first = server.respond(mode, ask_with("go", &mixed())).await;
        let none = server.respond(mode, after(&first, json!("forget it"), &mixed())).await;
        assert_eq!(none.text(), "Never mind.");
        let no_output = "tool: error: no output given for this call";
        assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +mine +yours", no_output, no_output, "user: forget it"]);
        let some = server.respond(mode, after(&first, json!([output(&calls_of(&first)[1], "two")]), &mixed())).await;
        assert_eq!(some.text(), "Half.");
        assert_eq!(messages_sent(&model.asked()[2]), ["user: go", "assistant:  +mine +yours", no_output, "tool: two"]);
        let nothing = server.respond(mode, json!({ "model": "m", "previous_response_id": first.id(), "tools": mixed() })).await;
        assert_eq!(nothing.status(), "completed", "not even an input is needed");
    })
    .await;
}

#[tokio::test]
async fn a_025_an_iteration_with_a_client_call_runs_nothing_and_the_follow_up_runs_the_rest_first() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::SayAndCall("Both.", vec![echo("one"), ("mine", json!({})), echo("two")]),
            Scene::Say("Finished."),
            Scene::Say("The other branch."),
        ];
        let (server, model, tools) = server_with_model(scenes).await;
        let first = server.respond(mode, ask_with("go", &mixed())).await;
        assert_eq!(first.status(), "requires_action");
        assert_eq!(first.shape(), ["message", "function_call"], "only the client's calls are listed");
        assert_eq!(tools.starts("echo").len(), 0, "no call of the iteration is executed");
        assert_eq!(model.asked().len(), 1);
        let results = json!([output(&calls_of(&first)[0], "from the client")]);
        let second = server.respond(mode, after(&first, results.clone(), &mixed())).await;
        assert_eq!((second.status(), second.text().as_str()), ("completed", "Finished."));
        assert_eq!(second.shape(), ["mcp_call", "mcp_call", "message"], "the follow-up runs what was left, first");
        let outputs: Vec<Value> = second.items("mcp_call").iter().map(|call| call["output"].clone()).collect();
        assert_eq!(outputs, ["one", "two"]);
        let whole = ["user: go", "assistant: Both. +echo +mine +echo", "tool: one", "tool: from the client", "tool: two"];
        assert_eq!(messages_sent(&model.asked()[1]), whole);
        // A second branch gets the results of the first branch's server calls.
        let branch = server.respond(mode, after(&first, results, &mixed())).await;
        assert_eq!((branch.status(), branch.text().as_str()), ("completed", "The other branch."));
        assert_eq!(tools.starts("echo").len(), 2, "no call is run twice");
        assert_eq!(messages_sent(&model.asked()[2]), whole);
        assert!(tools.starts("echo").iter().all(|start| start.call_id.as_deref().map(response_of).as_deref() == Some(second.id())));
    })
    .await;
}

#[tokio::test]
async fn a_025_what_was_left_runs_even_if_the_client_has_no_results() {
    let (server, model, tools) = server_with_model(vec![Scene::Call(vec![("mine", json!({})), echo("one")]), Scene::Say("done")]).await;
    let first = server.respond(Mode::Streamed, ask_with("go", &mixed())).await;
    let second = server.respond(Mode::Streamed, after(&first, json!("go on"), &mixed())).await;
    assert_eq!(second.shape(), ["mcp_call", "message"]);
    assert_eq!(tools.starts("echo").len(), 1);
    let asked = messages_sent(&model.asked()[1]);
    assert_eq!(asked[..4], ["user: go", "assistant:  +mine +echo", "tool: error: no output given for this call", "tool: one"]);
}

#[tokio::test]
async fn a_029_a_stream_that_needs_the_client_says_so_in_its_last_event() {
    let (server, _tools) = scripted("laps: [ { calls: [{ tool: mine, arguments: {} }] } ]").await;
    for mode in Mode::every().iter().filter(|mode| mode.streams()) {
        let made = server.respond(*mode, ask_with("go", &mixed())).await;
        let last = made.events.last().expect("an end");
        assert_eq!((last.kind(), &last.data["response"]["status"]), ("response.completed", &json!("requires_action")));
        let named = server.ask_with(*mode, ask_with("go", &mixed()), &[("windlass-events", "lifecycle")]).made(&server).await;
        assert_eq!(named.events.last().expect("an end").kind(), "response.requires_action", "on request");
        let included = with(ask_with("go", &mixed()), json!({ "include": ["windlass:lifecycle_events"] }));
        let named = server.respond(*mode, included).await;
        assert_eq!(named.events.last().expect("an end").kind(), "response.requires_action");
    }
}

#[tokio::test]
async fn a_client_that_sends_the_conversation_again_gets_the_servers_work_put_back() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Call(vec![echo("alpha")]), Scene::Call(vec![("mine", json!({ "n": 1 }))]), Scene::Say("done")];
        let (server, model, _tools) = server_with_model(scenes).await;
        let is_stored = matches!(mode, Mode::Background | Mode::Followed);
        let first = server.respond(mode, with(ask_with("go", &mixed()), json!({ "store": is_stored }))).await;
        let call = &calls_of(&first)[0];
        // Codex sends everything but the server's own items.
        let again = json!([{ "role": "user", "content": "go" }, call, output(call, "one")]);
        let second = server.respond(mode, with(ask_with("", &mixed()), json!({ "input": again, "store": is_stored }))).await;
        assert_eq!(second.text(), "done");
        assert_eq!(messages_sent(&model.asked()[2]), ["user: go", "assistant:  +echo", "tool: alpha", "assistant:  +mine", "tool: one"]);
    })
    .await;
}

#[tokio::test]
async fn functions_in_namespaces_come_back_under_the_clients_names() {
    let (server, model, _tools) = server_with_model(vec![Scene::Call(vec![("close", json!({}))]), Scene::Say("done")]).await;
    let group = json!({ "type": "namespace", "name": "agents", "description": "d", "tools": [{ "type": "function", "name": "close" }] });
    let made = server.respond(Mode::Streamed, ask_with("go", &[group, json!({ "type": "next_year" })])).await;
    let call = &calls_of(&made)[0];
    assert_eq!((&call["name"], &call["namespace"]), (&json!("close"), &json!("agents")));
    assert_eq!(crate::support::offered(&model.asked()[0]), ["close"], "tools we do not know are left alone");
}

#[tokio::test]
async fn functions_of_the_same_name_in_two_namespaces_are_distinguished() {
    let (server, model, _tools) =
        server_with_model(vec![Scene::Call(vec![("b__close", json!({})), ("a__close", json!({}))]), Scene::Say("done")]).await;
    let group = |name: &str| json!({ "type": "namespace", "name": name, "tools": [{ "type": "function", "name": "close" }] });
    let groups = [group("a"), group("b")];
    let made = server.respond(Mode::Streamed, ask_with("go", &groups)).await;
    assert_eq!(crate::support::offered(&model.asked()[0]), ["a__close", "b__close"]);
    let names: Vec<(Value, Value)> = calls_of(&made).iter().map(|call| (call["namespace"].clone(), call["name"].clone())).collect();
    assert_eq!(names, [(json!("b"), json!("close")), (json!("a"), json!("close"))]);
    // A client that sends such calls back is understood.
    let results: Vec<Value> = calls_of(&made).iter().map(|call| output(call, "closed")).collect();
    assert_eq!(server.respond(Mode::Streamed, after(&made, json!(results), &groups)).await.text(), "done");
    assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +b__close +a__close", "tool: closed", "tool: closed"]);
}

#[tokio::test]
async fn a_025_a_chain_continues_from_the_follow_up_and_from_the_second_branch() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::Call(vec![echo("one"), ("mine", json!({}))]),
            Scene::Call(vec![("mine", json!({})), echo("two")]),
            Scene::Say("Branch."),
            Scene::Say("Deep."),
            Scene::Say("Branch on."),
        ];
        let (server, model, tools) = server_with_model(scenes).await;
        let first = server.respond(mode, ask_with("go", &mixed())).await;
        let second = server.respond(mode, after(&first, json!([output(&calls_of(&first)[0], "mine 1")]), &mixed())).await;
        assert_eq!((second.status(), second.shape()), ("requires_action", vec!["mcp_call".to_owned(), "function_call".to_owned()]));
        let branch = server.respond(mode, after(&first, json!("without it"), &mixed())).await;
        let deep = server.respond(mode, after(&second, json!([output(&calls_of(&second)[0], "mine 2")]), &mixed())).await;
        let on = server.respond(mode, after(&branch, json!("on"), &mixed())).await;
        assert_eq!((branch.text(), deep.text(), on.text()), ("Branch.".into(), "Deep.".into(), "Branch on.".into()));
        let start = ["user: go", "assistant:  +echo +mine", "tool: one"];
        let asked = model.asked();
        let no_output = "tool: error: no output given for this call";
        assert_eq!(messages_sent(&asked[1]), [&start[..], &["tool: mine 1"]].concat());
        assert_eq!(messages_sent(&asked[2]), [&start[..], &[no_output, "user: without it"]].concat());
        let whole = [&start[..], &["tool: mine 1", "assistant:  +mine +echo", "tool: mine 2", "tool: two"]].concat();
        assert_eq!(messages_sent(&asked[3]), whole);
        assert_eq!(messages_sent(&asked[4]), [&start[..], &[no_output, "user: without it", "assistant: Branch.", "user: on"]].concat());
        assert_eq!(tools.starts("echo").len(), 2, "each call once");
    })
    .await;
}

#[tokio::test]
async fn a_025_a_second_branch_waits_while_the_first_one_runs_what_was_left() {
    let scenes = vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 400 })), ("mine", json!({}))]), Scene::Say("done")];
    let (server, _model, tools) = server_with_model(scenes).await;
    let first = server.respond(Mode::Streamed, ask_with("go", &mixed())).await;
    let results = json!([output(&calls_of(&first)[0], "mine")]);
    let running = server.ask(Mode::Streamed, after(&first, results.clone(), &mixed()));
    tools.runs("sleep_ms", 1).await;
    let answer = server.refusal(Mode::Plain, after(&first, results.clone(), &mixed())).await;
    assert_eq!((answer.status, answer.code()), (409, "tool_calls_running"), "clients try that again by themselves");
    assert_eq!(running.made(&server).await.text(), "done");
    assert_eq!(server.respond(Mode::Plain, after(&first, results, &mixed())).await.text(), "done");
    assert_eq!(tools.starts("sleep_ms").len(), 1);
}

#[tokio::test]
async fn a_025_a_call_that_may_not_be_made_beside_a_clients_is_refused_in_the_follow_up() {
    in_every_mode(async |mode| {
        for tools in [mixed(), vec![function("mine")]] {
            let scenes = vec![Scene::Call(vec![("nobody", json!({})), ("mine", json!({}))]), Scene::Say("done")];
            let (server, model, _tools) = server_with_model(scenes).await;
            let first = server.respond(mode, ask_with("go", &tools)).await;
            assert_eq!(first.shape(), ["function_call"]);
            assert_eq!(calls_of(&first)[0]["name"], "mine");
            let second = server.respond(mode, after(&first, json!([output(&calls_of(&first)[0], "one")]), &tools)).await;
            assert_eq!((second.status(), second.text().as_str()), ("completed", "done"));
            let messages = messages_sent(&model.asked()[1]);
            assert_eq!((messages[1].as_str(), messages[3].as_str()), ("assistant:  +nobody +mine", "tool: one"));
            assert!(messages[2].contains("there is no tool"), "{messages:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_output_of_a_call_that_is_not_open_is_refused() {
    let (server, _tools) = scripted("laps: [ { calls: [{ tool: mine, arguments: {} }] }, { text: never } ]").await;
    let first = server.respond(Mode::Plain, ask_with("go", &mixed())).await;
    let other = server.respond(Mode::Plain, ask_with("go", &mixed())).await;
    for call_id in [calls_of(&other)[0]["call_id"].as_str().expect("an id"), "call_nope", "c0"] {
        let wrong = json!([{ "type": "function_call_output", "call_id": call_id, "output": "x" }]);
        let answer = server.refusal(Mode::Streamed, after(&first, wrong, &mixed())).await;
        assert_eq!((answer.status, answer.code()), (400, "unknown_call_id"), "{call_id}");
        assert_eq!(answer.body["error"]["param"], "input[0].call_id");
    }
}
