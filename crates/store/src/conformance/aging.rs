//! Which ended runs are old enough to be erased.

use std::sync::Arc;

use windlass_kernel::{AgentKey, RunId, Timestamp};
use windlass_ports::{AgedScan, ConversationChange, Conversed, Cutoffs, Enqueued, InConversation, NewRun, conversation_agent};

use super::{
    Full,
    fixtures::{HANDED_BACK, Kit, START, agent, calls, final_reply, foreign},
};

/// A note that is longer than that of any run of the agents API.
const NOTE_OF_A_RESPONSE: &[u8] = b"a note of the Responses API";

/// A scan of the tenant that most cases use, in pages of one run.
fn scan(cutoffs: Cutoffs) -> AgedScan {
    AgedScan { tenant: agent("").tenant, cutoffs, after: None, limit: 1, looks: 3 }
}

/// All runs that a scan finds, page by page.
async fn found(store: &Arc<dyn Full>, mut scan: AgedScan) -> Vec<RunId> {
    let mut found = Vec::new();
    loop {
        let page = store.aged(&scan).await.unwrap();
        assert!(page.due.len() <= scan.limit);
        found.extend(page.due);
        if page.next.is_none() {
            return found;
        }
        assert!(page.next > scan.after, "a page continues after the one before");
        scan.after = page.next;
    }
}

async fn both(store: &Arc<dyn Full>, at: Timestamp) -> Vec<RunId> {
    found(store, scan(Cutoffs { responses: Some(at), runs: Some(at) })).await
}

/// Begins a run with a note, accepted at that time.
async fn begin(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, note: Option<&'static [u8]>, at: Timestamp) -> RunId {
    let mut new = kit.new_run(agent, at);
    new.note = note.map(bytes::Bytes::from_static);
    enqueue(store, kit.entering(new)).await
}

async fn enqueue(store: &Arc<dyn Full>, new: NewRun) -> RunId {
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    run
}

/// The age counts from the end of a run. Open runs, erased runs, runs that are not to be stored and runs of other tenants are not found.
pub async fn tm_13_old_runs_of_each_api_are_found_in_their_order(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let at = |ms| START.plus_ms(ms);
    let mut runs = Vec::new();
    for (name, note, end) in [("a", None, 30), ("b", Some(NOTE_OF_A_RESPONSE), 20), ("c", Some(&[1; 16][..]), 10)] {
        runs.push(begin(&store, &kit, &agent(name), note, START).await);
        kit.advance(&agent(name), final_reply("done"), at(end)).await;
    }
    begin(&store, &kit, &foreign("f"), None, START).await;
    kit.advance(&foreign("f"), final_reply("done"), START).await;
    let erased = begin(&store, &kit, &agent("e"), None, START).await;
    kit.advance(&agent("e"), final_reply("done"), START).await;
    store.erase(agent("e").tenant, erased).await.unwrap();
    let mut unstored = kit.new_run(&agent("u"), START);
    unstored.erase_ms = Some(1_000_000);
    enqueue(&store, kit.entering(unstored)).await;
    kit.advance(&agent("u"), final_reply("done"), START).await;
    begin(&store, &kit, &agent("open"), None, START).await;
    let last = begin(&store, &kit, &agent("last"), None, START).await;
    kit.advance(&agent("last"), final_reply("done"), START).await;
    begin(&store, &kit, &agent("young"), None, at(50)).await;
    kit.advance(&agent("young"), final_reply("done"), at(50)).await;

    let (a, b, c) = (runs[0], runs[1], runs[2]);
    assert_eq!(both(&store, at(30)).await, [a, b, c, last]);
    assert_eq!(both(&store, at(29)).await, [b, c, last]);
    assert_eq!(both(&store, at(19)).await, [c, last]);
    assert_eq!(found(&store, scan(Cutoffs { responses: Some(at(40)), runs: None })).await, [b]);
    assert_eq!(found(&store, scan(Cutoffs { responses: None, runs: Some(at(40)) })).await, [a, c, last]);
    assert_eq!(found(&store, scan(Cutoffs { responses: Some(at(20)), runs: Some(at(10)) })).await, [b, c, last]);
    assert_eq!(found(&store, scan(Cutoffs::default())).await, []);
    let whole = AgedScan { limit: 100, looks: 100, ..scan(Cutoffs { responses: Some(at(40)), runs: Some(at(40)) }) };
    let page = store.aged(&whole).await.unwrap();
    assert_eq!((page.due, page.next), (vec![a, b, c, last], None));
    store.erase(agent("").tenant, a).await.unwrap();
    assert_eq!(both(&store, at(40)).await, [b, c, last], "what is erased is not found again");
}

/// A run that waited for its client is needed by its follow-up, and a run by the one that inherits its calls. Queued runs count as open.
pub async fn tm_13_what_an_open_run_goes_on_from_is_left(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut earlier = Vec::new();
    for name in ["a", "b", "c"] {
        earlier.push(begin(&store, &kit, &agent(name), None, START).await);
        kit.advance(&agent(name), calls(&[HANDED_BACK]), START).await;
    }
    assert_eq!(both(&store, START).await, earlier);
    let mut follow = kit.new_run(&agent("follow"), START.plus_ms(5));
    follow.follows = Some(earlier[0]);
    let follow = enqueue(&store, kit.entering(follow)).await;
    let mut take = kit.new_run(&agent("take"), START.plus_ms(5));
    take.takes = Some(earlier[1]);
    enqueue(&store, kit.entering(take)).await;
    let mut queued = kit.new_run(&agent("take"), START.plus_ms(5));
    queued.follows = Some(earlier[2]);
    assert!(matches!(store.enqueue(queued).await.unwrap(), Enqueued::Queued { .. }));
    assert_eq!(both(&store, START.plus_ms(10)).await, []);
    kit.advance(&agent("follow"), final_reply("done"), START.plus_ms(5)).await;
    assert_eq!(both(&store, START.plus_ms(10)).await, [earlier[0], follow]);
}

/// The runs of a conversation are kept for as long as it exists.
pub async fn tm_13_runs_of_a_conversation_are_left_until_it_is_deleted(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (tenant, id) = (agent("").tenant, kit.conversation_id());
    let begin = ConversationChange::Begin { metadata: "{}".into(), id: kit.box_id(), items: Vec::new() };
    let Conversed::Done(view) = store.converse(tenant.clone(), id, begin, START).await.unwrap() else { panic!("no conversation") };
    let head = conversation_agent(&tenant, id);
    let mut new = kit.new_run(&head, START);
    new.conversation = Some(InConversation { id, version: view.version, is_busy: false, may_wait: false });
    let run = enqueue(&store, kit.entering(new)).await;
    kit.advance(&head, final_reply("done"), START).await;
    assert_eq!(both(&store, START).await, []);
    store.converse(tenant, id, ConversationChange::End, START).await.unwrap();
    assert_eq!(both(&store, START).await, [run]);
}
