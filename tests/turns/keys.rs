//! `Idempotency-Key`: a request that is sent again with its key gets the same answer, and nothing is done a second time.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{Answer, McpServer, Server, ServerBuilder, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: pay, effect: write }
agents:
  ada: { tools: [echo, pay] }
limits: { sweep_interval: 20ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

async fn keyed(server: &Server, path: &str, key: &str, body: &Value) -> Answer {
    server.send(server.request(Method::POST, path).header("idempotency-key", key).json(body)).await
}

/// Sends a request twice, and asserts that both answers are the same. Returns the answer.
async fn twice(server: &Server, path: &str, body: Value) -> Value {
    let first = keyed(server, path, "k", &body).await;
    let second = keyed(server, path, "k", &body).await;
    assert_eq!((first.status, &first.body), (second.status, &second.body), "{path}");
    first.ok()
}

async fn reused(server: &Server, path: &str, body: Value) {
    let answer = keyed(server, path, "k", &body).await;
    assert_eq!((answer.status, answer.code()), (409, "idempotency_key_reused"), "{path}: {}", answer.body);
}

fn named(call: &Value) -> Value {
    json!({ "agent_turn_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"] })
}

fn outcome(call: &Value, result: &str) -> Value {
    let mut body = named(call);
    (body["status"], body["result"]) = (json!("success"), json!(result));
    body
}

/// A worker claims the write for a second and disappears, so that the call is parked.
async fn park(server: &Server, run: &str) -> Value {
    let call = until("the write can be claimed", || async {
        let body = json!({ "worker": "doomed", "lease_s": 1 });
        server.post("/v1/tools/pay/claim", body).await.ok()["calls"].get(0).cloned()
    })
    .await;
    until("it is parked", || async { (server.calls(run).await[0]["status"] == "parked").then_some(()) }).await;
    call
}

#[tokio::test]
async fn every_post_made_twice_under_one_key_is_answered_the_same_and_done_once() {
    let server = server().await;
    let enqueued = twice(&server, "/v1/agents/ada/enqueue", json!({ "input": "call echo" })).await;
    let run = enqueued["run_id"].as_str().expect("a run").to_owned();
    server.suspended("ada", &run).await;
    let claimed = twice(&server, "/v1/tools/echo/claim", json!({ "worker": "w", "max": 1 })).await;
    let call = claimed["calls"][0].clone();
    let held = json!({ "worker": "w", "calls": [named(&call)] });
    assert_eq!(twice(&server, "/v1/tools/echo/renew", held.clone()).await, json!({ "lost": [] }));
    assert_eq!(twice(&server, "/v1/tools/echo/release", held.clone()).await, json!({ "lost": [] }), "its own success is no loss");
    let again = server.claim("echo").await;
    assert_eq!(again["attempt"], 2);
    assert_eq!(keyed(&server, "/v1/tools/echo/release", "k", &held).await.ok(), json!({ "lost": [] }), "whichever worker has it by now");
    reused(&server, "/v1/tools/echo/release", json!({ "worker": "w", "calls": [] })).await;
    assert_eq!(keyed(&server, "/v1/tools/echo/release", "other", &held).await.ok()["lost"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.calls(&run).await[0]["status"], "claimed", "no other worker's lease was changed");
    let report = "/v1/agents/ada/report";
    let reported = twice(&server, report, outcome(&again, "done")).await;
    assert_eq!(reported["duplicate"], false);
    reused(&server, report, outcome(&again, "something else")).await;
    let unkeyed = server.post(report, outcome(&again, "done")).await.ok();
    assert_eq!((&unkeyed["duplicate"], &unkeyed["inbox_id"]), (&json!(true), &reported["inbox_id"]));
    assert_eq!(server.ended(&run).await["task_status"], "success");
    let late = keyed(&server, report, "k", &outcome(&again, "done")).await.ok();
    assert_eq!(late, reported, "also when the turn is over");
    assert_eq!(twice(&server, "/v1/windlass/boxes", json!({ "items": ["a"] })).await["length"], 1);
    let acted = twice(&server, "/v1/agents/ada/actions", json!({ "action_id": "click", "tool": "echo" })).await;
    let stop = json!({ "agent_turn_id": acted["agent_turn_id"], "reason": "enough" });
    assert_eq!(twice(&server, "/v1/agents/ada/stop", stop.clone()).await["status"], "stopped");
    assert_eq!(server.post("/v1/agents/ada/stop", stop).await.ok()["status"], "ended", "without the key the answer has the current state");
    assert_eq!(server.number("SELECT count(*) FROM runs"), 2);
    assert_eq!(server.number("SELECT count(*) FROM inbox"), 4, "two beginnings, one result, one stop");
}

#[tokio::test]
async fn a_queued_turn_is_stopped_once_under_one_key_and_another_turn_is_not() {
    let server = server().await;
    let first = server.enqueue("ada", "call echo").await;
    let queued = server.enqueue("ada", "later").await;
    let path = "/v1/agents/ada/stop";
    let stop = |run: &str| json!({ "agent_turn_id": run, "reason": "enough" });
    assert_eq!(twice(&server, path, stop(&queued)).await["status"], "stopped");
    reused(&server, path, stop(&first)).await;
    assert_eq!(server.run(&first).await["status"], "active");
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE kind = 'stop'"), 1);
}

#[tokio::test]
async fn a_key_in_the_body_is_as_good_as_one_in_the_header() {
    let server = server().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    let held = json!({ "worker": "w1", "calls": [named(&call)], "idempotency_key": "k" });
    server.post("/v1/tools/echo/renew", held.clone()).await.ok();
    for _ in 0..2 {
        assert_eq!(server.post("/v1/tools/echo/release", held.clone()).await.ok(), json!({ "lost": [] }));
    }
    let again = server.claim("echo").await;
    let mut body = outcome(&again, "done");
    body["idempotency_key"] = json!("k");
    for _ in 0..2 {
        assert_eq!(server.post("/v1/agents/ada/report", body.clone()).await.ok()["duplicate"], false);
    }
    server.ended(&run).await;
    let answer = keyed(&server, "/v1/agents/ada/report", "another", &body).await;
    assert_eq!((answer.status, answer.code()), (400, "idempotency_key_mismatch"));
}

#[tokio::test]
async fn a_decision_repeated_with_its_key_starts_nothing_a_second_time() {
    let mut server = server().await;
    let run = server.enqueue("ada", "call pay").await;
    let call = park(&server, &run).await;
    let path = "/v1/windlass/reconcile";
    let release = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": "release" });
    let answers = join_all((0..8).map(|_| keyed(&server, path, "k", &release))).await;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == answers[0].body), "{answers:?}");
    assert_eq!(server.kinds(&run).await.iter().filter(|kind| *kind == "resolved").count(), 1);
    // The write ran again, and its outcome is unknown again. One decision was for one start.
    park(&server, &run).await;
    let unmoved = async |server: &Server| {
        let seen = &server.calls(&run).await[0];
        assert_eq!((&seen["status"], &seen["attempt"]), (&json!("parked"), &json!(2)));
        let claim = server.post("/v1/tools/pay/claim", json!({ "worker": "w" })).await.ok();
        assert_eq!(claim["calls"], json!([]), "nothing is there to be started");
    };
    assert_eq!(keyed(&server, path, "k", &release).await.ok(), answers[0].body);
    unmoved(&server).await;
    server.kill();
    let server = server.restart(&[]).await;
    assert_eq!(keyed(&server, path, "k", &release).await.ok(), answers[0].body, "also after a restart");
    unmoved(&server).await;
    for other in [json!({ "action": "tell" }), json!({ "action": "record", "status": "success", "result": 1 })] {
        let mut body = release.clone();
        other.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
        reused(&server, path, body).await;
    }
    unmoved(&server).await;
    let record = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": "record", "status": "success", "result": "paid" });
    keyed(&server, path, "another", &record).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
}

#[tokio::test]
async fn a_repeated_enqueue_finds_its_turn_though_nothing_it_needed_is_there_any_more() {
    let mut server = server().await;
    let path = "/v1/agents/ada/enqueue";
    let body = json!({ "input": "call echo", "tools": ["echo"] });
    let first = keyed(&server, path, "k", &body).await.ok();
    let run = first["run_id"].as_str().expect("a run").to_owned();
    server.suspended("ada", &run).await;
    let action = json!({ "action_id": "click", "tool": "pay" });
    let acted = server.post("/v1/agents/eve/actions", action.clone()).await.ok();
    server.kill();
    // The operator has removed both tools.
    let file = server.folder().join("windlass.yaml");
    let config = std::fs::read_to_string(&file).expect("there is a configuration");
    std::fs::write(&file, config.replace(CONFIG, "")).expect("the configuration can be written");
    let server = server.restart(&[]).await;
    let fresh = keyed(&server, path, "another", &body).await;
    assert_eq!((fresh.status, fresh.code()), (400, "unknown_tool"));
    assert_eq!(keyed(&server, path, "k", &body).await.ok()["run_id"], first["run_id"]);
    assert_eq!(server.post("/v1/agents/eve/actions", action).await.ok()["run_id"], acted["run_id"]);
    let reordered = r#"{ "tools": ["echo"], "input": "call echo" }"#;
    let request = server.request(Method::POST, path).header("idempotency-key", "k").header("content-type", "application/json");
    assert_eq!(server.send(request.body(reordered)).await.ok()["run_id"], first["run_id"], "the order of the fields does not matter");
    reused(&server, path, json!({ "input": "something else" })).await;
    assert_eq!(server.number("SELECT count(*) FROM runs"), 2);
}

#[tokio::test]
async fn a_repeated_enqueue_finds_its_turn_though_its_tool_server_is_gone() {
    let tools = McpServer::start().await;
    let server = ServerBuilder::new(&format!("{}agents: {{ ada: {{ tools: [tools] }} }}\n", tools.config("tools"))).start().await;
    let path = "/v1/agents/ada/enqueue";
    let body = json!({ "input": "hello" });
    let first = keyed(&server, path, "k", &body).await.ok();
    server.ended(first["run_id"].as_str().expect("a run")).await;
    drop(tools);
    let server = server.restart(&[]).await;
    assert_eq!(keyed(&server, path, "another", &body).await.code(), "tool_server_failed");
    assert_eq!(keyed(&server, path, "k", &body).await.ok()["run_id"], first["run_id"]);
}
