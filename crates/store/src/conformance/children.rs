//! Child runs: the end of a child is the result of its parent's call, and no child outlives its parent's end.

use std::sync::Arc;

use windlass_kernel::{
    AgentKey, Below, CallNumber, HeadStatus, Input, ItemKind, ParentCall, RunId, StreamedText, TaskStatus, Timestamp, Usage,
};
use windlass_ports::{
    Abandoned, CallStatus, Enqueued, GivenUp, MessageKind, MessageStatus, NewMessage, Page, RunScan, RunSet, RunStatus, StoreError,
    child_head,
};

use super::{
    Full,
    fixtures::{DEADLINE_MS, HELPER, Kit, LOOKUP, NODE, START, agent, calls, final_reply, foreign},
};

const ALL: Page = Page { after: 0, limit: 1_000 };

/// How often each race is run.
const ROUNDS: usize = 25;

fn stop() -> Input {
    Input::Stopped { reason: String::new(), streamed: StreamedText::default() }
}

/// A run that waits for these calls, and the ids of the child runs that they start.
async fn waiting(kit: &Kit, agent: &AgentKey, tools: &[&str]) -> (RunId, Vec<RunId>) {
    let (run, _) = kit.begin(agent, START).await;
    kit.advance(agent, calls(tools), START).await;
    let state = kit.load(agent).await.run.unwrap().state;
    (run, state.calls().iter().filter_map(|call| call.child).collect())
}

fn answers(agent: &AgentKey, run: RunId, call: u32) -> ParentCall {
    ParentCall { run, head: agent.agent.clone(), call: CallNumber(call), tainted: false }
}

/// Starts the child run of a call and records that it has begun.
async fn start(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, (run, call, child): (RunId, u32, RunId)) -> AgentKey {
    let new = kit.new_child(child, answers(agent, run, call), START);
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    kit.advance(agent, Input::ChildBegun(CallNumber(call)), START).await;
    child_head(&agent.tenant, child)
}

async fn statuses(store: &Arc<dyn Full>, agent: &AgentKey, run: RunId) -> Vec<CallStatus> {
    store.calls(&agent.tenant, run, CallNumber(0), 100).await.unwrap().iter().map(|call| call.status).collect()
}

/// The parent is due from the child's end on, its epoch and sequence number stay, and it gets what the child used.
pub async fn the_end_of_a_child_is_the_result_of_a_call(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, LOOKUP]).await;
    let child = start(&store, &kit, &agent, (run, 1, children[0])).await;
    assert_eq!(statuses(&store, &agent, run).await, [CallStatus::Begun, CallStatus::Waiting]);
    let before = kit.load(&agent).await.head;
    let now = START.plus_ms(5);
    let mut reply = final_reply("done");
    if let Input::Replied(reply) = &mut reply {
        reply.usage = Usage { tokens_in: 7, tokens_out: 3, ..Usage::default() };
    }
    kit.advance(&child, reply, now).await;
    assert!(store.head(&child).await.unwrap().is_none(), "the child's head goes with it");
    let loaded = kit.load(&agent).await;
    assert_eq!(loaded.head, before, "no owner is fenced");
    assert_eq!(store.due(now, 10).await.unwrap(), std::slice::from_ref(&agent));
    let [message] = loaded.pending.as_slice() else { panic!("one message: {:?}", loaded.pending) };
    assert_eq!((message.kind, message.call, message.outcome), (MessageKind::ToolResult, Some(CallNumber(1)), Some(TaskStatus::Success)));
    let used = Usage { tokens_in: 7, tokens_out: 3, ..Usage::default() };
    assert_eq!(message.below, Some(Below { usage: used, ..Below::default() }));
    let item = store.item(&agent.tenant, message.item.unwrap()).await.unwrap().unwrap();
    assert_eq!((item.kind, item.content.as_ref()), (ItemKind::Result, br#"{"call":1,"status":"success","result":"done"}"#.as_slice()));
    kit.take_report(&agent, now).await;
    kit.report(&agent, run, 2, now).await;
    kit.take_report(&agent, now).await;
    let state = kit.load(&agent).await.run.unwrap().state;
    assert_eq!((state.iteration, state.tokens(), state.children_used), (2, 10, 1));
}

/// The start of a child is repeated after a crash, also when the child has ended meanwhile.
pub async fn a_child_is_recorded_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER]).await;
    let new = kit.new_child(children[0], answers(&agent, run, 1), START);
    assert!(matches!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Entered { .. }));
    assert!(matches!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Duplicate { run, .. } if run == children[0]));
    kit.advance(&child_head(&agent.tenant, children[0]), final_reply("done"), START).await;
    kit.take_report(&agent, START).await;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Duplicate { run, .. } if run == children[0]));
    // Two runs can't answer the same call.
    let (run, children) = waiting(&kit, &foreign("b"), &[HELPER]).await;
    let mut of_other = kit.new_child(children[0], answers(&foreign("b"), run, 1), START);
    assert_eq!(store.enqueue(of_other.clone()).await.unwrap(), Enqueued::ParentGone, "the parent is another tenant's");
    of_other.agent = child_head(&foreign("b").tenant, children[0]);
    assert!(matches!(store.enqueue(of_other).await.unwrap(), Enqueued::Entered { .. }));
}

/// The run has ended, never was, is queued or quarantined; or the call has a result, does not exist, or waits for a service.
pub async fn a_child_of_a_run_that_does_not_wait_is_refused(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, LOOKUP]).await;
    let refused = async |parent: ParentCall, why: &str| {
        let new = kit.new_child(kit.run_id(), parent, START);
        let (own, child) = (new.agent.clone(), new.run);
        assert_eq!(store.enqueue(new).await.unwrap(), Enqueued::ParentGone, "{why}");
        assert!(store.head(&own).await.unwrap().is_none() && store.run(&own.tenant, child).await.unwrap().is_none(), "{why}");
    };
    refused(answers(&agent, kit.run_id(), 1), "an unknown run").await;
    refused(answers(&agent, run, 3), "an unknown call").await;
    refused(answers(&agent, run, 2), "a call of a service").await;
    let (queued, _) = kit.begin(&agent, START).await;
    refused(answers(&agent, queued, 1), "a queued run").await;
    let child = start(&store, &kit, &agent, (run, 1, children[0])).await;
    kit.advance(&child, final_reply("done"), START).await;
    kit.take_report(&agent, START).await;
    refused(answers(&agent, run, 1), "a call that has its result").await;
    kit.advance(&agent, stop(), START).await;
    refused(answers(&agent, run, 1), "a run that has ended").await;
    let other = super::fixtures::agent("b");
    let (run, _) = waiting(&kit, &other, &[HELPER]).await;
    store.quarantine(other.clone(), run, "unreadable".into()).await.unwrap();
    refused(answers(&other, run, 1), "a run that can't be read").await;
}

/// A stop waits for a child that works, one that waits, and one that no worker has entered. All of them are due at once.
pub async fn the_end_of_a_parent_stops_its_children(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, HELPER, HELPER, HELPER, HELPER]).await;
    let working = start(&store, &kit, &agent, (run, 1, children[0])).await;
    let waits = start(&store, &kit, &agent, (run, 2, children[1])).await;
    kit.advance(&waits, calls(&[LOOKUP]), START).await;
    let mut unentered = kit.new_child(children[2], answers(&agent, run, 3), START);
    unentered.enter = None;
    assert!(matches!(store.enqueue(unentered).await.unwrap(), Enqueued::Dispatched { .. }));
    let dispatched = child_head(&agent.tenant, children[2]);
    let ended = start(&store, &kit, &agent, (run, 4, children[3])).await;
    kit.advance(&ended, final_reply("done"), START).await;
    let stopped = [working.clone(), waits, dispatched];
    let mut before = Vec::new();
    for head in &stopped {
        before.push(kit.load(head).await.head);
    }
    assert_eq!(before[0].status, HeadStatus::Running);
    kit.advance(&agent, stop(), START.plus_ms(1)).await;
    let due = store.due(START.plus_ms(1), 100).await.unwrap();
    for (head, before) in stopped.iter().zip(before) {
        let loaded = kit.load(head).await;
        assert_eq!(loaded.head, before, "no owner is fenced");
        let kinds: Vec<_> = loaded.pending.iter().map(|message| message.kind).collect();
        assert_eq!(kinds, [MessageKind::Stop], "{head:?}");
        assert!(due.contains(head), "{head:?} is due");
        kit.advance(head, stop(), START.plus_ms(2)).await;
        assert!(store.head(head).await.unwrap().is_none());
    }
    assert!(store.head(&child_head(&agent.tenant, children[4])).await.unwrap().is_none(), "the last one was never recorded");
    let late = store.inbox(&agent, ALL).await.unwrap();
    let results = late.iter().filter(|row| row.kind == MessageKind::ToolResult && row.status == MessageStatus::Skipped).count();
    assert_eq!(results, 4, "results that nobody waits for are on record: {late:?}");
}

/// The result is stored, unless the content of the parent was erased.
pub async fn a_child_whose_parent_has_ended_reports_too_late(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, HELPER]).await;
    let first = start(&store, &kit, &agent, (run, 1, children[0])).await;
    let second = start(&store, &kit, &agent, (run, 2, children[1])).await;
    kit.advance(&agent, stop(), START).await;
    kit.advance(&first, final_reply("late"), START).await;
    store.erase(agent.tenant.clone(), run).await.unwrap();
    kit.advance(&second, final_reply("later"), START).await;
    let rows = store.inbox(&agent, ALL).await.unwrap();
    let results: Vec<_> = rows.iter().filter(|row| row.kind == MessageKind::ToolResult).collect();
    assert!(results.len() == 2 && results.iter().all(|row| row.status == MessageStatus::Skipped && row.item.is_none()), "{results:?}");
    assert_eq!(kit.load(&agent).await.head.status, HeadStatus::Idle);
}

/// A child may end in the transition that enters it, for instance because its share of the budgets is empty.
pub async fn a_child_may_end_as_it_is_entered(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER]).await;
    let mut new = kit.new_child(children[0], answers(&agent, run, 1), START);
    new.enter = Some(kit.commit(new.run, &new.state, stop(), START));
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    assert_eq!(store.run(&agent.tenant, children[0]).await.unwrap().unwrap().status, RunStatus::Ended);
    let loaded = kit.load(&agent).await;
    assert_eq!(loaded.pending.iter().map(|message| message.outcome).collect::<Vec<_>>(), [Some(TaskStatus::Canceled)]);
    assert_eq!(store.due(START, 10).await.unwrap(), std::slice::from_ref(&agent));
}

/// The parent goes on without a result of its child. What the child says later changes nothing.
pub async fn a_call_that_is_given_up_stops_its_child(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, LOOKUP]).await;
    let child = start(&store, &kit, &agent, (run, 1, children[0])).await;
    let now = START.plus_ms(DEADLINE_MS);
    let content = kit.item(ItemKind::Result, br#"{"call":1,"status":"timeout","result":null}"#);
    let report = windlass_kernel::Report {
        call: CallNumber(1),
        retry: 0,
        cause: windlass_kernel::ReportCause::Deadline,
        status: TaskStatus::Timeout,
        item: content.id,
        after: None,
        below: None,
    };
    let (guard, mut commit) = kit.prepare(&agent, Input::Reported(report), now).await;
    commit.items.push(content);
    assert_eq!(commit.stops, children);
    store.commit(guard, commit).await.unwrap();
    assert_eq!(kit.load(&child).await.pending.iter().map(|message| message.kind).collect::<Vec<_>>(), [MessageKind::Stop]);
    kit.advance(&child, stop(), now).await;
    let (guard, mut late) = {
        let message = kit.load(&agent).await.pending[0].clone();
        let (guard, mut commit) = kit.prepare(&agent, super::fixtures::report_input(&message), now).await;
        commit.consumed.push(message.id);
        (guard, commit)
    };
    late.kind = windlass_ports::CommitKind::Note;
    store.commit(guard, late).await.unwrap();
    let state = kit.load(&agent).await.run.unwrap().state;
    assert_eq!((state.waiting_count(), state.iteration), (1, 1));
}

/// The newest child comes first, and another tenant sees none of them.
pub async fn children_are_listed_for_their_parent(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER, HELPER, HELPER]).await;
    for (index, child) in children.iter().enumerate() {
        start(&store, &kit, &agent, (run, index as u32 + 1, *child)).await;
    }
    let page = async |tenant: &windlass_kernel::Tenant, parent, below, limit| {
        let page = store.scan_runs(tenant, &RunScan { set: RunSet::Children(parent), below, limit }).await.unwrap();
        page.runs.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let newest_first: Vec<_> = children.iter().rev().copied().collect();
    assert_eq!(page(&agent.tenant, run, None, 10).await, newest_first);
    assert_eq!(page(&agent.tenant, run, None, 2).await, newest_first[..2]);
    assert_eq!(page(&agent.tenant, run, Some(newest_first[1]), 10).await, newest_first[2..]);
    assert!(page(&foreign("a").tenant, run, None, 10).await.is_empty());
    assert!(page(&agent.tenant, children[0], None, 10).await.is_empty());
    let view = store.run(&agent.tenant, children[1]).await.unwrap().unwrap();
    assert_eq!(view.state.parent, Some(answers(&agent, run, 2)));
}

/// A run in the middle of a tree is given up because it can't be read: its parent gets an error, and its children are stopped.
pub async fn a_tree_goes_on_when_one_of_its_runs_is_given_up(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, children) = waiting(&kit, &agent, &[HELPER]).await;
    let middle = start(&store, &kit, &agent, (run, 1, children[0])).await;
    kit.advance(&middle, calls(&[HELPER]), START).await;
    let grandchild = kit.load(&middle).await.run.unwrap().state.calls()[0].child.unwrap();
    let last = start(&store, &kit, &middle, (children[0], 1, grandchild)).await;
    store.quarantine(middle.clone(), children[0], "unreadable".into()).await.unwrap();
    let (call, item, outcome, after, source, reason, key) = (None, None, None, None, None, None, None);
    let message = NewMessage { kind: MessageKind::Answer, call, retry: 0, item, outcome, after, source, reason, key };
    let deliverable = kit.item(ItemKind::Deliverable, br#"{"text":"given up"}"#);
    let result = kit.item_id();
    let given_up =
        GivenUp { run: children[0], node: NODE, deliverable, message, result, children: vec![grandchild], now: START.plus_ms(1) };
    assert_eq!(store.abandon(middle.clone(), given_up).await.unwrap(), Abandoned::Done { next_leased: false });
    let loaded = kit.load(&agent).await;
    assert_eq!(
        loaded.pending.iter().map(|message| (message.item, message.outcome)).collect::<Vec<_>>(),
        [(Some(result), Some(TaskStatus::Failed))]
    );
    assert_eq!(kit.load(&last).await.pending.iter().map(|message| message.kind).collect::<Vec<_>>(), [MessageKind::Stop]);
}

/// Whichever is first: the child is refused, or it has a stop.
pub async fn a_child_that_races_the_end_of_its_parent_is_refused_or_stopped(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        let (run, children) = waiting(&kit, &agent, &[HELPER]).await;
        let new = kit.new_child(children[0], answers(&agent, run, 1), START);
        let (guard, end) = kit.prepare(&agent, stop(), START).await;
        let (one, two) = (store.clone(), store.clone());
        let starts = tokio::spawn(async move { one.enqueue(new).await.unwrap() });
        let ends = tokio::spawn(async move { two.commit(guard, end).await.unwrap() });
        ends.await.unwrap();
        let started = starts.await.unwrap();
        let head = store.load(&child_head(&agent.tenant, children[0])).await.unwrap();
        let stops = head.map(|loaded| loaded.pending.iter().filter(|message| message.kind == MessageKind::Stop).count());
        assert_eq!(stops, (started != Enqueued::ParentGone).then_some(1), "{started:?}");
    }
}

/// A child's end and a commit of its parent at the same moment: neither fences the other, and the result is counted.
pub async fn a_result_that_races_the_parents_commit_is_counted(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = agent(&format!("a{round}"));
        let (run, children) = waiting(&kit, &agent, &[HELPER, HELPER]).await;
        let child = start(&store, &kit, &agent, (run, 1, children[0])).await;
        let new = kit.new_child(children[1], answers(&agent, run, 2), START);
        store.enqueue(new).await.unwrap();
        let (child_guard, end) = kit.prepare(&child, final_reply("done"), START).await;
        let (guard, begun) = kit.prepare(&agent, Input::ChildBegun(CallNumber(2)), START).await;
        let (one, two) = (store.clone(), store.clone());
        let ends = tokio::spawn(async move { one.commit(child_guard, end).await.unwrap() });
        let begins = tokio::spawn(async move { two.commit(guard, begun).await.unwrap() });
        ends.await.unwrap();
        begins.await.unwrap();
        let head = store.head(&agent).await.unwrap().unwrap();
        assert_eq!(head.pending, 1);
        assert!(store.due(START, 1_000).await.unwrap().contains(&agent), "the parent is due");
        kit.take_report(&agent, START).await;
        assert_eq!(statuses(&store, &agent, run).await, [CallStatus::Received, CallStatus::Begun]);
    }
}

/// Many children end at the same moment: no result is lost, and none is counted twice.
pub async fn children_that_end_at_once_are_all_counted(store: Arc<dyn Full>) {
    const CHILDREN: usize = 6;
    let kit = Kit::new(&store);
    for round in 0..ROUNDS / 5 {
        let agent = agent(&format!("a{round}"));
        let (run, children) = waiting(&kit, &agent, &[HELPER; CHILDREN]).await;
        let mut ends = Vec::new();
        for (index, child) in children.iter().enumerate() {
            let child = start(&store, &kit, &agent, (run, index as u32 + 1, *child)).await;
            let (guard, end) = kit.prepare(&child, final_reply("done"), START).await;
            ends.push((store.clone(), guard, end));
        }
        let ended: Vec<_> =
            ends.into_iter().map(|(store, guard, end)| tokio::spawn(async move { store.commit(guard, end).await })).collect();
        for end in ended {
            let outcome: Result<_, StoreError> = end.await.unwrap();
            outcome.unwrap();
        }
        assert_eq!(store.head(&agent).await.unwrap().unwrap().pending as usize, CHILDREN);
        for _ in 0..CHILDREN {
            kit.take_report(&agent, Timestamp(START.0 + 1)).await;
        }
        assert_eq!(kit.load(&agent).await.run.unwrap().state.iteration, 2);
    }
}
