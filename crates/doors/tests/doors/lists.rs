//! Lists of runs, agents and tools.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_engine::Settings;

use crate::support::{World, report};

fn ids(list: &Value) -> Vec<&str> {
    list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect()
}

async fn respond(world: &World, body: Value) -> String {
    world.post("/v1/responses", body.to_string()).await.expect(200)["id"].as_str().unwrap().replace("resp_", "run_")
}

async fn list(world: &World, query: &str) -> Value {
    world.get(&format!("/v1/windlass/runs{query}")).await.expect(200)
}

#[tokio::test]
async fn runs_are_listed_newest_first_with_their_known_fields() {
    let world = World::start();
    let first = world.enqueue("alice", "hello there\nsecond line").await;
    world.ended("alice", &first).await;
    let second = respond(&world, json!({ "input": "hi" })).await;
    let third = respond(&world, json!({ "model": "agent/alice", "input": [{ "role": "user", "content": "good day" }] })).await;
    respond(&world, json!({ "input": "hi", "store": false })).await;
    world.post_as("other", "/v1/responses", json!({ "input": "hi" }).to_string()).await.expect(200);

    let all = list(&world, "").await;
    assert_eq!((ids(&all), &all["next"]), (vec![third.as_str(), &second, &first], &Value::Null));
    let rows = all["runs"].as_array().unwrap();
    assert_eq!([&rows[0]["agent_id"], &rows[1]["agent_id"], &rows[2]["agent_id"]], [&json!("alice"), &json!(second), &json!("alice")]);
    assert_eq!([&rows[0]["door"], &rows[2]["door"]], ["responses", "agents"]);
    assert_eq!([&rows[0]["title"], &rows[1]["title"], &rows[2]["title"]], ["good day", "hi", "hello there"]);
    assert_eq!((&rows[0]["state"], &rows[0]["task_status"], &rows[0]["wait"]), (&json!("ended"), &json!("success"), &Value::Null));
    assert_eq!((&rows[0]["end_reason"], &rows[0]["iteration"], &rows[0]["model"]), (&json!("answered"), &json!(1), &json!("offline")));
    assert_eq!(rows[0]["calls"], json!({ "made": 0, "open": 0, "parked": 0 }));
    assert!(rows[0]["usage"]["out"].as_u64().unwrap() > 0);
    assert!(rows[0]["started_at"].is_string() && rows[0]["ended_at"].is_string(), "{}", rows[0]);
    for unknown in ["cost_usd", "parent_run_id", "fork_of"] {
        assert_eq!(rows[0].get(unknown), Some(&Value::Null));
    }

    let page = list(&world, "?limit=2").await;
    assert_eq!((ids(&page), &page["next"]), (vec![third.as_str(), &second], &json!(second)));
    let rest = list(&world, &format!("?limit=2&after={second}")).await;
    assert_eq!((ids(&rest), &rest["next"]), (vec![first.as_str()], &Value::Null));
    assert!(ids(&world.get_as("reader", "/v1/windlass/runs").await.expect(200)).len() == 3);
    assert_eq!(ids(&world.get_as("other", "/v1/windlass/runs").await.expect(200)).len(), 1);
}

#[tokio::test]
async fn filters_narrow_a_list() {
    let world = World::start();
    let started = jiff::Timestamp::now();
    let named = respond(&world, json!({ "model": "agent/alice", "input": "Find the Bread" })).await;
    let unnamed = respond(&world, json!({ "input": "hi" })).await;
    let stopped = world.enqueue("alice", "call echo").await;
    world.claim("echo").await;
    let stop = json!({ "agent_turn_id": stopped, "reason": "enough" }).to_string();
    world.post("/v1/agents/alice/stop", stop).await.expect(202);
    world.enqueue("alice", "call echo").await;
    let open = world.claim("echo").await["agent_turn_id"].as_str().unwrap().to_owned();
    let soon = jiff::Timestamp::now() + Duration::from_secs(1);
    for (query, wanted) in [
        ("?agent=alice".to_owned(), vec![&open, &stopped, &named]),
        ("?agent=bob".to_owned(), vec![]),
        ("?state=ended".to_owned(), vec![&stopped, &unnamed, &named]),
        ("?state=waiting".to_owned(), vec![&open]),
        ("?state=waiting&agent=alice".to_owned(), vec![&open]),
        ("?state=parked".to_owned(), vec![]),
        ("?outcome=success".to_owned(), vec![&unnamed, &named]),
        ("?outcome=canceled&agent=alice".to_owned(), vec![&stopped]),
        ("?q=bread".to_owned(), vec![&named]),
        (format!("?q={}", &unnamed[4..]), vec![&unnamed]),
        (format!("?since={started}"), vec![&open, &stopped, &unnamed, &named]),
        (format!("?until={soon}"), vec![&open, &stopped, &unnamed, &named]),
        (format!("?until={}", started.as_millisecond() - 1), vec![]),
        (format!("?since={soon}"), vec![]),
    ] {
        let found = list(&world, &query).await;
        assert_eq!(ids(&found), wanted, "{query}");
    }
}

/// A page that a filter leaves short still has a cursor.
#[tokio::test]
async fn a_filter_that_few_runs_match_is_read_in_bounded_steps() {
    let world = World::start();
    for _ in 0..3 {
        respond(&world, json!({ "input": "hi" })).await;
    }
    let wanted = respond(&world, json!({ "model": "agent/alice", "input": "needle" })).await;
    let page = list(&world, "?q=needle&limit=1").await;
    assert_eq!((ids(&page), &page["next"]), (vec![wanted.as_str()], &json!(wanted)));
    let rest = list(&world, &format!("?q=needle&limit=1&after={wanted}")).await;
    assert_eq!((ids(&rest).len(), &rest["next"]), (0, &Value::Null));
}

async fn waits(world: &World, run: &str) -> (Value, Value) {
    let row = list(world, "").await["runs"].as_array().unwrap().iter().find(|row| row["run_id"] == run).unwrap().clone();
    let shown = world.get(&format!("/v1/windlass/runs/{run}")).await.expect(200);
    assert_eq!((&shown["state"], &shown["wait"]), (&row["state"], &row["wait"]), "list and page agree");
    (row["state"].clone(), row["wait"].clone())
}

#[tokio::test]
async fn a_row_says_why_its_run_waits() {
    let world = World::start();
    let active = world.enqueue("alice", "call pay").await;
    let call = world.claim("pay").await;
    let (state, wait) = waits(&world, &active).await;
    assert_eq!((&state, &wait["kind"], &wait["what"]), (&json!("waiting"), &json!("external_call"), &json!("pay")));
    assert!(wait["since"].is_string() && wait["until"].is_string(), "{wait}");

    let queued = world.enqueue("alice", "hello").await;
    let (state, wait) = waits(&world, &queued).await;
    assert_eq!((&state, &wait["kind"], &wait["what"]), (&json!("queued"), &json!("queued"), &json!(active)));

    world.pass_s(61);
    world.until("alice", &format!("/v1/windlass/runs/{active}"), |run| run["state"] == "parked").await;
    let (_, wait) = waits(&world, &active).await;
    assert_eq!((&wait["kind"], &wait["what"], &wait["until"]), (&json!("unknown_outcome"), &json!("pay"), &Value::Null));
    assert!(wait["since"].is_string(), "{wait}");
    assert_eq!(ids(&list(&world, "?state=parked").await), [active.as_str()]);
    assert_eq!(ids(&list(&world, "?state=queued").await), [queued.as_str()]);

    let decision = json!({ "run_id": active, "tool_call_id": call["tool_call_id"], "action": "tell" }).to_string();
    world.post("/v1/windlass/reconcile", decision).await.expect(200);
    world.ended("alice", &active).await;
    assert_eq!(waits(&world, &active).await, (json!("ended"), Value::Null));
}

/// The offline model fails as the input asks; the backoff before the next attempt is longer than the test.
#[tokio::test]
async fn a_model_that_is_tried_again_is_a_reason_to_wait() {
    let world = World::with(Settings { sweep_ms: 20, backoff_ms: 600_000, ..Settings::default() });
    let run = world.enqueue("alice", "fail 503").await;
    world.until("alice", &format!("/v1/windlass/runs/{run}"), |run| run["wait"]["kind"] == "model_retry").await;
    let (state, wait) = waits(&world, &run).await;
    assert_eq!((&state, &wait["what"]), (&json!("thinking"), &json!("offline")));
    assert!(wait["since"].is_string() && wait["until"].is_string(), "{wait}");
}

#[tokio::test]
async fn agents_are_listed_with_their_heads() {
    let world = World::start();
    respond(&world, json!({ "model": "agent/alice", "input": "hi" })).await;
    world.enqueue("bob", "hello").await;
    world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let listed = world.get_as("reader", "/v1/windlass/agents").await.expect(200);
    let agents = listed["agents"].as_array().unwrap();
    let names: Vec<&Value> = agents.iter().map(|agent| &agent["agent_id"]).collect();
    assert_eq!(names, ["alice", "asker", "bob", "dear", "one-at-a-time"]);
    assert_eq!((&agents[0]["runs"], &agents[0]["configured"], &agents[0]["serial"]), (&json!(2), &json!(true), &json!(false)));
    assert_eq!((&agents[0]["status"], &agents[0]["active_run_id"]), (&json!("suspended"), &call["agent_turn_id"]));
    assert!(agents[0]["last_run_at"].is_string());
    assert_eq!((&agents[2]["runs"], &agents[2]["configured"]), (&json!(1), &json!(false)));
    assert_eq!((&agents[4]["runs"], &agents[4]["serial"], &agents[4]["last_run_at"]), (&json!(0), &json!(true), &Value::Null));
    let page = world.get("/v1/windlass/agents?limit=3").await.expect(200);
    assert_eq!((page["agents"].as_array().unwrap().len(), &page["next"]), (3, &json!("bob")));
    let rest = world.get("/v1/windlass/agents?limit=2&after=bob").await.expect(200);
    assert_eq!((&rest["agents"][0]["agent_id"], &rest["next"]), (&json!("dear"), &Value::Null));
    assert_eq!(world.get_as("other", "/v1/windlass/agents").await.expect(200)["agents"][0]["runs"], 0);
}

#[tokio::test]
async fn tools_are_listed_with_their_open_calls() {
    let world = World::start();
    world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    let listed = world.get("/v1/windlass/tools").await.expect(200);
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!((&tools[0]["name"], &tools[0]["open"], &tools[0]["parked"]), (&json!("echo"), &json!(1), &json!(0)));
    assert_eq!(
        (&tools[0]["route"], &tools[0]["effect"], &tools[0]["effect_from"]),
        (&json!("external"), &json!("read"), &json!("configuration"))
    );
    assert_eq!((&tools[1]["name"], &tools[1]["open"], &tools[1]["schema"]["type"]), (&json!("pay"), &json!(0), &json!("object")));
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    world.ended("alice", call["agent_turn_id"].as_str().unwrap()).await;
    assert_eq!(world.get("/v1/windlass/tools").await.expect(200)["tools"][0]["open"], 0);
}

#[tokio::test]
async fn a_bad_query_is_refused_with_what_to_send() {
    let world = World::start();
    for (path, message) in [
        ("/v1/windlass/runs?state=sleeping", "queued, thinking, waiting, parked, ended"),
        ("/v1/windlass/runs?outcome=fine", "success, failed, canceled, timeout, partial"),
        ("/v1/windlass/runs?limit=0", "from 1 to 200"),
        ("/v1/windlass/runs?limit=201", "from 1 to 200"),
        ("/v1/windlass/runs?since=yesterday", "2026-01-31T09:00:00Z"),
        ("/v1/windlass/runs?until=-1", "2026-01-31T09:00:00Z"),
        ("/v1/windlass/runs?after=run_1", "`next` of a page"),
        ("/v1/windlass/runs?agent=", "1 to 128 characters"),
        ("/v1/windlass/runs?stat=ended", "`stat`"),
        ("/v1/windlass/agents?limit=x", "from 1 to 200"),
        ("/v1/windlass/tools?limit=1", "`limit`"),
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(message), "{path}: {}", answer.text);
    }
    for path in ["/v1/windlass/runs", "/v1/windlass/tools"] {
        assert_eq!(world.get_as("writer", path).await.refusal(), (403, "forbidden".into()));
        assert_eq!(world.get_as("writer", &format!("{path}?state=x")).await.status, 403, "rights come first");
        assert_eq!(world.get_as("nobody", path).await.status, 401);
    }
    assert_eq!(world.get_as("writer", "/v1/windlass/agents").await.status, 403);
    for path in ["/v1/windlass/runs/run_1", "/v1/windlass/runs/run_00000000000000000000000000000001/calls"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.json()["error"]["message"].as_str()), (404, Some("there is no such run")));
        assert!(!answer.text.contains("agent has no"), "{}", answer.text);
    }
}
