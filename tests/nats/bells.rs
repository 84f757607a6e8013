//! Servers that share a database ring each other's doorbell, over NATS or over the database itself.
//!
//! The sweep is so slow here that it finds nothing within a test's patience. All progress comes from the doorbell.

use serde_json::{Value, json};
use windlass_tests::{
    FakeModel, NatsServer, Scene, Server, ServerBuilder,
    postgres::{Database, Server as Postgres},
};

use crate::CONFIG;

fn builder(database: &Database, more: &str) -> ServerBuilder {
    let slow = CONFIG.replace("sweep_interval: 50ms", "sweep_interval: 10m");
    ServerBuilder::new(&format!("{slow}store: {{ url: '{}' }}\n{more}", database.url))
}

/// One server has room for one agent, whose model call hangs. The other server has to do all further work.
async fn helped(database: &Database, doorbell: &str) {
    let model = FakeModel::start(vec![Scene::Hang, Scene::Say("helped")]).await;
    let more = format!("{}{doorbell}", model.config());
    let full = builder(database, &more).env("WINDLASS_LIMITS__WORKERS", "1").start().await;
    let free = builder(database, &more).start().await;
    full.enqueue("hog", "never ends").await;
    model.asked_times(1).await;
    // Both have to be connected, because the first ring may reach no subscriber.
    let mut runs = Vec::new();
    let ended = loop {
        let run = full.enqueue(&format!("agent-{}", runs.len()), "go").await;
        runs.push(run.clone());
        let began = std::time::Instant::now();
        let ended = loop {
            let view = free.run(&run).await;
            if view["status"] == "ended" || began.elapsed() > std::time::Duration::from_millis(500) {
                break view;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        if ended["status"] == "ended" {
            break ended;
        }
        assert!(runs.len() < 50, "no server ever gets a ring:\n{}", free.log());
    };
    assert_eq!(free.content(&ended["deliverable_item_id"]).await["text"], "helped");
    assert_eq!(full.get("/v1/agents/hog").await.ok()["status"], "running", "and no other server took the run");
}

#[tokio::test]
async fn over_nats_a_server_without_room_is_helped_at_once() {
    let nats = NatsServer::start().await;
    helped(&Postgres::shared().database().await, &nats.config()).await;
}

#[tokio::test]
async fn over_the_database_a_server_without_room_is_helped_at_once() {
    helped(&Postgres::shared().database().await, "").await;
}

/// A run is enqueued at one server, its call is claimed and answered at the other, and its events are read at both.
async fn side_by_side(one: &Server, other: &Server) {
    let run = one.enqueue("a", "call echo").await;
    let claim = json!({ "worker": "w", "max": 1, "lease_s": 60, "wait_s": 20 });
    let claimed = other.post("/v1/tools/echo/claim", claim).await.ok();
    other.report(&claimed["calls"][0], json!("there")).await.ok();
    let events_of = |events: Vec<windlass_tests::SseEvent>| events.into_iter().map(|event| (event.id, event.data)).collect::<Vec<_>>();
    assert_eq!(events_of(one.events_until_end("a", &run).await), events_of(other.events_until_end("a", &run).await));
    assert_eq!(one.run(&run).await["task_status"], "success");
}

#[tokio::test]
async fn c_005_with_every_ring_lost_two_servers_do_all_the_work() {
    let nats = NatsServer::down(&[]);
    let database = Postgres::shared().database().await;
    let config = format!("{CONFIG}store: {{ url: '{}' }}\n{}", database.url, nats.config());
    let (one, other) = (ServerBuilder::new(&config).start().await, ServerBuilder::new(&config).start().await);
    for _ in 0..3 {
        side_by_side(&one, &other).await;
        side_by_side(&other, &one).await;
    }
}

/// Two servers publish one outbox: nothing is missing, and no message has two ids.
#[tokio::test]
async fn two_servers_publish_one_outbox() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let database = Postgres::shared().database().await;
    // One of them at a time owns the outbox, and may have to find by itself the rows that the other one leaves.
    let config = format!("{CONFIG}store: {{ url: '{}' }}\n{}", database.url, nats.config());
    let (one, other) = (ServerBuilder::new(&config).start().await, ServerBuilder::new(&config).start().await);
    let mut expected = 0;
    for (asked, served) in [(&one, &other), (&other, &one)] {
        let run = asked.enqueue("a", "call echo").await;
        let call = served.claim("echo").await;
        served.report(&call, json!("there")).await.ok();
        asked.ended(&run).await;
        listener.wait_for_end(&run).await;
        let events = served.events_until_end("a", &run).await;
        expected += events.iter().filter(|event| event.data["agent_turn_id"] == run.as_str()).count() + 2;
    }
    windlass_tests::until("everything is published", || async { (listener.once().len() >= expected).then_some(()) }).await;
    assert_eq!(listener.once().len(), expected);
}

#[tokio::test]
async fn c_009_garbage_on_the_bell_changes_nothing() {
    let nats = NatsServer::start().await;
    let database = Postgres::shared().database().await;
    let server = builder(&database, &nats.config()).start().await;
    let run = server.enqueue("a", "call echo").await;
    server.suspended("a", &run).await;
    let before = everything(&server, &run).await;
    let stranger = nats.client().await;
    let mut garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0; 100],
        vec![b'['; 100_000],
        vec![b'x'; 1_000_000],
        b"{}".to_vec(),
        b"[99,[[\"agent\",\"default\",\"nobody\"],[\"work\",\"default\",\"nobody\"],[\"tool\",\"nobody\",\"nothing\"]]]".to_vec(),
        // Valid content, from a node that does not exist.
        b"[99,[[\"agent\",\"default\",\"a\"],[\"work\",\"default\",\"a\"],[\"tool\",\"default\",\"echo\"]]]".to_vec(),
        json!([99, vec![["work", "default", "a"]; 10_000]]).to_string().into_bytes(),
    ];
    // Pseudo-random bytes, which are the same in every execution.
    let mut seed = 7_u64;
    for length in 0..200 {
        garbage.push((0..length).map(|_| next(&mut seed)).collect());
    }
    for message in garbage {
        stranger.publish("windlass.bell", message.into()).await.expect("garbage can be sent");
    }
    stranger.flush().await.expect("it is sent");
    let other = server.enqueue("b", "hello").await;
    server.ended(&other).await;
    assert_eq!(everything(&server, &run).await, before, "nothing of the agent moved");
    let call = server.claim("echo").await;
    server.report(&call, json!("there")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
}

/// Everything that the API shows of the agent `a` and its run.
async fn everything(server: &Server, run: &str) -> Value {
    json!([
        server.get("/v1/agents/a").await.ok(),
        server.inbox("a").await,
        server.run(run).await,
        server.calls(run).await,
        server.journal(run).await,
    ])
}

fn next(seed: &mut u64) -> u8 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as u8
}
