//! A repeated request gets the run of the first one, whenever it comes.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use windlass_engine::{Action, EngineError, Enqueue};
use windlass_kernel::AgentKey;
use windlass_ports::{Lineage, RequestKey};

use crate::support::*;

fn keyed(agent: &AgentKey, key: &str) -> Enqueue {
    Enqueue { key: Some(RequestKey { key: key.into(), asked: [0; 16] }), ..request(agent, "go") }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_finds_its_run_queued_running_and_ended() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let engine = stage.engine(1);
    let a = agent("a");
    let first = engine.enqueue(keyed(&a, "one")).await.unwrap();
    let second = engine.enqueue(keyed(&a, "two")).await.unwrap();
    assert!(second.is_queued);
    assert_eq!(engine.enqueue(keyed(&a, "one")).await.unwrap(), first, "running");
    assert_eq!(engine.enqueue(keyed(&a, "two")).await.unwrap(), second, "queued");
    hold.open();
    assert_eq!(stage.ended(&a, second.run).await, "done");
    let again = engine.enqueue(keyed(&a, "one")).await.unwrap();
    assert_eq!((again.run, again.message, again.is_queued), (first.run, first.message, false), "ended");
    settle().await;
    assert_eq!((stage.model.count("go"), stage.head(&a).await.runs), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn requests_repeated_at_the_same_time_are_one_run() {
    for workers_max in [0, 1, 1000] {
        let stage = Stage::new(|_| say("done")).with_settings(|settings| settings.workers_max = workers_max);
        let engine = stage.engine(1);
        let a = agent("a");
        let asked = join_all((0..100).map(|_| engine.enqueue(keyed(&a, "k")))).await;
        let runs: BTreeSet<_> = asked.into_iter().map(|enqueued| enqueued.unwrap().run).collect();
        assert_eq!((runs.len(), stage.head(&a).await.runs), (1, 1));
        if workers_max > 0 {
            assert_eq!(stage.ended(&a, *runs.first().unwrap()).await, "done");
            assert_eq!(stage.model.count("go"), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_key_of_another_tenant_is_another_run() {
    let stage = Stage::new(|_| say("done"));
    let engine = stage.engine(1);
    let (own, foreign) = (agent("a"), of_tenant("other", "a"));
    let first = engine.enqueue(keyed(&own, "k")).await.unwrap().run;
    let second = engine.enqueue(keyed(&foreign, "k")).await.unwrap().run;
    assert_ne!(first, second);
    assert_eq!(stage.ended(&own, first).await, "done");
    assert_eq!(stage.ended(&foreign, second).await, "done");
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_agent_run_one_after_the_other_in_their_order() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOK]) } else { say("done") });
    let engine = stage.engine(1);
    let a = agent("a");
    let asked = join_all(["1", "2", "3", "4", "5"].map(|task| engine.begin(&a, task))).await;
    for enqueued in &asked {
        assert_eq!(stage.ended(&a, enqueued.run).await, "done");
    }
    let order: Vec<String> = stage.model.requests().iter().map(|request| request.task().to_owned()).collect();
    assert_eq!(order, ["1", "1", "2", "2", "3", "3", "4", "4", "5", "5"]);
    let epochs: BTreeSet<_> =
        join_all(asked.iter().map(|enqueued| stage.run(&a, enqueued.run))).await.iter().map(|run| run.epoch).collect();
    assert_eq!(epochs.len(), 5, "an epoch each");
}

#[tokio::test(start_paused = true)]
async fn c_027_an_action_needs_an_idle_agent_and_delivers_its_result() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let action = |id: &str| Action {
        agent: agent("a"),
        action_id: id.into(),
        tool: LOOK.into(),
        arguments: r#"{"q":1}"#.into(),
        lineage: Lineage::default(),
    };
    let done = engine.act(action("one")).await.unwrap();
    assert!(!done.is_queued);
    stage.ended(&a, done.run).await;
    assert_eq!(stage.tools.starts_of(LOOK), 1);
    assert_eq!(engine.act(action("one")).await.unwrap().run, done.run, "the same action is the same run");
    engine.begin(&a, "go").await;
    assert!(matches!(engine.act(action("two")).await, Err(EngineError::Busy)));
    assert!(stage.model.requests().iter().all(|request| request.task() == "go"), "an action calls no model");
}
