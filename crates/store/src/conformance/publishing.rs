//! The outbox: every event is in it once, for the publisher.

use std::sync::Arc;

use windlass_kernel::{Input, StreamedText};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, START, agent, calls, final_reply},
};

/// A store that does not publish has no outbox rows.
pub async fn a_store_that_does_not_publish_has_no_outbox(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    kit.begin(&agent("a"), START).await;
    kit.advance(&agent("a"), final_reply("done"), START).await;
    assert!(store.outbox(10).await.unwrap().is_empty());
}

/// The rows cover each journal without gap or overlap, and are deleted once they are published.
pub async fn every_event_is_in_the_outbox_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let queued = kit.new_run(&agent, START);
    store.enqueue(queued.clone()).await.unwrap();
    let stop = kit.commit(queued.run, &queued.state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START);
    store.withdraw(agent.clone(), stop).await.unwrap();
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    kit.report(&agent, run, 1, START).await;
    kit.take_report(&agent, START).await;
    kit.advance(&agent, final_reply("done"), START).await;
    let rows = store.outbox(100).await.unwrap();
    assert!(rows.is_sorted_by_key(|row| row.n));
    for run in [run, queued.run] {
        let mut next = 0;
        for row in rows.iter().filter(|row| row.run == run) {
            assert_eq!((row.first, &row.agent), (next, &agent));
            next += u64::from(row.count);
        }
        assert_eq!(next, store.journal(&agent.tenant, run, 0, 100).await.unwrap().len() as u64);
    }
    assert_eq!(store.outbox(2).await.unwrap(), rows[..2]);
    store.published(vec![rows[0].n, rows[2].n]).await.unwrap();
    let left: Vec<_> = rows.iter().enumerate().filter(|(index, _)| ![0, 2].contains(index)).map(|(_, row)| row.clone()).collect();
    assert_eq!(store.outbox(100).await.unwrap(), left, "exactly those are gone");
}
