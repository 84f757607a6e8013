//! Runs, content and decisions.

use serde_json::{Value, json};

use windlass_engine::{Retention, Settings};
use windlass_ports::ContextSize;

use crate::support::{ITEM_BYTES_MAX, World, report, request};

#[tokio::test]
async fn a_run_can_be_read_back() {
    let world = World::start();
    let id = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let waiting = world.get(&format!("/v1/windlass/runs/{id}")).await.expect(200);
    assert_eq!((&waiting["status"], &waiting["phase"]), (&json!("active"), &json!("waiting")));
    assert_eq!(waiting["calls"]["open"][0]["tool_call_id"], call["tool_call_id"]);
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);

    let run = world.ended("alice", &id).await;
    assert_eq!((&run["agent_id"], &run["model"]), (&json!("alice"), &json!("offline")));
    assert_eq!((&run["iteration"], &run["ordinal"], &run["parked"]), (&json!(2), &json!(1), &json!(false)));
    assert!(run["usage"]["tokens_out"].as_u64().unwrap() > 0);

    let first = world.get(&format!("/v1/windlass/runs/{id}/journal?limit=2")).await.expect(200);
    assert_eq!(first["entries"][0]["event"]["kind"], "accepted");
    let rest = world.get(&format!("/v1/windlass/runs/{id}/journal?from={}", first["next"])).await.expect(200);
    let entries = rest["entries"].as_array().unwrap();
    assert_eq!((&entries[0]["number"], &rest["next"]), (&json!(2), &Value::Null));
    assert_eq!(entries.last().unwrap()["event"]["kind"], "ended");
    assert_eq!(run["journal_length"], json!(entries.len() + 2));

    let calls = world.get(&format!("/v1/windlass/runs/{id}/calls")).await.expect(200);
    assert_eq!((&calls["calls"][0]["status"], &calls["calls"][0]["attempt"]), (&json!("applied"), &json!(1)));
    assert_eq!(world.item(&calls["calls"][0]["item_id"]).await.expect(200)["kind"], "tool.call");
}

#[tokio::test]
async fn a_box_is_packed_and_given_to_an_agent() {
    let world = World::start();
    let run = world.enqueue("alice", "hello").await;
    let output = world.ended("alice", &run).await["output_box_id"].clone();
    let body = json!({ "boxes": [output], "items": ["words", { "a": 1 }] }).to_string();
    let packed = world.post("/v1/windlass/boxes", body).await.expect(201);
    let id = packed["box_id"].as_str().unwrap();
    let opened = world.get(&format!("/v1/windlass/boxes/{id}")).await.expect(200);
    assert_eq!(opened["length"], packed["length"]);
    let contents: Vec<&Value> = opened["items"].as_array().unwrap().iter().map(|item| &item["content"]).collect();
    assert!(contents.contains(&&json!({ "text": "words" })) && contents.contains(&&json!({ "item": { "a": 1 } })), "{contents:?}");

    let body = json!({ "input": [], "context_box_id": id }).to_string();
    let taken = world.post("/v1/agents/bob/enqueue", body).await.expect(202);
    let run = world.ended("bob", taken["run_id"].as_str().unwrap()).await;
    let context = world.get(&format!("/v1/windlass/boxes/{}", run["context_box_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(context["parent"], json!({ "box_id": id, "length": packed["length"] }));
}

#[tokio::test]
async fn tm_04_a_packed_box_repeats_no_box_and_is_bounded() {
    let context_max = ContextSize { items: 5, bytes: 1_000 };
    let world = World::with(Settings { context_max, ..Settings::default() });
    let pack = |body: Value| world.post("/v1/windlass/boxes", body.to_string());
    let three = pack(json!({ "items": ["a", "b", "c"] })).await.expect(201)["box_id"].clone();
    assert_eq!(pack(json!({ "boxes": [three, three] })).await.refusal(), (400, "bad_field".to_owned()));
    assert_eq!(pack(json!({ "boxes": [three], "items": ["d", "e"] })).await.expect(201)["length"], 5);
    assert_eq!(pack(json!({ "boxes": [three], "items": ["d", "e", "f"] })).await.refusal(), (413, "box_too_large".to_owned()));
    assert_eq!(pack(json!({ "boxes": [three], "items": ["x".repeat(1_000)] })).await.refusal(), (413, "box_too_large".to_owned()));
}

#[tokio::test]
async fn tm_22_a_key_answers_for_no_other_body() {
    let world = World::start();
    let keyed = |path: &str, body: Value| {
        let request = request("POST", "all", path).header("idempotency-key", "k");
        world.send(request.body(body.to_string().into()).unwrap())
    };
    let packed = keyed("/v1/windlass/boxes", json!({ "items": ["a"] })).await.expect(201);
    assert_eq!(keyed("/v1/windlass/boxes", json!({ "items": ["a"] })).await.expect(201), packed);
    let other = keyed("/v1/windlass/boxes", json!({ "items": ["b"] })).await;
    assert_eq!(other.refusal(), (409, "idempotency_key_reused".to_owned()));
    world.enqueue("alice", "call echo").await;
    let claim = |max: u32| keyed("/v1/tools/echo/claim", json!({ "worker": "w", "max": max, "wait_s": 30 }));
    let claimed = claim(1).await.expect(200);
    assert_eq!(claim(1).await.expect(200), claimed);
    assert_eq!(claim(2).await.refusal(), (409, "idempotency_key_reused".to_owned()));
}

#[tokio::test]
async fn tm_22_an_action_id_answers_for_no_other_action() {
    let world = World::start();
    let act = |tool: &str, args: Value| {
        world.post("/v1/agents/bob/actions", json!({ "action_id": "a1", "tool": tool, "args": args }).to_string())
    };
    let taken = act("echo", json!({ "n": 1 })).await.expect(202);
    assert_eq!(act("echo", json!({ "n": 1 })).await.expect(202)["run_id"], taken["run_id"]);
    for other in [act("echo", json!({ "n": 2 })).await, act("spare", json!({ "n": 1 })).await] {
        assert_eq!(other.refusal(), (409, "idempotency_key_reused".to_owned()));
    }
}

#[tokio::test]
async fn tm_18_a_run_that_is_not_to_be_stored_is_shown_to_its_client_alone() {
    let world = World::start();
    for (store, status) in [(true, 200), (false, 404)] {
        let body = json!({ "model": "agent/alice", "input": "call echo", "store": store }).to_string();
        let look = async {
            let call = world.claim("echo").await;
            let (agent, run) = (call["agent_id"].as_str().unwrap(), call["agent_turn_id"].as_str().unwrap());
            let runs = ["", "/journal", "/calls"].map(|part| format!("/v1/windlass/runs/{run}{part}"));
            let agents = ["", "/inbox", "/edges"].map(|part| format!("/v1/agents/{run}{part}"));
            for path in runs.iter().chain(&agents) {
                assert_eq!(world.get(path).await.status, status, "{path} with store: {store}");
            }
            world.post(&format!("/v1/agents/{agent}/report"), report(&call, "1")).await.expect(202);
        };
        let (answer, ()) = tokio::join!(world.post("/v1/responses", body), look);
        answer.expect(200);
    }
}

#[tokio::test]
async fn a_box_is_read_in_pages() {
    let world = World::start();
    let items: Vec<String> = (0..40).map(|n| format!("item {n}")).collect();
    let packed = world.post("/v1/windlass/boxes", json!({ "items": items }).to_string()).await.expect(201);
    let (mut from, mut read) = (json!(0), Vec::new());
    while !from.is_null() {
        let path = format!("/v1/windlass/boxes/{}?from={from}&limit=17", packed["box_id"].as_str().unwrap());
        let page = world.get(&path).await.expect(200);
        read.extend(page["items"].as_array().unwrap().iter().map(|item| item["content"]["text"].as_str().unwrap().to_owned()));
        from = page["next"].clone();
    }
    assert_eq!(read, items);
}

async fn parked_call(world: &World) -> Value {
    world.enqueue("alice", "call pay").await;
    let call = world.claim("pay").await;
    // The tool service does not come back, and whether it paid is unknown.
    world.pass_s(61);
    let head = world.until("alice", "/v1/agents/alice", |head| head["parked"] == true).await;
    assert_eq!(head["status"], "suspended");
    call
}

fn decision(call: &Value, action: &str, more: Value) -> String {
    let mut body = json!({ "run_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "action": action });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body.to_string()
}

#[tokio::test]
async fn a_person_records_what_a_parked_call_did() {
    let world = World::start();
    let call = parked_call(&world).await;
    let body = decision(&call, "record", json!({ "status": "success", "result": "paid" }));
    world.post_as("judge", "/v1/windlass/reconcile", body.clone()).await.expect(200);
    let run = world.ended("alice", call["agent_turn_id"].as_str().unwrap()).await;
    let deliverable = world.item(&run["deliverable_item_id"]).await.expect(200);
    assert_eq!(deliverable["content"]["text"], "The results are: pay gave paid");
    assert_eq!(world.post("/v1/windlass/reconcile", body).await.refusal(), (409, "not_parked".into()));
}

#[tokio::test]
async fn a_person_releases_a_parked_call_or_reports_its_unknown_outcome() {
    let world = World::start();
    let call = parked_call(&world).await;
    world.post_as("admin", "/v1/windlass/reconcile", decision(&call, "release", json!({}))).await.expect(200);
    assert_eq!(world.claim("pay").await["attempt"], 2);
    world.pass_s(61);
    world.until("alice", "/v1/agents/alice", |head| head["parked"] == true).await;
    world.post("/v1/windlass/reconcile", decision(&call, "tell", json!({}))).await.expect(200);
    world.ended("alice", call["agent_turn_id"].as_str().unwrap()).await;
}

#[tokio::test]
async fn a_decision_has_to_fit() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let whole = |action: &str| json!({ "run_id": run, "action": action }).to_string();
    let unmade = json!({ "agent_turn_id": run, "tool_call_id": format!("{}9", call["tool_call_id"].as_str().unwrap()) });
    for (body, status, code) in [
        (whole("resume"), 409, "not_parked"),
        (decision(&call, "release", json!({})), 409, "not_parked"),
        (decision(&call, "tell", json!({})), 409, "not_parked"),
        (decision(&unmade, "tell", json!({})), 404, "unknown_call"),
        (decision(&call, "resume", json!({})), 400, "bad_field"),
        (decision(&call, "release", json!({ "result": 1 })), 400, "bad_field"),
        (decision(&call, "record", json!({ "status": "fine" })), 400, "bad_field"),
        (decision(&call, "forget", json!({})), 400, "bad_field"),
        (whole("tell"), 400, "missing_field"),
        (json!({ "run_id": run }).to_string(), 400, "missing_field"),
        (json!({ "run_id": "run_1", "action": "resume" }).to_string(), 404, "unknown_run"),
    ] {
        assert_eq!(world.post("/v1/windlass/reconcile", body.clone()).await.refusal(), (status, code.into()), "{body}");
    }
}

#[tokio::test]
async fn a_recorded_decision_needs_a_status_and_a_result() {
    let world = World::start();
    let call = parked_call(&world).await;
    for (more, missing) in [
        (json!({}), "`status` and `result` are missing"),
        (json!({ "result": "paid" }), "`status` is missing"),
        (json!({ "status": "success" }), "`result` is missing"),
    ] {
        let answer = world.post("/v1/windlass/reconcile", decision(&call, "record", more)).await;
        assert_eq!(answer.refusal(), (400, "missing_field".into()), "{answer:?}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().starts_with(missing), "{answer:?}");
    }
}

#[tokio::test]
async fn a_run_whose_call_waits_says_which_actions_fit() {
    let world = World::start();
    let call = parked_call(&world).await;
    let body = json!({ "run_id": call["agent_turn_id"], "action": "resume" }).to_string();
    let answer = world.post("/v1/windlass/reconcile", body).await;
    assert_eq!(answer.refusal(), (409, "not_parked".into()));
    let hint = answer.json()["error"]["hint"].as_str().unwrap().to_owned();
    for word in ["record", "release", "tell", call["tool_call_id"].as_str().unwrap()] {
        assert!(hint.contains(word), "{word}: {hint}");
    }
}

#[tokio::test]
async fn a_run_that_is_not_there_is_called_a_run() {
    let answer = World::start().get("/v1/windlass/runs/run_00000000000000000000000000000007").await;
    assert_eq!(answer.refusal(), (404, "unknown_run".into()));
    assert_eq!(answer.json()["error"]["message"], "there is no such run");
}

/// Sends batches of an erasure until nothing is left.
async fn erase_whole(world: &World, token: &str, tenant: &str) -> u64 {
    let (mut after, mut erased) = (Value::Null, 0);
    loop {
        let body = json!({ "tenant": tenant, "after": after }).to_string();
        let answer = world.post_as(token, "/v1/windlass/erase", body).await.expect(200);
        assert_eq!(answer["tenant"], tenant);
        erased += answer["erased"].as_u64().unwrap();
        after = answer["next"].clone();
        if after.is_null() {
            return erased;
        }
    }
}

#[tokio::test]
async fn tm_05_a_tenant_is_erased_over_the_api_by_its_own_token_alone() {
    let world = World::start();
    let run = world.enqueue("alice", "hello").await;
    world.ended("alice", &run).await;
    let ask = async |token: &str, body: Value| world.post_as(token, "/v1/windlass/erase", body.to_string()).await.refusal();
    assert_eq!(ask("other", json!({ "tenant": "t" })).await, (404, "unknown_tenant".into()));
    assert_eq!(ask("admin", json!({ "tenant": "u" })).await, (404, "unknown_tenant".into()));
    assert_eq!(ask("admin", json!({})).await, (400, "missing_field".into()));
    assert_eq!(ask("admin", json!({ "tenant": "t", "after": "x" })).await, (400, "bad_field".into()));
    assert_eq!(ask("reader", json!({ "tenant": "t" })).await, (403, "forbidden".into()));
    assert_eq!(erase_whole(&world, "other", "u").await, 0, "it has nothing");
    world.get(&format!("/v1/windlass/runs/{run}")).await.expect(200);
    assert!(erase_whole(&world, "admin", "t").await > 0);
    assert_eq!(world.get(&format!("/v1/windlass/runs/{run}")).await.refusal(), (404, "unknown_run".into()));
    assert_eq!(erase_whole(&world, "admin", "t").await, 0, "once more changes nothing");
    let again = world.enqueue("alice", "hello").await;
    world.ended("alice", &again).await;
}

#[tokio::test]
async fn a_tenant_with_an_open_run_is_not_erased() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    world.until_status("alice", "suspended").await;
    let answer = world.post("/v1/windlass/erase", json!({ "tenant": "t" }).to_string()).await;
    assert_eq!(answer.refusal(), (409, "open_runs".into()));
    assert!(answer.json()["error"]["message"].as_str().unwrap().starts_with("1 runs"), "{answer:?}");
    world.get(&format!("/v1/windlass/runs/{run}")).await.expect(200);
}

/// Each tenant erases only its own old runs, those of each API after that API's time.
#[tokio::test]
async fn tm_13_old_runs_are_erased_over_the_api_by_their_tenant_alone() {
    let hour_ms = 3_600_000;
    let retention = Retention { responses_ms: Some(hour_ms), runs_ms: Some(2 * hour_ms) };
    // The sweep must not erase before the test does.
    let world = World::with(Settings { sweep_ms: 1_000_000, item_bytes_max: ITEM_BYTES_MAX, retention, ..Settings::default() });
    let run = world.enqueue("alice", "hello").await;
    world.ended("alice", &run).await;
    let response = world.post("/v1/responses", r#"{"input": "hello"}"#).await.expect(200)["id"].as_str().unwrap().to_owned();
    let talk = world.post("/v1/conversations", "{}").await.expect(200)["id"].as_str().unwrap().to_owned();
    let in_talk = world.post("/v1/responses", json!({ "input": "hello", "conversation": talk }).to_string()).await.expect(200);
    let gc = async |token: &str| world.post_as(token, "/v1/windlass/gc", "{}").await.expect(200);
    let done = |erased: u64| json!({ "erased": erased, "failed": 0, "next": null, "done": true });
    assert_eq!(gc("admin").await, done(0), "all are young");
    world.pass_s(3_601);
    assert_eq!(gc("other").await, done(0), "another tenant's");
    assert_eq!(gc("admin").await, done(1));
    assert_eq!(world.get(&format!("/v1/responses/{response}")).await.status, 404);
    world.get(&format!("/v1/windlass/runs/{run}")).await.expect(200);
    world.pass_s(3_600);
    assert_eq!(gc("admin").await, done(1));
    assert_eq!(world.get(&format!("/v1/windlass/runs/{run}")).await.refusal(), (404, "unknown_run".into()));
    world.get(&format!("/v1/responses/{}", in_talk["id"].as_str().unwrap())).await.expect(200);
    let wrong = world.post_as("admin", "/v1/windlass/gc", r#"{"after": "x"}"#).await;
    assert_eq!(wrong.refusal(), (400, "bad_field".into()));
}

#[tokio::test]
async fn without_retention_there_is_nothing_to_erase_by_age() {
    assert_eq!(World::start().post_as("admin", "/v1/windlass/gc", "{}").await.refusal(), (409, "no_retention".into()));
}
