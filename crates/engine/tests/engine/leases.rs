//! Several processes on one store: a live process keeps its runs, a lost one does not, and one without a lease starts nothing.

use std::sync::atomic::Ordering::SeqCst;

use tokio_util::sync::CancellationToken;
use windlass_engine::{Engine, Stop, Stopped};
use windlass_kernel::{AgentKey, RunId};

use crate::support::*;

const LEASE_MS: u64 = 10_000;

fn stage(play: impl Fn(&windlass_ports::ModelRequest) -> Turn + Send + Sync + 'static) -> Stage {
    let stage = Stage::new(play).with_settings(|settings| settings.lease_ms = LEASE_MS);
    stage.store.keeps_leases.store(true, SeqCst);
    stage
}

async fn begin(engine: &Engine, agent: &AgentKey) -> RunId {
    let run = engine.begin(agent, "go").await.run;
    settle().await;
    run
}

#[tokio::test(start_paused = true)]
async fn a_run_is_its_owners_as_long_as_that_one_lives() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = stage(move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let a = agent("a");
    let owner = stage.engine(1);
    let run = begin(&owner, &a).await;
    let other = stage.engine(2);
    for _ in 0..20 {
        other.look(&a);
        pass_ms(LEASE_MS / 2).await;
    }
    assert_eq!((stage.run(&a, run).await.state.takeovers, stage.model.count("go")), (0, 1));
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "done");
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_lost_process_are_taken_over_when_its_lease_ends_and_not_before() {
    let stage = stage(|_| Turn::Hang);
    let a = agent("a");
    let life = CancellationToken::new();
    let first = stage.mortal(1, Some(life.clone()));
    let run = begin(&first, &a).await;
    let _second = stage.engine(2);
    life.cancel();
    pass_ms(LEASE_MS / 2).await;
    assert_eq!(stage.run(&a, run).await.state.takeovers, 0);
    pass_ms(LEASE_MS).await;
    assert_eq!((stage.run(&a, run).await.state.takeovers, stage.model.count("go")), (1, 2));
    pass_ms(LEASE_MS * 10).await;
    assert_eq!(stage.run(&a, run).await.state.takeovers, 1, "the new owner keeps it");
}

/// The store gets no heartbeats from the owner any more, but the owner still works.
#[tokio::test(start_paused = true)]
async fn without_a_lease_nothing_is_started() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = stage(move |request| match request.iteration {
        1 => Turn::After(shut.clone(), Box::new(call(&[WRITE]))),
        _ => say("done"),
    });
    let a = agent("a");
    let owner = stage.engine(1);
    let run = begin(&owner, &a).await;
    stage.store.fault(|faults| faults.lose_heartbeats = true);
    pass_ms(LEASE_MS + 1).await;
    hold.open();
    pass_ms(LEASE_MS).await;
    assert_eq!(stage.tools.starts_of(WRITE), 0, "another process may own the run by now");
    stage.store.fault(|faults| faults.lose_heartbeats = false);
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!(stage.tools.starts_of(WRITE), 1, "no other process had taken it over");
}

/// The lease is lost while a model call waits for a permit of its provider.
#[tokio::test(start_paused = true)]
async fn an_effect_that_waited_is_not_started_without_a_lease_either() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = stage(|_| Turn::Hang);
    let play = move |request: &windlass_ports::ModelRequest| match request.task() {
        "first" => Turn::After(shut.clone(), Box::new(say("first"))),
        _ => say("done"),
    };
    let stage = Stage { model: std::sync::Arc::new(Script::new(1, play)), ..stage };
    let (a, b) = (agent("a"), agent("b"));
    let owner = stage.engine(1);
    owner.begin(&a, "first").await;
    let run = begin(&owner, &b).await;
    stage.store.fault(|faults| faults.lose_heartbeats = true);
    pass_ms(LEASE_MS + 1).await;
    hold.open();
    pass_ms(LEASE_MS).await;
    assert_eq!(stage.model.count("go"), 0, "another process may own the run by now");
    stage.store.fault(|faults| faults.lose_heartbeats = false);
    assert_eq!(stage.ended(&b, run).await, "done");
    assert_eq!((stage.model.count("go"), stage.run(&b, run).await.state.takeovers), (1, 0), "no other process had taken it over");
}

#[tokio::test(start_paused = true)]
async fn results_and_stops_reach_a_run_through_any_process() {
    let stage = stage(|request| match (request.iteration, request.results().len()) {
        (1, _) => call(&[LOOKUP, LOOK]),
        _ => Turn::Hang,
    })
    .with_tools(|_| Act::Hang);
    let a = agent("a");
    let owner = stage.engine(1);
    let run = begin(&owner, &a).await;
    let other = stage.engine(2);
    other.answer(&a, run, 1, "4").await;
    pass_ms(1000).await;
    assert_eq!(stage.run(&a, run).await.state.takeovers, 0, "the tool call is still the owner's");
    assert_eq!(stage.tools.starts_of(LOOK), 1);
    let stop = Stop { agent: a.clone(), run, reason: "enough".into(), epoch: None, source: None, key: None };
    assert!(matches!(other.stop(stop).await, Ok(Stopped::Now)));
    assert!(stage.run(&a, run).await.state.has_ended());
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_drained_process_are_taken_over_at_once() {
    let stage = stage(|_| Turn::Hang).with_settings(|settings| settings.drain_ms = 100);
    let a = agent("a");
    let first = stage.engine(1);
    let run = begin(&first, &a).await;
    let _second = stage.engine(2);
    first.drain().await;
    pass_ms(LEASE_MS / 3).await;
    assert_eq!((stage.run(&a, run).await.state.takeovers, stage.model.count("go")), (1, 2));
}
