//! Conversations that a client sends again, without the server's calls or with them: the model gets the same messages as if the client had
//! named the previous response.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_tests::{Dialect, FakeModel, McpServer, Mode, ResponseRecord, Scene, Server, ServerBuilder, Speech};

use crate::support::{after, ask_with, declared, function, mcp, messages_sent, output, server_with_model, with};

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn mixed() -> Vec<Value> {
    vec![mcp(), function("mine")]
}

/// A request that sends everything again.
fn again(items: &[Value], tools: &[Value]) -> Value {
    with(ask_with("", tools), json!({ "input": items }))
}

/// The input of a client that drops some of the output: the question, the items that it kept, and the results of its own calls.
fn conversation(made: &ResponseRecord, is_kept: impl Fn(&Value) -> bool) -> Vec<Value> {
    let kept = made.output().into_iter().filter(is_kept);
    let outputs = made.items("function_call").iter().map(|call| output(call, "mine")).collect::<Vec<_>>();
    std::iter::once(user("go")).chain(kept).chain(outputs).collect()
}

fn is_no_server_call(item: &Value) -> bool {
    item["type"] != "mcp_call"
}

fn without_id(mut item: Value) -> Value {
    item.as_object_mut().expect("an item").remove("id");
    item
}

/// The messages of a request to the model, without the ids, which each provider makes up. Results come in the order of their calls.
fn messages_without_ids(request: &Value) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(forget),
            Value::Object(fields) => {
                fields.retain(|name, _| !["id", "call_id", "tool_call_id", "tool_use_id"].contains(&name.as_str()));
                fields.values_mut().for_each(forget);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let messages = [&request["messages"], &request["input"]].into_iter().find(|messages| messages.is_array());
    let mut messages = messages.expect("a request has messages").clone();
    forget(&mut messages);
    messages
}

/// Continues from a response by its id and with each of these inputs, and asserts that the model gets the same messages.
async fn same(server: &Server, model: &FakeModel, made: &ResponseRecord, inputs: &[(&str, Vec<Value>)], tools: &[Value]) -> Value {
    let outputs: Vec<Value> = made.items("function_call").iter().map(|call| output(call, "mine")).collect();
    server.respond(Mode::Plain, after(made, json!(outputs), tools)).await;
    let chained = model.asked().last().expect("it was asked").clone();
    for (name, input) in inputs {
        server.respond(Mode::Plain, again(input, tools)).await;
        let resent = model.asked().last().expect("it was asked").clone();
        assert_eq!(messages_without_ids(&resent), messages_without_ids(&chained), "{name}");
    }
    chained
}

#[tokio::test]
async fn what_a_client_dropped_is_put_back_where_it_stood() {
    let scenes = vec![
        Scene::SayAndCall("First.", vec![echo("one"), echo("two")]),
        Scene::Call(vec![echo("three")]),
        Scene::SayAndCall("Then.", vec![("fail", json!({})), echo("four"), ("nobody", json!({}))]),
        Scene::SayAndCall("Yours.", vec![("mine", json!({}))]),
        Scene::Say("done"),
    ];
    let (server, model, tools) = server_with_model(scenes).await;
    let made = server.respond(Mode::Streamed, ask_with("go", &mixed())).await;
    let shape = ["message", "mcp_call", "mcp_call", "mcp_call", "message", "mcp_call", "mcp_call", "mcp_call", "message", "function_call"];
    assert_eq!(made.shape(), shape);
    let second = made.items("mcp_call")[1]["id"].clone();
    let referred = made.output().into_iter().map(|item| json!({ "type": "item_reference", "id": item["id"] }));
    let outputs: Vec<Value> = made.items("function_call").iter().map(|call| output(call, "mine")).collect();
    let inputs = [
        ("all of the server's calls are dropped", conversation(&made, is_no_server_call)),
        ("and ids too", conversation(&made, is_no_server_call).into_iter().map(without_id).collect()),
        ("nothing is", conversation(&made, |_| true)),
        ("one of two parallel calls is", conversation(&made, |item| item["id"] != second)),
        ("everything is referred to", [vec![user("go")], referred.collect(), outputs].concat()),
    ];
    let chained = same(&server, &model, &made, &inputs, &mixed()).await;
    let messages = messages_sent(&chained);
    assert_eq!(messages[..6], ["user: go", "assistant: First. +echo +echo", "tool: one", "tool: two", "assistant:  +echo", "tool: three"]);
    assert_eq!((messages[6].as_str(), messages[8].as_str()), ("assistant: Then. +fail +echo +nobody", "tool: four"));
    assert_eq!(messages[10..], ["assistant: Yours. +mine", "tool: mine"]);
    assert_eq!(tools.starts("echo").len(), 4, "nothing runs again");
}

#[tokio::test]
async fn responses_that_are_not_stored_are_put_back_too_and_changes_by_the_client_count() {
    let scenes = vec![
        Scene::Call(vec![("fail", json!({})), echo("one")]),
        Scene::SayAndCall("Yours.", vec![("mine", json!({}))]),
        Scene::Say("done"),
    ];
    let (server, model, _tools) = server_with_model(scenes).await;
    let made = server.respond(Mode::Streamed, with(ask_with("go", &mixed()), json!({ "store": false }))).await;
    let whole =
        ["user: go", "assistant:  +fail +echo", "tool: error: it did not work", "tool: one", "assistant: Yours. +mine", "tool: mine"];
    server.respond(Mode::Plain, again(&conversation(&made, is_no_server_call), &mixed())).await;
    assert_eq!(messages_sent(model.asked().last().expect("it was asked")), whole);
    let mut altered = conversation(&made, |_| true);
    altered[1]["error"] = "not for you".into();
    altered[2]["output"] = "another one".into();
    server.respond(Mode::Plain, again(&altered, &mixed())).await;
    let messages = messages_sent(model.asked().last().expect("it was asked"));
    assert_eq!(messages[1..4], ["assistant:  +fail +echo", "tool: error: not for you", "tool: another one"]);
}

#[tokio::test]
async fn a_response_without_client_calls_is_found_by_its_text() {
    let scenes = vec![Scene::Call(vec![echo("one")]), Scene::Say("It is one."), Scene::Say("Sure.")];
    let (server, model, _tools) = server_with_model(scenes).await;
    let made = server.respond(Mode::Streamed, ask_with("go", &mixed())).await;
    let kept = [conversation(&made, is_no_server_call), vec![user("sure?")]].concat();
    let second = server.respond(Mode::Plain, again(&kept, &mixed())).await;
    let whole = ["user: go", "assistant:  +echo", "tool: one", "assistant: It is one.", "user: sure?"];
    assert_eq!(messages_sent(&model.asked()[2]), whole);
    // The input items are stored as the server used them.
    let listed = server.get(&format!("/v1/responses/{}/input_items?order=asc", second.id())).await.ok();
    let kinds: Vec<&str> = listed["data"].as_array().expect("a list").iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "mcp_call", "message", "message"]);
}

#[tokio::test]
async fn a_call_at_the_end_comes_after_what_the_client_kept() {
    let scenes = vec![Scene::SayAndCall("I look.", vec![echo("one")]), Scene::Say("On.")];
    let (server, model, _tools) = server_with_model(scenes).await;
    let made = server.respond(Mode::Streamed, with(ask_with("go", &mixed()), json!({ "max_turns": 1 }))).await;
    assert_eq!((made.status(), made.shape()), ("incomplete", vec!["message".to_owned(), "mcp_call".to_owned()]));
    server.respond(Mode::Plain, again(&[conversation(&made, is_no_server_call), vec![user("go on")]].concat(), &mixed())).await;
    let resent = model.asked().last().expect("it was asked").clone();
    server.respond(Mode::Plain, after(&made, json!("go on"), &mixed())).await;
    assert_eq!(messages_without_ids(&resent), messages_without_ids(model.asked().last().expect("it was asked")));
    assert_eq!(messages_sent(&resent), ["user: go", "assistant: I look. +echo", "tool: one", "user: go on"]);
}

#[tokio::test]
async fn reasoning_between_calls_stays_between_them() {
    let think = |reasoning: &'static str, text: &str, calls: &[(&'static str, Value)]| {
        let calls = calls.iter().map(|(tool, arguments)| (*tool, arguments.to_string())).collect();
        let chunks = Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        Scene::Speak(Speech { reasoning: Some(reasoning), chunks, calls, pause: Duration::from_millis(1), ..Speech::default() })
    };
    for dialect in [Dialect::Responses, Dialect::Messages] {
        let scenes = vec![
            think("I should look.", "Let me see.", &[echo("one")]),
            think("Once more.", "", &[echo("two"), echo("three")]),
            think("It is the client's.", "", &[("mine", json!({}))]),
            Scene::Say("done"),
        ];
        let (model, tools) = (FakeModel::start(scenes).await, McpServer::start().await);
        let config = format!("{}{}", model.config_in(dialect).replace("name: fake", "name: m"), tools.config("tools"));
        let server = ServerBuilder::new(&config).start().await;
        let thinking = json!({ "reasoning": { "effort": "low", "summary": "auto" }, "include": ["reasoning.encrypted_content"] });
        let made = server.respond(Mode::Streamed, with(again(&[user("go")], &mixed()), thinking)).await;
        let shape = ["reasoning", "message", "mcp_call", "reasoning", "mcp_call", "mcp_call", "reasoning", "function_call"];
        assert_eq!(made.shape(), shape);
        let nameless = conversation(&made, is_no_server_call).into_iter().map(without_id).collect();
        let inputs = [("dropped", conversation(&made, is_no_server_call)), ("nameless", nameless), ("kept", conversation(&made, |_| true))];
        same(&server, &model, &made, &inputs, &mixed()).await;
    }
}

#[tokio::test]
async fn calls_of_two_servers_come_back_under_the_names_that_the_model_knows() {
    let other = McpServer::start().await;
    let scenes = vec![
        Scene::Call(vec![echo("one"), ("second__echo", json!({ "text": "two" }))]),
        Scene::SayAndCall("Yours.", vec![("second__echo", json!({ "text": "three" })), ("mine", json!({}))]),
        Scene::Say("done"),
    ];
    let (server, model, _tools) = server_with_model(scenes).await;
    let second = declared("second", &other);
    let tools = [mcp(), second, function("mine")];
    let made = server.respond(Mode::Streamed, ask_with("go", &tools)).await;
    let labels: Vec<(Value, Value)> =
        made.items("mcp_call").iter().map(|call| (call["server_label"].clone(), call["name"].clone())).collect();
    assert_eq!(labels, [(json!("tools"), json!("echo")), (json!("second"), json!("echo"))]);
    let kept = conversation(&made, |_| true);
    let rest = server.respond(Mode::Plain, again(&kept, &tools)).await;
    assert_eq!(rest.shape(), ["mcp_call", "message"], "what was left behind is run");
    let inputs = [("dropped", conversation(&made, is_no_server_call)), ("kept", kept.clone())];
    let chained = same(&server, &model, &made, &inputs, &tools).await;
    let whole = ["user: go", "assistant:  +echo +second__echo", "tool: one", "tool: two"];
    assert_eq!(messages_sent(&chained)[..4], whole);
    // Items from another host, which this server did not make: those that are adjacent came from one reply.
    let mut foreign: Vec<Value> = kept[..3].to_vec();
    (foreign[1]["id"], foreign[2]["id"]) = ("mcp_1".into(), "mcp_2".into());
    foreign.extend([json!({ "role": "assistant", "content": "So." }), with(foreign[2].clone(), json!({ "id": "mcp_3" })), user("on")]);
    server.respond(Mode::Plain, again(&foreign, &tools)).await;
    let messages = messages_sent(model.asked().last().expect("it was asked"));
    assert_eq!(messages, [&whole[..], &["assistant: So. +second__echo", "tool: two", "user: on"]].concat());
}

#[tokio::test]
async fn however_many_responses_a_conversation_has_all_of_it_is_put_back() {
    const RESPONSES: usize = 70;
    let replies = [Scene::Call(vec![echo("one")]), Scene::Call(vec![("mine", json!({}))])];
    let scenes = (0..RESPONSES).flat_map(|_| replies.clone()).chain([Scene::Say("done")]).collect();
    let (server, model, _tools) = server_with_model(scenes).await;
    let mut history = Vec::new();
    for _ in 0..RESPONSES {
        let made = server.respond(Mode::Plain, with(ask_with("go", &mixed()), json!({ "store": false }))).await;
        history.extend(conversation(&made, is_no_server_call));
    }
    server.respond(Mode::Plain, again(&history, &mixed())).await;
    let one = ["user: go", "assistant:  +echo", "tool: one", "assistant:  +mine", "tool: mine"];
    assert_eq!(messages_sent(model.asked().last().expect("it was asked")), one.repeat(RESPONSES));
}

#[tokio::test]
async fn restored_items_have_a_size_limit() {
    let reply = |bytes: u64| Scene::Call(vec![("big", json!({ "bytes": bytes }))]);
    let mine = Scene::Call(vec![("mine", json!({}))]);
    let model = FakeModel::start(vec![reply(20_000), mine.clone(), reply(20_000), mine, Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let config = model.config().replace("name: fake", "name: m") + &tools.config("tools") + "limits: { body_bytes: 8000 }\n";
    let server = ServerBuilder::new(&config).start().await;
    let first = server.respond(Mode::Plain, ask_with("go", &mixed())).await;
    let second = server.respond(Mode::Plain, ask_with("go", &mixed())).await;
    let parts = [conversation(&first, is_no_server_call), conversation(&second, is_no_server_call)];
    let answer = server.refusal(Mode::Plain, again(&parts.concat(), &mixed())).await;
    assert_eq!((answer.status, answer.code(), &answer.body["error"]["param"]), (400, "input_too_large", &json!("input")));
    let referred: Vec<Value> = [&first, &second].iter().map(|made| json!({ "id": made.items("mcp_call")[0]["id"] })).collect();
    assert_eq!(server.refusal(Mode::Plain, again(&referred, &mixed())).await.code(), "input_too_large", "however it is asked for");
    for part in parts {
        assert_eq!(server.respond(Mode::Plain, again(&part, &mixed())).await.text(), "done", "half of it can be had");
    }
}
