//! A run without a named agent has a head of its own, which is deleted when the run ends.

use std::sync::Arc;

use windlass_kernel::{AgentKey, CallNumber, Epoch, HeadStatus, Input, Opening, RunId, StreamedText};
use windlass_ports::{CallStatus, Commit, Enqueued, MessageId, MessageStatus, NodeId, Page, RunStatus, StoreError, Taken};

use super::{
    Full,
    fixtures::{DEADLINE_MS, Kit, LOOKUP, START, agent, calls, final_reply, foreign},
};

const ALL: Page = Page { after: 0, limit: 1_000 };

async fn begin(store: &Arc<dyn Full>, kit: &Kit) -> (AgentKey, RunId) {
    let new = kit.entering(kit.own_run(START));
    let (agent, run) = (new.agent.clone(), new.run);
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    (agent, run)
}

async fn is_gone(store: &Arc<dyn Full>, agent: &AgentKey) -> bool {
    store.head(agent).await.unwrap().is_none() && store.load(agent).await.unwrap().is_none()
}

/// The run, its journal and its messages stay. A name that only looks like another run's id is the name of an agent.
pub async fn a_head_goes_with_the_run_it_was_made_for(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (own, run) = begin(&store, &kit).await;
    kit.advance(&own, calls(&[LOOKUP]), START).await;
    assert_eq!(store.head(&own).await.unwrap().unwrap().status, HeadStatus::Suspended);
    kit.report(&own, run, 1, START).await;
    kit.take_report(&own, START).await;
    let committed = kit.advance(&own, final_reply("done"), START).await;
    assert_eq!((committed.epoch, committed.pending, committed.next_leased), (Epoch(1), 0, false));
    assert!(is_gone(&store, &own).await);
    let view = store.run(&own.tenant, run).await.unwrap().unwrap();
    assert_eq!((view.status, view.agent.clone(), view.ended_at), (RunStatus::Ended, own.clone(), Some(START)));
    assert_eq!(store.run_from(&own, 1).await.unwrap().unwrap().id, run);
    assert_eq!(store.inbox(&own, ALL).await.unwrap().len(), 2);
    assert_eq!(store.edges(&own, ALL).await.unwrap().len(), 3);
    let other = agent(&run.to_string());
    for named in [other, foreign(&kit.run_id().to_string()), agent("RUN_1")] {
        kit.begin(&named, START).await;
        kit.advance(&named, final_reply("done"), START).await;
        assert_eq!(store.head(&named).await.unwrap().unwrap().status, HeadStatus::Idle, "{named:?}");
    }
}

/// A run that ends when it is entered, or is stopped before a worker entered.
pub async fn a_run_may_end_before_its_head_is_made(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut new = kit.own_run(START);
    new.enter = Some(kit.commit(new.run, &new.state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START));
    let (own, run) = (new.agent.clone(), new.run);
    assert!(matches!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Entered { .. }));
    assert!(is_gone(&store, &own).await);
    assert_eq!(store.run(&own.tenant, run).await.unwrap().unwrap().status, RunStatus::Ended);
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Duplicate { run: first, .. } if first == run));
    assert!(is_gone(&store, &own).await, "a repeated request makes none");
    let new = kit.own_run(START);
    let own = new.agent.clone();
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Dispatched { .. }));
    kit.advance(&own, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    assert!(is_gone(&store, &own).await);
    assert!(store.due(START.plus_ms(DEADLINE_MS), 10).await.unwrap().is_empty());
    assert!(store.inbox(&own, ALL).await.unwrap().iter().all(|row| row.status != MessageStatus::Pending));
}

/// A repeated commit is recognised by what it wrote; any other commit is fenced.
pub async fn a_lost_answer_of_the_last_commit_is_success(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for raise_epoch in [false, true] {
        let (own, run) = begin(&store, &kit).await;
        let (earlier, early) = kit.prepare(&own, calls(&[LOOKUP]), START).await;
        store.commit(earlier.clone(), early.clone()).await.unwrap();
        let (guard, mut end) = kit.prepare(&own, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
        end.raise_epoch = raise_epoch;
        end.messages.push(kit.new_report(&own, run, 7, START).message);
        let (_, other) = kit.prepare(&own, Input::Stopped { reason: "another".into(), streamed: StreamedText::default() }, START).await;
        let first = store.commit(guard.clone(), end.clone()).await.unwrap();
        let journal = store.journal(&own.tenant, run, 0, 100).await.unwrap();
        assert_eq!(store.commit(guard.clone(), end.clone()).await.unwrap(), first);
        assert!(is_gone(&store, &own).await);
        assert_eq!(store.journal(&own.tenant, run, 0, 100).await.unwrap(), journal);
        for (guard, commit) in [
            (guard.clone(), other),
            (earlier, early),
            (guard.clone(), Commit { events: Vec::new(), ..end.clone() }),
            (windlass_ports::Guard { epoch: Epoch(9), ..guard.clone() }, end.clone()),
            (windlass_ports::Guard { agent: foreign(own.agent.as_str()), ..guard.clone() }, end.clone()),
        ] {
            let outcome = store.commit(guard, commit).await;
            assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
        }
    }
}

/// Like that of any other ended run, the report is recorded once.
pub async fn a_late_report_needs_no_head(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (own, run) = begin(&store, &kit).await;
    kit.advance(&own, calls(&[LOOKUP, LOOKUP]), START).await;
    kit.report(&own, run, 1, START).await;
    let held = store.claim_calls(kit.claim(LOOKUP, "w", 5, START)).await.unwrap();
    let held: Vec<(RunId, CallNumber)> = held.iter().map(|call| (call.run, call.call)).collect();
    assert!(!held.is_empty());
    kit.advance(&own, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    assert!(is_gone(&store, &own).await);
    let Taken::Late(late) = kit.report(&own, run, 2, START).await else { panic!("not late") };
    assert_eq!(kit.report(&own, run, 2, START).await, Taken::Duplicate(late));
    assert!(store.inbox(&own, ALL).await.unwrap()[1..].iter().all(|row| row.status == MessageStatus::Skipped));
    assert!(is_gone(&store, &own).await);
    assert_eq!(store.renew_calls(kit.claim(LOOKUP, "w", 1, START), held.clone()).await.unwrap(), held);
    assert_eq!(store.release_calls(kit.claim(LOOKUP, "w", 1, START), held.clone()).await.unwrap(), held);
    assert!(store.claim_calls(kit.claim(LOOKUP, "w", 5, START)).await.unwrap().is_empty());
    assert_eq!(store.calls(&own.tenant, run, CallNumber(2), 1).await.unwrap()[0].status, CallStatus::Dropped);
    store.quarantine(own.clone(), run, "no run is queued".into()).await.unwrap();
    store.refuse(own.clone(), late, "too late".into()).await.unwrap();
    store.refuse(own.clone(), MessageId(9_999), "unknown".into()).await.unwrap();
    assert!(is_gone(&store, &own).await);
}

/// A client used the run's id as the name of an agent: then the head stays.
pub async fn a_head_with_other_runs_stays(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (own, _) = begin(&store, &kit).await;
    let (second, enqueued) = kit.begin(&own, START).await;
    assert!(matches!(enqueued, Enqueued::Queued { .. }));
    assert!(kit.advance(&own, final_reply("done"), START).await.next_leased);
    let head = store.head(&own).await.unwrap().unwrap();
    assert_eq!((head.run, head.runs, head.epoch), (Some(second), 2, Epoch(2)));
    kit.advance(&own, Input::Entered(Opening::Ask), START).await;
    kit.advance(&own, final_reply("done"), START).await;
    assert_eq!(store.head(&own).await.unwrap().unwrap().status, HeadStatus::Idle);
}

/// When the run and its head are gone, neither ordinals nor epochs start again.
pub async fn a_name_that_is_used_again_continues_its_numbers(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (own, first) = begin(&store, &kit).await;
    let (guard, mut takeover) = kit.prepare(&own, Input::owner_changed(), START).await;
    takeover.node = NodeId(2);
    store.commit(guard, takeover).await.unwrap();
    let queued = kit.new_run(&own, START);
    store.enqueue(queued.clone()).await.unwrap();
    let stop = kit.commit(queued.run, &queued.state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START);
    store.withdraw(own.clone(), stop).await.unwrap();
    kit.advance(&own, final_reply("done"), START).await;
    assert!(is_gone(&store, &own).await);
    let (run, enqueued) = kit.begin(&own, START).await;
    let Enqueued::Entered { epoch, .. } = enqueued else { panic!("{enqueued:?}") };
    assert!(epoch > store.run(&own.tenant, first).await.unwrap().unwrap().epoch.unwrap());
    assert_eq!(store.run(&own.tenant, run).await.unwrap().unwrap().ordinal, 3);
    kit.advance(&own, final_reply("done"), START).await;
    assert_eq!(store.head(&own).await.unwrap().unwrap().runs, 3);
}

/// The run is listed while it is open; afterwards there is nothing to list.
pub async fn an_ended_run_is_in_no_list(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (own, run) = begin(&store, &kit).await;
    assert_eq!(store.orphans(NodeId(2), None, 10).await.unwrap(), std::slice::from_ref(&own));
    kit.advance(&own, calls(&[LOOKUP]), START).await;
    let late = START.plus_ms(DEADLINE_MS * 2);
    assert_eq!(store.due(late, 10).await.unwrap(), std::slice::from_ref(&own));
    kit.advance(&own, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    assert!(store.due(late, 10).await.unwrap().is_empty());
    assert!(store.orphans(NodeId(2), None, 10).await.unwrap().is_empty());
    let mut full = kit.entering(kit.own_run(START));
    full.admission.open_per_tenant_max = 1;
    assert!(matches!(store.enqueue(full).await.unwrap(), Enqueued::Entered { .. }), "it counts as ended");
    assert_eq!(store.run(&own.tenant, run).await.unwrap().unwrap().status, RunStatus::Ended);
}
