//! Instructions for the active run: the next iteration reads them, whichever process takes them.

use std::sync::atomic::Ordering::SeqCst;

use windlass_engine::{Engine, EngineError, Steer, Stop};
use windlass_kernel::{AgentKey, ItemKind, RunId, content};
use windlass_ports::{MessageId, MessageStatus, ModelMessage, ModelRequest, Page, RequestKey};

use crate::support::*;

const EVERYTHING: Page = Page { after: 0, limit: 100 };

fn steer(agent: &AgentKey, run: RunId, text: &str) -> Steer {
    let text = content::encode(&content::Instruction::Text(text.to_owned()));
    Steer { agent: agent.clone(), run, input: (ItemKind::Instruction, text), source: Some("client".into()), key: None }
}

/// The texts of users that a model read after the task.
fn instructions(request: &ModelRequest) -> Vec<String> {
    let text = |message: &ModelMessage| if let ModelMessage::User(text) = message { Some(text.clone()) } else { None };
    request.messages.iter().filter_map(text).skip(1).collect()
}

async fn row_status(stage: &Stage, agent: &AgentKey, message: MessageId) -> MessageStatus {
    let rows = stage.data.inbox(agent, EVERYTHING).await.unwrap();
    rows.iter().find(|row| row.id == message).unwrap().status
}

async fn begin(engine: &Engine, agent: &AgentKey) -> RunId {
    engine.begin(agent, "go").await.run
}

#[tokio::test(start_paused = true)]
async fn an_instruction_leaves_the_model_call_alone_and_the_next_one_reads_it() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |request| match request.iteration {
        1 => Turn::After(shut.clone(), Box::new(say("first"))),
        _ => say("second"),
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a).await;
    settle().await;
    let message = engine.steer(steer(&a, run, "in English")).await.unwrap();
    assert_eq!(row_status(&stage, &a, message).await, MessageStatus::Consumed);
    settle().await;
    assert_eq!((stage.model.gauge.in_flight(), stage.model.gauge.cancelled()), (1, 0));
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "second");
    let requests = stage.model.requests();
    assert_eq!(requests.iter().map(instructions).collect::<Vec<_>>(), [vec![], vec!["in English".to_owned()]]);
    assert_eq!((stage.head(&a).await.runs, stage.run(&a, run).await.state.steered), (1, 1), "one enqueue stays one turn");
}

#[tokio::test(start_paused = true)]
async fn an_instruction_for_a_run_that_waits_is_read_with_the_results() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say("done") });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a).await;
    settle().await;
    for text in ["one", "two"] {
        engine.steer(steer(&a, run, text)).await.unwrap();
    }
    assert_eq!(stage.model.count("go"), 1, "an instruction starts nothing");
    engine.answer(&a, run, 1, "5").await;
    assert_eq!(stage.ended(&a, run).await, "done");
    let last = stage.model.requests().pop().unwrap();
    assert_eq!((last.results(), instructions(&last)), (vec!["5".to_owned()], vec!["one".to_owned(), "two".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_instruction_that_another_process_takes_reaches_the_owner() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |request| match request.iteration {
        1 => Turn::After(shut.clone(), Box::new(say("first"))),
        _ => say("second"),
    });
    stage.store.keeps_leases.store(true, SeqCst);
    let line = Line::default();
    let (owner, other) = (stage.wired(1, &line), stage.wired(2, &line));
    let a = agent("a");
    let run = begin(&owner, &a).await;
    settle().await;
    let message = other.steer(steer(&a, run, "in English")).await.unwrap();
    settle().await;
    assert_eq!(row_status(&stage, &a, message).await, MessageStatus::Consumed);
    assert_eq!((stage.model.gauge.in_flight(), stage.model.gauge.cancelled()), (1, 0), "the owner stays the owner");
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "second");
}

#[tokio::test(start_paused = true)]
async fn an_instruction_is_found_without_a_doorbell_and_read_one_iteration_later() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |request| match request.iteration {
        1 => Turn::After(shut.clone(), Box::new(call(&[LOOK]))),
        2 => call(&[LOOK]),
        _ => say("done"),
    })
    .with_tools(|_| give("1"));
    stage.store.keeps_leases.store(true, SeqCst);
    let (owner, other) = (stage.engine(1), stage.engine(2));
    let a = agent("a");
    let run = begin(&owner, &a).await;
    settle().await;
    let message = other.steer(steer(&a, run, "in English")).await.unwrap();
    settle().await;
    assert_eq!(row_status(&stage, &a, message).await, MessageStatus::Pending);
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "done");
    assert_eq!(row_status(&stage, &a, message).await, MessageStatus::Consumed);
    assert_eq!(instructions(&stage.model.requests().pop().unwrap()), ["in English"]);
}

#[test]
fn an_instruction_survives_the_loss_of_its_owner() {
    let stage = Stage::new(|request| if request.iteration == 1 { Turn::Hang } else { say("done") });
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = begin(&first.engine, &a).await;
        settle().await;
        first.engine.steer(steer(&a, run, "in English")).await.unwrap();
        run
    });
    first.kill();
    assert_eq!(in_real_time(async { stage.run(&a, run).await.state.steering.len() }), 1);
    let second = Process::start(&stage, 2);
    second.does(async {
        let stop = Stop { agent: a.clone(), run, reason: "enough".into(), epoch: None, source: None, key: None };
        second.engine.stop(stop).await.unwrap();
        let output = stage.output(&a, run).await;
        assert_eq!(output.iter().map(|item| item.kind).collect::<Vec<_>>(), [ItemKind::Instruction, ItemKind::Deliverable]);
    });
}

#[tokio::test(start_paused = true)]
async fn an_instruction_is_refused_by_a_run_that_is_not_active() {
    let stage = Stage::new(|request| if request.task() == "wait" { Turn::Hang } else { say("done") });
    let engine = stage.engine(1);
    let (a, b) = (agent("a"), agent("b"));
    let ended = begin(&engine, &a).await;
    stage.ended(&a, ended).await;
    engine.begin(&b, "wait").await;
    let queued = begin(&engine, &b).await;
    for (agent, run) in [(&a, ended), (&b, queued)] {
        let rows = stage.data.inbox(agent, EVERYTHING).await.unwrap().len();
        assert!(matches!(engine.steer(steer(agent, run, "hm")).await, Err(EngineError::NotActive)));
        assert_eq!(stage.data.inbox(agent, EVERYTHING).await.unwrap().len(), rows, "nothing was written");
    }
    assert!(matches!(engine.steer(steer(&b, ended, "hm")).await, Err(EngineError::UnknownRun)));
}

#[tokio::test(start_paused = true)]
async fn an_instruction_with_a_key_is_given_once() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a).await;
    let keyed = |asked: u8| Steer { key: Some(RequestKey { key: "k".into(), asked: [asked; 16] }), ..steer(&a, run, "hm") };
    let (first, second) = tokio::join!(engine.steer(keyed(1)), engine.steer(keyed(1)));
    let first = first.unwrap();
    assert_eq!((first, first), (second.unwrap(), engine.steer(keyed(1)).await.unwrap()));
    assert!(matches!(engine.steer(keyed(2)).await, Err(EngineError::KeyReused)));
    assert_eq!(stage.run(&a, run).await.state.steered, 1);
}

#[tokio::test(start_paused = true)]
async fn instructions_that_no_iteration_has_read_are_limited() {
    let stage = Stage::new(|_| Turn::Hang);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = begin(&engine, &a).await;
    for _ in 0..32 {
        engine.steer(steer(&a, run, "hm")).await.unwrap();
    }
    assert!(matches!(engine.steer(steer(&a, run, "hm")).await, Err(EngineError::TooManyInstructions)));
}
