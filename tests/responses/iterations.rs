//! The loop: the server executes calls and returns results to the model, until the model answers.

use serde_json::{Value, json};
use windlass_tests::{McpServer, Mode, Scene, ServerBuilder, in_every_mode};

use crate::support::{ask_with, call_outcome, function, mcp, messages_sent, offered, response_of, scripted, server_with_model, with};

const TWO_TOOLS: &str = r#"
laps:
  - { text: Let me see., calls: [{ tool: echo, arguments: { text: alpha } }], usage: { in: 10, out: 5 } }
  - { calls: [{ tool: add, arguments: { a: 2, b: 3 } }], usage: { in: 20, out: 6 } }
  - { text: "It is alpha, and five.", usage: { in: 30, out: 7 } }
"#;

#[tokio::test]
async fn a_001_an_executor_says_which_tools_it_can_run_and_runs_their_calls() {
    let script = r#"
laps:
  - { calls: [{ tool: echo, arguments: { text: hi } }, { tool: nothing_like_it, arguments: {} }] }
  - { text: done }
"#;
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        let listed = &made.object["output"][0];
        assert_eq!((&listed["type"], &listed["server_label"]), (&json!("mcp_list_tools"), &json!("tools")));
        let names: Vec<&str> = listed["tools"].as_array().expect("a list").iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"echo") && !names.contains(&"nothing_like_it"), "{names:?}");
        let calls = made.items("mcp_call");
        assert_eq!(call_outcome(&calls[0]), ("completed".into(), "hi".into(), String::new()));
        assert_eq!(calls[1]["status"], "failed", "tools that it did not declare are not run");
    })
    .await;
    assert_eq!(tools.starts("echo").len(), Mode::every().len());
    assert_eq!(tools.starts("nothing_like_it").len(), 0);
}

#[tokio::test]
async fn a_002_executors_of_two_kinds_serve_one_iteration_and_look_the_same() {
    let script = r#"
rules:
  - { when: { result: sunny }, reply: { text: done } }
  - when: { input: yours }
    reply: { calls: [{ tool: mine, arguments: {} }] }
  - reply: { calls: [{ tool: echo, arguments: { text: hi } }, { tool: look_up, arguments: { what: weather } }] }
"#;
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let body = with(ask_with("go", &[mcp(), function("mine")]), json!({ "windlass": { "tools": ["look_up"] } }));
        let asked = server.ask(mode, body.clone());
        let call = server.claim("look_up").await;
        assert_eq!(call["arguments"], json!({ "what": "weather" }));
        server.report(&call, json!("sunny")).await.ok();
        let made = asked.made(&server).await;
        assert_eq!(made.shape(), ["mcp_call", "mcp_call", "message"]);
        let calls = made.items("mcp_call");
        assert_eq!((&calls[0]["server_label"], &calls[0]["name"], &calls[0]["output"]), (&json!("tools"), &json!("echo"), &json!("hi")));
        assert_eq!(
            (&calls[1]["server_label"], &calls[1]["name"], &calls[1]["output"]),
            (&json!("windlass"), &json!("look_up"), &json!("sunny")),
            "a tool that is no MCP server's"
        );
        let keys = |item: &Value| item.as_object().map(|item| item.keys().cloned().collect::<Vec<_>>());
        assert_eq!(keys(&calls[0]), keys(&calls[1]), "one shape for every kind of executor");
        // A client function has no executor, so it ends the run.
        let ended = server.respond(mode, with(body, json!({ "input": "do yours" }))).await;
        assert_eq!((ended.status(), ended.shape()), ("requires_action", vec!["function_call".to_owned()]));
    })
    .await;
    assert_eq!(tools.starts("echo").len(), Mode::every().len());
}

#[tokio::test]
async fn a_003_the_first_executor_that_accepts_a_name_gets_the_call() {
    let (first, second) = (McpServer::start().await, McpServer::start().await);
    let script =
        "laps: [ { calls: [{ tool: echo, arguments: { text: one } }, { tool: second__echo, arguments: { text: two } }] }, { text: done } ]";
    let config = format!(
        "models: [ {{ name: m, provider: scripted, script: script.yaml }} ]
tools: {{ mcp: [ {{ label: first, url: '{}' }}, {{ label: second, url: '{}' }} ] }}",
        first.url, second.url
    );
    let server = ServerBuilder::new(&config).file("script.yaml", script).start().await;
    in_every_mode(async |mode| {
        let servers = ["first", "second"].map(|label| json!({ "type": "mcp", "server_label": label }));
        let made = server.respond(mode, ask_with("go", &servers)).await;
        let calls = made.items("mcp_call");
        assert_eq!((&calls[0]["server_label"], &calls[0]["name"], &calls[0]["output"]), (&json!("first"), &json!("echo"), &json!("one")));
        assert_eq!((&calls[1]["server_label"], &calls[1]["name"], &calls[1]["output"]), (&json!("second"), &json!("echo"), &json!("two")));
        let listed: Vec<&Value> = made.object["output"].as_array().expect("an output").iter().take(2).collect();
        assert_eq!((&listed[0]["server_label"], &listed[1]["server_label"]), (&json!("first"), &json!("second")), "each declares its own");
    })
    .await;
    let texts = |server: &McpServer| server.starts("echo").iter().map(|start| start.arguments["text"].clone()).collect::<Vec<_>>();
    assert_eq!((texts(&first), texts(&second)), (vec![json!("one"); Mode::every().len()], vec![json!("two"); Mode::every().len()]));
}

#[tokio::test]
async fn a_004_a_005_without_a_server_run_tool_calls_come_back_completed() {
    let script = r#"
laps:
  - { text: One moment., calls: [{ tool: mine, arguments: { n: 1 } }, { tool: mine, arguments: { n: 2 } }] }
  - { text: never asked for }
"#;
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[function("mine")])).await;
        assert_eq!(made.status(), "completed");
        assert_eq!(made.object["windlass"], json!({ "status": "completed", "run_id": made.object["windlass"]["run_id"], "iteration": 1 }));
        assert_eq!(made.shape(), ["message", "function_call", "function_call"]);
        assert_eq!(made.text(), "One moment.");
        let calls = made.items("function_call");
        for (index, call) in calls.iter().enumerate() {
            assert_eq!((&call["name"], &call["status"]), (&json!("mine"), &json!("completed")));
            assert_eq!(call["arguments"], json!({ "n": index + 1 }).to_string());
        }
        assert_ne!(calls[0]["call_id"], calls[1]["call_id"]);
    })
    .await;
    assert_eq!(tools.requests(), 0, "a configured server attaches to nothing by itself");
}

#[tokio::test]
async fn a_013_a_014_a_042_three_iterations_end_with_calls_results_and_the_answer() {
    let (server, _tools) = scripted(TWO_TOOLS).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((made.status(), &made.object["windlass"]["iteration"]), ("completed", &json!(3)));
        assert_eq!(made.shape(), ["message", "mcp_call", "mcp_call", "message"]);
        let calls = made.items("mcp_call");
        assert_eq!((&calls[0]["name"], call_outcome(&calls[0])), (&json!("echo"), ("completed".into(), "alpha".into(), String::new())));
        assert_eq!((&calls[1]["name"], call_outcome(&calls[1])), (&json!("add"), ("completed".into(), "5".into(), String::new())));
        assert_eq!(calls[1]["arguments"], r#"{"a":2,"b":3}"#);
        assert_eq!(made.text(), "Let me see.|It is alpha, and five.");
        assert_eq!(made.output().last().expect("an answer")["status"], "completed");
        assert_eq!(made.events.len(), made.events.last().expect("an end").data["sequence_number"].as_u64().map_or(0, |n| n as usize + 1));
    })
    .await;
}

#[tokio::test]
async fn a_013_results_are_fed_back_and_the_model_is_asked_again() {
    in_every_mode(async |mode| {
        let scenes = vec![
            Scene::Call(vec![("echo", json!({ "text": "alpha" })), ("add", json!({ "a": 1, "b": 1 }))]),
            Scene::Call(vec![("echo", json!({ "text": "beta" }))]),
            Scene::Say("done"),
        ];
        let (server, model, _tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!(made.text(), "done");
        let asked = model.asked();
        assert_eq!(asked.len(), 3, "one model call for each iteration, none after the answer");
        assert_eq!(messages_sent(&asked[0]), ["user: go"]);
        assert_eq!(messages_sent(&asked[1]), ["user: go", "assistant:  +echo +add", "tool: alpha", "tool: 2"]);
        assert_eq!(messages_sent(&asked[2])[4..], ["assistant:  +echo", "tool: beta"]);
        let ids = |index: usize| (&asked[1]["messages"][1]["tool_calls"][index]["id"], &asked[1]["messages"][2 + index]["tool_call_id"]);
        assert_eq!(ids(0).0, ids(0).1);
        assert_eq!(ids(1).0, ids(1).1);
        assert!(offered(&asked[2]).contains(&"echo".to_owned()), "tools are offered in every iteration");
    })
    .await;
}

#[tokio::test]
async fn a_018_calls_of_one_iteration_run_at_the_same_time() {
    let call = "{ tool: echo, arguments: { text: hi } }";
    let script = format!("laps: [ {{ calls: [{call}, {call}, {call}, {call}] }}, {{ text: done }} ]");
    let (server, tools) = scripted(&script).await;
    // The tool server answers none of the four calls before all of them have come: one after the other they would wait for ever.
    tools.behave(|manners| manners.gathers = Some(("echo", 4)));
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!(made.text(), "done");
        let places = |kind: &str| -> Vec<usize> {
            made.kinds().iter().enumerate().filter(|(_, seen)| **seen == kind).map(|(place, _)| place).collect()
        };
        let (began, ended) = (places("response.mcp_call.in_progress"), places("response.mcp_call.completed"));
        assert_eq!((began.len(), ended.len()), (4, 4));
        assert!(began[3] < ended[0], "a reader sees all of them begin before the first one ends");
        assert!(ended[3] < places("response.output_text.delta")[0], "all results precede the next iteration");
    })
    .await;
    assert_eq!(tools.starts("echo").len(), 4 * Mode::every().len());
}

#[tokio::test]
async fn a_019_results_carry_their_calls_id_and_keep_the_order_of_the_calls() {
    in_every_mode(async |mode| {
        let naps = [150, 80, 10].map(|ms| ("sleep_ms", json!({ "ms": ms })));
        let scenes = vec![Scene::Call([naps.to_vec(), vec![("echo", json!({ "text": "last" }))]].concat()), Scene::Say("done")];
        let (server, model, tools) = server_with_model(scenes).await;
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        let calls = made.items("mcp_call");
        let arguments: Vec<&str> = calls.iter().filter_map(|call| call["arguments"].as_str()).collect();
        assert_eq!(arguments, [r#"{"ms":150}"#, r#"{"ms":80}"#, r#"{"ms":10}"#, r#"{"text":"last"}"#]);
        assert_eq!(calls[3]["output"], "last");
        assert!(calls[..3].iter().all(|call| call["output"] == "slept"));
        // The model gets them in the order of the calls as well, whichever call ended first.
        let asked = model.asked();
        let ids: Vec<&str> =
            asked[1]["messages"].as_array().expect("messages")[2..].iter().filter_map(|m| m["tool_call_id"].as_str()).collect();
        assert_eq!(ids, ["c0", "c1", "c2", "c3"]);
        assert_eq!(response_of(tools.starts("echo")[0].call_id.as_ref().expect("a call has a key")), made.id());
    })
    .await;
}

#[tokio::test]
async fn a_019_in_the_pair_form_every_output_names_its_call() {
    let nap = |ms: u32| format!("{{ tool: sleep_ms, arguments: {{ ms: {ms} }} }}");
    let script = format!("laps: [ {{ calls: [{}, {}] }}, {{ calls: [{}] }}, {{ text: done }} ]", nap(120), nap(10), nap(1));
    let (server, _tools) = scripted(&script).await;
    in_every_mode(async |mode| {
        let made = server.ask_with(mode, ask_with("go", &[mcp()]), &[("windlass-items", "pairs")]).made(&server).await;
        let order = ["function_call", "function_call", "function_call_output", "function_call_output"];
        assert_eq!(made.shape(), [&order[..], &["function_call", "function_call_output", "message"]].concat());
        let (calls, outputs) = (made.items("function_call"), made.items("function_call_output"));
        for (call, output) in calls.iter().zip(&outputs) {
            assert_eq!((&call["call_id"], &output["output"]), (&output["call_id"], &json!("slept")));
        }
        let included = with(ask_with("go", &[mcp()]), json!({ "include": ["windlass:function_pairs"] }));
        assert_eq!(server.respond(mode, included).await.shape(), made.shape(), "the same by `include`");
    })
    .await;
}

#[tokio::test]
async fn a_030_the_object_holds_every_call_result_and_the_answer_in_order() {
    let (server, _tools) = scripted(TWO_TOOLS).await;
    let made = server.respond(Mode::Plain, ask_with("go", &[mcp()])).await;
    let outline: Vec<String> = made
        .output()
        .iter()
        .map(|item| match item["type"].as_str() {
            Some("message") => format!("said {}", item["content"][0]["text"].as_str().unwrap_or_default()),
            _ => format!("{}({}) = {}", item["name"], item["arguments"], item["output"]),
        })
        .collect();
    assert_eq!(
        outline,
        [
            "said Let me see.",
            r#""echo"("{\"text\":\"alpha\"}") = "alpha""#,
            r#""add"("{\"a\":2,\"b\":3}") = "5""#,
            "said It is alpha, and five."
        ]
    );
}

#[tokio::test]
async fn a_032_usage_is_the_sum_over_all_iterations() {
    let (server, _tools) = scripted(TWO_TOOLS).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        let usage = &made.object["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]), (&json!(60), &json!(18), &json!(78)));
        assert_eq!(made.events[0].data["response"]["usage"], json!(null), "no numbers before there are any");
        let single = server.respond(mode, with(ask_with("go", &[mcp()]), json!({ "max_turns": 1 }))).await;
        assert_eq!((&single.object["usage"]["total_tokens"], single.status()), (&json!(15), "incomplete"), "what was used counts");
    })
    .await;
}

/// Every other path of this API that takes a POST gets the request that starts a loop: none of them makes a call.
#[tokio::test]
async fn a_041_the_loop_has_no_endpoint_of_its_own() {
    let (server, tools) = scripted("laps: [ { calls: [{ tool: echo, arguments: { text: hi } }] }, { text: done } ]").await;
    let document = server.get("/openapi.json").await.ok();
    let paths = document["paths"].as_object().expect("there are paths");
    let is_other = |path: &str, item: &Value| path != "/v1/responses" && item["post"]["tags"] == json!(["responses"]);
    let others: Vec<&String> = paths.iter().filter(|(path, item)| is_other(path, item)).map(|(path, _)| path).collect();
    assert!(others.len() >= 5, "{others:?}");
    let request = ask_with("go", &[mcp()]);
    for path in others {
        server.post(&path.replace("{id}", "resp_00000000000000000000000000000007"), request.clone()).await;
        assert_eq!(tools.starts("echo").len(), 0, "{path} runs a loop");
    }
    assert_eq!(server.respond(Mode::Plain, request).await.text(), "done", "it is reached by create-response");
    assert_eq!(tools.starts("echo").len(), 1);
}
