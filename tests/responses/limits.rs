//! What ends a response before its model does: limits of iterations, calls and tokens, time, and a person.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_tests::{Mode, Next, Scene, Server, in_every_mode, until};

use crate::support::{ask_with, function, mcp, messages_sent, response_of, scripted, scripted_with, server_with_model, with};

const FOR_EVER: &str =
    "rules: [ { reply: { text: More., calls: [{ tool: echo, arguments: { text: again } }], usage: { in: 10, out: 5 } } } ]";

fn reason(response: &Value) -> (&Value, &Value) {
    (&response["status"], &response["incomplete_details"]["reason"])
}

#[tokio::test]
async fn a_015_a_016_at_the_limit_of_turns_the_response_is_incomplete_and_keeps_its_results() {
    let (server, tools) = scripted_with(FOR_EVER, "").await;
    in_every_mode(async |mode| {
        for (turns, more) in [
            (10, json!({})),
            (3, json!({ "max_turns": 3 })),
            (2, json!({ "windlass": { "max_turns": 2 } })),
            (2, json!({ "windlass": { "max_turns": 2 }, "max_turns": 4 })),
            (1, json!({ "max_turns": 1 })),
        ] {
            let before = tools.starts("echo").len();
            let made = server.respond(mode, with(ask_with("go", &[mcp()]), more.clone())).await;
            assert_eq!(reason(&made.object), (&json!("incomplete"), &json!("max_turns")), "{more}");
            assert_eq!(made.object["completed_at"], Value::Null);
            let calls = made.items("mcp_call");
            assert_eq!((calls.len(), made.items("message").len()), (turns, turns), "{more}");
            assert!(calls.iter().all(|call| call["output"] == "again"), "the results of the last iteration are there too");
            assert_eq!(tools.starts("echo").len() - before, turns);
            assert_eq!(made.object["windlass"]["iteration"], turns);
            assert_eq!(made.events.last().expect("an end").kind(), "response.incomplete");
        }
    })
    .await;
}

#[tokio::test]
async fn a_016_an_agent_has_a_limit_of_turns_of_its_own() {
    let (server, _tools) = scripted_with(FOR_EVER, "agents: { short: { tools: [tools], budgets: { iterations: 2 } } }").await;
    let made = server.respond(Mode::Streamed, json!({ "model": "agent/short", "input": "go" })).await;
    assert_eq!((reason(&made.object), made.items("mcp_call").len()), ((&json!("incomplete"), &json!("max_turns")), 2));
}

#[tokio::test]
async fn a_016_max_turns_of_the_limits_holds_for_every_response() {
    let tools = windlass_tests::McpServer::start().await;
    let config = format!(
        "models: [ {{ name: m, provider: scripted, script: script.yaml }} ]\nlimits: {{ max_turns: 4 }}\n{}",
        tools.config("tools")
    );
    let server = windlass_tests::ServerBuilder::new(&config).file("script.yaml", FOR_EVER).start().await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, ask_with("go", &[mcp()])).await;
        assert_eq!((reason(&made.object), made.items("mcp_call").len()), ((&json!("incomplete"), &json!("max_turns")), 4));
        let shorter = server.respond(mode, with(ask_with("go", &[mcp()]), json!({ "max_turns": 2 }))).await;
        assert_eq!(shorter.items("mcp_call").len(), 2, "a request may ask for fewer");
        let longer = server.respond(mode, with(ask_with("go", &[mcp()]), json!({ "max_turns": 6 }))).await;
        assert_eq!(longer.items("mcp_call").len(), 4, "and not for more than the operator wrote");
    })
    .await;
}

#[tokio::test]
async fn further_calls_than_max_tool_calls_are_refused_and_the_model_continues() {
    in_every_mode(async |mode| {
        let echo = |text: &str| ("echo", json!({ "text": text }));
        let scenes = vec![Scene::Call(vec![echo("one")]), Scene::Call(vec![echo("two"), echo("three")]), Scene::Say("enough")];
        let (server, model, tools) = server_with_model(scenes).await;
        let made = server.respond(mode, with(ask_with("go", &[mcp()]), json!({ "max_tool_calls": 2 }))).await;
        assert_eq!((made.status(), made.text().as_str(), &made.object["max_tool_calls"]), ("completed", "enough", &json!(2)));
        let calls = made.items("mcp_call");
        assert_eq!((&calls[1]["output"], &calls[2]["status"]), (&json!("two"), &json!("failed")), "over the whole response");
        assert_eq!(tools.starts("echo").len(), 2);
        assert!(messages_sent(&model.asked()[2])[5].contains("no more calls"), "{:?}", messages_sent(&model.asked()[2]));
    })
    .await;
}

#[tokio::test]
async fn a_budget_of_tokens_ends_the_response() {
    let (server, _tools) = scripted_with(FOR_EVER, "").await;
    in_every_mode(async |mode| {
        let body = with(ask_with("go", &[mcp()]), json!({ "windlass": { "budgets": { "tokens": 40 } } }));
        let made = server.respond(mode, body).await;
        assert_eq!(reason(&made.object), (&json!("incomplete"), &json!("max_tokens")));
        assert!(made.items("mcp_call").len() < 4);
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_the_model_cuts_short_is_incomplete() {
    let script = "
rules:
  - { when: { input: long }, reply: { text: too long an ans, finish: length } }
  - { when: { input: rude }, reply: { text: you, finish: content_filter } }
";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        for (input, why) in [("a long one", "max_output_tokens"), ("a rude one", "content_filter")] {
            let made = server.respond(mode, json!({ "model": "m", "input": input })).await;
            assert_eq!(reason(&made.object), (&json!("incomplete"), &json!(why)));
            assert_eq!(made.output().last().expect("the text so far")["status"], "incomplete");
        }
    })
    .await;
}

/// Waits until a call of the tool is running. Returns its response.
async fn running(tools: &windlass_tests::McpServer, tool: &str) -> String {
    tools.runs(tool, 1).await;
    let start = tools.starts(tool).pop().expect("a start");
    response_of(&start.call_id.expect("a call has a key"))
}

#[tokio::test]
async fn a_017_a_cancel_stops_the_loop_in_the_middle_of_a_call() {
    let script = "laps: [ { text: I wait., calls: [{ tool: sleep_ms, arguments: { ms: 60000 } }, { tool: echo, arguments: { text: hi } }] }, { text: never } ]";
    let (server, tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let asked = server.ask(mode, ask_with("go", &[mcp()]));
        let id = running(&tools, "sleep_ms").await;
        until("the other call is over", || async {
            let response = server.response(&id).await;
            (response["output"][3]["output"] == "hi").then_some(())
        })
        .await;
        let began = Instant::now();
        let cancelled = server.cancel(&id).await;
        assert_eq!(reason(&cancelled), (&json!("cancelled"), &json!("cancelled")));
        let made = asked.made(&server).await;
        assert!(began.elapsed() < Duration::from_secs(5), "at once, not when the call is over");
        assert_eq!(made.object, cancelled);
        assert_eq!(made.shape(), ["message", "mcp_call", "mcp_call"]);
        let calls = made.items("mcp_call");
        assert_eq!((&calls[0]["status"], &calls[1]["status"]), (&json!("incomplete"), &json!("completed")), "what was done stays done");
        assert_eq!(made.events.last().expect("an end").kind(), "response.incomplete");
        tools.runs("sleep_ms", 0).await;
        assert_eq!(server.cancel(&id).await, cancelled, "a second cancel changes nothing");
    })
    .await;
    assert_eq!(server.respond(Mode::Plain, json!({ "model": "m", "input": "x", "max_turns": 1 })).await.status(), "incomplete");
}

#[tokio::test]
async fn a_017_a_cancel_stops_the_model_in_the_middle_of_a_word() {
    let script = "laps: [ { text: one two three four five six seven eight nine, chunk: 4, chunk_delay_ms: 200 } ]";
    let (server, _tools) = scripted(script).await;
    for mode in Mode::every().iter().filter(|mode| mode.streams()) {
        let asked = server.ask(*mode, json!({ "model": "m", "input": "count" }));
        asked.event("response.output_text.delta").await;
        let cancelled = server.cancel(&asked.id().await).await;
        let made = asked.made(&server).await;
        assert_eq!(made.object, cancelled);
        assert_eq!(reason(&made.object), (&json!("cancelled"), &json!("cancelled")));
        let message = made.items("message").pop().expect("the text so far stays");
        assert_eq!(message["status"], "incomplete");
        assert!("one two three four five six seven eight nine".starts_with(message["content"][0]["text"].as_str().expect("a text")));
        assert_ne!(message["content"][0]["text"], "");
    }
}

#[tokio::test]
async fn a_017_a_finished_response_stays_what_it_is_when_it_is_cancelled() {
    let (server, _tools) = scripted("laps: [ { text: done } ]").await;
    let made = server.respond(Mode::Streamed, json!({ "model": "m", "input": "x" })).await;
    assert_eq!(server.cancel(made.id()).await, made.object);
}

#[tokio::test]
async fn a_017_a_cancel_on_request_ends_with_an_event_of_its_own_name() {
    let (server, tools) = scripted("laps: [ { calls: [{ tool: sleep_ms, arguments: { ms: 60000 } }] } ]").await;
    let asked = server.ask_with(Mode::Streamed, ask_with("go", &[mcp()]), &[("windlass-events", "lifecycle")]);
    server.cancel(&running(&tools, "sleep_ms").await).await;
    let made = asked.made(&server).await;
    assert_eq!((made.events.last().expect("an end").kind(), made.status()), ("response.cancelled", "cancelled"));
}

#[tokio::test]
async fn a_017_a_stored_response_continues_without_its_client() {
    let script = "laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: all done } ]";
    let (server, _tools) = scripted(script).await;
    in_every_mode(async |mode| {
        let body = with(ask_with("go", &[]), json!({ "windlass": { "tools": ["look_up"] } }));
        let asked = server.ask(mode, body);
        let call = server.claim("look_up").await;
        asked.hang_up();
        server.report(&call, json!("found")).await.ok();
        let response = server.over(&response_of(call["tool_call_id"].as_str().expect("a call has an id"))).await;
        assert_eq!((&response["status"], &response["output"][1]["content"][0]["text"]), (&json!("completed"), &json!("all done")));
    })
    .await;
}

/// Whether a run has ended while its tool is still running, which only a stop can cause. No route shows a run with `store: false`.
fn is_stopped(server: &Server, run: &str) -> bool {
    server.number(&format!("SELECT count(*) FROM runs WHERE status = 'ended' AND run = {}", windlass_tests::bytes(run))) == 1
}

#[tokio::test]
async fn a_017_a_response_that_is_not_stored_ends_after_its_client_went_away() {
    let script = "laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: all done } ]";
    let (server, _tools) = scripted_with(script, "responses: { join_s: 1 }").await;
    for mode in [Mode::Plain, Mode::Streamed] {
        let body = with(ask_with("go", &[]), json!({ "windlass": { "tools": ["look_up"] }, "store": false }));
        let asked = server.ask(mode, body);
        let call = server.claim("look_up").await;
        let run = call["agent_turn_id"].as_str().expect("a call has its run").to_owned();
        let left = Instant::now();
        asked.hang_up();
        until("it is stopped", || async { is_stopped(&server, &run).then_some(()) }).await;
        assert!(left.elapsed() >= Duration::from_millis(900), "it waits for its client to come back");
    }
}

/// The deadline starts again with the server that takes the run over, and the call that it started again is cancelled as well.
#[tokio::test]
async fn a_017_a_kill_does_not_let_it_run_to_its_end() {
    let script = "laps: [ { calls: [{ tool: sleep_ms, arguments: { ms: 60000 } }] }, { text: all done } ]";
    let (mut server, tools) = scripted_with(script, "responses: { join_s: 1 }").await;
    let asked = server.ask(Mode::Streamed, with(ask_with("go", &[mcp()]), json!({ "store": false })));
    tools.runs("sleep_ms", 1).await;
    let key = tools.starts("sleep_ms")[0].call_id.clone().expect("a call has a key");
    let run = key.replace("call_", "run_").trim_end_matches("_1").to_owned();
    server.kill();
    asked.hang_up();
    let server = server.restart(&[]).await;
    until("the call starts again", || async { (tools.starts("sleep_ms").len() == 2).then_some(()) }).await;
    until("it is stopped", || async { is_stopped(&server, &run).then_some(()) }).await;
    tools.runs("sleep_ms", 0).await;
}

#[tokio::test]
async fn a_040_the_deadline_of_the_request_bounds_every_tool() {
    let nap = "{ tool: sleep_ms, arguments: { ms: 60000 } }";
    let script = format!("laps: [ {{ calls: [{nap}, {{ tool: look_up, arguments: {{}} }}] }}, {{ text: never }} ]");
    let (server, tools) = scripted(&script).await;
    in_every_mode(async |mode| {
        let own = json!({ "windlass": { "tools": ["look_up"], "budgets": { "wall_time_s": 0.5 } } });
        let began = Instant::now();
        let made = server.respond(mode, with(ask_with("go", &[mcp()]), own)).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(reason(&made.object), (&json!("incomplete"), &json!("max_time")));
        assert_eq!(made.items("mcp_call").len(), 2);
        tools.runs("sleep_ms", 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_040_there_is_no_timeout_for_one_tool() {
    let script = "laps: [ { calls: [{ tool: sleep_ms, arguments: { ms: 300 } }] }, { text: rested } ]";
    let (server, _tools) = scripted(script).await;
    // Fields of a request that would be one have no effect.
    let timed = with(mcp(), json!({ "timeout": 0.05, "timeout_ms": 50, "timeout_s": 0.05 }));
    let body = with(ask_with("go", &[timed]), json!({ "tool_timeout": 0.05, "tool_timeout_ms": 50 }));
    let made = server.respond(Mode::Streamed, body).await;
    assert_eq!((&made.items("mcp_call")[0]["status"], made.text().as_str()), (&json!("completed"), "rested"));
    // The configuration of an MCP server has none either: the server refuses to start with an unknown key.
    let config = "tools: { mcp: [ { label: tools, url: 'http://127.0.0.1:1/mcp', timeout: 1s } ] }";
    let (status, message) = windlass_tests::ServerBuilder::new(config).refuses();
    assert!(!status.success() && message.contains("timeout"), "{message}");
}

#[tokio::test]
async fn several_readers_follow_one_response_and_one_that_leaves_does_not_disturb_the_others() {
    let script = "laps: [ { text: one two three four, chunk: 4, chunk_delay_ms: 20 }, { text: never } ]";
    let (server, _tools) = scripted(script).await;
    let asked = server.ask(Mode::Followed, with(ask_with("go", &[function("f")]), json!({})));
    let id = asked.id().await;
    let mut leaver = server.follow(&id, None).await;
    assert!(matches!(leaver.next().await, Next::Event(_)));
    drop(leaver);
    let (one, other) = tokio::join!(server.replay(&id), server.replay(&id));
    let made = asked.made(&server).await;
    let data = |events: &[windlass_tests::StreamEvent]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!((data(&one), data(&other)), (data(&made.events), data(&made.events)));
}

#[tokio::test]
async fn a_017_a_response_that_waits_for_its_agent_can_be_cancelled() {
    let script = "laps: [ { calls: [{ tool: look_up, arguments: {} }] }, { text: all done } ]";
    let (server, tools) = scripted_with(script, "agents: { busy: { tools: [look_up], serial: true } }").await;
    let body = json!({ "model": "agent/busy", "input": "go" });
    let first = server.ask(Mode::Streamed, body.clone());
    let call = server.claim("look_up").await;
    for mode in [Mode::Background, Mode::Followed, Mode::Streamed] {
        let asked = server.ask(mode, body.clone());
        let id = asked.id().await;
        let status = if mode == Mode::Streamed { "in_progress" } else { "queued" };
        assert_eq!(server.response(&id).await["status"], status);
        let cancelled = server.cancel(&id).await;
        assert_eq!(reason(&cancelled), (&json!("cancelled"), &json!("cancelled")));
        let made = asked.made(&server).await;
        assert_eq!((&made.object, made.output().len()), (&cancelled, 0));
    }
    server.report(&call, json!("found")).await.ok();
    assert_eq!(first.made(&server).await.text(), "all done");
    assert_eq!(tools.requests(), 0);
}
