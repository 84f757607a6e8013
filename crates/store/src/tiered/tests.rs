use windlass_kernel::{CallNumber, Cause, Input, ItemKind, ParentCall, RunId, StreamedText};
use windlass_ports::{InterruptScan, InterruptView, Page, RunScan, RunSet};

use super::*;
use crate::conformance::{
    Full,
    fixtures::{HANDED_BACK, HELPER, Kit, LOOKUP, NODE, START, agent, calls, delta_batch, final_reply},
};

struct Parts {
    tiered: Arc<TieredStore>,
    database: Arc<MemoryStore>,
    kit: Kit,
}

fn parts(bytes_max: u64) -> Parts {
    let options = StoreOptions { publish: true, usage: false };
    let database = Arc::new(MemoryStore::new(options));
    let tiered = Arc::new(TieredStore::new(database.clone(), database.clone(), options, bytes_max));
    let store: Arc<dyn Full> = tiered.clone();
    Parts { tiered, database, kit: Kit::new(&store) }
}

impl Parts {
    /// A request for a run that is not kept, with the commit that enters it.
    fn unstored(&self) -> NewRun {
        NewRun { erase_ms: Some(100), ..self.kit.entering(self.kit.own_run(START)) }
    }

    async fn begin(&self, new: NewRun) -> (AgentKey, RunId) {
        let key = (new.agent.clone(), new.run);
        assert!(matches!(self.tiered.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
        key
    }

    /// Runs a call, streams text, and ends the run.
    async fn run_to_its_end(&self, agent: &AgentKey, run: RunId) {
        self.kit.advance(agent, calls(&[LOOKUP]), START).await;
        let claimed = self.tiered.claim_calls(self.kit.claim(LOOKUP, "worker", 9, START)).await.unwrap();
        assert_eq!(claimed.iter().map(|call| (call.run, call.call)).collect::<Vec<_>>(), [(run, CallNumber(1))]);
        self.kit.report(agent, run, 1, START).await;
        self.kit.take_report(agent, START).await;
        self.tiered.append_deltas(delta_batch(agent, run, 1, 0, &["half a", " word"])).await.unwrap();
        self.kit.advance(agent, final_reply("done"), START).await;
    }

    async fn output(&self, agent: &AgentKey, run: RunId) -> BoxRange {
        self.tiered.run(&agent.tenant, run).await.unwrap().unwrap().state.output
    }

    async fn publish(&self) -> usize {
        let rows = self.tiered.outbox(1_000).await.unwrap();
        self.tiered.published(rows.iter().map(|row| row.n).collect()).await.unwrap();
        rows.len()
    }
}

/// A child run of an unstored run is in memory with it, whatever its own time to live says, and that of a stored one is stored.
#[tokio::test]
async fn a_child_is_in_the_tier_of_its_parent() {
    let all = parts(1 << 20);
    for is_stored in [false, true] {
        let parent = if is_stored { all.kit.entering(all.kit.own_run(START)) } else { all.unstored() };
        let (own, run) = all.begin(parent).await;
        all.kit.advance(&own, calls(&[HELPER]), START).await;
        let child = all.kit.load(&own).await.run.unwrap().state.calls()[0].child.unwrap();
        let parent = ParentCall { run, head: own.agent.clone(), call: CallNumber(1), tainted: false };
        let new = NewRun { erase_ms: (!is_stored).then_some(100), ..all.kit.new_child(child, parent, START) };
        let (head, _) = all.begin(new).await;
        assert_eq!(all.tiered.memory.has_run(child).unwrap(), !is_stored);
        let page = RunScan { set: RunSet::Children(run), below: None, limit: 9 };
        let listed = all.tiered.scan_runs(&own.tenant, &page).await.unwrap().runs;
        assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [child]);
        all.kit.advance(&head, final_reply("done"), START).await;
        all.kit.take_report(&own, START).await;
        assert_eq!(all.kit.load(&own).await.run.unwrap().state.iteration, 2);
        assert_eq!(all.database.rows() > 0, is_stored);
    }
}

#[tokio::test]
async fn an_unstored_run_is_only_in_memory_and_leaves_nothing() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unstored()).await;
    all.run_to_its_end(&own, run).await;
    assert_eq!((all.database.rows(), all.tiered.inbox(&own, Page { after: 0, limit: 9 }).await.unwrap().len()), (0, 2));
    assert!(all.publish().await > 0);
    assert_eq!(all.tiered.erasable(START.plus_ms(99), 9).await.unwrap(), []);
    assert_eq!(all.tiered.erasable(START.plus_ms(100), 9).await.unwrap(), [(own.tenant.clone(), run)]);
    all.tiered.erase(own.tenant.clone(), run).await.unwrap();
    assert_eq!((all.tiered.memory.rows(), all.tiered.memory.bytes().unwrap()), (0, 0));
    assert!(all.tiered.run(&own.tenant, run).await.unwrap().is_none(), "not even a skeleton");
}

#[tokio::test]
async fn stored_runs_and_runs_of_named_agents_are_not_in_memory() {
    let all = parts(1 << 20);
    let kept = all.kit.entering(all.kit.own_run(START));
    let named = NewRun { erase_ms: Some(1), ..all.kit.entering(all.kit.new_run(&agent("a"), START)) };
    for new in [kept, named] {
        let (agent, run) = all.begin(new).await;
        all.run_to_its_end(&agent, run).await;
    }
    assert_eq!(all.tiered.memory.rows(), 0);
    assert!(all.publish().await > 0);
}

#[tokio::test]
async fn a_chain_in_memory_goes_with_its_last_reader() {
    let all = parts(1 << 20);
    let (mut chain, mut parent) = (Vec::new(), None);
    for _ in 0..3 {
        let mut new = all.unstored();
        new.context.parent = parent;
        let (own, run) = all.begin(new).await;
        all.run_to_its_end(&own, run).await;
        parent = Some(all.output(&own, run).await);
        chain.push((own, run));
    }
    all.publish().await;
    let items = all.tiered.range_items(&chain[0].0.tenant, parent.unwrap()).await.unwrap().len();
    for (own, run) in &chain[..2] {
        all.tiered.erase(own.tenant.clone(), *run).await.unwrap();
        assert_eq!(all.tiered.range_items(&own.tenant, parent.unwrap()).await.unwrap().len(), items, "the last one reads it all");
    }
    let (own, run) = &chain[2];
    all.tiered.erase(own.tenant.clone(), *run).await.unwrap();
    assert_eq!((all.database.rows(), all.tiered.memory.rows(), all.tiered.memory.bytes().unwrap()), (0, 0, 0));
}

#[tokio::test]
async fn a_run_that_continues_a_stored_one_is_stored_and_content_in_memory_is_copied() {
    let all = parts(1 << 20);
    let (stored, run) = all.begin(all.kit.entering(all.kit.own_run(START))).await;
    all.run_to_its_end(&stored, run).await;
    let mut after = all.unstored();
    after.context.parent = Some(all.output(&stored, run).await);
    all.begin(after).await;
    assert_eq!(all.tiered.memory.rows(), 0);
    let (own, run) = all.begin(all.unstored()).await;
    all.run_to_its_end(&own, run).await;
    let output = all.output(&own, run).await;
    let before = all.tiered.range_items(&own.tenant, output).await.unwrap();
    let mut kept = all.kit.entering(all.kit.own_run(START));
    kept.context.parent = Some(output);
    let (stored, run) = all.begin(kept.clone()).await;
    assert!(matches!(all.tiered.enqueue(kept).await.unwrap(), Enqueued::Duplicate { .. }));
    all.tiered.memory.forget(&own.tenant, run).unwrap();
    let after = all.tiered.range_items(&stored.tenant, all.output(&stored, run).await).await.unwrap();
    assert_eq!(after[..before.len()], before[..]);
}

#[tokio::test]
async fn calls_are_inherited_once_in_either_tier() {
    let all = parts(1 << 20);
    let (own, left) = all.begin(all.unstored()).await;
    all.kit.advance(&own, calls(&[HANDED_BACK]), START).await;
    let kept = |takes| NewRun { takes: Some(takes), ..all.kit.entering(all.kit.own_run(START)) };
    let first = kept(left);
    all.begin(first.clone()).await;
    assert_eq!(all.tiered.inheriting_run(&own.tenant, left).await.unwrap(), Some(first.run));
    for second in [kept(left), NewRun { takes: Some(left), ..all.unstored() }] {
        assert_eq!(all.tiered.enqueue(second).await.unwrap(), Enqueued::AlreadyInherited { by: first.run });
    }
}

#[tokio::test]
async fn a_stored_follow_up_ends_the_wait_of_a_run_in_memory() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unstored()).await;
    all.kit.advance(&own, calls(&[HANDED_BACK]), START).await;
    let follow_up = NewRun { follows: Some(run), ..all.kit.own_run(START) };
    let (kept, _) = all.begin(all.kit.entering(follow_up)).await;
    assert_eq!(all.tiered.erasable(START.plus_ms(1_000), 9).await.unwrap(), []);
    all.kit.advance(&kept, final_reply("done"), START.plus_ms(200)).await;
    assert_eq!(all.tiered.erasable(START.plus_ms(300), 9).await.unwrap(), [(own.tenant, run)]);
}

#[tokio::test]
async fn memory_is_bounded_and_what_has_ended_goes_first() {
    let all = parts(1_100);
    let large = |bytes: usize| {
        let mut new = all.unstored();
        new.context.items.push(all.kit.item(ItemKind::Instruction, &vec![b'x'; bytes]));
        new.state.context.length += 1;
        new
    };
    let waiting = |new: NewRun| NewRun { enter: None, ..new };
    let (own, run) = all.begin(all.unstored()).await;
    all.kit.advance(&own, final_reply(&"x".repeat(600)), START).await;
    assert!(matches!(all.tiered.enqueue(waiting(large(980))).await.unwrap(), Enqueued::Dispatched { .. }));
    assert!(all.tiered.run(&own.tenant, run).await.unwrap().is_none(), "what was over made room");
    assert_eq!(all.tiered.enqueue(waiting(large(200))).await.unwrap(), Enqueued::MemoryFull);
    assert!(matches!(all.tiered.enqueue(waiting(large(1))).await.unwrap(), Enqueued::Dispatched { .. }), "and loses nothing else");
}

#[tokio::test]
async fn a_name_like_a_run_in_memory_is_still_an_agents_name() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unstored()).await;
    let other = AgentKey { tenant: "another".into(), agent: own.agent.clone() };
    let (named, _) = all.begin(all.kit.entering(all.kit.new_run(&other, START))).await;
    all.kit.advance(&named, final_reply("done"), START).await;
    assert_eq!(all.tiered.due(START.plus_ms(1), 9).await.unwrap(), []);
    assert!(all.tiered.run(&own.tenant, run).await.unwrap().is_some());
    assert_eq!(all.tiered.orphans(NODE, None, 9).await.unwrap(), []);
}

#[tokio::test]
async fn interrupts_of_both_tiers_are_listed_and_those_in_memory_go_with_their_run() {
    let all = parts(1 << 20);
    let (kept, stored) = all.begin(all.kit.entering(all.kit.own_run(START))).await;
    let (own, run) = all.begin(all.unstored()).await;
    all.kit.advance(&kept, Input::Panicked, START.plus_ms(1)).await;
    all.kit.advance(&own, Input::Panicked, START).await;
    let list = async |limit, after| {
        let scan = InterruptScan { with_closed: true, limit, after, ..InterruptScan::default() };
        all.tiered.interrupts(&own.tenant, &scan).await.unwrap()
    };
    let runs = |rows: &[InterruptView]| rows.iter().map(|row| row.run).collect::<Vec<_>>();
    let listed = list(9, None).await;
    assert_eq!(runs(&listed), [run, stored]);
    let first = list(1, None).await;
    assert_eq!(first, listed[..1]);
    assert_eq!(list(1, Some((first[0].created_at, first[0].id()))).await, listed[1..]);
    for row in &listed {
        assert_eq!(all.tiered.interrupt(&own.tenant, row.id()).await.unwrap().as_ref(), Some(row));
    }
    let totals = all.tiered.totals().await.unwrap();
    assert_eq!((totals.open_interrupts, totals.oldest_interrupt), (vec![(Cause::Panicked, 2)], Some(START)));
    all.kit.advance(&own, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    all.publish().await;
    all.tiered.erase(own.tenant.clone(), run).await.unwrap();
    assert_eq!(runs(&list(9, None).await), [stored]);
    assert_eq!(all.tiered.memory.rows(), 0);
}
