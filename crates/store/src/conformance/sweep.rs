//! What the sweep finds when every ring was lost.

use std::sync::Arc;

use windlass_kernel::{
    AgentKey, CallNumber, EndReason, Failure, FailureCause, HeadStatus, Input, ItemKind, Phase, Spent, StreamedText, TaskStatus,
};
use windlass_ports::{Abandoned, CallStatus, Enqueued, GivenUp, MessageKind, NewMessage, NodeId};

use super::{
    Full,
    fixtures::{DEADLINE_MS, Kit, LOCAL, LOOKUP, NODE, START, agent, calls, final_reply, foreign},
};

/// The longest due first, across tenants, and at most `limit`.
pub async fn agents_are_due_in_order(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let agents = [agent("c"), foreign("b"), agent("a")];
    for (ms, agent) in (0..).zip(&agents) {
        let now = START.plus_ms(ms * 10);
        kit.begin(agent, now).await;
        kit.advance(agent, calls(&[LOOKUP]), now).await;
    }
    let deadline = START.plus_ms(DEADLINE_MS);
    assert!(store.due(windlass_kernel::Timestamp(deadline.0 - 1), 10).await.unwrap().is_empty());
    assert_eq!(store.due(deadline, 10).await.unwrap(), agents[..1]);
    assert_eq!(store.due(deadline.plus_ms(100), 10).await.unwrap(), agents);
    assert_eq!(store.due(deadline.plus_ms(100), 2).await.unwrap(), agents[..2]);
}

/// A model call that waits for its next attempt becomes due, even if no process has it in memory.
pub async fn a_postponed_model_call_is_due(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    let retry_at = START.plus_ms(500);
    let failure = Failure {
        code: "busy".into(),
        cause: FailureCause::Status(429),
        message: String::new(),
        retry_after_ms: Some(1_500),
        retry_at: Some(retry_at),
        fallback: None,
        spent: Spent::default(),
        streamed: StreamedText::default(),
    };
    kit.advance(&agent, Input::AttemptFailed(failure), START).await;
    assert!(store.due(START.plus_ms(499), 10).await.unwrap().is_empty());
    assert_eq!(store.due(retry_at, 10).await.unwrap(), std::slice::from_ref(&agent));
}

/// The work of a lost node: a model call, the start of a tool, an entry. A run that waits for something else is no orphan.
pub async fn a_lost_owners_agents_are_orphans(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    store.enqueue(kit.new_run(&agent("dispatched"), START)).await.unwrap();
    kit.begin(&agent("running"), START).await;
    for (name, tool) in [("starting", LOCAL), ("waiting", LOOKUP)] {
        kit.begin(&agent(name), START).await;
        kit.advance(&agent(name), calls(&[tool]), START).await;
    }
    kit.begin(&agent("idle"), START).await;
    kit.advance(&agent("idle"), final_reply("done"), START).await;
    kit.begin(&foreign("running"), START).await;
    assert!(store.orphans(NODE, None, 10).await.unwrap().is_empty());
    let expected: Vec<AgentKey> = vec![agent("dispatched"), agent("running"), agent("starting"), foreign("running")];
    assert_eq!(store.orphans(NodeId(2), None, 10).await.unwrap(), expected);
    let mut paged = Vec::new();
    while let Some(found) = store.orphans(NodeId(2), paged.last().cloned(), 1).await.unwrap().pop() {
        paged.push(found);
    }
    assert_eq!(paged, expected);
    let (guard, mut takeover) = kit.prepare(&agent("running"), Input::owner_changed(), START).await;
    takeover.node = NodeId(2);
    store.commit(guard, takeover).await.unwrap();
    assert_eq!(store.orphans(NodeId(2), None, 10).await.unwrap().len(), 3);
}

/// A quarantined agent is suspended with nothing due, busy for new requests, and in no list of the sweep; a stop ends the quarantine.
pub async fn a_quarantined_agent_is_not_due(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOCAL]), START).await;
    let (stale, commit) = kit.prepare(&agent, Input::owner_changed(), START).await;
    store.quarantine(super::fixtures::agent("nobody"), run, "no such agent".into()).await.unwrap();
    store.quarantine(agent.clone(), run, "unreadable".into()).await.unwrap();
    let head = store.head(&agent).await.unwrap().unwrap();
    assert_eq!((head.status, head.run, head.quarantined.as_deref()), (HeadStatus::Suspended, Some(run), Some("unreadable")));
    assert!(store.commit(stale, commit).await.is_err(), "the worker that had it is fenced");
    kit.report(&agent, run, 1, START).await;
    assert!(store.claim_calls(kit.claim(LOOKUP, "w", 5, START)).await.unwrap().is_empty());
    assert!(store.due(START.plus_ms(DEADLINE_MS * 2), 10).await.unwrap().is_empty());
    assert!(store.orphans(NodeId(2), None, 10).await.unwrap().is_empty());
    assert!(matches!(kit.begin(&agent, START).await.1, Enqueued::Queued { .. }));
    let committed = kit.advance(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    assert!(committed.next_leased);
    assert_eq!(store.head(&agent).await.unwrap().unwrap().quarantined, None);
}

/// A run that is given up ends with its deliverable, leaves nothing open, and makes room for the next. A run that its agent is not
/// quarantined for is left as it is.
pub async fn a_quarantined_agent_continues_when_its_run_is_given_up(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOCAL]), START).await;
    kit.report(&agent, run, 1, START).await;
    let (next, _) = kit.begin(&agent, START).await;
    let give_up = |run| {
        let (call, item, outcome, after, source, reason, key) = (None, None, None, None, None, None, None);
        let message = NewMessage { kind: MessageKind::Answer, call, retry: 0, item, outcome, after, source, reason, key };
        let deliverable = kit.item(ItemKind::Deliverable, b"{\"text\":\"given up\"}");
        store.abandon(
            agent.clone(),
            GivenUp { run, node: NODE, deliverable, message, result: kit.item_id(), children: Vec::new(), now: START },
        )
    };
    assert_eq!(give_up(run).await.unwrap(), Abandoned::NotQuarantined);
    store.quarantine(agent.clone(), run, "unreadable".into()).await.unwrap();
    assert_eq!(give_up(next).await.unwrap(), Abandoned::NotQuarantined, "it is another one's");
    assert_eq!(give_up(run).await.unwrap(), Abandoned::Done { next_leased: true });
    store.quarantine(agent.clone(), run, "found too late".into()).await.unwrap();
    assert_eq!(store.head(&agent).await.unwrap().unwrap().quarantined, None, "the next one is not the one that cannot be read");
    let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
    assert_eq!(view.state.phase, Phase::Ended { status: TaskStatus::Failed, reason: EndReason::Abandoned });
    let items = store.box_items(&agent.tenant, view.state.output.id, 0, 10).await.unwrap();
    assert_eq!((items.len() as u32, items.last().map(|item| item.id)), (view.state.output.length, view.deliverable));
    let calls = store.calls(&agent.tenant, run, CallNumber(1), 10).await.unwrap();
    assert!(calls.iter().all(|call| call.status == CallStatus::Dropped), "{calls:?}");
    let head = store.head(&agent).await.unwrap().unwrap();
    assert_eq!((head.status, head.run, head.quarantined, head.pending), (HeadStatus::Dispatched, Some(next), None, 0));
    assert_eq!(give_up(run).await.unwrap(), Abandoned::NotQuarantined, "once is enough");
}

/// A message that came while the owner ran, and that it did not take before it was lost, makes the agent due.
pub async fn pending_messages_of_a_lost_owner_are_due(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.report(&agent, run, 1, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START.plus_ms(3)).await;
    assert!(store.orphans(NodeId(2), None, 10).await.unwrap().is_empty());
    assert_eq!(store.due(START.plus_ms(3), 10).await.unwrap(), std::slice::from_ref(&agent));
    kit.take_report(&agent, START.plus_ms(4)).await;
    assert!(store.due(START.plus_ms(4), 10).await.unwrap().is_empty());
}
