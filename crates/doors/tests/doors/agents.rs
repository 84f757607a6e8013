//! The agents API: enqueue, report, stop, act, and what can be read of an agent.

use axum::body::Body;
use serde_json::{Value, json};
use windlass_engine::Settings;

use crate::support::{World, report, request};

#[tokio::test]
async fn a_turn_is_taken_and_delivered() {
    let world = World::start();
    let taken = world.post("/v1/agents/alice/enqueue", r#"{"input": "hello"}"#).await.expect(202);
    assert_eq!(taken["agent_turn_id"], taken["run_id"]);
    assert_eq!(taken["status"], "dispatched");
    assert_eq!(taken["turn_epoch"], 1);
    assert!(taken["inbox_id"].as_str().unwrap().starts_with("inbox_"), "{taken}");

    let run = world.ended("alice", taken["run_id"].as_str().unwrap()).await;
    assert_eq!(run["task_status"], "success");
    let deliverable = world.item(&run["deliverable_item_id"]).await.expect(200);
    assert_eq!(deliverable["kind"], "task.deliverable");
    assert_eq!(deliverable["content"], json!({ "text": "You said: hello" }));

    let head = world.get("/v1/agents/alice").await.expect(200);
    assert_eq!(head["status"], "idle");
    assert_eq!(head["active_agent_turn_id"], Value::Null);
    assert_eq!(head["expecting_correlation_id"], Value::Null);
    assert_eq!(head["parked"], false);
}

#[tokio::test]
async fn the_same_key_is_the_same_turn_per_agent() {
    let world = World::start();
    let send = |agent: &'static str, key: &'static str, body: &'static str| {
        let path = format!("/v1/agents/{agent}/enqueue");
        world.send(request("POST", "all", &path).header("idempotency-key", key).body(Body::from(body)).unwrap())
    };
    let first = send("alice", "k", r#"{"input": "hello"}"#).await.expect(202);
    let again = send("alice", "k", r#"{"input": "hello", "idempotency_key": "k"}"#).await.expect(202);
    let elsewhere = send("bob", "k", r#"{"input": "hello"}"#).await.expect(202);
    assert_eq!(first["run_id"], again["run_id"]);
    assert_eq!(first["inbox_id"], again["inbox_id"]);
    assert_ne!(first["run_id"], elsewhere["run_id"]);
    let differing = send("alice", "k", r#"{"input": "hello", "idempotency_key": "other"}"#).await;
    assert_eq!(differing.refusal(), (400, "idempotency_key_mismatch".into()));
}

#[tokio::test]
async fn a_trace_and_the_asker_are_on_record() {
    let world = World::start();
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = r#"{"input": "hello", "parent_step_id": "step_x"}"#;
    let traced = request("POST", "writer", "/v1/agents/alice/enqueue").header("traceparent", traceparent).body(Body::from(body));
    let taken = world.send(traced.unwrap()).await.expect(202);
    let run = world.ended("alice", taken["run_id"].as_str().unwrap()).await;
    assert_eq!(run["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&run["caller_span_id"], &run["caller_sampled"]), (&json!("00f067aa0ba902b7"), &json!(true)));
    let journal = world.get(&format!("/v1/windlass/runs/{}/journal?limit=1", taken["run_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(journal["entries"][0]["event"]["caller"], json!({ "span": "00f067aa0ba902b7", "sampled": true }));
    assert_eq!(run["parent_step_id"], "step_x");
    assert_eq!(run["source"], "writer-name");
    let untraced = world.enqueue("alice", "again").await;
    let run = world.ended("alice", &untraced).await;
    assert_eq!((&run["caller_span_id"], &run["caller_sampled"]), (&Value::Null, &Value::Null));
    let trace = run["trace_id"].clone();
    assert_ne!(trace, "00000000000000000000000000000000");
}

#[tokio::test]
async fn items_are_kept_as_they_were_sent() {
    let world = World::start();
    let body = r#"{"input": ["words", {"type":"x",  "half": "\ud800", "zero": "\u0000"}]}"#;
    let taken = world.post("/v1/agents/alice/enqueue", body).await.expect(202);
    let run = world.ended("alice", taken["run_id"].as_str().unwrap()).await;
    let context = world.get(&format!("/v1/windlass/boxes/{}", run["context_box_id"].as_str().unwrap())).await;
    assert_eq!(context.status, 200);
    assert!(context.text.contains(r#"{"item":{"type":"x",  "half": "\ud800", "zero": "\u0000"}}"#), "{}", context.text);
    assert!(context.text.contains(r#"{"text":"words"}"#), "{}", context.text);
}

#[tokio::test]
async fn wanted_fields_are_an_item_and_are_delivered() {
    let world = World::start();
    let body = r#"{"input": "submit", "result_fields": [{"name": "title", "description": "what it is", "required": true}]}"#;
    let taken = world.post("/v1/agents/alice/enqueue", body).await.expect(202);
    let run = world.ended("alice", taken["run_id"].as_str().unwrap()).await;
    let context = world.get(&format!("/v1/windlass/boxes/{}", run["context_box_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(context["items"][1]["kind"], "task.result_fields");
    assert_eq!(context["items"][1]["content"]["fields"][0]["name"], "title");
    let deliverable = world.item(&run["deliverable_item_id"]).await.expect(200);
    assert_eq!(deliverable["content"]["fields"][0]["name"], "title");
}

#[tokio::test]
async fn a_result_from_outside_resumes_the_turn_once() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo {\"a\": 1}").await;
    let call = world.claim("echo").await;
    let head = world.get("/v1/agents/alice").await.expect(200);
    assert_eq!(head["status"], "suspended");
    assert_eq!(head["waiting_tool_count"], 1);
    assert_eq!(head["active_agent_turn_id"], run);
    assert!(head["resume_deadline"].as_str().unwrap().ends_with('Z'), "{head}");

    let first = world.post("/v1/agents/alice/report", report(&call, r#""done""#)).await.expect(202);
    assert_eq!(first["duplicate"], false);
    let again = world.post_as("echoer", "/v1/agents/alice/report", report(&call, r#""done""#)).await.expect(202);
    assert_eq!(again, json!({ "inbox_id": first["inbox_id"], "duplicate": true }));
    let ended = world.ended("alice", &run).await;
    let deliverable = world.item(&ended["deliverable_item_id"]).await.expect(200);
    assert_eq!(deliverable["content"]["text"], "The results are: echo gave done");
}

#[tokio::test]
async fn results_survive_byte_for_byte() {
    let world = World::start();
    let megabyte = format!("\"{}\"", "x".repeat(1 << 20));
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for result in [r#""\u0000""#, r#"{"half":"\ud800",  "n":1e400}"#, "null", "[]", "12345678901234567890.5", &megabyte, &nested] {
        let run = world.enqueue("alice", "call echo").await;
        let call = world.claim("echo").await;
        world.post("/v1/agents/alice/report", report(&call, result)).await.expect(202);
        world.ended("alice", &run).await;
        let calls = world.get(&format!("/v1/windlass/runs/{run}/calls")).await.expect(200);
        let item = world.item(&calls["calls"][0]["result_item_id"]).await;
        assert!(item.text.contains(&format!(r#""result":{result}"#)), "{}…", &result[..result.len().min(40)]);
    }
}

#[tokio::test]
async fn a_result_may_end_the_turn_itself() {
    let world = World::start();
    for (result, extra, iterations) in [
        (r#"{"__cg_control":{"after_execution":"terminate"}}"#, "", 1),
        (r#"{"__cg_control":{"after_execution":"suspend"}}"#, r#","after_execution":"terminate""#, 2),
        (r#"{"__cg_control":{"after_execution":"explode"}}"#, r#","after_execution":"terminate""#, 1),
        ("1", "", 2),
    ] {
        let run = world.enqueue("alice", "call echo").await;
        let call = world.claim("echo").await;
        let (body, _) = report(&call, result).rsplit_once('}').map(|(body, end)| (format!("{body}{extra}}}"), end.to_owned())).unwrap();
        world.post("/v1/agents/alice/report", body).await.expect(202);
        assert_eq!(world.ended("alice", &run).await["iteration"], iterations, "{result} {extra}");
    }
}

#[tokio::test]
async fn a_report_needs_no_result_and_no_epoch() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let body = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "failed" }).to_string();
    world.post("/v1/agents/alice/report", body).await.expect(202);
    world.ended("alice", &run).await;
    let late = world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    assert_eq!(late["duplicate"], true);
}

#[tokio::test]
async fn a_stop_ends_a_turn_wherever_it_is() {
    let world = World::start();
    let active = world.enqueue("alice", "call echo").await;
    world.until_status("alice", "suspended").await;
    let queued = world.post("/v1/agents/alice/enqueue", r#"{"input": "later"}"#).await.expect(202);
    assert_eq!(queued["status"], "queued");
    assert_eq!(queued["turn_epoch"], Value::Null);
    assert_eq!(world.get("/v1/agents/alice").await.expect(200)["queued"], 1);

    let stop = |run: &Value, epoch: u64| json!({ "agent_turn_id": run, "reason": "enough", "turn_epoch": epoch }).to_string();
    let withdrawn = json!({ "agent_turn_id": queued["run_id"], "reason": "enough" }).to_string();
    assert_eq!(world.post("/v1/agents/alice/stop", withdrawn).await.expect(202)["status"], "stopped");
    let active = Value::from(active);
    let ahead = world.post("/v1/agents/alice/stop", stop(&active, 99)).await;
    assert_eq!(ahead.refusal(), (409, "epoch_ahead".into()));
    let stopped = world.post("/v1/agents/alice/stop", stop(&active, 0)).await.expect(202);
    assert_eq!(stopped, json!({ "agent_turn_id": active, "status": "stopped" }));
    let again = world.post("/v1/agents/alice/stop", stop(&active, 0)).await.expect(202);
    assert_eq!(again["status"], "ended");
}

#[tokio::test]
async fn an_instruction_is_for_the_active_turn_and_is_no_output() {
    let world = World::start();
    let body = json!({ "model": "agent/alice", "input": "call echo", "background": true }).to_string();
    let response = world.post("/v1/responses", body).await.expect(200);
    let (id, run) = (response["id"].as_str().unwrap(), response["windlass"]["run_id"].clone());
    let call = world.claim("echo").await;
    let steer = |input: Value| json!({ "agent_turn_id": run, "input": input, "idempotency_key": input.to_string() }).to_string();
    let path = "/v1/agents/alice/steer";
    let message = json!({ "type": "message", "role": "user", "content": "in English" });
    let first = world.post(path, steer(json!([message]))).await.expect(202);
    assert_eq!(world.post(path, steer(json!([message]))).await.expect(202), first, "a repeated request gets the first answer");
    world.post(path, steer(json!("and briefly"))).await.expect(202);
    let waiting = world.get(&format!("/v1/responses/{id}")).await.expect(200);
    assert_eq!((&waiting["windlass"]["steered"], waiting["output"].as_array().unwrap().len()), (&json!(2), 1), "{waiting}");
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    let ended = world.until("alice", &format!("/v1/responses/{id}"), |response| response["status"] == "completed").await;
    let kinds: Vec<&str> = ended["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!((&ended["windlass"]["steered"], kinds.as_slice()), (&json!(2), &["mcp_call", "message"][..]), "{ended}");
    let late = world.post(path, steer(json!("too late"))).await;
    assert_eq!(late.refusal(), (409, "not_active".into()));
}

#[tokio::test]
async fn an_action_runs_on_an_idle_agent_only() {
    let world = World::start();
    let act = |id: &str| json!({ "action_id": id, "tool": "echo", "args": { "a": 1 } }).to_string();
    let taken = world.post("/v1/agents/alice/actions", act("one")).await.expect(202);
    assert_eq!(taken["status"], "accepted");
    assert_eq!(taken["action_id"], "one");
    assert_eq!(taken["turn_epoch"], 1);
    assert_eq!(world.post("/v1/agents/alice/actions", act("two")).await.refusal(), (409, "busy".into()));
    assert_eq!(world.post("/v1/agents/alice/actions", act("one")).await.expect(202)["run_id"], taken["run_id"]);

    let call = world.claim("echo").await;
    assert_eq!(call["arguments"], json!({ "a": 1 }));
    world.post("/v1/agents/alice/report", report(&call, "2")).await.expect(202);
    let run = world.ended("alice", taken["run_id"].as_str().unwrap()).await;
    assert_eq!(run["message_type"], "ui_action");
}

#[tokio::test]
async fn the_inbox_and_the_edges_are_paged() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    world.ended("alice", &run).await;

    let first = world.get("/v1/agents/alice/inbox?limit=1").await.expect(200);
    assert_eq!(first["inbox"][0]["message_type"], "turn");
    assert_eq!(first["inbox"][0]["status"], "consumed");
    assert_eq!(first["inbox"][0]["correlation_id"], Value::Null);
    let next = first["next"].as_str().unwrap();
    let second = world.get(&format!("/v1/agents/alice/inbox?after={next}")).await.expect(200);
    assert_eq!(second["next"], Value::Null);
    let row = &second["inbox"][0];
    assert_eq!(row["message_type"], "tool_result");
    assert_eq!(row["agent_turn_id"], run);
    assert_eq!(row["tool_call_id"], call["tool_call_id"]);
    assert_eq!(row["correlation_id"], call["tool_call_id"]);
    assert_eq!(row["result_status"], "success");
    assert_eq!(row["source"], "all-name");
    assert_eq!(world.item(&row["tool_result_card_id"]).await.expect(200)["kind"], "tool.result");

    let edges = world.get("/v1/agents/alice/edges").await.expect(200);
    let names: Vec<_> = edges["edges"].as_array().unwrap().iter().map(|edge| (&edge["primitive"], &edge["edge_phase"])).collect();
    let expected = [("enqueue", "request"), ("tool_call", "request"), ("report", "response")];
    assert_eq!(names, expected.map(|(primitive, phase)| (json!(primitive), json!(phase))).each_ref().map(|(a, b)| (a, b)));
    for edge in [1, 2] {
        assert_eq!(edges["edges"][edge]["correlation_id"], call["tool_call_id"]);
    }
    assert_eq!(edges["edges"][0]["trace_id"].as_str().map(str::len), Some(32));
}

#[tokio::test]
async fn an_agent_exists_once_it_is_configured_or_used() {
    let world = World::start();
    let head = world.get("/v1/agents/alice").await.expect(200);
    assert_eq!((&head["status"], &head["turn_epoch"]), (&json!("idle"), &json!(0)));
    assert_eq!(world.get("/v1/agents/alice/inbox").await.expect(200), json!({ "inbox": [], "next": null }));
    for path in ["/v1/agents/bob", "/v1/agents/bob/inbox", "/v1/agents/bob/edges"] {
        assert_eq!(world.get(path).await.refusal(), (404, "unknown_agent".into()));
    }
    let run = world.enqueue("bob", "hello").await;
    world.ended("bob", &run).await;
    world.get("/v1/agents/bob").await.expect(200);
    assert_eq!(world.get_as("other", "/v1/agents/bob").await.refusal(), (404, "unknown_agent".into()));
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let mut settings = Settings::default();
    settings.admission.queued_per_agent_max = 1;
    let world = World::with(settings);
    world.enqueue("alice", "call echo").await;
    world.enqueue("alice", "second").await;
    let full = world.post("/v1/agents/alice/enqueue", r#"{"input": "third"}"#).await;
    assert_eq!(full.refusal(), (429, "queue_full".into()));
    assert!(full.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn a_draining_server_takes_no_turns() {
    let world = World::start();
    world.get("/readyz").await.expect(200);
    world.engine.drain().await;
    for answer in [world.get("/readyz").await, world.post("/v1/agents/alice/enqueue", r#"{"input": "x"}"#).await] {
        assert_eq!(answer.refusal(), (503, "draining".into()));
        assert!(answer.headers.contains_key("retry-after"));
    }
    world.get("/healthz").await.expect(200);
}
