//! A commit is applied only if its guard holds, and only once.

use std::sync::Arc;

use windlass_kernel::{Epoch, HeadStatus, Input, ItemKind, RunId, Seq, StreamedText};
use windlass_ports::{Commit, Guard, NodeId, Page, StoreError};

use super::{
    Full,
    fixtures::{Kit, LOCAL, LOOKUP, START, agent, calls, final_reply, guard},
};

/// Everything that a fenced commit could have changed.
async fn traces(store: &Arc<dyn Full>, run: RunId) -> String {
    let agent = agent("a");
    let page = Page { after: 0, limit: 100 };
    let state = store.run(&agent.tenant, run).await.unwrap().unwrap().state;
    format!(
        "{:?} {:?} {:?} {state:?} {:?} {:?}",
        store.head(&agent).await.unwrap(),
        store.load(&agent).await.unwrap().unwrap().head,
        store.journal(&agent.tenant, run, 0, 100).await.unwrap(),
        store.inbox(&agent, page).await.unwrap(),
        store.open_box(&agent.tenant, state.output.id).await.unwrap(),
    )
}

/// A wrong status, epoch, run or sequence number: the commit is fenced, and nothing has changed.
pub async fn a_stale_guard_changes_nothing(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (good, commit) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
    let before = traces(&store, run).await;
    let stale = [
        Guard { status: HeadStatus::Suspended, ..good.clone() },
        Guard { epoch: Epoch(0), ..good.clone() },
        Guard { epoch: Epoch(2), ..good.clone() },
        Guard { run: kit.run_id(), ..good.clone() },
        Guard { seq: Seq(0), ..good.clone() },
        Guard { seq: Seq(2), ..good.clone() },
        Guard { agent: super::fixtures::agent("nobody"), ..good.clone() },
        Guard { agent: super::fixtures::foreign("a"), ..good.clone() },
    ];
    for guard in stale {
        let outcome = store.commit(guard.clone(), commit.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Fenced)), "{guard:?}: {outcome:?}");
        assert_eq!(traces(&store, run).await, before, "{guard:?}");
    }
    store.commit(good, commit).await.unwrap();
}

/// The same commit is sent again, because its answer was lost: it gets the same answer, and has no second effect.
pub async fn a_lost_answer_is_success_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (guard, commit) = kit.prepare(&agent, calls(&[LOCAL]), START).await;
    let first = store.commit(guard.clone(), commit.clone()).await.unwrap();
    let before = traces(&store, run).await;
    assert_eq!(store.commit(guard.clone(), commit.clone()).await.unwrap(), first);
    assert_eq!(traces(&store, run).await, before);
    let another = Commit { node: NodeId(9), ..commit.clone() };
    assert!(matches!(store.commit(guard.clone(), another).await, Err(StoreError::Fenced)), "another node's is not ours");
    let (_, other) = kit.prepare(&agent, Input::owner_changed(), START).await;
    assert!(matches!(store.commit(guard.clone(), other).await, Err(StoreError::Fenced)), "other events are not these");
    kit.advance(&agent, Input::owner_changed(), START).await;
    assert!(matches!(store.commit(guard, commit).await, Err(StoreError::Fenced)), "the run has moved on");
}

/// The same for a commit that ended the run and leased the next one.
pub async fn a_lost_answer_of_the_last_commit_is_success_too(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    kit.begin(&agent, START).await;
    let (guard, mut commit) = kit.prepare(&agent, final_reply("done"), START).await;
    commit.messages.push(kit.new_report(&agent, guard.run, 7, START).message);
    let first = store.commit(guard.clone(), commit.clone()).await.unwrap();
    assert!(first.next_leased);
    assert_eq!(first.messages.len(), 1);
    assert_eq!(store.commit(guard, commit).await.unwrap(), first);
    assert_eq!(store.head(&agent).await.unwrap().unwrap().queued, 0);
}

/// Another node that commits under the guard owns the head from then on, and the earlier owner is fenced. A stop raises the epoch, too.
pub async fn another_owner_raises_the_epoch(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (old, reply) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
    let (guard, mut takeover) = kit.prepare(&agent, Input::owner_changed(), START).await;
    takeover.node = NodeId(2);
    let committed = store.commit(guard, takeover).await.unwrap();
    assert_eq!(committed.epoch, Epoch(2));
    assert!(matches!(store.commit(old, reply).await, Err(StoreError::Fenced)));
    assert_eq!(kit.load(&agent).await.head.owner, Some(NodeId(2)));
    assert_eq!(store.run(&agent.tenant, run).await.unwrap().unwrap().epoch, Some(Epoch(2)));
    let (guard, mut stop) = kit.prepare(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    (stop.node, stop.raise_epoch) = (NodeId(2), true);
    assert_eq!(store.commit(guard, stop).await.unwrap().epoch, Epoch(3));
    let last = store.journal(&agent.tenant, run, 0, 100).await.unwrap().pop().unwrap();
    assert_eq!(last.epoch, Some(Epoch(3)));
}

/// Two commits with one guard: one is applied whole, and the other not at all.
pub async fn of_racing_commits_one_wins(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (guard, one) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
    let (_, two) = kit.prepare(&agent, final_reply("done"), START).await;
    let length = 3 + one.events.len();
    let (first, second) = tokio::join!(store.commit(guard.clone(), one), store.commit(guard, two));
    let wins = [&first, &second].into_iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(wins, 1, "{first:?} {second:?}");
    if first.is_ok() {
        assert_eq!(store.journal(&agent.tenant, run, 0, 100).await.unwrap().len(), length);
    }
}

/// A commit that fails in the middle is refused whole; other commits of its group are applied.
pub async fn a_failing_member_leaves_no_trace(store: Arc<dyn Full>) {
    let (kit, bad) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&bad, START).await;
    let good = agent("b");
    kit.begin(&good, START).await;
    let before = traces(&store, run).await;
    let (bad_guard, mut commit) = kit.prepare(&bad, calls(&[LOOKUP]), START).await;
    // An item that exists already: the commit fails after the head, the item and the box were written.
    let twice = kit.item(ItemKind::Thought, b"{}");
    commit.items.extend([twice.clone(), twice]);
    let (good_guard, good_commit) = kit.prepare(&good, calls(&[LOOKUP]), START).await;
    let beside = kit.entering(kit.new_run(&agent("c"), START));
    let (refused, landed, enqueued) =
        tokio::join!(store.commit(bad_guard.clone(), commit), store.commit(good_guard, good_commit), store.enqueue(beside));
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    landed.unwrap();
    enqueued.unwrap();
    assert_eq!(traces(&store, run).await, before);
    assert_eq!(guard(&bad, &kit.load(&bad).await), bad_guard);
    kit.advance(&bad, calls(&[LOOKUP]), START).await;
}
