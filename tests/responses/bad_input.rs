//! Invalid requests: each gets a 400 that names the parameter, in the shape that OpenAI's clients parse, and changes nothing.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Mode, Scene, ServerBuilder, in_every_mode, responses::check_refusal};

use crate::support::{ask, ask_with, function, messages_sent, offered, scripted, server_with_model, with};

fn user(content: Value) -> Value {
    json!({ "role": "user", "content": content })
}

/// Fields in addition to an input, the parameter that the error names, and its code.
fn fields() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!({ "model": 7 }), "model", "invalid_type"),
        (json!({ "model": "nope" }), "model", "model_not_found"),
        (json!({ "model": "agent/nope" }), "model", "model_not_found"),
        (json!({ "input": null }), "input", "missing_required_parameter"),
        (json!({ "input": 7 }), "input", "invalid_type"),
        (json!({ "input": {} }), "input", "invalid_type"),
        (json!({ "input": [] }), "input", "missing_required_parameter"),
        (json!({ "stream": "yes" }), "stream", "invalid_type"),
        (json!({ "store": 1 }), "store", "invalid_type"),
        (json!({ "background": "no" }), "background", "invalid_type"),
        (json!({ "instructions": ["x"] }), "instructions", "invalid_type"),
        (json!({ "temperature": "hot" }), "temperature", "invalid_type"),
        (json!({ "temperature": 2.1 }), "temperature", "decimal_above_max_value"),
        (json!({ "temperature": -0.1 }), "temperature", "decimal_below_min_value"),
        (json!({ "top_p": 1.5 }), "top_p", "decimal_above_max_value"),
        (json!({ "top_logprobs": 21 }), "top_logprobs", "integer_above_max_value"),
        (json!({ "max_output_tokens": 15 }), "max_output_tokens", "integer_below_min_value"),
        (json!({ "max_output_tokens": 16.5 }), "max_output_tokens", "invalid_type"),
        (json!({ "max_tool_calls": 0 }), "max_tool_calls", "integer_below_min_value"),
        (json!({ "max_turns": 0 }), "max_turns", "integer_below_min_value"),
        (json!({ "max_turns": 1001 }), "max_turns", "integer_above_max_value"),
        (json!({ "parallel_tool_calls": "no" }), "parallel_tool_calls", "invalid_type"),
        (json!({ "truncation": "some" }), "truncation", "invalid_value"),
        (json!({ "service_tier": 3 }), "service_tier", "invalid_type"),
        (json!({ "metadata": [] }), "metadata", "invalid_type"),
        (json!({ "metadata": { "k": 1 } }), "metadata.k", "invalid_type"),
        (json!({ "metadata": { "k": "v".repeat(513) } }), "metadata.k", "string_above_max_length"),
        (json!({ "include": "all" }), "include", "invalid_type"),
        (json!({ "reasoning": { "effort": "huge" } }), "reasoning.effort", "invalid_value"),
        (json!({ "text": { "format": { "type": "xml" } } }), "text.format.type", "invalid_value"),
        (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format.name", "missing_required_parameter"),
        (json!({ "previous_response_id": 5 }), "previous_response_id", "invalid_type"),
        (json!({ "previous_response_id": "resp_x" }), "previous_response_id", "previous_response_not_found"),
        (json!({ "windlass": 1 }), "windlass", "invalid_type"),
        (json!({ "windlass": { "tools": ["nope"] } }), "windlass.tools", "unknown_tool"),
        (json!({ "windlass": { "max_turns": "x" } }), "windlass.max_turns", "invalid_type"),
        (json!({ "windlass": { "budgets": { "tokens": 0 } } }), "windlass.budgets.tokens", "integer_below_min_value"),
        (json!({ "windlass": { "budgets": { "wall_time_s": 0 } } }), "windlass.budgets.wall_time_s", "decimal_below_min_value"),
        (json!({ "store": false, "background": true }), "background", "invalid_value"),
    ]
}

/// Tools and choices.
fn tools() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!({ "tools": {} }), "tools", "invalid_type"),
        (json!({ "tools": ["f"] }), "tools[0]", "invalid_type"),
        (json!({ "tools": [{}] }), "tools[0].type", "missing_required_parameter"),
        (json!({ "tools": [{ "type": "function" }] }), "tools[0].name", "missing_required_parameter"),
        (json!({ "tools": [{ "type": "function", "name": "a b" }] }), "tools[0].name", "invalid_value"),
        (json!({ "tools": [{ "type": "function", "name": "a".repeat(65) }] }), "tools[0].name", "string_above_max_length"),
        (json!({ "tools": [function("f"), function("f")] }), "tools[1].name", "invalid_value"),
        (json!({ "tools": [{ "type": "function", "name": "f", "parameters": [] }] }), "tools[0].parameters", "invalid_type"),
        (json!({ "tools": [{ "type": "mcp" }] }), "tools[0].server_label", "missing_required_parameter"),
        (json!({ "tools": [{ "type": "mcp", "server_label": "x", "server_url": "ftp://x" }] }), "tools[0].server_url", "invalid_value"),
        (json!({ "tool_choice": "maybe" }), "tool_choice", "invalid_value"),
        (json!({ "tool_choice": 1 }), "tool_choice", "invalid_type"),
        (json!({ "tool_choice": {} }), "tool_choice.type", "missing_required_parameter"),
        (json!({ "tool_choice": { "type": "function", "name": "f" } }), "tool_choice", "invalid_value"),
        (json!({ "tool_choice": { "type": "allowed_tools", "tools": [] } }), "tool_choice.tools", "invalid_value"),
        (json!({ "allowed_tools": "f" }), "allowed_tools", "invalid_type"),
    ]
}

/// Items of the input.
fn items() -> Vec<(Value, &'static str, &'static str)> {
    let at = |item: Value| json!({ "input": [user(json!("hi")), item] });
    vec![
        (at(json!("x")), "input[1]", "invalid_type"),
        (at(json!({})), "input[1].type", "missing_required_parameter"),
        (at(json!({ "role": "king", "content": "x" })), "input[1].role", "invalid_value"),
        (at(json!({ "role": "user" })), "input[1].content", "missing_required_parameter"),
        (at(user(json!(7))), "input[1].content", "invalid_type"),
        (at(user(json!([{ "text": "x" }]))), "input[1].content[0].type", "missing_required_parameter"),
        (at(user(json!([{ "type": "input_text" }]))), "input[1].content[0].text", "missing_required_parameter"),
        (at(json!({ "type": "function_call", "name": "f", "arguments": "{}" })), "input[1].call_id", "missing_required_parameter"),
        (at(json!({ "type": "function_call_output", "output": "x" })), "input[1].call_id", "missing_required_parameter"),
        (at(json!({ "type": "function_call_output", "call_id": "c" })), "input[1].output", "missing_required_parameter"),
        (at(json!({ "type": "function_call_output", "call_id": "call_nope", "output": "x" })), "input[1].call_id", "unknown_call_id"),
        (at(json!({ "type": "item_reference", "id": "msg_nope" })), "input[1].id", "item_not_found"),
    ]
}

#[tokio::test]
async fn a_046_every_wrong_request_gets_a_400_that_names_the_parameter() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    in_every_mode(async |mode| {
        for (more, param, code) in fields().into_iter().chain(tools()).chain(items()) {
            if mode == Mode::Socket && ["stream", "background"].iter().any(|word| more.get(word).is_some()) {
                // A socket always streams, whatever the request says.
                continue;
            }
            // The case's own fields override those of the mode.
            let body = with(mode.asks(ask("hi")), more.clone());
            let answer = match mode {
                Mode::Socket => server.socket().await.refusal(body).await,
                Mode::Plain | Mode::Streamed | Mode::Background | Mode::Followed => server.post("/v1/responses", body).await,
            };
            check_refusal(&answer);
            let error = &answer.body["error"];
            assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{more}: {}", answer.body);
            assert_eq!((&error["param"], answer.code()), (&json!(param), code), "{more}: {}", answer.body);
        }
    })
    .await;
    assert_eq!(server.number("SELECT count(*) FROM runs"), 0, "nothing is left behind");
    assert!(!server.log().contains("by our own fault"), "{}", server.log());
}

#[tokio::test]
async fn a_046_a_body_that_is_no_request_is_refused() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    for (body, code) in [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("nonsense", "invalid_json"),
        (r#"{"input":"hi","input":"ho"}"#, "invalid_json"),
        ("[]", "invalid_type"),
        ("null", "invalid_type"),
        ("\u{feff}{}", "invalid_json"),
    ] {
        let answer = server.post_bytes("/v1/responses", body.as_bytes().to_vec()).await;
        check_refusal(&answer);
        assert_eq!((answer.status, answer.code()), (400, code), "{body:?}");
    }
    let packed = server.request(Method::POST, "/v1/responses").header("content-encoding", "gzip").json(&ask("hi"));
    let answer = server.send(packed).await;
    check_refusal(&answer);
    assert_eq!(answer.status, 415);
    let large = ask(&"x".repeat(9 << 20));
    let answer = server.post("/v1/responses", large).await;
    check_refusal(&answer);
    assert!([400, 413].contains(&answer.status), "{}", answer.status);
}

#[tokio::test]
async fn a_046_unknown_fields_items_and_tools_are_tolerated() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("fine")]).await;
        let odd = json!({
            "client_metadata": { "a": [1, { "b": null }] }, "generate": true, "prompt": { "id": "p" }, "nobody_knows": [1],
            "tools": [{ "type": "last_year" }, { "type": "custom", "name": "patch" }, { "type": "next_year", "x": 1 }],
            "input": [
                { "role": "developer", "content": "d" },
                { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi", "novel": 1 }] },
                { "role": "assistant", "content": "before", "phase": "commentary", "id": "msg_x", "status": "completed" },
                { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null },
                { "type": "next_years_item", "x": 1 },
                { "type": "function_call", "call_id": "c1", "name": "f", "arguments": "not JSON" },
                { "type": "function_call_output", "call_id": "c1", "output": [{ "type": "input_text", "text": "o" }] },
            ],
        });
        let made = server.respond(mode, with(ask(""), odd)).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "fine"));
        // The model gets everything that it can read, and nothing else.
        let sent = &model.asked()[0];
        assert_eq!(messages_sent(sent), ["system: d", "user: hi", "assistant: before +f", "tool: o"]);
        assert_eq!(offered(sent), ["patch"]);
    })
    .await;
}

#[tokio::test]
async fn unknown_and_unauthorized_clients_get_an_error() {
    let config = "
models: [ { name: m, provider: scripted } ]
auth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: narrow-token-of-22-characters, scopes: ['runs:read'] } ] }
";
    let server = ServerBuilder::new(config).start().await;
    let made = server.respond(Mode::Plain, ask("hi")).await;
    let paths = [
        (Method::POST, "/v1/responses".to_owned()),
        (Method::GET, format!("/v1/responses/{}", made.id())),
        (Method::GET, format!("/v1/responses/{}?stream=true", made.id())),
        (Method::POST, format!("/v1/responses/{}/cancel", made.id())),
        (Method::GET, format!("/v1/responses/{}/input_items", made.id())),
        (Method::DELETE, format!("/v1/responses/{}", made.id())),
        (Method::GET, "/v1/models".to_owned()),
    ];
    for (method, path) in paths {
        for (token, status, code) in [("wrong", 401, "invalid_api_key"), ("narrow-token-of-22-characters", 403, "insufficient_permissions")]
        {
            let request = server.request(method.clone(), &path).bearer_auth(token).json(&ask("hi"));
            let answer = server.send(request).await;
            check_refusal(&answer);
            assert_eq!((answer.status, answer.code()), (status, code), "{method} {path}");
        }
    }
    assert_eq!(server.response(made.id()).await, made.object);
}

#[tokio::test]
async fn what_is_not_there_is_a_404() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    for id in ["resp_00000000000000000000000000000007", "resp_x", "x", "run_1", "resp_ZZ000000000000000000000000000007", "%00", "..%2f.."] {
        for (method, path) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/cancel"), (Method::GET, "/input_items")] {
            let answer = server.send(server.request(method.clone(), &format!("/v1/responses/{id}{path}"))).await;
            check_refusal(&answer);
            assert_eq!(answer.status, 404, "{method} {id}{path}: {}", answer.body);
        }
    }
    // A run of the agents API is not a response.
    let run = server.enqueue("ada", "hi").await;
    server.ended(&run).await;
    let id = run.replace("run_", "resp_");
    assert_eq!(server.get(&format!("/v1/responses/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_046_arguments_that_are_no_json_are_reported_to_the_model() {
    let script = "laps: [ { calls: [{ tool: echo, arguments: '{broken' }, { tool: echo, arguments: '' }] }, { text: sorry } ]";
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[crate::support::mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "sorry"));
        let calls = made.items("mcp_call");
        assert_eq!((&calls[0]["status"], &calls[1]["status"]), (&json!("failed"), &json!("completed")));
        assert_eq!(calls[0]["arguments"], "{broken", "as the model wrote them");
    })
    .await;
    assert_eq!(tools.starts("echo").len(), Mode::every().len());
}

#[tokio::test]
async fn many_items_and_large_ones_are_taken() {
    let (server, _tools) = scripted("laps: [ { text: fine } ]").await;
    let items: Vec<Value> = (0..2_000).map(|number| user(json!(format!("n{number}")))).collect();
    let made = server.respond(Mode::Streamed, json!({ "model": "m", "input": items })).await;
    assert_eq!(made.text(), "fine");
    let large = server.respond(Mode::Streamed, ask(&"x".repeat(2 << 20))).await;
    assert_eq!(large.text(), "fine");
}
