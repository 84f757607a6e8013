//! On the Responses API an agent is a template: its responses run in parallel, unless it is serial.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{future::join_all, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass_engine::Settings;
use windlass_ports::{Model, ModelEvent, ModelRequest, ModelStream};

use crate::support::{World, report};

/// A model whose calls wait until the test opens the gate. It counts the calls that are inside.
struct Gated {
    inside: Arc<AtomicUsize>,
    is_open: watch::Sender<bool>,
}

impl Gated {
    fn shut() -> Arc<Self> {
        Arc::new(Gated { inside: Arc::default(), is_open: watch::Sender::new(false) })
    }

    /// Waits until `count` calls are inside at the same time. If calls ran one after the other, this would never return.
    async fn filled(&self, count: usize) {
        let filled = async {
            while self.inside.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let inside = || format!("{} of {count} calls are inside", self.inside.load(Ordering::SeqCst));
        tokio::time::timeout(Duration::from_secs(10), filled).await.unwrap_or_else(|_| panic!("{}", inside()));
    }
}

impl Model for Gated {
    fn call(&self, _: ModelRequest) -> ModelStream {
        let (inside, mut is_open) = (self.inside.clone(), self.is_open.subscribe());
        let answer = async move {
            inside.fetch_add(1, Ordering::SeqCst);
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(ModelEvent::Text("done".into()))
        };
        Box::pin(stream::once(answer))
    }

    fn provider(&self) -> &str {
        "gated"
    }

    fn concurrency(&self) -> usize {
        100
    }
}

fn settings() -> Settings {
    Settings { sweep_ms: 20, ..Settings::default() }
}

fn body(agent: &str, input: &str) -> String {
    json!({ "model": format!("agent/{agent}"), "input": input }).to_string()
}

async fn run_of(world: &World, response: &Value) -> Value {
    let id = response["id"].as_str().unwrap().replace("resp_", "run_");
    world.get(&format!("/v1/windlass/runs/{id}")).await.expect(200)
}

#[tokio::test]
async fn five_requests_to_an_agent_run_side_by_side() {
    let model = Gated::shut();
    let world = World::with_model(settings(), model.clone());
    let asked = join_all((0..5).map(|_| world.post("/v1/responses", body("alice", "hi"))));
    let opened = async {
        model.filled(5).await;
        model.is_open.send_replace(true);
    };
    let (answers, ()) = tokio::join!(asked, opened);
    for answer in answers {
        let response = answer.expect(200);
        assert_eq!((&response["status"], &response["model"]), (&json!("completed"), &json!("agent/alice")));
        assert_eq!(run_of(&world, &response).await["agent_id"], "alice");
    }
    assert_eq!(world.get("/v1/agents/alice").await.expect(200)["status"], "idle", "the agent's own head was never used");
}

#[tokio::test]
async fn a_serial_agent_has_one_response_at_a_time() {
    let model = Gated::shut();
    let world = World::with_model(settings(), model.clone());
    let asked = join_all((0..3).map(|_| world.post("/v1/responses", body("one-at-a-time", "hi"))));
    let opened = async {
        model.filled(1).await;
        world.until("one-at-a-time", "/v1/agents/one-at-a-time", |head| head["queued"] == 2).await;
        assert_eq!(model.inside.load(Ordering::SeqCst), 1);
        model.is_open.send_replace(true);
    };
    let (answers, ()) = tokio::join!(asked, opened);
    let mut ordinals = Vec::new();
    for answer in answers {
        let run = run_of(&world, &answer.expect(200)).await;
        assert_eq!(run["agent_id"], "one-at-a-time");
        ordinals.push(run["ordinal"].as_u64().unwrap());
    }
    ordinals.sort_unstable();
    assert_eq!(ordinals, [1, 2, 3], "they are runs of one head");
}

/// The scripted model calls the tool that the input names. The tool service of the write is lost, so its run waits for a person.
#[tokio::test]
async fn a_parked_write_holds_up_no_other_request() {
    let world = World::start();
    let background = json!({ "model": "agent/alice", "input": "call pay", "background": true }).to_string();
    let parked = world.post("/v1/responses", background).await.expect(200);
    let call = world.claim("pay").await;
    assert_eq!((&call["agent_id"], call["agent_turn_id"].as_str().unwrap().starts_with("run_")), (&json!("alice"), true));
    world.pass_s(61);
    let run = call["agent_turn_id"].as_str().unwrap();
    world.until(run, &format!("/v1/windlass/runs/{run}"), |run| run["parked"] == true).await;
    let answer = tokio::time::timeout(Duration::from_secs(10), world.post("/v1/responses", body("alice", "hello"))).await;
    assert_eq!(answer.expect("another request is answered meanwhile").expect(200)["status"], "completed");

    // The decision names the run by its id; the person need not know the key of its head.
    let decision = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": "record", "status": "success", "result": 1 });
    world.post("/v1/windlass/reconcile", decision.to_string()).await.expect(200);
    world.ended(run, run).await;
    assert_eq!(world.get(&format!("/v1/responses/{}", parked["id"].as_str().unwrap())).await.expect(200)["status"], "completed");
}

/// A report and a stop may use the agent's name, or the key of the run's own head as before, and no other name.
#[tokio::test]
async fn a_response_is_reported_on_and_stopped_by_its_agents_name() {
    let world = World::start();
    let post = async |input: &str| {
        let background = json!({ "model": "agent/alice", "input": input, "background": true }).to_string();
        world.post("/v1/responses", background).await.expect(200);
        world.claim("echo").await
    };
    let call = post("call echo").await;
    let run = call["agent_turn_id"].as_str().unwrap();
    let refused = world.post("/v1/agents/bob/report", report(&call, "1")).await;
    assert_eq!(refused.refusal(), (404, "unknown_turn".into()));
    world.post("/v1/agents/alice/report", report(&call, "1")).await.expect(202);
    assert_eq!(world.ended(run, run).await["task_status"], "success");

    let call = post("call echo").await;
    let run = call["agent_turn_id"].as_str().unwrap();
    world.post(&format!("/v1/agents/{run}/report"), report(&call, "1")).await.expect(202);
    assert_eq!(world.ended(run, run).await["task_status"], "success");

    let call = post("call echo").await;
    let run = call["agent_turn_id"].as_str().unwrap();
    let stop = json!({ "agent_turn_id": run, "reason": "enough" }).to_string();
    assert_eq!(world.post("/v1/agents/bob/stop", stop.clone()).await.refusal(), (404, "unknown_turn".into()));
    world.post("/v1/agents/alice/stop", stop).await.expect(202);
    assert_eq!(world.ended(run, run).await["end_reason"], "stopped");
}

/// The conversation locks the head, and the agent only gives its name.
#[tokio::test]
async fn a_conversation_with_an_agent_keeps_its_own_head() {
    let world = World::start();
    let conversation = world.post("/v1/conversations", "{}").await.expect(200)["id"].clone();
    let body = json!({ "model": "agent/alice", "input": "hello", "conversation": conversation }).to_string();
    let response = world.post("/v1/responses", body).await.expect(200);
    let run = run_of(&world, &response).await;
    assert_eq!((&run["agent_id"], &run["ordinal"]), (&json!("alice"), &json!(1)));
    let head = world.get(&format!("/v1/agents/{}", conversation.as_str().unwrap())).await.expect(200);
    assert_eq!(head["status"], "idle");
}
