//! What waits for a person: the list, the answers, and answers that are refused.

use serde_json::{Value, json};

use crate::support::{World, report, request};

fn path(interrupt: &Value) -> String {
    format!("/v1/windlass/interrupts/{}", interrupt["interrupt_id"].as_str().unwrap())
}

/// An answer that names what the interrupt shows.
fn answer(interrupt: &Value, action: &str) -> String {
    json!({ "action": action, "shows": interrupt["shows"] }).to_string()
}

#[tokio::test]
async fn s_11_a_held_call_is_shown_with_its_arguments_and_starts_once_it_is_approved() {
    let world = World::start();
    let interrupt = world.held("wire", r#"{"sum": 5}"#).await;
    assert_eq!((&interrupt["cause"], &interrupt["tool"]), (&json!("approval"), &json!("wire")));
    assert_eq!((&interrupt["arguments"], &interrupt["iteration"]), (&json!({ "sum": 5 }), &json!(1)));
    assert_eq!(interrupt["actions"], json!(["approve", "edit", "reject", "end"]));
    assert_eq!((&interrupt["needs"], &interrupt["answers"], &interrupt["until"]), (&json!(1), &json!([]), &Value::Null));
    assert_eq!(world.get(&path(&interrupt)).await.expect(200), interrupt);
    let run = interrupt["run_id"].as_str().unwrap();
    let row = world.get("/v1/windlass/runs?agent=guarded").await.expect(200)["runs"][0].clone();
    assert_eq!((&row["wait"]["kind"], &row["wait"]["what"]), (&json!("approval"), &json!("wire")));

    let none = world.post("/v1/tools/wire/claim", r#"{"worker": "w"}"#.to_owned()).await.expect(200);
    assert_eq!(none["calls"], json!([]), "a held call is not claimed");
    let call = json!({ "agent_turn_id": run, "tool_call_id": interrupt["tool_call_id"] });
    let early = world.post("/v1/agents/guarded/report", report(&call, "1")).await;
    assert_eq!(early.refusal(), (409, "call_held".to_owned()));

    let receipt = world.post_as("judge", &path(&interrupt), answer(&interrupt, "approve")).await.expect(200);
    assert_eq!((&receipt["action"], &receipt["by"], &receipt["remaining"]), (&json!("approve"), &json!("judge-name"), &json!(0)));
    let journal = world.get(&format!("/v1/windlass/runs/{run}/journal?from={}&limit=1", receipt["number"])).await.expect(200);
    assert_eq!(
        (&journal["entries"][0]["event"]["kind"], &journal["entries"][0]["event"]["by"]),
        (&json!("resolved"), &json!("judge-name"))
    );
    let call = world.claim("wire").await;
    assert_eq!(call["arguments"], json!({ "sum": 5 }));
    world.post("/v1/agents/guarded/report", report(&call, "1")).await.expect(202);
    world.ended("guarded", run).await;

    let open = world.get("/v1/windlass/interrupts").await.expect(200);
    assert_eq!(open, json!({ "interrupts": [], "next": null }));
    let all = world.get("/v1/windlass/interrupts?state=all").await.expect(200)["interrupts"][0].clone();
    assert_eq!(
        (&all["answers"][0]["action"], &all["answers"][0]["by"], &all["actions"]),
        (&json!("approve"), &json!("judge-name"), &json!([]))
    );
}

#[tokio::test]
async fn a_late_answer_gets_who_was_first() {
    let world = World::start();
    let interrupt = world.held("wire", "{}").await;
    let body = json!({ "action": "reject", "shows": interrupt["shows"], "comment": "too early" }).to_string();
    world.post_as("judge", &path(&interrupt), body).await.expect(200);
    let late = world.post(&path(&interrupt), answer(&interrupt, "approve")).await;
    assert_eq!(late.refusal(), (409, "already_answered".to_owned()));
    let error = &late.json()["error"];
    assert_eq!((&error["by"], &error["action"]), (&json!("judge-name"), &json!("reject")));
    assert!(error["at"].is_string());
    let run = world.ended("guarded", interrupt["run_id"].as_str().unwrap()).await;
    let calls = world.get(&format!("/v1/windlass/runs/{}/calls", run["run_id"].as_str().unwrap())).await.expect(200);
    let result = world.item(&calls["calls"][0]["result_item_id"]).await.expect(200);
    assert!(result["content"]["result"]["error"]["message"].as_str().unwrap().ends_with("They say: too early"), "{result}");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_changes_nothing() {
    let world = World::start();
    let interrupt = world.held("wire", "{}").await;
    let path = path(&interrupt);
    for (body, status, code) in [
        (json!({ "action": "approve" }), 400, "shows_required"),
        (json!({ "action": "reject" }), 400, "shows_required"),
        (json!({ "action": "approve", "shows": "item" }), 400, "bad_field"),
        (json!({ "action": "approve", "shows": "item_00000000000000000000000000000001" }), 409, "not_what_was_shown"),
        (json!({ "action": "release" }), 409, "unfit_decision"),
        (json!({ "action": "resume" }), 409, "unfit_decision"),
        (json!({ "action": "tell" }), 409, "unfit_decision"),
        (json!({ "action": "record" }), 400, "missing_field"),
        (json!({ "action": "record", "status": "success", "result": 1 }), 409, "unfit_decision"),
        (json!({ "action": "approve", "shows": interrupt["shows"], "result": 1 }), 400, "bad_field"),
        (json!({ "action": "change" }), 400, "bad_field"),
        (json!({ "action": "edit" }), 400, "shows_required"),
        (json!({ "action": "edit", "shows": interrupt["shows"] }), 400, "missing_field"),
        (json!({ "action": "edit", "shows": interrupt["shows"], "arguments": [1] }), 400, "bad_arguments"),
        (json!({ "action": "edit", "shows": interrupt["shows"], "arguments": null }), 400, "bad_arguments"),
        (json!({ "action": "edit", "shows": interrupt["shows"], "arguments": { "sum": "five" } }), 400, "bad_arguments"),
        (json!({ "action": "edit", "shows": "item_00000000000000000000000000000001", "arguments": {} }), 409, "not_what_was_shown"),
        (json!({ "action": "approve", "shows": interrupt["shows"], "arguments": {} }), 400, "bad_field"),
        (json!({}), 400, "missing_field"),
        (json!({ "action": "approve", "extra": 1 }), 400, "unknown_field"),
    ] {
        let refusal = world.post(&path, body.to_string()).await.refusal();
        assert_eq!(refusal, (status, code.to_owned()), "{body}");
    }
    for id in ["int_x", "int_00000000000000000000000000000001_5", "run_00000000000000000000000000000001"] {
        let unknown = world.post(&format!("/v1/windlass/interrupts/{id}"), json!({ "action": "end" }).to_string()).await;
        assert_eq!(unknown.refusal(), (404, "unknown_interrupt".to_owned()), "{id}");
    }
    assert_eq!(world.get(&path).await.expect(200), interrupt);
}

#[tokio::test]
async fn s_11_an_edit_shows_and_starts_the_new_arguments() {
    let world = World::start();
    let interrupt = world.held("vault", r#"{"sum": 5}"#).await;
    let edit = |shown: &Value, sum: u64| json!({ "action": "edit", "shows": shown["shows"], "arguments": { "sum": sum } }).to_string();
    world.post_as("judge", &path(&interrupt), answer(&interrupt, "approve")).await.expect(200);
    assert_eq!(world.post(&path(&interrupt), edit(&interrupt, 3)).await.expect(200)["remaining"], 1, "what the judge approved is gone");
    let edited = world.get(&path(&interrupt)).await.expect(200);
    assert_eq!(edited["arguments"], json!({ "sum": 3 }));
    assert_ne!(edited["shows"], interrupt["shows"]);
    assert_eq!(edited["answers"].as_array().map(Vec::len), Some(1));
    let blind = world.post_as("judge", &path(&interrupt), answer(&interrupt, "approve")).await;
    assert_eq!(blind.refusal(), (409, "not_what_was_shown".to_owned()));
    let own = world.post(&path(&interrupt), answer(&edited, "approve")).await;
    assert_eq!(own.refusal(), (409, "already_approved".to_owned()));
    assert_eq!(world.post_as("judge", &path(&interrupt), answer(&edited, "approve")).await.expect(200)["remaining"], 0);
    let late = world.post(&path(&interrupt), edit(&edited, 4)).await;
    assert_eq!(late.refusal(), (409, "already_answered".to_owned()));
    let call = world.claim("vault").await;
    assert_eq!(call["arguments"], json!({ "sum": 3 }));
    let run = interrupt["run_id"].as_str().unwrap();
    let journal = world.get(&format!("/v1/windlass/runs/{run}/journal")).await.expect(200);
    let kinds: Vec<&str> = journal["entries"].as_array().unwrap().iter().filter_map(|entry| entry["event"]["kind"].as_str()).collect();
    assert_eq!(kinds[kinds.len() - 3..], ["approved", "edited", "resolved"]);
}

#[tokio::test]
async fn two_people_approve_with_two_tokens() {
    let world = World::start();
    let interrupt = world.held("vault", "{}").await;
    assert_eq!((&interrupt["needs"], &interrupt["on_timeout"]), (&json!(2), &json!("reject")));
    assert!(interrupt["until"].is_string());
    let approve = async |token: &str| world.post_as(token, &path(&interrupt), answer(&interrupt, "approve")).await;
    assert_eq!(approve("judge").await.expect(200)["remaining"], 1);
    assert_eq!(approve("judge").await.refusal(), (409, "already_approved".to_owned()));
    assert_eq!(world.get(&path(&interrupt)).await.expect(200)["answers"], json!([{ "action": "approve", "by": "judge-name", "at": null }]));
    assert_eq!(approve("all").await.expect(200)["remaining"], 0);
    world.claim("vault").await;
}

#[tokio::test]
async fn an_answer_with_a_key_is_applied_once() {
    let world = World::start();
    let interrupt = world.held("wire", "{}").await;
    let send = || {
        let built = request("POST", "judge", &path(&interrupt)).header("idempotency-key", "k1");
        world.send(built.body(answer(&interrupt, "approve").into()).unwrap())
    };
    assert!(send().await.expect(200)["number"].is_u64());
    assert_eq!(send().await.expect(200)["number"], Value::Null, "the first answer is not applied again");
}

#[tokio::test]
async fn the_list_is_paged_and_filtered() {
    let world = World::start();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(world.held("wire", "{}").await["interrupt_id"].clone());
        world.post("/v1/agents/guarded/stop", stop_of(&world, &ids).await).await.expect(202);
    }
    let open = world.held("wire", "{}").await;
    ids.push(open["interrupt_id"].clone());
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/windlass/interrupts?state=all&limit=2{after}")).await.expect(200);
        listed.extend(page["interrupts"].as_array().unwrap().iter().map(|row| row["interrupt_id"].clone()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(listed, ids);
    let count =
        async |query: &str| world.get(&format!("/v1/windlass/interrupts{query}")).await.expect(200)["interrupts"].as_array().unwrap().len();
    assert_eq!((count("").await, count("?state=all&cause=approval").await), (1, 4));
    assert_eq!((count("?agent=guarded").await, count("?agent=alice").await, count("?cause=panicked").await), (1, 0, 0));
    for query in ["?state=closed", "?cause=mood", "?run=x", "?after=1", "?limit=0", "?who=me"] {
        assert_eq!(world.get(&format!("/v1/windlass/interrupts{query}")).await.status, 400, "{query}");
    }
}

/// A stop of the run of the last of these interrupts.
async fn stop_of(world: &World, ids: &[Value]) -> String {
    let id = ids.last().unwrap().as_str().unwrap();
    let run = world.get(&format!("/v1/windlass/interrupts/{id}")).await.expect(200)["run_id"].clone();
    json!({ "agent_turn_id": run, "reason": "enough" }).to_string()
}

#[tokio::test]
async fn tm_18_what_waits_in_a_run_that_is_not_to_be_stored_is_shown_to_those_who_decide() {
    let world = World::start();
    let body = json!({ "input": "call wire {}", "store": false, "windlass": { "tools": ["wire"] } }).to_string();
    let response = world.post("/v1/responses", body).await.expect(200);
    let id = response["windlass"]["interrupts"][0].as_str().unwrap().to_owned();
    let listed =
        async |token: &str| world.get_as(token, "/v1/windlass/interrupts").await.expect(200)["interrupts"].as_array().unwrap().len();
    assert_eq!((listed("reader").await, listed("judge").await), (0, 1));
    let path = format!("/v1/windlass/interrupts/{id}");
    assert_eq!(world.get_as("reader", &path).await.refusal(), (404, "unknown_interrupt".to_owned()));
    assert_eq!(world.get_as("judge", &path).await.expect(200)["tool"], "wire");
}

#[tokio::test]
async fn the_metrics_count_what_waits() {
    let world = World::start();
    world.held("wire", "{}").await;
    let metrics = world.get("/metrics").await;
    let text = metrics.text;
    assert!(text.contains("windlass_interrupts{cause=\"approval\"} 1"), "{text}");
    assert!(text.contains("windlass_oldest_interrupt_age_seconds"), "{text}");
}

#[tokio::test]
async fn a_response_that_waits_for_approval_names_its_interrupt() {
    let world = World::start();
    let body = json!({ "input": "call wire {}", "tools": [], "windlass": { "tools": ["wire"] } }).to_string();
    let response = world.post("/v1/responses", body).await.expect(200);
    assert_eq!((&response["status"], &response["windlass"]["status"]), (&json!("in_progress"), &json!("waiting")));
    let listed = world.get("/v1/windlass/interrupts").await.expect(200);
    assert_eq!(response["windlass"]["interrupts"], json!([listed["interrupts"][0]["interrupt_id"]]));
}

/// Starts a run whose model asks a person, and returns the interrupt.
async fn asked(world: &World, arguments: &str) -> Value {
    let run = world.enqueue("asker", &format!("call ask_person {arguments}")).await;
    let path = format!("/v1/windlass/interrupts?run={run}");
    world.until("asker", &path, |list| !list["interrupts"].as_array().unwrap().is_empty()).await["interrupts"][0].clone()
}

#[tokio::test]
async fn a_question_is_answered_once_and_the_answer_is_its_result() {
    let world = World::start();
    let schema = json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] });
    let interrupt = asked(&world, &json!({ "question": "how much?", "schema": schema }).to_string()).await;
    assert_eq!((&interrupt["cause"], &interrupt["tool"], &interrupt["until"]), (&json!("question"), &json!("ask_person"), &Value::Null));
    assert_eq!(interrupt["arguments"], json!({ "question": "how much?", "schema": schema }));
    assert_eq!(interrupt["actions"], json!(["answer", "reject", "end"]));
    let run = interrupt["run_id"].as_str().unwrap();
    let row = world.get("/v1/windlass/runs?agent=asker").await.expect(200)["runs"][0].clone();
    assert_eq!((&row["wait"]["kind"], &row["wait"]["what"]), (&json!("question"), &json!("ask_person")));

    let none = world.post("/v1/tools/ask_person/claim", r#"{"worker": "w"}"#.to_owned()).await;
    assert!(none.status != 200 || none.json()["calls"] == json!([]), "{none:?}");
    let call = json!({ "agent_turn_id": run, "tool_call_id": interrupt["tool_call_id"] });
    assert_eq!(world.post("/v1/agents/asker/report", report(&call, "1")).await.refusal(), (409, "call_held".to_owned()));

    let path = path(&interrupt);
    for (body, status, code) in [
        (json!({ "action": "answer" }), 400, "missing_field"),
        (json!({ "action": "answer", "answer": { "sum": "five" } }), 400, "answer_does_not_fit"),
        (json!({ "action": "answer", "answer": 5 }), 400, "answer_does_not_fit"),
        (json!({ "action": "reject", "shows": interrupt["shows"], "answer": 5 }), 400, "bad_field"),
        (json!({ "action": "approve", "shows": interrupt["shows"] }), 409, "unfit_decision"),
        (json!({ "action": "record", "status": "success", "result": 1 }), 409, "unfit_decision"),
    ] {
        assert_eq!(world.post(&path, body.to_string()).await.refusal(), (status, code.to_owned()), "{body}");
    }
    assert_eq!(world.get(&path).await.expect(200), interrupt, "nothing has changed");
    let answer = json!({ "action": "answer", "answer": { "sum": 5 } }).to_string();
    world.post_as("judge", &path, answer.clone()).await.expect(200);
    let late = world.post(&path, answer).await;
    assert_eq!(late.refusal(), (409, "already_answered".to_owned()));
    assert_eq!((&late.json()["error"]["by"], &late.json()["error"]["action"]), (&json!("judge-name"), &json!("answer")));
    world.ended("asker", run).await;
    let calls = world.get(&format!("/v1/windlass/runs/{run}/calls")).await.expect(200);
    let result = world.item(&calls["calls"][0]["result_item_id"]).await.expect(200);
    assert_eq!(result["content"]["result"], json!({ "sum": 5 }), "{result}");
}

#[tokio::test]
async fn a_response_whose_model_asks_is_waiting_and_a_person_may_decline() {
    let world = World::start();
    let body = json!({ "model": "agent/asker", "input": "call ask_person {\"question\": \"which?\"}", "background": true }).to_string();
    let response = world.post("/v1/responses", body).await.expect(200);
    let at = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    let waiting = world.until("asker", &at, |response| response["windlass"]["status"] == "waiting").await;
    let interrupt = json!({ "interrupt_id": waiting["windlass"]["interrupts"][0] });
    let shown = world.get(&path(&interrupt)).await.expect(200);
    let body = json!({ "action": "reject", "shows": shown["shows"], "comment": "ask ann" }).to_string();
    world.post(&path(&interrupt), body).await.expect(200);
    let ended = world.until("asker", &at, |response| response["status"] == "completed").await;
    assert!(ended["output"][0]["error"].as_str().unwrap().contains("They say: ask ann"), "{ended}");
}

#[tokio::test]
async fn only_agents_that_ask_have_the_tool() {
    let world = World::start();
    let named = |agent: &str| {
        let body = json!({ "input": "hello", "tools": ["ask_person"] }).to_string();
        let path = format!("/v1/agents/{agent}/enqueue");
        let world = &world;
        async move { world.post(&path, body).await }
    };
    named("asker").await.expect(202);
    assert_eq!(named("bob").await.refusal(), (400, "unknown_tool".to_owned()));
    let narrowed = json!({ "input": "call ask_person {\"question\": \"x\"}", "tools": ["echo"] }).to_string();
    let run = world.post("/v1/agents/asker/enqueue", narrowed).await.expect(202)["run_id"].as_str().unwrap().to_owned();
    let ended = world.ended("asker", &run).await;
    assert_eq!(ended["calls"]["made"], 0, "a request that names tools has only those: {ended}");
}
