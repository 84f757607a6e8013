//! A tenant over its quota is refused while another one is served.

use std::time::Duration;

use serde_json::json;
use windlass_engine::{Quota, Quotas, Rate, Settings};
use windlass_ports::{Day, UsageQuery};

use crate::support::{ITEM_BYTES_MAX, World, request};

const ENQUEUE: &str = "/v1/agents/alice/enqueue";

/// A server where the tenant `t` has this quota.
fn world(quota: Quota) -> World {
    let quotas = Quotas { tenants: [("t".into(), quota)].into(), ..Quotas::default() };
    World::with(Settings { sweep_ms: 20, item_bytes_max: ITEM_BYTES_MAX, quotas, ..Settings::default() })
}

#[tokio::test]
async fn tm_13_requests_above_the_rate_are_refused_in_each_shape() {
    let world = world(Quota { requests: Some(Rate { per_1000_s: 1, burst: 2 }), ..Quota::default() });
    for _ in 0..2 {
        world.get("/v1/models").await.expect(200);
    }
    let refused = world.post(ENQUEUE, r#"{"input": "hello"}"#).await;
    assert_eq!(refused.refusal(), (429, "rate_limit_exceeded".into()));
    assert!(refused.headers.contains_key("retry-after"));
    let refused = world.post_as("runner", "/v1/responses", r#"{"input": "hello"}"#).await;
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.status.as_u16(), &error["code"], &error["type"]),
        (429, &json!("rate_limit_exceeded"), &json!("too_many_requests"))
    );
    assert!(refused.headers.contains_key("retry-after"), "another token of the same tenant has the same quota");
    world.get_as("other", "/v1/models").await.expect(200);
    assert_eq!(world.get_as("unknown", "/v1/models").await.status, 401, "who has no token has no quota");
    world.pass_s(1_000);
    assert_eq!(world.get("/v1/windlass/runs").await.expect(200)["runs"], json!([]), "nothing was recorded");
}

#[tokio::test]
async fn tm_13_a_tenant_over_its_tokens_is_refused_in_each_shape_and_joins_its_runs() {
    let quota = Quota { tokens_per_day: Some(1), ..Quota::default() };
    let quotas = Quotas { tenants: [("t".into(), quota)].into(), ..Quotas::default() };
    let settings = Settings { sweep_ms: 20, item_bytes_max: ITEM_BYTES_MAX, quotas, usage_days: Some(2), ..Settings::default() };
    let world = World::with(settings);
    let keyed = |key: &str| {
        let request = request("POST", "all", "/v1/responses").header("idempotency-key", key);
        world.send(request.body(r#"{"input": "hello"}"#.into()).unwrap())
    };
    // No midnight passes during the test.
    let midnight = Day::of(world.engine.now()).next().start();
    world.pass_s((midnight.0 - world.engine.now().0) / 1_000 + 3_600);
    let first = keyed("one").await.expect(200);
    let whole = UsageQuery::whole(Day::default(), Day(u32::MAX));
    while world.engine.views().usage(&"t".into(), &whole).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The total that the first request read is cached no longer.
    world.pass_s(2);
    let refused = keyed("two").await;
    let error = &refused.json()["error"];
    let found = (refused.status.as_u16(), &error["code"], &error["type"]);
    assert_eq!(found, (429, &json!("insufficient_quota"), &json!("too_many_requests")));
    let wait: u32 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((80_000..=82_800).contains(&wait), "until midnight: {wait}");
    assert_eq!(world.post(ENQUEUE, r#"{"input": "hello"}"#).await.refusal(), (429, "insufficient_quota".into()));
    assert_eq!(keyed("one").await.expect(200)["id"], first["id"], "a repetition joins its run");
    world.post_as("other", "/v1/responses", r#"{"input": "hello"}"#).await.expect(200);
    let metrics = world.get_as("all", "/metrics").await.text;
    assert!(metrics.contains(r#"windlass_over_quota_total{quota="tokens_per_day"} 2"#), "{metrics}");
    world.pass_s(86_400);
    world.post("/v1/responses", r#"{"input": "hello"}"#).await.expect(200);
}

#[tokio::test]
async fn tm_13_a_tenant_with_its_quota_of_runs_gets_no_more_and_joins_those_it_has() {
    let world = world(Quota { runs_queued: Some(1), ..Quota::default() });
    let keyed = |key: &str| {
        let body = json!({ "input": "call pay {}", "idempotency_key": key }).to_string();
        world.send(request("POST", "all", ENQUEUE).body(body.into()).unwrap())
    };
    let first = keyed("one").await.expect(202);
    assert_eq!(keyed("two").await.refusal(), (429, "rate_limit_exceeded".into()));
    assert_eq!(keyed("one").await.expect(202)["run_id"], first["run_id"], "a repetition joins its run");
    let refused = world.post("/v1/responses", r#"{"input": "hello"}"#).await;
    assert_eq!((refused.refusal(), &refused.headers["retry-after"]), ((429, "rate_limit_exceeded".into()), &"5".parse().unwrap()));
    assert!(refused.text.contains("this tenant has 1 runs that have not ended"), "{}", refused.text);
    world.post_as("other", "/v1/responses", r#"{"input": "hello"}"#).await.expect(200);
    assert_eq!(world.get("/v1/windlass/runs").await.expect(200)["runs"].as_array().map(Vec::len), Some(1));
    let metrics = world.get_as("all", "/metrics").await.text;
    assert!(metrics.contains(r#"windlass_over_quota_total{quota="runs_queued"} 2"#), "{metrics}");
}

/// The quota is below the size of one run, so that the first run exceeds it.
#[tokio::test]
async fn tm_13_a_tenant_over_its_bytes_is_refused_in_each_shape_and_joins_its_runs() {
    let world = world(Quota { bytes_stored: Some(1), ..Quota::default() });
    let keyed = |key: &str| {
        let request = request("POST", "all", "/v1/responses").header("idempotency-key", key);
        world.send(request.body(r#"{"input": "hello"}"#.into()).unwrap())
    };
    let first = keyed("one").await.expect(200);
    let mut refused = keyed("two").await;
    while refused.status == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        refused = keyed(&uuid::Uuid::now_v7().to_string()).await;
    }
    let error = &refused.json()["error"];
    assert_eq!((refused.status.as_u16(), &error["code"], &error["type"]), (429, &json!("insufficient_quota"), &json!("too_many_requests")));
    assert_eq!(refused.headers["retry-after"], "60");
    let message = error["message"].as_str().unwrap();
    for part in ["its quota of 1 bytes", "delete responses", "`retention`", "60 s"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(keyed("one").await.expect(200)["id"], first["id"], "a repetition joins its run");
    let item = r#"{"type": "message", "role": "user", "content": "more"}"#;
    for (path, body) in [
        (ENQUEUE, r#"{"input": "hello"}"#.to_owned()),
        ("/v1/agents/alice/actions", r#"{"action_id": "a", "tool": "echo", "args": {}}"#.to_owned()),
        ("/v1/windlass/boxes", r#"{"items": [{"text": "more"}]}"#.to_owned()),
        ("/v1/conversations", format!(r#"{{"items": [{item}]}}"#)),
    ] {
        let refused = world.post(path, body).await;
        assert_eq!(refused.refusal(), (429, "insufficient_quota".into()), "{path}: {}", refused.text);
        assert_eq!(refused.headers["retry-after"], "60", "{path}");
    }
    world.post_as("other", "/v1/responses", r#"{"input": "hello"}"#).await.expect(200);
    let metrics = world.get_as("all", "/metrics").await.text;
    assert!(metrics.contains(r#"windlass_over_quota_total{quota="bytes_stored"} "#), "{metrics}");
}
