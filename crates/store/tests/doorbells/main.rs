//! Doorbells between two processes, over a real NATS server and a real PostgreSQL server.
#![expect(clippy::unwrap_used, reason = "these are tests: a panic is how they fail")]

mod nats;
mod notify;

use std::{collections::BTreeSet, time::Duration};

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, RunId};
use windlass_ports::{Doorbell, Ring};

/// A limit for what should happen at once. It only bounds a failure.
const PATIENCE: Duration = Duration::from_secs(30);

fn agent(name: &str) -> Ring {
    Ring::Agent(AgentKey { tenant: "acme".into(), agent: name.into() })
}

/// One ring of each kind.
fn rings() -> Vec<Ring> {
    let key = AgentKey { tenant: "acme".into(), agent: "a.b".into() };
    let quiet = Ring::Quiet(key.clone(), RunId::from_slice(&[7; 16]).unwrap(), 12);
    vec![Ring::Agent(key.clone()), Ring::Work(key), Ring::Tool("acme".into(), "echo".into()), quiet]
}

async fn next(received: &mut mpsc::Receiver<Ring>) -> Ring {
    tokio::time::timeout(PATIENCE, received.recv()).await.expect("it rings").expect("the bell is there")
}

/// Rings until the other side receives it, because a connection may not be up yet.
async fn ring_until_received(bell: &dyn Doorbell, received: &mut mpsc::Receiver<Ring>, name: &str) {
    let began = std::time::Instant::now();
    loop {
        bell.ring(agent(name));
        let pause = tokio::time::sleep(Duration::from_millis(20));
        tokio::select! {
            ring = received.recv() => if ring == Some(agent(name)) { return },
            () = pause => {}
        }
        assert!(began.elapsed() < PATIENCE, "{name} is never received");
    }
}

/// What two connected doorbells must do, over any transport.
async fn talk(
    one: &dyn Doorbell,
    one_receives: &mut mpsc::Receiver<Ring>,
    other: &dyn Doorbell,
    other_receives: &mut mpsc::Receiver<Ring>,
) {
    ring_until_received(one, other_receives, "first").await;
    ring_until_received(other, one_receives, "first").await;
    for ring in rings() {
        one.ring(ring);
    }
    let mut received = Vec::new();
    while received.len() < rings().len() {
        let ring = next(other_receives).await;
        if ring != agent("first") {
            received.push(ring);
        }
    }
    assert_eq!(received, rings(), "each kind, in their order");
    // The ring of the other side comes after everything that this side could have received from itself.
    ring_until_received(other, one_receives, "last").await;
    while let Ok(ring) = one_receives.try_recv() {
        assert!(ring == agent("last") || ring == agent("first"), "a bell does not hear itself: {ring:?}");
    }
    // Many rings of few different kinds are merged to few.
    for n in 0..100_000 {
        one.ring(agent(&format!("flood-{}", n % 10)));
    }
    one.ring(agent("end"));
    let (mut count, mut seen) = (0, BTreeSet::new());
    loop {
        let ring = next(other_receives).await;
        if ring == agent("end") {
            break;
        }
        count += 1;
        seen.insert(ring);
    }
    assert!((10..2000).contains(&count) && seen.len() == 10, "{count} rings of {} agents", seen.len());
}
