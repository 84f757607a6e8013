//! Manifests: stored once per tenant and content, for as long as a run has them.

use std::sync::Arc;

use windlass_kernel::{AgentKey, RunId};
use windlass_ports::{Enqueued, NewRun, codec};

use super::{
    Full,
    fixtures::{Kit, START, agent, final_reply, foreign},
};

/// A run, entered, whose manifest has these instructions.
pub fn instructed(kit: &Kit, agent: &AgentKey, instructions: &str) -> NewRun {
    let mut new = kit.new_run(agent, START);
    let mut manifest = new.manifest.manifest.as_ref().clone();
    manifest.instructions = Some(instructions.into());
    new.manifest = Arc::new(codec::pin_manifest(manifest));
    kit.entering(new)
}

/// The instructions in the manifest of a run.
pub async fn instructions(store: &Arc<dyn Full>, agent: &AgentKey, run: RunId) -> Option<String> {
    store.run(&agent.tenant, run).await.unwrap().unwrap().manifest.instructions.clone()
}

/// An erased run, and a run of each of two tenants with the same manifest as the erased one.
pub async fn runs_with_one_manifest(store: &Arc<dyn Full>, kit: &Kit) -> [(AgentKey, RunId); 3] {
    let [erased, own, other] = [agent("erased"), agent("own"), foreign("other")];
    let runs = [
        ended(store, kit, &erased, "common text").await,
        ended(store, kit, &own, "common text").await,
        ended(store, kit, &other, "common text").await,
    ];
    store.erase(erased.tenant.clone(), runs[0]).await.unwrap();
    [(erased, runs[0]), (own, runs[1]), (other, runs[2])]
}

/// Checks these runs after a migration.
pub async fn check_manifests_of_earlier_runs(store: &Arc<dyn Full>, runs: [(AgentKey, RunId); 3]) {
    let [(erased, first), (own, second), (other, third)] = runs;
    assert_eq!(instructions(store, &erased, first).await, None);
    for _ in 0..2 {
        assert_eq!(instructions(store, &other, third).await.as_deref(), Some("common text"));
        store.erase(own.tenant.clone(), second).await.unwrap();
        assert_eq!(instructions(store, &own, second).await, None);
    }
}

async fn ended(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, text: &str) -> RunId {
    let new = instructed(kit, agent, text);
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    kit.advance(agent, final_reply("done"), START).await;
    run
}

/// Another run keeps the manifest; after its erasure a new run stores it again.
pub async fn tm_05_a_manifest_is_erased_with_the_last_run_that_has_it(store: Arc<dyn Full>) {
    let (kit, a, b) = (Kit::new(&store), agent("a"), agent("b"));
    let first = ended(&store, &kit, &a, "secret").await;
    let second = ended(&store, &kit, &b, "secret").await;
    for _ in 0..2 {
        store.erase(a.tenant.clone(), first).await.unwrap();
        assert_eq!(instructions(&store, &a, first).await, None);
        assert_eq!(instructions(&store, &b, second).await.as_deref(), Some("secret"));
    }
    store.erase(a.tenant.clone(), second).await.unwrap();
    assert_eq!(instructions(&store, &b, second).await, None);
    let third = ended(&store, &kit, &a, "secret").await;
    assert_eq!(instructions(&store, &a, third).await.as_deref(), Some("secret"));
}

/// Runs of another tenant with the same manifest neither keep it nor lose theirs.
pub async fn tm_05_a_manifest_belongs_to_one_tenant(store: Arc<dyn Full>) {
    let (kit, own, other) = (Kit::new(&store), agent("a"), foreign("a"));
    let first = ended(&store, &kit, &own, "shared").await;
    let second = ended(&store, &kit, &other, "shared").await;
    store.erase(own.tenant.clone(), first).await.unwrap();
    assert_eq!(instructions(&store, &own, first).await, None);
    assert_eq!(instructions(&store, &other, second).await.as_deref(), Some("shared"));
    let new = instructed(&kit, &own, "shared");
    let third = new.run;
    store.enqueue(new).await.unwrap();
    store.erase(other.tenant.clone(), second).await.unwrap();
    assert_eq!(kit.load(&own).await.run.unwrap().manifest.instructions.as_deref(), Some("shared"));
    assert_eq!(instructions(&store, &own, third).await.as_deref(), Some("shared"));
}

/// The sums of usage name the model, which only the manifest had.
pub async fn a_run_that_was_erased_is_counted_under_its_model(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let run = ended(&store, &kit, &agent, "text").await;
    let before = store.uncounted_usage(10).await.unwrap().remove(0);
    for _ in 0..2 {
        store.erase(agent.tenant.clone(), run).await.unwrap();
        let after = store.uncounted_usage(10).await.unwrap().remove(0);
        assert_eq!((after.key, after.sums.runs), (before.key.clone(), 1));
    }
}

/// The run may be recorded before the erasure or after it.
pub async fn a_run_that_races_the_erasure_of_its_manifest_has_it(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..30 {
        let (a, b) = (agent(&format!("a{round}")), agent(&format!("b{round}")));
        let erased = ended(&store, &kit, &a, "raced").await;
        let new = instructed(&kit, &b, "raced");
        let run = new.run;
        let (eraser, asker, tenant) = (store.clone(), store.clone(), a.tenant.clone());
        let erasing = tokio::spawn(async move { eraser.erase(tenant, erased).await });
        let asking = tokio::spawn(async move { asker.enqueue(new).await });
        assert!(matches!(asking.await.unwrap().unwrap(), Enqueued::Entered { .. }));
        erasing.await.unwrap().unwrap();
        assert_eq!(kit.load(&b).await.run.unwrap().manifest.instructions.as_deref(), Some("raced"));
        kit.advance(&b, final_reply("done"), START).await;
        store.erase(b.tenant.clone(), run).await.unwrap();
        assert_eq!(instructions(&store, &b, run).await, None);
    }
}
