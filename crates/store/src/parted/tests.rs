use windlass_kernel::{CallNumber, ItemKind, RunId};
use windlass_ports::Page;

use super::*;
use crate::conformance::{
    Full,
    fixtures::{HANDED_BACK, Kit, LOOKUP, NODE, START, agent, calls, says, words},
};

struct Parts {
    parted: Arc<PartedStore>,
    kept: Arc<MemoryStore>,
    kit: Kit,
}

fn parts(bytes_max: u64) -> Parts {
    let options = StoreOptions { publish: true, usage: false };
    let kept = Arc::new(MemoryStore::new(options));
    let parted = Arc::new(PartedStore::new(kept.clone(), kept.clone(), options, bytes_max));
    let store: Arc<dyn Full> = parted.clone();
    Parts { parted, kept, kit: Kit::new(&store) }
}

impl Parts {
    /// A request for a run that is not kept, with the commit that enters it.
    fn unkept(&self) -> NewRun {
        NewRun { erase_ms: Some(100), ..self.kit.entering(self.kit.own_run(START)) }
    }

    async fn begin(&self, new: NewRun) -> (AgentKey, RunId) {
        let key = (new.agent.clone(), new.run);
        assert!(matches!(self.parted.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
        key
    }

    /// Runs a call, streams text, and ends the run.
    async fn tell(&self, agent: &AgentKey, run: RunId) {
        self.kit.advance(agent, calls(&[LOOKUP]), START).await;
        let claimed = self.parted.claim_calls(self.kit.claim(LOOKUP, "worker", 9, START)).await.unwrap();
        assert_eq!(claimed.iter().map(|call| (call.run, call.call)).collect::<Vec<_>>(), [(run, CallNumber(1))]);
        self.kit.report(agent, run, 1, START).await;
        self.kit.take_report(agent, START).await;
        self.parted.announce(words(agent, run, 1, 0, &["half a", " word"])).await.unwrap();
        self.kit.advance(agent, says("done"), START).await;
    }

    async fn output(&self, agent: &AgentKey, run: RunId) -> BoxRange {
        self.parted.run(&agent.tenant, run).await.unwrap().unwrap().state.output
    }

    async fn publish(&self) -> usize {
        let rows = self.parted.outbox(1_000).await.unwrap();
        self.parted.published(rows.iter().map(|row| row.n).collect()).await.unwrap();
        rows.len()
    }
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_in_memory_alone_and_leaves_nothing() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unkept()).await;
    all.tell(&own, run).await;
    assert_eq!((all.kept.rows(), all.parted.inbox(&own, Page { after: 0, limit: 9 }).await.unwrap().len()), (0, 2));
    assert!(all.publish().await > 0);
    assert_eq!(all.parted.erasable(START.plus_ms(99), 9).await.unwrap(), []);
    assert_eq!(all.parted.erasable(START.plus_ms(100), 9).await.unwrap(), [(own.tenant.clone(), run)]);
    all.parted.erase(own.tenant.clone(), run).await.unwrap();
    assert_eq!((all.parted.memory.rows(), all.parted.memory.bytes().unwrap()), (0, 0));
    assert!(all.parted.run(&own.tenant, run).await.unwrap().is_none(), "not even a skeleton");
}

#[tokio::test]
async fn what_is_kept_or_of_a_named_agent_is_not_in_memory() {
    let all = parts(1 << 20);
    let kept = all.kit.entering(all.kit.own_run(START));
    let named = NewRun { erase_ms: Some(1), ..all.kit.entering(all.kit.new_run(&agent("a"), START)) };
    for new in [kept, named] {
        let (agent, run) = all.begin(new).await;
        all.tell(&agent, run).await;
    }
    assert_eq!(all.parted.memory.rows(), 0);
    assert!(all.publish().await > 0);
}

#[tokio::test]
async fn a_chain_in_memory_goes_with_its_last_reader() {
    let all = parts(1 << 20);
    let (mut chain, mut parent) = (Vec::new(), None);
    for _ in 0..3 {
        let mut new = all.unkept();
        new.context.parent = parent;
        let (own, run) = all.begin(new).await;
        all.tell(&own, run).await;
        parent = Some(all.output(&own, run).await);
        chain.push((own, run));
    }
    all.publish().await;
    let items = all.parted.range_items(&chain[0].0.tenant, parent.unwrap()).await.unwrap().len();
    for (own, run) in &chain[..2] {
        all.parted.erase(own.tenant.clone(), *run).await.unwrap();
        assert_eq!(all.parted.range_items(&own.tenant, parent.unwrap()).await.unwrap().len(), items, "the last one reads it all");
    }
    let (own, run) = &chain[2];
    all.parted.erase(own.tenant.clone(), *run).await.unwrap();
    assert_eq!((all.kept.rows(), all.parted.memory.rows(), all.parted.memory.bytes().unwrap()), (0, 0, 0));
}

#[tokio::test]
async fn what_goes_on_from_the_disk_stays_there_and_the_other_way_it_is_copied() {
    let all = parts(1 << 20);
    let (stored, run) = all.begin(all.kit.entering(all.kit.own_run(START))).await;
    all.tell(&stored, run).await;
    let mut after = all.unkept();
    after.context.parent = Some(all.output(&stored, run).await);
    all.begin(after).await;
    assert_eq!(all.parted.memory.rows(), 0);
    let (own, run) = all.begin(all.unkept()).await;
    all.tell(&own, run).await;
    let output = all.output(&own, run).await;
    let before = all.parted.range_items(&own.tenant, output).await.unwrap();
    let mut kept = all.kit.entering(all.kit.own_run(START));
    kept.context.parent = Some(output);
    let (stored, run) = all.begin(kept.clone()).await;
    assert!(matches!(all.parted.enqueue(kept).await.unwrap(), Enqueued::Duplicate { .. }));
    all.parted.memory.forget(&own.tenant, run).unwrap();
    let after = all.parted.range_items(&stored.tenant, all.output(&stored, run).await).await.unwrap();
    assert_eq!(after[..before.len()], before[..]);
}

#[tokio::test]
async fn calls_are_taken_over_once_wherever_the_taker_is() {
    let all = parts(1 << 20);
    let (own, left) = all.begin(all.unkept()).await;
    all.kit.advance(&own, calls(&[HANDED_BACK]), START).await;
    let kept = |takes| NewRun { takes: Some(takes), ..all.kit.entering(all.kit.own_run(START)) };
    let first = kept(left);
    all.begin(first.clone()).await;
    assert_eq!(all.parted.run_taking(&own.tenant, left).await.unwrap(), Some(first.run));
    for second in [kept(left), NewRun { takes: Some(left), ..all.unkept() }] {
        assert_eq!(all.parted.enqueue(second).await.unwrap(), Enqueued::TakenBefore { by: first.run });
    }
}

#[tokio::test]
async fn a_kept_follow_up_ends_the_wait_of_one_that_is_not() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unkept()).await;
    all.kit.advance(&own, calls(&[HANDED_BACK]), START).await;
    let follow_up = NewRun { follows: Some(run), ..all.kit.own_run(START) };
    let (kept, _) = all.begin(all.kit.entering(follow_up)).await;
    assert_eq!(all.parted.erasable(START.plus_ms(1_000), 9).await.unwrap(), []);
    all.kit.advance(&kept, says("done"), START.plus_ms(200)).await;
    assert_eq!(all.parted.erasable(START.plus_ms(300), 9).await.unwrap(), [(own.tenant, run)]);
}

#[tokio::test]
async fn memory_is_bounded_and_what_has_ended_goes_first() {
    let all = parts(1_100);
    let large = |bytes: usize| {
        let mut new = all.unkept();
        new.context.items.push(all.kit.item(ItemKind::Instruction, &vec![b'x'; bytes]));
        new.state.context.length += 1;
        new
    };
    let waiting = |new: NewRun| NewRun { enter: None, ..new };
    let (own, run) = all.begin(all.unkept()).await;
    all.kit.advance(&own, says(&"x".repeat(600)), START).await;
    assert!(matches!(all.parted.enqueue(waiting(large(980))).await.unwrap(), Enqueued::Dispatched { .. }));
    assert!(all.parted.run(&own.tenant, run).await.unwrap().is_none(), "what was over made room");
    assert_eq!(all.parted.enqueue(waiting(large(200))).await.unwrap(), Enqueued::MemoryFull);
    assert!(matches!(all.parted.enqueue(waiting(large(1))).await.unwrap(), Enqueued::Dispatched { .. }), "and loses nothing else");
}

#[tokio::test]
async fn a_name_like_a_run_in_memory_is_still_an_agents_name() {
    let all = parts(1 << 20);
    let (own, run) = all.begin(all.unkept()).await;
    let other = AgentKey { tenant: "another".into(), agent: own.agent.clone() };
    let (named, _) = all.begin(all.kit.entering(all.kit.new_run(&other, START))).await;
    all.kit.advance(&named, says("done"), START).await;
    assert_eq!(all.parted.due(START.plus_ms(1), 9).await.unwrap(), []);
    assert!(all.parted.run(&own.tenant, run).await.unwrap().is_some());
    assert_eq!(all.parted.orphans(NODE, None, 9).await.unwrap(), []);
}
