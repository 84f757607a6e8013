//! Garbage on the bell: whoever can reach it can make us look, and nothing else.

use serde_json::json;
use windlass_tests::{NatsServer, ServerBuilder, until};

use crate::CONFIG;

#[tokio::test]
async fn c_009_garbage_on_the_bell_changes_nothing() {
    let nats = NatsServer::start().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let run = server.enqueue("a", "call echo").await;
    server.suspended("a", &run).await;
    until("everything is published", || async { (server.number("SELECT count(*) FROM outbox") == 0).then_some(()) }).await;
    let before = snapshot(&server);
    let stranger = nats.client().await;
    let mut garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0; 100],
        vec![b'['; 100_000],
        vec![b'x'; 1_000_000],
        b"{}".to_vec(),
        b"[99,[[\"agent\",\"default\",\"nobody\"],[\"work\",\"default\",\"nobody\"],[\"tool\",\"nobody\",\"nothing\"]]]".to_vec(),
        // True words, of a node that does not exist.
        b"[99,[[\"agent\",\"default\",\"a\"],[\"work\",\"default\",\"a\"],[\"tool\",\"default\",\"echo\"]]]".to_vec(),
        json!([99, vec![["work", "default", "a"]; 10_000]]).to_string().into_bytes(),
    ];
    // Noise that is the same in every run.
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
    until("everything is published", || async { (server.number("SELECT count(*) FROM outbox") == 0).then_some(()) }).await;
    assert_eq!(snapshot(&server), before, "nothing of the agent moved");
    let call = server.claim("echo").await;
    server.report(&call, json!("there")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
}

/// Every row about the agent `a`.
fn snapshot(server: &windlass_tests::Server) -> Vec<String> {
    let database = server.database();
    ["heads", "runs", "inbox"]
        .into_iter()
        .flat_map(|table| {
            let mut rows = database.prepare(&format!("SELECT * FROM {table} WHERE agent = 'a'")).expect("a table");
            let columns = rows.column_count();
            let spelled = |row: &rusqlite::Row<'_>| Ok((0..columns).map(|at| format!("{:?}", row.get_ref(at).expect("a value"))).collect());
            rows.query_map([], spelled).expect("rows").map(|row| row.expect("a row")).collect::<Vec<String>>()
        })
        .collect()
}

fn next(seed: &mut u64) -> u8 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as u8
}
