//! Child runs: their results, kills of the processes of parents and children, and stops that go down the tree.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_engine::{Engine, EngineError, Enqueue, Stop};
use windlass_kernel::{AgentKey, Budgets, EndReason, Phase, RunId, TaskStatus, Usage};
use windlass_ports::{CallStatus, ModelRequest, RunScan, RunSet};

use crate::support::*;

const ASK: (&str, &str) = ("agent__helper", r#"{"input":"count"}"#);

/// A request for an agent, with the tools of its configuration.
async fn begin(engine: &Engine, agent: &AgentKey, task: &str) -> RunId {
    engine.enqueue(Enqueue { tools: None, ..request(agent, task) }).await.unwrap().run
}

/// The parent asks its helper this many times in its first iteration, and then answers with the results.
fn asks(times: usize, helper: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> impl Fn(&ModelRequest) -> Turn + Send + Sync {
    move |request| match (request.task(), request.iteration) {
        ("go", 1) => Turn::Call(vec![ASK; times]),
        ("go", _) => say(&request.results().join(",")),
        _ => helper(request),
    }
}

fn stage(play: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Stage {
    Stage::new(play).with_agent("a", &["agent/helper", LOOKUP], 1).with_agent("helper", &[LOOKUP, LOOK], 1)
}

async fn stop(engine: &Engine, agent: &AgentKey, run: RunId) {
    let stop = Stop { agent: agent.clone(), run, reason: "enough".into(), epoch: None, source: None, key: None };
    engine.stop(stop).await.unwrap();
}

fn is_stopped(phase: &Phase) -> bool {
    matches!(phase, Phase::Ended { status: TaskStatus::Canceled, reason: EndReason::Stopped })
}

#[tokio::test(start_paused = true)]
async fn s_15_the_deliverables_of_child_runs_are_the_results_of_the_calls() {
    let stage = stage(asks(2, |request| say(&format!("{} by {}", request.task(), request.messages.len()))));
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    assert_eq!(stage.ended(&a, run).await, "count by 1,count by 1");
    let children = stage.children(&a, run).await;
    assert_eq!(children.len(), 2);
    for (index, child) in children.iter().enumerate() {
        assert_eq!(child.agent_name.as_ref().map(|name| name.as_str()), Some("helper"));
        let parent = child.state.parent.as_ref().unwrap();
        assert_eq!((parent.run, parent.call.0 as usize), (run, index + 1));
        assert_eq!((child.lineage.depth, child.lineage.parent_step.is_some()), (1, true));
    }
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Applied; 2]);
    let state = stage.run(&a, run).await.state;
    assert_eq!((state.children_used, state.below.children), (2, 0));
}

/// A process dies at each crash point once, and another one goes on: there is one child for each call and one result of each child.
#[tokio::test(start_paused = true)]
async fn s_15_parents_and_children_survive_a_death_at_every_crash_point() {
    for nth in 0.. {
        let stage = stage(asks(2, |request| if request.iteration == 1 { call(&[LOOK]) } else { say(&request.results().join("+")) }));
        let (life, a) = (CancellationToken::new(), agent("a"));
        let first = stage.dying(1, nth, &life);
        tokio::select! {
            biased;
            () = life.cancelled() => {}
            run = begin(&first, &a, "go") => drop(tokio::time::timeout(Duration::from_secs(1), stage.ended(&a, run)).await),
        }
        let second = stage.engine(2);
        let scan = RunScan { set: RunSet::Named("a".into()), below: None, limit: 10 };
        let stored = stage.data.scan_runs(&a.tenant, &scan).await.unwrap().runs;
        let run = match stored.first() {
            Some(run) => run.id,
            None => begin(&second, &a, "go").await,
        };
        assert_eq!(stage.ended(&a, run).await, "1,1", "death at point {nth}");
        let children = stage.children(&a, run).await;
        assert_eq!(children.len(), 2, "death at point {nth}");
        assert!(children.iter().all(|child| child.state.has_ended()));
        assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Applied; 2]);
        if !life.is_cancelled() {
            assert!(nth > 20, "there are more points than {nth}");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s_15_a_stop_of_the_parent_stops_running_and_waiting_children() {
    // One child hangs in its model call, the other one waits for a service.
    let stage = stage(|request| match (request.task(), request.iteration) {
        ("go", 1) => Turn::Call(vec![("agent__helper", r#"{"input":"hang"}"#), ("agent__helper", r#"{"input":"wait"}"#)]),
        ("wait", 1) => call(&[LOOKUP]),
        _ => Turn::Hang,
    });
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    pass_ms(50).await;
    let children = stage.children(&a, run).await;
    assert_eq!(children.iter().filter(|child| !child.state.has_ended()).count(), 2);
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Begun; 2], "the parent needs no worker");
    stop(&engine, &a, run).await;
    pass_ms(50).await;
    for child in stage.children(&a, run).await {
        assert!(is_stopped(&child.state.phase), "{:?}", child.state.phase);
    }
    assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Dropped; 2]);
    assert_eq!(engine.working(), 0, "nothing is in flight");
}

/// The two runs are on two servers, and no doorbell is received: the sweep finds the stop, although the child is running.
#[tokio::test(start_paused = true)]
async fn s_15_a_stop_reaches_a_child_that_runs_on_another_server() {
    let stage = stage(asks(1, |_| Turn::Hang)).with_settings(|settings| settings.lease_ms = 15_000);
    stage.store.keeps_leases.store(true, std::sync::atomic::Ordering::SeqCst);
    let (one, a) = (stage.engine(1), agent("a"));
    let run = begin(&one, &a, "go").await;
    pass_ms(50).await;
    let child = stage.children(&a, run).await.remove(0);
    let two = stage.engine(2);
    stop(&two, &a, run).await;
    assert!(is_stopped(&stage.run(&a, run).await.state.phase));
    pass_ms(1_000).await;
    let child = stage.run(&a, child.id).await;
    assert!(is_stopped(&child.state.phase), "{:?}", child.state.phase);
    assert_eq!(stage.story(&a, child.id).await, ["accepted", "leased", "lap_started", "ended"], "its own server stopped it");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_gives_its_parent_an_error_to_read() {
    let stage = stage(asks(1, |_| Turn::Fail("invalid_request", windlass_ports::Retry::Never)));
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    let text = stage.ended(&a, run).await;
    assert!(text.starts_with("error: the model could not be called"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_start_no_child_and_the_model_reads_why() {
    let stage = stage(|request| match (request.task(), request.iteration) {
        ("go", 1) => Turn::Call(vec![("agent__helper", "{}"), ("agent__nobody", r#"{"input":"x"}"#)]),
        _ => say(&request.results().join(" | ")),
    });
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    let text = stage.ended(&a, run).await;
    assert!(text.contains("bad_arguments") && text.contains("unknown_tool"), "{text}");
    assert!(stage.children(&a, run).await.is_empty());
}

/// Two agents that may ask each other go down as many levels as the root allows, and no further.
#[tokio::test(start_paused = true)]
async fn a_cycle_of_agents_ends_at_the_depth_of_the_root() {
    let play = |request: &ModelRequest| match request.tools.first().map(|tool| tool.name.to_string()) {
        Some(tool) if request.iteration == 1 => Turn::Call(vec![(if tool == "agent__b" { "agent__b" } else { "agent__a" }, ASK.1)]),
        Some(_) => say(&format!("({})", request.results().join(","))),
        None => say("leaf"),
    };
    for (levels, expected) in [(1, "(leaf)"), (2, "((leaf))"), (0, "leaf")] {
        let stage = Stage::new(play).with_agent("a", &["agent/b"], levels).with_agent("b", &["agent/a"], 5);
        let (engine, a) = (stage.engine(1), agent("a"));
        let run = begin(&engine, &a, "go").await;
        assert_eq!(stage.ended(&a, run).await, expected, "{levels} levels");
    }
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_tree_are_counted_at_its_root_and_shared_out() {
    let usage = |tokens| Usage { tokens_in: tokens, ..Usage::default() };
    let stage = stage(move |request| match (request.task(), request.iteration) {
        ("go", 1) => Turn::Call(vec![ASK; 2]),
        ("go", _) => Turn::SayAs { upstream: "m", usage: usage(10), text: "done".into() },
        _ => Turn::SayAs { upstream: "m", usage: usage(30), text: "counted".into() },
    });
    let budgets = Budgets { iterations: 5, calls: Some(9), tokens: Some(1_000), wall_ms: None, children: Some(2), cost: None };
    let stage = stage.change_agent("a", |spec| spec.budgets = budgets);
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    stage.ended(&a, run).await;
    let (state, children) = (stage.run(&a, run).await.state, stage.children(&a, run).await);
    let below: u64 = children.iter().map(|child| child.state.tokens()).sum();
    assert_eq!((state.below.tokens(), state.tokens()), (below, below + state.own_tokens()));
    assert_eq!(below, 60);
    for child in children {
        let share = child.manifest.budgets;
        assert!(share.tokens.is_some_and(|tokens| tokens <= 500), "{share:?}");
        assert_eq!((share.calls, share.children), (Some(3), Some(0)), "seven calls are left, and no children");
    }
}

#[tokio::test(start_paused = true)]
async fn more_children_than_the_budget_are_not_started() {
    let stage = stage(asks(11, |_| say("x")));
    let budgets = Budgets { iterations: 5, calls: None, tokens: None, wall_ms: None, children: Some(10), cost: None };
    let stage = stage.change_agent("a", |spec| spec.budgets = budgets);
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    assert_eq!(stage.ended(&a, run).await, "stopped by the budget: children would be 11, 10 allowed");
    assert!(stage.children(&a, run).await.is_empty());
}

/// A rule that holds a tool for the parent holds it for the child.
#[tokio::test(start_paused = true)]
async fn the_rules_of_the_parent_hold_for_its_children() {
    let play = |request: &ModelRequest| match (request.task(), request.iteration) {
        ("go", 1) => Turn::Call(vec![ASK]),
        (_, 1) => call(&[LOOK]),
        _ => say("done"),
    };
    let stage = stage(play).with_gate(LOOK, |_| {});
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    pass_ms(50).await;
    let child = stage.children(&a, run).await.remove(0);
    assert_eq!((child.state.interrupts.len(), stage.tools.starts_of(LOOK)), (1, 0));
    assert!(!stage.run(&a, run).await.state.has_ended());
}

#[tokio::test(start_paused = true)]
async fn a_result_of_a_child_is_not_taken_from_a_client() {
    let stage = stage(asks(1, |_| Turn::Hang));
    let (engine, a) = (stage.engine(1), agent("a"));
    let run = begin(&engine, &a, "go").await;
    pass_ms(50).await;
    let refused = engine.report(result_of(&a, run, 1, "\"mine\"")).await;
    assert!(matches!(refused, Err(EngineError::NotExternal)), "{refused:?}");
}
