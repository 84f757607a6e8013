//! Notices of opened interrupts.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget};
use windlass_kernel::Cause;

use crate::support::*;

fn stage(notifier: &Arc<TestNotifier>) -> Stage {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[WRITE]) } else { say("done") }).with_gate(WRITE, |_| {});
    Stage { notifier: Some(notifier.clone()), ..stage }
}

#[tokio::test(start_paused = true)]
async fn a_notice_is_sent_until_it_is_taken() {
    let notifier = Arc::new(TestNotifier::default());
    notifier.refuses.store(2, SeqCst);
    let stage = stage(&notifier);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(notifier.attempts().len(), 1);
    pass_ms(1_000).await;
    assert_eq!(notifier.attempts().len(), 2);
    pass_ms(60_000).await;
    let attempts = notifier.attempts();
    assert_eq!(attempts.len(), 3, "the third one was taken");
    assert!(attempts.iter().all(|notice| *notice == attempts[0]), "every attempt is the same notice");
    let notice = &attempts[0];
    assert_eq!((notice.interrupt.run, notice.cause, notice.tool.as_ref().map(|tool| tool.as_str())), (run, Cause::Approval, Some(WRITE)));
    assert_eq!((notice.tenant.as_str(), notice.agent.as_str()), ("acme", "a"));
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_was_answered_needs_no_notice_any_more() {
    let notifier = Arc::new(TestNotifier::default());
    notifier.refuses.store(100, SeqCst);
    let stage = stage(&notifier);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    let open = stage.run(&a, run).await.state.interrupts[0].clone();
    let target = AnswerTarget::Interrupt { number: open.number, shows: open.shows };
    let answer = AnswerInterrupt { agent: a.clone(), run, target, action: AnswerAction::Approve, source: None, key: None };
    engine.answer_interrupt(answer).await.unwrap();
    pass_ms(3_600_000).await;
    assert_eq!(notifier.attempts().len(), 1);
}

#[test]
fn a_process_that_starts_sends_the_notices_of_what_is_open() {
    let notifier = Arc::new(TestNotifier::default());
    let stage = stage(&notifier);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    first.does(async {
        first.engine.begin(&a, "go").await;
        settle().await;
    });
    first.kill();
    let second = Process::start(&stage, 2);
    second.does(async { settle().await });
    let attempts = notifier.attempts();
    assert_eq!((attempts.len(), &attempts[0]), (2, &attempts[1]));
}
