//! Calls that wait for people: over restarts, with deadlines, and answers that race.

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, Answered, Engine, EngineError};
use windlass_kernel::{AgentKey, Cause, OnTimeout, RunId};
use windlass_ports::{CallStatus, ModelMessage, ModelRequest};

use crate::support::*;

/// The model asks for these tools, then answers with their results.
fn asks_for(tools: &'static [&'static str]) -> impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static {
    move |request| if request.iteration == 1 { call(tools) } else { say(&request.results().join(",")) }
}

/// The target of an answer that names what the first open interrupt shows.
async fn shown(stage: &Stage, agent: &AgentKey, run: RunId) -> AnswerTarget {
    let state = stage.run(agent, run).await.state;
    let open = state.interrupts.first().expect("something waits");
    AnswerTarget::Interrupt { number: open.number, shows: open.shows }
}

async fn decide(
    engine: &Engine,
    agent: &AgentKey,
    run: RunId,
    target: AnswerTarget,
    action: AnswerAction,
) -> Result<Answered, EngineError> {
    engine.answer_interrupt(AnswerInterrupt { agent: agent.clone(), run, target, action, source: Some("ann".into()), key: None }).await
}

#[test]
fn s_11_an_approval_survives_a_kill_before_the_answer_and_an_approved_write_starts_once_over_another() {
    let stage = Stage::new(asks_for(&[WRITE])).with_tools(|_| Act::Hang).with_gate(WRITE, |_| {});
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, "go").await.run;
        settle().await;
        run
    });
    assert_eq!(stage.tools.starts_of(WRITE), 0);
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(600_000).await;
        assert_eq!(stage.call_statuses(&a, run).await, [CallStatus::Parked]);
        let target = shown(&stage, &a, run).await;
        let stale = AnswerTarget::Interrupt { number: 2, shows: None };
        assert!(matches!(decide(&second.engine, &a, run, stale, AnswerAction::Approve).await, Err(EngineError::NotParked)));
        decide(&second.engine, &a, run, target, AnswerAction::Approve).await.unwrap();
        settle().await;
    });
    assert_eq!(stage.tools.starts_of(WRITE), 1);
    second.kill();
    let third = Process::start(&stage, 3);
    third.does(async {
        pass_ms(60_000).await;
        let state = stage.run(&a, run).await.state;
        assert_eq!(state.interrupts[0].cause, Cause::UnknownOutcome, "the approval is no leave to start it a second time");
    });
    assert_eq!(stage.tools.starts_of(WRITE), 1);
}

#[tokio::test(start_paused = true)]
async fn s_11_of_two_answers_one_wins() {
    let stage = Stage::new(asks_for(&[WRITE])).with_gate(WRITE, |_| {});
    let engines = [stage.engine(1), stage.engine(2)];
    for round in 0..100 {
        let a = agent(&format!("a{round}"));
        let run = engines[0].begin(&a, "go").await.run;
        settle().await;
        let target = shown(&stage, &a, run).await;
        let reject = AnswerAction::Reject { comment: String::new() };
        let (one, two) = tokio::join!(
            decide(&engines[round % 2], &a, run, target.clone(), AnswerAction::Approve),
            decide(&engines[(round + 1) % 2], &a, run, target.clone(), reject),
        );
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let resolved = stage.story(&a, run).await.iter().filter(|kind| **kind == "resolved").count();
        assert_eq!(resolved, 1, "one transition");
    }
}

#[test]
fn s_11_an_edited_call_starts_with_the_new_arguments_after_a_kill_and_the_model_reads_them() {
    let stage =
        Stage::new(asks_for(&[WRITE])).with_tools(|call| Act::Give(call.arguments.clone())).with_gate(WRITE, |gate| gate.approvers = 2);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, "go").await.run;
        settle().await;
        let old = shown(&stage, &a, run).await;
        let AnswerTarget::Interrupt { shows: Some(item), .. } = old else { panic!("an item") };
        for bad in ["[]", "{", ""] {
            let refused = first.engine.edited_call(&a.tenant, run, item, bad).await;
            assert!(matches!(refused, Err(EngineError::BadArguments { .. })), "{bad}");
        }
        let edit = first.engine.edited_call(&a.tenant, run, item, r#"{"sum":1}"#).await.unwrap();
        decide(&first.engine, &a, run, old.clone(), AnswerAction::Edit { call: edit }).await.unwrap();
        // Another person must have seen the new arguments.
        let late =
            AnswerInterrupt { agent: a.clone(), run, target: old, action: AnswerAction::Approve, source: Some("bob".into()), key: None };
        assert!(matches!(first.engine.answer_interrupt(late).await, Err(EngineError::NotShown)));
        run
    });
    assert_eq!(stage.tools.starts_of(WRITE), 0);
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async {
        pass_ms(60_000).await;
        let target = shown(&stage, &a, run).await;
        let empty = AnswerAction::Edit { call: bytes::Bytes::new() };
        assert!(matches!(decide(&second.engine, &a, run, target.clone(), empty).await, Err(EngineError::NotShown)));
        let answer =
            AnswerInterrupt { agent: a.clone(), run, target, action: AnswerAction::Approve, source: Some("bob".into()), key: None };
        second.engine.answer_interrupt(answer).await.unwrap();
        assert_eq!(stage.ended(&a, run).await, r#"{"sum":1}"#);
    });
    assert_eq!(stage.tools.starts_of(WRITE), 1);
    let messages = stage.model.requests().last().unwrap().messages.clone();
    let arguments = messages.iter().filter_map(|message| {
        let ModelMessage::Assistant { calls, .. } = message else { return None };
        Some(calls.first()?.arguments.clone())
    });
    assert_eq!(arguments.collect::<Vec<_>>(), [r#"{"sum":1}"#]);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_of_a_service_is_not_claimed_and_its_report_is_refused() {
    let stage = Stage::new(asks_for(&[CHARGE])).with_gate(CHARGE, |_| {});
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(engine.claim(claim(CHARGE)).await.unwrap(), []);
    assert!(matches!(engine.report(result_of(&a, run, 1, "1")).await, Err(EngineError::CallHeld)));
    let target = shown(&stage, &a, run).await;
    decide(&engine, &a, run, target, AnswerAction::Approve).await.unwrap();
    assert_eq!(engine.serve(CHARGE, "7").await, 1);
    assert_eq!(stage.ended(&a, run).await, "7");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_an_approval_decides_what_the_rule_says() {
    for (on_timeout, starts, text) in [(OnTimeout::Reject, 0, "error"), (OnTimeout::Approve, 1, "1"), (OnTimeout::End, 0, "ended because")]
    {
        let stage = Stage::new(asks_for(&[WRITE])).with_gate(WRITE, |gate| {
            gate.until_ms = Some(60_000);
            gate.on_timeout = on_timeout;
        });
        let engine = stage.engine(1);
        let a = agent("a");
        let run = engine.begin(&a, "go").await.run;
        pass_ms(59_000).await;
        assert_eq!(stage.run(&a, run).await.state.interrupts.len(), 1, "{on_timeout:?}");
        pass_ms(2_000).await;
        let ended = stage.ended(&a, run).await;
        assert!(ended.contains(text), "{on_timeout:?}: {ended}");
        assert_eq!(stage.tools.starts_of(WRITE), starts, "{on_timeout:?}");
    }
}

#[test]
fn s_13_a_suspended_run_keeps_its_rules_when_the_configuration_changes() {
    let stage = Stage::new(|request| match request.iteration {
        1 => call(&[LOOKUP]),
        2 => call(&[WRITE]),
        _ => say("done"),
    })
    .with_gate(WRITE, |_| {});
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, "go").await.run;
        settle().await;
        run
    });
    first.kill();
    let without_rules = Stage { gates: Vec::new(), ..stage };
    let second = Process::start(&without_rules, 2);
    second.does(async {
        second.engine.answer(&a, run, 1, "4").await;
        settle().await;
        assert_eq!(without_rules.run(&a, run).await.state.interrupts[0].cause, Cause::Approval);
        assert_eq!(without_rules.tools.starts_of(WRITE), 0);
    });
}

#[tokio::test(start_paused = true)]
async fn an_ended_run_drops_what_its_owner_has_in_flight() {
    let stage = Stage::new(asks_for(&[LOOK, WRITE]))
        .with_tools(|call| if call.tool.as_str() == LOOK { Act::Hang } else { give("1") })
        .with_gate(WRITE, |_| {});
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    let epoch = stage.head(&a).await.epoch;
    let target = shown(&stage, &a, run).await;
    decide(&engine, &a, run, target, AnswerAction::End).await.unwrap();
    settle().await;
    assert_eq!(stage.tools.gauge.cancelled(), 1);
    assert!(stage.head(&a).await.epoch > epoch, "like a stop, it fences what came before");
    assert_eq!(stage.ended(&a, run).await, "ended by a person");
}
