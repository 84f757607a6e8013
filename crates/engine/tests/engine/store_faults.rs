//! A failing store: paid results are not lost, clients get an error, and an unreadable agent does not block others.

use std::{path::Path, sync::Arc};

use windlass_engine::{Engine, EngineError, Stop};
use windlass_kernel::AgentKey;
use windlass_ports::{CallStatus, StoreError};
use windlass_store::{SqliteStore, StoreOptions};

use crate::support::*;

fn is_unavailable<T>(outcome: Result<T, EngineError>) -> bool {
    matches!(outcome, Err(EngineError::Store(StoreError::Unavailable(_))))
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_until_it_can_be_committed() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| Turn::After(shut.clone(), Box::new(say("dear"))));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.refuse_commits = 10);
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "dear");
    assert_eq!(stage.model.count("go"), 1, "the model was not called again");
}

#[tokio::test(start_paused = true)]
async fn a_tools_result_is_kept_until_it_can_be_committed() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[WRITE]) } else { say(&request.results().join(",")) })
        .with_tools(move |_| Act::After(shut.clone(), Box::new(give("\"written\""))));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.is_down = true);
    hold.open();
    pass_ms(60_000).await;
    stage.store.fault(|faults| faults.is_down = false);
    assert_eq!(stage.ended(&a, run).await, "written");
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

/// The worst case of a failing disk: the commit was written, and the store did not confirm it.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    for task in ["say", "look"] {
        let stage = Stage::new(|request| match (request.task(), request.iteration) {
            ("look", 1) => call(&[LOOK]),
            _ => say("done"),
        });
        let engine = stage.engine(1);
        let a = agent("a");
        stage.store.fault(|faults| faults.lose_answers = 1);
        let run = engine.begin(&a, task).await.run;
        assert_eq!(stage.ended(&a, run).await, "done", "{task}");
        let replies = stage.story(&a, run).await.iter().filter(|kind| **kind == "replied").count();
        assert_eq!(replies, if task == "look" { 2 } else { 1 });
    }
}

/// A read and a write run concurrently, and the store's answer to the read's commit is lost.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_disturb_effects_in_flight() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&[LOOK, WRITE]),
        _ => say(&request.results().join(",")),
    })
    .with_tools(move |call| match call.tool.as_str() {
        WRITE => Act::After(shut.clone(), Box::new(give("2"))),
        _ => give("1"),
    });
    let engine = stage.engine(1);
    let a = agent("a");
    stage.store.fault(|faults| faults.lose_answers = 2);
    let run = engine.begin(&a, "go").await.run;
    pass_ms(10_000).await;
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "1,2");
    assert_eq!((stage.tools.starts_of(WRITE), stage.tools.gauge.cancelled()), (1, 0), "the write was not disturbed");
    let story = stage.story(&a, run).await;
    assert!(!story.contains(&"taken_over"), "no owner was lost: {story:?}");
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_whose_answer_was_lost_runs_exactly_once() {
    let stage = Stage::new(|_| say("done"));
    let engine = stage.engine(1);
    let a = agent("a");
    stage.store.fault(|faults| faults.lose_enqueues = 1);
    let keyed = windlass_engine::Enqueue { key: Some(windlass_ports::RequestKey { key: "k".into(), asked: [0; 16] }), ..request(&a, "go") };
    assert!(is_unavailable(engine.enqueue(keyed.clone()).await));
    pass_ms(10_000).await;
    assert_eq!(stage.model.count("go"), 1, "it runs without a second request");
    let run = engine.enqueue(keyed).await.unwrap().run;
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!((stage.model.count("go"), stage.head(&a).await.runs), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_while_the_store_is_down_get_an_error() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say(&request.results().join(",")) });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    stage.store.fault(|faults| faults.is_down = true);
    assert!(is_unavailable(engine.enqueue(request(&agent("b"), "go")).await));
    assert!(is_unavailable(engine.report(result_of(&a, run, 1, "1")).await));
    let stop = Stop { agent: a.clone(), run, reason: String::new(), epoch: None, source: None, key: None };
    assert!(is_unavailable(engine.stop(stop).await));
    assert!(is_unavailable(engine.claim(claim(LOOKUP)).await));
    stage.store.fault(|faults| faults.is_down = false);
    engine.answer(&a, run, 1, "9").await;
    assert_eq!(stage.ended(&a, run).await, "9");
}

#[tokio::test(start_paused = true)]
async fn an_engine_waits_for_a_store_that_is_down_at_its_start() {
    let stage = Stage::new(|_| say("done"));
    let a = agent("a");
    let run = {
        let front =
            Stage { settings: windlass_engine::Settings { workers_max: 0, ..stage.settings.clone() }, ..Stage::new(|_| Turn::Hang) };
        let front = Stage { data: stage.data.clone(), store: stage.store.clone(), ids: stage.ids.clone(), ..front };
        front.engine(1).begin(&a, "go").await.run
    };
    stage.store.fault(|faults| faults.is_down = true);
    let _engine = stage.engine(2);
    pass_ms(30_000).await;
    stage.store.fault(|faults| faults.is_down = false);
    assert_eq!(stage.ended(&a, run).await, "done");
}

/// The store did not confirm that the run was entered. Its worker stays until that is known, although others need the room. Otherwise the
/// run's effects would be taken for lost.
#[tokio::test(start_paused = true)]
async fn a_run_whose_enqueue_was_not_confirmed_is_continued_by_the_worker_that_entered_it() {
    let stage = Stage::new(|request| say(request.task())).with_settings(|settings| settings.workers_max = 1);
    let (a, b) = (agent("a"), agent("b"));
    let engine = stage.engine(1);
    stage.store.fault(|faults| (faults.lose_enqueues, faults.refuse_loads) = (1, 1));
    assert!(is_unavailable(engine.enqueue(request(&b, "go")).await));
    settle().await;
    let run = stage.data.run_from(&b, 1).await.unwrap().unwrap().id;
    assert_eq!(stage.story(&b, run).await, ["accepted", "leased", "lap_started"]);
    let other = engine.begin(&a, "wait").await.run;
    settle().await;
    assert_eq!((stage.model.count("go"), stage.model.count("wait")), (0, 0), "there is no worker for it");
    assert_eq!(stage.ended(&b, run).await, "go");
    assert_eq!(stage.run(&b, run).await.state.takeovers, 0, "{:?}", stage.story(&b, run).await);
    assert_eq!(stage.ended(&a, other).await, "wait");
}

async fn wait_for(engine: &Engine, agent: &AgentKey, mut is_so: impl AsyncFnMut() -> bool) {
    let mut watch = engine.watch_agent(agent);
    while !is_so().await {
        watch.changed().await;
    }
}

/// Over a real file, whose bytes are damaged between two processes. Time is real here.
#[test]
fn an_agent_with_unreadable_state_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let on_disk = |path: &Path| {
        let store = SqliteStore::open(path, StoreOptions::default()).unwrap();
        let node = store.node().0;
        let play = |request: &windlass_ports::ModelRequest| if request.iteration == 1 { call(&[LOOK]) } else { say("done") };
        (Stage::on(Arc::new(store), play), node)
    };
    let (bad, good) = (agent("bad"), agent("good"));
    let (stage, node) = on_disk(&path);
    let stage = stage.with_tools(|_| Act::Hang);
    let (spoilt, whole) = in_real_time(async {
        let engine = stage.engine(node);
        let (spoilt, whole) = (engine.begin(&bad, "go").await.run, engine.begin(&good, "go").await.run);
        for (agent, run) in [(&bad, spoilt), (&good, whole)] {
            wait_for(&engine, agent, async || stage.call_statuses(agent, run).await == [CallStatus::Started]).await;
        }
        (spoilt, whole)
    });
    let ids = stage.ids.clone();
    drop(stage);
    let file = rusqlite::Connection::open(&path).unwrap();
    let changed = file.execute("UPDATE runs SET state = CAST('{\"phase\":\"lost\"}' AS BLOB) WHERE run = ?1", [spoilt.as_bytes()]).unwrap();
    assert_eq!(changed, 1);
    drop(file);
    let (stage, next) = on_disk(&path);
    let stage = stage.after(ids);
    in_real_time(async {
        let engine = stage.engine(next);
        wait_for(&engine, &good, async || stage.run(&good, whole).await.state.has_ended()).await;
        wait_for(&engine, &bad, async || stage.head(&bad).await.quarantined.is_some()).await;
        let reason = stage.head(&bad).await.quarantined.unwrap();
        assert!(reason.contains("cannot be read"), "{reason}");
        assert!(stage.data.due(engine.now().plus_ms(1_000_000), 10).await.unwrap().is_empty(), "the sweep does not return it again");
        let other = engine.begin(&good, "again").await.run;
        wait_for(&engine, &good, async || stage.run(&good, other).await.state.has_ended()).await;
    });
}
