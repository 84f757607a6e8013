//! Runs that ask other agents, on both APIs.

use serde_json::{Value, json};

use crate::support::World;

const ASK: &str = r#"call agent__alice {"input": "hello"}"#;
const ANSWERED: &str = "The results are: agent__alice gave You said: hello";

async fn children(world: &World, run: &str) -> Vec<Value> {
    let page = world.get(&format!("/v1/windlass/runs/{run}/children")).await.expect(200);
    assert_eq!((&page["run_id"], &page["next"]), (&json!(run), &Value::Null));
    page["children"].as_array().unwrap().clone()
}

#[tokio::test]
async fn c_030_a_child_run_is_shown_with_its_parent_and_has_join_edges() {
    let world = World::of_a_tree();
    let run = world.enqueue("boss", ASK).await;
    let ended = world.ended("boss", &run).await;
    assert_eq!(world.item(&ended["deliverable_item_id"]).await.expect(200)["content"]["text"], ANSWERED);
    assert_eq!((&ended["parent_run_id"], &ended["children"]["made"]), (&Value::Null, &json!(1)));
    let found = children(&world, &run).await;
    let [child] = found.as_slice() else { panic!("one child: {found:?}") };
    assert_eq!((&child["agent_id"], &child["parent_run_id"], &child["title"]), (&json!("alice"), &json!(run), &json!("hello")));
    let id = child["run_id"].as_str().unwrap();
    let seen = world.get(&format!("/v1/windlass/runs/{id}")).await.expect(200);
    let call = format!("call_{}_1", run.trim_start_matches("run_"));
    assert_eq!((&seen["parent_run_id"], &seen["parent_tool_call_id"], &seen["recursion_depth"]), (&json!(run), &json!(call), &json!(1)));
    let used = &ended["children"]["usage"];
    assert_eq!((&used["tokens_in"], &used["tokens_out"]), (&seen["usage"]["tokens_in"], &seen["usage"]["tokens_out"]));
    assert_eq!(world.get(&format!("/v1/windlass/runs?parent={run}")).await.expect(200)["runs"], json!([child]));
    assert_eq!(world.get(&format!("/v1/windlass/runs?parent={run}&agent=boss")).await.expect(200)["runs"], json!([]));
    assert!(children(&world, id).await.is_empty());
    let edges = world.get("/v1/agents/boss/edges").await.expect(200);
    let words = |edge: &Value| format!("{}/{}", edge["primitive"].as_str().unwrap(), edge["edge_phase"].as_str().unwrap());
    let names: Vec<String> = edges["edges"].as_array().unwrap().iter().map(words).collect();
    assert_eq!(names, ["enqueue/request", "join/request", "join/response"]);
    let calls = world.get(&format!("/v1/windlass/runs/{run}/calls")).await.expect(200);
    assert_eq!((&calls["calls"][0]["route"], &calls["calls"][0]["deadline"]), (&json!("child"), &Value::Null));
}

#[tokio::test]
async fn a_response_asks_other_agents_too() {
    let world = World::of_a_tree();
    for body in [json!({ "model": "agent/boss", "input": ASK }), json!({ "input": ASK, "windlass": { "tools": ["agent/alice"] } })] {
        let response = world.post("/v1/responses", body.to_string()).await.expect(200);
        let output = response["output"].as_array().unwrap();
        assert_eq!(output.last().unwrap()["content"][0]["text"], ANSWERED, "{response:#}");
        let run = response["id"].as_str().unwrap().replace("resp_", "run_");
        assert_eq!(children(&world, &run).await.len(), 1);
        let id = response["id"].as_str().unwrap();
        world.send(crate::support::request("DELETE", "all", &format!("/v1/responses/{id}")).body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!(world.get(&format!("/v1/windlass/runs/{run}/children")).await.refusal().0, 404);
        assert_eq!(
            world.get(&format!("/v1/windlass/runs?parent={run}")).await.expect(200)["runs"],
            json!([]),
            "the child is erased with it"
        );
    }
}

/// What is not stored has no children that a list shows, and its answer is the same.
#[tokio::test]
async fn children_of_a_response_that_is_not_stored_are_in_no_list() {
    let world = World::of_a_tree();
    let body = json!({ "model": "agent/boss", "input": ASK, "store": false });
    let response = world.post("/v1/responses", body.to_string()).await.expect(200);
    assert_eq!(response["output"].as_array().unwrap().last().unwrap()["content"][0]["text"], ANSWERED);
    assert_eq!(world.get("/v1/windlass/runs").await.expect(200)["runs"], json!([]));
    let run = response["id"].as_str().unwrap().replace("resp_", "run_");
    assert_eq!(world.get(&format!("/v1/windlass/runs?parent={run}")).await.expect(200)["runs"], json!([]));
}

#[tokio::test]
async fn foreign_and_unknown_parents_and_agents_are_unknown() {
    let world = World::of_a_tree();
    let run = world.enqueue("boss", ASK).await;
    world.ended("boss", &run).await;
    let path = format!("/v1/windlass/runs/{run}/children");
    assert_eq!(world.get_as("other", &path).await.refusal().0, 404);
    assert_eq!(world.get_as("writer", &path).await.refusal().0, 403);
    assert_eq!(world.get_as("other", &format!("/v1/windlass/runs?parent={run}")).await.expect(200)["runs"], json!([]));
    for bad in ["parent=run_1", "parent="] {
        assert_eq!(world.get(&format!("/v1/windlass/runs?{bad}")).await.refusal(), (400, "bad_query".into()));
    }
    assert_eq!(world.get(&format!("{path}?limit=0")).await.refusal(), (400, "bad_query".into()));
    let unknown = world.post("/v1/agents/guest/enqueue", json!({ "input": "hi" }).to_string()).await;
    assert_eq!(unknown.refusal(), (400, "unknown_tool".into()), "another tenant's agent looks unknown");
    let body = json!({ "input": "hi", "windlass": { "tools": ["agent/nobody"] } });
    assert_eq!(world.post("/v1/responses", body.to_string()).await.refusal(), (400, "unknown_tool".into()));
}
