//! Server calls that a response deferred because of client calls, when the client sends the whole conversation again instead of naming the
//! previous response.

use serde_json::{Value, json};
use windlass_tests::{Mode, ResponseRecord, Scene, in_every_mode, until};

use crate::support::{after, ask_with, function, mcp, messages_sent, output, server_with_model, server_with_model_and_config, with};

fn mixed() -> Vec<Value> {
    vec![mcp(), function("mine"), function("yours")]
}

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn is_stored(mode: Mode) -> bool {
    matches!(mode, Mode::Background | Mode::Followed)
}

fn request(input: &[Value], store: bool) -> Value {
    with(ask_with("", &mixed()), json!({ "input": input, "store": store }))
}

/// The items that a client such as Codex keeps of a response: all but the server's calls.
fn kept(made: &ResponseRecord) -> Vec<Value> {
    made.output().into_iter().filter(|item| item["type"] != "mcp_call").collect()
}

/// The client's calls of a response, and their results.
fn outputs(made: &ResponseRecord, text: &str) -> Vec<Value> {
    made.items("function_call").iter().map(|call| output(call, text)).collect()
}

/// The history and the new items.
fn and(history: &[Value], more: Vec<Value>) -> Vec<Value> {
    [history.to_vec(), more].concat()
}

const WHOLE: [&str; 5] = ["user: go", "assistant: Both. +echo +mine +echo", "tool: one", "tool: from the client", "tool: two"];

#[tokio::test]
async fn a_025_a_client_that_sends_the_conversation_again_has_the_rest_of_the_iteration_run_once() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::SayAndCall("Both.", vec![echo("one"), ("mine", json!({})), echo("two")]),
            Scene::Say("Finished."),
            Scene::Say("The other branch."),
            Scene::Call(vec![("yours", json!({}))]),
            Scene::Say("On."),
        ];
        let (server, model, tools) = server_with_model(scenes).await;
        let store = is_stored(mode);
        let first = server.respond(mode, request(&[user("go")], store)).await;
        assert_eq!((first.status(), tools.starts("echo").len()), ("requires_action", 0));
        let history = and(&and(&[user("go")], kept(&first)), outputs(&first, "from the client"));
        let second = server.respond(mode, request(&history, store)).await;
        assert_eq!((second.status(), second.text().as_str()), ("completed", "Finished."));
        assert_eq!(second.shape(), ["mcp_call", "mcp_call", "message"], "the follow-up runs what was left, first");
        assert_eq!(messages_sent(&model.asked()[1]), WHOLE);
        // A second branch gets the results of the first branch's server calls.
        let branch = server.respond(mode, request(&history, store)).await;
        assert_eq!((branch.shape(), branch.text().as_str()), (vec!["message".to_owned()], "The other branch."));
        assert_eq!(messages_sent(&model.asked()[2]), WHOLE);
        // The conversation continues; nothing is forgotten or executed again.
        let history = and(&and(&history, kept(&second)), vec![user("and now?")]);
        let third = server.respond(mode, request(&history, store)).await;
        let messages_now = [&WHOLE[..], &["assistant: Finished.", "user: and now?"]].concat();
        assert_eq!(messages_sent(&model.asked()[3]), messages_now);
        let history = and(&and(&history, kept(&third)), outputs(&third, "here"));
        assert_eq!(server.respond(mode, request(&history, store)).await.text(), "On.");
        assert_eq!(messages_sent(&model.asked()[4]), [&messages_now[..], &["assistant:  +yours", "tool: here"]].concat());
        assert_eq!(tools.starts("echo").len(), 2, "each call once");
    })
    .await;
}

#[tokio::test]
async fn a_025_server_items_that_a_client_keeps_are_not_given_to_the_model_twice() {
    let scenes = vec![Scene::Call(vec![("mine", json!({})), echo("one")]), Scene::Say("Finished."), Scene::Say("On.")];
    let (server, model, tools) = server_with_model(scenes).await;
    let first = server.respond(Mode::Streamed, request(&[user("go")], true)).await;
    let history = and(&and(&[user("go")], first.output()), outputs(&first, "mine"));
    let second = server.respond(Mode::Streamed, request(&history, true)).await;
    assert_eq!(second.shape(), ["mcp_call", "message"]);
    assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +mine +echo", "tool: mine", "tool: one"]);
    let history = and(&and(&history, second.output()), vec![user("and now?")]);
    assert_eq!(server.respond(Mode::Streamed, request(&history, true)).await.text(), "On.");
    let messages = messages_sent(&model.asked()[2]);
    assert_eq!(messages.iter().filter(|message| *message == "tool: one").count(), 1, "{messages:?}");
    assert_eq!(messages[messages.len() - 2..], ["assistant: Finished.", "user: and now?"]);
    assert_eq!(tools.starts("echo").len(), 1);
}

#[tokio::test]
async fn a_025_of_two_follow_ups_at_once_one_runs_what_was_left() {
    let scenes = vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 400 })), ("mine", json!({}))]), Scene::Say("done")];
    let (server, _model, tools) = server_with_model(scenes).await;
    let first = server.respond(Mode::Streamed, request(&[user("go")], false)).await;
    let follow_up = request(&and(&and(&[user("go")], kept(&first)), outputs(&first, "mine")), false);
    let running = server.ask(Mode::Streamed, follow_up.clone());
    tools.runs("sleep_ms", 1).await;
    let answer = server.refusal(Mode::Plain, follow_up.clone()).await;
    assert_eq!((answer.status, answer.code(), &answer.body["error"]["param"]), (409, "tool_calls_running", &json!("input")));
    assert_eq!(running.made(&server).await.text(), "done");
    assert_eq!(server.respond(Mode::Plain, follow_up).await.text(), "done");
    assert_eq!(tools.starts("sleep_ms").len(), 1);
}

#[tokio::test]
async fn a_025_a_follow_up_of_a_turn_that_a_kill_cut_joins_the_run_that_took_the_calls() {
    let scenes = vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 700 })), ("mine", json!({}))]), Scene::Say("done")];
    let (mut server, _model, tools) = server_with_model(scenes).await;
    let first = server.respond(Mode::Streamed, request(&[user("go")], false)).await;
    let follow_up = request(&and(&and(&[user("go")], kept(&first)), outputs(&first, "mine")), false);
    let turn = [("x-codex-turn-metadata", r#"{"turn_id":"t"}"#)];
    let cut = server.ask_with(Mode::Streamed, follow_up.clone(), &turn);
    let id = cut.id().await;
    tools.runs("sleep_ms", 1).await;
    cut.hang_up();
    server.kill();
    let server = server.restart(&[]).await;
    let again = server.ask_with(Mode::Streamed, follow_up, &turn).made(&server).await;
    assert_eq!((again.id(), again.text().as_str(), again.shape()), (id.as_str(), "done", vec!["mcp_call".into(), "message".into()]));
    assert_eq!(server.number("SELECT count(*) FROM runs"), 2);
    let starts = tools.starts("sleep_ms");
    assert_eq!(starts.len(), 2, "the kill cut the first start: {starts:?}");
    assert_eq!(starts[0].call_id, starts[1].call_id, "a read that was cut keeps its key");
}

/// A queued branch is started by a worker that has only what was stored.
#[tokio::test]
async fn a_025_a_branch_that_waited_in_the_queue_runs_nothing_again() {
    for is_named in [false, true] {
        let scenes = vec![
            Scene::Call(vec![echo("one"), ("mine", json!({}))]),
            Scene::Say("Finished."),
            Scene::Call(vec![("look_up", json!({}))]),
            Scene::Say("Found."),
            Scene::Say("The other branch."),
        ];
        let (server, model, tools) = server_with_model_and_config(scenes, "agents: { helper: { tools: [look_up], serial: true } }").await;
        let agent = |body: Value| with(body, json!({ "model": "agent/helper" }));
        let first = server.respond(Mode::Streamed, agent(request(&[user("go")], true))).await;
        let results = outputs(&first, "mine");
        let follow_up = agent(match is_named {
            true => after(&first, json!(results), &mixed()),
            false => request(&and(&and(&[user("go")], kept(&first)), results), true),
        });
        assert_eq!(server.respond(Mode::Streamed, follow_up.clone()).await.text(), "Finished.");
        let busy = server.ask(Mode::Streamed, agent(request(&[user("look")], true)));
        let call = server.claim("look_up").await;
        let branch = server.ask(Mode::Background, follow_up);
        let id = branch.id().await;
        assert_eq!(server.response(&id).await["status"], "queued");
        server.report(&call, json!("there")).await.ok();
        assert_eq!(busy.made(&server).await.text(), "Found.");
        assert_eq!(branch.made(&server).await.text(), "The other branch.");
        assert_eq!(messages_sent(&model.asked()[4]), ["user: go", "assistant:  +echo +mine", "tool: one", "tool: mine"], "{is_named}");
        assert_eq!(tools.starts("echo").len(), 1, "named: {is_named}");
    }
}

/// A queued follow-up, in contrast, executes the deferred calls when its turn comes.
#[tokio::test]
async fn a_025_a_follow_up_that_waited_in_the_queue_runs_what_was_left() {
    let scenes = vec![
        Scene::Call(vec![echo("one"), ("mine", json!({}))]),
        Scene::Call(vec![("look_up", json!({}))]),
        Scene::Say("Found."),
        Scene::Say("Finished."),
    ];
    let (server, model, tools) = server_with_model_and_config(scenes, "agents: { helper: { tools: [look_up], serial: true } }").await;
    let agent = |body: Value| with(body, json!({ "model": "agent/helper" }));
    let first = server.respond(Mode::Streamed, agent(request(&[user("go")], true))).await;
    let busy = server.ask(Mode::Streamed, agent(request(&[user("look")], true)));
    let call = server.claim("look_up").await;
    let follow_up = agent(request(&and(&and(&[user("go")], kept(&first)), outputs(&first, "mine")), true));
    let waiting = server.ask(Mode::Background, follow_up.clone());
    until("it is queued", || async { (server.response(&waiting.id().await).await["status"] == "queued").then_some(()) }).await;
    let early = server.refusal(Mode::Plain, follow_up).await;
    assert_eq!(early.code(), "tool_calls_running", "what has not begun has brought nothing yet");
    server.report(&call, json!("there")).await.ok();
    assert_eq!(busy.made(&server).await.text(), "Found.");
    assert_eq!(waiting.made(&server).await.shape(), ["mcp_call", "message"]);
    assert_eq!(messages_sent(&model.asked()[3]), ["user: go", "assistant:  +echo +mine", "tool: one", "tool: mine"]);
    assert_eq!(tools.starts("echo").len(), 1);
}

#[tokio::test]
async fn a_conversation_of_any_length_can_be_sent_again() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Call(vec![("mine", json!({}))])]).await;
    let mut history = vec![user("go")];
    for _ in 0..70 {
        let made = server.respond(Mode::Plain, with(request(&history, false), json!({ "tools": [function("mine")] }))).await;
        history.extend(kept(&made));
        history.extend(outputs(&made, "done"));
    }
}
