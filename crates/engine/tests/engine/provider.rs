//! The concurrency limit of a provider, its refusals and its delays.

use std::sync::Arc;

use windlass_engine::Enqueue;
use windlass_kernel::{BudgetKind, Budgets, EndReason, Event, HeadStatus, Phase, TaskStatus, Usage};
use windlass_ports::Retry;

use crate::support::*;

fn after_ms(code: &'static str, ms: u64) -> Turn {
    Turn::Fail(code, Retry::AfterMs(ms))
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns_at_a_provider_whatever_one_has_queued() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let model = Script::new(1, move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let stage = Stage { model: Arc::new(model), ..Stage::new(|_| Turn::Hang) };
    let engine = stage.engine(1);
    let mut runs = Vec::new();
    for n in 0..21 {
        let big = of_tenant("big", &format!("a{n:02}"));
        runs.push((big.clone(), engine.begin(&big, "big").await.run));
        settle().await;
    }
    let small = of_tenant("small", "a");
    runs.push((small.clone(), engine.begin(&small, "small").await.run));
    settle().await;
    assert_eq!(stage.model.requests().len(), 1, "one permit, the rest wait");
    hold.open();
    for (agent, run) in runs {
        stage.ended(&agent, run).await;
    }
    let order: Vec<String> = stage.model.requests().iter().map(|request| request.task().to_owned()).collect();
    assert_eq!(order.iter().position(|task| task == "small"), Some(2), "after the call in flight and one more: {order:?}");
    assert_eq!(stage.model.gauge.peak(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_leaves_the_queue_for_a_permit() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let model = Script::new(1, move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let stage = Stage { model: Arc::new(model), ..Stage::new(|_| Turn::Hang) };
    let engine = stage.engine(1);
    let (inside, gone, last) = (agent("inside"), agent("gone"), agent("last"));
    let first = engine.begin(&inside, "inside").await.run;
    settle().await;
    let second = engine.begin(&gone, "gone").await.run;
    settle().await;
    let third = engine.begin(&last, "last").await.run;
    settle().await;
    let stop = |agent, run| windlass_engine::Stop { agent, run, reason: String::new(), epoch: None, source: None, key: None };
    engine.stop(stop(gone, second)).await.unwrap();
    engine.stop(stop(inside, first)).await.unwrap();
    settle().await;
    assert_eq!(stage.model.count("last"), 1, "the permit skips the stopped run");
    hold.open();
    assert_eq!(stage.ended(&last, third).await, "done");
    assert_eq!(stage.model.count("gone"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_retry_pause_holds_no_worker_and_is_retried() {
    let stage = Stage::new(|request| match (request.task(), request.attempt) {
        ("limited", 1) => after_ms("rate_limited", 30_000),
        _ => say("done"),
    })
    .with_settings(|settings| settings.workers_max = 1);
    let engine = stage.engine(1);
    let a = agent("a");
    let limited = engine.begin(&a, "limited").await.run;
    settle().await;
    assert_eq!(stage.head(&a).await.status, HeadStatus::Running);
    let b = agent("b");
    let other = engine.begin(&b, "other").await.run;
    settle().await;
    assert!(stage.run(&b, other).await.state.has_ended(), "the only worker was free");
    pass_ms(29_000).await;
    assert_eq!(stage.model.count("limited"), 1, "not before the time that the provider gave");
    pass_ms(1500).await;
    assert_eq!(stage.model.count("limited"), 2);
    assert_eq!(stage.ended(&a, limited).await, "done");
    assert_eq!(stage.run(&a, limited).await.state.iteration, 1, "another attempt is not a new iteration");
}

/// The pause is stored: it holds for the next owner if the process that recorded it dies.
#[test]
fn a_pause_outlives_the_process() {
    let stage = Stage::new(|request| if request.attempt == 1 { after_ms("rate_limited", 30_000) } else { say("done") });
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, "go").await.run;
        settle().await;
        run
    });
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(25_000).await;
        assert_eq!(stage.model.count("go"), 1, "the pause holds for the next owner, too");
        pass_ms(10_000).await;
        assert_eq!(stage.ended(&a, run).await, "done");
    });
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_and_their_pauses_grow_up_to_a_limit() {
    let stage = Stage::new(|_| Turn::Fail("overloaded", Retry::Backoff)).with_settings(|settings| {
        settings.attempts_max = 4;
        settings.backoff_ms_max = 1500;
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    let text = stage.ended(&a, run).await;
    assert!(text.contains("could not be called"), "{text}");
    let Phase::Ended { status, reason } = stage.run(&a, run).await.state.phase else { panic!("it has ended") };
    assert_eq!((status, reason), (TaskStatus::Failed, EndReason::ModelFailed("overloaded".into())));
    let attempts: Vec<i64> =
        stage.journal(&a, run).await.iter().filter(|entry| entry.event.kind() == "attempt_failed").map(|entry| entry.at.0).collect();
    assert_eq!(attempts.len(), 4);
    let pauses: Vec<i64> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, least) in pauses.iter().zip([500, 1000, 1500]) {
        assert!((least..least + 150).contains(pause), "{pauses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_is_not_retried() {
    let stage = Stage::new(|_| Turn::Fail("refused", Retry::Never));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    stage.ended(&a, run).await;
    assert_eq!(stage.model.count("go"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_call_that_times_out_is_cancelled_and_retried() {
    let stage = Stage::new(|request| if request.attempt == 1 { Turn::Hang } else { say("done") })
        .with_settings(|settings| settings.model_deadline_ms = 10_000);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    pass_ms(9000).await;
    assert_eq!(stage.model.gauge.in_flight(), 1);
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!(stage.model.gauge.cancelled(), 1);
}

/// Waiting for a permit uses up no attempts. Calls of other tenants come later and are served first.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_does_not_count_as_an_attempt() {
    let model = Script::new(1, |request| if request.task() == "slow" { Turn::Hang } else { say("done") });
    let stage =
        Stage { model: Arc::new(model), ..Stage::new(|_| Turn::Hang) }.with_settings(|settings| settings.model_deadline_ms = 10_000);
    let engine = stage.engine(1);
    let patient = of_tenant("a", "patient");
    engine.begin(&of_tenant("a", "inside"), "slow").await;
    pass_ms(1000).await;
    engine.begin(&of_tenant("a", "first"), "slow").await;
    settle().await;
    let run = engine.begin(&patient, "patient").await.run;
    for tenant in ["b", "c"] {
        pass_ms(1000).await;
        engine.begin(&of_tenant(tenant, "a"), "slow").await;
    }
    assert_eq!(stage.ended(&patient, run).await, "done");
    let story = stage.story(&patient, run).await;
    assert!(!story.contains(&"attempt_failed"), "{story:?}");
}

/// Many runs of one tenant that wait for their provider take no worker that another tenant needs. Both workers and permits are shared
/// between tenants.
#[tokio::test(start_paused = true)]
async fn runs_of_one_tenant_that_wait_for_their_provider_do_not_block_other_tenants() {
    let (first, rest) = (Latch::shut(), Latch::shut());
    let (one, others) = (first.clone(), rest.clone());
    let model = Script::new(2, move |request| match request.task() {
        "first" => Turn::After(one.clone(), Box::new(say("done"))),
        "crowd" => Turn::After(others.clone(), Box::new(say("done"))),
        _ => say("quick"),
    });
    let stage = Stage { model: Arc::new(model), ..Stage::new(|_| Turn::Hang) }.with_settings(|settings| settings.workers_max = 6);
    let engine = stage.engine(1);
    let mut crowd = Vec::new();
    for n in 0..50 {
        let agent = of_tenant("crowd", &format!("a{n:02}"));
        let run = engine.begin(&agent, if n == 0 { "first" } else { "crowd" }).await.run;
        crowd.push((agent, run));
    }
    settle().await;
    let (other, third) = (of_tenant("other", "b"), of_tenant("third", "c"));
    let second_run = engine.begin(&other, "quick").await.run;
    // The last free worker is for a tenant without one. This tenant's run waits in the store, behind all the others.
    let third_run = engine.begin(&third, "quick").await.run;
    pass_ms(500).await;
    assert_eq!(stage.model.requests().len(), 2, "the first tenant has both permits");
    first.open();
    assert_eq!(stage.ended(&other, second_run).await, "quick", "the next permit goes to the other tenant");
    assert_eq!(stage.ended(&third, third_run).await, "quick", "and the next worker to the third tenant");
    let mut over = 0;
    for (agent, run) in &crowd {
        over += usize::from(stage.run(agent, *run).await.state.has_ended());
    }
    assert_eq!(over, 1, "the first tenant's other runs still wait");
    rest.open();
    for (agent, run) in &crowd {
        assert_eq!(stage.ended(agent, *run).await, "done");
    }
}

/// Two model names with one concurrency key share its permits.
#[tokio::test(start_paused = true)]
async fn models_with_one_concurrency_key_share_its_permits() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let model = Script::new(1, move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let stage = Stage { model: Arc::new(model), ..Stage::new(|_| Turn::Hang) };
    let engine = stage.engine(1);
    let (a, b) = (agent("a"), agent("b"));
    let first = engine.begin(&a, "go").await.run;
    let second = engine.enqueue(Enqueue { model: Some("namesake".into()), ..request(&b, "go") }).await.unwrap().run;
    settle().await;
    assert_eq!(stage.model.requests().len(), 1, "there is one permit for both names");
    hold.open();
    assert_eq!((stage.ended(&a, first).await, stage.ended(&b, second).await), ("done".into(), "done".into()));
}

/// The tokens that count against a run's budget, and those of them that a provider reported.
async fn tokens(stage: &Stage, agent: &windlass_kernel::AgentKey, run: windlass_kernel::RunId) -> (u64, u64) {
    let state = stage.run(agent, run).await.state;
    (state.tokens(), state.usage.total())
}

/// A call whose stream breaks off still costs tokens. The run ends by its budget, whatever attempts it has left.
#[tokio::test(start_paused = true)]
async fn attempts_that_break_off_use_up_the_tokens_of_the_run() {
    let budgets = Budgets { iterations: 10, calls: None, tokens: Some(1000), wall_ms: None, children: None, cost: None };
    let reported = Usage { tokens_in: 300, tokens_out: 1, ..Usage::default() };
    for (reported, attempts, usage) in [(None, 7, 0), (Some(reported), 3, 903)] {
        let stage = Stage::new(move |_| Turn::BreakOff { reported, text: "x".repeat(400) })
            .with_budgets("a", budgets)
            .with_settings(|settings| settings.attempts_max = 1000);
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, &"go ".repeat(10)).await.run;
        stage.ended(&a, run).await;
        let Phase::Ended { reason, .. } = stage.run(&a, run).await.state.phase else { panic!("it has ended") };
        assert_eq!(reason, EndReason::Budget(BudgetKind::Tokens));
        assert_eq!((stage.model.requests().len(), tokens(&stage, &a, run).await.1), (attempts, usage));
        let breached = stage
            .journal(&a, run)
            .await
            .iter()
            .any(|entry| matches!(entry.event, Event::BudgetBreached { breach } if breach.observed >= 1000));
        assert!(breached, "the breach contains the counted tokens");
    }
}

/// A refusal costs nothing, because nothing was read.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_accepted_costs_no_tokens() {
    let stage = Stage::new(|request| if request.attempt < 4 { Turn::Fail("overloaded", Retry::Backoff) } else { say("done") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!(tokens(&stage, &a, run).await, (0, 0));
}

/// A model call that timed out has read its prompt.
#[tokio::test(start_paused = true)]
async fn a_model_call_that_times_out_counts() {
    let stage = Stage::new(|request| if request.attempt == 1 { Turn::Stall } else { say("done") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, &"x".repeat(4000)).await.run;
    assert_eq!(stage.ended(&a, run).await, "done");
    let (counted, reported) = tokens(&stage, &a, run).await;
    assert!(counted >= 1000 && reported == 0, "{counted}, {reported}");
}

/// It is unknown whether a lost owner's call was made, so it counts, and the next owners do not repeat it forever.
#[test]
fn tokens_lost_with_an_owner_count() {
    let budgets = Budgets { iterations: 10, calls: None, tokens: Some(3000), wall_ms: None, children: None, cost: None };
    let stage = Stage::new(|_| Turn::Hang).with_budgets("a", budgets);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, &"x".repeat(8000)).await.run;
        settle().await;
        run
    });
    first.kill();
    let second = Process::start(&stage, 2);
    let counted = second.does(async {
        settle().await;
        tokens(&stage, &a, run).await
    });
    assert!((2000..3000).contains(&counted.0) && counted.1 == 0, "{counted:?}");
    second.kill();
    let third = Process::start(&stage, 3);
    third.does(async {
        stage.ended(&a, run).await;
        let Phase::Ended { reason, .. } = stage.run(&a, run).await.state.phase else { panic!("it has ended") };
        assert_eq!(reason, EndReason::Budget(BudgetKind::Tokens));
    });
    assert_eq!(stage.model.requests().len(), 2, "the third owner makes no call");
}
