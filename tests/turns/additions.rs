//! The additions to the turn machine: V-01 to V-07.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: write, effect: write }
agents:
  a: { tools: [echo, write] }
  b: { tools: [echo, write] }
  short: { tools: [echo], budgets: { iterations: 2 } }
auth:
  tokens:
    - { token: test-token-of-22-characters, scopes: ['*'] }
    - { token: service-token-of-22-characters, scopes: ['tools:*'] }
    - { token: other-service-token-of-22-characters, scopes: ['tools:*'] }
limits: { sweep_interval: 50ms, attempts: 3, backoff: 10ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

fn step_of(run: &str) -> String {
    format!("step_{}_1", run.trim_start_matches("run_"))
}

/// The edges of an agent as primitive, phase and depth.
async fn depths(server: &Server, agent: &str) -> Vec<(String, String, u64)> {
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let row = |edge: &Value| (word(&edge["primitive"]), word(&edge["edge_phase"]), edge["recursion_depth"].as_u64().expect("a depth"));
    server.edges(agent).await.iter().map(row).collect()
}

#[tokio::test]
async fn v_001_a_turn_is_one_deeper_than_the_turn_that_asked_for_it_up_to_a_limit() {
    let server = server().await;
    let mut parent = server.enqueue("a", "hello").await;
    assert_eq!(server.run(&parent).await["recursion_depth"], 0);
    for depth in 1..20 {
        parent = server.enqueue_body("a", json!({ "input": "hello", "parent_step_id": step_of(&parent) })).await;
        assert_eq!(server.run(&parent).await["recursion_depth"], depth);
    }
    let before = server.number("SELECT count(*) FROM runs");
    let refused = server.post("/v1/agents/b/enqueue", json!({ "input": "hello", "parent_step_id": step_of(&parent) })).await;
    assert_eq!((refused.status, refused.code()), (422, "recursion_depth_exceeded"));
    assert_eq!(server.number("SELECT count(*) FROM runs"), before, "nothing was recorded");
    let stranger = server.enqueue_body("b", json!({ "input": "hello", "parent_step_id": "step-of-somebody-else" })).await;
    assert_eq!(server.run(&stranger).await["recursion_depth"], 0);
}

#[tokio::test]
async fn v_001_a_report_has_the_depth_of_the_call_it_answers() {
    let server = server().await;
    let parent = server.enqueue("a", "hello").await;
    let run = server.enqueue_body("b", json!({ "input": "call echo", "parent_step_id": step_of(&parent) })).await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    server.ended(&run).await;
    let edge = |primitive: &str, phase: &str| (primitive.to_owned(), phase.to_owned(), 1);
    assert_eq!(depths(&server, "b").await, [edge("enqueue", "request"), edge("tool_call", "request"), edge("report", "response")]);
}

#[tokio::test]
async fn v_002_only_the_token_that_claimed_a_call_reports_on_it() {
    let server = server().await;
    let run = server.enqueue("a", "call write").await;
    server.suspended("a", &run).await;
    let send = |token: &'static str, path: &'static str, body: Value| {
        server.send(server.request(Method::POST, path).bearer_auth(token).json(&body))
    };
    let claim = || json!({ "worker": "w", "max": 1, "lease_s": 60 });
    let claimed = send("service-token-of-22-characters", "/v1/tools/write/claim", claim()).await.ok();
    let call = &claimed["calls"][0];
    let report = || json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
    let held = json!({ "worker": "w", "calls": [{ "agent_turn_id": run, "tool_call_id": call["tool_call_id"] }] });
    let before = server.snapshot();
    for token in ["other-service-token-of-22-characters", "test-token-of-22-characters"] {
        let refused = send(token, "/v1/agents/a/report", report()).await;
        assert_eq!((refused.status, refused.code()), (403, "not_the_claimant"), "{token}: {}", refused.body);
        let lost = send(token, "/v1/tools/write/release", held.clone()).await.ok();
        assert_eq!(lost["lost"].as_array().map(Vec::len), Some(1), "{token} holds nothing, whatever its worker is called");
    }
    assert_eq!(server.snapshot(), before, "nothing changed");
    assert_eq!(send("service-token-of-22-characters", "/v1/agents/a/report", report()).await.status, 202);
    server.ended(&run).await;
    let row = server.inbox_of("a", "tool_result").await.pop().expect("the report");
    assert_eq!(row["status"], "consumed");
}

#[tokio::test]
async fn v_003_the_request_edge_of_a_call_is_on_record_before_its_command_can_be_taken() {
    let server = server().await;
    let run = server.enqueue("a", "call echo and call write").await;
    let call = server.claim("echo").await;
    let edges = server.edges("a").await;
    let requests: Vec<&Value> = edges.iter().filter(|edge| edge["primitive"] == "tool_call").collect();
    let calls = server.calls(&run).await;
    assert_eq!(requests.len(), 2, "{edges:#?}");
    for (request, call) in requests.iter().zip(&calls) {
        assert_eq!((&request["edge_phase"], &request["correlation_id"]), (&json!("request"), &call["tool_call_id"]));
        assert_eq!(request["agent_turn_id"], run);
    }
    server.report(&call, json!(1)).await.ok();
    until("the report has its edge", || async {
        let edges = server.edges("a").await;
        let about: Vec<&Value> = edges.iter().filter(|edge| edge["correlation_id"] == call["tool_call_id"]).collect();
        let kinds: Vec<_> = about.iter().map(|edge| (edge["primitive"].as_str(), edge["edge_phase"].as_str())).collect();
        (kinds == [(Some("tool_call"), Some("request")), (Some("report"), Some("response"))]).then_some(())
    })
    .await;
}

/// A death between the commit of a call and everything after it leaves both the edge and a call that can be claimed. There can't be one
/// without the other.
#[tokio::test]
async fn v_003_a_call_and_its_request_edge_survive_or_are_lost_together() {
    for (point, is_there) in [("commit.suspend.before", false), ("commit.suspend.after", true)] {
        let server = ServerBuilder::new(CONFIG).env("WINDLASS_CRASH_AT", point).start().await;
        let _ = server.try_post("/v1/agents/a/enqueue", json!({ "input": "call echo" })).await;
        let mut server = server;
        server.gone().await;
        assert_eq!(server.number("SELECT count(*) FROM calls"), i64::from(is_there), "{point}");
        let server = server.restart(&[]).await;
        let call = server.claim("echo").await;
        let edges = server.edges("a").await;
        assert!(edges.iter().any(|edge| edge["primitive"] == "tool_call" && edge["correlation_id"] == call["tool_call_id"]), "{point}");
    }
}

/// Results are never deferred and retried (`f_010_no_result_is_ever_deferred`). The retried operation is the model call.
#[tokio::test]
async fn v_004_retries_have_a_bound() {
    let fail = |status| Scene::Fail(status, Vec::new());
    let model = FakeModel::start(vec![fail(429), fail(503), fail(429), Scene::Say("too late")]).await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await;
    let run = server.enqueue("a", "go").await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["task_status"], "failed");
    assert_eq!(model.asked().len(), 3, "the third attempt was the last");
}

#[tokio::test]
async fn v_005_control_fields_in_a_body_are_refused() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    let before = server.snapshot();
    let report = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": 1 });
    let stop = json!({ "agent_turn_id": run, "reason": "x" });
    for field in ["agent_id", "project_id", "step_id", "trace_id", "recursion_depth", "target_agent_id", "tenant"] {
        for (path, body) in [("enqueue", json!({ "input": "x" })), ("report", report.clone()), ("stop", stop.clone())] {
            let mut body = body;
            body[field] = json!("7");
            let refused = server.post(&format!("/v1/agents/a/{path}"), body).await;
            assert_eq!((refused.status, refused.code()), (400, "unknown_field"), "{path} {field}: {}", refused.body);
        }
    }
    assert_eq!(server.snapshot(), before, "nothing changed");
}

#[tokio::test]
async fn v_006_a_stop_that_knows_an_older_epoch_ends_the_same_turn_under_its_newer_one() {
    let model = FakeModel::start(vec![Scene::Hang]).await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await;
    let run = server.enqueue("a", "go").await;
    model.asked_times(1).await;
    let old = server.run(&run).await["turn_epoch"].clone();
    let server = server.restart(&[]).await;
    model.asked_times(2).await;
    let newer = server.run(&run).await["turn_epoch"].clone();
    assert!(newer.as_u64() > old.as_u64());
    server.post("/v1/agents/a/stop", json!({ "agent_turn_id": run, "reason": "enough", "turn_epoch": old })).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "canceled");
}

#[tokio::test]
async fn v_007_the_last_iteration_ends_with_the_output_so_far() {
    let call_echo = || Scene::Call(vec![("echo", json!({}))]);
    let model = FakeModel::start(vec![call_echo(), call_echo(), call_echo()]).await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await;
    let run = server.enqueue("short", "go").await;
    for _ in 0..2 {
        let call = server.claim("echo").await;
        server.report(&call, json!("some of it")).await.ok();
    }
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("partial"), &json!(2)));
    assert!(ended["deliverable_item_id"].is_string(), "there is a deliverable: {ended}");
    let kinds = server.kinds(&run).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "budget_breached").count(), 1, "{kinds:?}");
}
