//! Compactions: made on request, returned sealed, accepted as input, and made by a run whose prompt is too long.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{
    Answer, Dialect, FakeModel, McpServer, Mode, ResponseRecord, Scene, Server, ServerBuilder, Speech, Store, in_every_mode,
    responses::{check_refusal, contract},
};

use crate::support::{
    after, ask, ask_with, function, mcp, messages_sent, offered, server_for_model, server_with_model, server_with_model_and_config, with,
};

const PATH: &str = "/v1/responses/compact";
const TWO_TENANTS: &str = "auth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: other-token-of-22-characters, tenant: other, scopes: ['*'] } ] }\n";

fn say(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": text })
}

fn answer(text: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content": text })
}

fn conversation() -> Value {
    json!([say("The colour is blue."), answer("Noted."), say("And the size is 7.")])
}

fn trigger() -> Value {
    json!({ "type": "compaction_trigger" })
}

/// Requests a compaction, which must match the contract.
async fn compacted(server: &Server, body: Value) -> Value {
    let made = server.post(PATH, body).await.ok();
    let faults = contract::faults_of_compaction(&made);
    assert!(faults.is_empty(), "a compaction that the contract does not have: {faults:#?}\n{made:#}");
    made
}

/// The item with the summary, which is the last one and the only one of its type.
fn sealed(made: &Value) -> Value {
    let output = made["output"].as_array().expect("an output");
    assert_eq!(output.iter().filter(|item| item["type"] == "compaction").count(), 1, "{made:#}");
    output.last().filter(|item| item["type"] == "compaction").cloned().expect("it is the last one")
}

fn texts(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

fn kinds(items: &Value) -> Vec<&str> {
    items.as_array().expect("a list").iter().filter_map(|item| item["type"].as_str()).collect()
}

/// The messages of the model's last request, without the frame around a summary.
fn last_messages(model: &FakeModel) -> Vec<String> {
    let asked = model.asked();
    let messages = messages_sent(asked.last().expect("it was asked"));
    messages
        .iter()
        .map(|message| {
            message.replace("What was said up to here has been summed up to save room. Go on from this summary:\n\n", "SUMMARY ")
        })
        .collect()
}

fn is_question(message: &str) -> bool {
    message.starts_with("user: Stop here and sum up this conversation")
}

fn compaction_of(made: &ResponseRecord) -> Value {
    assert_eq!((made.status(), made.shape()), ("completed", vec!["compaction".to_owned()]), "{:#}", made.object);
    made.output()[0].clone()
}

/// Asserts that the item has only the events of its beginning and end, and no event with its content.
fn check_item_events(made: &ResponseRecord) {
    let kinds: Vec<&str> = made.kinds().into_iter().filter(|kind| !kind.ends_with("queued")).collect();
    let expected =
        ["response.created", "response.in_progress", "response.output_item.added", "response.output_item.done", "response.completed"];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn a_conversation_is_given_back_as_its_newest_messages_and_a_sealed_summary() {
    let speech = Speech { chunks: vec!["Blue, ".into(), "size 7.".into()], usage: Some([31, 7, 5]), ..Speech::default() };
    let (server, model, _tools) = server_with_model(vec![Scene::Speak(speech), Scene::Say("Blue.")]).await;
    let body = json!({ "model": "m", "input": conversation(), "instructions": "Be exact.", "prompt_cache_key": "k" });
    let made = compacted(&server, with(body, json!({ "tools": [function("f"), mcp()], "tool_choice": "required" }))).await;
    assert_eq!(made["object"], "response.compaction");
    let output = made["output"].as_array().expect("an output");
    assert_eq!(kinds(&made["output"]), ["message", "message", "compaction"]);
    assert_eq!(texts(output), ["The colour is blue.", "And the size is 7."], "the users' messages, in their order");
    let usage = &made["usage"];
    assert_eq!([&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]], [31, 7, 38]);
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 5);
    assert!(!sealed(&made)["encrypted_content"].as_str().expect("a text").contains("Blue"), "{made:#}");
    let asked = &model.asked()[0];
    let messages = messages_sent(asked);
    assert_eq!(messages[..4], ["system: Be exact.", "user: The colour is blue.", "assistant: Noted.", "user: And the size is 7."]);
    assert!(messages.len() == 5 && is_question(&messages[4]), "{messages:#?}");
    assert_eq!((offered(asked).len(), asked.get("tool_choice")), (0, None), "there is nothing to call");
    // A compaction is an input. It can't be read as a response, and no response can continue from it.
    let id = made["id"].as_str().expect("an id");
    assert_eq!(server.get(&format!("/v1/responses/{id}")).await.status, 404);
    let refused = server.refusal(Mode::Plain, with(ask("on"), json!({ "previous_response_id": id }))).await;
    assert_eq!(refused.code(), "previous_response_not_found");
}

#[tokio::test]
async fn what_a_compaction_gave_is_taken_as_input_in_every_mode() {
    in_every_mode(async |mode| {
        let (server, model, _tools) =
            server_with_model(vec![Scene::Say("Blue, size 7."), Scene::Say("It is blue."), Scene::Say("Really.")]).await;
        let made = compacted(&server, json!({ "model": "m", "input": conversation() })).await;
        let mut input = made["output"].as_array().expect("an output").clone();
        input.push(say("Which colour?"));
        let first = server.respond(mode, with(ask("-"), json!({ "input": input }))).await;
        assert_eq!((first.status(), first.text().as_str()), ("completed", "It is blue."));
        let summed_up = ["user: The colour is blue.", "user: And the size is 7.", "user: SUMMARY Blue, size 7.", "user: Which colour?"]
            .map(str::to_owned);
        assert_eq!(last_messages(&model), summed_up, "it is at its place");
        // It is stored as it came, and follow-ups get the same item.
        let items = server.get(&format!("/v1/responses/{}/input_items?order=asc", first.id())).await.ok();
        assert_eq!(kinds(&items["data"]), ["message", "message", "compaction", "message"]);
        assert_eq!(items["data"][2], sealed(&made));
        server.respond(mode, after(&first, json!("Sure?"), &[])).await;
        assert_eq!(last_messages(&model)[..4], summed_up);
        assert_eq!(last_messages(&model)[4..], ["assistant: It is blue.", "user: Sure?"]);
    })
    .await;
}

#[tokio::test]
async fn a_new_chain_begins_on_a_socket_with_what_a_compaction_gave() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("In short."), Scene::Say("one"), Scene::Say("two")]).await;
    let made = compacted(&server, json!({ "model": "m", "input": conversation(), "prompt_cache_key": "k" })).await;
    let mut input = made["output"].as_array().expect("an output").clone();
    input.push(say("go on"));
    let mut socket = server.socket().await;
    let first = socket.respond(json!({ "model": "m", "store": false, "input": input })).await;
    assert_eq!((first.status(), first.text().as_str()), ("completed", "one"));
    let second = socket.respond(with(after(&first, json!("and on"), &[]), json!({ "store": false }))).await;
    assert_eq!(second.text(), "two");
    assert_eq!(last_messages(&model)[2..], ["user: SUMMARY In short.", "user: go on", "assistant: one", "user: and on"]);
}

#[tokio::test]
async fn a_chain_is_compacted_from_its_beginning() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("Noted."), Scene::Say("Fine."), Scene::Say("In short.")]).await;
    let first = server.respond(Mode::Plain, ask("The colour is blue.")).await;
    let second = server.respond(Mode::Plain, after(&first, json!("The size is 7."), &[])).await;
    let made = compacted(&server, json!({ "model": "m", "previous_response_id": second.id() })).await;
    assert_eq!(texts(made["output"].as_array().expect("an output")), ["The colour is blue.", "The size is 7."]);
    let messages = last_messages(&model);
    assert_eq!(messages[..4], ["user: The colour is blue.", "assistant: Noted.", "user: The size is 7.", "assistant: Fine."]);
    assert!(messages.len() == 5 && is_question(&messages[4]), "{messages:#?}");
}

#[tokio::test]
async fn only_the_newest_messages_that_fit_are_kept() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Say("In short.")]).await;
    let long = "x".repeat(30_000);
    let input = json!([say("old"), say(&format!("1{long}")), answer("yes"), say(&format!("2{long}")), say("new")]);
    let made = compacted(&server, json!({ "model": "m", "input": input })).await;
    let output = made["output"].as_array().expect("an output");
    assert_eq!(texts(output).iter().map(|text| &text[..1]).collect::<Vec<_>>(), ["o", "1", "2", "n"], "all of it fits");
    let input = json!([say("old"), say(&long), say(&long), say(&long), say("new")]);
    let made = compacted(&server, json!({ "model": "m", "input": input })).await;
    let output = made["output"].as_array().expect("an output");
    assert_eq!(texts(output).iter().map(|text| text.len()).collect::<Vec<_>>(), [30_000, 30_000, 3], "and nothing from before a gap");
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,AAAA" });
    let input =
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "look" }, image] }, { "role": "system", "content": "s" }]);
    let made = compacted(&server, json!({ "model": "m", "input": input })).await;
    assert_eq!(kinds(&made["output"]), ["message", "compaction"]);
}

#[tokio::test]
async fn a_request_for_a_compaction_is_checked_like_any_other() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("In short.")]).await;
    let refused = async |body: Value| {
        let answer = server.post(PATH, body).await;
        check_refusal(&answer);
        let error = &answer.body["error"];
        (answer.status, error["code"].as_str().unwrap_or_default().to_owned(), error["param"].as_str().unwrap_or_default().to_owned())
    };
    let expected = |code: &str, param: &str| (400, code.to_owned(), param.to_owned());
    assert_eq!(refused(json!({ "input": "hi" })).await, expected("missing_required_parameter", "model"));
    assert_eq!(refused(json!({ "input": "hi", "model": null })).await, expected("missing_required_parameter", "model"));
    assert_eq!(refused(json!({ "input": "hi", "model": 7 })).await, expected("invalid_type", "model"));
    assert_eq!(refused(json!({ "input": "hi", "model": "nobody" })).await, expected("model_not_found", "model"));
    assert_eq!(refused(json!({ "model": "m" })).await, expected("missing_required_parameter", "input"));
    assert_eq!(refused(json!({ "model": "m", "input": 7 })).await, expected("invalid_type", "input"));
    assert_eq!(refused(json!({ "model": "m", "input": [trigger()] })).await, expected("missing_required_parameter", "input"));
    let unknown = refused(json!({ "model": "m", "input": "hi", "previous_response_id": "resp_nope" })).await;
    assert_eq!(unknown, expected("previous_response_not_found", "previous_response_id"));
    let answer = server.post_bytes(PATH, b"{".to_vec()).await;
    assert_eq!((answer.status, answer.code()), (400, "invalid_json"));
    let unknown =
        server.send(server.request(Method::POST, PATH).bearer_auth("unknown").json(&json!({ "model": "m", "input": "hi" }))).await;
    assert_eq!((unknown.status, unknown.code()), (401, "invalid_api_key"));
    assert_eq!(model.asked().len(), 0, "no model was asked");
}

#[tokio::test]
async fn a_summary_that_cannot_be_made_is_an_error_that_says_why() {
    let scenes = [
        (Scene::Fail(400, vec![]), 400, "upstream_refused"),
        (Scene::TooLong, 400, "context_length_exceeded"),
        (Scene::Fail(429, vec![]), 429, "rate_limit_exceeded"),
        (Scene::Fail(503, vec![]), 502, "server_is_overloaded"),
        (Scene::Say(" "), 502, "upstream_bad_answer"),
        (Scene::Call(vec![("f", json!({}))]), 502, "upstream_bad_answer"),
    ];
    for (scene, status, code) in scenes {
        let (server, _model, _tools) = server_with_model_and_config(vec![scene.clone()], "").await;
        let answer: Answer = server.post(PATH, json!({ "model": "m", "input": "hi" })).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{scene:?}: {}", answer.body);
        assert!(answer.body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
}

#[tokio::test]
async fn a_conversation_that_is_too_long_to_be_summed_up_is_summed_up_without_its_beginning() {
    let (server, model, _tools) = server_with_model(vec![Scene::TooLong, Scene::TooLong, Scene::Say("In short.")]).await;
    let input: Vec<Value> = (0..100).map(|n| say(&format!("word number {n:03}"))).collect();
    compacted(&server, json!({ "model": "m", "input": input })).await;
    let messages: Vec<Vec<String>> = model.asked().iter().map(messages_sent).collect();
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [101, 76, 51], "the question is asked of less and less");
    assert!(
        messages
            .iter()
            .all(|messages| messages[messages.len() - 2] == "user: word number 099" && is_question(&messages[messages.len() - 1]))
    );
}

#[tokio::test]
async fn the_same_request_under_a_key_is_the_same_compaction() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("In short."), Scene::Say("otherwise")]).await;
    let body = json!({ "model": "m", "input": conversation() });
    let with_key = |path: &str, body: &Value| server.authorized(Method::POST, path).header("idempotency-key", "k").json(body);
    let first = server.send(with_key(PATH, &body)).await.ok();
    assert_eq!(server.send(with_key(PATH, &body)).await.ok(), first, "to the last byte of its seal");
    assert_eq!(model.asked().len(), 1);
    // A create request with the same body and key is another operation.
    let other = server.send(with_key("/v1/responses", &body)).await;
    assert_eq!((other.status, other.code()), (409, "idempotency_key_reused"));
}

#[tokio::test]
async fn a_trigger_at_the_end_of_an_input_gives_one_compaction_item() {
    in_every_mode(async |mode| {
        let speech = Speech { chunks: vec!["In ".into(), "short.".into()], usage: Some([9, 3, 0]), ..Speech::default() };
        let (server, model, tools) = server_with_model(vec![Scene::Speak(speech), Scene::Say("fine")]).await;
        let mut input = conversation().as_array().expect("a list").clone();
        input.push(trigger());
        let body = json!({ "model": "m", "input": input, "tools": [function("f"), mcp()], "tool_choice": "auto" });
        let made = server.respond(mode, with(body, json!({ "text": { "format": { "type": "json_object" } } }))).await;
        let item = compaction_of(&made);
        check_item_events(&made);
        assert_eq!((&made.object["usage"]["input_tokens"], &made.object["usage"]["output_tokens"]), (&json!(9), &json!(3)));
        assert_eq!(made.object["tools"].as_array().map(Vec::len), Some(2), "the request is repeated as it was");
        let asked = &model.asked()[0];
        assert_eq!((offered(asked).len(), asked.get("response_format"), tools.lists()), (0, None, 0), "{asked:#}");
        assert!(is_question(messages_sent(asked).last().expect("a message")));
        // A client may send it back, refer to it, or continue from the response: the model reads the summary in each case.
        let next = |input: Value| with(ask("-"), json!({ "input": input }));
        server.respond(mode, next(json!([item, say("on")]))).await;
        assert_eq!(last_messages(&model), ["user: SUMMARY In short.", "user: on"]);
        server.respond(mode, next(json!([{ "type": "item_reference", "id": item["id"] }, say("on")]))).await;
        assert_eq!(last_messages(&model), ["user: SUMMARY In short.", "user: on"]);
        server.respond(mode, after(&made, json!("on"), &[])).await;
        let whole = ["user: The colour is blue.", "user: And the size is 7.", "user: SUMMARY In short.", "user: on"];
        assert_eq!(last_messages(&model), whole, "the model's own messages are not sent again");
    })
    .await;
}

#[tokio::test]
async fn a_trigger_continues_a_chain_and_is_only_allowed_at_the_end() {
    let (server, model, _tools) = server_with_model(vec![Scene::Say("Noted."), Scene::Say("In short."), Scene::Say("fine")]).await;
    let first = server.respond(Mode::Streamed, ask("The colour is blue.")).await;
    let made = server.respond(Mode::Streamed, after(&first, json!([trigger()]), &[])).await;
    compaction_of(&made);
    assert_eq!(last_messages(&model)[..2], ["user: The colour is blue.", "assistant: Noted."]);
    for mode in [Mode::Plain, Mode::Socket] {
        let refused = server.refusal(mode, with(ask("-"), json!({ "input": [say("a"), trigger(), say("b")] }))).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("input[1]")), "{}", refused.body);
        let refused = server.refusal(mode, with(ask("-"), json!({ "input": [trigger()] }))).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("input")), "{}", refused.body);
    }
    // A text that only looks like a trigger is a text.
    let made = server.respond(Mode::Plain, ask("compaction_trigger")).await;
    assert_eq!(made.text(), "fine");
}

#[tokio::test]
async fn every_provider_is_asked_for_a_summary_and_reasoning_is_left_out() {
    for dialect in Dialect::EVERY {
        let speech =
            Speech { reasoning: Some("Hm."), chunks: vec!["In short.".into()], calls: vec![("f", "{}".into())], ..Speech::default() };
        let model = FakeModel::start(vec![Scene::Speak(speech), Scene::Say("fine")]).await;
        let server = ServerBuilder::new(&model.config_in(dialect).replace("name: fake", "name: m")).start().await;
        let body = with(ask_with("-", &[function("f")]), json!({ "input": [say("hi"), trigger()], "reasoning": { "effort": "low" } }));
        let item = compaction_of(&server.respond(Mode::Streamed, body).await);
        let next = server.respond(Mode::Streamed, with(ask("-"), json!({ "input": [item, say("on")] }))).await;
        assert_eq!(next.text(), "fine", "{dialect:?}");
        assert!(model.asked()[1].to_string().contains("In short."), "{dialect:?}");
    }
}

#[tokio::test]
async fn only_its_tenant_reads_or_makes_a_summary() {
    let (model, tools) = (FakeModel::start(vec![Scene::Say("In short.")]).await, McpServer::start().await);
    let server = server_for_model(&model, &tools, TWO_TENANTS).await;
    let item = sealed(&compacted(&server, json!({ "model": "m", "input": conversation() })).await);
    let changed = |change: &dyn Fn(&str) -> String| {
        let mut other = item.clone();
        other["encrypted_content"] = change(item["encrypted_content"].as_str().expect("a text")).into();
        other
    };
    let broken = [
        changed(&|text| text[1..].to_owned()),
        changed(&|text| text.replace(|c: char| c.is_ascii_lowercase(), "a")),
        changed(&|_| String::new()),
        changed(&|_| "gAAAAABpM0Yj-from-somewhere-else=".to_owned()),
    ];
    let asked = model.asked().len();
    let check = async |server: &Server, item: &Value| {
        for mode in Mode::every() {
            let refused = server.refusal(*mode, with(ask("-"), json!({ "input": [say("hi"), item] }))).await;
            let error = &refused.body["error"];
            assert_eq!((refused.status, refused.code()), (400, "invalid_encrypted_content"), "{}", refused.body);
            assert_eq!(error["param"], "input[1].encrypted_content", "{}", refused.body);
            assert!(
                error["message"].as_str().is_some_and(|message| message.contains("compact the conversation again")),
                "{}",
                refused.body
            );
        }
        let refused = server.post(PATH, json!({ "model": "m", "input": [item] })).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_encrypted_content"), "{}", refused.body);
    };
    for item in &broken {
        check(&server, item).await;
    }
    let server = server.with_token("other-token-of-22-characters");
    check(&server, &item).await;
    assert_eq!(model.asked().len(), asked, "no model was asked");
    let server = server.with_token("test-token-of-22-characters");
    server.respond(Mode::Plain, with(ask("-"), json!({ "input": [item.clone(), say("on")] }))).await;
    // A server without the key can't open it.
    if Store::of_this_program() == Store::Sqlite {
        server.database().batch("DELETE FROM seal_canary");
        let server = server.restart(&[("WINDLASS_SEAL_KEY", &"ab".repeat(32))]).await;
        check(&server, &json!({ "type": "compaction", "encrypted_content": item["encrypted_content"] })).await;
    }
}

#[tokio::test]
async fn a_kill_during_a_compaction_changes_nothing_of_it() {
    for point in ["effect.model_call.before:1", "effect.model_call.after:1", "commit.end.before:1", "commit.end.after:1"] {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("In short.")]).await;
        let mut server = server.restart(&[("WINDLASS_CRASH_AT", point)]).await;
        let body = with(ask("-"), json!({ "input": [say("hi"), trigger()] }));
        let request =
            server.authorized(Method::POST, "/v1/responses").header("idempotency-key", "k").json(&Mode::Background.asks(body.clone()));
        let _ = server.try_send(request).await;
        server.gone().await;
        let server = server.restart(&[]).await;
        // Every read returns the same response, as an object and as events.
        let made = server.ask_with(Mode::Background, body, &[("idempotency-key", "k")]).made(&server).await;
        let item = compaction_of(&made);
        check_item_events(&made);
        assert_eq!(server.number("SELECT count(*) FROM runs"), 1, "{point}");
        server.respond(Mode::Streamed, with(ask("-"), json!({ "input": [item, say("on")] }))).await;
        assert_eq!(last_messages(&model), ["user: SUMMARY In short.", "user: on"], "{point}");
    }
}

#[tokio::test]
async fn with_truncation_auto_a_run_whose_prompt_is_too_long_continues_from_a_summary() {
    in_every_mode(async |mode| {
        let speak = |text: &str, usage| Scene::Speak(Speech { chunks: vec![text.to_owned()], usage: Some(usage), ..Speech::default() });
        let scenes = vec![
            Scene::Call(vec![("echo", json!({ "text": "alpha" }))]),
            Scene::TooLong,
            speak("It said alpha.", [10, 2, 0]),
            speak("So it is alpha.", [5, 1, 0]),
            Scene::Say("Yes."),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let input = json!([{ "role": "developer", "content": "Be brief." }, say("What is it?")]);
        let body = with(ask_with("-", &[mcp()]), json!({ "input": input, "truncation": "auto" }));
        let made = server.respond(mode, body).await;
        assert_eq!((made.status(), made.shape()), ("completed", vec!["mcp_call".to_owned(), "message".to_owned()]));
        assert_eq!((made.text().as_str(), &made.object["truncation"]), ("So it is alpha.", &json!("auto")));
        assert_eq!(
            (&made.object["usage"]["input_tokens"], &made.object["usage"]["output_tokens"]),
            (&json!(15), &json!(3)),
            "the summary counts"
        );
        let asked = model.asked();
        let messages = messages_sent(&asked[2]);
        assert!(is_question(messages.last().expect("a message")) && offered(&asked[2]).is_empty(), "{messages:#?}");
        let rest = ["system: Be brief.", "user: What is it?"];
        let plain =
            |request: &Value| messages_sent(request).iter().map(|message| message.replace("developer:", "system:")).collect::<Vec<_>>();
        assert_eq!(plain(&asked[3])[..2], rest, "what is above the conversation holds, and what was asked");
        assert!(plain(&asked[3])[2].ends_with("It said alpha.") && plain(&asked[3]).len() == 3, "{:#?}", plain(&asked[3]));
        assert_eq!(offered(&asked[3]).len(), offered(&asked[1]).len(), "and it has its tools again");
        // A follow-up of the response continues from the summary.
        server.respond(mode, after(&made, json!("Sure?"), &[])).await;
        assert_eq!(last_messages(&model)[2..], ["user: SUMMARY It said alpha.", "assistant: So it is alpha.", "user: Sure?"]);
    })
    .await;
}

#[tokio::test]
async fn without_truncation_too_much_to_read_is_an_error_with_a_name() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::TooLong]).await;
        for more in [json!({}), json!({ "truncation": "disabled" })] {
            let made = server.respond(mode, with(ask("hi"), more)).await;
            assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!("context_length_exceeded")));
        }
        assert_eq!(model.asked().len(), 2, "nothing is summed up without a request for it");
        // With it, a response whose conversation stays too long fails in the end.
        let made = server.respond(mode, with(ask("hi"), json!({ "truncation": "auto" }))).await;
        assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!("context_length_exceeded")));
    })
    .await;
}

/// A server whose model has this context window in the configuration.
async fn narrow(model: &FakeModel, tokens: u32, more: &str) -> Server {
    let config = model.config().replace("name: fake", &format!("name: m, context: {tokens}"));
    ServerBuilder::new(&format!("{config}{more}")).start().await
}

#[tokio::test]
async fn a_budget_of_context_has_a_run_summed_up_before_the_model_would_refuse_it() {
    let model = FakeModel::start(vec![Scene::Say("In short."), Scene::Say("done"), Scene::Say("all of it")]).await;
    let server = narrow(&model, 1000, "").await;
    let long = "x".repeat(8000);
    let input = json!([say("Remember this."), answer(&long), say("Now?")]);
    let body = with(ask("-"), json!({ "input": input }));
    let made = server.respond(Mode::Streamed, with(body.clone(), json!({ "truncation": "auto" }))).await;
    assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
    let asked = model.asked();
    assert!(is_question(messages_sent(&asked[0]).last().expect("a message")), "{:#?}", messages_sent(&asked[0]));
    assert!(asked[0].to_string().len() < 4000, "what is summed up fits too");
    assert_eq!(last_messages(&model), ["user: Remember this.", "user: Now?", "user: SUMMARY In short."]);
    // Nothing is dropped unless the client asked for it.
    let made = server.respond(Mode::Streamed, body).await;
    assert_eq!(made.text(), "all of it");
    assert_eq!(messages_sent(&model.asked()[2]).len(), 3);
}

#[tokio::test]
async fn an_agent_whose_model_has_a_budget_of_context_is_summed_up_too() {
    let model = FakeModel::start(vec![Scene::Say("In short."), Scene::Say("done")]).await;
    let server = narrow(&model, 1000, "").await;
    let run = server.enqueue("alice", &"x".repeat(8000)).await;
    server.ended(&run).await;
    let journal = server.journal(&run).await;
    let events: Vec<&str> = journal.iter().filter_map(|entry| entry["event"]["kind"].as_str()).collect();
    assert_eq!(events, ["accepted", "leased", "lap_started", "attempt_failed", "compacting", "compacted", "replied", "ended"]);
    assert_eq!(model.asked().len(), 2);
}

#[tokio::test]
async fn a_kill_around_a_runs_own_summary_loses_nothing_of_it() {
    // In each case the server dies once, and the run ends as if it had not.
    for (point, calls) in [("commit.retry.after:1", 3), ("commit.resume.before:1", 4), ("commit.resume.after:1", 3)] {
        for mode in [Mode::Background, Mode::Followed] {
            let scenes = vec![Scene::TooLong, Scene::Say("In short."), Scene::Say("In short.")];
            let (server, model, _tools) = server_with_model(scenes).await;
            let mut server = server.restart(&[("WINDLASS_CRASH_AT", point)]).await;
            let body = with(ask("What is it?"), json!({ "truncation": "auto" }));
            let request = server.authorized(Method::POST, "/v1/responses").header("idempotency-key", "k").json(&mode.asks(body.clone()));
            let _ = server.try_send(request).await;
            server.gone().await;
            let server = server.restart(&[]).await;
            let made = server.ask_with(mode, body, &[("idempotency-key", "k")]).made(&server).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "In short."), "{point}");
            assert_eq!(last_messages(&model), ["user: What is it?", "user: SUMMARY In short."], "{point}");
            assert_eq!(model.asked().len(), calls, "{point}: a summary that is on record is not asked for again");
        }
    }
}
