//! Results from outside: recorded once, in order, and never lost.

use std::sync::Arc;

use windlass_kernel::{CallNumber, HeadStatus, Input, StreamedText, TaskStatus};
use windlass_ports::{CallStatus, Enqueued, MessageId, MessageKind, MessageStatus, NewMessage, NewReport, Page, Taken};

use super::{
    Full,
    fixtures::{DEADLINE_MS, FLAKY, FLAKY_PAUSE_MS, Kit, LOCAL, LOOKUP, START, agent, calls, final_reply, foreign, guard, report_input},
};

const ALL: Page = Page { after: 0, limit: 1_000 };

/// A suspended agent is due from the arrival of a report until it is consumed.
pub async fn a_report_wakes_a_suspended_agent(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    let now = START.plus_ms(100);
    assert!(store.due(now, 10).await.unwrap().is_empty());
    let seq = kit.load(&agent).await.head.seq;
    assert!(matches!(kit.report(&agent, run, 2, now).await, Taken::Recorded(_)));
    assert_eq!(store.due(now, 10).await.unwrap(), std::slice::from_ref(&agent));
    assert_eq!(kit.load(&agent).await.head.seq, seq, "a report fences no owner");
    assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, 1);
    kit.take_report(&agent, now).await;
    assert!(store.due(now, 10).await.unwrap().is_empty());
    assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, 0);
}

/// A call has one report of each kind; the answer to the second has the number of the first.
pub async fn a_second_report_changes_nothing(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    let Taken::Recorded(first) = kit.report(&agent, run, 1, START).await else { panic!("not recorded") };
    let second = kit.new_report(&agent, run, 1, START);
    let item = second.content.id;
    assert_eq!(store.report(second).await.unwrap(), Taken::Duplicate(first));
    assert!(store.item(&agent.tenant, item).await.unwrap().is_none());
    assert_eq!(kit.load(&agent).await.pending.len(), 1);
    kit.take_report(&agent, START).await;
    assert_eq!(kit.report(&agent, run, 1, START).await, Taken::Duplicate(first), "also after it was taken");
}

/// A report that arrives before its call is committed waits. The owner gets the count with its commit.
pub async fn an_early_report_waits_for_its_call(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    assert!(matches!(kit.report(&agent, run, 1, START).await, Taken::Recorded(_)));
    assert!(store.due(START.plus_ms(9), 10).await.unwrap().is_empty(), "a running agent is not woken");
    let committed = kit.advance(&agent, calls(&[LOOKUP]), START).await;
    assert_eq!(committed.pending, 1);
    let committed = kit.take_report(&agent, START).await;
    assert_eq!(committed.pending, 0);
    assert_eq!(kit.load(&agent).await.run.unwrap().state.iteration, 2);
}

/// A report for an ended run is stored and changes nothing. Messages that were pending for that run are skipped.
pub async fn a_late_report_is_recorded(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    let Taken::Recorded(waiting) = kit.report(&agent, run, 1, START).await else { panic!("not recorded") };
    kit.advance(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    let report = kit.new_report(&agent, run, 2, START);
    let item = report.content.id;
    let Taken::Late(late) = store.report(report).await.unwrap() else { panic!("not late") };
    assert!(store.item(&agent.tenant, item).await.unwrap().is_some());
    let rows = store.inbox(&agent, ALL).await.unwrap();
    for id in [waiting, late] {
        assert_eq!(rows.iter().find(|row| row.id == id).unwrap().status, MessageStatus::Skipped);
    }
    let head = store.head(&agent).await.unwrap().unwrap();
    assert_eq!((head.status, head.pending), (HeadStatus::Idle, 0));
}

/// A run that does not exist and a run of another tenant look the same.
pub async fn an_unknown_or_foreign_run_takes_no_report(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    assert_eq!(kit.report(&foreign("a"), run, 1, START).await, Taken::UnknownRun);
    assert_eq!(kit.report(&super::fixtures::agent("b"), run, 1, START).await, Taken::UnknownRun);
    assert_eq!(kit.report(&agent, kit.run_id(), 1, START).await, Taken::UnknownRun);
    assert_eq!(store.inbox(&agent, ALL).await.unwrap().len(), 1);
}

/// Pending messages are loaded oldest first, whichever call they are about.
pub async fn reports_are_taken_in_the_order_they_came(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP, LOOKUP]), START).await;
    for call in [3, 1, 2] {
        kit.report(&agent, run, call, START).await;
    }
    let loaded = kit.load(&agent).await;
    let order: Vec<Option<CallNumber>> = loaded.pending.iter().map(|message| message.call).collect();
    assert_eq!(order, [3, 1, 2].map(|call| Some(CallNumber(call))));
    for left in [2, 1, 0] {
        assert_eq!(kit.take_report(&agent, START).await.pending, left);
    }
    let statuses: Vec<CallStatus> =
        store.calls(&agent.tenant, run, CallNumber(1), 10).await.unwrap().iter().map(|call| call.status).collect();
    assert_eq!(statuses, [CallStatus::Applied; 3]);
}

/// The report waits until the run begins, and is loaded then.
pub async fn a_report_for_a_queued_run_waits_with_it(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    let (queued, enqueued) = kit.begin(&agent, START).await;
    assert!(matches!(enqueued, Enqueued::Queued { .. }));
    assert!(matches!(kit.report(&agent, queued, 1, START).await, Taken::Recorded(_)));
    assert!(kit.load(&agent).await.pending.is_empty());
    assert_eq!(kit.advance(&agent, calls(&[LOOKUP]), START).await.pending, 0);
    assert_eq!(kit.advance(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await.pending, 1);
    let loaded = kit.load(&agent).await;
    assert_eq!((loaded.run.unwrap().id, loaded.pending.len()), (queued, 1));
}

/// A refused message has the status `error` with its reason, and does not make the agent due any more.
pub async fn a_refused_message_no_longer_waits(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    kit.report(&agent, run, 1, START).await;
    let Taken::Recorded(second) = kit.report(&agent, run, 2, START).await else { panic!("not recorded") };
    store.refuse(foreign("a"), second, "not theirs".into()).await.unwrap();
    store.refuse(agent.clone(), MessageId(9_999), "not there".into()).await.unwrap();
    assert_eq!(kit.load(&agent).await.pending.len(), 2);
    store.refuse(agent.clone(), second, "because".into()).await.unwrap();
    store.refuse(agent.clone(), second, "again".into()).await.unwrap();
    let row = store.inbox(&agent, ALL).await.unwrap().into_iter().find(|row| row.id == second).unwrap();
    assert_eq!((row.status, row.reason.as_deref()), (MessageStatus::Error, Some("because")));
    assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, 1);
    assert_eq!(store.due(START, 10).await.unwrap().len(), 1);
    let first = kit.load(&agent).await.pending[0].id;
    store.refuse(agent.clone(), first, "too".into()).await.unwrap();
    assert!(store.due(START, 10).await.unwrap().is_empty());
}

/// A result of this process and one from outside for the same call give one row, and the second changes nothing.
pub async fn a_report_of_the_owner_meets_one_from_outside(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOCAL, LOCAL]), START).await;
    let Taken::Recorded(outside) = kit.report(&agent, run, 1, START).await else { panic!("not recorded") };
    let message = kit.load(&agent).await.pending[0].clone();
    let own = kit.new_report(&agent, run, 1, START);
    let (guard, mut commit) = kit.prepare(&agent, report_input(&message), START).await;
    commit.items.push(own.content);
    commit.messages.push(own.message);
    let committed = store.commit(guard, commit).await.unwrap();
    assert_eq!((committed.messages, committed.pending), (vec![outside], 1));
    kit.take_report(&agent, START).await;
    let loaded = kit.load(&agent).await;
    assert!(loaded.pending.is_empty());
    let run = loaded.run.as_ref().unwrap();
    assert_eq!(run.state.waiting_count(), 1);
    let stop = kit.commit(run.id, &run.state, final_reply("x"), START);
    store.commit(self::guard(&agent, &loaded), stop).await.unwrap();
}

/// Instructions are no reports of calls: several may wait. A run that is queued or has ended takes none, and nothing is written.
pub async fn an_instruction_waits_for_the_owner_of_an_active_run(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let instruction = |run| {
        let report = kit.new_report(&agent, run, 1, START);
        let message = NewMessage { kind: MessageKind::Steer, call: None, outcome: None, ..report.message };
        NewReport { message, ..report }
    };
    for pending in [1, 2] {
        assert!(matches!(store.report(instruction(run)).await.unwrap(), Taken::Recorded(_)));
        assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, pending);
    }
    assert!(store.due(START.plus_ms(9), 10).await.unwrap().is_empty(), "a running agent is not woken");
    let waiting = kit.load(&agent).await.pending;
    assert_eq!(waiting.iter().map(|message| (message.kind, message.call)).collect::<Vec<_>>(), [(MessageKind::Steer, None); 2]);
    let item = waiting[0].item.unwrap();
    let (guard, mut commit) = kit.prepare(&agent, Input::Steered(item), START).await;
    commit.consumed.push(waiting[0].id);
    assert_eq!(store.commit(guard, commit).await.unwrap().pending, 1);
    assert_eq!(kit.load(&agent).await.run.unwrap().state.steering, [item]);

    let (queued, _) = kit.begin(&agent, START).await;
    assert_eq!(store.report(instruction(queued)).await.unwrap(), Taken::NotActive);
    kit.advance(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    let rows = store.inbox(&agent, ALL).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.status == MessageStatus::Skipped).count(), 1, "the second instruction came too late");
    let refused = instruction(run);
    let item = refused.content.id;
    assert_eq!(store.report(refused).await.unwrap(), Taken::NotActive);
    assert_eq!(store.item(&agent.tenant, item).await.unwrap(), None);
    assert_eq!(store.inbox(&agent, ALL).await.unwrap().len(), rows.len());
}

/// A repetition counts in the row of its call, and in the claim; its report is no duplicate of the one before.
pub async fn every_repetition_of_a_call_has_a_report_of_its_own(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[FLAKY]), START).await;
    assert_eq!(store.claim_calls(kit.claim(FLAKY, "w", 1, START)).await.unwrap()[0].retry, 0);
    let report = |retry| {
        let report = kit.new_report(&agent, run, 1, START);
        NewReport { message: NewMessage { retry, outcome: Some(TaskStatus::Failed), ..report.message }, ..report }
    };
    let Taken::Recorded(first) = store.report(report(0)).await.unwrap() else { panic!("not recorded") };
    kit.take_report(&agent, START).await;
    let pause = START.plus_ms(FLAKY_PAUSE_MS);
    assert!(store.claim_calls(kit.claim(FLAKY, "w", 1, START)).await.unwrap().is_empty(), "not during the pause");
    assert_eq!(store.due(pause, 10).await.unwrap(), std::slice::from_ref(&agent), "the end of the pause makes the agent due");
    assert_eq!(store.report(report(0)).await.unwrap(), Taken::Duplicate(first));
    kit.advance(&agent, Input::RetryDue(CallNumber(1)), pause).await;
    let again = store.claim_calls(kit.claim(FLAKY, "w", 1, pause)).await.unwrap().remove(0);
    assert_eq!((again.retry, again.attempt, again.deadline), (1, 2, pause.plus_ms(DEADLINE_MS)));
    let Taken::Recorded(second) = store.report(report(1)).await.unwrap() else { panic!("not recorded") };
    assert_ne!(first, second);
    assert_eq!(store.report(report(1)).await.unwrap(), Taken::Duplicate(second));
    kit.take_report(&agent, pause).await;
    let run = kit.load(&agent).await.run.unwrap();
    assert_eq!(run.state.iteration, 2, "the second failure is the result");
    assert_eq!(store.calls(&agent.tenant, run.id, CallNumber(1), 1).await.unwrap()[0].retry, 1);
}
