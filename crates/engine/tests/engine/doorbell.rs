//! Without doorbells the sweep finds all work, only later. Few workers serve many agents.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use futures_util::future::join_all;
use windlass_kernel::{AgentKey, HeadStatus};
use windlass_ports::{ModelRequest, RunStatus};

use crate::support::*;

fn ask_a_service(request: &ModelRequest) -> Turn {
    match request.iteration {
        1 => call(&[LOOKUP]),
        _ => say(&request.results().join(",")),
    }
}

fn agents(count: usize) -> Vec<AgentKey> {
    (0..count).map(|n| agent(&format!("a{n:03}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn c_005_with_every_doorbell_lost_all_work_is_done() {
    for bell in [None, Some(Arc::new(LostBell::default()))] {
        let stage = Stage { bell: bell.clone(), ..Stage::new(ask_a_service).with_settings(|settings| settings.workers_max = 2) };
        let engine = stage.engine(1);
        let agents = agents(10);
        // Each agent gets two turns, so that the second one is dispatched by the end of the first.
        let asked = join_all(agents.iter().flat_map(|agent| [engine.begin(agent, "go"), engine.begin(agent, "go")])).await;
        let mut served = 0;
        for _ in 0..1000 {
            served += engine.serve(LOOKUP, "5").await;
            pass_ms(50).await;
        }
        assert_eq!(served, 20);
        for (index, enqueued) in asked.iter().enumerate() {
            assert_eq!(stage.ended(&agents[index / 2], enqueued.run).await, "5");
        }
        assert!(bell.is_none_or(|bell| bell.rings.load(SeqCst) > 0), "other processes were notified");
    }
}

/// The first node accepts requests and has no room for workers.
#[tokio::test(start_paused = true)]
async fn c_005_a_node_finds_what_another_one_accepted_without_a_doorbell() {
    let stage = Stage::new(ask_a_service).with_settings(|settings| settings.workers_max = 0);
    let front = stage.engine(1);
    let back = Stage { settings: windlass_engine::Settings { workers_max: 8, ..stage.settings.clone() }, ..stage };
    let _engine = back.engine(2);
    let a = agent("a");
    let (first, second) = (front.begin(&a, "one").await, front.begin(&a, "two").await);
    assert!(!first.is_queued && second.is_queued);
    for enqueued in [&first, &second] {
        while back.head(&a).await.status != HeadStatus::Suspended || back.head(&a).await.run != Some(enqueued.run) {
            pass_ms(50).await;
        }
        front.answer(&a, enqueued.run, 1, "3").await;
        assert_eq!(back.ended(&a, enqueued.run).await, "3");
    }
    assert!(back.store.commits().iter().all(|seen| seen.node.0 == 2), "the node without workers did no work");
}

#[tokio::test(start_paused = true)]
async fn c_013_dispatched_is_leased_and_not_entered() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| Turn::After(shut.clone(), Box::new(say("done")))).with_settings(|settings| settings.workers_max = 1);
    let engine = stage.engine(1);
    let (busy, waiting) = (agent("busy"), agent("waiting"));
    engine.begin(&busy, "go").await;
    let enqueued = engine.begin(&waiting, "go").await;
    settle().await;
    pass_ms(1000).await;
    let head = stage.head(&waiting).await;
    assert_eq!((head.status, head.run, Some(head.epoch)), (HeadStatus::Dispatched, Some(enqueued.run), enqueued.epoch));
    assert_eq!(stage.story(&waiting, enqueued.run).await, ["accepted"], "no worker has entered");
    assert_eq!(stage.run(&waiting, enqueued.run).await.status, RunStatus::Active);
    hold.open();
    assert_eq!(stage.ended(&waiting, enqueued.run).await, "done");
}

#[tokio::test(start_paused = true)]
async fn f_001_a_hundred_agents_at_once_on_four_workers_do_not_deadlock() {
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&[LOOK, LOOK]),
        2 => call(&[LOOKUP]),
        _ => say("done"),
    })
    .with_settings(|settings| settings.workers_max = 4);
    let engine = stage.engine(1);
    let agents = agents(100);
    let asked = join_all(agents.iter().map(|agent| engine.begin(agent, "go"))).await;
    let mut seen = BTreeSet::new();
    let mut served = 0;
    for _ in 0..2000 {
        for agent in &agents {
            seen.insert(stage.head(agent).await.status);
        }
        served += engine.serve(LOOKUP, "5").await;
        pass_ms(20).await;
    }
    assert_eq!(served, 100);
    for (agent, enqueued) in agents.iter().zip(&asked) {
        assert_eq!(stage.ended(agent, enqueued.run).await, "done");
    }
    assert!(seen.contains(&HeadStatus::Dispatched), "{seen:?}");
    assert!(stage.tools.gauge.peak() <= 8, "at most two calls of each of four agents: {}", stage.tools.gauge.peak());
}

/// One agent gets more messages at once than its worker's mailbox holds, half of them reports from its tool service.
#[tokio::test(start_paused = true)]
async fn more_messages_than_the_mailbox_holds_do_not_block_an_agent() {
    let stage = Stage::new(ask_a_service);
    let engine = stage.engine(1);
    let a = agent("a");
    let first = engine.begin(&a, "go").await.run;
    settle().await;
    let requests = (0..300).map(|_| engine.begin(&a, "go"));
    let reports = (0..300).map(|_| engine.report(result_of(&a, first, 1, "1")));
    let (asked, reported) = tokio::join!(join_all(requests), join_all(reports));
    assert_eq!(reported.into_iter().filter(|report| !report.as_ref().unwrap().is_duplicate).count(), 1);
    assert_eq!(stage.ended(&a, first).await, "1");
    let mut served = 0;
    for _ in 0..1000 {
        served += engine.serve(LOOKUP, "2").await;
        pass_ms(20).await;
    }
    assert_eq!(served, 300);
    for enqueued in asked {
        assert_eq!(stage.ended(&a, enqueued.run).await, "2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_service_holds_no_worker() {
    let stage = Stage::new(ask_a_service).with_settings(|settings| settings.workers_max = 1);
    let engine = stage.engine(1);
    let agents = agents(50);
    let asked = join_all(agents.iter().map(|agent| engine.begin(agent, "go"))).await;
    pass_ms(60_000 / 2).await;
    for agent in &agents {
        assert_eq!(stage.head(agent).await.status, HeadStatus::Suspended, "all of them wait, on one worker");
    }
    assert_eq!(engine.serve(LOOKUP, "5").await, 50);
    for (agent, enqueued) in agents.iter().zip(&asked) {
        assert_eq!(stage.ended(agent, enqueued.run).await, "5");
    }
}

/// Agents whose retried model call hangs stay due. They must not hide the agents behind them.
#[tokio::test(start_paused = true)]
async fn agents_that_stay_due_do_not_hide_others_from_the_sweep() {
    let stage = Stage::new(|request| match (request.task(), request.attempt) {
        ("slow", 1) => Turn::Fail("overloaded", windlass_ports::Retry::AfterMs(10)),
        ("slow", _) => Turn::Hang,
        _ => ask_a_service(request),
    })
    .with_settings(|settings| settings.sweep_page = 2);
    let engine = stage.engine(1);
    for agent in agents(4) {
        engine.begin(&agent, "slow").await;
    }
    let z = agent("z");
    let run = engine.begin(&z, "go").await.run;
    settle().await;
    // The service sends no result, and only the sweep can time the call out.
    pass_ms(SERVICE_MS + 1000).await;
    assert!(stage.run(&z, run).await.state.has_ended(), "{:?}", stage.head(&z).await);
}

/// A result of a call that its run has not made keeps an agent due. The agent must not occupy the only worker.
#[tokio::test(start_paused = true)]
async fn an_agent_that_stays_due_does_not_occupy_the_only_worker() {
    let stage = Stage::new(|request| match (request.task(), request.iteration) {
        ("park", 1) => call(&[CHARGE]),
        (_, 1) => call(&[LOOKUP]),
        _ => say("done"),
    })
    .with_settings(|settings| settings.workers_max = 1);
    let (a, b) = (agent("a"), agent("b"));
    let engine = stage.engine(1);
    let parked = engine.begin(&a, "park").await.run;
    settle().await;
    let short = windlass_engine::ClaimRequest { lease_ms: 1000, ..claim(CHARGE) };
    assert_eq!(engine.claim(short).await.unwrap().len(), 1);
    pass_ms(5000).await;
    assert_eq!(stage.call_statuses(&a, parked).await, [windlass_ports::CallStatus::Parked]);
    let item = windlass_kernel::ItemId(uuid::Uuid::from_u128(1 << 100));
    let early = windlass_ports::NewReport {
        agent: a.clone(),
        run: parked,
        message: windlass_ports::NewMessage {
            kind: windlass_ports::MessageKind::ToolResult,
            call: Some(windlass_kernel::CallNumber(7)),
            retry: 0,
            item: Some(item),
            outcome: None,
            after: None,
            source: None,
            reason: None,
            key: None,
        },
        content: windlass_kernel::NewItem::own(item, windlass_kernel::ItemKind::Result, "1".into()),
        now: engine.now(),
    };
    stage.data.report(early).await.unwrap();
    let run = engine.begin(&b, "wait").await.run;
    pass_ms(2 * SERVICE_MS).await;
    assert!(stage.run(&b, run).await.state.has_ended(), "its deadline has passed");
}
