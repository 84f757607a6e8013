//! Usage: each run is counted once, by any server.

use std::sync::Arc;

use windlass_kernel::{Input, StreamedText};
use windlass_ports::{Day, Enqueued, ItemScan, NodeId, RunUsage, UsageGroup, UsageKey, UsageQuery, UsageRow, UsageSums, Withdrawn};

use super::{
    Full,
    fixtures::{Kit, START, agent, final_reply, foreign},
};

/// The sums of a tenant over all days, grouped by everything.
async fn stored(store: &Arc<dyn Full>, tenant: &str) -> Vec<UsageGroup> {
    let all = UsageQuery { from: Day::default(), to: Day(u32::MAX), by_day: true, by_agent: true, by_model: true, limit: 100 };
    store.usage(&tenant.into(), &all).await.unwrap()
}

fn group(row: &UsageRow) -> UsageGroup {
    let UsageKey { day, agent, model, .. } = row.key.clone();
    UsageGroup { day: Some(day), agent: Some(agent), model: Some(model), sums: row.sums }
}

fn rows(counted: &[RunUsage]) -> Vec<UsageRow> {
    counted.iter().map(|run| UsageRow { key: run.key.clone(), sums: run.sums }).collect()
}

/// An ended run is listed until it is added to the sums of the day on which it ended; an open run is not listed.
pub async fn tm_13_each_ended_run_is_counted_once(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (run, _) = kit.begin(&agent("a"), START).await;
    kit.begin(&agent("b"), START).await;
    assert_eq!(store.uncounted_usage(10).await.unwrap(), []);
    kit.advance(&agent("a"), final_reply("done"), START).await;
    let counted = store.uncounted_usage(10).await.unwrap();
    assert_eq!(counted.iter().map(|counted| counted.run).collect::<Vec<_>>(), [run]);
    let (key, sums) = (&counted[0].key, counted[0].sums);
    assert_eq!((key.tenant.as_str(), key.day, key.model.as_str(), sums.runs), ("acme", Day::of(START), "test", 1));
    assert!(sums.bytes > 0, "{sums:?}");
    assert!(store.add_usage(vec![run], rows(&counted)).await.unwrap());
    assert_eq!(store.uncounted_usage(10).await.unwrap(), []);
    assert_eq!(stored(&store, "acme").await, [group(&rows(&counted)[0])]);
    assert_eq!(stored(&store, "other").await, []);
    store.forget_usage(Day::of(START).next()).await.unwrap();
    assert_eq!(stored(&store, "acme").await, []);
}

/// Runs that end when they are entered, are withdrawn from the queue, or are stopped.
pub async fn tm_13_every_way_to_end_is_counted(store: Arc<dyn Full>) {
    let (kit, busy) = (Kit::new(&store), agent("a"));
    let stop = || Input::Stopped { reason: String::new(), streamed: StreamedText::default() };
    let (stopped, _) = kit.begin(&busy, START).await;
    let queued = kit.new_run(&busy, START);
    assert!(matches!(store.enqueue(queued.clone()).await.unwrap(), Enqueued::Queued { .. }));
    let withdrawal = kit.commit(queued.run, &queued.state, stop(), START);
    assert_eq!(store.withdraw(busy.clone(), withdrawal).await.unwrap(), Withdrawn::Done);
    let mut at_once = kit.own_run(START);
    at_once.enter = Some(kit.commit(at_once.run, &at_once.state, stop(), START));
    store.enqueue(at_once.clone()).await.unwrap();
    kit.advance(&busy, stop(), START).await;
    let mut counted: Vec<_> = store.uncounted_usage(10).await.unwrap().into_iter().map(|counted| counted.run).collect();
    let mut ended = [stopped, queued.run, at_once.run];
    counted.sort_unstable();
    ended.sort_unstable();
    assert_eq!(counted, ended);
}

/// A store that was not opened to count usage writes no row for it.
pub async fn without_counting_an_end_leaves_nothing_to_count(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    kit.begin(&agent("a"), START).await;
    kit.advance(&agent("a"), final_reply("done"), START).await;
    assert_eq!(store.uncounted_usage(10).await.unwrap(), []);
}

/// The list and the sums change together: of two servers that read the same list, the second adds nothing.
pub async fn tm_13_of_two_that_count_the_same_runs_one_adds_them(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for name in ["a", "b"] {
        kit.begin(&agent(name), START).await;
        kit.advance(&agent(name), final_reply("done"), START).await;
    }
    let counted = store.uncounted_usage(10).await.unwrap();
    let runs: Vec<_> = counted.iter().map(|counted| counted.run).collect();
    // The sums of one key are in one row.
    let mut row = rows(&counted).remove(0);
    row.sums.add(&counted[1].sums);
    let added = tokio::join!(store.add_usage(runs.clone(), vec![row.clone()]), store.add_usage(runs.clone(), vec![row.clone()]));
    assert_eq!(u8::from(added.0.unwrap()) + u8::from(added.1.unwrap()), 1);
    assert!(!store.add_usage(vec![runs[0]], vec![row.clone()]).await.unwrap(), "it was counted before");
    assert_eq!(stored(&store, "acme").await, [group(&row)]);
}

/// The sums of one tenant, for the given days, grouped as asked.
pub async fn sums_are_grouped_as_they_are_asked_for(store: Arc<dyn Full>) {
    let row = |tenant: &str, day: u32, agent: &str, model: &str, input: u64| {
        let key = UsageKey { tenant: tenant.into(), day: Day(day), agent: agent.into(), model: model.into(), node: NodeId(u64::from(day)) };
        UsageRow { key, sums: UsageSums { input, runs: 1, ..UsageSums::default() } }
    };
    let added = [
        row("acme", 1, "a", "x", 1),
        row("acme", 2, "a", "x", 2),
        row("acme", 2, "a", "y", 4),
        row("acme", 2, "", "x", 8),
        row("acme", 3, "a", "x", 16),
        row("other", 2, "a", "x", 32),
    ];
    assert!(store.add_usage(Vec::new(), added.to_vec()).await.unwrap());
    let whole = UsageQuery::whole(Day(2), Day(3));
    let read = async |query: UsageQuery| {
        let found = store.usage(&"acme".into(), &query).await.unwrap();
        found.into_iter().map(|group| (group.day, group.agent, group.model, group.sums.input, group.sums.runs)).collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(read(whole.clone()).await, [(None, None, None, 30, 4)]);
    assert_eq!(read(UsageQuery::whole(Day(4), Day(9))).await, []);
    let by_agent = UsageQuery { by_agent: true, limit: 9, ..whole.clone() };
    assert_eq!(read(by_agent.clone()).await, [(None, text(""), None, 8, 1), (None, text("a"), None, 22, 3)]);
    assert_eq!(read(UsageQuery { limit: 1, ..by_agent }).await, [(None, text(""), None, 8, 1)]);
    let by_both = UsageQuery { by_day: true, by_model: true, limit: 9, ..whole };
    let expected = [(Some(Day(2)), None, text("x"), 10, 2), (Some(Day(2)), None, text("y"), 4, 1), (Some(Day(3)), None, text("x"), 16, 1)];
    assert_eq!(read(by_both).await, expected);
}

/// Stored content is measured in ranges of items that follow each other.
pub async fn tm_13_stored_bytes_are_those_of_each_tenant(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    kit.begin(&agent("a"), START).await;
    kit.begin(&foreign("b"), START).await;
    let whole = store.item_bytes(&ItemScan { after: None, up_to: None, limit: 100 }).await.unwrap();
    let mut tenants = whole.tenants.clone();
    tenants.sort();
    let bytes = br#"{"text":"do it"}"#.len() as u64;
    assert_eq!(tenants, [("acme".into(), bytes), ("other".into(), bytes)]);
    assert_eq!(whole.items, 2);
    let first = store.item_bytes(&ItemScan { after: None, up_to: None, limit: 1 }).await.unwrap();
    let rest = store.item_bytes(&ItemScan { after: first.last, up_to: whole.last, limit: 100 }).await.unwrap();
    assert_eq!((first.items, rest.items, rest.last), (1, 1, whole.last));
    assert_eq!(store.open_runs(&"acme".into()).await.unwrap(), 1);
    assert_eq!(store.tenants().await.unwrap(), ["acme".into(), "other".into()]);
}
