//! The seventeen cases of the official compliance suite of Open Responses (release 2026-04-24), and the test of ours that covers each of
//! them. Every response and event in these tests is also checked against the contract.
//!
//! | # | case | test |
//! |---|---|---|
//! | 1 | basic-response | `suite.rs` `the_inputs_of_the_suite_are_answered_in_every_mode` |
//! | 2 | assistant-phase | `suite.rs` `the_inputs_of_the_suite_are_answered_in_every_mode` |
//! | 3 | response-output-phase-schema | `suite.rs` `a_phase_on_an_answer_is_in_the_contract` |
//! | 4 | streaming-response | `streams.rs` `a_026_a_027_a_028_one_beginning_one_end_and_only_items_between` |
//! | 5 | websocket-response | `sockets.rs` `one_request_is_answered_with_the_events_of_a_stream` |
//! | 6 | websocket-sequential-responses | `sockets.rs` `two_requests_on_one_socket_are_answered_in_their_order` |
//! | 7 | websocket-continuation | `sockets.rs` `a_response_that_is_not_stored_can_be_continued_on_its_own_socket_and_nowhere_else` |
//! | 8 | websocket-reconnect-store-false-recovery | `sockets.rs` `a_response_that_is_not_stored_can_be_continued_on_its_own_socket_and_nowhere_else` |
//! | 9 | websocket-previous-response-not-found | `sockets.rs` `an_unknown_response_cannot_be_continued` |
//! | 10 | websocket-failed-continuation-evicts-cache | `sockets.rs` `a_client_whose_follow_up_fails_has_to_start_again` |
//! | 11 | websocket-compact-new-chain | `compaction.rs` `a_new_chain_begins_on_a_socket_with_what_a_compaction_gave` |
//! | 12 | system-prompt | `suite.rs` `the_inputs_of_the_suite_are_answered_in_every_mode` |
//! | 13 | tool-calling | `iterations.rs` `a_004_a_005_without_a_server_run_tool_calls_come_back_completed` |
//! | 14 | image-input | `suite.rs` `the_inputs_of_the_suite_are_answered_in_every_mode` |
//! | 15 | multi-turn | `suite.rs` `the_inputs_of_the_suite_are_answered_in_every_mode` |
//! | 16 | compact-response | `compaction.rs` `a_conversation_is_given_back_as_its_newest_messages_and_a_sealed_summary` |
//! | 17 | compact-missing-model | `compaction.rs` `a_request_for_a_compaction_is_checked_like_any_other` |
//!
//! The suite starts all cases at once, and loses events of a stream that are not written as a whole: `all_cases_at_once_are_answered` covers
//! that here, and `a_026_every_event_is_written_whole` in `streams.rs`.

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_tests::{Scene, in_every_mode, responses::contract};

use crate::support::{ask, messages_sent, scripted, server_with_model, with};

/// The inputs of the suite in cases 1, 2, 12, 14 and 15, with the messages that the model must get.
fn inputs() -> [(&'static str, Value, &'static [&'static str]); 5] {
    let say = |role: &str, text: &str| json!({ "type": "message", "role": role, "content": text });
    let phased = |phase: &str, text: &str| with(say("assistant", text), json!({ "phase": phase }));
    let image = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let seen = json!({ "type": "message", "role": "user", "content": [
        { "type": "input_text", "text": "What is this?" }, { "type": "input_image", "image_url": image },
    ] });
    [
        ("basic-response", json!([say("user", "Say hello.")]), &["user: Say hello."]),
        (
            "assistant-phase",
            json!([say("user", "One."), phased("commentary", "I look."), phased("final_answer", "One it is."), say("user", "And now?")]),
            &["user: One.", "assistant: I look.", "assistant: One it is.", "user: And now?"],
        ),
        ("system-prompt", json!([say("system", "Be a pirate."), say("user", "Hello.")]), &["system: Be a pirate.", "user: Hello."]),
        ("image-input", json!([seen]), &["user: "]),
        (
            "multi-turn",
            json!([say("user", "I am Ada."), say("assistant", "Hello, Ada."), say("user", "Who am I?")]),
            &["user: I am Ada.", "assistant: Hello, Ada.", "user: Who am I?"],
        ),
    ]
}

#[tokio::test]
async fn the_inputs_of_the_suite_are_answered_in_every_mode() {
    in_every_mode(async |mode| {
        let (server, model, _tools) = server_with_model(vec![Scene::Say("There you are.")]).await;
        for (index, (case, input, messages)) in inputs().into_iter().enumerate() {
            let made = server.respond(mode, with(ask(""), json!({ "input": input }))).await;
            assert_eq!((made.status(), made.text().as_str()), ("completed", "There you are."), "{case}");
            let asked = &model.asked()[index];
            assert_eq!(messages_sent(asked), messages, "{case}");
            if case == "image-input" {
                let url = asked["messages"][0]["content"][1]["image_url"]["url"].as_str();
                assert_eq!(url, input[0]["content"][1]["image_url"].as_str(), "the model sees the image");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_phase_on_an_answer_is_in_the_contract() {
    let (server, _tools) = scripted("laps: [ { text: hi } ]").await;
    let mut response = server.respond(windlass_tests::Mode::Plain, ask("go")).await.object;
    assert!(response["output"][0].get("phase").is_none(), "we have no value for it, and null is not in the contract");
    for (phase, is_accepted) in [(json!("final_answer"), true), (Value::Null, false)] {
        response["output"][0]["phase"] = phase;
        let faults = contract::faults_of_published_response(&response);
        assert!(faults.is_none_or(|faults| faults.is_empty() == is_accepted), "{response:#}");
    }
}

#[tokio::test]
async fn all_cases_at_once_are_answered() {
    let (server, _tools) = scripted("laps: [ { text: hi, delay_ms: 50 } ]").await;
    for mode in windlass_tests::Mode::every() {
        let all = join_all((0..16).map(|_| server.respond(*mode, ask("go")))).await;
        assert!(all.iter().all(|made| made.status() == "completed" && made.text() == "hi"), "{mode:?}");
    }
}

/// The table above names existing tests.
#[test]
fn every_case_has_a_test() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("responses");
    let rows: Vec<Vec<&str>> = include_str!("suite.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .map(|row| row.split('|').map(str::trim).collect())
        .filter(|row: &Vec<&str>| row[0].parse::<usize>().is_ok())
        .collect();
    assert_eq!(rows.len(), 17);
    for row in rows {
        let mut names = row[2].split_whitespace().map(|word| word.trim_matches('`'));
        let (Some(file), Some(test)) = (names.next(), names.next()) else { panic!("{}: no test is named", row[1]) };
        let source = std::fs::read_to_string(folder.join(file)).expect("the file is there");
        assert!(source.contains(&format!("async fn {test}()")), "{}: {file} has no test {test}", row[1]);
    }
}
