//! What of the configuration a tenant and a token may use.

use serde_json::{Value, json};

use crate::support::{World, report};

fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn tm_03_what_a_tenant_may_not_use_looks_unknown_to_it() {
    let world = World::of_one_tenant();
    assert_eq!(ids(&world.get("/v1/models").await.expect(200)), ["offline", "shared", "agent/alice"]);
    assert_eq!(ids(&world.get_as("other", "/v1/models").await.expect(200)), ["shared"]);
    for name in ["offline", "agent%2Falice", "agent/alice"] {
        assert_eq!(world.get_as("other", &format!("/v1/models/{name}")).await.status, 404, "{name}");
    }
    for (body, code) in [
        (json!({ "model": "offline", "input": "hi" }), "model_not_found"),
        (json!({ "model": "agent/alice", "input": "hi" }), "model_not_found"),
        (json!({ "model": "shared", "input": "hi", "windlass": { "tools": ["echo"] } }), "unknown_tool"),
    ] {
        let foreign = world.post_as("other", "/v1/responses", body.to_string()).await;
        assert_eq!(foreign.refusal(), (400, code.into()), "{body}");
        world.post("/v1/responses", body.to_string()).await.expect(200);
    }
    assert_eq!(world.post_as("other", "/v1/agents/alice/enqueue", r#"{"input": "hi"}"#).await.refusal(), (404, "unknown_agent".into()));
    let typo = world.post_as("other", "/v1/agents/alicf/enqueue", r#"{"input": "hi"}"#).await;
    assert!(!typo.text.contains("alice"), "no suggestion names another tenant's agent: {typo:?}");
    assert_eq!(world.post_as("other", "/v1/tools/echo/claim", r#"{"worker": "w"}"#).await.refusal(), (404, "unknown_tool".into()));
    let (agents, tools) = ("/v1/windlass/agents", "/v1/windlass/tools");
    assert_eq!(world.get_as("other", agents).await.expect(200)["agents"], json!([]));
    assert_eq!(world.get_as("other", tools).await.expect(200)["tools"], json!([]));
    assert_eq!(world.get(tools).await.expect(200)["tools"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn tm_03_a_request_without_a_model_gets_the_first_of_its_tenant() {
    let world = World::of_one_tenant();
    let made = world.post_as("other", "/v1/responses", r#"{"input": "hi"}"#).await.expect(200);
    assert_eq!(made["model"], "shared");
    assert_eq!(world.post("/v1/responses", r#"{"input": "hi"}"#).await.expect(200)["model"], "offline");
}

#[tokio::test]
async fn tm_03_a_token_uses_only_what_its_scopes_name() {
    let world = World::start();
    assert_eq!(ids(&world.get_as("named", "/v1/models").await.expect(200)), ["offline", "agent/alice"]);
    world.post_as("named", "/v1/agents/alice/enqueue", r#"{"input": "hi"}"#).await.expect(202);
    world.post_as("named", "/v1/responses", r#"{"model": "agent/alice", "input": "hi"}"#).await.expect(200);
    let named = json!({ "input": "hi", "windlass": { "tools": ["echo"] } }).to_string();
    world.post_as("named", "/v1/responses", named).await.expect(200);
    let forbidden = (403, "forbidden".to_owned());
    for agent in ["one-at-a-time", "nobody"] {
        let path = format!("/v1/agents/{agent}");
        assert_eq!(world.get_as("named", &path).await.refusal(), forbidden, "{agent}");
        assert_eq!(world.post_as("named", &format!("{path}/enqueue"), r#"{"input": "hi"}"#).await.refusal(), forbidden, "{agent}");
        let body = json!({ "model": format!("agent/{agent}"), "input": "hi" }).to_string();
        assert_eq!(world.post_as("named", "/v1/responses", body).await.status, 403, "{agent}");
        assert_eq!(world.get_as("named", &format!("/v1/models/agent%2F{agent}")).await.status, 404, "{agent}");
    }
    for tool in ["pay", "nothing"] {
        let body = json!({ "input": "hi", "windlass": { "tools": [tool] } }).to_string();
        let refused = world.post_as("named", "/v1/responses", body).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.text.contains(&format!("use:{tool} or mcp:{tool}")), "{refused:?}");
    }
    let declared = json!({ "type": "mcp", "server_label": "s", "server_url": "https://example.com/mcp", "require_approval": "never" });
    let body = json!({ "input": "hi", "tools": [declared] }).to_string();
    assert_eq!(world.post_as("named", "/v1/responses", body).await.status, 403);
    let tools = world.get_as("named", "/v1/windlass/tools").await.expect(200)["tools"].clone();
    assert_eq!(tools.as_array().unwrap().iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), ["echo"]);
}

#[tokio::test]
async fn tm_12_an_enqueue_only_narrows_its_agent() {
    let world = World::start();
    let path = "/v1/agents/alice/enqueue";
    let widening = [
        json!({ "input": "hi", "tools": ["spare"] }),
        json!({ "input": "hi", "tools": ["echo", "spare"] }),
        json!({ "input": "hi", "instructions": "Do as you are told." }),
        json!({ "input": "hi", "model": "offline" }),
    ];
    for body in widening {
        let refused = world.post_as("runner", path, body.to_string()).await;
        assert_eq!(refused.refusal(), (403, "forbidden".into()), "{body}");
        assert!(refused.text.contains("agents:configure"), "{refused:?}");
        world.post(path, body.to_string()).await.expect(202);
    }
    for body in [
        json!({ "input": "hi", "tools": ["echo"] }),
        json!({ "input": "hi", "tools": [] }),
        json!({ "input": "hi", "instructions": "Be brief." }),
    ] {
        world.post_as("runner", path, body.to_string()).await.expect(202);
    }
    let free = json!({ "input": "hi", "tools": ["spare"], "instructions": "x" }).to_string();
    world.post_as("runner", "/v1/agents/nobody/enqueue", free).await.expect(202);
}

#[tokio::test]
async fn tm_12_an_action_is_one_of_the_agents_own_tools() {
    let world = World::start();
    let act = |id: &str, tool: &str| json!({ "action_id": id, "tool": tool, "args": {} }).to_string();
    let path = "/v1/agents/alice/actions";
    assert_eq!(world.post_as("runner", path, act("a1", "spare")).await.refusal(), (403, "forbidden".into()));
    world.post_as("runner", path, act("a2", "echo")).await.expect(202);
    world.post("/v1/agents/one-at-a-time/actions", act("a3", "spare")).await.expect(202);
}

#[tokio::test]
async fn tm_12_a_response_only_narrows_its_agent() {
    let world = World::start();
    let ask = |tools: Value, own: Value| {
        json!({ "model": "agent/alice", "input": "hi", "tools": tools, "windlass": { "tools": own } }).to_string()
    };
    let refused = world.post_as("runner", "/v1/responses", ask(json!([]), json!(["spare"]))).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text.contains("agents:configure"), "{refused:?}");
    let declared = json!([{ "type": "mcp", "server_label": "s", "server_url": "https://example.com/mcp", "require_approval": "never" }]);
    assert_eq!(world.post_as("runner", "/v1/responses", ask(declared, json!([]))).await.status, 403);
    let function = json!([{ "type": "function", "name": "own", "parameters": { "type": "object" } }]);
    world.post_as("runner", "/v1/responses", ask(function, json!(["echo"]))).await.expect(200);
    world.post("/v1/responses", ask(json!([]), json!(["spare"]))).await.expect(200);
}

#[tokio::test]
async fn tm_09_a_call_is_reported_by_a_service_of_its_tool() {
    let world = World::start();
    let run = world.enqueue("alice", "call pay").await;
    world.until_status("alice", "suspended").await;
    let calls = world.get(&format!("/v1/windlass/runs/{run}/calls")).await.expect(200);
    let call = json!({ "agent_turn_id": run, "tool_call_id": calls["calls"][0]["tool_call_id"], "turn_epoch": 1 });
    let path = "/v1/agents/alice/report";
    for token in ["writer", "runner", "judge", "echoer"] {
        assert_eq!(world.post_as(token, path, report(&call, "1")).await.refusal(), (403, "forbidden".into()), "{token}");
    }
    world.post_as("toolman", path, report(&call, "1")).await.expect(202);
}

#[tokio::test]
async fn tm_09_a_parked_call_is_decided_by_its_holder_or_by_a_person() {
    for (token, status) in [("writer", 403), ("all", 202), ("judge", 202), ("toolman", 202), ("payer", 403)] {
        let world = World::start();
        let run = world.enqueue("alice", "call pay").await;
        world.until_status("alice", "suspended").await;
        let claim = r#"{"worker": "w1", "lease_s": 1, "wait_s": 10}"#;
        let call = world.post_as("toolman", "/v1/tools/pay/claim", claim).await.expect(200)["calls"][0].clone();
        world.pass_s(30);
        world.until("alice", &format!("/v1/windlass/runs/{run}"), |run| run["parked"] == true).await;
        let answer = world.post_as(token, "/v1/agents/alice/report", report(&call, "1")).await;
        assert_eq!(answer.status.as_u16(), status, "{token}: {answer:?}");
    }
}

#[tokio::test]
async fn tm_13_a_request_cannot_have_more_turns_than_the_limits_say() {
    let settings = windlass_engine::Settings { sweep_ms: 20, iterations_max: 2, iterations_ceiling: 2, ..Default::default() };
    let world = World::with(settings);
    let made = world.post("/v1/responses", r#"{"input": "hi", "max_turns": 40}"#).await.expect(200);
    let run = made["id"].as_str().unwrap().replacen("resp_", "run_", 1);
    let pinned = world.engine.views().run(&"t".into(), run.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(pinned.manifest.budgets.iterations, 2);
}
