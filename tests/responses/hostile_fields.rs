//! Every field of a request with every wrong type, every parameter and id with nonsense in it: the answer is 400 or 404 in the shape that
//! OpenAI's clients parse, never an internal error, and nothing is stored.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, Mode, Server, responses::check_refusal};

use crate::support::{ask, scripted, with};

/// A request with all documented fields that can be combined.
fn everything() -> Value {
    let plain = json!({
        "model": "m", "instructions": "be brief", "previous_response_id": null, "conversation": null,
        "store": true, "background": false, "stream": false, "parallel_tool_calls": true,
        "temperature": 1.0, "top_p": 0.5, "top_logprobs": 2, "presence_penalty": 0.5, "frequency_penalty": 0.5,
        "max_output_tokens": 100, "max_tool_calls": 5, "max_turns": 5,
        "truncation": "auto", "service_tier": "auto", "user": "u", "safety_identifier": "s", "prompt_cache_key": "p",
        "include": ["reasoning.encrypted_content"], "metadata": { "k": "v" },
    });
    let more = json!({
        "reasoning": { "effort": "low", "summary": "auto" },
        "text": {
            "verbosity": "low",
            "format": { "type": "json_schema", "name": "n", "description": "d", "strict": true, "schema": {} },
        },
        "tools": [
            { "type": "function", "name": "f", "description": "d", "parameters": {}, "strict": false },
            { "type": "namespace", "name": "group", "description": "d", "tools": [{ "type": "function", "name": "g" }, { "type": "function", "name": "h" }] },
            {
                "type": "mcp", "server_label": "tools", "server_description": "d", "headers": { "x-a": "b" }, "authorization": "a",
                "allowed_tools": ["echo"], "require_approval": "never",
            },
        ],
        "tool_choice": { "type": "function", "name": "f" }, "allowed_tools": ["f"],
        "windlass": { "max_turns": 4, "tools": ["look_up"], "budgets": { "tokens": 1000, "wall_time_s": 60 } },
        "input": [
            { "type": "message", "role": "user", "id": "msg_1", "status": "completed", "content": [
                { "type": "input_text", "text": "hi" },
                { "type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low" },
                { "type": "input_file", "filename": "f", "file_data": "data:text/plain;base64,AAAA" },
            ] },
            { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "t" }], "encrypted_content": "e" },
            { "type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed" },
            { "type": "function_call_output", "call_id": "c", "output": "o" },
        ],
    });
    with(plain, more)
}

/// Fields that may have another type than in the request above, with that type.
const ALSO: [(&str, &str); 9] = [
    ("input", "string"),
    ("input[0].content", "string"),
    ("input[3].output", "array"),
    ("tool_choice", "string"),
    ("conversation", "string"),
    ("conversation", "object"),
    ("previous_response_id", "string"),
    ("tools[2].allowed_tools", "object"),
    ("tools[2].require_approval", "object"),
];

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Every value in a body: its JSON pointer, and its name in an error.
fn places(value: &Value, pointer: &str, param: &str, found: &mut Vec<(String, String)>) {
    let inner: Vec<(String, String, &Value)> = match value {
        Value::Object(members) => {
            let dot = if param.is_empty() { "" } else { "." };
            members.iter().map(|(key, value)| (format!("{pointer}/{key}"), format!("{param}{dot}{key}"), value)).collect()
        }
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(index, value)| (format!("{pointer}/{index}"), format!("{param}[{index}]"), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (pointer, param, value) in inner {
        found.push((pointer.clone(), param.clone()));
        places(value, &pointer, &param, found);
    }
}

/// Whether an answer refuses this value: the error names the value itself, or a field that is missing in it.
fn is_named(answer: &Answer, place: &str) -> bool {
    let Some(param) = answer.body["error"]["param"].as_str() else { return false };
    check_refusal(answer);
    let is_there = param.strip_prefix(place).is_some_and(|rest| place.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']));
    // Any text can be the name of a conversation; only no conversation has that name.
    let is_refused = answer.status == 400 || (answer.status, param) == (404, "conversation");
    is_refused && is_there
}

fn check_no_fault(server: &Server) {
    let log = server.log();
    assert!(!log.contains("by our own fault") && !log.contains("panic"), "{log}");
}

#[tokio::test]
async fn a_046_every_field_with_every_wrong_type_is_named() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let whole = everything();
    assert_eq!(server.post("/v1/responses", whole.clone()).await.status, 200, "the request itself is right");
    let (mut taken, mut faults) = (1, Vec::new());
    let mut found = Vec::new();
    places(&whole, "", "", &mut found);
    assert!(found.len() > 90, "{found:?}");
    let values = [json!(null), json!(true), json!(7), json!("x"), json!([1]), json!({ "a": 1 })];
    for (pointer, param) in &found {
        let is = kind(whole.pointer(pointer).expect("it was found there"));
        for value in values.iter().filter(|value| kind(value) != is) {
            let mut body = whole.clone();
            *body.pointer_mut(pointer).expect("it was found there") = value.clone();
            let answer = server.post("/v1/responses", body).await;
            let is_taken = answer.status == 200;
            taken += i64::from(is_taken);
            let is_right = match is_taken {
                true => value.is_null() || ALSO.contains(&(param.as_str(), kind(value))),
                // A null field counts as absent, which may make another field wrong.
                false => is_named(&answer, if value.is_null() { "" } else { param }),
            };
            if !is_right {
                faults.push(format!("{param} as {value}: {} {}", answer.status, answer.body["error"]));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(server.number("SELECT count(*) FROM runs"), taken, "what is refused leaves nothing behind");
    check_no_fault(&server);
}

#[tokio::test]
async fn text_that_stores_stumble_over_is_kept_or_refused() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let odd = "a\u{0}b\u{fffe}\u{feff}\u{202e}'\"\\;--";
    let mut found = Vec::new();
    places(&everything(), "", "", &mut found);
    let mut taken = 0;
    for (pointer, param) in found {
        let mut body = everything();
        let place = body.pointer_mut(&pointer).expect("it was found there");
        if !place.is_string() && !place.is_null() {
            continue;
        }
        *place = odd.into();
        let answer = server.post("/v1/responses", body).await;
        match answer.status {
            200 => taken += 1,
            _ => {
                check_refusal(&answer);
                assert_eq!(answer.status, 400, "{param}: {}", answer.body);
            }
        }
    }
    assert!(taken > 10, "{taken}");
    let made = server.respond(Mode::Streamed, with(ask(odd), json!({ "metadata": { "k\u{0}": odd }, "user": odd }))).await;
    assert_eq!(made.object["metadata"]["k\u{0}"], odd, "byte for byte");
    let items = server.get(&format!("/v1/responses/{}/input_items", made.id())).await.ok();
    assert_eq!(items["data"][0]["content"][0]["text"], odd, "byte for byte");
    check_no_fault(&server);
}

fn check_named(answer: &Answer, param: &str, what: &str) {
    check_refusal(answer);
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(param)), "{what}: {}", answer.body);
}

#[tokio::test]
async fn a_046_wrong_parameters_of_a_query_are_named() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let made = server.respond(Mode::Streamed, ask("hi")).await;
    let path = format!("/v1/responses/{}", made.id());
    for (query, param) in [
        ("stream=maybe", "stream"),
        ("stream=", "stream"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=abc", "starting_after"),
        ("stream=true&starting_after=1.5", "starting_after"),
        ("stream=true&starting_after=", "starting_after"),
        ("stream=true&starting_after=99999999999999999999999", "starting_after"),
        ("stream=true&starting_after=18446744073709551615", "starting_after"),
        ("stream=true&starting_after=%00", "starting_after"),
        ("starting_after=1", "starting_after"),
    ] {
        check_named(&server.get(&format!("{path}?{query}")).await, param, query);
    }
    for (query, param) in [
        ("limit=abc", "limit"),
        ("limit=-1", "limit"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=99999999999999999999999", "limit"),
        ("limit=", "limit"),
        ("order=x", "order"),
        ("order=", "order"),
        ("after=unknown", "after"),
        ("after=", "after"),
        ("after=%00%FF", "after"),
    ] {
        check_named(&server.get(&format!("{path}/input_items?{query}")).await, param, query);
    }
    for query in ["", "?", "?nobody_knows=1", "?include[]=x&include[]=y", "?%FF=%FE", "?&&=&=", "?stream=false"] {
        assert_eq!(server.get(&format!("{path}{query}")).await.ok(), made.object, "{query}");
    }
    check_no_fault(&server);
}

#[tokio::test]
async fn a_046_ids_that_are_none_are_not_found() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let made = server.respond(Mode::Streamed, ask("hi")).await;
    let long = format!("resp_{}", "a".repeat(10_000));
    let spelled_otherwise = made.id().to_uppercase();
    let ids =
        ["resp_", "resp_%00", "%00", "a%2Fb", "..%2F..%2Fmodels", "%FF%FE", "%", "%zz", "resp_%F0%9F%98%80", &long, &spelled_otherwise];
    for id in ids {
        for (method, rest) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/cancel"), (Method::GET, "/input_items")] {
            let path = format!("/v1/responses/{id}{rest}");
            let answer = server.send(server.request(method.clone(), &path)).await;
            check_refusal(&answer);
            assert_eq!(answer.status, 404, "{method} {id}{rest}: {}", answer.body);
            assert!(answer.body.to_string().len() < 1000, "a refusal does not repeat all of it");
        }
        let follow_up = server.refusal(Mode::Plain, with(ask("hi"), json!({ "previous_response_id": id }))).await;
        check_named(&follow_up, "previous_response_id", id);
        let model = server.get(&format!("/v1/models/{id}")).await;
        check_refusal(&model);
        assert_eq!(model.status, 404, "{id}");
    }
    for path in ["/v1/responses/", "/v1/responses//cancel", "/v1/responses/x/y/z"] {
        let answer = server.get(path).await;
        check_refusal(&answer);
        assert!([404, 405].contains(&answer.status), "{path}: {}", answer.body);
    }
    assert_eq!(server.response(made.id()).await, made.object);
    check_no_fault(&server);
}
