//! Bad requests are refused, never with a 500 and always in the same shape.

use axum::body::Body;
use serde_json::{Value, json};

use crate::support::{BODY_BYTES_MAX, ITEM_BYTES_MAX, World, request};

const RUN: &str = "run_00000000000000000000000000000007";
const CALL: &str = "call_00000000000000000000000000000007_1";

async fn check(world: &World, path: &str, cases: &[(&str, u16, &str)]) {
    for (body, status, code) in cases {
        let body = body.replace("$RUN", RUN).replace("$CALL", CALL);
        let answer = world.post(path, body.clone()).await;
        assert_eq!(answer.refusal(), (*status, (*code).to_owned()), "{path} {body}: {}", answer.text);
        assert!(!answer.json()["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn requests_for_turns_are_checked() {
    let cases = [
        ("", 400, "bad_json"),
        ("{", 400, "bad_json"),
        ("nonsense", 400, "bad_json"),
        ("[]", 400, "bad_json"),
        ("null", 400, "bad_json"),
        (r#"{"input": "x"} trailing"#, 400, "bad_json"),
        (r#"{"input": "x", "input": "y"}"#, 400, "bad_json"),
        (r#"{"\ud800": 1, "input": "x"}"#, 400, "bad_json"),
        ("{}", 400, "missing_field"),
        (r#"{"input": null}"#, 400, "missing_field"),
        (r#"{"input": 5}"#, 400, "bad_field"),
        (r#"{"input": {}}"#, 400, "bad_field"),
        (r#"{"input": []}"#, 400, "bad_field"),
        (r#"{"input": ["a", 1]}"#, 400, "bad_field"),
        (r#"{"input": [["a"]]}"#, 400, "bad_field"),
        (r#"{"input": "\ud800"}"#, 400, "bad_field"),
        (r#"{"inptu": "x"}"#, 400, "unknown_field"),
        (r#"{"input": "x", "tenant": "u"}"#, 400, "unknown_field"),
        (r#"{"input": "x", "model": 1}"#, 400, "bad_field"),
        (r#"{"input": "x", "model": ""}"#, 400, "bad_field"),
        (r#"{"input": "x", "model": "gpt-9"}"#, 400, "unknown_model"),
        (r#"{"input": "x", "instructions": []}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": "echo"}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": [1]}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": ["hammer"]}"#, 400, "unknown_tool"),
        (r#"{"input": "x", "context_box_id": "box_1"}"#, 400, "unknown_box"),
        (r#"{"input": "x", "context_box_id": "box_00000000000000000000000000000007"}"#, 400, "unknown_box"),
        (r#"{"input": "x", "context_box_id": 7}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": {}}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": ["a"]}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": [{}]}"#, 400, "missing_field"),
        (r#"{"input": "x", "result_fields": [{"name": "a", "required": "yes"}]}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": [{"name": "a", "requird": true}]}"#, 400, "unknown_field"),
        (r#"{"input": "x", "result_fields": [{"name": "a"}, {"name": "a"}]}"#, 400, "bad_field"),
        (r#"{"input": "x", "idempotency_key": ""}"#, 400, "bad_field"),
        (r#"{"input": "x", "parent_step_id": "a\u0000b"}"#, 400, "bad_field"),
    ];
    check(&World::start(), "/v1/agents/alice/enqueue", &cases).await;
}

#[tokio::test]
async fn reports_are_checked() {
    let cases = [
        ("{}", 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL"}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "fine"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": 1}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "after_execution": "x"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": -1}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": -0}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": 1.0}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": 1e2}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": "1"}"#, 400, "bad_epoch"),
        (
            r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "turn_epoch": 99999999999999999999}"#,
            400,
            "bad_epoch",
        ),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "run_8", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": 8, "tool_call_id": "$CALL", "status": "success"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "call_x", "status": "success"}"#, 404, "unknown_call"),
        (r#"{"agent_turn_id": "run_00000000000000000000000000000008", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_call"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "result": }"#, 400, "bad_json"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "result": "\q"}"#, 400, "bad_json"),
    ];
    check(&World::start(), "/v1/agents/alice/report", &cases).await;
}

#[tokio::test]
async fn stops_and_actions_are_checked() {
    let world = World::start();
    let stops = [
        (r#"{"agent_turn_id": "$RUN"}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": 1}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": "a\u0000b"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": "x", "turn_epoch": -1}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "reason": "x"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "x", "reason": "x"}"#, 404, "unknown_turn"),
    ];
    check(&world, "/v1/agents/alice/stop", &stops).await;
    let instructions = [
        (r#"{"agent_turn_id": "$RUN"}"#, 400, "missing_field"),
        (r#"{"input": "x"}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "input": 1}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "input": []}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "input": ["one", "two"]}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "input": "x", "turn_epoch": 1}"#, 400, "unknown_field"),
        (r#"{"agent_turn_id": "$RUN", "input": "x"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "x", "input": "x"}"#, 404, "unknown_turn"),
    ];
    check(&world, "/v1/agents/alice/steer", &instructions).await;
    let actions = [
        (r#"{"tool": "echo"}"#, 400, "missing_field"),
        (r#"{"action_id": "a"}"#, 400, "missing_field"),
        (r#"{"action_id": "a", "tool": "hammer"}"#, 400, "unknown_tool"),
        (r#"{"action_id": "a", "tool": "echo", "args": []}"#, 400, "bad_field"),
        (r#"{"action_id": "a", "tool": "echo", "arguments": {}}"#, 400, "unknown_field"),
    ];
    check(&world, "/v1/agents/alice/actions", &actions).await;
}

#[tokio::test]
async fn claims_are_checked() {
    let world = World::start();
    let long = format!(r#"{{"worker": "{}"}}"#, "w".repeat(129));
    let claims = [
        ("{}", 400, "missing_field"),
        (r#"{"worker": ""}"#, 400, "bad_field"),
        (long.as_str(), 400, "bad_field"),
        (r#"{"worker": "w", "max": 0}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": 101}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": 1.5}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease_s": 0}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease_s": 3601}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease_s": 99999999999999999999999}"#, 400, "bad_field"),
        (r#"{"worker": "w", "wait_s": 31}"#, 400, "bad_field"),
        (r#"{"worker": "w", "wait": 1}"#, 400, "unknown_field"),
    ];
    check(&world, "/v1/tools/echo/claim", &claims).await;
    let renewals = [
        (r#"{"worker": "w"}"#, 400, "missing_field"),
        (r#"{"worker": "w", "calls": {}}"#, 400, "bad_field"),
        (r#"{"worker": "w", "calls": ["x"]}"#, 400, "bad_field"),
        (r#"{"worker": "w", "calls": [{"agent_turn_id": "$RUN"}]}"#, 400, "missing_field"),
        (r#"{"worker": "w", "calls": [{"run_id": "$RUN"}]}"#, 400, "unknown_field"),
    ];
    check(&world, "/v1/tools/echo/renew", &renewals).await;
    check(&world, "/v1/tools/echo/release", &renewals).await;
}

#[tokio::test]
async fn packed_boxes_are_checked() {
    let cases = [
        (r#"{"boxes": "x"}"#, 400, "bad_field"),
        (r#"{"boxes": ["x"]}"#, 400, "unknown_box"),
        (r#"{"boxes": ["box_00000000000000000000000000000007"]}"#, 400, "unknown_box"),
        (r#"{"items": [1]}"#, 400, "bad_field"),
        (r#"{"item": ["a"]}"#, 400, "unknown_field"),
    ];
    check(&World::start(), "/v1/windlass/boxes", &cases).await;
}

#[tokio::test]
async fn reads_are_checked() {
    let world = World::start();
    let long = format!("/v1/agents/{}", "a".repeat(129));
    for (path, status, code) in [
        ("/v1/agents/a%20b", 400, "bad_agent"),
        ("/v1/agents/a%2Fb", 400, "bad_agent"),
        ("/v1/agents/%FF", 400, "bad_agent"),
        ("/v1/agents/a*b/events", 400, "bad_agent"),
        (long.as_str(), 400, "bad_agent"),
        ("/v1/agents/alice?x=1", 400, "unknown_parameter"),
        ("/v1/agents/alice/inbox?limit=0", 400, "bad_query"),
        ("/v1/agents/alice/inbox?limit=1001", 400, "bad_query"),
        ("/v1/agents/alice/inbox?limit=-1", 400, "bad_query"),
        ("/v1/agents/alice/inbox?limit=1&limit=2", 400, "bad_query"),
        ("/v1/agents/alice/inbox?after=7", 400, "bad_cursor"),
        ("/v1/agents/alice/inbox?after=inbox_99999999999999999999", 400, "bad_cursor"),
        ("/v1/agents/alice/edges?aftr=inbox_1", 400, "unknown_parameter"),
        ("/v1/agents/alice/events?after=1", 400, "bad_cursor"),
        ("/v1/agents/alice/events?after=1.0.0", 400, "bad_cursor"),
        ("/v1/agents/alice/events?from=end", 400, "bad_query"),
        ("/v1/windlass/runs/x", 404, "unknown_run"),
        ("/v1/windlass/runs/%FF", 404, "unknown_run"),
        ("/v1/windlass/runs/run_00000000000000000000000000000007", 404, "unknown_run"),
        ("/v1/windlass/runs/x/journal?from=-1", 400, "bad_query"),
        ("/v1/windlass/runs/x/calls?from=99999999999", 400, "bad_query"),
        ("/v1/windlass/items/item_1", 404, "unknown_item"),
        ("/v1/windlass/items/item_00000000000000000000000000000007", 404, "unknown_item"),
        ("/v1/windlass/boxes/box_1", 404, "unknown_box"),
        ("/v1/windlass/boxes/box_1?from=99999999999", 400, "bad_query"),
        ("/v1/nowhere", 404, "unknown_path"),
        ("/v1/agents//inbox", 400, "bad_agent"),
        ("/", 404, "unknown_path"),
        ("/v1/agents/alice/enqueue", 405, "method_not_allowed"),
        ("/v1/tools/echo/claim", 405, "method_not_allowed"),
    ] {
        assert_eq!(world.get(path).await.refusal(), (status, code.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let world = World::start();
    for (path, allowed) in [("/v1/agents/alice", "GET"), ("/healthz", "GET")] {
        let answer = world.post(path, "{}").await;
        assert_eq!(answer.refusal(), (405, "method_not_allowed".into()), "{path}");
        assert!(answer.headers["allow"].to_str().unwrap().contains(allowed), "{answer:?}");
    }
}

#[tokio::test]
async fn errors_help() {
    let world = World::start();
    let error = |answer: Value, part: &str| answer["error"][part].as_str().unwrap_or_default().to_owned();
    let path = "/v1/agents/alice/enqueue";
    let misspelt = world.post(path, r#"{"inptu": "x"}"#).await.json();
    assert_eq!(error(misspelt, "hint"), "did you mean `input`?");
    let nested = world.post(path, r#"{"input": "x", "result_fields": [{"name": "a"}, {"name": 5}]}"#).await.json();
    assert_eq!(error(nested, "message"), "`result_fields[1].name` must be a string");
    let broken = world.post(path, "{\n  \"input\": oops\n}").await.json();
    assert!(error(broken, "message").contains("line 2 column"), "position");
    let element = world.post(path, r#"{"input": ["a", 1]}"#).await.json();
    assert_eq!(error(element, "message"), "`input[1]` must be a string or an object");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let world = World::start();
    let answer = world.post("/v1/agents/alice/enqueue", b"{\"input\": \"\xff\"}".to_vec()).await;
    assert_eq!(answer.refusal(), (400, "bad_utf8".into()));
    let zipped = request("POST", "all", "/v1/agents/alice/enqueue").header("content-encoding", "gzip");
    let answer = world.send(zipped.body(Body::from("x")).unwrap()).await;
    assert_eq!(answer.refusal(), (415, "unsupported_encoding".into()));
    let form = request("POST", "all", "/v1/agents/alice/enqueue").header("content-type", "multipart/form-data; boundary=x");
    let answer = world.send(form.body(Body::from("--x")).unwrap()).await;
    assert_eq!(answer.refusal(), (415, "unsupported_type".into()));
    for key in [&b""[..], b"\xff", &[b'k'; 257]] {
        let keyed = request("POST", "all", "/v1/agents/alice/enqueue").header("idempotency-key", key);
        let answer = world.send(keyed.body(Body::from(r#"{"input": "x"}"#)).unwrap()).await;
        assert_eq!(answer.refusal(), (400, "bad_idempotency_key".into()));
    }
    let cursor = request("GET", "all", "/v1/agents/alice/events").header("last-event-id", &b"\xff"[..]);
    assert_eq!(world.send(cursor.body(Body::empty()).unwrap()).await.refusal(), (400, "bad_cursor".into()));
}

#[tokio::test]
async fn sizes_are_bounded() {
    let world = World::start();
    let path = "/v1/agents/alice/enqueue";
    let item = json!({ "input": "x".repeat(ITEM_BYTES_MAX) }).to_string();
    assert_eq!(world.post(path, item).await.refusal(), (413, "item_too_large".into()));
    let body = json!({ "input": "x".repeat(BODY_BYTES_MAX) }).to_string();
    assert_eq!(world.post(path, body).await.refusal(), (413, "body_too_large".into()));
    let items = json!({ "input": vec!["x"; 1001] }).to_string();
    assert_eq!(world.post(path, items).await.refusal(), (400, "bad_field".into()));
    let deep = format!(r#"{{"input": [{{"a": {}{}}}]}}"#, "[".repeat(200_000), "]".repeat(200_000));
    world.post(path, deep).await.expect(202);
}

#[tokio::test]
async fn tm_19_a_long_name_is_refused_briefly_and_without_a_suggestion() {
    let world = World::start();
    let long = "input".repeat(200_000);
    let paths = ["/v1/agents/alice/enqueue", "/v1/windlass/boxes", "/v1/responses", "/v1/conversations", "/v1/responses/compact"];
    let bodies = [
        json!({ &long: 1 }),
        json!({ "input": "x", &long: 1 }),
        json!({ "input": "x", "model": long }),
        json!({ "input": "x", "metadata": { &long: "x" } }),
        json!({ "input": "x", "tools": [{ "type": long }] }),
        json!({ "input": "x", "tools": [{ "type": "function", "name": long, "parameters": {} }] }),
        json!({ "input": [{ "type": long }] }),
        json!({ "input": "x", "reasoning": { &long: 1 } }),
        json!({ "input": "x", "include": [long] }),
        json!({ "input": "x", "previous_response_id": long }),
        json!({ "input": "x", "conversation": long }),
    ];
    for path in paths {
        for body in &bodies {
            let answer = world.post(path, body.to_string()).await;
            if answer.status.is_success() {
                continue;
            }
            let shown: String = body.to_string().chars().take(60).collect();
            assert!(answer.text.len() < 2_000, "{path} {shown}: {} bytes", answer.text.len());
            assert!(!answer.text.contains("did you mean"), "{path} {shown}: {}", answer.text);
        }
    }
    let query = world.get(&format!("/v1/windlass/runs?{}=1", "status".repeat(20))).await;
    assert!(query.status == 400 && !query.text.contains("did you mean"), "{}", query.text);
}
