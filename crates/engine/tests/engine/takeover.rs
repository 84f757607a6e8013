//! Lost owners, and owners that only seem lost: the run continues once, and commits of the old owner are fenced.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, Engine};
use windlass_kernel::{AgentKey, Cause, HeadStatus, RunId};
use windlass_ports::{CallStatus, Guard, ModelRequest, NodeId, StoreError};
use windlass_store::{SqliteStore, StoreOptions};

use crate::support::*;

fn think_then_say(request: &ModelRequest) -> Turn {
    match request.iteration {
        1 => call(&[LOOK, WRITE]),
        _ => say(&request.results().join(",")),
    }
}

fn begin(process: &Process, agent: &AgentKey) -> RunId {
    process.does(async {
        let run = process.engine.begin(agent, "go").await.run;
        settle().await;
        run
    })
}

/// Answers an interrupt.
async fn decide(engine: &Engine, agent: &AgentKey, run: RunId, target: AnswerTarget, action: AnswerAction) {
    engine.answer_interrupt(AnswerInterrupt { agent: agent.clone(), run, target, action, source: None, key: None }).await.unwrap();
}

#[test]
fn c_085_a_lost_owners_model_call_is_made_again_under_a_new_epoch() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = begin(&first, &a);
    let before = first.does(stage.head(&a));
    first.kill();
    hold.open();
    let second = Process::start(&stage, 2);
    assert_eq!(second.does(stage.ended(&a, run)), "done");
    second.does(async {
        assert!(stage.head(&a).await.epoch > before.epoch, "the epoch is raised");
        assert_eq!(stage.story(&a, run).await, ["accepted", "leased", "lap_started", "taken_over", "replied", "ended"]);
        assert_eq!(stage.run(&a, run).await.state.iteration, 1, "the iteration is the same");
    });
    assert_eq!(stage.model.count("go"), 2);
}

#[test]
fn a_read_cut_by_a_crash_starts_again_with_the_same_key_and_a_write_waits_for_a_person() {
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = hangs.clone();
    let stage = Stage::new(think_then_say).with_tools(move |call| match is_hanging.load(SeqCst) {
        true => Act::Hang,
        false => give(&format!("\"{}\"", call.tool)),
    });
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = begin(&first, &a);
    first.kill();
    hangs.store(false, SeqCst);
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(1000).await;
        assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Received, CallStatus::Parked]);
        assert_eq!(stage.tools.starts_of(WRITE), 1);
        let attempts: Vec<u32> = stage.calls(&a, run).await.iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, [2, 1], "the number of starts of each call");
        let looks: Vec<_> = stage.tools.starts().into_iter().filter(|(_, tool)| tool == LOOK).collect();
        assert_eq!(looks.len(), 2);
        assert_eq!(looks[0], looks[1], "the same idempotency key");
        let call = stage.calls(&a, run).await[1].call;
        let action = AnswerAction::Record { status: windlass_kernel::TaskStatus::Success, result: "\"by hand\"".into() };
        decide(&second.engine, &a, run, AnswerTarget::Call(call), action).await;
        assert_eq!(stage.ended(&a, run).await, "look,by hand");
    });
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

/// How often each call of a run was started.
async fn attempts(stage: &Stage, agent: &AgentKey, run: RunId) -> Vec<u32> {
    stage.calls(agent, run).await.iter().map(|call| call.attempt).collect()
}

#[test]
fn c_002_a_commit_of_an_old_owner_is_fenced() {
    let stage = Stage::new(think_then_say).with_tools(|_| Act::Hang);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = begin(&first, &a);
    // The commit that the old owner would send next if it had not been taken for lost.
    let old = first.does(stage.data.load(&a)).unwrap().unwrap();
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        settle().await;
        let after = stage.data.load(&a).await.unwrap().unwrap();
        assert!(after.head.epoch > old.head.epoch);
        let last = stage.store.commits().pop().unwrap();
        let state = old.run.unwrap().state;
        let commit = windlass_ports::Commit {
            kind: last.kind,
            run,
            node: NodeId(1),
            raise_epoch: false,
            state,
            state_write: windlass_ports::StateWrite::Always,
            events: last.events,
            items: Vec::new(),
            appended: Vec::new(),
            calls: Vec::new(),
            interrupts: Vec::new(),
            messages: Vec::new(),
            consumed: Vec::new(),
            clears_deltas: false,
            follows: None,
            stops: Vec::new(),
            report: None,
            now: second.engine.now(),
        };
        let current = Guard { agent: a.clone(), status: after.head.status, epoch: after.head.epoch, run, seq: after.head.seq };
        let stale_epoch = Guard { epoch: old.head.epoch, ..current.clone() };
        let stale_run = Guard { run: RunId(uuid::Uuid::from_u128(999)), ..current.clone() };
        for guard in [stale_epoch, stale_run] {
            assert!(matches!(stage.data.commit(guard, commit.clone()).await, Err(StoreError::Fenced)));
        }
        assert_eq!(stage.data.load(&a).await.unwrap().unwrap().head, after.head, "nothing changed");
    });
}

/// The first process is not lost, only slow: its model answers after another process has taken over.
#[tokio::test(start_paused = true)]
async fn c_084_a_zombie_drops_its_work_and_starts_nothing() {
    let late = Latch::shut();
    let shut = late.clone();
    let is_first = AtomicBool::new(true);
    let stage = Stage::new(move |request| match request.iteration {
        1 if is_first.swap(false, SeqCst) => Turn::After(shut.clone(), Box::new(call(&[WRITE]))),
        1 => Turn::Hang,
        _ => say("done"),
    });
    let zombie = stage.engine(1);
    let a = agent("a");
    let run = zombie.begin(&a, "go").await.run;
    settle().await;
    let _owner = stage.engine(2);
    settle().await;
    let taken = stage.head(&a).await;
    assert_eq!(stage.model.count("go"), 2);
    late.open();
    pass_ms(5000).await;
    let commits = stage.store.commits();
    assert!(commits.iter().any(|seen| seen.node == NodeId(1) && seen.is_fenced), "its answer was fenced");
    assert!(commits.iter().all(|seen| seen.node != NodeId(1) || seen.done.is_none()), "the old owner committed nothing: {commits:#?}");
    assert!(stage.tools.starts().is_empty(), "it started nothing");
    assert_eq!(stage.model.count("go"), 2, "it made no model call");
    assert_eq!(stage.head(&a).await, taken, "the owner is undisturbed");
    assert_eq!(stage.run(&a, run).await.state.takeovers, 1);
}

/// A process has run a write, and a doorbell for the agent arrives at the same time.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_just_ended_is_not_taken_for_a_lost_one() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[WRITE]) } else { say(&request.results().join(",")) })
        .with_tools(move |_| Act::After(shut.clone(), Box::new(give("7"))));
    let a = agent("a");
    let engine = stage.engine(1);
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    // The doorbell comes first, and the store answers slowly: both messages are in the batch when the worker loads the run.
    stage.store.fault(|faults| faults.refuse_loads = 1);
    engine.look(&a);
    settle().await;
    hold.open();
    engine.look(&a);
    assert_eq!(stage.ended(&a, run).await, "7");
    let story = stage.story(&a, run).await;
    assert!(!story.contains(&"taken_over"), "{story:?}");
}

#[test]
fn five_owners_lost_without_progress_park_the_run() {
    let stage = Stage::new(|_| Turn::Hang);
    let a = agent("a");
    let mut process = Process::start(&stage, 1);
    let run = begin(&process, &a);
    for node in 2..=6 {
        assert_eq!(process.does(stage.run(&a, run)).state.hold(), None, "before node {node}");
        process.kill();
        process = Process::start(&stage, node);
        process.does(settle());
    }
    process.does(async {
        assert_eq!(stage.run(&a, run).await.state.hold().map(|hold| hold.cause), Some(Cause::OwnersLost));
        assert_eq!(stage.head(&a).await.status, HeadStatus::Suspended);
        assert_eq!(stage.model.count("go"), 5, "the sixth owner makes no call");
    });
    process.kill();
    let seventh = Process::start(&stage, 7);
    seventh.does(async {
        pass_ms(60_000).await;
        assert_eq!(stage.model.count("go"), 5);
        decide(&seventh.engine, &a, run, AnswerTarget::Run, AnswerAction::Resume).await;
        settle().await;
        assert_eq!(stage.model.count("go"), 6, "a person resumed the run");
    });
}

/// Such a run loses nothing with its owner, however often the server is restarted meanwhile.
#[test]
fn restarts_while_a_run_waits_for_a_service_do_not_count_as_lost_owners() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say(&request.results().join(",")) });
    let a = agent("a");
    let mut process = Process::start(&stage, 1);
    let run = begin(&process, &a);
    for node in 2..=8 {
        process.kill();
        process = Process::start(&stage, node);
        // A report to another agent makes each of the processes check this one.
        begin(&process, &a);
    }
    process.does(async {
        assert_eq!(stage.run(&a, run).await.state.hold(), None, "{:?}", stage.story(&a, run).await);
        process.engine.answer(&a, run, 1, "4").await;
        assert_eq!(stage.ended(&a, run).await, "4");
    });
}

/// The new process has fewer workers than there are lost runs, and the first ones it takes over hang.
#[test]
fn deadlines_are_handled_while_lost_runs_wait_for_a_worker() {
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&[LOOK]),
        _ => say("done"),
    })
    .with_tools(|_| Act::Hang)
    .with_settings(|settings| settings.call_deadline_ms = 30_000);
    let agents = [agent("a"), agent("b"), agent("c"), agent("d")];
    let first = Process::start(&stage, 1);
    let runs = agents.clone().map(|agent| begin(&first, &agent));
    first.kill();
    let stage = stage.with_settings(|settings| settings.workers_max = 2);
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(120_000).await;
        for (agent, run) in agents.iter().zip(runs) {
            assert!(stage.run(agent, run).await.state.has_ended(), "{:?}", stage.head(agent).await);
        }
    });
}

async fn sqlite_ended(engine: &Engine, agent: &AgentKey, run: RunId) {
    let mut watch = engine.watch_agent(agent);
    while !engine.views().run(&agent.tenant, run).await.unwrap().unwrap().state.has_ended() {
        watch.changed().await;
    }
}

/// The same over a real file. Time is real here: a paused clock would run ahead of the disk.
#[test]
fn the_next_process_continues_what_was_committed_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let a = agent("a");
    let on_disk = |path: &Path| {
        let store = SqliteStore::open(path, StoreOptions::default()).unwrap();
        let node = store.node().0;
        (Stage::on(Arc::new(store), think_then_say), node)
    };
    let (stage, node) = on_disk(&path);
    let started = [Latch::shut(), Latch::shut()];
    let [look, write] = started.clone();
    let stage = stage.with_tools(move |call| {
        if call.tool.as_str() == LOOK {
            look.open()
        } else {
            write.open()
        }
        Act::Hang
    });
    let run = in_real_time(async {
        let run = stage.engine(node).begin(&a, "go").await.run;
        for latch in &started {
            latch.passed().await;
        }
        run
    });
    let (starts, ids) = (stage.tools.starts(), stage.ids.clone());
    drop(stage);
    let (stage, next) = on_disk(&path);
    let stage = stage.after(ids);
    assert!(next > node);
    in_real_time(async {
        let engine = stage.engine(next);
        let mut watch = engine.watch_agent(&a);
        while stage.call_statuses(&a, run).await != [CallStatus::Received, CallStatus::Parked] {
            watch.changed().await;
        }
        assert_eq!(stage.tools.starts(), [starts[0].clone()], "only the read, with its old key");
        let call = stage.calls(&a, run).await[1].call;
        decide(&engine, &a, run, AnswerTarget::Call(call), AnswerAction::Release).await;
        sqlite_ended(&engine, &a, run).await;
        assert_eq!(stage.ended(&a, run).await, "1,1");
        assert_eq!(attempts(&stage, &a, run).await, [2, 2], "a person released the write");
    });
}
