//! Runs are erased in time and for good, and content that others read stays.

use std::sync::Arc;

use windlass_kernel::{AgentKey, BoxRange, CallNumber, Input, ItemId, ItemKind, Opening, RunId, StreamedText, Timestamp};
use windlass_ports::{Enqueued, Item, NewRun, Packed, Page, RunStatus, RunView, Taken, Withdrawn};

use super::{
    Full,
    fixtures::{HANDED_BACK, Kit, LOOKUP, START, agent, calls, delta_batch, final_reply, foreign},
};
use crate::verbs::FOLLOW_UP_MS;

const ALL: Page = Page { after: 0, limit: 1_000 };

/// A turn that is entered, and is erased this long after its end.
fn erased_after(kit: &Kit, agent: &AgentKey, ms: u64) -> NewRun {
    let mut new = kit.entering(kit.new_run(agent, START));
    new.erase_ms = Some(ms);
    new
}

async fn erasable(store: &Arc<dyn Full>, now: Timestamp) -> Vec<RunId> {
    store.erasable(now, 100).await.unwrap().into_iter().map(|(_, run)| run).collect()
}

async fn view(store: &Arc<dyn Full>, agent: &AgentKey, run: RunId) -> RunView {
    store.run(&agent.tenant, run).await.unwrap().unwrap()
}

/// Begins a run after a range and ends it. Returns the run, and the range that it read and wrote.
async fn turn(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, parent: Option<BoxRange>) -> (RunId, BoxRange) {
    let items = vec![kit.item(ItemKind::Instruction, b"\"go on\"")];
    let new = kit.entering(kit.new_run_after(agent, parent, items, START));
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    kit.advance(agent, final_reply("done"), START).await;
    (run, view(store, agent, run).await.state.output)
}

async fn read(store: &Arc<dyn Full>, agent: &AgentKey, range: BoxRange) -> Vec<Item> {
    store.range_items(&agent.tenant, range).await.unwrap()
}

/// Runs are due at their time and not before, the oldest first, and only those that have a time.
pub async fn a_run_is_erased_its_time_after_its_end(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut runs = Vec::new();
    for (name, ms) in [("a", 300), ("b", 100), ("c", 200)] {
        let new = erased_after(&kit, &agent(name), ms);
        runs.push(new.run);
        store.enqueue(new).await.unwrap();
    }
    turn(&store, &kit, &agent("kept"), None).await;
    assert_eq!(erasable(&store, START.plus_ms(1_000_000)).await, [], "none has ended");
    for name in ["a", "b", "c"] {
        kit.advance(&agent(name), calls(&[LOOKUP]), START.plus_ms(5)).await;
        kit.advance(&agent(name), Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START.plus_ms(10)).await;
    }
    assert_eq!(erasable(&store, START.plus_ms(109)).await, []);
    assert_eq!(erasable(&store, START.plus_ms(110)).await, [runs[1]]);
    assert_eq!(erasable(&store, START.plus_ms(310)).await, [runs[1], runs[2], runs[0]]);
    let first = store.erasable(START.plus_ms(310), 1).await.unwrap();
    assert_eq!(first, [(agent("b").tenant, runs[1])]);
    store.erase(agent("b").tenant, runs[1]).await.unwrap();
    assert_eq!(erasable(&store, START.plus_ms(310)).await, [runs[2], runs[0]], "what is done is not asked for again");
}

/// Runs that end when they are entered, are withdrawn, or are stopped before a worker entered; and a time that is too long.
pub async fn every_way_to_end_counts(store: Arc<dyn Full>) {
    let (kit, busy) = (Kit::new(&store), agent("a"));
    let stop = || Input::Stopped { reason: String::new(), streamed: StreamedText::default() };
    kit.begin(&busy, START).await;
    let mut queued = kit.new_run(&busy, START);
    queued.erase_ms = Some(50);
    assert!(matches!(store.enqueue(queued.clone()).await.unwrap(), Enqueued::Queued { .. }));
    let withdrawal = kit.commit(queued.run, &queued.state, stop(), START.plus_ms(7));
    assert_eq!(store.withdraw(busy, withdrawal).await.unwrap(), Withdrawn::Done);
    assert_eq!(erasable(&store, START.plus_ms(56)).await, []);
    assert_eq!(erasable(&store, START.plus_ms(57)).await, [queued.run]);
    let mut at_once = kit.own_run(START);
    at_once.erase_ms = Some(60);
    at_once.enter = Some(kit.commit(at_once.run, &at_once.state, stop(), START));
    let mut unentered = kit.own_run(START);
    unentered.erase_ms = Some(0);
    let mut late = kit.own_run(START);
    late.erase_ms = Some(u64::MAX);
    for new in [&at_once, &unentered, &late] {
        store.enqueue(new.clone()).await.unwrap();
    }
    for own in [&unentered.agent, &late.agent] {
        kit.advance(own, stop(), START.plus_ms(61)).await;
    }
    assert_eq!(erasable(&store, START.plus_ms(60)).await, [queued.run, at_once.run]);
    assert_eq!(erasable(&store, START.plus_ms(61)).await, [queued.run, at_once.run, unentered.run]);
}

/// A run whose client has to make calls is kept for its follow-up; for an hour, if there is none.
pub async fn a_follow_up_has_an_hour(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut runs = Vec::new();
    for (name, ms) in [("short", Some(60_000)), ("long", Some(FOLLOW_UP_MS + 5)), ("kept", None)] {
        let mut new = erased_after(&kit, &agent(name), 0);
        new.erase_ms = ms;
        runs.push(new.run);
        store.enqueue(new).await.unwrap();
        kit.advance(&agent(name), calls(&[HANDED_BACK]), START).await;
        assert_eq!(view(&store, &agent(name), runs[runs.len() - 1]).await.status, RunStatus::Ended);
    }
    assert_eq!(erasable(&store, START.plus_ms(FOLLOW_UP_MS - 1)).await, []);
    assert_eq!(erasable(&store, START.plus_ms(FOLLOW_UP_MS)).await, [runs[0]]);
    assert_eq!(erasable(&store, START.plus_ms(FOLLOW_UP_MS * 9)).await, runs[..2]);
}

/// A run that is erased a minute after its end, and continues another run or none.
async fn follow(store: &Arc<dyn Full>, kit: &Kit, agent: &AgentKey, follows: Option<RunId>, at: Timestamp) -> RunId {
    let mut new = kit.new_run(agent, at);
    (new.erase_ms, new.follows) = (Some(60_000), follows);
    let new = kit.entering(new);
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    run
}

/// Each run of a chain is kept while calls are handed back after it. When that is over, the last runs are erased first.
pub async fn the_end_of_the_follow_up_ends_the_wait(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (a, b, c) = (agent("a"), agent("b"), agent("c"));
    let first = follow(&store, &kit, &a, None, START).await;
    kit.advance(&a, calls(&[HANDED_BACK]), START).await;
    let second = follow(&store, &kit, &b, Some(first), START.plus_ms(500)).await;
    assert_eq!(erasable(&store, START.plus_ms(FOLLOW_UP_MS - 1)).await, [], "it may still be needed");
    kit.advance(&b, calls(&[HANDED_BACK]), START.plus_ms(1_000)).await;
    let hour = START.plus_ms(FOLLOW_UP_MS - 1);
    assert_eq!(erasable(&store, hour).await, [], "a client that has to make calls again may send everything once more");
    let third = follow(&store, &kit, &c, Some(second), START.plus_ms(1_500)).await;
    kit.advance(&c, calls(&[LOOKUP]), START.plus_ms(1_600)).await;
    assert_eq!(erasable(&store, hour).await, [], "an iteration is no end");
    kit.advance(&c, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START.plus_ms(2_000)).await;
    assert_eq!(erasable(&store, START.plus_ms(61_999)).await, []);
    let mut last = erasable(&store, START.plus_ms(62_000)).await;
    last.sort_unstable();
    let mut both = vec![second, third];
    both.sort_unstable();
    assert_eq!(last, both);
    store.erase(a.tenant.clone(), third).await.unwrap();
    assert_eq!(erasable(&store, START.plus_ms(62_000)).await, [second]);
    store.erase(a.tenant.clone(), second).await.unwrap();
    assert_eq!(erasable(&store, START.plus_ms(62_000)).await, [first], "what came before goes with what came after");
}

/// The first end counts; an end after the hour and the end of another tenant's run do not. A queued run that is withdrawn has ended, too.
pub async fn a_wait_is_never_made_longer(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (a, late, kept, busy) = (agent("a"), agent("late"), agent("kept"), agent("busy"));
    let mut waiting = Vec::new();
    for agent in [&a, &late, &busy] {
        waiting.push(follow(&store, &kit, agent, None, START).await);
        kit.advance(agent, calls(&[HANDED_BACK]), START).await;
    }
    let [first, forgotten, withdrawn] = waiting[..] else { panic!("three runs") };
    let unerased = kit.begin(&kept, START).await.0;
    kit.advance(&kept, calls(&[HANDED_BACK]), START).await;
    let hour = START.plus_ms(FOLLOW_UP_MS);
    let ends = [
        (&a, first, 10),
        (&a, first, 900_000),
        (&late, forgotten, FOLLOW_UP_MS - 30_000),
        (&kept, unerased, 20),
        (&kept, kit.run_id(), 30),
    ];
    for (agent, follows, ms) in ends {
        follow(&store, &kit, agent, Some(follows), START).await;
        kit.advance(agent, final_reply("done"), START.plus_ms(ms)).await;
    }
    follow(&store, &kit, &foreign("a"), Some(withdrawn), START).await;
    kit.advance(&foreign("a"), final_reply("done"), START.plus_ms(40)).await;
    let earlier = |found: Vec<RunId>| found.into_iter().filter(|run| waiting.contains(run)).collect::<Vec<_>>();
    assert_eq!(earlier(erasable(&store, START.plus_ms(60_009)).await), []);
    assert_eq!(earlier(erasable(&store, START.plus_ms(FOLLOW_UP_MS - 1)).await), [first]);
    let mut all = earlier(erasable(&store, hour).await);
    all.sort_unstable();
    waiting.sort_unstable();
    assert_eq!(all, waiting);
    assert!(!erasable(&store, hour.plus_ms(FOLLOW_UP_MS)).await.contains(&unerased));
    kit.begin(&busy, START).await;
    let mut queued = kit.new_run(&busy, START);
    queued.follows = Some(withdrawn);
    assert!(matches!(store.enqueue(queued.clone()).await.unwrap(), Enqueued::Queued { .. }));
    let stop = Input::Stopped { reason: String::new(), streamed: StreamedText::default() };
    store.withdraw(busy, kit.commit(queued.run, &queued.state, stop, START.plus_ms(50))).await.unwrap();
    assert!(erasable(&store, START.plus_ms(60_050)).await.contains(&withdrawn));
}

/// Everything that it read and wrote is erased, also what arrived late or was never applied. The skeleton stays.
pub async fn the_content_of_an_erased_run_is_gone(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let mut new = erased_after(&kit, &agent, 100);
    (new.note, new.dedupe) = (Some(bytes::Bytes::from_static(b"note")), Some("key".into()));
    let run = new.run;
    store.enqueue(new.clone()).await.unwrap();
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    kit.report(&agent, run, 1, START).await;
    kit.take_report(&agent, START).await;
    store.append_deltas(delta_batch(&agent, run, 1, 0, &["half a", " word"])).await.unwrap();
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    kit.report(&agent, run, 2, START).await;
    kit.take_report(&agent, START).await;
    kit.report(&agent, run, 3, START).await;
    kit.advance(&agent, Input::Stopped { reason: "enough".into(), streamed: StreamedText::default() }, START.plus_ms(3)).await;
    assert!(matches!(kit.report(&agent, run, 4, START).await, Taken::Late(_)));
    let before = view(&store, &agent, run).await;
    assert!(before.note.is_some() && before.deliverable.is_some());
    let mut content: Vec<ItemId> = read(&store, &agent, before.state.output).await.iter().map(|item| item.id).collect();
    let inbox = store.inbox(&agent, ALL).await.unwrap();
    content.extend(inbox.iter().filter_map(|row| row.item));
    content.extend(store.calls(&agent.tenant, run, CallNumber(0), 10).await.unwrap().iter().map(|call| call.item));
    assert!(content.len() > 10, "{content:?}");
    for item in &content {
        assert!(store.item(&agent.tenant, *item).await.unwrap().is_some());
    }
    for _ in 0..2 {
        store.erase(agent.tenant.clone(), run).await.unwrap();
        for item in &content {
            assert_eq!(store.item(&agent.tenant, *item).await.unwrap(), None);
        }
        let after = view(&store, &agent, run).await;
        assert_eq!((after.note, after.deliverable), (None, None));
        assert_eq!((after.status, after.state, after.ended_at), (before.status, before.state.clone(), before.ended_at));
        assert_eq!((after.created_at, after.epoch, after.ordinal), (before.created_at, before.epoch, before.ordinal));
        assert_eq!(store.run_from(&agent, 1).await.unwrap().unwrap().id, run);
        assert_eq!(store.journal(&agent.tenant, run, 0, 100).await.unwrap(), []);
        assert_eq!(store.calls(&agent.tenant, run, CallNumber(0), 10).await.unwrap(), []);
        assert_eq!(store.streamed_text(&agent.tenant, run).await.unwrap(), StreamedText::default());
        assert_eq!(read(&store, &agent, before.state.output).await, []);
        assert_eq!(store.box_items(&agent.tenant, before.state.context.id, 0, 10).await.unwrap(), []);
        let rows = store.inbox(&agent, ALL).await.unwrap();
        assert_eq!(rows.len(), inbox.len());
        assert!(rows.iter().all(|row| row.item.is_none() && row.reason.is_none()));
        assert_eq!(store.edges(&agent, ALL).await.unwrap().len(), rows.len());
        assert_eq!(erasable(&store, START.plus_ms(1_000_000)).await, []);
    }
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Duplicate { run: first, .. } if first == run));
    turn(&store, &kit, &agent, None).await;
}

/// Open runs and those of other tenants are left as they are.
pub async fn only_an_ended_run_of_the_tenant_is_erased(store: Arc<dyn Full>) {
    let (kit, busy, other) = (Kit::new(&store), agent("a"), agent("b"));
    let (active, _) = kit.begin(&busy, START).await;
    let (queued, _) = kit.begin(&busy, START).await;
    let (ended, range) = turn(&store, &kit, &other, None).await;
    let before = read(&store, &other, range).await;
    for run in [active, queued] {
        store.erase(busy.tenant.clone(), run).await.unwrap();
        assert!(!store.journal(&busy.tenant, run, 0, 10).await.unwrap().is_empty());
        let context = view(&store, &busy, run).await.state.context;
        assert_eq!(read(&store, &busy, context).await.len(), 1);
    }
    store.erase(foreign("b").tenant, ended).await.unwrap();
    store.erase(other.tenant.clone(), kit.run_id()).await.unwrap();
    assert_eq!(read(&store, &other, range).await, before);
    assert!(view(&store, &other, ended).await.deliverable.is_some());
    kit.advance(&busy, final_reply("done"), START).await;
    kit.advance(&busy, Input::Entered(Opening::Ask), START).await;
    assert_eq!(kit.load(&busy).await.run.unwrap().id, queued);
}

/// Over any number of runs in between; no run reads what the last one wrote.
pub async fn what_a_follow_up_reads_stays(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (a, b, c) = (agent("a"), agent("b"), agent("c"));
    let (first, range) = turn(&store, &kit, &a, None).await;
    let (second, range) = turn(&store, &kit, &b, Some(range)).await;
    let between = read(&store, &b, range).await;
    let (third, range) = turn(&store, &kit, &c, Some(range)).await;
    let whole = read(&store, &c, range).await;
    assert_eq!(whole.len(), 6);
    for run in [first, second, first] {
        store.erase(a.tenant.clone(), run).await.unwrap();
        assert_eq!(read(&store, &c, range).await, whole);
        let view = view(&store, &a, run).await;
        assert_eq!((view.deliverable, view.note), (None, None));
        assert!(store.journal(&a.tenant, run, 0, 10).await.unwrap().is_empty());
    }
    store.erase(a.tenant.clone(), third).await.unwrap();
    for item in &whole {
        let is_last = !between.contains(item);
        assert_eq!(store.item(&a.tenant, item.id).await.unwrap().is_none(), is_last);
    }
}

/// The input of a run is continued by others, its output is not.
pub async fn a_context_stays_without_its_output(store: Arc<dyn Full>) {
    let (kit, a, b) = (Kit::new(&store), agent("a"), agent("b"));
    let (run, output) = turn(&store, &kit, &a, None).await;
    let context = view(&store, &a, run).await.state.context;
    let asked = read(&store, &a, context).await;
    let answered = read(&store, &a, output).await.pop().unwrap();
    let (_, range) = turn(&store, &kit, &b, Some(context)).await;
    store.erase(a.tenant.clone(), run).await.unwrap();
    assert_eq!(read(&store, &a, context).await, asked);
    assert_eq!(read(&store, &b, range).await[..1], asked);
    assert_eq!(store.item(&a.tenant, answered.id).await.unwrap(), None);
}

/// A chain so long that items were copied from parents: each run's erasure only deletes its own items.
pub async fn copies_of_parents_are_not_erased(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (mut runs, mut parent) = (Vec::new(), None);
    let mut before_last = Vec::new();
    for _ in 0..33 {
        if let Some(range) = parent {
            before_last = read(&store, &agent, range).await;
        }
        let (run, range) = turn(&store, &kit, &agent, parent).await;
        runs.push((run, range));
        parent = Some(range);
    }
    let (last, range) = runs[32];
    assert_eq!((read(&store, &agent, range).await.len(), before_last.len()), (66, 64));
    store.erase(agent.tenant.clone(), last).await.unwrap();
    assert_eq!(read(&store, &agent, range).await, []);
    assert_eq!(read(&store, &agent, runs[31].1).await, before_last);
    for (run, _) in &runs {
        store.erase(agent.tenant.clone(), *run).await.unwrap();
    }
    let rest = read(&store, &agent, runs[30].1).await;
    assert_eq!(rest, before_last[..62]);
}

/// The items are in another box now, and the run that made them may be erased.
pub async fn what_was_packed_stays(store: Arc<dyn Full>) {
    let (kit, a, b) = (Kit::new(&store), agent("a"), agent("b"));
    let (first, range) = turn(&store, &kit, &a, None).await;
    let (second, range) = turn(&store, &kit, &b, Some(range)).await;
    let whole = read(&store, &b, range).await;
    let packed = store.pack(kit.new_pack(&a.tenant, vec![range, range], Vec::new())).await.unwrap();
    let Packed::Done(packed) = packed else { panic!("{packed:?}") };
    for run in [first, second] {
        store.erase(a.tenant.clone(), run).await.unwrap();
    }
    assert_eq!(read(&store, &a, packed).await, [&whole[..], &whole[..]].concat());
    let (third, range) = turn(&store, &kit, &a, Some(packed)).await;
    store.erase(a.tenant.clone(), third).await.unwrap();
    assert_eq!(read(&store, &a, range).await, []);
    assert_eq!(read(&store, &a, packed).await.len(), 8, "a packed box is no run's");
}

/// A request that wants to continue the run gets the answer that it does not exist.
pub async fn erased_content_can_not_be_read(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, range) = turn(&store, &kit, &agent, None).await;
    store.erase(agent.tenant.clone(), run).await.unwrap();
    for range in [range, BoxRange { length: 0, ..range }, view(&store, &agent, run).await.state.context] {
        let new = kit.new_run_after(&agent, Some(range), Vec::new(), START);
        assert_eq!(store.enqueue(new).await.unwrap(), Enqueued::UnknownBox);
        let pack = kit.new_pack(&agent.tenant, vec![range], Vec::new());
        assert_eq!(store.pack(pack).await.unwrap(), Packed::UnknownBox);
    }
}

/// The report is recorded, without its content.
pub async fn a_report_after_the_erasure_leaves_no_content(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    kit.advance(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    store.erase(agent.tenant.clone(), run).await.unwrap();
    let report = kit.new_report(&agent, run, 1, START);
    let Taken::Late(late) = store.report(report.clone()).await.unwrap() else { panic!("not late") };
    assert_eq!(store.item(&agent.tenant, report.content.id).await.unwrap(), None);
    let rows = store.inbox(&agent, ALL).await.unwrap();
    assert_eq!(rows.iter().find(|row| row.id == late).unwrap().item, None);
    assert_eq!(store.report(report).await.unwrap(), Taken::Duplicate(late));
}

/// Its context is complete, or it gets the answer that there is none.
pub async fn a_follow_up_that_races_an_erasure_reads_all_or_is_refused(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..30 {
        let (a, b) = (agent(&format!("a{round}")), agent(&format!("b{round}")));
        let (run, range) = turn(&store, &kit, &a, None).await;
        let whole = read(&store, &a, range).await;
        let new = kit.entering(kit.new_run_after(&b, Some(range), Vec::new(), START));
        let context = BoxRange { id: new.context.id, length: 0 };
        let (eraser, asker, tenant) = (store.clone(), store.clone(), a.tenant.clone());
        let erasing = tokio::spawn(async move { eraser.erase(tenant, run).await });
        let outcome = tokio::spawn(async move { asker.enqueue(new).await }).await.unwrap().unwrap();
        erasing.await.unwrap().unwrap();
        if outcome == Enqueued::UnknownBox {
            assert_eq!(store.item(&a.tenant, whole[0].id).await.unwrap(), None);
        } else {
            assert!(matches!(outcome, Enqueued::Entered { .. }), "{outcome:?}");
            assert_eq!(read(&store, &b, context).await, whole);
        }
        assert!(store.journal(&a.tenant, run, 0, 1).await.unwrap().is_empty());
    }
}

/// The same for a box that is made from the run's box.
pub async fn a_pack_that_races_an_erasure_has_all_or_is_refused(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..30 {
        let agent = agent(&format!("a{round}"));
        let (run, range) = turn(&store, &kit, &agent, None).await;
        let whole = read(&store, &agent, range).await;
        let tenant = agent.tenant.clone();
        let (eraser, packer) = (store.clone(), store.clone());
        let (erases, pack) = (tenant.clone(), kit.new_pack(&tenant, vec![range], Vec::new()));
        let erasing = tokio::spawn(async move { eraser.erase(erases, run).await });
        let packing = tokio::spawn(async move { packer.pack(pack).await });
        let packed = packing.await.unwrap().unwrap();
        erasing.await.unwrap().unwrap();
        match packed {
            Packed::UnknownBox => assert_eq!(store.item(&tenant, whole[0].id).await.unwrap(), None),
            Packed::Done(packed) => assert_eq!(read(&store, &agent, packed).await, whole),
            Packed::TooLarge | Packed::KeyReused => panic!("{packed:?}"),
        }
    }
}

/// A reader gets all of the run or nothing: a part of it would make no sense.
pub async fn a_reader_that_races_an_erasure_has_all_or_nothing(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..30 {
        let agent = agent(&format!("a{round}"));
        let (run, _) = turn(&store, &kit, &agent, None).await;
        let whole = store.journal_records(&agent.tenant, run, None, 100).await.unwrap();
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let (reader, tenant) = (store.clone(), agent.tenant.clone());
                tokio::spawn(async move { reader.journal_records(&tenant, run, None, 100).await })
            })
            .collect();
        let (eraser, tenant) = (store.clone(), agent.tenant.clone());
        let erasing = tokio::spawn(async move { eraser.erase(tenant, run).await });
        for reader in readers {
            let read = reader.await.unwrap().unwrap();
            assert!(read.is_empty() || read == whole, "{read:?}");
        }
        erasing.await.unwrap().unwrap();
    }
}
