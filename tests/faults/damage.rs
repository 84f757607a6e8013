//! A broken promise would be noticed: the checker is shown histories that do not fit what was asked and done.

use std::time::Duration;

use crate::{
    Trial, checker,
    cluster::{Cluster, builder},
    load::{Load, Turn},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_and_a_double_start_would_be_noticed() {
    let mut trial = Trial::begin("the checker itself").await;
    let cluster = Cluster::start(vec![(builder(""), Vec::new())]).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask(2, 2, Duration::ZERO).await;
    load.end();
    let found = async || checker::check(&cluster.roads, &load).await.join("\n");
    let mut missed = Vec::new();
    let mut expect = |found: String, word: &str| {
        if !found.contains(word) {
            missed.push(format!("{word:?} was to be found in {found:?}"));
        }
    };
    let honest = found().await;
    assert!(honest.is_empty(), "{honest}");
    // A call number of two is the write of the first lap.
    let ledger = load.ledger.lock().expect("nobody panics with it").clone();
    let (write, _) = ledger.iter().find(|(call, _)| call.ends_with("_2")).expect("there is a write");
    load.ledger.lock().expect("nobody panics with it").insert(write.clone(), 2);
    expect(found().await, "was started 2 times, and released 0 times");
    load.ledger.lock().expect("nobody panics with it").remove(write);
    expect(found().await, "was never started");
    load.ledger.lock().expect("nobody panics with it").insert(write.clone(), 1);
    // One run that nobody asked for is what a doubled turn looks like.
    let turns = load.turns.lock().expect("nobody panics with it").clone();
    let hidden = turns.iter().rposition(|turn| turn.key.ends_with("turn-0")).expect("there is a first turn");
    load.turns.lock().expect("nobody panics with it").remove(hidden);
    let doubled = found().await;
    expect(doubled.clone(), "turns were acknowledged, its inbox has");
    expect(doubled, "task events, of");
    // Two keys with one run are what a swallowed turn looks like.
    let swallowed = Turn { key: "another".to_owned(), ..turns[0].clone() };
    load.turns.lock().expect("nobody panics with it").clone_from(&[turns.clone(), vec![swallowed]].concat());
    expect(found().await, "keys became");
    trial.close("5 lies told", &missed);
}
