//! Errors: the model gets those of tools; those of a provider end the response.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_tests::{FakeModel, McpServer, Mode, Scene, ServerBuilder, in_every_mode, until};

use crate::support::{
    ask, ask_with, call_outcome, declared, mcp, messages_sent, scripted, server_with_model, server_with_model_and_config, with,
};

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

#[tokio::test]
async fn a_033_a_tools_error_is_a_result_and_the_loop_continues() {
    in_every_mode(async |mode| {
        let (server, model, _tools) =
            server_with_model(vec![Scene::Call(vec![("fail", json!({})), echo("fine")]), Scene::Say("never mind")]).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "never mind"));
        let calls = made.items("mcp_call");
        assert_eq!(call_outcome(&calls[0]), ("failed".into(), String::new(), "it did not work".into()));
        assert_eq!(call_outcome(&calls[1]), ("completed".into(), "fine".into(), String::new()));
        assert_eq!(made.object["error"], Value::Null);
        let messages = messages_sent(&model.asked()[1]);
        assert!(messages[2].contains("it did not work"), "{messages:?}");
    })
    .await;
}

#[tokio::test]
async fn a_033_an_error_that_a_service_reports_is_a_result_too() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Call(vec![("look_up", json!({}))]), Scene::Say("never mind")]).await;
        let asked = server.ask(mode, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } })));
        let call = server.claim("look_up").await;
        let body = json!({
            "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "failed", "result": "no such thing",
        });
        server.post(&format!("/v1/agents/{}/report", call["agent_id"].as_str().expect("an agent")), body).await.ok();
        let made = asked.made(&server).await;
        assert_eq!(made.text(), "never mind");
        assert_eq!(call_outcome(&made.items("mcp_call")[0]), ("failed".into(), String::new(), "no such thing".into()));
        assert!(messages_sent(&model.asked()[1])[2].contains("no such thing"));
    })
    .await;
}

#[tokio::test]
async fn a_034_all_calls_of_an_iteration_failing_does_not_end_the_loop() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::Call(vec![("fail", json!({})), ("nobody", json!({})), ("echo", json!([1]))]),
            Scene::Call(vec![echo("better")]),
            Scene::Say("done"),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"));
        let statuses: Vec<Value> = made.items("mcp_call").iter().map(|call| call["status"].clone()).collect();
        assert_eq!(statuses, ["failed", "failed", "failed", "completed"]);
        assert_eq!(model.asked().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_035_a_call_of_a_tool_that_the_request_did_not_list_is_an_error_for_the_model() {
    in_every_mode(async |mode| {
        // The tool is configured, but this request does not include it.
        let (server, model, tools) =
            server_with_model(vec![Scene::Call(vec![("look_up", json!({})), echo("hi")]), Scene::Say("I see")]).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "I see"));
        let call = &made.items("mcp_call")[0];
        assert_eq!((&call["status"], &call["name"]), (&json!("failed"), &json!("look_up")));
        let reason = call["error"].as_str().expect("the reason is given");
        assert!(reason.contains("look_up") && reason.contains("echo"), "it names the existing tools: {reason}");
        assert!(messages_sent(&model.asked()[1])[2].contains("there is no tool"));
        assert_eq!(tools.starts("look_up").len(), 0);
        let claimed = server.post("/v1/tools/look_up/claim", json!({ "worker": "w" })).await.ok();
        assert_eq!(claimed["calls"], json!([]), "no service gets it");
        assert_eq!(made.items("function_call").len(), 0, "and it is not the client's");
    })
    .await;
}

#[tokio::test]
async fn a_036_a_037_a_provider_that_fails_in_the_middle_fails_the_response() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Call(vec![echo("kept")]), Scene::Fail(400, Vec::new())]).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), &made.object["windlass"]["status"]), ("failed", &json!("failed")));
        let error = &made.object["error"];
        assert_eq!(error["code"], "server_error");
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains("as the test wants it")),
            "it has the provider's message: {error}"
        );
        assert_eq!(made.object["completed_at"], Value::Null);
        assert_eq!(made.items("mcp_call")[0]["output"], "kept", "what was done before stays");
        let (last, before) = made.events.split_last().expect("events");
        assert_eq!((last.kind(), &last.data["response"]["id"]), ("response.failed", &json!(made.id())));
        let number = |event: &windlass_tests::StreamEvent| event.data["sequence_number"].as_u64();
        assert_eq!(number(last), before.last().and_then(number).map(|number| number + 1), "with the next number");
        assert_eq!(model.asked().len(), 2, "an error that stays is not tried again");
    })
    .await;
}

#[tokio::test]
async fn a_036_a_provider_that_stays_away_fails_the_response_with_a_code_that_clients_act_on() {
    for (status, code) in [(429, "rate_limit_exceeded"), (503, "server_is_overloaded"), (500, "server_error"), (401, "server_error")] {
        let script = format!("rules: [ {{ reply: {{ fail: {{ code: {status}, message: no }} }} }} ]");
        let (server, _tools) = scripted(&script).await;
        let made = server.respond(Mode::Streamed, ask("go")).await;
        assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!(code)), "{status}");
        assert_eq!(made.shape(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_036_a_passing_failure_of_the_provider_is_not_seen() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Fail(503, Vec::new()), Scene::Call(vec![echo("hi")]), Scene::Fail(429, Vec::new()), Scene::Say("done")];
        let (server, model, tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), made.text().as_str(), model.asked().len()), ("completed", "done", 4));
        assert_eq!(tools.starts("echo").len(), 1);
        assert_eq!(made.object["windlass"]["iteration"], 2);
    })
    .await;
}

#[tokio::test]
async fn a_036_a_cut_stream_is_retried_and_repeated_text_is_not_streamed_again() {
    let text = "the same words as before, and then the rest of them";
    for times in [1, 2] {
        let script = format!("laps: [ {{ text: '{text}', chunk: 5, cut_after: {{ chunks: 4, times: {times} }} }} ]");
        let (server, _tools) = scripted(&script).await;
        in_every_mode(async |mode| {
            let made = server.respond(mode, ask("go")).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", text));
            assert_eq!(made.shape(), ["message"], "the cut is invisible");
        })
        .await;
    }
}

#[tokio::test]
async fn a_036_a_cut_stream_that_continues_differently_continues_in_a_new_message() {
    for mode in Mode::every().iter().filter(|mode| mode.streams()) {
        let (server, model, _tools) = server_with_model(vec![Scene::Cut("It was a dark"), Scene::Say("Something else entirely.")]).await;
        let made = server.respond(*mode, ask("go")).await;
        assert_eq!(made.status(), "completed");
        assert_eq!(made.text(), "It was a dark|Something else entirely.");
        assert!(model.asked().len() >= 2);
    }
}

#[tokio::test]
async fn a_036_a_stream_that_is_cut_again_and_again_fails_the_response() {
    let script = "laps: [ { text: never to be heard to its end, chunk: 5, cut_after: 2 } ]";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask("go")).await;
        assert_eq!((made.status(), &made.object["error"]["code"]), ("failed", &json!("stream_cut")));
        assert!(made.items("message").iter().all(|message| message["status"] != "in_progress"));
    })
    .await;
}

#[tokio::test]
async fn a_036_a_tool_server_that_is_down_refuses_the_request_before_it_begins() {
    let (server, _tools) = scripted("laps: [ { text: never } ]").await;
    in_every_mode(async |mode| {
        let down = json!({ "type": "mcp", "server_label": "gone", "server_url": "http://127.0.0.1:9/mcp", "require_approval": "never" });
        let answer = server.refusal(mode, ask_with("go", &[down])).await;
        assert_eq!((answer.status, answer.body["error"]["type"].as_str()), (424, Some("external_connector_error")), "{}", answer.body);
        assert!(answer.body["error"]["param"].as_str().is_some_and(|param| param.starts_with("tools[0]")), "{}", answer.body);
    })
    .await;
}

#[tokio::test]
async fn a_036_a_tool_server_that_does_not_say_its_tools_refuses_the_request_before_it_begins() {
    let tools = McpServer::start().await;
    tools.behave(|manners| manners.list_ms = 600_000);
    let server = ServerBuilder::new(&format!("limits: {{ tool_list: 200ms }}\n{}", tools.config("tools"))).start().await;
    in_every_mode(async |mode| {
        let answer = server.refusal(mode, with(ask_with("go", &[mcp()]), json!({ "model": "offline" }))).await;
        assert_eq!((answer.status, answer.body["error"]["type"].as_str()), (424, Some("external_connector_error")), "{}", answer.body);
    })
    .await;
}

#[tokio::test]
async fn a_036_a_tool_server_that_turns_us_away_in_the_middle_is_an_error_for_the_model() {
    in_every_mode(async |mode| {
        let model = FakeModel::held_back(vec![Scene::Call(vec![echo("one")]), Scene::Call(vec![echo("two")]), Scene::Say("done")]).await;
        let tools = McpServer::start().await;
        let config = model.config().replace("name: fake", "name: m") + &tools.config("tools");
        let server = ServerBuilder::new(&config).start().await;
        let asked = server.ask(mode, ask_with("go", &[mcp()]));
        model.let_answer();
        model.asked_times(2).await;
        tools.behave(|manners| manners.authorization = Some("Bearer another".to_owned()));
        model.let_answer();
        model.let_answer();
        let made = asked.made(&server).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"), "{:#}", made.object);
        let statuses: Vec<Value> = made.items("mcp_call").iter().map(|call| call["status"].clone()).collect();
        assert_eq!(statuses, ["completed", "failed"]);
    })
    .await;
}

#[tokio::test]
async fn a_038_a_tools_error_is_logged_once_with_tool_and_call_and_without_its_content() {
    let (server, _model, _tools) = server_with_model(vec![Scene::Call(vec![("fail", json!({}))]), Scene::Say("never mind")]).await;
    let made = server.ask_with(Mode::Streamed, ask_with("go", &[mcp()]), &[("windlass-items", "pairs")]).made(&server).await;
    let call = made.items("function_call")[0]["call_id"].as_str().expect("a call has an id").to_owned();
    let log = until("the call is logged", || async { Some(server.log()).filter(|log| log.contains(&call)) }).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&call)).collect();
    assert_eq!(lines.len(), 1, "one line of {call}:\n{log}");
    assert!(["WARN", "a tool call failed", "fail", "tenant", "run_", "epoch"].iter().all(|word| lines[0].contains(word)), "{}", lines[0]);
    assert!(!log.contains("it did not work"), "{log}");
}

#[tokio::test]
async fn tm_24_what_a_server_says_about_a_failed_call_is_not_logged() {
    // An MCP server whose protocol errors contain content.
    let script = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) answer '"result":{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer '"error":{"code":-32000,"message":"the patient is called s3cret"}' ;;
  esac
done
"#;
    let model = FakeModel::start(vec![Scene::Call(vec![("look", json!({ "for": "s3cret" }))]), Scene::Say("never mind")]).await;
    let tools = json!({ "mcp": [{ "label": "tools", "command": ["sh", "-c", script] }] });
    let server = ServerBuilder::new(&format!("{}tools: {tools}\n", model.config().replace("name: fake", "name: m"))).start().await;
    let made = server.respond(Mode::Streamed, ask_with("go", &[mcp()])).await;
    assert!(made.items("mcp_call")[0].to_string().contains("the patient is called s3cret"), "the model and the client get it");
    let log = until("it is logged", || async { Some(server.log()).filter(|log| log.contains("a tool call failed")) }).await;
    let line = log.lines().find(|line| line.contains("a tool call failed")).expect("it is logged");
    for word in ["WARN", "tool=\"look\"", "server=\"tools\"", "class=\"server_failed\"", "bytes=", "run_", "call_"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(!log.contains("s3cret"), "{log}");
}

#[tokio::test]
async fn a_038_a_call_that_is_refused_or_that_a_service_failed_at_is_logged_too() {
    let wanted = vec![("nobody_has_it", json!({})), ("look_up", json!({}))];
    let (server, _model, _tools) = server_with_model(vec![Scene::Call(wanted), Scene::Say("never mind")]).await;
    let asked = server.ask(Mode::Streamed, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } })));
    let call = server.claim("look_up").await;
    let agent = call["agent_id"].as_str().expect("a call has its agent");
    let report = json!({
        "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "status": "failed", "result": "the shelf is empty",
    });
    server.post(&format!("/v1/agents/{agent}/report"), report).await.ok();
    asked.made(&server).await;
    let failed = call["tool_call_id"].as_str().expect("a call has an id");
    let refused = format!("{}_1", failed.strip_suffix("_2").expect("it is the second call"));
    for parts in [["nobody_has_it", &refused, "unknown_tool"], ["look_up", failed, "status=\"failed\""]] {
        let is_line = |line: &str| line.contains("WARN") && parts.iter().all(|word| line.contains(word));
        until("the call is logged", || async { server.log().lines().any(is_line).then_some(()) }).await;
    }
    assert!(!server.log().contains("the shelf is empty"), "{}", server.log());
}

#[tokio::test]
async fn a_045_an_error_is_shown_as_one_on_the_wire_and_to_the_model() {
    in_every_mode(async |mode| {
        let scenes = vec![Scene::Call(vec![("fail", json!({})), ("echo", json!({ "text": "it did not work" }))]), Scene::Say("done")];
        let (server, model, _tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        let calls = made.items("mcp_call");
        assert_eq!(call_outcome(&calls[0]), ("failed".into(), String::new(), "it did not work".into()));
        assert_eq!(call_outcome(&calls[1]), ("completed".into(), "it did not work".into(), String::new()));
        let messages = messages_sent(&model.asked()[1]);
        assert_eq!(messages[3], "tool: it did not work");
        assert_ne!(messages[2], messages[3], "the model can distinguish the error from a result with the same text");
        assert!(messages[2].contains("error"), "{messages:?}");
        let run = made.object["windlass"]["run_id"].as_str().expect("a run");
        let history = server.history(run).await;
        let statuses: Vec<&Value> = history.iter().filter(|event| event["kind"] == "reported").map(|event| &event["status"]).collect();
        assert!(statuses.contains(&&json!("failed")) && statuses.contains(&&json!("success")), "it is kept natively: {statuses:?}");
    })
    .await;
}

#[tokio::test]
async fn a_045_in_a_pair_the_text_of_the_output_says_that_it_is_an_error() {
    let (server, _tools) = scripted("laps: [ { calls: [{ tool: fail, arguments: {} }] }, { text: done } ]").await;
    in_every_mode(async |mode| {
        let made = server.ask_with(mode, ask_with("go", &[mcp()]), &[("windlass-items", "pairs")]).made(&server).await;
        assert_eq!(made.items("function_call_output")[0]["output"], "error: it did not work");
    })
    .await;
}

#[tokio::test]
async fn five_responses_to_one_server_open_one_session() {
    let script = "laps: [ { calls: [{ tool: sleep_ms, arguments: { ms: 50 } }] }, { text: done } ]";
    let (server, tools) = scripted(script).await;
    let ask = |mode| server.respond(mode, ask_with("go", &[mcp()]));
    let made = futures_util::future::join_all([Mode::Plain, Mode::Streamed, Mode::Streamed, Mode::Plain, Mode::Streamed].map(ask)).await;
    assert!(made.iter().all(|made| made.text() == "done"));
    assert_eq!((tools.sessions(), tools.starts("sleep_ms").len()), (1, 5));
    // Sessions with a declared server are pooled by its address and its headers.
    let other = McpServer::start().await;
    let declared = |token: &str| with(declared("other", &other), json!({ "authorization": token }));
    for token in ["one", "one", "one", "one", "one", "two"] {
        let made = server.respond(Mode::Streamed, ask_with("go", &[declared(token)])).await;
        assert_eq!(made.text(), "done");
        assert!(!made.object.to_string().contains("\"one\""), "what a server is shown is not repeated: {}", made.object["tools"]);
    }
    assert_eq!(other.sessions(), 2, "one for each credential");
}

#[tokio::test]
async fn a_private_address_of_a_request_is_refused_unless_it_is_allowed() {
    let other = McpServer::start().await;
    let config = "models: [ { name: m, provider: scripted } ]";
    let server = ServerBuilder::new(config).start().await;
    for url in [other.url.as_str(), "http://169.254.169.254/latest", "http://10.0.0.1/mcp", "http://localhost:1/mcp"] {
        let declared = json!({ "type": "mcp", "server_label": "other", "server_url": url, "require_approval": "never" });
        let answer = server.refusal(Mode::Plain, ask_with("go", &[declared])).await;
        assert_eq!(answer.status, 400, "{url}: {}", answer.body);
        assert_eq!(answer.code(), "server_url_refused", "{url}: {}", answer.body);
    }
    assert_eq!(other.requests(), 0);
}

#[tokio::test]
async fn a_tool_that_answers_without_end_is_given_up_by_the_deadline() {
    let (server, _model, tools) =
        server_with_model_and_config(vec![Scene::Call(vec![("endless", json!({}))]), Scene::Say("given up")], "").await;
    let body = with(ask_with("go", &[mcp()]), json!({ "windlass": { "budgets": { "wall_time_s": 1 } } }));
    let made = tokio::time::timeout(Duration::from_secs(20), server.respond(Mode::Streamed, body)).await.expect("a clear end");
    assert!(["incomplete", "completed"].contains(&made.status()), "{}", made.status());
    tools.runs("endless", 0).await;
}
