//! `GET /metrics`: who may read it, what it shows, and that clients cannot make it grow. Also the id of every answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use axum::{body::Body, http::Request};
use windlass_doors::Peer;
use windlass_kernel::{AgentKey, AgentName, EffectClass, EndReason, FailureCode, RunId, TaskStatus, Usage};
use windlass_ports::{EndedRun, Fact, Meter, ModelCalled, QuotaKind, StoreFailure};

use crate::support::{Answer, World, request};

const NEAR: &str = "127.0.0.1:5000";
const FAR: &str = "192.0.2.7:5000";

async fn scrape(world: &World, peer: &str, token: Option<&str>) -> Answer {
    let builder = match token {
        Some(token) => request("GET", token, "/metrics"),
        None => Request::get("/metrics"),
    };
    world.send(builder.extension(Peer(peer.parse().unwrap())).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn this_machine_needs_no_token_and_others_need_the_scope() {
    let world = World::start();
    assert_eq!(scrape(&world, NEAR, None).await.status, 200);
    assert_eq!(scrape(&world, "[::1]:5000", None).await.status, 200);
    assert_eq!(scrape(&world, "[::ffff:127.0.0.1]:5000", None).await.status, 200);
    assert_eq!(scrape(&world, FAR, None).await.refusal(), (401, "unauthorized".to_owned()));
    assert_eq!(world.send(Request::get("/metrics").body(Body::empty()).unwrap()).await.status, 401, "a peer that is not known is not near");
    for (token, status) in [("scraper", 200), ("admin", 200), ("all", 200), ("reader", 403), ("nonsense", 401)] {
        assert_eq!(scrape(&world, FAR, Some(token)).await.status, status, "{token}");
    }
    assert_eq!(scrape(&world, NEAR, Some("nonsense")).await.status, 401, "a token that is shown must be good");
}

#[tokio::test]
async fn behind_a_proxy_a_token_is_always_needed() {
    let world = World::start().behind_proxy();
    assert_eq!(scrape(&world, NEAR, None).await.status, 401);
    assert_eq!(scrape(&world, NEAR, Some("scraper")).await.status, 200);
}

#[tokio::test]
async fn what_runs_do_is_counted() {
    let world = World::start();
    let run = world.enqueue("alice", "hello").await;
    world.ended("alice", &run).await;
    let text = scrape(&world, NEAR, None).await.text;
    for line in [
        r#"windlass_runs_ended_total{agent="alice",status="success",reason="answered"} 1"#,
        r#"windlass_iterations_total{agent="alice"} 1"#,
        r#"windlass_run_seconds_count{agent="alice",status="success"} 1"#,
        r#"windlass_queue_wait_seconds_count{agent="alice"} 1"#,
        r#"windlass_model_call_seconds_count{model="offline"} 1"#,
        r#"windlass_model_waiting{model="offline"} 0"#,
        r#"windlass_http_request_seconds_count{door="agents",route="/v1/agents/{agent}/enqueue",code="202"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    assert!(text.contains(r#"windlass_model_tokens_total{model="offline",agent="alice",kind="in"}"#), "{text}");
    assert!(!text.contains(&run), "a run is no label");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_call_is_counted_with_its_tool() {
    let world = World::start();
    let run = world.enqueue("alice", "call echo").await;
    let call = world.claim("echo").await;
    world.post("/v1/agents/alice/report", crate::support::report(&call, "1")).await.expect(202);
    world.ended("alice", &run).await;
    let text = scrape(&world, NEAR, None).await.text;
    assert!(text.contains(r#"windlass_tool_calls_total{tool="echo",effect="read",status="success"} 1"#), "{text}");
    assert!(text.contains(r#"windlass_tool_call_seconds_count{tool="echo",status="success"} 1"#), "{text}");
}

/// Reports every kind of fact to the meter, about things of this name.
fn record_all(world: &World, name: &str) {
    let (agent, label) = (AgentKey { tenant: name.into(), agent: name.into() }, AgentName::from(name));
    let run = RunId(uuid::Uuid::now_v7());
    let usage = Usage { tokens_in: 1, tokens_out: 1, cached: 1, cache_written: 1, reasoning: 1 };
    let reason = EndReason::ModelFailed(name.into());
    let ended = EndedRun { agent: &agent, run, status: TaskStatus::Failed, reason: &reason, iterations: 1, calls: 1, usage, ms: 1 };
    let code = FailureCode::from(name);
    let called = ModelCalled { model: name, agent: &label, code: Some(&code), ms: Some(1), first_token_ms: Some(1), usage };
    for fact in [
        Fact::RunsResumed(1),
        Fact::RunStarted { agent: &agent, run, waited_ms: Some(1) },
        Fact::RunEnded(ended),
        Fact::IterationStarted(&label),
        Fact::TakenOver(&label),
        Fact::Fenced,
        Fact::CallParked(name),
        Fact::CallEnded { tool: name, effect: EffectClass::Read, status: TaskStatus::Failed, ms: Some(1) },
        Fact::ModelQueued(name),
        Fact::ModelDequeued(name),
        Fact::ModelCalled(called),
        Fact::GroupCommitted { requests: 1, micros: 1 },
        Fact::StoreFailed(StoreFailure::Unavailable),
        Fact::Swept,
        Fact::OverQuota(QuotaKind::Requests),
    ] {
        world.metrics.record(fact);
    }
}

#[tokio::test]
async fn invented_names_make_no_series() {
    let world = World::start();
    record_all(&world, "one that is not configured");
    // A scrape is counted after it is answered, so the second one shows the first.
    scrape(&world, NEAR, None).await;
    let before = scrape(&world, NEAR, None).await.text;
    for n in 0..1_000 {
        record_all(&world, &format!("invented {n}"));
        let answer = world.get(&format!("/v1/agents/invented-{n}/nowhere-{n}")).await;
        assert_eq!(answer.status, 404);
    }
    let after = scrape(&world, NEAR, None).await.text;
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    // All 404s of unknown paths share one histogram.
    let of_404 = after.lines().filter(|line| line.contains(r#"route="other",code="404""#)).count();
    assert_eq!(series(&after), series(&before) + of_404, "{after}");
    assert!(!after.contains("invented"), "{after}");
}

/// The families with their types and labels, from the text of a scrape.
fn shown(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let full = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        let is_own = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ', '_']));
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter(is_own);
        let own = samples.filter(|line| {
            let sample = line.split(['{', ' ']).next().unwrap();
            [full.clone(), format!("{name}_bucket"), format!("{name}_count"), format!("{name}_sum")].iter().any(|known| known == sample)
        });
        let keys = own.filter_map(|line| Some(line.split_once('{')?.1.split_once('}')?.0.to_owned()));
        let keys: BTreeSet<String> = keys
            .flat_map(|labels| labels.split("\",").map(|label| label.split('=').next().unwrap().to_owned()).collect::<Vec<_>>())
            .filter(|key| key != "le")
            .collect();
        families.insert(full, (kind.to_owned(), keys));
    }
    families
}

#[tokio::test]
async fn the_documentation_lists_what_is_shown() {
    let world = World::start();
    record_all(&world, "x");
    scrape(&world, NEAR, None).await;
    let text = scrape(&world, NEAR, None).await.text;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `windlass_"));
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = format!("windlass_{}", cells.next().unwrap().trim_end_matches('`'));
            let kind = cells.next().unwrap().to_owned();
            let labels = cells.next().unwrap().split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
            (name, (kind, labels))
        })
        .collect();
    assert_eq!(documented, shown(&text), "docs/metrics.md (left) lists what /metrics shows (right)");
}

#[tokio::test]
async fn every_answer_has_an_id_and_a_sane_one_is_taken_over() {
    let world = World::start();
    for path in ["/healthz", "/v1/models", "/v1/windlass/runs/none", "/nowhere", "/metrics"] {
        let answer = world.get(path).await;
        assert!(answer.headers["x-request-id"].to_str().unwrap().starts_with("req_"), "{path}: {answer:?}");
    }
    let refused = world.send(Request::get("/v1/models").header("x-request-id", "mine-1").body(Body::empty()).unwrap()).await;
    assert_eq!((refused.status.as_u16(), &refused.headers["x-request-id"]), (401, &"mine-1".parse().unwrap()));
}
