//! The calls of one iteration run concurrently and are applied in the order of the calls, in as few commits as possible.

use futures_util::future::join_all;
use windlass_kernel::{AfterExecution, HeadStatus, ItemKind, Phase, TaskStatus, content::CallResult};
use windlass_ports::{CallStatus, CommitKind, MessageKind};

use crate::support::{reader::TERMINATE, *};

const A: &str = r#"{"q":"a"}"#;
const B: &str = r#"{"q":"b"}"#;
const C: &str = r#"{"q":"c"}"#;

/// The first iteration calls `look` three times, and the second one says the results.
fn three_looks(request: &windlass_ports::ModelRequest) -> Turn {
    match request.iteration {
        1 => Turn::Call(vec![(LOOK, A), (LOOK, B), (LOOK, C)]),
        _ => say(&request.results().join(",")),
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_iteration_run_at_the_same_time_and_are_applied_in_their_order() {
    let latches = [Latch::shut(), Latch::shut(), Latch::shut()];
    let shut = latches.clone();
    let stage = Stage::new(three_looks).with_tools(move |call| {
        let index = [A, B, C].iter().position(|arguments| *arguments == call.arguments).unwrap();
        Act::After(shut[index].clone(), Box::new(give(&(index + 1).to_string())))
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(stage.tools.gauge.in_flight(), 3, "all three run at once");
    for (latch, left) in latches.iter().rev().zip([2, 1, 0]) {
        latch.open();
        settle().await;
        if left > 0 {
            assert_eq!(stage.head(&a).await.waiting, left);
            assert_eq!(stage.head(&a).await.status, HeadStatus::Suspended);
        }
    }
    assert_eq!(stage.ended(&a, run).await, "1,2,3");
    let results: Vec<u32> = stage
        .output(&a, run)
        .await
        .iter()
        .filter(|item| item.kind == ItemKind::Result)
        .map(|item| serde_json::from_slice::<CallResult<'_>>(&item.content).unwrap().call.0)
        .collect();
    assert_eq!(results, [1, 2, 3]);
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Applied; 3]);
}

#[tokio::test(start_paused = true)]
async fn results_that_come_together_are_one_commit() {
    let together = Latch::shut();
    let shut = together.clone();
    let stage = Stage::new(three_looks).with_tools(move |_| Act::After(shut.clone(), Box::new(give("7"))));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    together.open();
    assert_eq!(stage.ended(&a, run).await, "7,7,7");
    assert_eq!(stage.store.kinds(&a), [CommitKind::Suspend, CommitKind::Resume, CommitKind::End]);
    let seqs: Vec<u64> = stage.store.commits().iter().map(|seen| seen.done.as_ref().unwrap().seq.0).collect();
    assert_eq!(seqs, [2, 3, 4], "the enqueue was the first");
}

#[tokio::test(start_paused = true)]
async fn reports_from_outside_that_come_together_are_one_commit_with_a_row_each() {
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&[LOOKUP, LOOKUP, LOOKUP]),
        _ => say(&request.results().join(",")),
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    let reports = [3, 1, 2].map(|call| engine.report(result_of(&a, run, call, &call.to_string())));
    let mut rows: Vec<u64> = join_all(reports).await.into_iter().map(|reported| reported.unwrap().message.0).collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), 3, "every report has its own row");
    assert_eq!(stage.ended(&a, run).await, "1,2,3");
    assert_eq!(stage.store.kinds(&a), [CommitKind::Suspend, CommitKind::Resume, CommitKind::End]);
}

#[tokio::test(start_paused = true)]
async fn an_iteration_may_mix_calls_of_this_process_and_of_services() {
    for is_local_first in [true, false] {
        let local = Latch::shut();
        let shut = local.clone();
        let stage = Stage::new(|request| match request.iteration {
            1 => call(&[LOOKUP, LOOK]),
            _ => say(&request.results().join(",")),
        })
        .with_tools(move |_| Act::After(shut.clone(), Box::new(give("\"here\""))));
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, "go").await.run;
        settle().await;
        assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Waiting, CallStatus::Started]);
        if is_local_first {
            local.open();
        } else {
            assert_eq!(engine.serve(LOOKUP, "\"there\"").await, 1);
        }
        settle().await;
        assert_eq!(stage.head(&a).await.waiting, 1, "one of two results has arrived");
        assert_eq!(stage.run(&a, run).await.state.iteration, 1);
        if is_local_first {
            assert_eq!(engine.serve(LOOKUP, "\"there\"").await, 1);
        } else {
            local.open();
        }
        assert_eq!(stage.ended(&a, run).await, "there,here");
        assert_eq!(stage.tools.starts_of(LOOK), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c_047_a_tool_of_this_process_may_end_the_run() {
    let own_wish = || give(TERMINATE);
    let reported_wish = || Act::GiveAnd("{}".into(), AfterExecution::Terminate);
    for (act, iterations) in
        [(Box::new(own_wish) as Box<dyn Fn() -> Act + Send + Sync>, 1), (Box::new(reported_wish), 1), (invalid_wish(), 2)]
    {
        let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOK]) } else { say("went on") }).with_tools(move |_| act());
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, "go").await.run;
        stage.ended(&a, run).await;
        assert_eq!(stage.model.count("go"), iterations);
    }
}

fn invalid_wish() -> Box<dyn Fn() -> Act + Send + Sync> {
    Box::new(|| give(r#"{"then":"explode"}"#))
}

#[tokio::test(start_paused = true)]
async fn a_tools_failure_is_data_for_the_model() {
    let acts = [Act::Fail, Act::Give];
    for (act, expected) in acts.into_iter().zip([r#"{"why":"broken"}"#, "bad_result"]) {
        let given = if expected == "bad_result" { "no json" } else { expected };
        let stage = Stage::new(|request| if request.iteration == 1 { call(&[WRITE]) } else { say(&request.results().join(",")) })
            .with_tools(move |_| act(given.to_owned()));
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, "go").await.run;
        let text = stage.ended(&a, run).await;
        assert!(text.contains(expected), "{text}");
        assert!(matches!(stage.run(&a, run).await.state.phase, Phase::Ended { status: TaskStatus::Success, .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_this_process_is_cancelled_at_its_deadline() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOK]) } else { say(&request.results().join(",")) })
        .with_tools(|_| Act::Hang)
        .with_settings(|settings| settings.call_deadline_ms = 5000);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(stage.tools.gauge.in_flight(), 1);
    let text = stage.ended(&a, run).await;
    assert!(text.contains("timeout"), "{text}");
    assert_eq!(stage.tools.gauge.cancelled(), 1, "its future is dropped");
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Expired]);
    let inbox = stage.data.inbox(&a, windlass_ports::Page { after: 0, limit: 10 }).await.unwrap();
    assert_eq!(inbox.iter().filter(|row| row.kind == MessageKind::Timeout).count(), 1);
}

/// Three iterations with one call each: the run is entered with its enqueue, every iteration suspends and resumes, and the last reply
/// ends the run. A claim is one more durable write, and there are no others.
#[tokio::test(start_paused = true)]
async fn a_run_of_three_iterations_takes_eight_writes_and_eleven_with_claims() {
    for (tool, is_claimed) in [(LOOK, false), (LOOKUP, true)] {
        let stage = Stage::new(move |request| if request.iteration <= 3 { call(&[tool]) } else { say("done") });
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, "go").await.run;
        for _ in 0..3 {
            settle().await;
            let served = engine.serve(LOOKUP, "1").await;
            assert_eq!(served, usize::from(is_claimed));
        }
        assert_eq!(stage.ended(&a, run).await, "done");
        let writes = stage.store.writes();
        let iteration: &[&str] = if is_claimed { &["commit", "claim_calls", "commit"] } else { &["commit", "commit"] };
        let expected: Vec<&str> = [&["enqueue"][..], iteration, iteration, iteration, &["commit"]].concat();
        assert_eq!(writes, expected);
        assert_eq!(writes.len(), if is_claimed { 11 } else { 8 });
    }
}
