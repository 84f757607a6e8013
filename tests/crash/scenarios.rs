//! What happens around the server while it dies: twelve small scenarios which together pass every point that can be reached.
//!
//! The steps of a scenario are sequential, so the n-th passage of a point is always the same moment.

use std::{future::Future, pin::Pin};

use serde_json::{Value, json};

use crate::world::World;

/// The configuration of every scenario.
pub const CONFIG: &str = "
models: [ { name: script, provider: scripted, script: script.yaml } ]
limits: { sweep_interval: 50ms, backoff: 20ms }
tools:
  external:
    - { name: lookup, effect: read }
    - { name: upsert, effect: idempotent }
    - { name: charge, effect: write }
    - { name: notify, effect: write }
    - { name: slow_a, effect: read, deadline: 2s }
    - { name: slow_b, effect: read, deadline: 2s }
    - { name: slow_c, effect: read, deadline: 2s }
    - { name: unheard, effect: write, deadline: 2s }
agents:
  lapper: { tools: [lookup, upsert, charge, notify], budgets: { calls: 4 } }
  clerk: { tools: [lookup] }
  thinker: { tools: [] }
  waiter: { tools: [lookup] }
  dawdler: { tools: [slow_a, slow_b, slow_c, unheard, lookup], budgets: { calls: 5 } }
  buyer_1: { tools: [charge], budgets: { calls: 1 } }
  buyer_2: { tools: [charge], budgets: { calls: 1 } }
  buyer_3: { tools: [charge], budgets: { calls: 1 } }
  buyer_4: { tools: [charge], budgets: { calls: 1 } }
  buyer_5: { tools: [charge], budgets: { calls: 1 } }
  reader: { tools: [lookup], budgets: { calls: 1 } }
  holder: { tools: [charge], budgets: { calls: 1 } }
  stubborn: { tools: [] }
  owner_1: { tools: [] }
  owner_2: { tools: [] }
  owner_3: { tools: [] }
  host: { tools: [lookup] }
  asker: { tools: [agent/teller] }
  teller: { tools: [] }
  lost_1: { tools: [slow_a] }
  lost_2: { tools: [slow_a] }
  lost_3: { tools: [slow_a] }
";

/// The model's script in every scenario.
pub const SCRIPT: &str = "
rules:
  - when: { input: two iterations, iteration: 1 }
    reply: { text: first, calls: [ { tool: lookup, arguments: { item: 1 } }, { tool: charge, arguments: { cents: 700 } } ] }
  - when: { input: two iterations, iteration: 2 }
    reply: { calls: [ { tool: upsert, arguments: { row: 1 } }, { tool: notify, arguments: { who: ann } } ] }
  - when: { input: two iterations, iteration: 3 }
    reply: { text: both iterations are done }
  - when: { input: one iteration, iteration: 1 }
    reply: { calls: [ { tool: lookup, arguments: { item: 2 } }, { tool: charge, arguments: { cents: 300 } } ] }
  - when: { input: one iteration, iteration: 2 }
    reply: { text: the iteration is done }
  - when: { input: look first, iteration: 1 }
    reply: { calls: [ { tool: lookup } ] }
  - when: { input: look first, iteration: 2 }
    reply: { text: seen }
  - when: { input: look slowly }
    reply: { calls: [ { tool: slow_a } ] }
  - when: { input: only say }
    reply: { text: said }
  - when: { input: think for long }
    reply: { text: never received, delay_ms: 60000 }
  - when: { input: think a little }
    reply: { text: thought, delay_ms: 1500 }
  - when: { input: wait in vain, iteration: 1 }
    reply: { calls: [ { tool: slow_a }, { tool: unheard } ] }
  - when: { input: wait in vain, iteration: 2 }
    reply: { calls: [ { tool: slow_b } ] }
  - when: { input: wait in vain, iteration: 3 }
    reply: { calls: [ { tool: slow_c } ] }
  - when: { input: wait in vain, iteration: 4 }
    reply: { calls: [ { tool: lookup } ] }
  - when: { input: wait in vain, iteration: 5 }
    reply: { text: waited }
  - when: { input: buy, iteration: 1 }
    reply: { calls: [ { tool: charge, arguments: { cents: 100 } } ] }
  - when: { input: buy, iteration: 2 }
    reply: { text: bought }
  - when: { input: ask thrice, iteration: 4 }
    reply: { text: asked }
  - when: { input: ask thrice }
    reply: { calls: [ { tool: agent__teller, arguments: { input: tell me } } ] }
  - when: { input: tell me }
    reply: { text: answered, delay_ms: 300 }
  - when: { input: ask in vain }
    reply: { calls: [ { tool: agent__teller, arguments: { input: think for long } } ] }
  - when: { input: insist }
    reply: { text: at last, fail: { code: 429, retry_after_ms: 20, times: 3 } }
";

/// The external effect of a tool, as the configuration declares it.
pub fn effect(tool: &str) -> &'static str {
    match tool {
        "upsert" => "idempotent",
        "charge" | "notify" | "unheard" => "write",
        _ => "read",
    }
}

type ScenarioFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A scenario and the points that it passes.
pub struct Scenario {
    /// The name in the table.
    pub name: &'static str,
    /// The commits and effects of the scenario, and how often each happens at least. Each has a point before and after it.
    pub passes: &'static [(&'static str, u32)],
    /// The text that each run delivers.
    pub delivers: &'static [(&'static str, &'static str)],
    /// Whether the crash point is set at the second start of the server.
    pub is_second_start: bool,
    /// Plays the scenario.
    pub play: for<'a> fn(&'a mut World) -> ScenarioFuture<'a>,
}

/// All scenarios.
pub const ALL: [Scenario; 12] = [
    Scenario {
        name: "laps",
        passes: &[
            ("commit.enqueue", 2),
            ("commit.suspend", 3),
            ("commit.report", 3),
            ("commit.resume", 3),
            ("commit.end", 2),
            ("commit.claim", 6),
            ("effect.model_call", 5),
            ("effect.tool_start", 6),
            ("effect.publish", 4),
        ],
        delivers: &[("two iterations", "both iterations are done"), ("one iteration", "the iteration is done")],
        is_second_start: false,
        play: |world| Box::pin(iterations(world)),
    },
    Scenario {
        name: "queue",
        passes: &[("commit.enqueue", 5), ("commit.enter", 3), ("effect.ring", 3), ("commit.end", 5)],
        delivers: &[("turn 1", "seen"), ("turn 2", "said"), ("turn 3", "said"), ("turn 4", "said")],
        is_second_start: false,
        play: |world| Box::pin(queue(world)),
    },
    Scenario {
        name: "stop",
        passes: &[("commit.stop", 3)],
        delivers: &[("thinking", "stopped: enough"), ("suspended", "stopped: enough"), ("queued", "stopped: enough")],
        is_second_start: false,
        play: |world| Box::pin(stop(world)),
    },
    Scenario {
        name: "late",
        passes: &[("commit.timeout", 3), ("commit.note", 3), ("commit.report", 4)],
        delivers: &[("late", "waited")],
        is_second_start: false,
        play: |world| Box::pin(late(world)),
    },
    Scenario {
        name: "cut",
        passes: &[("commit.park", 5), ("commit.answer", 3), ("commit.note", 1)],
        delivers: &[("buyer_1", "bought"), ("buyer_2", "bought"), ("buyer_3", "bought"), ("buyer_4", "bought"), ("buyer_5", "bought")],
        is_second_start: false,
        play: |world| Box::pin(cut(world)),
    },
    Scenario {
        name: "hold",
        passes: &[("commit.renew", 3), ("commit.release", 3), ("commit.claim", 4)],
        delivers: &[("held", "bought")],
        is_second_start: false,
        play: |world| Box::pin(hold(world)),
    },
    Scenario {
        name: "retry",
        passes: &[("commit.retry", 3), ("effect.model_call", 4)],
        delivers: &[("retried", "at last")],
        is_second_start: false,
        play: |world| Box::pin(retry(world)),
    },
    Scenario {
        name: "tree",
        passes: &[("commit.begin_child", 4), ("effect.child_start", 4), ("commit.end", 4), ("commit.stop", 2)],
        delivers: &[("asked", "asked"), ("stopped tree", "stopped: enough")],
        is_second_start: false,
        play: |world| Box::pin(tree(world)),
    },
    Scenario {
        name: "owners",
        passes: &[("commit.take_over", 3)],
        delivers: &[("owner_1", "thought"), ("owner_2", "thought"), ("owner_3", "thought")],
        is_second_start: true,
        play: |world| Box::pin(owners(world)),
    },
    Scenario {
        name: "strays",
        passes: &[("commit.refuse", 3)],
        delivers: &[("host", "seen")],
        is_second_start: false,
        play: |world| Box::pin(strays(world)),
    },
    Scenario {
        name: "lost",
        passes: &[("commit.quarantine", 3), ("commit.abandon", 3)],
        delivers: &[("lost_1 again", "said"), ("lost_2 again", "said"), ("lost_3 again", "said")],
        is_second_start: true,
        play: |world| Box::pin(lost(world)),
    },
    Scenario {
        name: "shelf",
        passes: &[("commit.pack", 3), ("commit.converse", 3)],
        delivers: &[],
        is_second_start: false,
        play: |world| Box::pin(shelf(world)),
    },
];

/// Two iterations with calls of all three classes, then a run of one iteration.
async fn iterations(world: &mut World) {
    let run = world.enqueue("two iterations", "lapper", "two iterations").await;
    for tool in ["lookup", "charge", "upsert", "notify"] {
        world.serve(&run, tool).await;
    }
    world.ended(&run).await;
    let run = world.enqueue("one iteration", "lapper", "one iteration").await;
    // The reports come in reverse order. Results are stored in the order of the calls, whatever order they arrive in.
    for tool in ["charge", "lookup"] {
        world.serve(&run, tool).await;
    }
    world.ended(&run).await;
}

/// Three turns are queued behind one, then a person acts.
async fn queue(world: &mut World) {
    let first = world.enqueue("turn 1", "clerk", "look first").await;
    let mut last = String::new();
    for name in ["turn 2", "turn 3", "turn 4"] {
        last = world.enqueue(name, "clerk", "only say").await;
    }
    world.serve(&first, "lookup").await;
    world.ended(&last).await;
    let action = world.act("action", "clerk", "lookup").await;
    world.serve(&action, "lookup").await;
    world.ended(&action).await;
}

/// One run is stopped during its model call, one while it is queued, one while it waits. A result arrives too late.
async fn stop(world: &mut World) {
    let thinking = world.enqueue("thinking", "thinker", "think for long").await;
    world.stop("thinker", &thinking).await;
    let suspended = world.enqueue("suspended", "waiter", "look first").await;
    let queued = world.enqueue("queued", "waiter", "only say").await;
    let held = world.claim(&suspended, "lookup", "w1", 60).await.expect("the call waits");
    world.start_call(&held);
    world.stop("waiter", &queued).await;
    world.stop("waiter", &suspended).await;
    world.report(&held).await;
    for run in [thinking, suspended, queued] {
        world.ended(&run).await;
    }
}

/// Deadlines pass, and the results arrive afterwards, one of them twice.
async fn late(world: &mut World) {
    let run = world.enqueue("late", "dawdler", "wait in vain").await;
    let mut held = Vec::new();
    for tool in ["slow_a", "slow_b", "slow_c"] {
        // A service that learns of a call only after its deadline can't claim it.
        if let Some(call) = world.claim(&run, tool, "w1", 60).await {
            world.start_call(&call);
            held.push(call);
        }
        world.call_is(&run, tool, &["expired"]).await;
    }
    world.call_is(&run, "lookup", &["waiting"]).await;
    for call in &held {
        world.report(call).await;
    }
    if let Some(call) = held.last() {
        assert!(world.report(call).await, "the same report again is a duplicate");
    }
    world.serve(&run, "lookup").await;
    world.ended(&run).await;
}

/// Workers die while they execute calls. A write is parked and a person decides; a read is started again.
async fn cut(world: &mut World) {
    let buyers = [("buyer_1", "release"), ("buyer_2", "release"), ("buyer_3", "release"), ("buyer_4", "record"), ("buyer_5", "tell")];
    let read = world.enqueue("reader", "reader", "look first").await;
    let mut runs = Vec::new();
    for (buyer, action) in buyers {
        runs.push((world.enqueue(buyer, buyer, "buy").await, action));
    }
    // The server chooses which run's call a claim gets, so all calls have to exist first.
    for (run, _) in &runs {
        world.call_is(run, "charge", &["waiting"]).await;
    }
    for _ in &runs {
        if let Some(held) = world.claim_any("charge", "doomed", 1).await {
            world.start_call(&held);
        }
    }
    if let Some(held) = world.claim(&read, "lookup", "doomed", 1).await {
        world.start_call(&held);
    }
    for (run, action) in &runs {
        let (call, _) = world.call_is(run, "charge", &["parked"]).await;
        world.reconcile(run, &call, action).await;
        if *action == "release" {
            world.serve(run, "charge").await;
        }
    }
    world.serve(&read, "lookup").await;
    for (run, _) in &runs {
        world.ended(run).await;
    }
    world.ended(&read).await;
}

/// A lease is extended three times and released three times.
async fn hold(world: &mut World) {
    let run = world.enqueue("held", "holder", "buy").await;
    let held = world.claim(&run, "charge", "w1", 60).await.expect("the call waits");
    for _ in 0..3 {
        world.change_hold("renew", &held).await;
    }
    world.change_hold("release", &held).await;
    for worker in ["w2", "w3"] {
        let held = world.claim(&run, "charge", worker, 60).await.expect("the call waits again");
        world.change_hold("release", &held).await;
    }
    world.serve(&run, "charge").await;
    world.ended(&run).await;
}

/// The model refuses three times.
async fn retry(world: &mut World) {
    let run = world.enqueue("retried", "stubborn", "insist").await;
    world.ended(&run).await;
}

/// One run asks another agent three times; another one is stopped while the agent that it asked thinks.
async fn tree(world: &mut World) {
    let asked = world.enqueue("asked", "asker", "ask thrice").await;
    world.ended(&asked).await;
    let stopped = world.enqueue("stopped tree", "asker", "ask in vain").await;
    let path = format!("/v1/windlass/runs/{stopped}/children");
    let is = |state: &'static str| move |page: &Value| (page["children"][0]["state"] == state).then_some(());
    world.wait("the child thinks", &path, is("thinking")).await;
    world.stop("asker", &stopped).await;
    world.ended(&stopped).await;
    world.wait("the child is stopped", &path, is("ended")).await;
}

/// Three runs have model calls in progress when their owner is killed.
async fn owners(world: &mut World) {
    let mut runs = Vec::new();
    for owner in ["owner_1", "owner_2", "owner_3"] {
        runs.push(world.enqueue(owner, owner, "think a little").await);
    }
    for run in &runs {
        let path = format!("/v1/windlass/runs/{run}");
        world.wait("its model call is made", &path, |view| (view["phase"] == "thinking").then_some(())).await;
    }
    world.kill().await;
    for run in runs {
        world.ended(&run).await;
    }
}

/// Messages without a run are put into an agent's inbox, one after the other, while it waits.
async fn strays(world: &mut World) {
    let run = world.enqueue("host", "host", "look first").await;
    world.call_is(&run, "lookup", &["waiting"]).await;
    for count in 1..=3 {
        world.server().database().slip_in("host", "stop", None, None);
        world.strays += 1;
        world.wait("the stray is refused", "/v1/agents/host/inbox?limit=1000", |view| (refused(view)? == count).then_some(())).await;
    }
    world.serve(&run, "lookup").await;
    world.ended(&run).await;
}

fn refused(inbox: &Value) -> Option<usize> {
    Some(inbox["inbox"].as_array()?.iter().filter(|message| message["status"] == "error").count())
}

/// Three turns become unreadable. They are quarantined, a person gives them up, and their agents continue.
async fn lost(world: &mut World) {
    let agents = ["lost_1", "lost_2", "lost_3"];
    let mut runs = Vec::new();
    for agent in agents {
        let run = world.enqueue(agent, agent, "look slowly").await;
        world.call_is(&run, "slow_a", &["waiting"]).await;
        runs.push(run);
    }
    world.kill_and_spoil().await;
    for (agent, run) in agents.into_iter().zip(&runs) {
        world.wait("it is taken out of the way", &format!("/v1/agents/{agent}"), |head| head["quarantined"].as_bool()?.then_some(())).await;
        let next = world.enqueue(&format!("{agent} again"), agent, "only say").await;
        world.abandon(run).await;
        world.ended(run).await;
        world.ended(&next).await;
    }
}

/// Boxes are packed into each other, and a conversation is created and described.
async fn shelf(world: &mut World) {
    let mut boxes: Vec<Value> = Vec::new();
    for name in ["a", "b", "c"] {
        let body = json!({ "boxes": boxes, "items": [name] });
        let packed = world.post_once("/v1/windlass/boxes", body, name).await;
        boxes = vec![packed["box_id"].clone()];
    }
    let path = format!("/v1/windlass/boxes/{}?limit=1000", boxes[0].as_str().expect("a box has an id"));
    let items = world.get(&path).await["items"].clone();
    let kept: Vec<&Value> = items.as_array().expect("a box has items").iter().map(|item| &item["content"]["text"]).collect();
    if kept != ["a", "b", "c"] {
        world.violations.push(format!("S5: three boxes in each other hold {kept:?}"));
    }
    let items = json!({ "items": [{ "role": "user", "content": "hello" }] });
    let begun = world.post("/v1/conversations", items).await;
    let path = format!("/v1/conversations/{}", begun["id"].as_str().expect("a conversation has an id"));
    for mood in ["fair", "better"] {
        world.post(&path, json!({ "metadata": { "mood": mood } })).await;
    }
    let metadata = world.get(&path).await["metadata"].clone();
    let items = world.get(&format!("{path}/items")).await["data"].as_array().map(Vec::len);
    if (&metadata, items) != (&json!({ "mood": "better" }), Some(1)) {
        world.violations.push(format!("S5: a conversation of one item holds {items:?}, with {metadata}"));
    }
}
