//! `require_approval`: the client approves calls of tool servers, in a request of its own.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{McpServer, Mode, ResponseRecord, Scene, Server, in_every_mode, until};

use crate::support::{
    after, ask_with, call_outcome, declared, function, mcp, messages_sent, output, scripted_with, server_with_model,
    server_with_model_and_config, with,
};

/// The configured tool server, with an answer to what needs approval.
fn asks(approval: Value) -> Value {
    with(mcp(), json!({ "require_approval": approval }))
}

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn requests(made: &ResponseRecord) -> Vec<Value> {
    made.items("mcp_approval_request")
}

fn approve(request: &Value) -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true })
}

fn reject(request: &Value, reason: &str) -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": false, "reason": reason })
}

fn and(history: &[Value], more: Vec<Value>) -> Vec<Value> {
    [history.to_vec(), more].concat()
}

#[tokio::test]
async fn s_11_a_call_is_made_once_the_client_approved_it() {
    in_every_mode(async |mode| {
        let tools = [asks(json!({ "always": { "tool_names": ["echo"] } }))];
        let scenes = vec![
            Scene::Call(vec![("add", json!({ "a": 1, "b": 2 }))]),
            Scene::SayAndCall("May I?", vec![("add", json!({ "a": 2, "b": 2 })), echo("alpha")]),
            Scene::Say("Done."),
        ];
        let (server, model, served) = server_with_model(scenes).await;
        let first = server.respond(mode, ask_with("go", &tools)).await;
        assert_eq!((first.status(), &first.object["windlass"]["status"]), ("requires_action", &json!("requires_action")));
        assert_eq!(first.shape(), ["mcp_call", "message", "mcp_approval_request"], "what needs no approval waits with it, unseen");
        let request = &requests(&first)[0];
        assert_eq!(
            (&request["server_label"], &request["name"], &request["arguments"]),
            (&json!("tools"), &json!("echo"), &json!(r#"{"text":"alpha"}"#))
        );
        assert_eq!((served.starts("add").len(), served.starts("echo").len()), (1, 0));
        let second = server.respond(mode, after(&first, json!([approve(request)]), &tools)).await;
        assert_eq!(
            (second.status(), second.text().as_str(), second.shape()),
            ("completed", "Done.", vec!["mcp_call".into(), "mcp_call".into(), "message".into()])
        );
        let calls = second.items("mcp_call");
        assert_eq!((&calls[0]["approval_request_id"], &calls[1]["approval_request_id"]), (&Value::Null, &request["id"]));
        assert_eq!(calls[1]["arguments"], request["arguments"]);
        let expected = ["user: go", "assistant:  +add", "tool: 3", "assistant: May I? +add +echo", "tool: 4", "tool: alpha"];
        assert_eq!(messages_sent(&model.asked()[2]), expected);
        assert_eq!((served.starts("add").len(), served.starts("echo").len()), (2, 1));
        let listed = server.get(&format!("/v1/responses/{}/input_items", second.id())).await.ok();
        assert_eq!(listed["data"][0]["type"], "mcp_approval_response");
    })
    .await;
}

#[tokio::test]
async fn a_rejected_call_and_one_without_an_answer_become_errors_that_the_model_reads() {
    in_every_mode(async |mode| {
        let tools = [asks(json!("always"))];
        let scenes = vec![Scene::Call(vec![echo("one"), echo("two"), echo("three")]), Scene::Say("A pity."), Scene::Say("Still not.")];
        let (server, model, served) = server_with_model(scenes).await;
        let first = server.respond(mode, ask_with("go", &tools)).await;
        let asked = requests(&first);
        let answers = json!([reject(&asked[0], "not this one"), approve(&asked[1]), { "role": "user", "content": "go on" }]);
        let second = server.respond(mode, after(&first, answers, &tools)).await;
        assert_eq!((second.status(), second.text().as_str()), ("completed", "A pity."));
        let outcomes: Vec<(String, String, String)> = second.items("mcp_call").iter().map(call_outcome).collect();
        assert_eq!(outcomes[0].0, "failed");
        assert!(outcomes[0].2.contains("rejected") && outcomes[0].2.contains("not this one"), "{outcomes:?}");
        assert_eq!((outcomes[1].0.as_str(), outcomes[1].1.as_str()), ("completed", "two"));
        assert!(outcomes[2].0 == "failed" && outcomes[2].2.contains("no approval given"), "{outcomes:?}");
        let read = messages_sent(&model.asked()[1]);
        assert!(read[2].contains("not this one") && read[3] == "tool: two" && read[4].contains("no approval given"), "{read:?}");
        assert_eq!(read[5], "user: go on");
        assert_eq!(served.starts("echo").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn s_11_no_follow_up_without_an_answer_makes_the_call() {
    in_every_mode(async |mode| {
        let tools = [asks(json!("always"))];
        let (server, model, served) = server_with_model(vec![Scene::Call(vec![echo("one")]), Scene::Say("Never mind.")]).await;
        let first = server.respond(mode, ask_with("go", &tools)).await;
        // Not even if the follow-up itself wants no approval.
        let second = server.respond(mode, after(&first, json!("forget it"), &[mcp()])).await;
        assert_eq!((second.text().as_str(), served.starts("echo").len()), ("Never mind.", 0));
        assert!(messages_sent(&model.asked()[1])[2].contains("no approval given"));
        // The request was decided with that.
        let late = server.refusal(Mode::Plain, after(&first, json!([approve(&requests(&first)[0])]), &tools)).await;
        assert_eq!((late.status, late.code()), (409, "already_answered"), "{}", late.body);
        assert_eq!(served.starts("echo").len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_sends_the_conversation_again_answers_in_it() {
    in_every_mode(async |mode| {
        let tools = [asks(json!("always")), function("mine")];
        let scenes = vec![
            Scene::SayAndCall("May I?", vec![echo("one"), ("mine", json!({})), echo("two")]),
            Scene::Say("Done."),
            Scene::Say("The other branch."),
            Scene::Say("On."),
        ];
        let (server, model, served) = server_with_model(scenes).await;
        let store = matches!(mode, Mode::Background | Mode::Followed);
        let request = |input: &[Value]| with(ask_with("", &tools), json!({ "input": input, "store": store }));
        let first = server.respond(mode, request(&[user("go")])).await;
        assert_eq!(first.shape(), ["message", "mcp_approval_request", "function_call", "mcp_approval_request"]);
        let asked = requests(&first);
        let hers = output(&first.items("function_call")[0], "hers");
        let history = and(&and(&[user("go")], first.output()), vec![approve(&asked[0]), hers, reject(&asked[1], "no")]);
        let second = server.respond(mode, request(&history)).await;
        assert_eq!((second.status(), second.text().as_str()), ("completed", "Done."));
        let read = messages_sent(&model.asked()[1]);
        assert_eq!(read[..4], ["user: go", "assistant: May I? +echo +mine +echo", "tool: one", "tool: hers"], "{read:?}");
        assert!(read[4].contains("rejected") && read.len() == 5, "{read:?}");
        // A second branch with the same answers gets what the first one led to.
        assert_eq!(server.respond(mode, request(&history)).await.text(), "The other branch.");
        assert_eq!(messages_sent(&model.asked()[2]), read);
        // The conversation continues, with the server's calls or without.
        let whole = and(&and(&history, second.output()), vec![user("and now?")]);
        let without: Vec<Value> = whole.iter().filter(|item| item["type"] != "mcp_call").cloned().collect();
        for history in [whole, without] {
            assert_eq!(server.respond(mode, request(&history)).await.text(), "On.");
            let later = messages_sent(model.asked().last().expect("a request"));
            assert_eq!(later[later.len() - 2..], ["assistant: Done.", "user: and now?"]);
            assert!(later.iter().filter(|line| *line == "tool: one").count() == 1, "{later:?}");
        }
        assert_eq!(served.starts("echo").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_reference_or_the_answer_alone_stands_for_the_request() {
    let tools = [asks(json!("always"))];
    for has_reference in [true, false] {
        let scenes = vec![Scene::SayAndCall("May I?", vec![echo("one")]), Scene::Say("Done.")];
        let (server, model, served) = server_with_model(scenes).await;
        let first = server.respond(Mode::Plain, with(ask_with("go", &tools), json!({ "store": has_reference }))).await;
        let asked = &requests(&first)[0];
        let reference = json!({ "type": "item_reference", "id": asked["id"] });
        let text = json!({ "role": "assistant", "content": "May I?" });
        let input =
            if has_reference { json!([user("go"), text, reference, approve(asked)]) } else { json!([user("go"), text, approve(asked)]) };
        let second = server.respond(Mode::Plain, with(ask_with("", &tools), json!({ "input": input }))).await;
        assert_eq!((second.text().as_str(), served.starts("echo").len()), ("Done.", 1));
        assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant: May I? +echo", "tool: one"]);
    }
}

/// As the AI SDK does for responses that are not stored.
#[tokio::test]
async fn a_client_that_keeps_nothing_but_its_answers_is_asked_again_and_again() {
    in_every_mode(async |mode| {
        let tools = [asks(json!("always"))];
        let scenes =
            vec![Scene::Call(vec![echo("one")]), Scene::Call(vec![echo("two"), echo("three")]), Scene::Say("Done."), Scene::Say("On.")];
        let (server, model, served) = server_with_model(scenes).await;
        let store = matches!(mode, Mode::Background | Mode::Followed);
        let request = |input: &[Value]| with(ask_with("", &tools), json!({ "input": input, "store": store }));
        let mut history = vec![user("go")];
        for answers in [1, 2] {
            let made = server.respond(mode, request(&history)).await;
            assert_eq!(requests(&made).len(), answers);
            history.extend(requests(&made).iter().map(approve));
        }
        let made = server.respond(mode, request(&history)).await;
        assert_eq!(made.text(), "Done.");
        let read = ["user: go", "assistant:  +echo", "tool: one", "assistant:  +echo +echo", "tool: two", "tool: three"];
        assert_eq!(messages_sent(&model.asked()[2]), read);
        history.extend([made.items("message")[0].clone(), user("and now?")]);
        assert_eq!(server.respond(mode, request(&history)).await.text(), "On.");
        assert_eq!(messages_sent(&model.asked()[3]), [&read[..], &["assistant: Done.", "user: and now?"]].concat());
        assert_eq!(served.starts("echo").len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_conversation_takes_the_answer() {
    in_every_mode(async |mode| {
        let tools = [asks(json!("always"))];
        let (server, model, served) = server_with_model(vec![Scene::Call(vec![echo("one")]), Scene::Say("Done.")]).await;
        let id = server.post("/v1/conversations", json!({})).await.ok()["id"].clone();
        let in_it = |input: Value| with(ask_with("", &tools), json!({ "conversation": id, "input": input }));
        let first = server.respond(mode, in_it(json!("go"))).await;
        let asked = &requests(&first)[0];
        let path = format!("/v1/conversations/{}/items", id.as_str().expect("an id"));
        let added = server.post(&path, json!({ "items": [approve(asked)] })).await;
        assert_eq!((added.status, added.code()), (400, "approval_not_taken"), "{}", added.body);
        let second = server.respond(mode, in_it(json!([approve(asked)]))).await;
        assert_eq!((second.text().as_str(), served.starts("echo").len()), ("Done.", 1));
        assert_eq!(messages_sent(&model.asked()[1]), ["user: go", "assistant:  +echo", "tool: one"]);
        let listed = server.get(&format!("{path}?order=asc")).await.ok();
        let items = listed["data"].as_array().expect("items");
        let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap_or_default()).collect();
        assert_eq!(kinds, ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message"]);
        assert_eq!(&items[1], asked);
        assert_eq!(items[3], second.items("mcp_call")[0]);
    })
    .await;
}

#[tokio::test]
async fn s_11_the_first_answer_wins() {
    let tools = [asks(json!("always"))];
    let scenes =
        vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 300 }))]), Scene::Say("Done."), Scene::Say("Again."), Scene::Say("Third.")];
    let (server, _model, served) = server_with_model(scenes).await;
    let first = server.respond(Mode::Plain, ask_with("go", &tools)).await;
    let asked = &requests(&first)[0];
    let approval = after(&first, json!([approve(asked)]), &tools);
    let running = server.ask(Mode::Plain, approval.clone());
    served.runs("sleep_ms", 1).await;
    let rejection = after(&first, json!([reject(asked, "too late")]), &tools);
    for mode in [Mode::Plain, Mode::Streamed] {
        let late = server.refusal(mode, rejection.clone()).await;
        assert_eq!((late.status, late.code()), (409, "already_answered"), "{}", late.body);
    }
    let same = server.refusal(Mode::Plain, approval.clone()).await;
    assert_eq!((same.status, same.code()), (409, "tool_calls_running"), "{}", same.body);
    let made = running.made(&server).await;
    assert_eq!(made.text(), "Done.");
    // A branch with the same answer, and one without, get the result.
    assert_eq!(server.respond(Mode::Plain, approval).await.shape(), ["message"]);
    assert_eq!(server.respond(Mode::Plain, after(&first, json!("and?"), &tools)).await.shape(), ["message"]);
    let again = server.refusal(Mode::Plain, after(&made, json!([approve(asked)]), &tools)).await;
    assert_eq!((again.status, again.code()), (409, "already_answered"), "after its response was continued: {}", again.body);
    assert_eq!(served.starts("sleep_ms").len(), 1);
}

#[tokio::test]
async fn s_11_answers_that_fit_nothing_are_refused_and_change_nothing() {
    let tenants = "\nauth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: other-token-of-22-characters, tenant: other, scopes: ['*'] } ] }\n";
    let tools = [asks(json!("always"))];
    let scenes = vec![Scene::Call(vec![echo("one")]), Scene::Call(vec![echo("two")]), Scene::Say("Done.")];
    let (server, model, served) = server_with_model_and_config(scenes, tenants).await;
    let first = server.respond(Mode::Plain, ask_with("go", &tools)).await;
    let gone = server.respond(Mode::Plain, ask_with("go", &tools)).await;
    let (asked, lost) = (&requests(&first)[0], &requests(&gone)[0]);
    server.send(server.authorized(Method::DELETE, &format!("/v1/responses/{}", gone.id()))).await.ok();
    let of_another_call = json!({ "id": asked["id"].as_str().expect("an id").replace("_1", "_7") });
    let none = json!({ "id": "mcpr_682d498e3bd4819196a0ce1664f8e77b04ad1e533afccbfa" });
    let alone = |input: Value| with(ask_with("", &tools), json!({ "input": input }));
    for (body, status, code) in [
        (after(&first, json!([approve(&none)]), &tools), 400, "approval_request_not_found"),
        (after(&first, json!([approve(&of_another_call)]), &tools), 400, "approval_request_not_found"),
        (after(&first, json!([approve(lost)]), &tools), 400, "approval_expired"),
        (after(&first, json!([approve(asked), reject(asked, "")]), &tools), 400, "duplicate_approval"),
        (alone(json!([user("go"), lost, approve(lost)])), 400, "approval_expired"),
        (alone(json!([user("go"), approve(lost)])), 400, "approval_expired"),
        (alone(json!([user("go"), approve(&of_another_call)])), 400, "approval_request_not_found"),
        (after(&first, json!([approve(asked), { "type": "compaction_trigger" }]), &tools), 400, "approval_not_taken"),
    ] {
        for mode in [Mode::Plain, Mode::Streamed, Mode::Socket] {
            let answer = server.refusal(mode, body.clone()).await;
            assert_eq!((answer.status, answer.code()), (status, code), "{body} {}", answer.body);
        }
    }
    let foreign = [alone(json!([user("go"), asked, approve(asked)])), alone(json!([approve(asked)]))];
    for body in foreign {
        let request = server.request(Method::POST, "/v1/responses").bearer_auth("other-token-of-22-characters").json(&body);
        let answer = server.send(request).await;
        assert_eq!((answer.status, answer.code()), (400, "approval_expired"), "{}", answer.body);
    }
    assert_eq!((model.asked().len(), served.starts("echo").len()), (2, 0));
    assert_eq!(server.respond(Mode::Plain, after(&first, json!([approve(asked)]), &tools)).await.text(), "Done.");
    assert_eq!(served.starts("echo").len(), 1);
}

#[tokio::test]
async fn a_history_of_another_host_is_only_read() {
    let (server, model, _served) = server_with_model(vec![Scene::Say("Hello.")]).await;
    let foreign = json!([
        user("go"),
        { "type": "mcp_approval_request", "id": "mcpr_682d", "server_label": "x", "name": "f", "arguments": "{}" },
        { "type": "mcp_approval_response", "approval_request_id": "mcpr_682d", "approve": true },
        { "type": "mcp_call", "id": "mcp_682d", "server_label": "x", "name": "f", "arguments": "{}", "output": "done" },
        { "role": "assistant", "content": "It is done." },
        user("thanks"),
    ]);
    assert_eq!(server.respond(Mode::Plain, with(ask_with("", &[mcp()]), json!({ "input": foreign }))).await.text(), "Hello.");
    assert_eq!(messages_sent(&model.asked()[0]), ["user: go", "assistant:  +f", "tool: done", "assistant: It is done.", "user: thanks"]);
}

#[tokio::test]
async fn s_11_a_rule_of_the_configuration_holds_what_the_client_approved() {
    let tools = [asks(json!("always"))];
    let scenes = || vec![Scene::Call(vec![echo("one")]), Scene::Say("Done.")];
    let (server, _model, served) = server_with_model_and_config(scenes(), "\napprovals: [ { tool: echo } ]\n").await;
    let first = server.respond(Mode::Plain, ask_with("go", &tools)).await;
    assert_eq!(server.get("/v1/windlass/interrupts").await.ok()["interrupts"], json!([]), "the client is asked first");
    let second = server.ask(Mode::Background, after(&first, json!([approve(&requests(&first)[0])]), &tools));
    let id = second.id().await;
    let held = held_call(&server, &id).await;
    assert_eq!(served.starts("echo").len(), 0);
    let shown = server.get(&format!("/v1/windlass/interrupts/{held}")).await.ok();
    let decision = json!({ "action": "approve", "shows": shown["shows"] });
    server.post(&format!("/v1/windlass/interrupts/{held}"), decision).await.ok();
    assert_eq!(second.made(&server).await.text(), "Done.");
    assert_eq!(served.starts("echo").len(), 1);
}

#[tokio::test]
async fn tm_07_calls_of_a_declared_server_wait_for_the_client_whatever_the_server_says() {
    let scenes = || vec![Scene::Call(vec![echo("hi")]), Scene::Say("Done.")];
    let other = McpServer::start().await;
    let mut count = 0;
    for approval in [Value::Null, json!("always"), json!({ "never": { "read_only": true } }), json!({ "never": ["add"] })] {
        let tools = [with(declared("other", &other), json!({ "require_approval": approval }))];
        let (server, _model, _served) = server_with_model_and_config(scenes(), "").await;
        let first = server.respond(Mode::Streamed, ask_with("go", &tools)).await;
        assert_eq!((first.shape(), other.starts("echo").len()), (vec!["mcp_approval_request".to_owned()], count), "{approval}");
        let second = server.respond(Mode::Streamed, after(&first, json!([approve(&requests(&first)[0])]), &tools)).await;
        count += 1;
        assert_eq!((second.text().as_str(), other.starts("echo").len()), ("Done.", count));
    }
    let named = with(declared("other", &other), json!({ "require_approval": { "never": ["echo"] } }));
    let (server, _model, _served) = server_with_model_and_config(scenes(), "").await;
    assert_eq!(server.respond(Mode::Plain, ask_with("go", &[named])).await.shape(), ["mcp_call", "message"]);
}

#[tokio::test]
async fn tm_07_an_approval_is_for_the_server_that_was_shown() {
    let (shown, other) = (McpServer::start().await, McpServer::start().await);
    let tools = |server: &McpServer| [with(declared("mine", server), json!({ "require_approval": "always" }))];
    let scenes = vec![Scene::Call(vec![echo("hi")]), Scene::Say("Done.")];
    let (server, model, _served) = server_with_model_and_config(scenes, "").await;
    let first = server.respond(Mode::Plain, ask_with("go", &tools(&shown))).await;
    let second = server.respond(Mode::Plain, after(&first, json!([approve(&requests(&first)[0])]), &tools(&other))).await;
    assert_eq!((second.text().as_str(), shown.starts("echo").len(), other.starts("echo").len()), ("Done.", 0, 0));
    assert!(messages_sent(&model.asked()[1])[2].contains("for another tool server"));
}

#[tokio::test]
async fn an_edited_call_is_shown_with_the_arguments_that_were_used() {
    let scenes = vec![Scene::Call(vec![echo("one")]), Scene::Say("Done.")];
    let (server, model, served) = server_with_model_and_config(scenes, "\napprovals: [ { tool: echo } ]\n").await;
    let asked = server.ask(Mode::Followed, ask_with("go", &[mcp()]));
    let held = held_call(&server, &asked.id().await).await;
    let path = format!("/v1/windlass/interrupts/{held}");
    let shown = server.get(&path).await.ok()["shows"].clone();
    server.post(&path, json!({ "action": "edit", "shows": shown, "arguments": { "text": "two" } })).await.ok();
    let made = asked.made(&server).await;
    let call = &made.items("mcp_call")[0];
    assert_eq!((&call["arguments"], &call["output"]), (&json!(r#"{"text":"two"}"#), &json!("two")));
    let used = model.asked()[1]["messages"][1]["tool_calls"][0]["function"]["arguments"].clone();
    assert_eq!((used, messages_sent(&model.asked()[1])[2].as_str()), (json!(r#"{"text":"two"}"#), "tool: two"));
    assert_eq!(served.starts("echo").len(), 1);
}

/// The interrupt that holds a call of this response, once it does.
async fn held_call(server: &Server, id: &str) -> String {
    until("it waits", || async { server.response(id).await["windlass"]["interrupts"][0].as_str().map(str::to_owned) }).await
}

/// A server with a script, whose tools are in a process that survives it.
async fn scripted_server() -> (Server, McpServer) {
    let script = "
rules:
  - { when: { result: alpha }, reply: { text: Done. } }
laps:
  - { calls: [{ tool: echo, arguments: { text: alpha } }] }
";
    scripted_with(script, "").await
}

#[tokio::test]
async fn s_11_a_client_approves_between_two_kills_and_the_call_starts_once() {
    for store in [true, false] {
        let tools = [asks(json!("always"))];
        let (mut server, served) = scripted_server().await;
        let request = |input: Value| with(ask_with("", &tools), json!({ "input": input, "store": store }));
        let first = server.respond(Mode::Plain, request(json!([user("go")]))).await;
        let asked = requests(&first);
        server.kill();
        // The answer is on record, and the server dies before it starts the call.
        let mut server = server.restart(&[("WINDLASS_CRASH_AT", "effect.tool_start.before:1")]).await;
        let follow_up = match store {
            true => after(&first, json!([approve(&asked[0])]), &tools),
            false => request(json!([user("go"), asked[0], approve(&asked[0])])),
        };
        let key = [("idempotency-key", "answer")];
        let cut = server.authorized(Method::POST, "/v1/responses").header(key[0].0, key[0].1).json(&follow_up);
        assert!(server.try_send(cut).await.is_err(), "it dies before it answers");
        server.gone().await;
        assert_eq!(served.starts("echo").len(), 0, "it died too early");
        let server = server.restart(&[]).await;
        let second = server.ask_with(Mode::Plain, follow_up, &key).made(&server).await;
        assert_eq!((second.text().as_str(), second.shape()), ("Done.", vec!["mcp_call".to_owned(), "message".to_owned()]), "{store}");
        assert_eq!(served.starts("echo").len(), 1);
        assert_eq!(second.items("mcp_call")[0]["arguments"], asked[0]["arguments"]);
        assert_eq!(server.number("SELECT count(*) FROM runs"), 2, "the repeated answer joined its run");
    }
}

/// Nothing tells whether a write that was about to start has started.
#[tokio::test]
async fn s_11_an_approved_write_that_a_kill_cut_waits_for_a_person_and_starts_once() {
    let script = "
rules:
  - { when: { result: note }, reply: { text: Done. } }
laps:
  - { calls: [{ tool: write_note, arguments: { text: note } }] }
";
    let tools = [asks(json!("always"))];
    let (server, served) = scripted_with(script, "").await;
    let first = server.respond(Mode::Plain, ask_with("go", &tools)).await;
    let mut server = server.restart(&[("WINDLASS_CRASH_AT", "effect.tool_start.before:1")]).await;
    let approval = with(after(&first, json!([approve(&requests(&first)[0])]), &tools), json!({ "background": true }));
    let request = server.authorized(Method::POST, "/v1/responses").header("idempotency-key", "answer").json(&approval);
    let _ = server.try_send(request).await;
    server.gone().await;
    let server = server.restart(&[]).await;
    let second = server.ask_with(Mode::Background, approval, &[("idempotency-key", "answer")]);
    let held = held_call(&server, &second.id().await).await;
    let path = format!("/v1/windlass/interrupts/{held}");
    let shown = server.get(&path).await.ok();
    assert_eq!((&shown["cause"], &shown["arguments"]), (&json!("unknown_outcome"), &json!({ "text": "note" })));
    assert_eq!(served.starts("write_note").len(), 0);
    server.post(&path, json!({ "action": "release" })).await.ok();
    assert_eq!(second.made(&server).await.items("mcp_call")[0]["approval_request_id"], requests(&first)[0]["id"]);
    assert_eq!(served.starts("write_note").len(), 1);
}
