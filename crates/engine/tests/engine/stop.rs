//! Stopping a run in every state.

use windlass_engine::{Engine, EngineError, Stop, Stopped};
use windlass_kernel::{AgentKey, EndReason, Epoch, HeadStatus, Phase, RunId, TaskStatus};
use windlass_ports::CallStatus;

use crate::support::*;

async fn stop(engine: &Engine, agent: &AgentKey, run: RunId) -> Stopped {
    engine.stop(Stop { agent: agent.clone(), run, reason: "enough".into(), epoch: None, source: None, key: None }).await.unwrap()
}

async fn assert_stopped(stage: &Stage, agent: &AgentKey, run: RunId) {
    let view = stage.run(agent, run).await;
    assert_eq!(view.state.phase, Phase::Ended { status: TaskStatus::Canceled, reason: EndReason::Stopped });
    assert_eq!(stage.ended(agent, run).await, "stopped: enough", "it has a deliverable");
}

#[tokio::test(start_paused = true)]
async fn f_019_a_stop_interrupts_a_model_call() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let enqueued = engine.begin(&a, "go").await;
    settle().await;
    assert_eq!(stage.model.gauge.in_flight(), 1);
    assert_eq!(stop(&engine, &a, enqueued.run).await, Stopped::Now);
    assert_stopped(&stage, &a, enqueued.run).await;
    settle().await;
    assert_eq!((stage.model.gauge.in_flight(), stage.model.gauge.cancelled()), (0, 1), "the request is dropped");
    let head = stage.head(&a).await;
    assert_eq!((head.status, head.run), (HeadStatus::Idle, None));
    assert!(Some(head.epoch) > enqueued.epoch, "a stop raises the epoch");
    assert_eq!(stop(&engine, &a, enqueued.run).await, Stopped::Before);
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_a_tool_of_this_process() {
    let stage = Stage::new(|_| call(&[LOOK, WRITE])).with_tools(|_| Act::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(stage.tools.gauge.in_flight(), 2);
    assert_eq!(stop(&engine, &a, run).await, Stopped::Now);
    assert_stopped(&stage, &a, run).await;
    settle().await;
    assert_eq!((stage.tools.gauge.in_flight(), stage.tools.gauge.cancelled()), (0, 2));
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Dropped; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_queued_run_delivers_and_leaves_the_others_alone() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let engine = stage.engine(1);
    let a = agent("a");
    let [first, second, third] = [engine.begin(&a, "1").await.run, engine.begin(&a, "2").await.run, engine.begin(&a, "3").await.run];
    assert_eq!(stop(&engine, &a, second).await, Stopped::Now);
    assert_stopped(&stage, &a, second).await;
    assert_eq!(stage.head(&a).await.queued, 1);
    hold.open();
    assert_eq!(stage.ended(&a, first).await, "done");
    assert_eq!(stage.ended(&a, third).await, "done");
    assert_eq!(stage.model.count("2"), 0, "it never started");
}

#[tokio::test(start_paused = true)]
async fn a_result_after_a_stop_is_recorded_as_late() {
    let stage = Stage::new(|_| call(&[LOOKUP]));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    let claimed = engine.claim(claim(LOOKUP)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(stop(&engine, &a, run).await, Stopped::Now);
    engine.answer(&a, run, 1, "1").await;
    settle().await;
    assert_stopped(&stage, &a, run).await;
    assert_eq!(stage.model.count("go"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_a_run_whose_agent_has_no_worker_for_lack_of_room() {
    let stage = Stage::new(|_| Turn::Hang).with_settings(|settings| settings.workers_max = 1);
    let engine = stage.engine(1);
    engine.begin(&agent("busy"), "go").await;
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    assert_eq!(stop(&engine, &a, run).await, Stopped::Now);
    assert_stopped(&stage, &a, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_an_epoch_of_the_future_or_of_an_unknown_run_is_refused() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let enqueued = engine.begin(&a, "go").await;
    let stop_of = |agent: &AgentKey, run, epoch| Stop { agent: agent.clone(), run, reason: String::new(), epoch, source: None, key: None };
    let ahead = Epoch(enqueued.epoch.unwrap().0 + 1);
    assert!(matches!(engine.stop(stop_of(&a, enqueued.run, Some(ahead))).await, Err(EngineError::EpochAhead)));
    assert!(matches!(engine.stop(stop_of(&agent("b"), enqueued.run, None)).await, Err(EngineError::UnknownRun)));
    let foreign = of_tenant("other", "a");
    assert!(matches!(engine.stop(stop_of(&foreign, enqueued.run, None)).await, Err(EngineError::UnknownRun)));
    assert_eq!(engine.stop(stop_of(&a, enqueued.run, enqueued.epoch)).await.unwrap(), Stopped::Now);
}
