//! Which repeated create requests join the run of the first one.

use std::sync::atomic::Ordering::SeqCst;

use tokio_util::sync::CancellationToken;
use windlass_engine::{Engine, JoinGuard, ReaderGuard, Respond, RetryMark, Unread};
use windlass_kernel::{AgentKey, Budgets, ItemKind, Manifest, Route, RunId, content};
use windlass_ports::{Lineage, RequestHash, Retry};

use crate::support::*;

const HASH: RequestHash = RequestHash([1; 32]);

/// Sends a create request whose client reads.
async fn create(engine: &Engine, hash: RequestHash) -> (AgentKey, RunId, ReaderGuard) {
    let budgets = Budgets { iterations: 5, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
    let mut manifest = Manifest::plain("script", budgets);
    let tool = engine.tool(&"t".into(), &WRITE.into()).expect("the stage has this tool");
    assert_eq!(tool.route, Route::InProcess);
    manifest.tools.push(tool);
    let text = content::encode(&content::Instruction::Text("go".to_owned()));
    let request = Respond {
        tenant: "acme".into(),
        agent: None,
        manifest,
        input: vec![(ItemKind::Instruction, text)],
        parent: None,
        conversation: None,
        left: None,
        note: bytes::Bytes::from_static(b"{}"),
        erase_ms: None,
        dedupe: None,
        request: Some(hash),
        serial: false,
        lineage: Lineage::default(),
    };
    let begun = engine.respond(request).await.unwrap();
    let reader = engine.attend(&begun.agent, begun.run, Unread::GoesOn, Some(hash));
    (begun.agent, begun.run, reader)
}

async fn repeat(engine: &Engine, mark: RetryMark) -> Option<(RunId, JoinGuard)> {
    engine.join_repeated(&"acme".into(), HASH, mark).await.unwrap()
}

async fn joins(engine: &Engine, mark: RetryMark) -> Option<RunId> {
    repeat(engine, mark).await.map(|(run, _)| run)
}

fn hanging() -> Stage {
    Stage::new(|_| Turn::Hang)
}

#[test]
fn an_unmarked_repetition_joins_the_run_of_a_lost_server_once() {
    let stage = hanging();
    let first = Process::start(&stage, 1);
    let (agent, run, reader) = first.does(create(&first.engine, HASH));
    std::mem::forget(reader);
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        let engine = &second.engine;
        assert!(engine.join_repeated(&"other".into(), HASH, RetryMark::Marked).await.unwrap().is_none(), "another tenant's request");
        assert!(engine.join_repeated(&"acme".into(), RequestHash([2; 32]), RetryMark::Marked).await.unwrap().is_none(), "another request");
        let (joined, guard) = repeat(engine, RetryMark::Unmarked).await.expect("it joins");
        assert_eq!(joined, run);
        assert_eq!(joins(engine, RetryMark::Unmarked).await, None, "another repetition is about to get a reader");
        let reader = engine.attend(&agent, run, Unread::GoesOn, Some(HASH));
        drop(guard);
        assert_eq!(joins(engine, RetryMark::Marked).await, None, "the run has a reader");
        drop(reader);
        assert_eq!(joins(engine, RetryMark::Unmarked).await, None, "its client chose to leave");
        assert_eq!(joins(engine, RetryMark::Marked).await, Some(run));
    });
}

#[tokio::test(start_paused = true)]
async fn while_its_server_lives_only_a_marked_repetition_joins() {
    let stage = hanging();
    let engine = stage.engine(1);
    let (_, run, reader) = create(&engine, HASH).await;
    assert_eq!(joins(&engine, RetryMark::Marked).await, None, "its client is still reading");
    drop(reader);
    assert_eq!(joins(&engine, RetryMark::Unmarked).await, None);
    assert_eq!(joins(&engine, RetryMark::Marked).await, Some(run));
}

#[test]
fn after_a_client_left_or_was_answered_a_repetition_starts_a_new_run_also_after_a_crash() {
    for is_answered in [false, true] {
        let stage = hanging();
        let first = Process::start(&stage, 1);
        let run = first.does(async {
            let (_, run, mut reader) = create(&first.engine, HASH).await;
            if is_answered {
                reader.served();
            }
            run
        });
        first.kill();
        let second = Process::start(&stage, 2);
        second.does(async {
            assert_eq!(joins(&second.engine, RetryMark::Unmarked).await, None);
            assert_eq!(joins(&second.engine, RetryMark::Marked).await, (!is_answered).then_some(run), "answered: {is_answered}");
        });
    }
}

#[test]
fn a_client_that_a_stopping_server_cut_off_joins_at_the_next_one() {
    let stage = hanging().with_settings(|settings| settings.drain_ms = 100);
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let (_, run, reader) = create(&first.engine, HASH).await;
        first.engine.drain().await;
        drop(reader);
        run
    });
    first.kill();
    let second = Process::start(&stage, 2);
    assert_eq!(second.does(joins(&second.engine, RetryMark::Unmarked)), Some(run));
}

/// A model call that was lost with its server is made again. A run that then fails has started nothing, unless it made a call before.
#[test]
fn a_failed_run_is_joined_only_if_it_started_a_call() {
    for has_called in [false, true] {
        let stage = Stage::new(move |request| match (request.iteration, has_called) {
            (1, true) => call(&[WRITE]),
            (_, _) => Turn::Fail("refused", Retry::Never),
        });
        let first = Process::start(&stage, 1);
        let run = first.does(async {
            let (agent, run, reader) = create(&first.engine, HASH).await;
            stage.ended(&agent, run).await;
            std::mem::forget(reader);
            run
        });
        first.kill();
        let second = Process::start(&stage, 2);
        assert_eq!(second.does(joins(&second.engine, RetryMark::Unmarked)), has_called.then_some(run));
    }
}

#[test]
fn the_window_counts_from_the_start_and_then_the_request_is_forgotten() {
    let stage = hanging().with_settings(|settings| settings.join_ms = 5_000);
    let first = Process::start(&stage, 1);
    let (_, run, reader) = first.does(create(&first.engine, HASH));
    std::mem::forget(reader);
    first.does(pass_ms(20_000));
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(4_000).await;
        assert_eq!(joins(&second.engine, RetryMark::Unmarked).await, Some(run));
    });
    second.kill();
    let third = Process::start(&stage, 3);
    third.does(async {
        pass_ms(6_000).await;
        assert_eq!(joins(&third.engine, RetryMark::Unmarked).await, None);
        assert_eq!(joins(&third.engine, RetryMark::Marked).await, None);
        assert_eq!(stage.data.open_requests(&"acme".into(), HASH).await.unwrap(), []);
    });
}

/// Each departure of the last reader starts the join window again, so the timer of an earlier departure stops nothing.
#[tokio::test(start_paused = true)]
async fn a_reader_that_left_twice_has_the_whole_window_once_more() {
    let stage = hanging().with_settings(|settings| settings.join_ms = 3_000);
    let engine = stage.engine(1);
    let (agent, run, reader) = create(&engine, HASH).await;
    let unread = engine.attend(&agent, run, Unread::Stops, None);
    drop(reader);
    drop(unread);
    pass_ms(2_000).await;
    drop(engine.attend(&agent, run, Unread::Stops, None));
    pass_ms(2_000).await;
    assert!(!stage.run(&agent, run).await.state.has_ended(), "the window of the first departure is over");
    pass_ms(2_000).await;
    assert_eq!(stage.ended(&agent, run).await, "stopped: its client went away");
}

/// The open requests of lost servers are read before the first request is served, however long the store takes.
#[tokio::test(start_paused = true)]
async fn a_request_waits_until_lost_requests_are_known() {
    let stage = hanging();
    stage.store.fault(|faults| faults.is_down = true);
    let engine = stage.engine(1);
    settle().await;
    assert!(!engine.is_ready());
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { joins(&engine, RetryMark::Unmarked).await }
    });
    pass_ms(1_000).await;
    assert!(!waiting.is_finished());
    stage.store.fault(|faults| faults.is_down = false);
    assert_eq!(waiting.await.unwrap(), None);
    assert!(engine.is_ready());
}

/// For a marked retry another server accepts that the earlier reader is gone. Without a mark the lease of the lost server decides.
#[tokio::test(start_paused = true)]
async fn at_another_server_an_unmarked_repetition_joins_once_the_lease_has_ended() {
    let stage = hanging().with_settings(|settings| settings.lease_ms = 2_000);
    stage.store.keeps_leases.store(true, SeqCst);
    let life = CancellationToken::new();
    let (first, second) = (stage.mortal(1, Some(life.clone())), stage.engine(2));
    let (_, run, reader) = create(&first, HASH).await;
    std::mem::forget(reader);
    pass_ms(5_000).await;
    assert_eq!(joins(&second, RetryMark::Unmarked).await, None, "its server is alive");
    life.cancel();
    pass_ms(1_000).await;
    assert_eq!(joins(&second, RetryMark::Unmarked).await, None, "its lease holds");
    pass_ms(3_000).await;
    assert_eq!(joins(&second, RetryMark::Unmarked).await, Some(run));
    let third = stage.engine(3);
    settle().await;
    assert_eq!(joins(&third, RetryMark::Unmarked).await, None, "the second server has adopted it");
    assert_eq!(joins(&third, RetryMark::Marked).await, Some(run));
}
