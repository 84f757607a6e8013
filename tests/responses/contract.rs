//! Tests of the checks themselves: they find violations, and the documentation lists the intended differences.

use std::io::Write;

use serde_json::{Value, json};
use windlass_tests::{Mode, Store, responses::contract};

use crate::support::{ask, ask_with, function, mcp, scripted, with};

type Slip = fn(&mut Value);

/// Violations of both contracts.
const SLIPS: [Slip; 6] = [
    |response| drop(response.as_object_mut().map(|response| response.remove("truncation"))),
    |response| response["temperature"] = Value::Null,
    |response| response["output"][0]["content"][0]["annotations"] = Value::Null,
    |response| response["output"][0]["type"] = "novel".into(),
    |response| response["usage"]["total_tokens"] = "many".into(),
    |response| response["tool_choice"] = 7.into(),
];

/// Violations of the server's own document, which has more values and closed objects.
const OWN_SLIPS: [Slip; 8] = [
    |response| response["novel"] = 1.into(),
    |response| response["output"][0]["novel"] = 1.into(),
    |response| response["status"] = "done".into(),
    |response| response["windlass"]["status"] = "done".into(),
    |response| response["incomplete_details"] = json!({ "reason": "novel" }),
    |response| response["error"] = json!({ "code": "novel", "message": "m" }),
    |response| response["output"][0]["id"] = "msg_1".into(),
    |response| drop(response["usage"]["input_tokens_details"].as_object_mut().map(|usage| usage.remove("cached_tokens"))),
];

#[tokio::test]
async fn what_differs_from_the_contract_is_written_down() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/responses.md");
    let text = std::fs::read_to_string(file).expect("docs/responses.md is there");
    let (_, section) = text.split_once("## Where this differs from the published contract").expect("it has that section");
    for exception in &contract::EXCEPTIONS {
        assert!(section.contains(exception.name) && section.contains(exception.reason), "{}: {}", exception.name, exception.reason);
    }
}

#[tokio::test]
async fn the_contract_is_the_document_that_the_server_serves() {
    let (server, _tools) = scripted("laps: [ { text: hi } ]").await;
    assert_eq!(&server.get("/openapi.json").await.ok(), contract::document());
    if Store::of_this_program() == Store::Postgres {
        return;
    }
    let made = server.respond(Mode::Plain, ask("go")).await;
    let published = match contract::faults_of_published_response(&made.object) {
        Some(_) => "checked as well",
        None => "NOT CHECKED, its file is not there",
    };
    let events = contract::event_types().len();
    // Written past the test harness, which shows the output of a test only if it fails.
    let line =
        format!("contract: every object and {events} types of events by the server's OpenAPI document; the published one: {published}");
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[tokio::test]
async fn what_the_contract_does_not_have_is_found() {
    if Store::of_this_program() == Store::Postgres {
        return;
    }
    let (server, _tools) = scripted("laps: [ { text: hi } ]").await;
    let made = server.respond(Mode::Streamed, ask_with("go", &[])).await;
    for (index, slip) in SLIPS.iter().chain(&OWN_SLIPS).enumerate() {
        let mut response = made.object.clone();
        slip(&mut response);
        let faults = contract::faults_of_response(&response);
        assert!(faults.iter().any(|fault| fault.starts_with("OpenAPI document")), "slip {index} is found: {faults:?}");
        if index < SLIPS.len() {
            let faults = contract::faults_of_published_response(&response);
            assert!(faults.is_none_or(|faults| !faults.is_empty()), "slip {index} is found by the published contract");
        }
        let last = json!({ "type": "response.completed", "sequence_number": 9, "response": response });
        assert!(!contract::faults_of_event(&last).is_empty(), "slip {index} is found in an event");
    }
    let delta = json!({
        "type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0, "content_index": 0, "delta": "x",
        "logprobs": [],
    });
    assert_eq!(contract::faults_of_event(&delta), Vec::<String>::new());
    let events = [
        json!({ "type": "response.novel", "sequence_number": 1 }),
        json!({ "type": "response.output_text.delta", "delta": "x" }),
        with(delta.clone(), json!({ "novel": 1 })),
        with(delta, json!({ "output_index": -1 })),
    ];
    for event in events {
        assert!(!contract::faults_of_event(&event).is_empty(), "{event}");
    }
    let error = json!({ "type": "error", "status": 400, "error": { "code": "c", "message": "m", "param": null } });
    assert!(!contract::faults_of_socket_error(&error).is_empty(), "an error without a type");
}

#[tokio::test]
async fn everything_that_a_request_can_say_is_repeated_as_the_contract_has_it() {
    let (server, _tools) = scripted("laps: [ { text: '{}' } ]").await;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let bodies = [
        json!({ "temperature": 0.5, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": -1, "top_logprobs": 3, "max_output_tokens": 16 }),
        json!({ "text": { "format": { "type": "json_schema", "name": "n", "schema": schema, "strict": true }, "verbosity": "low" } }),
        json!({ "text": { "format": { "type": "json_object" } } }),
        json!({ "text": {} }),
        json!({ "reasoning": { "effort": "low" } }),
        json!({ "reasoning": { "summary": "auto" } }),
        json!({ "reasoning": {} }),
        json!({ "metadata": { "a": "b" }, "safety_identifier": "s", "prompt_cache_key": "k", "user": "u", "service_tier": "auto" }),
        json!({ "truncation": "auto", "parallel_tool_calls": false, "max_tool_calls": 3, "store": true }),
        json!({ "tools": [function("f"), { "type": "function", "name": "g" }, { "type": "next_year" }, mcp()] }),
        json!({ "tools": [function("f")], "tool_choice": { "type": "function", "name": "f" } }),
        json!({ "tools": [function("f")], "tool_choice": { "type": "allowed_tools", "tools": [{ "type": "function", "name": "f" }] } }),
        json!({ "instructions": "be kind", "client_metadata": { "x": 1 }, "context_management": [], "something": "new" }),
        json!({ "include": ["reasoning.encrypted_content", "novel"], "stream_options": { "include_obfuscation": false } }),
    ];
    for more in bodies {
        let made = server.respond(Mode::Streamed, with(ask_with("go", &[]), more.clone())).await;
        assert_eq!(made.status(), "completed", "{more}");
        for key in ["temperature", "top_p", "top_logprobs", "metadata", "truncation", "max_tool_calls", "instructions", "safety_identifier"]
        {
            if let Some(given) = more.get(key) {
                assert_eq!(&made.object[key], given, "{more}");
            }
        }
        if let Some(schema) = more["text"]["format"].get("schema") {
            assert_eq!(&made.object["text"]["format"]["schema"], schema);
        }
    }
}
