//! Shows that the checker can fail: it gets histories that do not fit the load, and histories that contradict themselves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Trial,
    checker::{self, History},
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
    // A call number of two is the write of the first iteration.
    let ledger = load.ledger.lock().expect("the lock is not poisoned").clone();
    let (write, _) = ledger.iter().find(|(call, _)| call.ends_with("_2")).expect("there is a write");
    load.ledger.lock().expect("the lock is not poisoned").insert(write.clone(), 2);
    expect(found().await, "was started 2 times, and released 0 times");
    load.ledger.lock().expect("the lock is not poisoned").remove(write);
    expect(found().await, "was never started");
    load.ledger.lock().expect("the lock is not poisoned").insert(write.clone(), 1);
    // A run without a request looks like a doubled turn.
    let turns = load.turns.lock().expect("the lock is not poisoned").clone();
    let hidden = turns.iter().rposition(|turn| turn.key.ends_with("turn-0")).expect("there is a first turn");
    load.turns.lock().expect("the lock is not poisoned").remove(hidden);
    let doubled = found().await;
    expect(doubled.clone(), "turns were acknowledged, its inbox has");
    expect(doubled, "task events, of");
    // Two keys with one run look like a lost turn.
    let swallowed = Turn { key: "another".to_owned(), ..turns[0].clone() };
    load.turns.lock().expect("the lock is not poisoned").clone_from(&[turns.clone(), vec![swallowed]].concat());
    expect(found().await, "keys became");
    trial.close("5 falsifications", &missed);
}

/// Falsifies the record of a turn.
type Falsify = fn(&mut History);

/// Falsifications of the record of one turn, and a part of the message that reports each.
const FALSIFICATIONS: [(&str, Falsify); 10] = [
    ("the journal is not dense", |history| drop(history.journal.remove(3))),
    ("the journal is not dense", |history| history.journal.insert(3, history.journal[3].clone())),
    ("an old epoch wrote", |history| history.journal.last_mut().expect("a journal has an end")["turn_epoch"] = json!(0)),
    ("its iterations are [1, 3]", |history| history.journal.retain(|entry| !is_second_iteration(entry))),
    ("its iterations are [1, 1, 3]", |history| {
        history.journal.iter_mut().filter(|entry| is_second_iteration(entry)).for_each(|entry| entry["event"]["iteration"] = json!(1));
    }),
    ("it counts 4 iterations", |history| history.run["iteration"] = json!(4)),
    ("it has 0 deliverables", |history| history.output.retain(|item| item["kind"] != "task.deliverable")),
    ("it has 2 deliverables", |history| history.output.extend(history.output.last().cloned())),
    ("its deliverable is not the last of its output", |history| history.output.rotate_right(1)),
    ("it is \"ended\" with \"failed\"", |history| history.run["task_status"] = json!("failed")),
];

fn is_second_iteration(entry: &Value) -> bool {
    entry["event"]["kind"] == "lap_started" && entry["event"]["iteration"] == 2
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_iterations_journals_epochs_and_deliverables_would_be_noticed() {
    let mut trial = Trial::begin("the checker itself, of single turns").await;
    let cluster = Cluster::start(vec![(builder(""), Vec::new())]).await;
    let load = Load::start(&cluster.roads, 0);
    load.ask(1, 2, Duration::ZERO).await;
    load.end();
    let ledger = load.ledger.lock().expect("the lock is not poisoned").clone();
    let turns = load.turns.lock().expect("the lock is not poisoned").clone();
    let honest = [History::read(&cluster.roads, &turns[0]).await, History::read(&cluster.roads, &turns[1]).await];
    let found = |histories: &mut [History]| {
        let mut wrong = Vec::new();
        histories.iter().for_each(|history| history.check(&ledger, &mut wrong));
        checker::check_order("agent-0", histories, &mut wrong);
        wrong.join("\n")
    };
    let truth = found(&mut honest.clone());
    assert!(truth.is_empty(), "{truth}");
    let mut missed = Vec::new();
    let mut expect = |found: String, part: &str| {
        if !found.contains(part) {
            missed.push(format!("{part:?} was to be found in {found:?}"));
        }
    };
    for (part, falsify) in FALSIFICATIONS {
        let mut falsified = honest.clone();
        falsify(&mut falsified[0]);
        expect(found(&mut falsified), part);
    }
    // The later turn with the epochs of the earlier one.
    let mut falsified = honest.clone();
    let epoch = falsified[0].journal.last().expect("a journal has an end")["turn_epoch"].clone();
    falsified[1].journal.iter_mut().for_each(|entry| entry["turn_epoch"] = epoch.clone());
    expect(found(&mut falsified), "a later turn has the epochs");
    trial.close(&format!("{} falsifications", FALSIFICATIONS.len() + 1), &missed);
}
