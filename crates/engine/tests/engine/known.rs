//! What a worker knows in memory takes precedence over what it loads, for the run and iteration it belongs to. The model checker found
//! each of these cases.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use windlass_engine::Stop;
use windlass_ports::CallStatus;

use crate::support::*;

fn write_then_say(request: &windlass_ports::ModelRequest) -> Turn {
    match request.iteration {
        1 => call(&[WRITE, LOOKUP]),
        _ => say(&request.results().join(",")),
    }
}

/// Writes that end when the latch opens.
fn slow_writes() -> (Stage, Latch) {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(write_then_say).with_tools(move |_| Act::After(shut.clone(), Box::new(give("\"written\""))));
    (stage, hold)
}

/// A doorbell and the end of a write reach the worker in one batch. The doorbell makes the worker reload the run, and the write counts as
/// completed.
#[tokio::test(start_paused = true)]
async fn a_result_that_comes_with_a_look_is_taken() {
    let (stage, hold) = slow_writes();
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    hold.open();
    engine.look(&a);
    settle().await;
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Received, CallStatus::Waiting]);
    engine.answer(&a, run, 2, "\"found\"").await;
    assert_eq!(stage.ended(&a, run).await, "written,found");
}

/// The commit that makes a write owed is applied, and the store's answer is lost. The write was not started, so no person has to decide.
#[tokio::test(start_paused = true)]
async fn a_write_whose_commit_was_not_answered_is_started_once() {
    let stage = Stage::new(write_then_say).with_tools(|_| give("\"written\""));
    let engine = stage.engine(1);
    let a = agent("a");
    stage.store.fault(|faults| faults.lose_answers = 1);
    let run = engine.begin(&a, "go").await.run;
    pass_ms(10_000).await;
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Received, CallStatus::Waiting]);
    assert_eq!(stage.tools.starts_of(WRITE), 1);
    engine.answer(&a, run, 2, "\"found\"").await;
    assert_eq!(stage.ended(&a, run).await, "written,found");
}

/// The store's answer to a report's commit is lost while a write is in flight. The write continues, and its result counts.
#[tokio::test(start_paused = true)]
async fn a_write_in_flight_outlives_a_lost_answer() {
    let (stage, hold) = slow_writes();
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.lose_answers = 1);
    let _ = engine.report(result_of(&a, run, 2, "\"found\"")).await;
    pass_ms(10_000).await;
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "written,found");
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

/// The same, but the write ends before the commit is sent again. A completed call is not started again. The simulation found this case.
#[tokio::test(start_paused = true)]
async fn a_write_that_ended_before_a_lost_answer_came_is_not_started_again() {
    let (stage, hold) = slow_writes();
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.lose_answers = 1);
    let _ = engine.report(result_of(&a, run, 2, "\"found\"")).await;
    // The commit that is sent again is answered, and the next one is not: an effect that was started has time to run meanwhile.
    stage.store.fault(|faults| faults.refuse_after = Some(1));
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "written,found");
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

/// A stop whose answer was lost has stopped the run once.
#[tokio::test(start_paused = true)]
async fn a_stop_whose_answer_was_lost_has_stopped_the_run() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.lose_answers = 1);
    let _ = engine.stop(Stop { agent: a.clone(), run, reason: String::new(), epoch: None, source: None, key: None }).await;
    pass_ms(10_000).await;
    assert_eq!(stage.ended(&a, run).await, "stopped");
    assert_eq!(stage.story(&a, run).await.iter().filter(|kind| **kind == "ended").count(), 1);
}

/// A process that was taken for lost comes back with a doorbell and a reply to an earlier iteration of the run.
#[tokio::test(start_paused = true)]
async fn a_late_reply_does_not_count_for_another_iteration() {
    let late = Latch::shut();
    let shut = late.clone();
    let asked = AtomicU32::new(0);
    let stage = Stage::new(move |_| match asked.fetch_add(1, SeqCst) {
        0 => Turn::After(shut.clone(), Box::new(say("of the first lap"))),
        1 => call(&[LOOKUP]),
        2 => Turn::Hang,
        _ => say("of the second lap"),
    });
    let zombie = stage.engine(1);
    let a = agent("a");
    let run = zombie.begin(&a, "go").await.run;
    settle().await;
    let owner = stage.engine(2);
    settle().await;
    owner.answer(&a, run, 1, "1").await;
    settle().await;
    assert_eq!(stage.run(&a, run).await.state.iteration, 2);
    late.open();
    zombie.look(&a);
    assert_eq!(stage.ended(&a, run).await, "of the second lap");
}
