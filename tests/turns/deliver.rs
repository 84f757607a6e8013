//! Deliverables and events: every turn ends with one result and one task event, whatever its ending.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, SseEvent, bytes};

const CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: quick, effect: read, deadline: 200ms }
    - { name: quick_last, effect: read, deadline: 200ms, after_execution: terminate }
agents:
  a: { tools: [echo, quick, quick_last] }
  b: { tools: [echo] }
  frugal: { tools: [echo], budgets: { calls: 1 } }
limits: { sweep_interval: 20ms, backoff: 10ms }
";

async fn server() -> Server {
    ServerBuilder::new(CONFIG).start().await
}

async fn scripted(script: &str) -> Server {
    let config = format!("{CONFIG}models: [ {{ name: play, provider: scripted, script: play.yaml }} ]\n");
    ServerBuilder::new(&config).file("play.yaml", script).start().await
}

async fn stop(server: &Server, agent: &str, run: &str) -> Value {
    server.post(&format!("/v1/agents/{agent}/stop"), json!({ "agent_turn_id": run, "reason": "enough" })).await.ok()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn tasks<'a>(events: &'a [SseEvent], agent: &str) -> Vec<&'a SseEvent> {
    let name = format!("evt.agent.{agent}.task");
    events.iter().filter(|event| event.event == name).collect()
}

/// Asserts what every ending has: a deliverable that is the last card of the output box, and one task event that points at it.
async fn owes_nothing(server: &Server, agent: &str, run: &str, status: &str) {
    let ended = server.ended(run).await;
    assert_eq!(ended["task_status"], status, "{ended}");
    let deliverable = &ended["deliverable_item_id"];
    let cards = server.cards(&ended["output_box_id"]).await;
    let found: Vec<&Value> = cards.iter().filter(|card| card["kind"] == "task.deliverable").collect();
    assert_eq!(found.len(), 1, "{cards:?}");
    assert_eq!(&found[0]["item_id"], deliverable, "it is among the cards of the output box");
    let content = &found[0]["content"];
    assert!(content["text"].is_string() || content["fields"].is_array(), "{content}");
    let events = server.events_until_end(agent, run).await;
    let own: Vec<&SseEvent> = tasks(&events, agent).into_iter().filter(|event| event.data["agent_turn_id"] == run).collect();
    assert_eq!(own.len(), 1, "one task event: {events:#?}");
    assert_eq!(&own[0].data["deliverable_card_id"], deliverable);
    assert_eq!(own[0].data["status"], status);
    assert_eq!(server.number(&format!("SELECT count(*) FROM journal WHERE kind = 'ended' AND run = {}", bytes(run))), 1);
}

#[tokio::test]
async fn c_054_a_delivery_writes_the_deliverable_card() {
    let server = server().await;
    let run = server.enqueue("a", "good day").await;
    let ended = server.ended(&run).await;
    let item = server.get(&format!("/v1/windlass/items/{}", ended["deliverable_item_id"].as_str().expect("an id"))).await.ok();
    assert_eq!(item["kind"], "task.deliverable");
    assert_eq!(item["content"], json!({ "text": "You said: good day" }));
}

#[tokio::test]
async fn c_055_a_delivery_publishes_one_task_event_also_over_a_kill_and_a_resumed_stream() {
    let server = server().await;
    let mut stream = server.events("a", None).await;
    let first = server.enqueue("a", "one").await;
    let mut seen = stream.read_until(|event| event.data["agent_turn_id"] == first && event.event == "evt.agent.a.task").await;
    let cursor = seen.last().expect("an event").id.clone();
    let second = server.enqueue("a", "two").await;
    server.ended(&second).await;
    let third = server.enqueue("a", "call echo").await;
    server.suspended("a", &third).await;
    let server = server.restart(&[]).await;
    let mut stream = server.events("a", Some(&cursor)).await;
    let call = server.claim("echo").await;
    server.report(&call, json!("hi")).await.ok();
    seen.extend(stream.read_until(|event| event.data["agent_turn_id"] == third && event.event == "evt.agent.a.task").await);
    let ended: Vec<&Value> = tasks(&seen, "a").iter().map(|event| &event.data["agent_turn_id"]).collect();
    assert_eq!(ended, [&json!(first), &json!(second), &json!(third)]);
    // A stream from the start has the same events with the same ids.
    let whole = server.events_until_end("a", &third).await;
    let seen_again = whole.iter().filter(|event| seen.iter().any(|earlier| earlier.id == event.id));
    assert_eq!(seen_again.cloned().collect::<Vec<_>>(), seen);
    let ids: BTreeSet<&String> = whole.iter().map(|event| &event.id).collect();
    assert_eq!(ids.len(), whole.len(), "no id twice");
}

#[tokio::test]
async fn c_055_a_kill_around_the_delivering_commit_loses_and_doubles_no_task_event() {
    for point in ["commit.end.before", "commit.end.after"] {
        let mut server = ServerBuilder::new(CONFIG).env("WINDLASS_CRASH_AT", point).start().await;
        let run = server.enqueue("a", "wait 100, then answer").await;
        server.gone().await;
        let server = server.restart(&[]).await;
        owes_nothing(&server, "a", &run, "success").await;
    }
}

#[tokio::test]
async fn c_056_a_delivery_clears_the_active_turn_and_returns_to_idle() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    assert_eq!(server.suspended("a", &run).await["status"], "active");
    server.report(&call, json!(1)).await.ok();
    server.ended(&run).await;
    let head = server.get("/v1/agents/a").await.ok();
    assert_eq!(head["status"], "idle");
    for field in ["active_agent_turn_id", "active_run_id", "resume_deadline", "trace_id", "parent_step_id"] {
        assert_eq!(head[field], Value::Null, "{field}");
    }
    assert_eq!((&head["waiting_tool_count"], &head["queued"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn c_059_success_failure_and_budget_each_write_a_deliverable() {
    let server = server().await;
    let success = server.enqueue("a", "hello").await;
    owes_nothing(&server, "a", &success, "success").await;
    let failed = server.enqueue("a", "fail 400").await;
    owes_nothing(&server, "a", &failed, "failed").await;
    let over_budget = server.enqueue("frugal", "call echo and call echo").await;
    owes_nothing(&server, "frugal", &over_budget, "partial").await;
    assert!(server.kinds(&over_budget).await.contains(&"budget_breached".to_owned()));
    assert!(server.calls(&over_budget).await.is_empty(), "nothing over the budget was started");
}

#[tokio::test]
async fn c_059_an_ending_by_timeout_writes_a_deliverable() {
    let server = server().await;
    let run = server.enqueue("a", "call quick_last").await;
    owes_nothing(&server, "a", &run, "timeout").await;
}

#[tokio::test]
async fn c_059_a_model_that_keeps_failing_writes_a_deliverable() {
    let server = scripted("laps: [ { fail: { code: 500 } } ]").await;
    let run = server.enqueue("a", "hello").await;
    owes_nothing(&server, "a", &run, "failed").await;
    let failed = server.kinds(&run).await.iter().filter(|kind| *kind == "attempt_failed").count();
    assert_eq!(failed, 5, "every attempt is on record");
}

#[tokio::test]
async fn c_060_the_deliverable_is_a_card_of_the_output_box_and_of_no_other() {
    let server = server().await;
    let first = server.enqueue("a", "one").await;
    let second = server.enqueue("a", "two").await;
    for run in [&first, &second] {
        let ended = server.ended(run).await;
        let cards = server.cards(&ended["output_box_id"]).await;
        assert_eq!(cards.last().map(|card| &card["item_id"]), Some(&ended["deliverable_item_id"]));
        let context = server.cards(&ended["context_box_id"]).await;
        assert!(context.iter().all(|card| card["item_id"] != ended["deliverable_item_id"]));
    }
    assert_ne!(server.run(&first).await["output_box_id"], server.run(&second).await["output_box_id"]);
}

#[tokio::test]
async fn c_061_a_deliverable_is_text_or_a_list_of_fields() {
    let server = server().await;
    let text = server.enqueue("a", "plain").await;
    let ended = server.ended(&text).await;
    let content = server.content(&ended["deliverable_item_id"]).await;
    assert_eq!(keys(&content), BTreeSet::from(["text"]));
    let body = json!({ "input": r#"submit {"title": "T", "pages": 3}"#, "result_fields": [{ "name": "title", "required": true }] });
    let fields = server.enqueue_body("a", body).await;
    let ended = server.ended(&fields).await;
    let content = server.content(&ended["deliverable_item_id"]).await;
    assert_eq!(content, json!({ "fields": [{ "name": "title", "value": "T" }, { "name": "pages", "value": 3 }] }));
}

#[tokio::test]
async fn c_062_required_fields_are_covered_before_the_turn_can_end() {
    let server = scripted(
        r"
laps:
  - { text: 'I am done.' }
  - { calls: [{ tool: submit_result, arguments: { note: only this } }] }
  - { calls: [{ tool: submit_result, arguments: { title: null } }] }
  - { calls: [{ tool: submit_result, arguments: { title: T } }] }
",
    )
    .await;
    let wanted = json!([{ "name": "title", "description": "a title", "required": true }, { "name": "note" }]);
    let run = server.enqueue_body("a", json!({ "input": "write", "result_fields": wanted })).await;
    let ended = server.ended(&run).await;
    assert_eq!(
        (&ended["task_status"], &ended["iteration"]),
        (&json!("success"), &json!(4)),
        "three endings without the field were refused"
    );
    assert_eq!(server.content(&ended["deliverable_item_id"]).await, json!({ "fields": [{ "name": "title", "value": "T" }] }));
    let cards = server.cards(&ended["output_box_id"]).await;
    let refusals: Vec<&Value> =
        cards.iter().filter(|card| card["kind"] == "tool.result").map(|card| &card["content"]["result"]["error"]).collect();
    assert_eq!(refusals.len(), 2);
    assert!(refusals.iter().all(|error| error["message"].as_str().is_some_and(|message| message.contains("title"))), "{refusals:?}");
}

#[tokio::test]
async fn c_063_result_fields_are_a_list_of_field_objects_wrapped_as_a_schema() {
    let server = server().await;
    let wanted =
        json!([{ "name": "title", "description": "a title", "required": true }, { "name": "note", "description": "", "required": false }]);
    let run = server.enqueue_body("a", json!({ "input": "submit", "result_fields": wanted })).await;
    let view = server.ended(&run).await;
    let cards = server.cards(&view["context_box_id"]).await;
    let found: Vec<&Value> = cards.iter().filter(|card| card["kind"] == "task.result_fields").map(|card| &card["content"]).collect();
    assert_eq!(found, [&json!({ "fields": wanted })]);
    let before = server.row_counts();
    for bad in
        [json!({ "title": "string" }), json!(["title"]), json!([{ "description": "no name" }]), json!([{ "name": "t", "required": "yes" }])]
    {
        let answer = server.post("/v1/agents/a/enqueue", json!({ "input": "x", "result_fields": bad })).await;
        assert_eq!(answer.status, 400, "{bad} {}", answer.body);
    }
    assert_eq!(server.row_counts(), before);
}

#[tokio::test]
async fn c_064_a_task_event_carries_pointers_and_nothing_derived() {
    let server = server().await;
    let body = json!({ "input": r#"submit {"title": "T"}"#, "result_fields": [{ "name": "title", "required": true }] });
    let run = server.enqueue_body("a", body).await;
    let events = server.events_until_end("a", &run).await;
    let task = tasks(&events, "a")[0];
    assert_eq!(keys(&task.data), BTreeSet::from(["agent_turn_id", "deliverable_card_id", "output_box_id", "status"]));
    assert!(task.data.as_object().expect("an object").values().all(Value::is_string), "{task:?}");
    assert_eq!(server.content(&task.data["deliverable_card_id"]).await["fields"][0]["value"], "T", "readers read the card itself");
}

#[tokio::test]
async fn c_065_a_stop_while_queued_delivers() {
    let model = FakeModel::start(vec![Scene::Hang]).await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", model.config())).start().await;
    let active = server.enqueue("a", "hangs").await;
    let queued = server.enqueue("a", "waits its turn").await;
    assert_eq!(server.run(&queued).await["status"], "queued");
    assert_eq!(stop(&server, "a", &queued).await["status"], "stopped");
    assert_eq!(server.get("/v1/agents/a").await.ok()["queued"], 0);
    assert_eq!(server.run(&active).await["status"], "active", "the active turn continues");
    assert_eq!(stop(&server, "a", &active).await["status"], "stopped");
    owes_nothing(&server, "a", &active, "canceled").await;
    owes_nothing(&server, "a", &queued, "canceled").await;
    assert_eq!(model.asked().len(), 1, "the queued turn never ran");
}

#[tokio::test]
async fn c_065_a_stop_while_running_or_suspended_delivers_and_a_watchdog_ending_too() {
    let server = server().await;
    let running = server.enqueue("a", "wait 20000").await;
    server.agent_is("a", "running").await;
    stop(&server, "a", &running).await;
    owes_nothing(&server, "a", &running, "canceled").await;
    let suspended = server.enqueue("b", "call echo").await;
    let call = server.claim("echo").await;
    server.suspended("b", &suspended).await;
    stop(&server, "b", &suspended).await;
    owes_nothing(&server, "b", &suspended, "canceled").await;
    assert_eq!(server.calls(&suspended).await[0]["status"], "dropped");
    let late = server.report(&call, json!("late")).await;
    assert_eq!(late.status, 202, "a late result is acknowledged");
    owes_nothing(&server, "b", &suspended, "canceled").await;
    assert_eq!(stop(&server, "b", &suspended).await["status"], "ended", "a second stop finds it ended");
    let timed_out = server.enqueue("a", "call quick_last").await;
    owes_nothing(&server, "a", &timed_out, "timeout").await;
}

#[tokio::test]
async fn c_066_submit_result_goes_over_no_tool_command_and_needs_no_registration() {
    let server = server().await;
    let body = json!({ "input": "submit", "tools": [], "result_fields": [{ "name": "title", "required": true }] });
    let run = server.enqueue_body("a", body).await;
    let ended = server.ended(&run).await;
    assert_eq!((&ended["task_status"], &ended["tools"]), (&json!("success"), &json!([])));
    assert_eq!(server.content(&ended["deliverable_item_id"]).await["fields"][0]["name"], "title");
    assert!(server.calls(&run).await.is_empty(), "no call was made");
    assert_eq!(server.number("SELECT count(*) FROM calls"), 0);
    let claim = server.post("/v1/tools/submit_result/claim", json!({ "worker": "w" })).await;
    assert_eq!((claim.status, claim.code()), (404, "unknown_tool"));
    assert!(server.inbox_of("a", "tool_result").await.is_empty());
}

#[tokio::test]
async fn c_067_submit_result_is_accepted_once_per_turn() {
    let submit = "{ tool: submit_result, arguments: { title: T } }";
    let server = scripted(&format!("laps: [ {{ calls: [{submit}, {submit}] }}, {{ calls: [{submit}] }}, {{ calls: [{submit}] }} ]")).await;
    let body = json!({ "input": "x", "result_fields": [{ "name": "title", "required": true }] });
    let run = server.enqueue_body("a", body).await;
    let ended = server.ended(&run).await;
    assert_eq!(ended["iteration"], 2, "two at once are refused, the next one is taken, and nothing comes after it");
    owes_nothing(&server, "a", &run, "success").await;
    let cards = server.cards(&ended["output_box_id"]).await;
    let codes: Vec<&Value> =
        cards.iter().filter(|card| card["kind"] == "tool.result").map(|card| &card["content"]["result"]["error"]["code"]).collect();
    assert_eq!(codes, ["submit_alone", "submit_alone"]);
}

#[tokio::test]
async fn c_068_submit_result_validates_fields_that_are_in_the_context_box() {
    let server = server().await;
    let wanted = json!([{ "name": "title", "required": true }]);
    let first = server.enqueue_body("a", json!({ "input": r#"submit {"title": "one"}"#, "result_fields": wanted })).await;
    let first = server.ended(&first).await;
    for inherited in ["context_box_id", "output_box_id"] {
        let body = json!({ "input": r#"submit {"other": 1}"#, "context_box_id": first[inherited] });
        let run = server.enqueue_body("b", body).await;
        let refused = server.ended(&run).await;
        let cards = server.cards(&refused["output_box_id"]).await;
        let error = cards.iter().find(|card| card["kind"] == "tool.result").map(|card| card["content"]["result"]["error"].clone());
        let error = error.unwrap_or_else(|| panic!("the submission without the field is refused: {cards:?}"));
        assert_eq!(error["code"], "bad_result");
        assert_ne!(refused["task_status"], "success", "without the field it never succeeds");
        let body = json!({ "input": r#"submit {"title": "two"}"#, "context_box_id": first[inherited] });
        let run = server.enqueue_body("b", body).await;
        let taken = server.ended(&run).await;
        assert_eq!(server.content(&taken["deliverable_item_id"]).await["fields"], json!([{ "name": "title", "value": "two" }]));
    }
}

#[tokio::test]
async fn c_082_a_task_event_has_turn_status_output_box_and_deliverable() {
    let server = server().await;
    let run = server.enqueue("a", "hello").await;
    let events = server.events_until_end("a", &run).await;
    let ended = server.run(&run).await;
    let found = tasks(&events, "a");
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].data,
        json!({
            "agent_turn_id": run, "status": "success",
            "output_box_id": ended["output_box_id"], "deliverable_card_id": ended["deliverable_item_id"],
        })
    );
}

#[tokio::test]
async fn c_083_a_step_event_has_turn_step_and_phase() {
    let server = server().await;
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    let events = server.events_until_end("a", &run).await;
    let steps: Vec<&Value> = events.iter().filter(|event| event.event == "evt.agent.a.step").map(|event| &event.data).collect();
    let phases: Vec<&Value> = steps.iter().map(|step| &step["phase"]).collect();
    assert_eq!(phases, ["started", "executing", "started", "completed"]);
    for step in &steps {
        assert_eq!(keys(step), BTreeSet::from(["agent_turn_id", "phase", "step_id"]));
        assert_eq!(step["agent_turn_id"], run);
    }
    assert_eq!(steps[0]["step_id"], call["step_id"], "the tool got the same step");
    assert_eq!(steps[0]["step_id"], steps[1]["step_id"]);
    assert_ne!(steps[1]["step_id"], steps[2]["step_id"]);
}

async fn act(server: &Server, id: &str, tool: &str) -> String {
    let answer = server.post("/v1/agents/a/actions", json!({ "action_id": id, "tool": tool, "args": { "n": 1 } })).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    answer.ok()["run_id"].as_str().expect("a run").to_owned()
}

#[tokio::test]
async fn f_011_an_action_delivers_and_emits_a_task_event_whatever_becomes_of_it() {
    let server = server().await;
    let fine = act(&server, "one", "echo").await;
    let call = server.claim("echo").await;
    assert_eq!(call["arguments"], json!({ "n": 1 }));
    server.report(&call, json!("done")).await.ok();
    owes_nothing(&server, "a", &fine, "success").await;

    let failed = act(&server, "two", "echo").await;
    let call = server.claim("echo").await;
    let body = json!({ "agent_turn_id": failed, "tool_call_id": call["tool_call_id"], "status": "failed", "result": "broken" });
    server.post("/v1/agents/a/report", body).await.ok();
    owes_nothing(&server, "a", &failed, "failed").await;

    let late = act(&server, "three", "quick").await;
    owes_nothing(&server, "a", &late, "timeout").await;

    let stopped = act(&server, "four", "echo").await;
    stop(&server, "a", &stopped).await;
    owes_nothing(&server, "a", &stopped, "canceled").await;
}

#[tokio::test]
async fn f_011_an_action_that_waits_survives_a_kill_and_still_delivers_once() {
    let server = server().await;
    let run = act(&server, "one", "echo").await;
    let server = server.restart(&[]).await;
    let call = server.claim("echo").await;
    server.report(&call, json!("done")).await.ok();
    owes_nothing(&server, "a", &run, "success").await;
    assert_eq!(act(&server, "one", "echo").await, run, "the same action is the same run");
}
