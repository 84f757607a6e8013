//! Erasing a tenant leaves nothing of it, and everything of other tenants.

use std::sync::Arc;

use windlass_kernel::{AgentKey, Answer, ConversationId, Decision, Input, ItemKind, RunId, Tenant};
use windlass_ports::{ConversationChange, Conversed, Enqueued, Packed, RequestKey, TenantCursor, TenantErasure};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, START, agent, calls, final_reply, foreign},
    manifests::{instructed, instructions},
};

/// What a tenant has.
pub struct Belongings {
    /// A run that called a tool, was held until a person resumed it, and answered, with a key.
    pub run: RunId,
    /// A conversation with an item.
    pub conversation: ConversationId,
}

/// Gives the tenant of an agent a run, a conversation and a packed box. Every text contains the marker.
pub async fn furnish(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, marker: &str) -> Belongings {
    let mut new = instructed(kit, agent, marker);
    let (run, tenant) = (new.run, agent.tenant.clone());
    new.dedupe = Some("a key".into());
    new.note = Some(marker.to_owned().into());
    new.context.items[0].content = format!("\"{marker}\"").into_bytes().into();
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    kit.advance(agent, calls(&[LOOKUP]), START).await;
    kit.advance(agent, Input::Panicked, START).await;
    let interrupt = kit.load(agent).await.run.unwrap().state.interrupts[0].number;
    let answer = Answer { interrupt, shows: None, by: Some(marker.into()), decision: Decision::Resume };
    kit.advance(agent, Input::Answered(answer), START).await;
    kit.report(agent, run, 1, START).await;
    kit.take_report(agent, START).await;
    kit.advance(agent, final_reply(marker), START).await;
    let conversation = kit.conversation_id();
    let items = vec![kit.item(ItemKind::Instruction, format!("\"{marker}\"").as_bytes())];
    let begin = ConversationChange::Begin { metadata: marker.to_owned().into(), id: kit.box_id(), items };
    assert!(matches!(store.converse(tenant.clone(), conversation, begin, START).await.unwrap(), Conversed::Done(_)));
    let range = store.run(&tenant, run).await.unwrap().unwrap().state.output;
    let mut pack = kit.new_pack(&tenant, vec![range], vec![kit.item(ItemKind::Instruction, format!("\"{marker}\"").as_bytes())]);
    pack.key = Some(RequestKey { key: "packed".into(), asked: [1; 16] });
    assert!(matches!(store.pack(pack).await.unwrap(), Packed::Done(_)));
    Belongings { run, conversation }
}

/// Erases a tenant in small batches. Returns the number of erased rows.
pub async fn erase_whole(store: &Arc<dyn Full>, tenant: &Tenant) -> u64 {
    let (mut from, mut erased) = (TenantCursor::default(), 0);
    loop {
        match store.erase_tenant(tenant.clone(), from, 2).await.unwrap() {
            TenantErasure::Erased { rows, next } => {
                erased += rows;
                let Some(next) = next else { return erased };
                from = next;
            }
            TenantErasure::OpenRuns(open) => panic!("{open} runs are open"),
        }
    }
}

/// An erased tenant can come back, and its keys can be used again.
pub async fn tm_05_a_tenant_is_erased_whole_and_no_other(store: Arc<dyn Full>) {
    let (kit, own, other) = (Kit::new(&store), agent("a"), foreign("a"));
    let erased = furnish(&store, &kit, &own, "own text").await;
    let stays = furnish(&store, &kit, &other, "own text").await;
    assert!(erase_whole(&store, &own.tenant).await > 5);
    assert_eq!(erase_whole(&store, &own.tenant).await, 0, "once more changes nothing");
    assert!(store.run(&own.tenant, erased.run).await.unwrap().is_none());
    assert_eq!(store.conversation(&own.tenant, erased.conversation).await.unwrap(), None);
    assert_eq!(store.answered(&own.tenant, "packed").await.unwrap(), None);
    assert_eq!(store.tenants().await.unwrap(), std::slice::from_ref(&other.tenant));
    assert_eq!(instructions(&store, &other, stays.run).await.as_deref(), Some("own text"));
    assert!(store.conversation(&other.tenant, stays.conversation).await.unwrap().is_some());
    assert!(store.answered(&other.tenant, "packed").await.unwrap().is_some());
    let view = store.run(&other.tenant, stays.run).await.unwrap().unwrap();
    assert_eq!(store.range_items(&other.tenant, view.state.output).await.unwrap().len(), 4);
    let again = furnish(&store, &kit, &own, "own text").await;
    assert_eq!(instructions(&store, &own, again.run).await.as_deref(), Some("own text"));
}

/// One run is active, and one is queued behind it.
pub async fn tm_05_a_tenant_with_an_open_run_is_left_as_it_is(store: Arc<dyn Full>) {
    let (kit, busy) = (Kit::new(&store), agent("b"));
    let kept = furnish(&store, &kit, &agent("a"), "text").await;
    kit.begin(&busy, START).await;
    kit.begin(&busy, START).await;
    let refused = store.erase_tenant(busy.tenant.clone(), TenantCursor::default(), 100).await.unwrap();
    assert_eq!(refused, TenantErasure::OpenRuns(2));
    let later = TenantCursor { stage: 2, after: Vec::new() };
    assert_eq!(store.erase_tenant(busy.tenant.clone(), later, 100).await.unwrap(), TenantErasure::OpenRuns(2));
    assert_eq!(instructions(&store, &agent("a"), kept.run).await.as_deref(), Some("text"));
    assert!(store.conversation(&busy.tenant, kept.conversation).await.unwrap().is_some());
}
