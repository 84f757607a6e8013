//! Bytes, boxes and pages.

use std::sync::Arc;

use windlass_kernel::{
    BoxRange, CallNumber, Input, ItemId, ItemKind, NewItem, StreamedText,
    header::{ItemHeader, Span},
};
use windlass_ports::{ContextSize, Enqueued, Item, MessageKind, NewPack, Packed, Page, RequestKey};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, START, agent, calls, final_reply, foreign},
};

/// NUL bytes, lone surrogates, bytes that are no text, and empty content.
pub async fn bytes_come_back_as_they_came(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("naïve \u{1F980} agent"));
    let contents: [&[u8]; 5] = [b"\"a\\u0000b\"", b"a\0b\0", br#""\ud800""#, b"\xff\xfe\x80", b""];
    let items = contents.iter().map(|bytes| kit.item(ItemKind::Instruction, bytes)).collect();
    let new = kit.new_run_after(&agent, None, items, START);
    let context = new.context.clone();
    store.enqueue(new).await.unwrap();
    let range = BoxRange { id: context.id, length: contents.len() as u32 };
    let found = store.range_items(&agent.tenant, range).await.unwrap();
    for (index, item) in context.items.iter().enumerate() {
        assert_eq!(found[index].content, contents[index]);
        assert_eq!(store.item(&agent.tenant, item.id).await.unwrap().as_ref(), Some(&found[index]));
    }
}

/// Content that one database accepts and another one does not, in one group with other commits: each accepted commit is stored unchanged,
/// and no refusal affects another commit.
pub async fn odd_bytes_share_a_group_with_others(store: Arc<dyn Full>) {
    let kit = Arc::new(Kit::new(&store));
    let odd: [&[u8]; 4] = [b"\"a\\u0000b\"", b"a\0b\0", br#""\ud800""#, b"\xff\xfe\x80"];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40usize {
        let bytes = if number % 2 == 0 { odd[number / 2 % odd.len()] } else { b"\"plain\"" };
        let items = vec![kit.item(ItemKind::Instruction, bytes)];
        let (id, agent) = (items[0].id, agent(&format!("a{number}")));
        let new = kit.entering(kit.new_run_after(&agent, None, items, START));
        let store = Arc::clone(&store);
        tasks.spawn(async move { (id, bytes, agent, store.enqueue(new).await) });
    }
    while let Some(done) = tasks.join_next().await {
        let (id, bytes, agent, outcome) = done.unwrap();
        assert!(matches!(outcome.unwrap(), Enqueued::Entered { .. }));
        assert_eq!(store.item(&agent.tenant, id).await.unwrap().unwrap().content, bytes);
    }
}

/// Large content in one group with small commits: all of it is stored.
pub async fn megabytes_share_a_group_with_others(store: Arc<dyn Full>) {
    let kit = Arc::new(Kit::new(&store));
    let big: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let bytes = if number % 4 == 0 { big.clone() } else { vec![1; 10] };
        let items = vec![kit.item(ItemKind::Instruction, &bytes)];
        let id = items[0].id;
        let new = kit.entering(kit.new_run_after(&agent(&format!("a{number}")), None, items, START));
        let store = Arc::clone(&store);
        tasks.spawn(async move { (id, bytes, store.enqueue(new).await) });
    }
    while let Some(done) = tasks.join_next().await {
        let (id, bytes, outcome) = done.unwrap();
        assert!(matches!(outcome.unwrap(), Enqueued::Entered { .. }));
        assert_eq!(store.item(&agent("a").tenant, id).await.unwrap().unwrap().content, bytes);
    }
}

/// Each run continues the last one, many more times than boxes may be chained: nothing is lost, and nothing is read twice.
pub async fn a_conversation_is_read_through_all_its_boxes(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let mut parent = None;
    let mut expected: Vec<ItemId> = Vec::new();
    for turn in 0..100u64 {
        let items = (0..turn % 3).map(|_| kit.item(ItemKind::Instruction, turn.to_string().as_bytes())).collect();
        let new = kit.entering(kit.new_run_after(&agent, parent, items, START));
        expected.extend(new.context.items.iter().map(|item| item.id));
        let (run, context) = (new.run, new.context.id);
        assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
        kit.advance(&agent, final_reply("done"), START).await;
        let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
        expected.extend(view.deliverable);
        let found: Vec<ItemId> = ids(&store.range_items(&agent.tenant, view.state.output).await.unwrap());
        assert_eq!(found, expected, "turn {turn}");
        let shown = store.open_box(&agent.tenant, context).await.unwrap().unwrap();
        assert_eq!((u64::from(shown.length), shown.parent), (turn % 3, parent));
        assert_eq!(store.box_items(&agent.tenant, context, 0, 10).await.unwrap().len() as u64, turn % 3);
        parent = Some(view.state.output);
    }
}

/// A range of a box reads the same after the box has grown.
pub async fn a_range_is_a_prefix(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    let before = store.run(&agent.tenant, run).await.unwrap().unwrap().state.output;
    let items = store.range_items(&agent.tenant, before).await.unwrap();
    kit.report(&agent, run, 1, START).await;
    kit.report(&agent, run, 2, START).await;
    kit.take_report(&agent, START).await;
    kit.take_report(&agent, START).await;
    let after = store.run(&agent.tenant, run).await.unwrap().unwrap().state.output;
    assert_eq!((before.length, after.length), (2, 4));
    assert_eq!(store.range_items(&agent.tenant, before).await.unwrap(), items);
    let all = store.range_items(&agent.tenant, after).await.unwrap();
    assert_eq!(all[..items.len()], items);
    let context_only = BoxRange { length: 0, ..after };
    assert_eq!(store.range_items(&agent.tenant, context_only).await.unwrap(), all[..1]);
}

/// Ranges of several boxes and new items, in order; a repeated request makes no second box.
pub async fn boxes_are_packed_into_one(store: Arc<dyn Full>) {
    let (kit, tenant) = (Kit::new(&store), agent("a").tenant);
    let mut ranges = Vec::new();
    for name in ["a", "b"] {
        let (run, _) = kit.begin(&agent(name), START).await;
        kit.advance(&agent(name), final_reply(name), START).await;
        ranges.push(store.run(&tenant, run).await.unwrap().unwrap().state.output);
    }
    let mut expected = store.range_items(&tenant, ranges[0]).await.unwrap();
    expected.extend(store.range_items(&tenant, ranges[1]).await.unwrap());
    let header = Some(ItemHeader::Other(Span(0, 7)));
    let extra = NewItem { header, ..kit.item(ItemKind::Instruction, b"\"extra\"") };
    expected.push(Item::from(&extra));
    let pack = kit.new_pack(&tenant, ranges.clone(), vec![extra]);
    let packed = BoxRange { id: pack.id, length: 5 };
    assert_eq!(store.pack(pack.clone()).await.unwrap(), Packed::Done(packed));
    assert_eq!(store.range_items(&tenant, packed).await.unwrap(), expected);
    assert_eq!(store.pack(pack.clone()).await.unwrap(), Packed::Done(packed));
    let other = foreign("a").tenant;
    assert_eq!(store.pack(kit.new_pack(&other, ranges, Vec::new())).await.unwrap(), Packed::UnknownBox);
    let foreign_id = NewPack { id: pack.id, ..kit.new_pack(&other, Vec::new(), Vec::new()) };
    assert_eq!(store.pack(foreign_id).await.unwrap(), Packed::UnknownBox, "a foreign id is not taken over");
    let unknown = BoxRange { id: kit.box_id(), length: 0 };
    assert_eq!(store.pack(kit.new_pack(&tenant, vec![unknown], Vec::new())).await.unwrap(), Packed::UnknownBox);
}

/// A range is measured, parents included, before it is packed: a request beyond the limit stores nothing.
pub async fn content_beyond_a_limit_is_not_packed(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let mut range = None;
    for _ in 0..70 {
        let items = vec![kit.item(ItemKind::Instruction, &[b'x'; 1_000])];
        let new = kit.entering(kit.new_run_after(&agent, range, items, START));
        let run = new.run;
        store.enqueue(new).await.unwrap();
        kit.advance(&agent, final_reply("done"), START).await;
        range = Some(store.run(&agent.tenant, run).await.unwrap().unwrap().state.output);
    }
    let range = range.unwrap();
    let whole = store.range_items(&agent.tenant, range).await.unwrap();
    let (items, bytes) = (whole.len() as u64, whole.iter().map(|item| item.content.len() as u64).sum());
    let exact = ContextSize { items, bytes };
    assert_eq!(store.range_size(&agent.tenant, range).await.unwrap(), exact);
    assert_eq!(store.range_size(&foreign("a").tenant, range).await.unwrap(), ContextSize::default());
    let full = NewPack { limit: exact, ..kit.new_pack(&agent.tenant, vec![range], Vec::new()) };
    assert_eq!(store.pack(full.clone()).await.unwrap(), Packed::Done(BoxRange { id: full.id, length: 140 }));
    for limit in [ContextSize { items: items - 1, ..exact }, ContextSize { bytes: bytes - 1, ..exact }] {
        let pack = NewPack { limit, ..kit.new_pack(&agent.tenant, vec![range], Vec::new()) };
        assert_eq!(store.pack(pack.clone()).await.unwrap(), Packed::TooLarge);
        assert_eq!(store.open_box(&agent.tenant, pack.id).await.unwrap(), None);
    }
    let more = kit.item(ItemKind::Instruction, b"\"more\"");
    let beyond = NewPack { limit: exact, ..kit.new_pack(&agent.tenant, vec![range], vec![more.clone()]) };
    assert_eq!(store.pack(beyond).await.unwrap(), Packed::TooLarge, "new items count as well");
    assert_eq!(store.item(&agent.tenant, more.id).await.unwrap(), None);
}

/// A repeated request with its key gets the same box; a different one with that key is refused and stores nothing.
pub async fn a_packs_key_is_not_taken_for_another_request(store: Arc<dyn Full>) {
    let (kit, tenant) = (Kit::new(&store), agent("a").tenant);
    let key = |asked: u8| Some(RequestKey { key: "pack:k".into(), asked: [asked; 16] });
    let one = NewPack { key: key(1), ..kit.new_pack(&tenant, Vec::new(), vec![kit.item(ItemKind::Instruction, b"1")]) };
    let packed = Packed::Done(BoxRange { id: one.id, length: 1 });
    assert_eq!(store.pack(one.clone()).await.unwrap(), packed);
    let again = NewPack { items: vec![kit.item(ItemKind::Instruction, b"1")], ..one.clone() };
    assert_eq!(store.pack(again).await.unwrap(), packed);
    let more = kit.item(ItemKind::Instruction, b"2");
    for id in [one.id, kit.box_id()] {
        let other = NewPack { id, key: key(2), ..kit.new_pack(&tenant, Vec::new(), vec![more.clone()]) };
        assert_eq!(store.pack(other).await.unwrap(), Packed::KeyReused);
    }
    assert_eq!(store.item(&tenant, more.id).await.unwrap(), None);
    let elsewhere = foreign("a").tenant;
    let foreign = NewPack { key: key(2), ..kit.new_pack(&elsewhere, Vec::new(), Vec::new()) };
    assert!(matches!(store.pack(foreign).await.unwrap(), Packed::Done(_)), "a key is its tenant's own");
}

/// Every read with the wrong tenant is answered as if nothing existed.
pub async fn a_tenant_sees_nothing_of_another(store: Arc<dyn Full>) {
    let (kit, agent, other) = (Kit::new(&store), agent("a"), foreign("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
    let context = view.state.context;
    let item = store.box_items(&agent.tenant, context.id, 0, 1).await.unwrap().remove(0);
    let page = Page { after: 0, limit: 10 };
    assert!(store.load(&other).await.unwrap().is_none());
    assert!(store.head(&other).await.unwrap().is_none());
    assert!(store.run(&other.tenant, run).await.unwrap().is_none());
    assert!(store.run_from(&other, 0).await.unwrap().is_none());
    assert!(store.journal(&other.tenant, run, 0, 10).await.unwrap().is_empty());
    assert!(store.calls(&other.tenant, run, CallNumber(0), 10).await.unwrap().is_empty());
    assert!(store.item(&other.tenant, item.id).await.unwrap().is_none());
    assert!(store.open_box(&other.tenant, context.id).await.unwrap().is_none());
    assert!(store.box_items(&other.tenant, context.id, 0, 10).await.unwrap().is_empty());
    assert!(store.range_items(&other.tenant, context).await.unwrap().is_empty());
    assert!(store.inbox(&other, page).await.unwrap().is_empty());
    assert!(store.edges(&other, page).await.unwrap().is_empty());
}

/// Journal, calls, inbox and boxes in pages of any size.
pub async fn pages_follow_each_other(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    for round in 0..5u32 {
        kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
        for call in [1, 2] {
            kit.report(&agent, run, round * 2 + call, START).await;
            kit.take_report(&agent, START).await;
        }
    }
    let whole = store.journal(&agent.tenant, run, 0, 1_000).await.unwrap();
    let mut pages = Vec::new();
    while let Some(page) = Some(store.journal(&agent.tenant, run, pages.len() as u64, 4).await.unwrap()).filter(|page| !page.is_empty()) {
        pages.extend(page);
    }
    assert_eq!(pages, whole);
    let second = store.calls(&agent.tenant, run, CallNumber(4), 2).await.unwrap();
    assert_eq!(second.iter().map(|call| call.call.0).collect::<Vec<_>>(), [4, 5]);
    let all = store.inbox(&agent, Page { after: 0, limit: 1_000 }).await.unwrap();
    assert_eq!(all.len(), 11);
    let middle = store.inbox(&agent, Page { after: all[3].id.0, limit: 3 }).await.unwrap();
    assert_eq!(middle, all[4..7]);
    let output = store.run(&agent.tenant, run).await.unwrap().unwrap().state.output;
    let own = store.box_items(&agent.tenant, output.id, 0, 100).await.unwrap();
    assert_eq!(own.len(), 20);
    assert_eq!(store.box_items(&agent.tenant, output.id, 18, 5).await.unwrap(), own[18..]);
}

/// One edge for each inbox row and one for each call, with the run's lineage, in pages of any size.
pub async fn edges_follow_the_inbox(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP, LOOKUP]), START).await;
    kit.report(&agent, run, 1, START.plus_ms(1)).await;
    let (guard, mut commit) =
        kit.prepare(&agent, Input::Stopped { reason: "no".into(), streamed: StreamedText::default() }, START.plus_ms(2)).await;
    let mut stop = kit.new_report(&agent, run, 1, START).message;
    (stop.kind, stop.call, stop.item) = (MessageKind::Stop, None, None);
    commit.messages.push(stop);
    store.commit(guard, commit).await.unwrap();
    let edges = store.edges(&agent, Page { after: 0, limit: 10 }).await.unwrap();
    let primitives: Vec<_> = edges.iter().map(|edge| (edge.primitive, edge.phase, edge.call.map(|call| call.0))).collect();
    let expected = [
        ("enqueue", "request", None),
        ("tool_call", "request", Some(1)),
        ("report", "response", Some(1)),
        ("stop", "request", None),
        ("tool_call", "request", Some(2)),
    ];
    assert_eq!(primitives, expected);
    for edge in &edges {
        assert_eq!((edge.run, edge.trace, edge.parent_step.as_deref(), edge.depth), (Some(run), [7; 16], Some("step"), 3));
    }
    kit.begin(&agent, START.plus_ms(3)).await;
    let whole = store.edges(&agent, Page { after: 0, limit: 10 }).await.unwrap();
    assert_eq!((&whole[..edges.len()], whole.len()), (&edges[..], edges.len() + 1));
    let mut paged = Vec::new();
    loop {
        let after = paged.iter().rev().find_map(|edge: &windlass_ports::Edge| edge.message).map_or(0, |message| message.0);
        let page = store.edges(&agent, Page { after, limit: 1 }).await.unwrap();
        let is_last = page.iter().all(|edge| edge.message.is_none());
        paged.extend(page);
        if is_last {
            break;
        }
    }
    assert_eq!(paged, whole);
}

fn ids(items: &[Item]) -> Vec<ItemId> {
    items.iter().map(|item| item.id).collect()
}
