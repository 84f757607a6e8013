//! Everything that can grow has a limit, and a run that reaches one ends in the ordinary way.

use windlass_engine::EngineError;
use windlass_kernel::{BudgetKind, Budgets, EndReason, Phase, TaskStatus};
use windlass_ports::Admission;

use crate::support::*;

const NO_BUDGETS: Budgets = Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None };

async fn ending(stage: &Stage, task: &str) -> (TaskStatus, EndReason) {
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, task).await.run;
    stage.ended(&a, run).await;
    match stage.run(&a, run).await.state.phase {
        Phase::Ended { status, reason } => (status, reason),
        Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. } => panic!("it has ended"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_size_of_an_answer_is_limited() {
    let stage =
        Stage::new(|request| say(&"x".repeat(request.task().parse().unwrap()))).with_settings(|settings| settings.reply_bytes_max = 100);
    assert_eq!(ending(&stage, "100").await, (TaskStatus::Success, EndReason::Answered));
    assert_eq!(ending(&stage, "101").await, (TaskStatus::Failed, EndReason::ModelFailed("answer_too_large".into())));
    assert_eq!(stage.model.count("101"), 1, "it is not retried: the next answer would be as large");
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_one_iteration_are_limited() {
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&vec![LOOK; request.task().parse().unwrap()]),
        _ => say("done"),
    })
    .with_settings(|settings| settings.calls_per_iteration_max = 8);
    assert_eq!(ending(&stage, "8").await, (TaskStatus::Success, EndReason::Answered));
    assert_eq!(stage.tools.starts().len(), 8);
    assert_eq!(ending(&stage, "9").await, (TaskStatus::Failed, EndReason::ModelFailed("answer_too_large".into())));
    assert_eq!(stage.tools.starts().len(), 8, "none of the calls was started");
}

#[tokio::test(start_paused = true)]
async fn the_wall_time_of_a_run_is_limited() {
    let budgets = Budgets { wall_ms: Some(20_000), ..NO_BUDGETS };
    let stage = Stage::new(|_| Turn::Hang).with_budgets("a", budgets);
    let before = stage.engine(1).now();
    assert_eq!(ending(&stage, "go").await, (TaskStatus::Partial, EndReason::Budget(BudgetKind::WallMs)));
    assert!((20_000..21_000).contains(&(stage.engine(1).now().0 - before.0)), "its model call is cancelled in time");
    assert_eq!(stage.model.gauge.cancelled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_last_only_as_long_as_its_run() {
    let budgets = Budgets { wall_ms: Some(20_000), ..NO_BUDGETS };
    let stage = Stage::new(|_| call(&[LOOK])).with_tools(|_| Act::Hang).with_budgets("a", budgets);
    assert_eq!(ending(&stage, "go").await, (TaskStatus::Partial, EndReason::Budget(BudgetKind::WallMs)));
    assert_eq!(stage.tools.gauge.cancelled(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_iterations_and_calls_of_a_run_are_limited() {
    let stage = Stage::new(|_| call(&[LOOK])).with_budgets("a", Budgets { iterations: 3, ..NO_BUDGETS });
    assert_eq!(ending(&stage, "go").await, (TaskStatus::Partial, EndReason::Budget(BudgetKind::Iterations)));
    assert_eq!((stage.model.count("go"), stage.tools.starts().len()), (3, 3));
    let stage = Stage::new(|_| call(&[LOOK, LOOK])).with_budgets("a", Budgets { calls: Some(3), ..NO_BUDGETS });
    assert_eq!(ending(&stage, "go").await, (TaskStatus::Partial, EndReason::Budget(BudgetKind::Calls)));
    assert_eq!(stage.tools.starts().len(), 2, "a part of an iteration is not started");
}

const SHORT_PROMPT: u64 = 6_000;

/// The failure of a run whose prompt is over the limit.
fn prompt_too_large() -> (TaskStatus, EndReason) {
    (TaskStatus::Failed, EndReason::ModelFailed("prompt_too_large".into()))
}

#[tokio::test(start_paused = true)]
async fn tm_04_a_run_that_grows_over_the_limit_of_a_prompt_fails() {
    let stage = Stage::new(|_| call(&[LOOK]))
        .with_tools(|_| give(&format!("\"{}\"", "x".repeat(2_000))))
        .with_settings(|settings| settings.prompt_bytes_max = SHORT_PROMPT);
    assert_eq!(ending(&stage, "go").await, prompt_too_large());
    assert_eq!(stage.model.count("go"), 3, "two results fit, and there is no retry");
}

#[test]
fn tm_04_a_prompt_that_is_read_from_the_store_has_the_same_limit() {
    let stage = Stage::new(|_| Turn::Hang);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, &"x".repeat(7_000)).await.run;
        settle().await;
        run
    });
    first.kill();
    // The next server has a smaller limit, and nothing of the run in memory.
    let stage = stage.with_settings(|settings| settings.prompt_bytes_max = SHORT_PROMPT);
    let second = Process::start(&stage, 2);
    second.does(async {
        stage.ended(&a, run).await;
        let view = stage.run(&a, run).await;
        let Phase::Ended { status, reason } = view.state.phase else { panic!("it has ended") };
        assert_eq!((status, reason), prompt_too_large());
        assert_eq!(
            (stage.model.requests().len(), view.state.lost),
            (1, 0),
            "the lost call is not estimated, because its prompt may not be read"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn the_size_of_a_result_is_limited_for_executors_and_services() {
    let stage = Stage::new(|request| match (request.task(), request.iteration) {
        ("here", 1) => call(&[LOOK]),
        ("there", 1) => call(&[LOOKUP]),
        _ => say(&request.results().join(",")),
    })
    .with_tools(|_| give(&format!("\"{}\"", "x".repeat(2000))))
    .with_settings(|settings| settings.item_bytes_max = 1000);
    let engine = stage.engine(1);
    let (a, b) = (agent("a"), agent("b"));
    let here = engine.begin(&a, "here").await.run;
    let text = stage.ended(&a, here).await;
    assert!(text.contains("result_too_large"), "{} bytes went to the model", text.len());
    let there = engine.begin(&b, "there").await.run;
    settle().await;
    let refused = engine.report(result_of(&b, there, 1, &format!("\"{}\"", "x".repeat(2000)))).await;
    assert!(matches!(refused, Err(EngineError::ItemTooLarge { bytes: 2002, limit: 1000 })));
}

#[tokio::test(start_paused = true)]
async fn f_018_the_length_of_a_queue_is_limited() {
    let stage = Stage::new(|_| Turn::Hang)
        .with_settings(|settings| settings.admission = Admission { queued_per_agent_max: 3, open_per_tenant_max: 6 });
    let engine = stage.engine(1);
    let (a, b) = (agent("a"), agent("b"));
    for _ in 0..4 {
        engine.begin(&a, "go").await;
    }
    assert!(matches!(engine.enqueue(request(&a, "go")).await, Err(EngineError::AgentFull)));
    engine.begin(&b, "go").await;
    engine.begin(&b, "go").await;
    assert!(matches!(engine.enqueue(request(&b, "go")).await, Err(EngineError::TenantFull)));
    let other = of_tenant("other", "a");
    engine.begin(&other, "go").await;
    assert_eq!(stage.head(&a).await.queued, 3);
}
