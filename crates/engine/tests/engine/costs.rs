//! Cost budgets: prices are pinned when a run starts, and what children cost counts for their parent.

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, Engine, EngineError, Enqueue, PriceTable};
use windlass_kernel::{AgentKey, BudgetKind, EndReason, Phase, Prices, RunId, TaskStatus, Usage, budget};

use crate::support::*;

/// A token costs `dollars` micro-dollars.
fn prices(dollars: u64) -> PriceTable {
    let each = dollars * 1_000_000;
    PriceTable::new([("script".to_owned(), Prices { input: each, output: each, cached: each, cache_written: each })].into())
}

fn used(tokens: u64, text: &str) -> Turn {
    Turn::SayAs { upstream: "m", usage: Usage { tokens_in: tokens, ..Usage::default() }, text: text.into() }
}

/// An agent whose runs may cost `limit` micro-dollars, and its helper, which has no limit of its own.
fn stage(limit: u64, play: impl Fn(&windlass_ports::ModelRequest) -> Turn + Send + Sync + 'static) -> Stage {
    let stage = Stage::new(play).with_agent("a", &["agent/helper", LOOK], 1).with_agent("helper", &[], 0);
    let stage = stage.change_agent("a", |spec| spec.cost_limit = Some(limit));
    Stage { prices: prices(2), ..stage }
}

async fn begin(engine: &Engine, agent: &AgentKey) -> RunId {
    engine.enqueue(Enqueue { tools: None, ..request(agent, "go") }).await.unwrap().run
}

async fn cost(stage: &Stage, agent: &AgentKey, run: RunId) -> Option<u64> {
    let view = stage.run(agent, run).await;
    budget::cost(&view.state, &view.manifest.budgets)
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_cost_budget_needs_a_price_of_its_model() {
    let stage = Stage { prices: PriceTable::default(), ..stage(100, |_| say("done")) };
    let engine = stage.engine(1);
    let a = agent("a");
    let refused = engine.enqueue(Enqueue { tools: None, ..request(&a, "go") }).await;
    assert!(matches!(refused, Err(EngineError::UnpricedModel(model)) if model == "script"));
    let free = engine.begin(&agent("b"), "go").await.run;
    assert_eq!(stage.ended(&agent("b"), free).await, "done");
    assert_eq!(cost(&stage, &agent("b"), free).await, None, "an unknown cost is not zero");
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_at_its_cost_and_keeps_its_prices_when_they_change() {
    let play = |request: &windlass_ports::ModelRequest| match request.iteration {
        1 => Turn::Call(vec![("agent__helper", r#"{"input":"count"}"#)]),
        _ => used(20, "done"),
    };
    let stage = stage(100, move |request| if request.task() == "go" { play(request) } else { used(60, "counted") });
    let stage = stage.change_agent("a", |spec| spec.budgets_park = true);
    let a = agent("a");
    let first = stage.engine(1);
    let run = begin(&first, &a).await;
    pass_ms(50).await;
    let held = stage.run(&a, run).await.state;
    let open = held.hold().expect("it waits for a higher limit").clone();
    let passed = open.budget.unwrap();
    assert_eq!((passed.breach.kind, passed.breach.limit, passed.breach.observed), (BudgetKind::CostMicroUsd, 100, 120));
    let child = stage.children(&a, run).await.remove(0);
    assert_eq!(child.manifest.budgets.cost.unwrap().limit, 100, "the child may use what is left");
    assert_eq!((held.below.cost, held.below.tokens()), (120, 60));

    let later = Stage { prices: prices(1_000), ..stage };
    let second = later.engine(2);
    let target = AnswerTarget::Interrupt { number: open.number, shows: None };
    let raise = |limit| AnswerInterrupt {
        agent: a.clone(),
        run,
        target: target.clone(),
        action: AnswerAction::Raise { limit },
        source: None,
        key: None,
    };
    assert!(matches!(second.answer_interrupt(raise(120)).await, Err(EngineError::RaisedTooLittle { limit_min: 121, .. })));
    second.answer_interrupt(raise(200)).await.unwrap();
    assert_eq!(later.ended(&a, run).await, "done");
    assert_eq!(cost(&later, &a, run).await, Some(160), "sixty tokens of the child and twenty of its own");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_wait_ends_at_its_cost() {
    let stage = stage(30, |request| if request.iteration == 1 { used(15, "") } else { say("never") });
    let a = agent("a");
    let engine = stage.engine(1);
    let run = begin(&engine, &a).await;
    stage.ended(&a, run).await;
    let ended = stage.run(&a, run).await;
    let is_answered = matches!(ended.state.phase, Phase::Ended { status: TaskStatus::Success, reason: EndReason::Answered });
    assert!(is_answered, "an answer that has come is given: {:?}", ended.state.phase);
    assert_eq!(cost(&stage, &a, run).await, Some(30));
}
