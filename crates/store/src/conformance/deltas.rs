//! Deltas are stored before readers see them, and deleted when their text is in an item.

use std::sync::Arc;

use windlass_kernel::{AgentKey, ChunkLengths, Input, ItemKind, RunId, StreamedText};
use windlass_ports::{NodeId, StoreError};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, START, agent, calls, delta_batch, final_reply, foreign},
};

async fn streamed(store: &Arc<dyn Full>, agent: &AgentKey, run: RunId) -> StreamedText {
    store.streamed_text(&agent.tenant, run).await.unwrap()
}

fn of(chunks: &[&str]) -> StreamedText {
    StreamedText { text: chunks.concat(), chunks: ChunkLengths(chunks.iter().map(|chunk| chunk.len() as u32).collect()) }
}

/// All batches as one text, with every chunk boundary; with heartbeats, NULs and characters of several bytes.
pub async fn deltas_are_read_as_they_were_stored(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    assert_eq!(streamed(&store, &agent, run).await, StreamedText::default());
    store.append_deltas(delta_batch(&agent, run, 1, 0, &["Hel", "lo"])).await.unwrap();
    store.append_deltas(delta_batch(&agent, run, 1, 2, &[""])).await.unwrap();
    store.append_deltas(delta_batch(&agent, run, 1, 3, &[])).await.unwrap();
    store.append_deltas(delta_batch(&agent, run, 1, 3, &[", \0", "na\u{ef}ve \u{1F980}"])).await.unwrap();
    assert_eq!(streamed(&store, &agent, run).await, of(&["Hel", "lo", "", ", \0", "na\u{ef}ve \u{1F980}"]));
    assert_eq!(streamed(&store, &foreign("a"), run).await, StreamedText::default(), "another tenant reads nothing");
    assert_eq!(streamed(&store, &agent, kit.run_id()).await, StreamedText::default());
    let long = "x".repeat(100_000);
    store.append_deltas(delta_batch(&agent, run, 1, 5, &[&long])).await.unwrap();
    assert_eq!(streamed(&store, &agent, run).await.text.len(), "Hello, \0na\u{ef}ve \u{1F980}".len() + 100_000);
}

/// Deltas whose answer was lost are sent again, also after later ones, and change nothing.
pub async fn deltas_are_stored_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let batches =
        [delta_batch(&agent, run, 1, 0, &["a", "b"]), delta_batch(&agent, run, 1, 2, &["c"]), delta_batch(&agent, run, 1, 3, &["d", ""])];
    for batch in &batches {
        store.append_deltas(batch.clone()).await.unwrap();
        store.append_deltas(batch.clone()).await.unwrap();
    }
    for batch in batches {
        store.append_deltas(batch).await.unwrap();
    }
    store.append_deltas(delta_batch(&agent, run, 1, 1, &["b", "c", "d"])).await.unwrap();
    assert_eq!(streamed(&store, &agent, run).await, of(&["a", "b", "c", "d", ""]));
}

/// Another epoch, another run, another agent, an unknown agent; and an owner that lost its run to a takeover.
pub async fn deltas_of_another_owner_are_fenced(store: Arc<dyn Full>) {
    let (kit, a) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&a, START).await;
    store.append_deltas(delta_batch(&a, run, 1, 0, &["mine"])).await.unwrap();
    let (other, _) = kit.begin(&agent("b"), START).await;
    let (queued, _) = kit.begin(&a, START).await;
    let stale = [
        delta_batch(&a, run, 0, 1, &["x"]),
        delta_batch(&a, run, 2, 1, &["x"]),
        delta_batch(&a, run, 2, 0, &["mine"]),
        delta_batch(&a, other, 1, 0, &["x"]),
        delta_batch(&a, queued, 1, 0, &["x"]),
        delta_batch(&agent("nobody"), run, 1, 1, &["x"]),
        delta_batch(&foreign("a"), run, 1, 1, &["x"]),
    ];
    for stale in stale {
        let outcome = store.append_deltas(stale.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Fenced)), "{stale:?}: {outcome:?}");
    }
    let (guard, mut takeover) = kit.prepare(&a, Input::owner_changed(), START).await;
    takeover.node = NodeId(2);
    store.commit(guard, takeover).await.unwrap();
    assert!(matches!(store.append_deltas(delta_batch(&a, run, 1, 1, &["x"])).await, Err(StoreError::Fenced)));
    assert_eq!(streamed(&store, &a, run).await, of(&["mine"]), "the stored deltas stay");
    store.append_deltas(delta_batch(&a, run, 2, 1, &["yours"])).await.unwrap();
    assert_eq!(streamed(&store, &a, run).await, of(&["mine", "yours"]));
    for run in [other, queued] {
        assert_eq!(streamed(&store, &a, run).await, StreamedText::default());
    }
}

/// A gap, another text, other boundaries, a batch that continues beyond the stored deltas, chunks that do not fit the text: none of it is
/// stored.
pub async fn deltas_that_do_not_fit_are_refused(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    store.append_deltas(delta_batch(&agent, run, 1, 0, &["ab", "cd"])).await.unwrap();
    let mut long = delta_batch(&agent, run, 1, 2, &["ef"]);
    long.text.push('g');
    let mut short = delta_batch(&agent, run, 1, 2, &["ef"]);
    short.text.pop();
    let mut split = delta_batch(&agent, run, 1, 2, &["\u{e9}"]);
    split.pieces = ChunkLengths(vec![1, 1]);
    let misfits = [
        delta_batch(&agent, run, 1, 3, &["ef"]),
        delta_batch(&agent, run, 1, 0, &["ab", "ce"]),
        delta_batch(&agent, run, 1, 0, &["a", "bcd"]),
        delta_batch(&agent, run, 1, 1, &["cd", "ef"]),
        long,
        short,
        split,
    ];
    for misfit in misfits {
        let outcome = store.append_deltas(misfit.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Corrupt(_))), "{misfit:?}: {outcome:?}");
    }
    assert_eq!(streamed(&store, &agent, run).await, of(&["ab", "cd"]));
}

/// A commit that settles deltas deletes them in the same transaction; the next ones start from chunk 0.
pub async fn a_commit_settles_deltas(store: Arc<dyn Full>) {
    let (kit, a, b) = (Kit::new(&store), agent("a"), agent("b"));
    let (run, _) = kit.begin(&a, START).await;
    let (other, _) = kit.begin(&b, START).await;
    for first in 0..5 {
        store.append_deltas(delta_batch(&a, run, 1, first, &["x"])).await.unwrap();
        store.append_deltas(delta_batch(&b, other, 1, first, &["y"])).await.unwrap();
    }
    kit.advance(&a, Input::owner_changed(), START).await;
    assert_eq!(streamed(&store, &a, run).await.chunks.0.len(), 5, "a commit that does not settle leaves them");
    let (guard, mut commit) = kit.prepare(&a, calls(&[LOOKUP]), START).await;
    commit.clears_deltas = true;
    store.commit(guard.clone(), commit.clone()).await.unwrap();
    assert_eq!(streamed(&store, &a, run).await, StreamedText::default());
    assert_eq!(streamed(&store, &b, other).await.chunks.0.len(), 5, "others keep theirs");
    store.commit(guard, commit).await.unwrap();
    kit.report(&a, run, 1, START).await;
    kit.take_report(&a, START).await;
    store.append_deltas(delta_batch(&a, run, 1, 0, &["anew"])).await.unwrap();
    assert_eq!(streamed(&store, &a, run).await, of(&["anew"]));
    let (guard, mut end) = kit.prepare(&a, final_reply("anew"), START).await;
    end.clears_deltas = true;
    store.commit(guard, end).await.unwrap();
    assert_eq!(streamed(&store, &a, run).await, StreamedText::default());
    assert!(matches!(store.append_deltas(delta_batch(&a, run, 1, 0, &["late"])).await, Err(StoreError::Fenced)));
}

/// A fenced commit changes nothing.
pub async fn a_fenced_commit_settles_nothing(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    store.append_deltas(delta_batch(&agent, run, 1, 0, &["still", " here"])).await.unwrap();
    let (stale, mut commit) = kit.prepare(&agent, final_reply("done"), START).await;
    commit.clears_deltas = true;
    let (guard, mut takeover) = kit.prepare(&agent, Input::owner_changed(), START).await;
    takeover.node = NodeId(2);
    store.commit(guard, takeover).await.unwrap();
    assert!(matches!(store.commit(stale, commit).await, Err(StoreError::Fenced)));
    assert_eq!(streamed(&store, &agent, run).await, of(&["still", " here"]));
}

/// Neither does a commit that fails in the middle; and deltas that are stored at the same time are stored once.
pub async fn a_failing_commit_settles_nothing(store: Arc<dyn Full>) {
    let (kit, a, b) = (Kit::new(&store), agent("a"), agent("b"));
    let (run, _) = kit.begin(&a, START).await;
    let (other, _) = kit.begin(&b, START).await;
    store.append_deltas(delta_batch(&a, run, 1, 0, &["still"])).await.unwrap();
    let (guard, mut commit) = kit.prepare(&a, calls(&[LOOKUP]), START).await;
    commit.clears_deltas = true;
    let twice = kit.item(ItemKind::Thought, b"{}");
    commit.items.extend([twice.clone(), twice]);
    let (refused, kept) = tokio::join!(store.commit(guard, commit), store.append_deltas(delta_batch(&b, other, 1, 0, &["beside"])));
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    kept.unwrap();
    assert_eq!(streamed(&store, &a, run).await, of(&["still"]));
    store.append_deltas(delta_batch(&a, run, 1, 1, &[" here"])).await.unwrap();
    store.append_deltas(delta_batch(&b, other, 1, 1, &["s"])).await.unwrap();
    assert_eq!(streamed(&store, &a, run).await, of(&["still", " here"]));
    assert_eq!(streamed(&store, &b, other).await, of(&["beside", "s"]));
}

/// Many streams at once, where each batch is accepted, fenced or refused by itself; two batches of one stream keep their order.
pub async fn a_fenced_stream_does_not_affect_the_others(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut streams = Vec::new();
    for number in 0..30 {
        let agent = agent(&format!("a{number:02}"));
        let (run, _) = kit.begin(&agent, START).await;
        streams.push((agent, run));
    }
    let ask = |number: usize, first, piece: &'static str| {
        let (agent, run) = &streams[number];
        store.append_deltas(delta_batch(agent, *run, if number % 3 == 1 { 7 } else { 1 }, first, &[piece]))
    };
    let batches = (0..30).map(|number| async move {
        let first = if number % 3 == 2 { 1 } else { 0 };
        tokio::join!(ask(number, first, "one"), ask(number, first + 1, "two"))
    });
    let outcomes = futures_util::future::join_all(batches).await;
    for (number, (one, two)) in outcomes.into_iter().enumerate() {
        let (agent, run) = &streams[number];
        match number % 3 {
            0 => assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}"),
            1 => assert!(matches!((&one, &two), (Err(StoreError::Fenced), Err(StoreError::Fenced))), "{one:?} {two:?}"),
            _ => assert!(matches!((&one, &two), (Err(StoreError::Corrupt(_)), Err(StoreError::Corrupt(_)))), "{one:?} {two:?}"),
        }
        assert_eq!(streamed(&store, agent, *run).await, if number % 3 == 0 { of(&["one", "two"]) } else { StreamedText::default() });
    }
}
