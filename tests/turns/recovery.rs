//! Recovery: killed servers, dead tool workers, stale owners, unreadable rows.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, until};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: pay, effect: write }
    - { name: quick, effect: read, deadline: 2s }
agents:
  a: { tools: [echo, pay, quick] }
  b: { tools: [echo, pay, quick] }
limits: { sweep_interval: 20ms, backoff: 10ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

async fn server_with(model: &FakeModel) -> Server {
    ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await
}

async fn deliverables(server: &Server, run: &str) -> usize {
    let ended = server.ended(run).await;
    let cards = server.cards(&ended["output_box_id"]).await;
    cards.iter().filter(|card| card["kind"] == "task.deliverable").count()
}

async fn task_events(server: &Server, agent: &str, last: &str) -> Vec<String> {
    let events = server.events_until_end(agent, last).await;
    let tasks = events.iter().filter(|event| event.event == format!("evt.agent.{agent}.task"));
    tasks.map(|event| event.data["agent_turn_id"].as_str().expect("a turn").to_owned()).collect()
}

#[tokio::test]
async fn c_084_an_owner_that_lost_the_gate_stops_at_once_and_leaves_nothing_behind() {
    let script = "laps: [ { delay_ms: 600, calls: [{ tool: echo }] }, { text: done } ]";
    let config = format!("{CONFIG}models: [ {{ name: play, provider: scripted, script: play.yaml }} ]\n");
    let server = ServerBuilder::new(&config).file("play.yaml", script).start().await;
    let run = server.enqueue("a", "go").await;
    let old = server.agent_is("a", "running").await["turn_epoch"].as_u64().expect("an epoch");
    // Another owner moves the head while this owner's model call is in flight.
    let moved = server.database().execute("UPDATE heads SET epoch = epoch + 1, seq = seq + 1 WHERE agent = 'a'");
    assert_eq!(moved, Ok(1));
    let call = server.claim("echo").await;
    assert_eq!(call["turn_epoch"].as_u64(), Some(old + 1));
    let journal = server.journal(&run).await;
    let replies: Vec<&Value> = journal.iter().filter(|entry| entry["event"]["kind"] == "replied").collect();
    assert_eq!(replies.len(), 1, "the stale answer was not written: {journal:?}");
    assert_eq!(replies[0]["turn_epoch"].as_u64(), Some(old + 1));
    assert_eq!(server.number("SELECT count(*) FROM calls"), 1, "and its call was not made");
    assert_eq!(server.number("SELECT count(*) FROM items WHERE kind = 'tool.call'"), 1);
    server.report(&call, json!(1)).await.ok();
    assert_eq!(deliverables(&server, &run).await, 1);
}

#[tokio::test]
async fn c_085_a_killed_owners_turn_is_taken_over_under_a_new_epoch() {
    let model = FakeModel::start(vec![Scene::Call(vec![("echo", json!({}))]), Scene::Hang, Scene::Say("done")]).await;
    let mut server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    model.asked_times(2).await;
    let before = server.agent_is("a", "running").await;
    assert_eq!(server.run(&run).await["iteration"], 2);
    server.kill();
    let server = server.restart(&[]).await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(2)), "the iteration is the same");
    assert!(ended["turn_epoch"].as_u64() > before["turn_epoch"].as_u64(), "{ended} {before}");
    assert_eq!(server.kinds(&run).await.iter().filter(|kind| *kind == "taken_over").count(), 1);
    assert_eq!(deliverables(&server, &run).await, 1);
    assert_eq!(task_events(&server, "a", &run).await, [run]);
    let asked = model.asked();
    assert_eq!(asked[1], asked[2], "the new owner sends the same request");
}

#[tokio::test]
async fn c_085_a_stop_with_the_old_epoch_is_still_accepted_after_a_takeover() {
    let model = FakeModel::start(vec![Scene::Hang]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    model.asked_times(1).await;
    let old = server.run(&run).await["turn_epoch"].clone();
    let server = server.restart(&[]).await;
    model.asked_times(2).await;
    let new = server.run(&run).await["turn_epoch"].clone();
    assert!(new.as_u64() > old.as_u64());
    let ahead = json!({ "agent_turn_id": run, "reason": "x", "turn_epoch": new.as_u64().expect("an epoch") + 10 });
    let refused = server.post("/v1/agents/a/stop", ahead).await;
    assert_eq!((refused.status, refused.code()), (409, "epoch_ahead"));
    let stopped = server.post("/v1/agents/a/stop", json!({ "agent_turn_id": run, "reason": "enough", "turn_epoch": old })).await;
    assert_eq!(stopped.status, 202);
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("canceled"), &json!(1)));
    assert!(ended["turn_epoch"].as_u64() > new.as_u64(), "a stop raises the epoch");
    until("the call in flight is called off", || async { (model.hanging() == 0).then_some(()) }).await;
    assert_eq!(deliverables(&server, &run).await, 1);
}

#[tokio::test]
async fn c_085_a_result_worked_on_during_a_takeover_is_not_fenced_off() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    let server = server.restart(&[]).await;
    let body = json!({
        "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": "kept", "turn_epoch": call["turn_epoch"],
    });
    assert_eq!(server.post("/v1/agents/a/report", body).await.ok()["duplicate"], false);
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "The results are: echo gave kept");
}

#[tokio::test]
async fn f_002_no_enqueue_runs_twice_however_long_no_worker_is_free() {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Say("done")]).await;
    let config = format!("{CONFIG}{}", model.config()).replace("limits: {", "limits: { workers: 1,");
    let server = ServerBuilder::new(&config).start().await;
    let hog = server.enqueue("hog", "never ends").await;
    model.asked_times(1).await;
    let mut runs = Vec::new();
    for agent in ["x", "y", "z"] {
        runs.push((agent, server.enqueue(agent, "one").await));
        runs.push((agent, server.enqueue(agent, "two").await));
    }
    // The sweep finds no free worker in many passes.
    let began = Instant::now();
    until("time without a worker", || async { (began.elapsed() > Duration::from_millis(600)).then_some(()) }).await;
    assert_eq!(model.asked().len(), 1);
    server.post("/v1/agents/hog/stop", json!({ "agent_turn_id": hog, "reason": "enough" })).await.ok();
    for (agent, run) in &runs {
        assert_eq!(deliverables(&server, run).await, 1, "{agent}");
    }
    assert_eq!(model.asked().len(), 1 + runs.len(), "each turn asked once");
    for pair in runs.chunks(2) {
        assert_eq!(task_events(&server, pair[0].0, &pair[1].1).await, [pair[0].1.clone(), pair[1].1.clone()]);
    }
    assert_eq!(server.number("SELECT count(*) FROM inbox WHERE kind = 'turn'"), 1 + runs.len() as i64);
}

#[tokio::test]
async fn f_002_an_enqueue_cut_by_a_kill_runs_once_under_its_key() {
    for point in ["commit.enqueue.before", "commit.enqueue.after", "effect.model_call.before", "commit.end.before"] {
        let mut server = ServerBuilder::new(CONFIG).env("WINDLASS_CRASH_AT", point).start().await;
        let body = json!({ "input": "hello", "idempotency_key": "k" });
        server.try_post("/v1/agents/a/enqueue", body.clone()).await;
        server.gone().await;
        let server = server.restart(&[]).await;
        let run = server.enqueue_body("a", body.clone()).await;
        assert_eq!(deliverables(&server, &run).await, 1, "{point}");
        assert_eq!(server.enqueue_body("a", body).await, run);
        assert_eq!(task_events(&server, "a", &run).await, [run], "{point}");
        assert_eq!(server.number("SELECT count(*) FROM runs"), 1, "{point}");
    }
}

#[tokio::test]
async fn f_005_a_crash_in_running_resumes_the_turn_instead_of_failing_it() {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Hang, Scene::Say("finally")]).await;
    let mut server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    for times in 1..=2 {
        model.asked_times(times).await;
        server.agent_is("a", "running").await;
        server = server.restart(&[]).await;
    }
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["iteration"]), (&json!("success"), &json!(1)));
    assert_eq!(server.content(&ended["deliverable_item_id"]).await, json!({ "text": "finally" }));
    let kinds = server.kinds(&run).await;
    assert_eq!(kinds, ["accepted", "leased", "lap_started", "taken_over", "taken_over", "replied", "ended"]);
}

#[tokio::test]
async fn f_005_a_turn_that_kills_its_owner_again_and_again_is_parked_with_the_evidence() {
    let hang = vec![Scene::Hang; 5];
    let model = FakeModel::start([hang, vec![Scene::Say("done")]].concat()).await;
    let mut server = server_with(&model).await;
    let run = server.enqueue("a", "poison").await;
    for times in 1..=5 {
        model.asked_times(times).await;
        server = server.restart(&[]).await;
    }
    let head = server.agent_is("a", "suspended").await;
    assert_eq!((&head["parked"], &head["active_run_id"]), (&json!("owners_lost"), &json!(run)));
    assert_eq!(server.kinds(&run).await.iter().filter(|kind| *kind == "taken_over").count(), 5);
    assert_eq!(model.asked().len(), 5, "there is no sixth attempt");
    server.post("/v1/windlass/reconcile", json!({ "run_id": run, "action": "resume" })).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success", "a person let it go on");
}

#[tokio::test]
async fn f_006_one_corrupt_row_never_stops_the_sweep() {
    let mut server = server().await;
    let broken = server.enqueue("a", "call quick").await;
    server.suspended("a", &broken).await;
    let mut healthy = Vec::new();
    for agent in ["A-before", "b", "z-after"] {
        let run = server.enqueue_body(agent, json!({ "input": "call quick", "tools": ["quick"] })).await;
        server.suspended(agent, &run).await;
        healthy.push(run);
    }
    server.kill();
    let broke = server.database().execute("UPDATE runs SET state = unhex('7b7d') WHERE agent = 'a'");
    assert_eq!(broke, Ok(1));
    let server = server.restart(&[]).await;
    for run in &healthy {
        let ended = server.ended(run).await;
        assert_eq!(ended["task_status"], "success", "the others time out and go on");
        assert!(server.history(run).await.iter().any(|event| event["status"] == "timeout"));
    }
    until("the broken one is taken out of the way", || async {
        let head = server.get("/v1/agents/a").await;
        (head.body["quarantined"] == true).then_some(())
    })
    .await;
    assert!(server.log().contains("quarantined"), "{}", server.log());
    // It stays visible, refuses with a clear error, and has no effect on other agents.
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!((&head["status"], &head["active_run_id"]), (&json!("suspended"), &json!(broken)));
    let run = server.get(&format!("/v1/windlass/runs/{broken}")).await;
    assert_eq!((run.status, run.code()), (500, "corrupt"));
    let fresh = server.enqueue("b", "still alive").await;
    assert_eq!(server.ended(&fresh).await["task_status"], "success");
}

#[tokio::test]
async fn f_006_an_agent_whose_turn_cannot_be_read_continues_when_a_person_gives_the_turn_up() {
    for broken in ["UPDATE runs SET state = unhex('7b7d') WHERE agent = 'a'", "UPDATE stretches SET events = '[[\"nonsense\",{}]]'"] {
        let mut server = server().await;
        let run = server.enqueue("a", "call quick").await;
        server.suspended("a", &run).await;
        server.kill();
        server.database().execute(broken).expect("it can be broken");
        let server = server.restart(&[]).await;
        until("it is taken out of the way", || async { (server.get("/v1/agents/a").await.body["quarantined"] == true).then_some(()) })
            .await;
        let body = json!({ "run_id": run, "action": "abandon" });
        let next = server.post("/v1/agents/a/enqueue", json!({ "input": "still there?" })).await.ok();
        assert_eq!(next["status"], "queued", "it waits behind what cannot be read");
        let ask =
            || server.send(server.request(reqwest::Method::POST, "/v1/windlass/reconcile").header("idempotency-key", "k").json(&body));
        let first = ask().await.ok();
        assert_eq!(ask().await.ok(), first, "under its key the same again");
        let ended = server.ended(&run).await;
        assert_eq!((&ended["task_status"], &ended["end_reason"]), (&json!("failed"), &json!("abandoned")));
        let text = server.content(&ended["deliverable_item_id"]).await["text"].to_string();
        assert!(text.contains("could not be read"), "{text}");
        assert_eq!(server.calls(&run).await[0]["status"], "dropped");
        let next = next["run_id"].as_str().expect("a run");
        assert_eq!(server.ended(next).await["task_status"], "success", "the next one begins");
        assert_eq!(server.agent_is("a", "idle").await["quarantined"], false);
        for unmoved in [run.as_str(), next] {
            let answer = server.post("/v1/windlass/reconcile", json!({ "run_id": unmoved, "action": "abandon" })).await;
            assert_eq!((answer.status, answer.code()), (409, "not_quarantined"));
        }
    }
}

/// A worker claims a call for a second and disappears.
async fn die_with_a_call(server: &Server, tool: &str) -> Value {
    until("the call can be claimed", || async {
        let answer = server.post(&format!("/v1/tools/{tool}/claim"), json!({ "worker": "doomed", "lease_s": 1 })).await.ok();
        answer["calls"].as_array().and_then(|calls| calls.first().cloned())
    })
    .await
}

#[tokio::test]
async fn f_015_a_read_whose_worker_died_is_claimable_again_under_the_same_key() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let first = die_with_a_call(&server, "echo").await;
    let second = server.claim("echo").await;
    assert_eq!(second["idempotency_key"], first["idempotency_key"]);
    assert_eq!(second["tool_call_id"], first["tool_call_id"]);
    assert_eq!((&first["attempt"], &second["attempt"]), (&json!(1), &json!(2)));
    let lost = json!({ "worker": "doomed", "lease_s": 5, "calls": [{ "agent_turn_id": run, "tool_call_id": first["tool_call_id"] }] });
    let lost = server.post("/v1/tools/echo/renew", lost).await.ok();
    assert_eq!(lost["lost"].as_array().map(Vec::len), Some(1), "the dead worker holds it no more");
    server.report(&second, json!("from the second")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
    assert!(server.kinds(&run).await.contains(&"lease_ended".to_owned()));
}

/// A write whose worker died and which waits for a person.
async fn parked_write(server: &Server, agent: &str) -> (String, Value) {
    let run = server.enqueue(agent, "call pay").await;
    let call = die_with_a_call(server, "pay").await;
    until("the write is parked", || async {
        let head = server.get(&format!("/v1/agents/{agent}")).await.ok();
        (head["parked"] == true).then_some(())
    })
    .await;
    let claim = server.post("/v1/tools/pay/claim", json!({ "worker": "w2" })).await.ok();
    assert_eq!(claim["calls"], json!([]), "a write is never started a second time by itself");
    let head = server.get(&format!("/v1/agents/{agent}")).await.ok();
    assert_eq!(
        (&head["status"], &head["resume_deadline"]),
        (&json!("suspended"), &Value::Null),
        "it waits for a person, without a deadline"
    );
    (run, call)
}

async fn reconcile(server: &Server, run: &str, call: &Value, action: &str, more: Value) {
    let mut body = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": action });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = server.post("/v1/windlass/reconcile", body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let again = server.post("/v1/windlass/reconcile", body).await;
    assert_eq!((again.status, again.code()), (409, "not_parked"), "a decision is made once");
}

#[tokio::test]
async fn f_015_a_write_whose_worker_died_parks_and_its_result_can_be_recorded() {
    let server = server().await;
    let (run, call) = parked_write(&server, "a").await;
    reconcile(&server, &run, &call, "record", json!({ "status": "success", "result": "it was paid" })).await;
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "The results are: pay gave it was paid");
}

#[tokio::test]
async fn f_015_a_parked_write_can_be_released_to_run_once_more() {
    let server = server().await;
    let (run, call) = parked_write(&server, "a").await;
    reconcile(&server, &run, &call, "release", json!({})).await;
    let again = server.claim("pay").await;
    assert_eq!(again["idempotency_key"], call["idempotency_key"]);
    server.report(&again, json!("paid now")).await.ok();
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "The results are: pay gave paid now");
}

#[tokio::test]
async fn f_015_the_unknown_outcome_can_be_reported_to_the_model() {
    let mut server = server().await;
    let (run, call) = parked_write(&server, "a").await;
    server.kill();
    let server = server.restart(&[]).await;
    assert_eq!(server.get("/v1/agents/a").await.ok()["parked"], true, "a restart decides nothing");
    reconcile(&server, &run, &call, "tell", json!({})).await;
    let ended = server.ended(&run).await;
    let text = server.content(&ended["deliverable_item_id"]).await["text"].to_string();
    assert!(text.contains("outcome_unknown"), "{text}");
}

#[tokio::test]
async fn f_015_a_stop_moves_a_parked_turn_too_and_a_late_report_settles_it() {
    let server = server().await;
    let (run, _) = parked_write(&server, "a").await;
    server.post("/v1/agents/a/stop", json!({ "agent_turn_id": run, "reason": "enough" })).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "canceled");
    assert_eq!(deliverables(&server, &run).await, 1);
    let (run, call) = parked_write(&server, "b").await;
    server.report(&call, json!("I was only slow")).await.ok();
    let ended = server.ended(&run).await;
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "The results are: pay gave I was only slow");
}

#[tokio::test]
async fn f_019_a_stop_interrupts_a_model_call_in_flight() {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Say("next")]).await;
    let server = server_with(&model).await;
    let run = server.enqueue("a", "go").await;
    let next = server.enqueue("a", "the next one").await;
    until("the call is in flight", || async { (model.hanging() == 1).then_some(()) }).await;
    server.post("/v1/agents/a/stop", json!({ "agent_turn_id": run, "reason": "enough" })).await.ok();
    until("the connection is dropped", || async { (model.hanging() == 0).then_some(()) }).await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["task_status"], "canceled");
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["text"], "stopped: enough");
    assert_eq!(server.ended(&next).await["task_status"], "success", "the next turn starts");
    assert_eq!(model.asked().len(), 2);
}
