//! A panic parks its run with the evidence. Other runs are not affected.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, Answered, Engine, EngineError};
use windlass_kernel::{AgentKey, Cause, HeadStatus, RunId};
use windlass_ports::CallStatus;

use crate::support::*;

async fn decide(
    engine: &Engine,
    agent: &AgentKey,
    run: RunId,
    target: AnswerTarget,
    action: AnswerAction,
) -> Result<Answered, EngineError> {
    engine.answer_interrupt(AnswerInterrupt { agent: agent.clone(), run, target, action, source: Some("ann".into()), key: None }).await
}

async fn assert_parked(stage: &Stage, agent: &AgentKey, run: RunId) {
    settle().await;
    assert_eq!(
        stage.run(agent, run).await.state.hold().map(|hold| hold.cause),
        Some(Cause::Panicked),
        "{:?}",
        stage.story(agent, run).await
    );
    assert_eq!(stage.head(agent).await.status, HeadStatus::Suspended);
}

async fn others_continue(stage: &Stage, engine: &Engine) {
    let other = agent("other");
    let run = engine.begin(&other, "fine").await.run;
    assert_eq!(stage.ended(&other, run).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_model_parks_only_its_run_until_a_person_resumes_it() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    let stage = Stage::new(|request| if request.task() == "bad" && PANICS.load(SeqCst) { Turn::Panic } else { say("done") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "bad").await.run;
    assert_parked(&stage, &a, run).await;
    others_continue(&stage, &engine).await;
    pass_ms(600_000).await;
    assert_eq!(stage.model.count("bad"), 1, "a parked run does nothing by itself");
    PANICS.store(false, SeqCst);
    decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await.unwrap();
    assert_eq!(stage.ended(&a, run).await, "done");
    assert!(stage.story(&a, run).await.contains(&"resolved"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_tool_parks_only_its_run_until_a_person_resumes_it() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    let stage = Stage::new(|request| match (request.task(), request.iteration) {
        ("bad", 1) => call(&[LOOK]),
        _ => say("done"),
    })
    .with_tools(|_| if PANICS.load(SeqCst) { Act::Panic } else { give("1") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "bad").await.run;
    assert_parked(&stage, &a, run).await;
    others_continue(&stage, &engine).await;
    PANICS.store(false, SeqCst);
    decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await.unwrap();
    assert_eq!(stage.ended(&a, run).await, "done");
    let starts = stage.tools.starts();
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[0], starts[1], "the same key");
}

#[tokio::test(start_paused = true)]
async fn a_write_cut_by_a_panic_waits_for_a_person_and_is_not_started_again() {
    let stage = Stage::new(|request| match (request.task(), request.iteration) {
        ("bad", 1) => call(&[LOOK, WRITE]),
        _ => say(if request.results().is_empty() { "done" } else { "told" }),
    })
    .with_tools(|call| if call.tool.as_str() == WRITE { Act::Panic } else { Act::Hang });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "bad").await.run;
    assert_parked(&stage, &a, run).await;
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Started, CallStatus::Parked]);
    assert_eq!(stage.tools.gauge.cancelled(), 2, "the other call of the iteration is cancelled too");
    others_continue(&stage, &engine).await;
    decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await.unwrap();
    pass_ms(1000).await;
    assert_eq!(stage.tools.starts_of(WRITE), 1, "resuming the run does not release the write");
    assert_eq!(stage.tools.starts_of(LOOK), 2, "the read does start again");
    let write = stage.calls(&a, run).await[1].call;
    assert!(matches!(decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await, Err(EngineError::NotParked)));
    decide(&engine, &a, run, AnswerTarget::Call(write), AnswerAction::Tell).await.unwrap();
    settle().await;
    assert_eq!(stage.head(&a).await.waiting, 1, "the run waits only for the read");
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

#[tokio::test(start_paused = true)]
async fn a_parked_write_runs_again_only_when_a_person_releases_it() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[WRITE]) } else { say(&request.results().join(",")) })
        .with_tools(|_| if PANICS.swap(false, SeqCst) { Act::Panic } else { give("\"written\"") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    assert_parked(&stage, &a, run).await;
    let write = stage.calls(&a, run).await[0].call;
    decide(&engine, &a, run, AnswerTarget::Call(write), AnswerAction::Release).await.unwrap();
    pass_ms(1000).await;
    assert_eq!(stage.tools.starts_of(WRITE), 1, "the run itself is still parked");
    decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await.unwrap();
    assert_eq!(stage.ended(&a, run).await, "written");
    assert_eq!(stage.tools.starts_of(WRITE), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_worker_itself_parks_only_its_run() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |request| match request.task() {
        "bad" => Turn::After(shut.clone(), Box::new(say("late"))),
        _ => say("done"),
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "bad").await.run;
    settle().await;
    stage.store.fault(|faults| faults.panic_at = Some(agent("a")));
    hold.open();
    assert_parked(&stage, &a, run).await;
    others_continue(&stage, &engine).await;
    decide(&engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await.unwrap();
    assert_eq!(stage.ended(&a, run).await, "late");
}
