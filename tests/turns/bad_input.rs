//! Invalid input: each is refused with a machine-readable code, and nothing changes.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, Server, ServerBuilder};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read, tenants: ['*'] }
    - { name: other, effect: read, tenants: ['*'] }
agents:
  a: { tools: [echo, other], tenants: ['*'] }
  b: { tools: [echo], tenants: ['*'] }
auth:
  tokens:
    - { token: test-token-of-22-characters, scopes: ['*'] }
    - { token: foreign-token-of-22-characters, tenant: elsewhere, scopes: ['*'] }
    - { token: reader-token-of-22-characters, scopes: ['agents:read', 'runs:read'] }
    - { token: writer-token-of-22-characters, scopes: ['agents:write'] }
    - { token: echoer-token-of-22-characters, scopes: ['tools:echo'] }
    - { token: otherer-token-of-22-characters, scopes: ['tools:other'] }
limits: { body_bytes: 20000, item_bytes: 4000 }
";

/// A server whose agent `a` waits for one call of `echo`.
struct Scene {
    server: Server,
    run: String,
    call: Value,
}

impl Scene {
    async fn start() -> Self {
        let server = ServerBuilder::new(CONFIG).start().await;
        let run = server.enqueue("a", "call echo").await;
        let call = server.claim("echo").await;
        server.suspended("a", &run).await;
        Scene { server, run, call }
    }

    /// Asserts that each of these bodies is refused with this status and code, and that the database stays as it is.
    async fn refuses(&self, path: &str, refusals: &[(&str, u16, &str)]) {
        let before = self.server.snapshot();
        for (body, status, code) in refusals {
            let body = self.fill(body);
            let answer = self.server.post_bytes(path, body.clone().into_bytes()).await;
            let shown: String = body.chars().take(200).collect();
            assert_eq!((answer.status, answer.code()), (*status, *code), "{path} {shown}: {}", answer.body);
            assert!(
                answer.body["error"]["message"].as_str().is_some_and(|message| !message.is_empty() && message.len() < 1000),
                "{}",
                answer.body
            );
        }
        assert_eq!(self.server.snapshot(), before, "{path} changed something");
    }

    /// Replaces placeholders in a body by the ids of the scene.
    fn fill(&self, body: &str) -> String {
        body.replace("$RUN", &self.run).replace("$CALL", self.call["tool_call_id"].as_str().expect("an id"))
    }

    async fn send_as(&self, token: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.server.request(method, path).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.server.send(request).await
    }
}

#[tokio::test]
async fn an_enqueue_that_makes_no_sense_is_refused_and_changes_nothing() {
    let scene = Scene::start().await;
    let long_name = format!(r#"{{"input": "x", "model": "{}"}}"#, "m".repeat(129));
    let many_fields = format!(r#"{{"input": "x", "result_fields": [{}]}}"#, vec![r#"{"name": "n"}"#; 101].join(","));
    let big_item = format!(r#"{{"input": "{}"}}"#, "x".repeat(5000));
    let big_body = format!(r#"{{"input": "{}"}}"#, "x".repeat(30_000));
    let refusals = [
        ("", 400, "bad_json"),
        ("{", 400, "bad_json"),
        ("null", 400, "bad_json"),
        ("[]", 400, "bad_json"),
        (r#""input""#, 400, "bad_json"),
        (r#"{"input": "x"} and more"#, 400, "bad_json"),
        (r#"{"input": "x",}"#, 400, "bad_json"),
        (r#"{"input": "x", "input": "y"}"#, 400, "bad_json"),
        ("{}", 400, "missing_field"),
        (r#"{"input": null}"#, 400, "missing_field"),
        (r#"{"input": 1}"#, 400, "bad_field"),
        (r#"{"input": {}}"#, 400, "bad_field"),
        (r#"{"input": []}"#, 400, "bad_field"),
        (r#"{"input": [1]}"#, 400, "bad_field"),
        (r#"{"input": [["x"]]}"#, 400, "bad_field"),
        (r#"{"input": "\ud800"}"#, 400, "bad_field"),
        (r#"{"inptu": "x"}"#, 400, "unknown_field"),
        (r#"{"input": "x", "turn_epoch": 1}"#, 400, "unknown_field"),
        (r#"{"input": "x", "agent_turn_id": "$RUN"}"#, 400, "unknown_field"),
        (r#"{"input": "x", "model": 1}"#, 400, "bad_field"),
        (r#"{"input": "x", "model": ""}"#, 400, "bad_field"),
        (r#"{"input": "x", "model": "unknown"}"#, 400, "unknown_model"),
        (&long_name, 400, "bad_field"),
        (r#"{"input": "x", "instructions": ["be nice"]}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": "echo"}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": [1]}"#, 400, "bad_field"),
        (r#"{"input": "x", "tools": ["nothing"]}"#, 400, "unknown_tool"),
        (r#"{"input": "x", "tools": ["submit_result"]}"#, 400, "unknown_tool"),
        (r#"{"input": "x", "context_box_id": 7}"#, 400, "bad_field"),
        (r#"{"input": "x", "context_box_id": "box_7"}"#, 400, "unknown_box"),
        (r#"{"input": "x", "context_box_id": "box_00000000000000000000000000000007"}"#, 400, "unknown_box"),
        (r#"{"input": "x", "idempotency_key": ""}"#, 400, "bad_field"),
        (r#"{"input": "x", "idempotency_key": "a\u0000b"}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": "title"}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": [{"name": "t"}, {"name": "t"}]}"#, 400, "bad_field"),
        (r#"{"input": "x", "result_fields": [{"name": "t", "kind": 1}]}"#, 400, "unknown_field"),
        (&many_fields, 400, "bad_field"),
        (&big_item, 413, "item_too_large"),
        (&big_body, 413, "body_too_large"),
    ];
    scene.refuses("/v1/agents/b/enqueue", &refusals).await;
    let hinted = scene.server.post("/v1/agents/b/enqueue", json!({ "inptu": "x" })).await;
    assert!(hinted.body["error"]["hint"].as_str().is_some_and(|hint| hint.contains("input")), "{}", hinted.body);
}

#[tokio::test]
async fn a_report_that_fits_no_call_is_refused_and_changes_nothing() {
    let scene = Scene::start().await;
    let other = scene.call["tool_call_id"].as_str().expect("an id").trim_end_matches('1').to_owned();
    let never = format!(r#"{{"agent_turn_id": "$RUN", "tool_call_id": "{other}2", "status": "success", "result": 1}}"#);
    let huge = format!(r#"{{"agent_turn_id": "$RUN", "tool_call_id": "{other}99999999999999999999", "status": "success"}}"#);
    let zero = format!(r#"{{"agent_turn_id": "$RUN", "tool_call_id": "{other}0", "status": "success"}}"#);
    let big = format!(r#"{{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "result": "{}"}}"#, "x".repeat(5000));
    let report = |more: &str| format!(r#"{{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "result": 1, {more}}}"#);
    let epochs: Vec<String> = ["-1", "1.5", "\"1\"", "1e3", "9223372036854775808", "99999999999999999999999", "true", "[1]", "01"]
        .iter()
        .map(|epoch| report(&format!(r#""status": "success", "turn_epoch": {epoch}"#)))
        .collect();
    let mut refusals = vec![
        ("{}", 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "status": "success"}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "result": 1}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": 1, "tool_call_id": "$CALL", "status": "success"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": [], "status": "success"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "great"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": 1}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "after_execution": "loop"}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "results": 1}"#, 400, "unknown_field"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success", "result": }"#, 400, "bad_json"),
        (r#"{"agent_turn_id": "run_7", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "$CALL", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "$RUN", "tool_call_id": "call_7", "status": "success"}"#, 404, "unknown_call"),
        (
            r#"{"agent_turn_id": "$RUN", "tool_call_id": "call_00000000000000000000000000000007_1", "status": "success"}"#,
            404,
            "unknown_call",
        ),
        (&never, 404, "unknown_call"),
        (&huge, 404, "unknown_call"),
        (&zero, 404, "unknown_call"),
        (&big, 413, "item_too_large"),
    ];
    // A number with a leading zero is invalid JSON.
    refusals.extend(epochs.iter().map(|body| (body.as_str(), 400, if body.contains("01}") { "bad_json" } else { "bad_epoch" })));
    scene.refuses("/v1/agents/a/report", &refusals).await;
    let elsewhere = [(r#"{"agent_turn_id": "$RUN", "tool_call_id": "$CALL", "status": "success"}"#, 404, "unknown_turn")];
    scene.refuses("/v1/agents/b/report", &elsewhere).await;
    scene.refuses("/v1/agents/nobody/report", &elsewhere).await;
    assert_eq!(scene.server.report(&scene.call, json!("fine")).await.status, 202, "the real one is still taken");
}

#[tokio::test]
async fn stops_claims_actions_and_decisions_that_make_no_sense_are_refused() {
    let scene = Scene::start().await;
    let long = format!(r#"{{"agent_turn_id": "$RUN", "reason": "{}"}}"#, "r".repeat(4097));
    let stops = [
        ("{}", 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN"}"#, 400, "missing_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": 1}"#, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": "a\u0000b"}"#, 400, "bad_field"),
        (&long, 400, "bad_field"),
        (r#"{"agent_turn_id": "$RUN", "reason": "x", "turn_epoch": -1}"#, 400, "bad_epoch"),
        (r#"{"agent_turn_id": "$RUN", "reason": "x", "turn_epoch": 9223372036854775807}"#, 409, "epoch_ahead"),
        (r#"{"agent_turn_id": "nothing", "reason": "x"}"#, 404, "unknown_turn"),
        (r#"{"agent_turn_id": "run_00000000000000000000000000000007", "reason": "x"}"#, 404, "unknown_turn"),
    ];
    scene.refuses("/v1/agents/a/stop", &stops).await;
    let long_worker = format!(r#"{{"worker": "{}"}}"#, "w".repeat(129));
    let claims = [
        ("{}", 400, "missing_field"),
        (r#"{"worker": ""}"#, 400, "bad_field"),
        (r#"{"worker": 1}"#, 400, "bad_field"),
        (&long_worker, 400, "bad_field"),
        (r#"{"worker": "w", "max": 0}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": -1}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": 101}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": "1"}"#, 400, "bad_field"),
        (r#"{"worker": "w", "max": 1e0}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease_s": 0}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease_s": 99999999999999999999}"#, 400, "bad_field"),
        (r#"{"worker": "w", "wait_s": -5}"#, 400, "bad_field"),
        (r#"{"worker": "w", "lease": 5}"#, 400, "unknown_field"),
    ];
    scene.refuses("/v1/tools/echo/claim", &claims).await;
    scene.refuses("/v1/tools/nothing/claim", &[(r#"{"worker": "w"}"#, 404, "unknown_tool")]).await;
    let holds = [
        (r#"{"worker": "w"}"#, 400, "missing_field"),
        (r#"{"worker": "w", "calls": {}}"#, 400, "bad_field"),
        (r#"{"worker": "w", "calls": [1]}"#, 400, "bad_field"),
        (r#"{"worker": "w", "calls": [{"agent_turn_id": "$RUN"}]}"#, 400, "missing_field"),
    ];
    scene.refuses("/v1/tools/echo/renew", &holds).await;
    scene.refuses("/v1/tools/echo/release", &holds).await;
    let actions = [
        (r#"{"tool": "echo"}"#, 400, "missing_field"),
        (r#"{"action_id": "x"}"#, 400, "missing_field"),
        (r#"{"action_id": "x", "tool": "echo", "args": [1]}"#, 400, "bad_field"),
        (r#"{"action_id": "x", "tool": "echo", "args": "{}"}"#, 400, "bad_field"),
        (r#"{"action_id": "x", "tool": "nothing"}"#, 400, "unknown_tool"),
        (r#"{"action_id": "x", "tool": "echo", "arguments": {}}"#, 400, "unknown_field"),
        (r#"{"action_id": "x", "tool": "echo"}"#, 409, "busy"),
    ];
    scene.refuses("/v1/agents/a/actions", &actions).await;
    let decisions = [
        ("{}", 400, "missing_field"),
        (r#"{"run_id": "$RUN", "tool_call_id": "$CALL", "action": "undo"}"#, 400, "bad_field"),
        (r#"{"run_id": "$RUN", "action": "release"}"#, 400, "missing_field"),
        (r#"{"run_id": "$RUN", "action": "resume", "tool_call_id": "$CALL"}"#, 400, "bad_field"),
        (r#"{"run_id": "$RUN", "action": "tell", "tool_call_id": "$CALL", "result": 1}"#, 400, "bad_field"),
        (r#"{"run_id": "$RUN", "action": "tell", "tool_call_id": "$CALL"}"#, 409, "not_parked"),
        (r#"{"run_id": "$RUN", "action": "resume"}"#, 409, "not_parked"),
        (r#"{"run_id": "nothing", "action": "resume"}"#, 404, "unknown_run"),
        (r#"{"run_id": "$RUN", "action": "tell", "tool_call_id": "call_1"}"#, 404, "unknown_call"),
    ];
    scene.refuses("/v1/windlass/reconcile", &decisions).await;
    let packs = [
        (r#"{"boxes": ["box_7"]}"#, 400, "unknown_box"),
        (r#"{"boxes": "box_7"}"#, 400, "bad_field"),
        (r#"{"items": [1]}"#, 400, "bad_field"),
        (r#"{"cards": []}"#, 400, "unknown_field"),
    ];
    scene.refuses("/v1/windlass/boxes", &packs).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let scene = Scene::start().await;
    let before = scene.server.snapshot();
    let bodies: [&[u8]; 4] = [b"{\"input\": \"\xff\"}", b"\xef\xbb\xbf{", b"{\"input\": \"\xed\xa0\x80\"}", b"\x00\x01\x02"];
    for (body, code) in bodies.iter().zip(["bad_utf8", "bad_json", "bad_utf8", "bad_json"]) {
        for path in ["/v1/agents/b/enqueue", "/v1/agents/a/report", "/v1/agents/a/stop", "/v1/tools/echo/claim"] {
            let answer = scene.server.post_bytes(path, body.to_vec()).await;
            assert_eq!((answer.status, answer.code()), (400, code), "{path} {body:?}");
        }
    }
    let zipped = scene.server.request(Method::POST, "/v1/agents/b/enqueue").header("content-encoding", "gzip").body("x");
    let answer = scene.server.send(zipped).await;
    assert_eq!((answer.status, answer.code()), (415, "unsupported_encoding"));
    assert_eq!(scene.server.snapshot(), before);
}

#[tokio::test]
async fn bodies_nested_without_end_are_refused_or_kept_and_never_bring_the_server_down() {
    let config = CONFIG.replace("body_bytes: 20000, item_bytes: 4000", "body_bytes: 4000000, item_bytes: 3000000");
    let server = ServerBuilder::new(&config).start().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    server.suspended("a", &run).await;
    let before = server.snapshot();
    let bomb = "[".repeat(1_000_000);
    for path in ["/v1/agents/b/enqueue", "/v1/agents/a/report", "/v1/agents/a/stop", "/v1/tools/echo/claim", "/v1/windlass/boxes"] {
        let answer = server.post_bytes(path, bomb.clone().into_bytes()).await;
        assert_eq!((answer.status, answer.code()), (400, "bad_json"), "{path}");
        let inside = format!(r#"{{"input": {bomb}"#);
        assert_eq!(server.post_bytes(path, inside.into_bytes()).await.status, 400, "{path}");
    }
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let answer = server.post_bytes("/v1/agents/b/enqueue", format!(r#"{{"input": [{deep}]}}"#).into_bytes()).await;
    assert_eq!((answer.status, answer.code()), (400, "bad_field"));
    assert_eq!(server.snapshot(), before);
    // The content is opaque to the server: a tool may return deeply nested JSON.
    let id = call["tool_call_id"].as_str().expect("an id");
    let report = format!(r#"{{"agent_turn_id": "{run}", "tool_call_id": "{id}", "status": "success", "result": {deep}}}"#);
    assert_eq!(server.post_bytes("/v1/agents/a/report", report.into_bytes()).await.status, 202);
    assert_eq!(server.ended(&run).await["task_status"], "success");
    let item = format!(r#"{{"input": [{{"deep": {deep}}}]}}"#);
    let answer = server.post_bytes("/v1/agents/b/enqueue", item.into_bytes()).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(server.ended(answer.body["run_id"].as_str().expect("a run")).await["status"], "ended");
}

#[tokio::test]
async fn names_ids_and_queries_that_make_no_sense_are_refused() {
    let scene = Scene::start().await;
    let before = scene.server.snapshot();
    let long = format!("/v1/agents/{}", "n".repeat(129));
    let gets = [
        ("/v1/agents/bad%20name", 400, "bad_agent"),
        ("/v1/agents/b%C3%A4h", 400, "bad_agent"),
        ("/v1/agents/a%2Fb", 400, "bad_agent"),
        ("/v1/agents/a%00", 400, "bad_agent"),
        ("/v1/agents/%FF", 400, "bad_agent"),
        (&long, 400, "bad_agent"),
        ("/v1/agents/nobody", 404, "unknown_agent"),
        ("/v1/agents/nobody/inbox", 404, "unknown_agent"),
        ("/v1/agents/nobody/edges", 404, "unknown_agent"),
        ("/v1/agents/a?verbose=1", 400, "unknown_parameter"),
        ("/v1/agents/a/inbox?limit=0", 400, "bad_query"),
        ("/v1/agents/a/inbox?limit=1001", 400, "bad_query"),
        ("/v1/agents/a/inbox?limit=-1", 400, "bad_query"),
        ("/v1/agents/a/inbox?limit=1&limit=2", 400, "bad_query"),
        ("/v1/agents/a/inbox?limti=1", 400, "unknown_parameter"),
        ("/v1/agents/a/inbox?after=zebra", 400, "bad_cursor"),
        ("/v1/agents/a/edges?after=inbox_99999999999999999999", 400, "bad_cursor"),
        ("/v1/agents/a/events?from=middle", 400, "bad_query"),
        ("/v1/agents/a/events?after=1.2", 400, "bad_cursor"),
        ("/v1/agents/a/events?after=99.0.0", 400, "bad_cursor"),
        ("/v1/windlass/runs/nothing", 404, "unknown_run"),
        ("/v1/windlass/runs/run_00000000000000000000000000000007", 404, "unknown_run"),
        ("/v1/windlass/runs/nothing/journal", 404, "unknown_run"),
        ("/v1/windlass/runs/$RUN/journal?from=-1", 400, "bad_query"),
        ("/v1/windlass/runs/$RUN/calls?from=99999999999", 400, "bad_query"),
        ("/v1/windlass/items/nothing", 404, "unknown_item"),
        ("/v1/windlass/boxes/nothing", 404, "unknown_box"),
        ("/v1/windlass/nothing", 404, "unknown_path"),
        ("/v2/agents/a", 404, "unknown_path"),
        ("/v1/agents/a/enqueue", 405, "method_not_allowed"),
        ("/v1/windlass/reconcile", 405, "method_not_allowed"),
    ];
    for (path, status, code) in gets {
        let answer = scene.server.get(&scene.fill(path)).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{path}: {}", answer.body);
    }
    for name in ["bad%20name", "%2e%2e%2fa", "a%00"] {
        let answer = scene.server.post(&format!("/v1/agents/{name}/enqueue"), json!({ "input": "x" })).await;
        assert_eq!((answer.status, answer.code()), (400, "bad_agent"), "{name}");
    }
    let deleted = scene.server.send(scene.server.request(Method::DELETE, "/v1/agents/a")).await;
    assert_eq!((deleted.status, deleted.code()), (405, "method_not_allowed"));
    let cursor = scene.server.send(scene.server.request(Method::GET, "/v1/agents/a/events").header("last-event-id", "zebra")).await;
    assert_eq!((cursor.status, cursor.code()), (400, "bad_cursor"));
    let keys = scene.server.request(Method::POST, "/v1/agents/b/enqueue").header("idempotency-key", "one");
    let answer = scene.server.send(keys.json(&json!({ "input": "x", "idempotency_key": "two" }))).await;
    assert_eq!((answer.status, answer.code()), (400, "idempotency_key_mismatch"));
    let key = scene.server.request(Method::POST, "/v1/agents/b/enqueue").header("idempotency-key", "k".repeat(257));
    let answer = scene.server.send(key.json(&json!({ "input": "x" }))).await;
    assert_eq!((answer.status, answer.code()), (400, "bad_idempotency_key"));
    assert_eq!(scene.server.snapshot(), before);
}

#[tokio::test]
async fn without_a_known_token_nothing_is_shown_and_nothing_is_done() {
    let scene = Scene::start().await;
    let before = scene.server.snapshot();
    let paths = ["/v1/agents/a", "/v1/windlass/runs/$RUN", "/v1/nothing", "/", "/v1/agents/a/events"];
    for header in
        ["Bearer wrong", "Bearer ", "Basic dGVzdC10b2tlbg==", "test-token-of-22-characters", "Bearer test-token-of-22-characters2"]
    {
        for path in paths {
            let request = scene.server.request(Method::GET, &scene.fill(path)).header("authorization", header);
            let answer = scene.server.send(request).await;
            assert_eq!((answer.status, answer.code()), (401, "unauthorized"), "{header} {path}");
        }
    }
    let twice = scene
        .server
        .request(Method::GET, "/v1/agents/a")
        .header("authorization", "Bearer test-token-of-22-characters")
        .header("authorization", "Bearer x");
    assert_eq!(scene.server.send(twice).await.status, 401);
    let none = scene.server.request(Method::POST, "/v1/agents/b/enqueue").json(&json!({ "input": "x" })).send().await.expect("an answer");
    assert_eq!(none.status(), 401);
    assert_eq!(none.headers()["www-authenticate"], "Bearer");
    assert_eq!(scene.server.snapshot(), before);
}

#[tokio::test]
async fn a_token_does_what_its_scopes_say_and_no_more() {
    let scene = Scene::start().await;
    let before = scene.server.snapshot();
    let (get, post) = (Method::GET, Method::POST);
    let enqueue = json!({ "input": "x" });
    let report = json!({ "agent_turn_id": scene.run, "tool_call_id": scene.call["tool_call_id"], "status": "success", "result": 1 });
    let stop = json!({ "agent_turn_id": scene.run, "reason": "x" });
    let decide = json!({ "run_id": scene.run, "tool_call_id": scene.call["tool_call_id"], "action": "tell" });
    let claim = json!({ "worker": "w" });
    let run_path = format!("/v1/windlass/runs/{}", scene.run);
    let forbidden = [
        ("reader-token-of-22-characters", &post, "/v1/agents/b/enqueue", Some(&enqueue)),
        ("reader-token-of-22-characters", &post, "/v1/agents/a/report", Some(&report)),
        ("reader-token-of-22-characters", &post, "/v1/agents/a/stop", Some(&stop)),
        ("reader-token-of-22-characters", &post, "/v1/tools/echo/claim", Some(&claim)),
        ("reader-token-of-22-characters", &post, "/v1/windlass/reconcile", Some(&decide)),
        ("reader-token-of-22-characters", &post, "/v1/windlass/boxes", Some(&json!({ "items": ["x"] }))),
        ("writer-token-of-22-characters", &post, "/v1/agents/a/stop", Some(&stop)),
        ("writer-token-of-22-characters", &post, "/v1/tools/echo/claim", Some(&claim)),
        ("writer-token-of-22-characters", &post, "/v1/windlass/reconcile", Some(&decide)),
        ("writer-token-of-22-characters", &get, "/v1/agents/a", None),
        ("writer-token-of-22-characters", &get, run_path.as_str(), None),
        ("echoer-token-of-22-characters", &post, "/v1/tools/other/claim", Some(&claim)),
        ("echoer-token-of-22-characters", &post, "/v1/agents/b/enqueue", Some(&enqueue)),
        ("echoer-token-of-22-characters", &get, "/v1/agents/a", None),
        ("otherer-token-of-22-characters", &post, "/v1/agents/a/report", Some(&report)),
    ];
    for (token, method, path, body) in forbidden {
        let answer = scene.send_as(token, method.clone(), path, body.cloned()).await;
        assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{token} {path}: {}", answer.body);
    }
    assert_eq!(scene.server.snapshot(), before);
    let held = json!([{ "agent_turn_id": scene.run, "tool_call_id": scene.call["tool_call_id"] }]);
    scene.server.post("/v1/tools/echo/release", json!({ "worker": "w1", "calls": held })).await.ok();
    assert_eq!(
        scene.send_as("echoer-token-of-22-characters", post.clone(), "/v1/tools/echo/claim", Some(claim)).await.status,
        200,
        "its own tool's call"
    );
    assert_eq!(
        scene.send_as("echoer-token-of-22-characters", post, "/v1/agents/a/report", Some(report)).await.status,
        202,
        "its own tool's call"
    );
    let row = scene.server.inbox_of("a", "tool_result").await.pop().expect("the report");
    assert!(row["source"].is_string(), "the reporter is recorded: {row}");
}

/// A request by another tenant.
struct Asking {
    path: String,
    body: Option<Value>,
}

impl Asking {
    async fn answered(self, scene: &Scene) -> Answer {
        let method = if self.body.is_some() { Method::POST } else { Method::GET };
        scene.send_as("foreign-token-of-22-characters", method, &self.path, self.body).await
    }
}

#[tokio::test]
async fn what_belongs_to_another_tenant_looks_like_what_does_not_exist() {
    let scene = Scene::start().await;
    let lonely = scene.server.enqueue("lonely", "mine").await;
    let view = scene.server.ended(&lonely).await;
    let run = scene.server.run(&scene.run).await;
    let before = scene.server.snapshot();
    let unknown = |id: &str| {
        let (prefix, rest) = id.split_once('_').expect("ids have a prefix");
        let tail = rest.split_once('_').map_or(String::new(), |(_, call)| format!("_{call}"));
        format!("{prefix}_{}{tail}", "0".repeat(31) + "7")
    };
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    let (run_id, call_id) = (scene.run.clone(), text(&scene.call["tool_call_id"]));
    let (context, deliverable) = (text(&run["context_box_id"]), text(&view["deliverable_item_id"]));
    let mut pairs: Vec<[Asking; 2]> = Vec::new();
    for (path, id) in [("/v1/windlass/runs/", &run_id), ("/v1/windlass/items/", &deliverable), ("/v1/windlass/boxes/", &context)] {
        pairs.push([id, &unknown(id)].map(|id| Asking { path: format!("{path}{id}"), body: None }));
    }
    for end in ["journal", "calls"] {
        pairs.push([&run_id, &unknown(&run_id)].map(|id| Asking { path: format!("/v1/windlass/runs/{id}/{end}"), body: None }));
    }
    let report = |run: &str, call: &str| json!({ "agent_turn_id": run, "tool_call_id": call, "status": "success", "result": 1 });
    let stop = |run: &str| json!({ "agent_turn_id": run, "reason": "x" });
    let enqueue = |id: &str| json!({ "input": "x", "context_box_id": id });
    let pack = |id: &str| json!({ "boxes": [id] });
    let decide = |run: &str, call: &str| json!({ "run_id": run, "tool_call_id": call, "action": "tell" });
    let bodies = [
        ("/v1/agents/a/report", report(&run_id, &call_id), report(&unknown(&run_id), &unknown(&call_id))),
        ("/v1/agents/a/stop", stop(&run_id), stop(&unknown(&run_id))),
        ("/v1/agents/a/enqueue", enqueue(&context), enqueue(&unknown(&context))),
        ("/v1/windlass/boxes", pack(&context), pack(&unknown(&context))),
        ("/v1/windlass/reconcile", decide(&run_id, &call_id), decide(&unknown(&run_id), &unknown(&call_id))),
    ];
    for (path, foreign, missing) in bodies {
        pairs.push([foreign, missing].map(|body| Asking { path: path.to_owned(), body: Some(body) }));
    }
    for [foreign, missing] in pairs {
        let path = foreign.path.clone();
        let (foreign, missing) = (foreign.answered(&scene).await, missing.answered(&scene).await);
        assert!((400..500).contains(&foreign.status), "{path}: {} {}", foreign.status, foreign.body);
        assert_eq!((foreign.status, foreign.body), (missing.status, missing.body), "{path}");
    }
    let head = scene.send_as("foreign-token-of-22-characters", Method::GET, "/v1/agents/lonely", None).await;
    assert_eq!((head.status, head.code()), (404, "unknown_agent"));
    let own = scene.send_as("foreign-token-of-22-characters", Method::GET, "/v1/agents/a", None).await.ok();
    assert_eq!((&own["status"], &own["turn_epoch"]), (&json!("idle"), &json!(0)), "an agent of the same name is another agent");
    assert_eq!(scene.send_as("foreign-token-of-22-characters", Method::GET, "/v1/agents/a/inbox", None).await.ok()["inbox"], json!([]));
    let claimed =
        scene.send_as("foreign-token-of-22-characters", Method::POST, "/v1/tools/echo/claim", Some(json!({ "worker": "w1" }))).await.ok();
    assert_eq!(claimed["calls"], json!([]));
    let named = json!({ "worker": "w1", "calls": [{ "agent_turn_id": run_id, "tool_call_id": call_id }] });
    let lost = scene.send_as("foreign-token-of-22-characters", Method::POST, "/v1/tools/echo/release", Some(named)).await.ok();
    assert_eq!(lost["lost"].as_array().map(Vec::len), Some(1), "no tenant releases another tenant's call");
    assert_eq!(scene.server.snapshot(), before);
}
