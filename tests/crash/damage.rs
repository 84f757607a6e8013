//! Shows that the checks can fail: what a scenario left behind is damaged in one place after another, and each time the broken promise is
//! named.

use windlass_tests::NatsServer;

use crate::{
    checks,
    scenarios::{self, Scenario},
    service::Start,
    world::{Order, World},
    wreck::Remains,
};

/// Statements that damage the database, and the promise that each of them breaks.
const DAMAGES: [(&str, &str); 16] = [
    ("UPDATE runs SET status = 'active', ended_at = NULL", "S1: two active runs"),
    ("UPDATE runs SET status = 'active', ended_at = NULL WHERE ordinal = 2", "S1: an active run that its head does not show"),
    ("UPDATE stretches SET epoch = 1 WHERE run IN (SELECT run FROM runs WHERE ordinal = 2)", "S1: a run of"),
    ("UPDATE stretches SET at = 1 WHERE events LIKE '%leased%' AND run IN (SELECT run FROM runs WHERE ordinal = 2)", "S1: two runs of"),
    ("UPDATE stretches SET epoch = 0 WHERE first = 3", "S2: an old epoch wrote"),
    ("UPDATE stretches SET epoch = NULL WHERE first = 3", "S2: an old epoch wrote"),
    ("UPDATE heads SET epoch = 0", "S2: a run is ahead"),
    (
        r#"UPDATE stretches SET events = replace(events, 'lap_started",{"iteration":2', 'lap_started",{"iteration":3')"#,
        "S3: the iterations",
    ),
    ("UPDATE heads SET queued = 1", "S4: a head counts"),
    ("UPDATE inbox SET kind = 'turn' WHERE kind = 'tool_result'", "S4: run_"),
    (r#"UPDATE stretches SET events = replace(events, 'reported",{"call":2', 'reported",{"call":1')"#, "S5: a result was taken twice"),
    ("UPDATE calls SET status = 'waiting' WHERE call = 1", "S5: a call is not settled"),
    ("DELETE FROM stretches WHERE first = 3", "S7: a journal with a gap"),
    (r#"UPDATE stretches SET events = replace(events, 'ended",{"status":"success', 'ended",{"status":"failed')"#, "S8: the state"),
    ("DELETE FROM calls WHERE call = 2", "S10: calls used"),
    (
        "UPDATE box_rows SET item = (SELECT item FROM items WHERE kind = 'tool.result' LIMIT 1)
         WHERE item IN (SELECT item FROM items WHERE kind = 'tool.result')",
        "S5: a result is in the output box twice",
    ),
];

/// Damages copies of what a complete scenario left behind, and checks each copy.
pub async fn run() {
    let scenario: &Scenario = &scenarios::ALL[0];
    let nats = NatsServer::start().await;
    let mut world = World::start(Order::Never, &nats).await;
    (scenario.play)(&mut world).await;
    world.close().await;
    let remains = Remains::of(world.server());
    let (_, wrong) = checks::stored(&remains, &world.asked, &world.ledger);
    assert_eq!(wrong, Vec::<String>::new(), "undamaged");
    for (sql, promise) in DAMAGES {
        let copy = Remains::copied(world.server());
        let changed = copy.open().execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(changed > 0, "{sql}: it damages nothing");
        let (_, wrong) = checks::stored(&copy, &world.asked, &world.ledger);
        assert!(wrong.iter().any(|found| found.contains(promise)), "{sql}: {promise} is not among {wrong:#?}");
    }
    let write: &Start = world.ledger.iter().find(|start| start.effect == "write").expect("a write was started");
    let other = Start { key: "another".into(), ..write.clone() };
    for (again, promise) in [(write.clone(), "S6: the write"), (other, "S6: call_")] {
        let ledger: Vec<Start> = world.ledger.iter().cloned().chain([again]).collect();
        let (_, wrong) = checks::stored(&remains, &world.asked, &ledger);
        assert!(wrong.iter().any(|found| found.contains(promise)), "{promise} is not among {wrong:#?}");
    }
    let one_less = &world.asked[1..];
    let (_, wrong) = checks::stored(&remains, one_less, &world.ledger);
    assert!(wrong.iter().any(|found| found.contains("S4: 1 requests became 2 runs")), "{wrong:#?}");
}
