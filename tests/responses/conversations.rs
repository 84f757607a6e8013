//! Conversations: the items that responses and clients add, and who may add the next.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Mode, Scene, Server, in_every_mode, responses::check_refusal, until};

use crate::support::{ask, ask_with, function, mcp, messages_sent, output, scripted, server_for_model, server_with_model, with};

const ECHOES: &str = "rules: [ { reply: { text: Heard you. } } ]";

async fn begin(server: &Server, body: Value) -> String {
    let begun = server.post("/v1/conversations", body).await.ok();
    assert_eq!(begun["object"], "conversation");
    assert!(begun["created_at"].is_u64());
    begun["id"].as_str().expect("an id").to_owned()
}

fn items_of(id: &str) -> String {
    format!("/v1/conversations/{id}/items")
}

/// All items of a conversation, the oldest first.
async fn items(server: &Server, id: &str) -> Vec<Value> {
    let list = server.get(&format!("{}?order=asc&limit=100", items_of(id))).await.ok();
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    list["data"].as_array().expect("data").clone()
}

/// The items as role and text, or as their type.
fn roles_and_texts(items: &[Value]) -> Vec<String> {
    let one = |item: &Value| match item["type"].as_str() {
        Some("message") => {
            format!("{}: {}", item["role"].as_str().unwrap_or_default(), item["content"][0]["text"].as_str().unwrap_or_default())
        }
        kind => kind.unwrap_or_default().to_owned(),
    };
    items.iter().map(one).collect()
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["id"].as_str().expect("an id")).collect()
}

fn user_message(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn in_it(id: &str, input: &str) -> Value {
    with(ask(input), json!({ "conversation": id }))
}

#[tokio::test]
async fn responses_read_a_conversation_and_are_appended_to_it() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::SayAndCall("I look.", vec![("echo", json!({ "text": "one" }))]),
            Scene::Say("Done."),
            Scene::Call(vec![("mine", json!({}))]),
            Scene::Say("Thanks."),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let id = begin(&server, json!({ "items": [user_message("before")], "metadata": { "topic": "demo" } })).await;
        let tools = [mcp(), function("mine")];
        let first = server.respond(mode, with(ask_with("go", &tools), json!({ "conversation": { "id": id } }))).await;
        assert_eq!(first.object["conversation"], json!({ "id": id }));
        let second = server.respond(mode, with(ask_with("on", &tools), json!({ "conversation": id }))).await;
        assert_eq!(second.status(), "requires_action");
        let answer = json!([output(&second.items("function_call")[0], "hers")]);
        let third = server.respond(mode, json!({ "model": "m", "conversation": id, "input": answer, "tools": tools })).await;
        assert_eq!(third.text(), "Thanks.");
        let asked = model.asked();
        assert_eq!(messages_sent(&asked[0]), ["user: before", "user: go"]);
        let whole = [
            "user: before",
            "user: go",
            "assistant: I look. +echo",
            "tool: one",
            "assistant: Done.",
            "user: on",
            "assistant:  +mine",
            "tool: hers",
        ];
        assert_eq!(messages_sent(&asked[3]), whole);
        let items = items(&server, &id).await;
        let expected = [
            "user: before",
            "user: go",
            "assistant: I look.",
            "mcp_call",
            "assistant: Done.",
            "user: on",
            "function_call",
            "function_call_output",
            "assistant: Thanks.",
        ];
        assert_eq!(roles_and_texts(&items), expected);
        let outputs: Vec<Value> = [&first, &second, &third].iter().flat_map(|made| made.output()).collect();
        let shown: Vec<&Value> = items.iter().filter(|item| outputs.iter().any(|output| output["id"] == item["id"])).collect();
        assert_eq!(shown, outputs.iter().collect::<Vec<_>>(), "they are the items of the responses, to the last field");
    })
    .await;
}

#[tokio::test]
async fn a_conversation_is_described_and_forgotten() {
    let (server, _tools) = scripted(ECHOES).await;
    let id = begin(&server, json!({ "metadata": { "a": "1" } })).await;
    let path = format!("/v1/conversations/{id}");
    assert_eq!(server.get(&path).await.ok()["metadata"], json!({ "a": "1" }));
    let updated = server.post(&path, json!({ "metadata": { "b": "2" } })).await.ok();
    assert_eq!((&updated["id"], &updated["metadata"]), (&json!(id), &json!({ "b": "2" })));
    let made = server.respond(Mode::Plain, in_it(&id, "hi")).await;
    let gone = server.send(server.authorized(Method::DELETE, &path)).await.ok();
    assert_eq!(gone, json!({ "id": id, "object": "conversation.deleted", "deleted": true }));
    for path in [path.clone(), items_of(&id)] {
        assert_eq!(server.get(&path).await.status, 404);
    }
    assert_eq!(server.refusal(Mode::Plain, in_it(&id, "hi")).await.status, 404);
    assert_eq!(server.response(made.id()).await["status"], "completed", "its responses are there all the same");
}

#[tokio::test]
async fn items_are_put_in_listed_and_taken_out() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("ok")]).await;
    let id = begin(&server, json!({})).await;
    let put = server.post(&items_of(&id), json!({ "items": [user_message("one"), user_message("two"), user_message("three")] })).await.ok();
    assert_eq!((roles_and_texts(put["data"].as_array().expect("data")).len(), &put["has_more"]), (3, &json!(false)));
    let more = server.post(&items_of(&id), json!({ "items": [user_message("four")] })).await.ok();
    assert_eq!(roles_and_texts(more["data"].as_array().expect("data")), ["user: four"], "the answer has only the added items");
    let all = items(&server, &id).await;
    assert_eq!(roles_and_texts(&all), ["user: one", "user: two", "user: three", "user: four"]);
    let page = async |query: &str| server.get(&format!("{}?{query}", items_of(&id))).await.ok();
    let first = page("limit=2").await;
    assert_eq!(
        (roles_and_texts(first["data"].as_array().expect("data")), &first["has_more"]),
        (vec!["user: four".into(), "user: three".into()], &json!(true))
    );
    let rest = page(&format!("after={}", first["last_id"].as_str().expect("an id"))).await;
    assert_eq!(
        (roles_and_texts(rest["data"].as_array().expect("data")), &rest["has_more"]),
        (vec!["user: two".into(), "user: one".into()], &json!(false))
    );
    let two = format!("{}/{}", items_of(&id), all[1]["id"].as_str().expect("an id"));
    assert_eq!(server.get(&two).await.ok(), all[1]);
    let left = server.send(server.authorized(Method::DELETE, &two)).await.ok();
    assert_eq!((&left["object"], &left["id"]), (&json!("conversation"), &json!(id)));
    assert_eq!(server.get(&two).await.status, 404);
    assert_eq!(roles_and_texts(&items(&server, &id).await), ["user: one", "user: three", "user: four"]);
    server.respond(Mode::Plain, in_it(&id, "go")).await;
    assert_eq!(
        messages_sent(&model.asked()[0]),
        ["user: one", "user: three", "user: four", "user: go"],
        "the model does not hear what is gone"
    );
    let answer = items(&server, &id).await.pop().expect("an answer");
    let answer = format!("{}/{}", items_of(&id), answer["id"].as_str().expect("an id"));
    server.send(server.authorized(Method::DELETE, &answer)).await.ok();
    server.respond(Mode::Plain, in_it(&id, "again")).await;
    assert_eq!(messages_sent(&model.asked()[1])[3..], ["user: go", "user: again"], "nor a response's items that were deleted");
}

#[tokio::test]
async fn a_deleted_response_stays_in_its_conversation() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("first"), Scene::Say("second")]).await;
    let id = begin(&server, json!({})).await;
    let made = server.respond(Mode::Plain, in_it(&id, "go")).await;
    let before = items(&server, &id).await;
    server.send(server.authorized(Method::DELETE, &format!("/v1/responses/{}", made.id()))).await.ok();
    assert_eq!(items(&server, &id).await, before);
    server.respond(Mode::Plain, in_it(&id, "on")).await;
    assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant: first", "user: on"]);
}

#[tokio::test]
async fn while_a_response_is_made_others_are_refused_or_wait() {
    for mode in [Mode::Plain, Mode::Streamed, Mode::Socket, Mode::Background] {
        let model = FakeModel::held_back(vec![Scene::Say("one"), Scene::Say("two"), Scene::Say("three")]).await;
        let tools = McpServer::start().await;
        let server = server_for_model(&model, &tools, "").await;
        let id = begin(&server, json!({})).await;
        let first = server.ask(mode, in_it(&id, "first"));
        model.asked_times(1).await;
        for other in [Mode::Plain, Mode::Streamed, Mode::Socket] {
            let refused = server.refusal(other, in_it(&id, "now")).await;
            assert_eq!((refused.status, refused.code()), (409, "conversation_locked"));
        }
        let put = server.post(&items_of(&id), json!({ "items": [user_message("now")] })).await;
        assert_eq!((put.status, put.code()), (409, "conversation_locked"));
        let gone = server.send(server.authorized(Method::DELETE, &format!("/v1/conversations/{id}"))).await;
        assert_eq!((gone.status, gone.code()), (409, "conversation_locked"));
        let mut waiting = Vec::new();
        for text in ["second", "third"] {
            let queued = server.post("/v1/responses", Mode::Background.asks(in_it(&id, text))).await.ok();
            assert_eq!(queued["status"], "queued");
            waiting.push(queued["id"].as_str().expect("an id").to_owned());
        }
        for _ in 0..3 {
            model.let_answer();
        }
        assert_eq!(first.made(&server).await.text(), "one");
        for run in &waiting {
            assert_eq!(server.over(run).await["status"], "completed");
        }
        let asked = model.asked();
        assert_eq!(messages_sent(&asked[2]), ["user: first", "assistant: one", "user: second", "assistant: two", "user: third"]);
        let expected = ["user: first", "assistant: one", "user: second", "assistant: two", "user: third", "assistant: three"];
        assert_eq!(roles_and_texts(&items(&server, &id).await), expected);
        model.let_answer();
        server.respond(Mode::Plain, in_it(&id, "fourth")).await;
    }
}

#[tokio::test]
async fn a_kill_in_the_middle_unlocks_when_the_response_ends_and_adds_its_items_once() {
    for mode in [Mode::Streamed, Mode::Background] {
        let model = FakeModel::start(vec![Scene::Hang, Scene::Say("one"), Scene::Say("two"), Scene::Say("three")]).await;
        let tools = McpServer::start().await;
        let mut server = server_for_model(&model, &tools, "").await;
        let id = begin(&server, json!({ "items": [user_message("before")] })).await;
        let first = server.ask(mode, in_it(&id, "first"));
        let run = first.id().await;
        let queued = server.post("/v1/responses", Mode::Background.asks(in_it(&id, "second"))).await.ok();
        until("the model is asked", async || (model.hanging() > 0).then_some(())).await;
        first.hang_up();
        server.kill();
        let server = server.restart(&[]).await;
        assert_eq!(server.over(&run).await["status"], "completed");
        assert_eq!(server.over(queued["id"].as_str().expect("an id")).await["status"], "completed");
        server.respond(Mode::Plain, in_it(&id, "third")).await;
        let expected =
            ["user: before", "user: first", "assistant: one", "user: second", "assistant: two", "user: third", "assistant: three"];
        assert_eq!(roles_and_texts(&items(&server, &id).await), expected);
    }
}

#[tokio::test]
async fn a_kill_around_the_end_adds_the_items_once() {
    for point in ["commit.end.before", "commit.end.after"] {
        let (server, _tools) = scripted(ECHOES).await;
        let id = begin(&server, json!({})).await;
        let server = server.restart(&[("WINDLASS_CRASH_AT", point)]).await;
        let created = server.try_post("/v1/responses", Mode::Background.asks(in_it(&id, "go"))).await;
        let server = {
            let mut server = server;
            server.gone().await;
            server.restart(&[]).await
        };
        if let Some(created) = created {
            assert_eq!(server.over(created.ok()["id"].as_str().expect("an id")).await["status"], "completed");
        }
        until("the items are there", async || (items(&server, &id).await.len() == 2).then_some(())).await;
        assert_eq!(roles_and_texts(&items(&server, &id).await), ["user: go", "assistant: Heard you."], "{point}");
    }
}

#[tokio::test]
async fn a_failed_or_cancelled_response_adds_nothing_and_locks_nothing() {
    let (server, model, _tools) = server_with_model(vec![Scene::Fail(400, vec![]), Scene::Hang, Scene::Say("ok")]).await;
    let id = begin(&server, json!({})).await;
    assert_eq!(server.respond(Mode::Plain, in_it(&id, "fails")).await.status(), "failed");
    let hanging = server.post("/v1/responses", Mode::Background.asks(in_it(&id, "hangs"))).await.ok();
    model.asked_times(2).await;
    assert_eq!(server.cancel(hanging["id"].as_str().expect("an id")).await["status"], "cancelled");
    server.respond(Mode::Plain, in_it(&id, "works")).await;
    assert_eq!(roles_and_texts(&items(&server, &id).await), ["user: works", "assistant: ok"]);
}

#[tokio::test]
async fn a_key_finds_the_response_again_however_far_the_conversation_is() {
    let (server, model, _tools) =
        server_with_model(vec![Scene::Call(vec![("mine", json!({}))]), Scene::Say("one"), Scene::Say("two")]).await;
    let id = begin(&server, json!({})).await;
    let asked = with(ask_with("go", &[function("mine")]), json!({ "conversation": id }));
    let first = server.respond(Mode::Plain, asked).await;
    let answer = json!({ "model": "m", "conversation": id, "input": [output(&first.items("function_call")[0], "x")] });
    let key = [("idempotency-key", "k")];
    let second = server.ask_with(Mode::Plain, answer.clone(), &key).made(&server).await;
    server.respond(Mode::Plain, in_it(&id, "on")).await;
    let again = server.ask_with(Mode::Plain, answer, &key).made(&server).await;
    assert_eq!((again.id(), model.asked().len()), (second.id(), 3));
}

#[tokio::test]
async fn a_conversations_agent_is_only_used_through_the_conversation() {
    let (server, _tools) = scripted(ECHOES).await;
    let id = begin(&server, json!({ "items": [user_message("one")] })).await;
    let turn = server.post(&format!("/v1/agents/{id}/enqueue"), json!({ "input": "two" })).await;
    assert_eq!((turn.status, turn.code()), (400, "bad_agent"), "{}", turn.body);
    assert_eq!(server.respond(Mode::Plain, in_it(&id, "three")).await.status(), "completed");
    assert_eq!(roles_and_texts(&items(&server, &id).await), ["user: one", "user: three", "assistant: Heard you."]);
}

#[tokio::test]
async fn a_conversation_of_another_tenant_is_unknown() {
    let auth = "\nauth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: other-token-of-22-characters, tenant: other, scopes: ['*'] } ] }\n";
    let (server, _tools) = crate::support::scripted_with(ECHOES, auth).await;
    let id = begin(&server, json!({ "items": [user_message("secret")] })).await;
    let item = items(&server, &id).await[0]["id"].as_str().expect("an id").to_owned();
    let server = server.with_token("other-token-of-22-characters");
    let mine = begin(&server, json!({})).await;
    for (method, path) in [
        (Method::GET, format!("/v1/conversations/{id}")),
        (Method::POST, format!("/v1/conversations/{id}")),
        (Method::DELETE, format!("/v1/conversations/{id}")),
        (Method::GET, items_of(&id)),
        (Method::POST, items_of(&id)),
        (Method::GET, format!("{}/{item}", items_of(&id))),
        (Method::DELETE, format!("{}/{item}", items_of(&id))),
        (Method::GET, format!("{}/{item}", items_of(&mine))),
    ] {
        let body = json!({ "metadata": {}, "items": [user_message("x")] });
        let answer = server.send(server.authorized(method.clone(), &path).json(&body)).await;
        check_refusal(&answer);
        assert_eq!(answer.status, 404, "{method} {path}");
    }
    let refused = server.refusal(Mode::Plain, in_it(&id, "tell")).await;
    assert_eq!((refused.status, &refused.body["error"]["param"]), (404, &json!("conversation")));
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (server, _tools) = scripted(ECHOES).await;
    let id = begin(&server, json!({ "items": [user_message("a")] })).await;
    let made = server.respond(Mode::Plain, ask("x")).await;
    let many: Vec<Value> = (0..21).map(|_| user_message("x")).collect();
    let pairs: serde_json::Map<String, Value> = (0..17).map(|number| (number.to_string(), json!("x"))).collect();
    let stray = json!({ "type": "function_call_output", "call_id": "call_nobody", "output": "x" });
    for (path, body, param) in [
        ("/v1/conversations".to_owned(), json!({ "items": many }), "items"),
        ("/v1/conversations".to_owned(), json!({ "items": "x" }), "items"),
        ("/v1/conversations".to_owned(), json!({ "metadata": pairs }), "metadata"),
        ("/v1/conversations".to_owned(), json!({ "metadata": { "k": "v".repeat(513) } }), "metadata.k"),
        (format!("/v1/conversations/{id}"), json!({}), "metadata"),
        (items_of(&id), json!({}), "items"),
        (items_of(&id), json!({ "items": [] }), "items"),
        (items_of(&id), json!({ "items": [7] }), "items[0]"),
        (items_of(&id), json!({ "items": many }), "items"),
        (items_of(&id), json!({ "items": [stray] }), "items[0].call_id"),
        ("/v1/responses".to_owned(), with(in_it(&id, "x"), json!({ "previous_response_id": made.id() })), "previous_response_id"),
        ("/v1/responses".to_owned(), with(in_it(&id, "x"), json!({ "store": false })), "store"),
        ("/v1/responses".to_owned(), with(ask("x"), json!({ "conversation": 7 })), "conversation"),
        ("/v1/responses".to_owned(), with(in_it(&id, "x"), json!({ "input": [stray] })), "input[0].call_id"),
    ] {
        let answer = server.post(&path, body.clone()).await;
        check_refusal(&answer);
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(param)), "{path} {body}");
    }
    for query in ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_x"] {
        assert_eq!(server.get(&format!("{}?{query}", items_of(&id))).await.status, 400, "{query}");
    }
    for strange in ["conv_x", "conv_", "resp_1", "%00", "%ff", &id.to_uppercase(), &"x".repeat(9_000)] {
        let answer = server.get(&format!("/v1/conversations/{strange}")).await;
        assert!([400, 404, 414].contains(&answer.status), "{strange}: {}", answer.status);
    }
    assert_eq!(roles_and_texts(&items(&server, &id).await), ["user: a"]);
}

#[tokio::test]
async fn a_call_that_was_put_in_can_be_answered() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("ok")]).await;
    let call = json!({ "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}" });
    let id = begin(&server, json!({ "items": [user_message("a"), call] })).await;
    let answer = json!({ "type": "function_call_output", "call_id": "call_1", "output": "b" });
    let made = server.respond(Mode::Plain, json!({ "model": "m", "conversation": id, "input": [answer] })).await;
    assert_eq!(made.text(), "ok");
    assert_eq!(messages_sent(&model.asked()[0]), ["user: a", "assistant:  +f", "tool: b"]);
    assert_eq!(ids(&items(&server, &id).await).len(), 4);
}

#[tokio::test]
async fn tokens_are_counted_as_they_would_be_read_and_nothing_is_stored() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("word ".repeat(100).leak())]).await;
    let count = async |body: Value| {
        let counted = server.post("/v1/responses/input_tokens", body).await.ok();
        assert_eq!(counted["object"], "response.input_tokens");
        counted["input_tokens"].as_u64().expect("a number")
    };
    let short = count(ask("hello")).await;
    assert!((1..30).contains(&short), "{short}");
    let long = count(ask(&"hello ".repeat(1_000))).await;
    assert!((1_000..3_000).contains(&long), "{long}");
    assert!(count(with(ask("hello"), json!({ "instructions": "be brief, be kind, be exact" }))).await > short);
    assert!(count(ask_with("hello", &[function("mine")])).await > short);
    let image = json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": format!("data:image/png;base64,{}", "A".repeat(100_000)) }] }]);
    assert!(count(json!({ "model": "m", "input": image })).await < 3_000, "an image is not read letter by letter");
    let id = begin(&server, json!({})).await;
    let empty = count(in_it(&id, "hello")).await;
    server.respond(Mode::Plain, in_it(&id, "go")).await;
    assert!(count(in_it(&id, "hello")).await > empty + 100, "what comes before counts");
    assert_eq!((items(&server, &id).await.len(), model.asked().len()), (2, 1), "nothing is added, and no model is asked");
    for (body, param) in [
        (json!({ "model": "m" }), "input"),
        (with(ask("x"), json!({ "temperature": 9 })), "temperature"),
        (with(ask("x"), json!({ "model": "nobody" })), "model"),
    ] {
        let answer = server.post("/v1/responses/input_tokens", body).await;
        check_refusal(&answer);
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(param)));
    }
}
