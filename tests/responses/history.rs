//! The history of a response: chains and branches, references, the model's view of them, and their deletion.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Mode, ResponseRecord, Scene, Server, in_every_mode, until};

use crate::support::{after, ask, ask_with, function, mcp, messages_sent, output, scripted, server_with_model, with};

const ECHOES: &str = "rules: [ { reply: { text: Heard you. } } ]";

#[tokio::test]
async fn a_039_text_beside_calls_stays_in_the_output_and_in_the_history() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::SayAndCall("First I look.", vec![("echo", json!({ "text": "one" })), ("echo", json!({ "text": "two" }))]),
            Scene::SayAndCall("Then you.", vec![("mine", json!({}))]),
            Scene::Say("Thanks."),
            Scene::Say("Yes."),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let tools = [mcp(), function("mine")];
        let first = server.respond(mode, ask_with("go", &tools)).await;
        assert_eq!(first.text(), "First I look.|Then you.");
        assert_eq!(first.shape(), ["message", "mcp_call", "mcp_call", "message", "function_call"], "the text comes before its calls");
        let second = server.respond(mode, after(&first, json!([output(&first.items("function_call")[0], "done")]), &tools)).await;
        server.respond(mode, after(&second, json!("sure?"), &tools)).await;
        let asked = model.asked();
        assert_eq!(
            messages_sent(&asked[1]),
            ["user: go", "assistant: First I look. +echo +echo", "tool: one", "tool: two"],
            "within the loop"
        );
        assert_eq!(messages_sent(&asked[2])[4..], ["assistant: Then you. +mine", "tool: done"], "and over responses");
        assert_eq!(messages_sent(&asked[3])[1], "assistant: First I look. +echo +echo", "for as long as the chain continues");
        assert_eq!(messages_sent(&asked[3])[6..], ["assistant: Thanks.", "user: sure?"]);
    })
    .await;
}

#[tokio::test]
async fn two_branches_from_one_response_know_nothing_of_each_other() {
    in_every_mode(async |mode| {
        let (server, model, _tools) =
            server_with_model(vec![Scene::Say("root"), Scene::Say("left"), Scene::Say("right"), Scene::Say("leaf")]).await;
        let root = server.respond(mode, ask("start")).await;
        let left = server.respond(mode, after(&root, json!("go left"), &[])).await;
        let right = server.respond(mode, after(&root, json!("go right"), &[])).await;
        let leaf = server.respond(mode, after(&left, json!("further"), &[])).await;
        assert_eq!((left.text(), right.text(), leaf.text()), ("left".into(), "right".into(), "leaf".into()));
        let asked = model.asked();
        assert_eq!(messages_sent(&asked[1]), ["user: start", "assistant: root", "user: go left"]);
        assert_eq!(messages_sent(&asked[2]), ["user: start", "assistant: root", "user: go right"]);
        assert_eq!(messages_sent(&asked[3]), ["user: start", "assistant: root", "user: go left", "assistant: left", "user: further"]);
    })
    .await;
}

#[tokio::test]
async fn a_client_may_continue_as_soon_as_it_sees_the_end() {
    let (server, _tools) = scripted(ECHOES).await;
    for _ in 0..5 {
        let asked = server.ask(Mode::Streamed, ask("go"));
        let end = asked.event("response.completed").await;
        let body = json!({ "model": "m", "input": "on", "previous_response_id": end.data["response"]["id"] });
        assert_eq!(server.respond(Mode::Plain, body).await.text(), "Heard you.");
    }
}

#[tokio::test]
async fn instructions_are_each_requests_own() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("ok")]).await;
    let first = server.respond(Mode::Plain, with(ask("go"), json!({ "instructions": "be short" }))).await;
    assert_eq!(first.object["instructions"], "be short");
    let second = server.respond(Mode::Plain, with(after(&first, json!("on"), &[]), json!({ "instructions": "be long" }))).await;
    let third = server.respond(Mode::Plain, after(&second, json!("on"), &[])).await;
    assert_eq!(third.object["instructions"], Value::Null);
    let asked = model.asked();
    assert_eq!(messages_sent(&asked[0]), ["system: be short", "user: go"]);
    assert_eq!(messages_sent(&asked[1]), ["system: be long", "user: go", "assistant: ok", "user: on"]);
    assert_eq!(messages_sent(&asked[2])[0], "user: go");
}

#[tokio::test]
async fn items_of_stored_responses_can_be_referred_to() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Call(vec![("echo", json!({ "text": "alpha" }))]), Scene::Say("It is alpha."), Scene::Say("Again.")];
        let (server, model, _tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("what?", &[mcp()])).await;
        let page = server.get(&format!("/v1/responses/{}/input_items", made.id())).await.ok();
        let output = made.output();
        let input = json!([
            { "type": "item_reference", "id": page["data"][0]["id"] },
            { "id": output[0]["id"] },
            { "type": "item_reference", "id": output[1]["id"] },
            { "role": "user", "content": "and again" },
        ]);
        let again = server.respond(mode, with(ask_with("", &[mcp()]), json!({ "input": input }))).await;
        assert_eq!(again.text(), "Again.");
        assert_eq!(
            messages_sent(&model.asked()[2]),
            ["user: what?", "assistant:  +echo", "tool: alpha", "assistant: It is alpha.", "user: and again"]
        );
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_referred_to_is_refused() {
    let config = "
models: [ { name: m, provider: scripted } ]
auth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: other-token-of-22-characters, tenant: other, scopes: ['*'] } ] }
";
    let server = windlass_tests::ServerBuilder::new(config).start().await;
    let stored = server.respond(Mode::Plain, ask("hi")).await;
    let fleeting = server.respond(Mode::Plain, with(ask("hi"), json!({ "store": false }))).await;
    let item = |made: &ResponseRecord| made.output()[0]["id"].as_str().expect("an id").to_owned();
    let unknown = [item(&fleeting), "msg_nope".into(), "msg_00000000000000000000000000000007_0".into(), format!("{}9", item(&stored))];
    for id in &unknown {
        let answer = server.refusal(Mode::Plain, json!({ "model": "m", "input": [{ "type": "item_reference", "id": id }] })).await;
        assert_eq!((answer.status, answer.code(), &answer.body["error"]["param"]), (400, "item_not_found", &json!("input[0].id")), "{id}");
    }
    for id in [fleeting.id(), "resp_nope", "resp_00000000000000000000000000000007", ""] {
        let answer = server.refusal(Mode::Streamed, with(ask("on"), json!({ "previous_response_id": id }))).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("previous_response_id")), "{id:?}: {}", answer.body);
        assert!(id.is_empty() || answer.code() == "previous_response_not_found", "{}", answer.body);
    }
    // A response of another tenant does not exist.
    let server = server.with_token("other-token-of-22-characters");
    let foreign = server.refusal(Mode::Plain, with(ask("on"), json!({ "previous_response_id": stored.id() }))).await;
    assert_eq!(foreign.code(), "previous_response_not_found");
    let foreign = server.refusal(Mode::Plain, json!({ "model": "m", "input": [{ "id": item(&stored) }] })).await;
    assert_eq!(foreign.code(), "item_not_found");
    let path = format!("/v1/responses/{}", stored.id());
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::GET, format!("{path}?stream=true")),
        (Method::GET, format!("{path}/input_items")),
        (Method::POST, format!("{path}/cancel")),
        (Method::DELETE, path.clone()),
    ] {
        let answer = server.send(server.request(method.clone(), &path)).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{method} {path}: {}", answer.body);
    }
    let server = server.with_token("test-token-of-22-characters");
    assert_eq!(server.response(stored.id()).await, stored.object, "and it is as it was");
}

#[tokio::test]
async fn an_unfinished_response_cannot_be_continued() {
    let (server, _tools) = scripted("laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: done } ]").await;
    let asked = server.ask(Mode::Followed, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } })));
    let call = server.claim("look_up").await;
    let answer = server.refusal(Mode::Plain, with(ask("on"), json!({ "previous_response_id": asked.id().await }))).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("previous_response_id")), "{}", answer.body);
    server.report(&call, json!("x")).await.ok();
    let made = asked.made(&server).await;
    assert_eq!(
        server.respond(Mode::Plain, with(ask("on"), json!({ "previous_response_id": made.id(), "max_turns": 1 }))).await.status(),
        "incomplete"
    );
}

/// A page of a response's input items.
async fn page(server: &Server, id: &str, query: &str) -> Value {
    server.get(&format!("/v1/responses/{id}/input_items{query}")).await.ok()
}

fn texts(page: &Value) -> Vec<String> {
    let data = page["data"].as_array().expect("a list").iter();
    data.map(|item| item["content"].as_str().map_or_else(|| item["content"][0]["text"].as_str().unwrap_or_default().into(), str::to_owned))
        .collect()
}

#[tokio::test]
async fn the_input_is_listed_page_by_page() {
    let (server, _tools) = scripted(ECHOES).await;
    let items: Vec<Value> = (0..25).map(|number| json!({ "role": "user", "content": format!("n{number}") })).collect();
    let made = server.respond(Mode::Streamed, with(ask(""), json!({ "input": items }))).await;
    let first = page(&server, made.id(), "").await;
    assert_eq!((&first["object"], &first["has_more"], texts(&first).len()), (&json!("list"), &json!(true), 20));
    assert_eq!(texts(&first)[..2], ["n24", "n23"], "the newest first");
    assert_eq!((&first["first_id"], &first["last_id"]), (&first["data"][0]["id"], &first["data"][19]["id"]));
    assert!(first["data"].as_array().expect("a list").iter().all(|item| item["type"] == "message" && item["id"].is_string()));
    let last = page(&server, made.id(), &format!("?after={}", first["last_id"].as_str().expect("an id"))).await;
    assert_eq!((texts(&last).len(), &last["has_more"]), (5, &json!(false)));
    assert_eq!(texts(&last)[4], "n0");
    let forwards = page(&server, made.id(), "?order=asc&limit=3").await;
    assert_eq!((texts(&forwards), &forwards["has_more"]), (vec!["n0".into(), "n1".into(), "n2".into()], &json!(true)));
    let text = server.respond(Mode::Plain, ask("only words")).await;
    assert_eq!(texts(&page(&server, text.id(), "").await), ["only words"]);
    for (query, param) in
        [("?limit=0", "limit"), ("?limit=101", "limit"), ("?limit=x", "limit"), ("?order=up", "order"), ("?after=nope", "after")]
    {
        let answer = server.get(&format!("/v1/responses/{}/input_items{query}", made.id())).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(param)), "{query}");
    }
}

#[tokio::test]
async fn a_deleted_response_is_gone() {
    let (server, _tools) = scripted(ECHOES).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask("a secret")).await;
        let next = server.respond(mode, after(&made, json!("on"), &[])).await;
        let path = format!("/v1/responses/{}", made.id());
        let answer = server.send(server.request(Method::DELETE, &path)).await.ok();
        assert_eq!(answer, json!({ "id": made.id(), "object": "response", "deleted": true }));
        for path in [path.clone(), format!("{path}?stream=true"), format!("{path}/input_items")] {
            assert_eq!(server.get(&path).await.status, 404, "{path}");
        }
        assert_eq!(server.send(server.request(Method::DELETE, &path)).await.status, 404, "twice is once");
        let answer = server.refusal(mode, after(&made, json!("on"), &[])).await;
        assert_eq!(answer.code(), "previous_response_not_found");
        assert_eq!(server.response(next.id()).await, next.object, "what follows it stays");
    })
    .await;
}

#[tokio::test]
async fn a_running_response_is_stopped_when_it_is_deleted() {
    let (server, _tools) = scripted("laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: never } ]").await;
    let asked = server.ask(Mode::Streamed, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } })));
    let call = server.claim("look_up").await;
    let id = asked.id().await;
    assert_eq!(server.send(server.request(Method::DELETE, &format!("/v1/responses/{id}"))).await.ok()["deleted"], true);
    asked.event("response.incomplete").await;
    let run = windlass_tests::bytes(call["agent_turn_id"].as_str().expect("a run"));
    assert_eq!(server.number(&format!("SELECT count(*) FROM runs WHERE status = 'ended' AND run = {run}")), 1);
    asked.hang_up();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_response_that_is_not_stored_can_be_read_once() {
    let (server, _tools) = scripted(ECHOES).await;
    for mode in [Mode::Plain, Mode::Streamed] {
        let made = server.respond(mode, with(ask("a secret"), json!({ "store": false }))).await;
        assert_eq!((made.status(), made.text().as_str(), &made.object["store"]), ("completed", "Heard you.", &json!(false)));
        for (method, path) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/cancel"), (Method::GET, "/input_items")] {
            let answer = server.send(server.request(method.clone(), &format!("/v1/responses/{}{path}", made.id()))).await;
            assert_eq!(answer.status, 404, "{method} {path}");
        }
    }
    for mode in [Mode::Background, Mode::Followed] {
        let answer = server.refusal(mode, with(ask("go"), json!({ "store": false }))).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("background")));
    }
}

#[tokio::test]
async fn the_whole_conversation_can_be_sent_instead_of_a_chain() {
    let (server, model, _tools) = server_with_model(vec![Scene::Call(vec![("mine", json!({ "n": 1 }))]), Scene::Say("done")]).await;
    let first = server.respond(Mode::Streamed, ask_with("go", &[function("mine")])).await;
    let mut input = vec![json!({ "role": "user", "content": "go" })];
    input.extend(first.output());
    input.push(output(&first.items("function_call")[0], "one"));
    let second = server.respond(Mode::Streamed, with(ask_with("", &[function("mine")]), json!({ "input": input }))).await;
    assert_eq!(second.text(), "done");
    assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +mine", "tool: one"]);
    // Calls without results, from a client that chose not to have them executed.
    let none = with(ask_with("go", &[function("mine")]), json!({ "tool_choice": "none" }));
    let (server, model, _tools) = server_with_model(vec![Scene::Call(vec![("mine", json!({}))]), Scene::Say("done")]).await;
    let first = server.respond(Mode::Streamed, none).await;
    let follow_up = after(&first, json!([output(&first.items("function_call")[0], "run all the same")]), &[function("mine")]);
    assert_eq!(server.respond(Mode::Streamed, follow_up).await.text(), "done");
    assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +mine", "tool: run all the same"]);
}

#[tokio::test]
async fn items_of_an_unknown_type_are_kept_and_not_given_to_the_model() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("done")]).await;
        let novel = json!({ "type": "next_years_item", "id": "ny_1", "text": "nothing for you", "x": [1, null] });
        let strange = [
            novel.clone(),
            json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "secret" }] }),
            json!({ "type": "web_search_call", "id": "ws_1", "status": "completed", "action": { "type": "search", "query": "q" } }),
            json!({ "type": "additional_tools", "role": "developer", "tools": [] }),
        ];
        let input: Vec<Value> = [vec![json!({ "role": "user", "content": "go" })], strange.to_vec()].concat();
        let first = server.respond(mode, with(ask(""), json!({ "input": input }))).await;
        assert_eq!((first.text().as_str(), messages_sent(&model.asked()[0])), ("done", vec!["user: go".to_owned()]));
        let listed = page(&server, first.id(), "?order=asc").await;
        let kinds: Vec<&Value> = listed["data"].as_array().expect("a list").iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["message", "next_years_item", "reasoning", "web_search_call", "additional_tools"], "all are on record");
        assert_eq!(listed["data"][1], novel, "as they came");
        // Follow-ups do not give them to the model either, even if they refer to them.
        let referred = json!([{ "type": "item_reference", "id": listed["data"][4]["id"] }, { "role": "user", "content": "on" }]);
        server.respond(mode, after(&first, referred, &[])).await;
        assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant: done", "user: on"]);
    })
    .await;
}

/// Items of earlier versions have no header, and neither have messages of one text.
#[tokio::test]
async fn an_item_that_was_stored_without_a_header_is_read_again() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("ok")]).await;
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low" });
    let input = json!([
        { "role": "user", "content": [{ "type": "input_text", "text": "see" }, image] },
        { "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c1", "output": [{ "type": "input_text", "text": "forty" }] },
        { "role": "user", "content": "go" },
    ]);
    let first = server.respond(Mode::Plain, with(ask(""), json!({ "input": input }))).await;
    server.respond(Mode::Plain, after(&first, json!("on"), &[])).await;
    assert_eq!(server.database().execute("UPDATE items SET header = NULL WHERE header IS NOT NULL"), Ok(3), "texts alone need none");
    server.respond(Mode::Plain, after(&first, json!("and on"), &[])).await;
    let history = |request: &Value| request["messages"].as_array().expect("a list").split_last().map(|(_, history)| history.to_vec());
    let asked = model.asked();
    assert_eq!(history(&asked[1]), history(&asked[2]));
    let sent = history(&asked[1]).unwrap_or_default();
    assert_eq!(sent[0]["content"][1]["image_url"], json!({ "url": "data:image/png;base64,aGk=", "detail": "low" }));
    assert_eq!((&sent[2]["role"], &sent[2]["content"], &sent[3]["content"]), (&json!("tool"), &json!("forty"), &json!("go")));
}

#[tokio::test]
async fn models_and_agents_are_listed_as_models() {
    let (server, _tools) = crate::support::scripted_with(ECHOES, "agents: { helper: { instructions: help } }").await;
    let listed = server.get("/v1/models").await.ok();
    let names: Vec<&str> = listed["data"].as_array().expect("a list").iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!((&listed["object"], names), (&json!("list"), vec!["m", "agent/helper"]));
    assert_eq!(server.get("/v1/models/agent/helper").await.ok()["object"], "model");
    assert_eq!(server.get("/v1/models/nope").await.code(), "model_not_found");
    let made = server.respond(Mode::Streamed, json!({ "model": "agent/helper", "input": "hi" })).await;
    assert_eq!((&made.object["model"], made.text().as_str()), (&json!("agent/helper"), "Heard you."));
}

#[tokio::test]
async fn a_response_that_did_not_complete_can_be_continued() {
    let (server, model, tools) = server_with_model(vec![
        Scene::SayAndCall("I wait.", vec![("sleep_ms", json!({ "ms": 60_000 })), ("echo", json!({ "text": "hi" }))]),
        Scene::Say("Never mind."),
        Scene::Call(vec![("echo", json!({ "text": "last" }))]),
        Scene::Say("On."),
        Scene::Fail(400, Vec::new()),
        Scene::Say("Better."),
    ])
    .await;
    let asked = server.ask(Mode::Streamed, ask_with("go", &[mcp()]));
    let id = asked.id().await;
    until("one call is over", || async { (server.response(&id).await["output"][3]["output"] == "hi").then_some(()) }).await;
    server.cancel(&id).await;
    let cancelled = asked.made(&server).await;
    tools.runs("sleep_ms", 0).await;
    assert_eq!(server.respond(Mode::Streamed, after(&cancelled, json!("forget it"), &[mcp()])).await.text(), "Never mind.");
    let messages = messages_sent(&model.asked()[1]);
    assert_eq!(messages[..2], ["user: go", "assistant: I wait. +sleep_ms +echo"]);
    assert!(messages[2].starts_with("tool: error"), "{messages:?}");
    assert_eq!(messages[3..], ["tool: hi", "user: forget it"]);
    let short = server.respond(Mode::Streamed, with(ask_with("short", &[mcp()]), json!({ "max_turns": 1 }))).await;
    assert_eq!(short.status(), "incomplete");
    assert_eq!(server.respond(Mode::Streamed, after(&short, json!("go on"), &[mcp()])).await.text(), "On.");
    assert_eq!(
        messages_sent(&model.asked()[3]),
        ["user: short", "assistant:  +echo", "tool: last", "user: go on"],
        "the last results are there"
    );
    let failed = server.respond(Mode::Streamed, ask("fail")).await;
    assert_eq!(failed.status(), "failed");
    assert_eq!(server.respond(Mode::Streamed, after(&failed, json!("again"), &[])).await.text(), "Better.");
    assert_eq!(messages_sent(&model.asked()[5]), ["user: fail", "user: again"], "the server's own text is not the model's");
}

#[tokio::test]
async fn settings_of_the_answer_reach_the_model() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("ok")]).await;
    let more = json!({
        "temperature": 0.5, "top_p": 0.25, "max_output_tokens": 99, "reasoning": { "effort": "low" }, "user": "u",
        "text": { "format": { "type": "json_schema", "name": "n", "schema": { "type": "object" } } },
    });
    server.respond(Mode::Streamed, with(ask("go"), more)).await;
    let asked = &model.asked()[0];
    assert_eq!((&asked["temperature"], &asked["top_p"], &asked["max_tokens"]), (&json!(0.5), &json!(0.25), &json!(99)));
    assert_eq!((&asked["reasoning_effort"], &asked["user"]), (&json!("low"), &json!("u")));
    assert_eq!(asked["response_format"]["json_schema"]["schema"], json!({ "type": "object" }));
    let plain = server.respond(Mode::Streamed, json!({ "input": "no model named" })).await;
    assert_eq!(plain.object["model"], "m", "the first one there is");
}
