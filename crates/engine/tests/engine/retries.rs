//! Calls that are repeated after their tools have reported a failure.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use windlass_engine::{Engine, EngineError, Enqueue, ToolResult};
use windlass_kernel::{AgentKey, CallKey, CallNumber, RunId, TaskStatus};
use windlass_ports::CallStatus;

use crate::support::*;

async fn begin(engine: &Engine, agent: &AgentKey, tool: &str) -> RunId {
    let request = Enqueue { tools: Some(vec![tool.into()]), ..request(agent, "go") };
    let run = engine.enqueue(request).await.unwrap().run;
    settle().await;
    run
}

fn calls_once(tool: &'static str) -> impl Fn(&windlass_ports::ModelRequest) -> Turn + Send + Sync + 'static {
    move |request| if request.iteration == 1 { call(&[tool]) } else { say("done") }
}

fn report(agent: &AgentKey, run: RunId, retry: u32, status: TaskStatus) -> ToolResult {
    ToolResult { retry, status, ..result_of(agent, run, 1, &retry.to_string()) }
}

#[tokio::test(start_paused = true)]
async fn an_external_call_is_claimed_again_after_the_pause_and_every_try_has_its_report() {
    let stage = Stage::new(calls_once(FLAKY));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a, FLAKY).await;
    assert_eq!(engine.claim(claim(FLAKY)).await.unwrap()[0].retry, 0);
    let failed = report(&a, run, 0, TaskStatus::Failed);
    let first = engine.report(failed.clone()).await.unwrap();
    assert!(!first.is_duplicate);
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Parked]);
    assert!(engine.claim(claim(FLAKY)).await.unwrap().is_empty(), "not during the pause");
    let copy = engine.report(failed.clone()).await.unwrap();
    assert_eq!((copy.is_duplicate, copy.message), (true, first.message));
    assert!(matches!(engine.report(report(&a, run, 1, TaskStatus::Success)).await, Err(EngineError::CallPaused)));
    assert!(matches!(engine.report(report(&a, run, 2, TaskStatus::Success)).await, Err(EngineError::UnknownCall)));
    pass_ms(PAUSE_MS).await;
    settle().await;
    let again = engine.claim(claim(FLAKY)).await.unwrap();
    assert_eq!((again[0].call, again[0].retry, again[0].attempt), (CallNumber(1), 1, 2));
    assert!(engine.report(failed).await.unwrap().is_duplicate, "a late copy is not taken for the second try");
    assert!(!engine.report(report(&a, run, 1, TaskStatus::Success)).await.unwrap().is_duplicate);
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!(stage.model.requests().pop().unwrap().results(), ["1"], "the model does not read the first failure");
    let story = stage.story(&a, run).await;
    assert_eq!(story.iter().filter(|kind| **kind == "call_retried").count(), 1, "{story:?}");
    assert_eq!(stage.run(&a, run).await.state.takeovers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_process_is_repeated_with_keys_of_its_own_until_the_repetitions_are_used_up() {
    let tries = AtomicUsize::new(0);
    let stage = Stage::new(calls_once(FETCH)).with_tools(move |_| Act::Fail(tries.fetch_add(1, SeqCst).to_string()));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a, FETCH).await;
    assert_eq!(stage.tools.starts_of(FETCH), 1);
    pass_ms(PAUSE_MS).await;
    assert_eq!(stage.tools.starts_of(FETCH), 2);
    pass_ms(2 * PAUSE_MS - 100).await;
    assert_eq!(stage.tools.starts_of(FETCH), 2, "the second pause is longer");
    assert_eq!(stage.ended(&a, run).await, "done");
    let key = CallKey { run, call: CallNumber(1) };
    let keys: Vec<String> = stage.tools.starts().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [key.to_string(), format!("{key}:attempt:2"), format!("{key}:attempt:3")]);
    assert_eq!(stage.model.requests().pop().unwrap().results(), ["error: 2"]);
    assert_eq!(stage.run(&a, run).await.state.takeovers, 0, "a pause loses no owner");
}

#[test]
fn a_new_owner_waits_for_the_end_of_the_pause() {
    let tries = AtomicUsize::new(0);
    let stage =
        Stage::new(calls_once(FETCH)).with_tools(move |_| if tries.fetch_add(1, SeqCst) == 0 { Act::Fail("0".into()) } else { give("1") });
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async { begin(&first.engine, &a, FETCH).await });
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        settle().await;
        assert_eq!(stage.tools.starts_of(FETCH), 1);
        assert_eq!(stage.ended(&a, run).await, "done");
        assert_eq!((stage.tools.starts_of(FETCH), stage.run(&a, run).await.state.takeovers), (2, 0));
    });
}
