//! What runs used: each is counted once, by whichever server.

use std::sync::Arc;

use windlass_ports::{Day, ItemScan, RunUsage, UsageRow};

use super::{
    Full,
    fixtures::{Kit, START, agent, foreign, says},
};

fn rows(counted: &[RunUsage]) -> Vec<UsageRow> {
    counted.iter().map(|run| UsageRow { key: run.key.clone(), sums: run.sums }).collect()
}

/// An ended run is on the list until it is added to the sums of the day on which it ended; a run that goes on is not.
pub async fn tm_13_each_ended_run_is_counted_once(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (run, _) = kit.begin(&agent("a"), START).await;
    kit.begin(&agent("b"), START).await;
    assert_eq!(store.uncounted_usage(10).await.unwrap(), []);
    kit.advance(&agent("a"), says("done"), START).await;
    let counted = store.uncounted_usage(10).await.unwrap();
    assert_eq!(counted.iter().map(|counted| counted.run).collect::<Vec<_>>(), [run]);
    let (key, sums) = (&counted[0].key, counted[0].sums);
    assert_eq!((key.tenant.as_str(), key.day, key.model.as_str(), sums.runs), ("acme", Day::of(START), "test", 1));
    assert!(sums.bytes > 0, "{sums:?}");
    assert!(store.add_usage(vec![run], rows(&counted)).await.unwrap());
    assert_eq!(store.uncounted_usage(10).await.unwrap(), []);
    let stored = store.usage(&"acme".into(), Day::of(START), Day::of(START)).await.unwrap();
    assert_eq!(stored, rows(&counted));
    assert_eq!(store.usage(&"other".into(), Day::default(), Day(u32::MAX)).await.unwrap(), []);
    store.forget_usage(Day::of(START).next()).await.unwrap();
    assert_eq!(store.usage(&"acme".into(), Day::default(), Day(u32::MAX)).await.unwrap(), []);
}

/// The list and the sums change together: the second of two that read the same list adds nothing.
pub async fn tm_13_of_two_that_count_the_same_runs_one_adds_them(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for name in ["a", "b"] {
        kit.begin(&agent(name), START).await;
        kit.advance(&agent(name), says("done"), START).await;
    }
    let counted = store.uncounted_usage(10).await.unwrap();
    let runs: Vec<_> = counted.iter().map(|counted| counted.run).collect();
    // The sums of one key come in one row.
    let mut row = rows(&counted).remove(0);
    row.sums.add(&counted[1].sums);
    let added = tokio::join!(store.add_usage(runs.clone(), vec![row.clone()]), store.add_usage(runs.clone(), vec![row.clone()]));
    assert_eq!(u8::from(added.0.unwrap()) + u8::from(added.1.unwrap()), 1);
    assert!(!store.add_usage(vec![runs[0]], vec![row.clone()]).await.unwrap(), "it was counted before");
    let stored = store.usage(&"acme".into(), Day::of(START), Day::of(START)).await.unwrap();
    assert_eq!(stored, [row]);
}

/// Content is measured where it is stored, in stretches that follow each other.
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
