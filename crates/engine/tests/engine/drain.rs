//! Draining a server: it starts nothing new and waits for work in flight, and the next server does the rest.

use windlass_engine::{Engine, EngineError};
use windlass_kernel::HeadStatus;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_draining_engine_starts_nothing_and_waits_for_effects_in_flight() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |request| match request.iteration {
        1 => Turn::After(shut.clone(), Box::new(call(&[LOOK]))),
        _ => say("done"),
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let first = engine.begin(&a, "go").await.run;
    let second = engine.begin(&a, "go").await.run;
    settle().await;
    let (draining, running) = (engine.clone(), hold.clone());
    let drained = tokio::spawn(async move { draining.drain().await });
    settle().await;
    assert!(engine.is_draining() && !drained.is_finished());
    assert!(matches!(engine.enqueue(request(&agent("b"), "go")).await, Err(EngineError::Draining)));
    pass_ms(2000).await;
    running.open();
    drained.await.unwrap();
    assert_eq!(stage.story(&a, first).await.last(), Some(&"replied"), "the answer in flight is committed");
    assert!(stage.tools.starts().is_empty(), "and the call in it is not started");
    pass_ms(10_000).await;
    assert!(stage.tools.starts().is_empty());
    let next = stage.engine(2);
    assert_eq!(stage.ended(&a, first).await, "done");
    assert_eq!(stage.ended(&a, second).await, "done");
    assert!(!next.is_draining());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_draining_is_limited() {
    let stage = Stage::new(|_| Turn::Hang).with_settings(|settings| settings.drain_ms = 3000);
    let engine = stage.engine(1);
    engine.begin(&agent("a"), "go").await;
    settle().await;
    let before = engine.now();
    engine.drain().await;
    assert!((3000..3100).contains(&(engine.now().0 - before.0)));
}

#[tokio::test(start_paused = true)]
async fn draining_an_idle_engine_takes_no_time() {
    let stage = Stage::new(|_| call(&[LOOKUP]));
    let engine = stage.engine(1);
    engine.begin(&agent("a"), "go").await;
    settle().await;
    let before = engine.now();
    engine.drain().await;
    assert_eq!(engine.now(), before, "draining does not wait for a run that waits for a service");
}

#[tokio::test(start_paused = true)]
async fn a_result_reported_while_draining_is_kept_for_the_next_process() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say(&request.results().join(",")) });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    engine.drain().await;
    engine.answer(&a, run, 1, "6").await;
    pass_ms(1000).await;
    assert_eq!(stage.head(&a).await.status, HeadStatus::Suspended);
    let next: Engine = stage.engine(2);
    assert_eq!(stage.ended(&a, run).await, "6");
    drop(next);
}
