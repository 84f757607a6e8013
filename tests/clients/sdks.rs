//! The OpenAI SDKs for Python and JavaScript. Both do the same and must observe the same.

use serde_json::{Value, json};

use windlass_tests::{McpServer, Server};

use crate::program::{Sdk, builder, builder_with, killed, story};

/// Defines each case as one test per SDK.
macro_rules! with_both {
    ($($case:ident),+ $(,)?) => {
        mod python {
            $(#[tokio::test] async fn $case() { super::$case(super::Sdk::Python).await; })+
        }
        mod node {
            $(#[tokio::test] async fn $case() { super::$case(super::Sdk::Node).await; })+
        }
    };
}

with_both! {
    a_question_is_answered,
    a_stream_is_read_event_by_event,
    a_stream_satisfies_the_helper,
    a_function_of_the_clients_is_called_and_answered,
    a_function_is_called_through_the_helper_without_storing_anything,
    a_tool_of_the_servers_is_called_and_shown,
    a_call_is_approved_or_rejected,
    a_response_in_the_background_is_polled,
    a_response_is_cancelled,
    a_stream_is_read_on_after_a_kill,
    the_helper_reads_on_after_a_kill,
    refusals_have_the_class_and_the_fields_of_the_sdk,
    what_is_stored_can_be_read_and_deleted,
    a_conversation_is_continued_and_its_tokens_are_counted,
}

async fn a_question_is_answered(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("create", &server).await;
    assert!(saw["id"].as_str().is_some_and(|id| id.starts_with("resp_")), "{saw}");
    assert_eq!((&saw["status"], &saw["text"]), (&json!("completed"), &json!("Good day to you.")));
    assert_eq!(saw["items"], json!(["message"]));
    assert_eq!((&saw["instructions"], &saw["metadata"]), (&json!("Be brief."), &json!({ "case": "create" })));
    assert!(saw["tokens"].as_u64() > Some(0), "{saw}");
}

async fn a_stream_is_read_event_by_event(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("stream", &server).await;
    let types: Vec<&str> = saw["types"].as_array().expect("types").iter().filter_map(Value::as_str).collect();
    assert_eq!(types.first(), Some(&"response.created"));
    assert_eq!(types.last(), Some(&"response.completed"));
    assert!(types.iter().filter(|name| **name == "response.output_text.delta").count() > 3, "it comes in pieces: {types:?}");
    assert_eq!(saw["numbers"], json!((0..types.len()).collect::<Vec<_>>()));
    assert_eq!(saw["ids"].as_array().map(Vec::len), Some(1), "{saw}");
    assert_eq!((&saw["status"], &saw["whole"]), (&json!("completed"), &json!([story()])));
    assert_eq!((&saw["deltas"], &saw["text"]), (&json!(story()), &json!(story())));
}

async fn a_stream_satisfies_the_helper(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("helper", &server).await;
    assert_eq!(saw, json!({ "deltas": story(), "snapshot": story(), "status": "completed", "text": story() }));
}

async fn a_function_of_the_clients_is_called_and_answered(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("tools", &server).await;
    let expected = json!({
        "calls": [["get_weather", { "city": "Oslo" }]], "statuses": ["completed", "completed"], "text": "It is sunny in Oslo.", "chained": true,
    });
    assert_eq!(saw, expected);
}

async fn a_function_is_called_through_the_helper_without_storing_anything(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("helper_tools", &server).await;
    let arguments = saw["deltas"].as_str().expect("arguments come in pieces");
    assert_eq!(saw["arguments"], json!([arguments]));
    assert_eq!(serde_json::from_str::<Value>(arguments).ok(), Some(json!({ "city": "Oslo" })));
    assert_eq!((&saw["laps"], &saw["status"], &saw["text"]), (&json!(2), &json!("completed"), &json!("It is sunny in Oslo.")));
}

/// A server with an MCP server whose tools it runs.
async fn with_tools() -> (Server, McpServer) {
    let tools = McpServer::start().await;
    (builder_with(&tools.config("tools")).start().await, tools)
}

async fn a_tool_of_the_servers_is_called_and_shown(sdk: Sdk) {
    let (server, tools) = with_tools().await;
    let saw = sdk.run("served", &server).await;
    let offers = json!(["echo", "add"]);
    let call = |text: &str| json!([["tools", "echo", { "text": text }, text, null, "completed"]]);
    let expected = json!([
        {
            "status": "completed", "items": ["mcp_list_tools", "message", "mcp_call", "message"], "offers": offers,
            "calls": call("from the server"), "text": "I have it echoed.The server has said it.",
        },
        // In an iteration with a client call no server call is executed.
        { "status": "requires_action", "items": ["mcp_list_tools", "function_call"], "offers": offers, "calls": [], "text": "" },
        {
            "status": "completed", "items": ["mcp_list_tools", "mcp_call", "message"], "offers": offers, "calls": call("beside it"),
            "text": "Both are known.",
        },
    ]);
    for way in ["plain", "helper"] {
        assert_eq!(saw[way], expected, "{way}");
    }
    assert_eq!(tools.starts("echo").len(), 4, "each once in each way");
}

async fn a_call_is_approved_or_rejected(sdk: Sdk) {
    let (server, tools) = with_tools().await;
    let saw = sdk.run("approve", &server).await;
    let asked =
        json!(["requires_action", ["mcp_list_tools", "message", "mcp_approval_request"], "tools", "echo", { "text": "with leave" }]);
    let ways = ["plain, chained", "plain, sent again", "helper, chained", "helper, sent again"];
    assert_eq!(saw.as_object().map(|ways| ways.len()), Some(ways.len()), "{saw:#}");
    for way in ways {
        let approved = json!({ "asked": asked, "items": ["mcp_list_tools", "mcp_call", "message"], "of_request": true,
            "outcome": ["with leave", null, "completed"], "text": "It was allowed." });
        assert_eq!(saw[way]["approved"], approved, "{way}");
        let rejected = &saw[way]["rejected"];
        assert_eq!(
            (&rejected["text"], &rejected["outcome"][2], &rejected["of_request"]),
            (&json!("It was refused."), &json!("failed"), &json!(true))
        );
        assert!(rejected["outcome"][1].as_str().is_some_and(|error| error.contains("not today")), "{way}: {rejected}");
    }
    assert_eq!(tools.starts("echo").len(), ways.len(), "once where it was approved");
}

async fn a_response_in_the_background_is_polled(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("background", &server).await;
    let statuses: Vec<&str> = saw["statuses"].as_array().expect("statuses").iter().filter_map(Value::as_str).collect();
    let (last, before) = statuses.split_last().expect("there are statuses");
    assert_eq!(*last, "completed");
    assert!(!before.is_empty() && before.iter().all(|status| ["queued", "in_progress"].contains(status)), "{statuses:?}");
    assert!(before.is_sorted_by_key(|status| *status == "in_progress"), "it does not go back into the queue: {statuses:?}");
    assert_eq!((&saw["background"], &saw["text"]), (&json!(true), &json!(story())));
}

async fn a_response_is_cancelled(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("cancel", &server).await;
    assert!(saw["first"] == "queued" || saw["first"] == "in_progress", "{saw}");
    assert_eq!((&saw["cancelled"], &saw["again"], &saw["kept"]), (&json!("cancelled"), &json!("cancelled"), &json!("cancelled")));
}

/// Runs a program that reads a stream, kills the server during the stream and starts it again. Returns the program's last line.
async fn killed_while_reading(sdk: Sdk, program: &str) -> Value {
    let mut server = builder().start().await;
    let mut running = sdk.start(program, &server);
    let mut pieces = 0;
    loop {
        let line = running.line().await.unwrap_or_else(|| panic!("the client ended too soon; the server's log:\n{}", server.log()));
        if line["seen"].is_null() {
            running.succeeds(&server).await;
            return line;
        }
        pieces += 1;
        if pieces == 3 {
            server = killed(server).await;
        }
    }
}

async fn a_stream_is_read_on_after_a_kill(sdk: Sdk) {
    let saw = killed_while_reading(sdk, "resume").await;
    assert!(!saw["broken"].is_null(), "the client notices: {saw}");
    assert_eq!((&saw["same"], &saw["status"]), (&json!(true), &json!("completed")));
    let numbers = saw["numbers"].as_array().expect("numbers").len();
    assert_eq!(saw["numbers"], json!((0..numbers).collect::<Vec<_>>()), "no event twice, none left out");
    assert!(saw["seen_before"].as_u64() < Some(numbers as u64), "{saw}");
    assert_eq!((&saw["deltas"], &saw["text"]), (&json!(story()), &json!(story())));
}

async fn the_helper_reads_on_after_a_kill(sdk: Sdk) {
    let saw = killed_while_reading(sdk, "resume_helper").await;
    assert!(!saw["broken"].is_null(), "the client notices: {saw}");
    assert_eq!((&saw["same"], &saw["status"]), (&json!(true), &json!("completed")));
    assert_eq!((&saw["deltas"], &saw["text"]), (&json!(story()), &json!(story())));
}

async fn refusals_have_the_class_and_the_fields_of_the_sdk(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("errors", &server).await;
    for case in ["temperature", "streamed"] {
        let refusal = &saw[case];
        assert_eq!((&refusal["class"], &refusal["status"]), (&json!("BadRequestError"), &json!(400)), "{case}: {refusal}");
        assert_eq!((&refusal["param"], &refusal["type"]), (&json!("temperature"), &json!("invalid_request_error")), "{case}");
        assert!(refusal["code"].is_string() && refusal["says"] == true, "{case}: {refusal}");
    }
    for (case, code) in [("model", "model_not_found"), ("previous", "previous_response_not_found")] {
        let refusal = &saw[case];
        assert_eq!((&refusal["class"], &refusal["code"]), (&json!("BadRequestError"), &json!(code)), "{case}: {refusal}");
    }
    assert_eq!(saw["previous"]["param"], "previous_response_id");
    assert_eq!((&saw["unknown"]["class"], &saw["unknown"]["status"]), (&json!("NotFoundError"), &json!(404)));
    assert_eq!((&saw["stranger"]["class"], &saw["stranger"]["code"]), (&json!("AuthenticationError"), &json!("invalid_api_key")));
}

async fn what_is_stored_can_be_read_and_deleted(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("stored", &server).await;
    let expected = json!({
        "equal": true, "words": ["one", "two", "three"], "ids": 3, "gone": 404, "first": "Good day to you.", "models": ["offline"],
    });
    assert_eq!(saw, expected);
}

async fn a_conversation_is_continued_and_its_tokens_are_counted(sdk: Sdk) {
    let server = builder().start().await;
    let saw = sdk.run("conversation", &server).await;
    let expected = json!({
        "metadata": [{ "topic": "weather" }, { "topic": "rain" }, { "topic": "rain" }], "echo": true, "text": "It is sunny in Oslo.",
        "added": 1, "types": ["message", "message", "function_call", "function_call_output", "message", "message"], "found": true,
        "left": 5, "counted": ["response.input_tokens", true], "deleted": ["conversation.deleted", true], "gone": 404,
    });
    assert_eq!(saw, expected);
}

#[tokio::test]
async fn everything_is_of_the_type_the_sdk_declares() {
    // The SDK for JavaScript has no such check.
    let (server, _tools) = with_tools().await;
    let saw = Sdk::Python.run("strict", &server).await;
    let events = json!(["response.completed", "response.completed", "response.completed", "response.completed"]);
    let expected = json!({
        "answer": "completed", "call": "completed", "events": events, "items": 1, "models": 1,
        "served": ["completed", ["mcp_list_tools", "message", "mcp_call", "message"]], "mixed": ["completed", ["mcp_list_tools", "function_call"]],
    });
    assert_eq!(saw, expected);
}
